"""Invitations to a job: private, whole, and a rank of one's own for everybody who comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.guard.joining import FILE, Invitation, _take_rank, invite, read_invitation

INVITATION = Invitation(
    hub={"HOLDFAST_HUB": "localhost:1", "HOLDFAST_TOKEN": "secret"},
    attempt=0,
    world_size=12,
    command=["-m", "holdfast.job.boot", "train.py"],
    folder="/",
    host="somewhere",
    rings="/nowhere",
)


def test_an_invitation_is_for_its_user_alone(tmp_path: Path) -> None:
    """It holds the token; and the next attempt's takes its place."""
    invite(tmp_path, INVITATION)
    invite(tmp_path, INVITATION)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert read_invitation(tmp_path) == INVITATION
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]"])
def test_what_is_no_invitation_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    """With the file, and what was expected."""
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match=FILE):
        read_invitation(tmp_path)


def test_everybody_gets_a_rank_of_its_own(tmp_path: Path) -> None:
    """Beyond those that the launcher started."""
    folder = tmp_path / "spares"
    assert [_take_rank(folder, INVITATION) for _ in range(3)] == [12, 13, 14]
