"""Messages as Slack takes them."""

from __future__ import annotations

import msgspec

from holdfast.serve.notify.deciding import Message
from holdfast.serve.notify.slack import make_payload

MESSAGE = Message(
    incident_id="a",
    mark="closed",
    told="closed",
    kind="slow",
    at="2026-11-17T12:00:00+00:00",
    words="steps are as fast as before",
    is_open=False,
    ranks=(3, 4),
    lost_s=90.0,
    paid_s=1.5,
    saved_s=360.0,
    gpus=40,
)


def test_a_closed_incident_says_what_it_cost() -> None:
    """In seconds of the job and in hours of its GPUs, the same as the page."""
    payload = make_payload(MESSAGE, run="big-run", link="https://h.example.org/runs/1a2b")
    assert payload["text"] == "big-run: Slow job, closed: steps are as fast as before"
    assert payload["blocks"][0]["text"]["text"] == (
        "🟢 <https://h.example.org/runs/1a2b|big-run>: Slow job, closed\n"
        "steps are as fast as before\n"
        "rank 3, 4\n"
        "lost 90.0 s (1.00 GPU hours), of that 1.5 s for what was done; saved 360.0 s (4.00 GPU hours)"
    )
    assert "2026-11-17T12:00:00+00:00" in payload["blocks"][1]["elements"][0]["text"]


def test_nothing_in_a_message_is_a_mention_or_a_link() -> None:
    """Names of runs and words of errors are chosen by others."""
    nasty = "<!channel> & <https://evil.example.org|click>"
    payload = make_payload(msgspec.structs.replace(MESSAGE, words=nasty), run="<@U1>")
    escaped = "&lt;!channel&gt; &amp; &lt;https://evil.example.org|click&gt;"
    text = payload["blocks"][0]["text"]["text"]
    assert escaped in payload["text"]
    assert escaped in text
    assert "*&lt;@U1&gt;*" in text
    assert "<" not in text.replace("&lt;", "")


def test_what_returned_says_how_often() -> None:
    """And whether it is there now; what it cost only when it is not."""
    again = msgspec.structs.replace(MESSAGE, told="again", count=7, is_open=True)
    payload = make_payload(again, run="big-run")
    assert payload["text"].startswith("big-run: Slow job, 7 times by now, open")
    assert "lost" not in payload["blocks"][0]["text"]["text"]


def test_long_words_fit_into_a_block() -> None:
    """Slack refuses a block of more than 3000 characters; an error may be of any length."""
    long = msgspec.structs.replace(MESSAGE, words="x\n" * 5000, ranks=tuple(range(10_000)))
    payload = make_payload(long, run="big-run")
    text = payload["blocks"][0]["text"]["text"]
    assert len(text) < 3000
    assert "rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 9984 more" in text
