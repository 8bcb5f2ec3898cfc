"""Lines and rows that no store can use, each with why."""

from __future__ import annotations

from holdfast.serve.store.incoming import MOST_EVENT_BYTES
from store.storecases import answer, at, line

BAD_EVENTS: list[tuple[bytes, str]] = [
    (b"[]", "event 2: Expected `object`, got `array`"),
    (b'{"schema": 1', "event 2: Input data was truncated"),
    (bytes(line("x")).replace(b"step_seen", b"of_tomorrow"), "event 2: Invalid value 'of_tomorrow'"),
    (bytes(line("x")).replace(b'"schema":1', b'"schema":9'), "event 2: schema is 9, expected at most 1"),
    (bytes(line("x", node=3)), "event 2: node is 3, expected 0, who sent it"),
    (bytes(line("")), "event 2: event_id is ''"),
    (bytes(line("x\0y")), "event 2: event_id is"),
    (bytes(line("x" * 201)), "event 2: event_id is"),
    (bytes(line("x")).replace(at(0).encode(), b"yesterday"), "event 2: time is 'yesterday'"),
    (
        bytes(line("x")).replace(b"+00:00", b""),
        "event 2: time is '2026-11-15T12:00:00', expected one with",
    ),
    (bytes(line("x")).replace(b'"h"', b'"' + b"h" * MOST_EVENT_BYTES + b'"'), "expected at most 262144"),
    (bytes(line("x")).replace(b'"h"', b'"\xff"'), "event 2: "),
    (b"[" * 100_000, "event 2: "),
    (bytes(line("x")).replace(b'"step":', b'"step":1' + b"0" * 310 + b',"past":'), "a number has 311 digits"),
    (bytes(answer("x", "a\0b")), "event 2: order is"),
]

BAD_ROWS: list[tuple[dict[str, object], str]] = [
    ({"node": 1}, "summary 1: node is 1, expected 0"),
    ({"at": "2026"}, "summary 1: time is '2026'"),
    ({"at": "1901-01-01T00:00:00+00:00"}, "expected one of the years 1970 to 2199"),
    ({"at": at(2 * 24 * 3600)}, "more than a day ahead of the server's clock"),
    ({"steps": {"0": -1}}, "summary 1: step is -1"),
    ({"steps": {"0": 1 << 60}}, "summary 1: step is"),
    ({"duration_s": {"zero": 1.0}}, "summary 1: rank is 'zero'"),
    ({"duration_s": {"9999999": 1.0}}, "summary 1: rank is '9999999'"),
    ({"duration_s": {"0": float("nan")}}, "summary 1: step time is nan s"),
    ({"own_s": {"0": -1.0}}, "summary 1: step time is -1.0 s"),
]
