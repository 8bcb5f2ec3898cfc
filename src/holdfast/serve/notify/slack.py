"""A message as Slack takes it, and whoever took over its format: a text, and blocks that look better."""

from __future__ import annotations

from typing import Any

from holdfast.serve.notify.deciding import Message

_KINDS = {"slow": "Slow job", "death": "Worker died", "hang": "Job hangs"}
_ICONS = {"opened": "🔴", "named": "🔎", "mitigated": "🛠️", "closed": "🟢", "again": "🔁"}
_MOST_WORDS = 1500
"""Slack takes 3000 characters in a block, and escaping makes text longer."""
_MOST_RANKS = 16


def make_payload(message: Message, *, run: str, link: str = "") -> dict[str, Any]:
    """Return the JSON of a message about a run, with a link to its page where there is one."""
    headline = tell_headline(message)
    name = f"<{link}|{escape(run)}>" if link else f"*{escape(run)}*"
    lines = [f"{_ICONS[message.told]} {name}: {escape(headline)}", escape(_cut(message.words))]
    lines += [escape(line) for line in (_tell_ranks(message), tell_bill(message)) if line]
    return {
        "text": escape(f"{run}: {headline}: {_cut(message.words)}"),
        "blocks": [
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": "\n".join(line for line in lines if line)},
            },
            {
                "type": "context",
                "elements": [{"type": "mrkdwn", "text": escape(f"Holdfast, {message.at}")}],
            },
        ],
    }


def tell_headline(message: Message) -> str:
    """Return what happened in a few words."""
    kind = _KINDS[message.kind]
    if message.told == "again":
        state = "open" if message.is_open else "closed"
        return f"{kind}, {message.count} times by now, {state}"
    return f"{kind}, {message.told}"


def tell_bill(message: Message) -> str:
    """Return what it cost, once that is known."""
    if message.told not in ("closed", "again") or message.is_open:
        return ""
    hours = message.gpus / 3600
    bill = f"lost {message.lost_s:.1f} s ({message.lost_s * hours:.2f} GPU hours)"
    if message.paid_s > 0:
        bill += f", of that {message.paid_s:.1f} s for what was done"
    if message.saved_s > 0:
        bill += f"; saved {message.saved_s:.1f} s ({message.saved_s * hours:.2f} GPU hours)"
    return bill


def escape(text: str) -> str:
    """Return text in which nothing is a link, a mention or a command."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _tell_ranks(message: Message) -> str:
    if not message.ranks:
        return ""
    shown = ", ".join(map(str, message.ranks[:_MOST_RANKS]))
    more = len(message.ranks) - _MOST_RANKS
    return f"rank {shown}" + (f" and {more} more" if more > 0 else "")


def _cut(words: str) -> str:
    text = " ".join(words.split())
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 1]}…"
