"""Fixtures of the unit tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers import Ears

# Slow is what the machine is, not the test.
settings.register_profile(
    "holdfast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("holdfast")


@pytest.fixture
def ears() -> Iterator[Ears]:
    """A ``Say`` and what was heard of it."""
    ears = Ears()
    yield ears
    ears.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages; only root can have one."""
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "needs root to mount a small file system"
        pytest.skip("needs root to mount a small file system")
    disk = tmp_path / "small_disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
