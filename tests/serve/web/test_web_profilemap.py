"""Profiles whose parts do not fit together: the page is shown without their map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from holdfast.diagnose.reduce import Known, WorkerPattern, number_of
from holdfast.guard.jobprofile import JobProfile
from holdfast.serve.web.views.profilemap import draw_profile
from holdfast.telemetry import ProfileOrder

_KNOWN = Known(kind="compute", stack=["gemm<128>"])
_NUMBERS = np.array([number_of(_KNOWN)], np.uint64).tobytes()
_SHARES = (np.array([[0.6, 0.8, 0.02]]) * 65_535).astype(np.uint16).tobytes()


def _keep(folder: Path, *, ranks: int = 8, **odd: Any) -> Path:
    """Keep a profile; of rank 2 some fields are odd."""
    pattern: dict[str, Any] = {"span_s": 4.0, "steps": 10, "numbers": _NUMBERS, "shares": _SHARES}
    patterns = [WorkerPattern(**({"rank": rank} | pattern | (odd if rank == 2 else {}))) for rank in range(8)]
    profile = JobProfile(
        order=ProfileOrder(id="p1", ranks=[0, ranks - 1], first_step=10, last_step=19, folder="x"),
        why="a person asked",
        results=[],
        patterns=patterns,
        functions={number_of(_KNOWN): _KNOWN},
        usage={},
        unread=[],
        channels={},
        hosts={},
    )
    file = folder / "job.json"
    file.write_bytes(msgspec.json.encode(profile))
    return file


def test_a_profile_is_drawn(tmp_path: Path) -> None:
    """So those below are not empty for another reason."""
    assert "gemm&lt;128&gt;" in draw_profile(_keep(tmp_path))


@pytest.mark.parametrize(
    "odd",
    [
        {"shares": _SHARES[:-2]},
        {"shares": b""},
        {"numbers": _NUMBERS + _NUMBERS},
        {"numbers": b"odd"},
        {"rank": 2**60},
        {"ranks": 2**60},
    ],
)
def test_a_profile_that_contradicts_itself_is_not_drawn(tmp_path: Path, odd: dict[str, Any]) -> None:
    """Nor does it bring down the page."""
    assert draw_profile(_keep(tmp_path, **odd)) == ""


def test_what_is_nested_too_deeply_is_not_drawn(tmp_path: Path) -> None:
    """It is no profile."""
    file = tmp_path / "job.json"
    file.write_text('{"odd":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert draw_profile(file) == ""
