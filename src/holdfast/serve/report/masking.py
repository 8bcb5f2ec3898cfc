"""Words of a command or a setting as a report may show them: what looks like a secret is left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"token|secret|passw|credential|api[-_]?key|webhook|auth|(?<![a-z])keys?$", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def mask_setting(name: str, value: object) -> str:
    """Return a setting's value; hidden where its name says that it is a secret."""
    said = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return HIDDEN if _SECRET.search(name) and value else _LOGIN.sub(HIDDEN, said)


def mask_command(words: Sequence[str]) -> list[str]:
    """Return a command; values of flags that name a secret, and logins in addresses, are hidden."""
    shown: list[str] = []
    is_secret = False
    for word in words:
        flag, equals, _ = word.partition("=")
        if is_secret and not word.startswith("-"):
            shown.append(HIDDEN)
            is_secret = False
            continue
        is_secret = word.startswith("-") and _SECRET.search(flag) is not None and not equals
        is_told = equals and _SECRET.search(flag) is not None
        shown.append(f"{flag}={HIDDEN}" if is_told else _LOGIN.sub(HIDDEN, word))
    return shown
