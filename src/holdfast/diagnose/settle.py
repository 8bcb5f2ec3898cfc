"""What profiles show, settled with what else is known: which link it is, and what follows from what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.diagnose.links import SlowLink
from holdfast.findings import Suspect

_LINK_SURE = 0.9
_LEAST_SHARE = 0.1
"""Of the time in collectives, from which on a slow link matters."""


def settle(
    suspects: Sequence[Suspect], links: Sequence[SlowLink], ranks: Sequence[int], *, waited_share: float
) -> list[Suspect]:
    """Return the suspects, each told once: ``waited_share`` is what ranks spend in collectives."""
    return _fold(_name_links(suspects, links, ranks, waited_share))


def _name_links(
    suspects: Sequence[Suspect], links: Sequence[SlowLink], ranks: Sequence[int], waited_share: float
) -> list[Suspect]:
    """Say which link it is, where connections tell: in a ring all ranks are as slow as the slowest link."""
    others = [suspect for suspect in suspects if suspect.cause != "link"]
    seen = [suspect for suspect in suspects if suspect.cause == "link"]
    if not links or (not seen and (others or waited_share < _LEAST_SHARE)):
        return list(suspects)
    cost_s = max((suspect.cost_s or 0.0 for suspect in seen), default=0.0)
    named = [
        Suspect(
            kind="link" if link.link is not None else "rank",
            ranks=list(link.ranks),
            link=link.link,
            function=seen[0].function if seen else None,
            cause="link",
            slowdown=seen[0].slowdown if seen else None,
            cost_s=cost_s or None,
            confidence=_LINK_SURE,
            victims=sorted(set(ranks) - set(link.ranks)),
            evidence=[link.evidence, *(seen[0].evidence if seen else ())],
        )
        for link in links
    ]
    return [*named, *others]


def _fold(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Tell once what holds a rank up in all that it does: who is kept from running is late everywhere."""
    kept = [suspect for suspect in suspects if suspect.cause == "cpu_contention"]
    if not kept:
        return list(suspects)
    held = {rank for suspect in kept for rank in suspect.ranks}
    rest = [suspect for suspect in suspects if suspect not in kept]
    followed = [suspect for suspect in rest if suspect.kind == "function" and set(suspect.ranks) <= held]
    others = [suspect for suspect in rest if suspect not in followed]
    first = max(kept, key=lambda suspect: suspect.cost_s or 0.0)
    told = [
        suspect.evidence[0] for suspect in (*kept, *followed) if suspect is not first and suspect.evidence
    ]
    whole = msgspec.structs.replace(
        first,
        ranks=sorted(held),
        victims=sorted(set(first.victims) - held),
        evidence=[*first.evidence, *told],
    )
    return [whole, *others]
