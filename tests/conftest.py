"""Fixtures of the unit tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from disturbed import MOST_STOLEN, Counted, DisturbedError
from helpers import Ears

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Slow is what the machine is, not the test.
settings.register_profile(
    "holdfast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("holdfast")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Say so where a test fails while others have the machine: then it is run again."""
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """The same for the test itself."""
    return (yield from _watched(item))


def _watched(item: pytest.Item) -> Generator[None]:
    before = Counted.now()
    try:
        return (yield)
    except Exception as error:
        stolen = Counted.now().stolen_since(before)
        if item.get_closest_marker("alone") is None or stolen <= MOST_STOLEN:
            raise
        raise DisturbedError(f"others had {stolen:.0%} of the machine meanwhile") from error


@pytest.fixture
def ears() -> Iterator[Ears]:
    """A ``Say`` and what was heard of it."""
    ears = Ears()
    yield ears
    ears.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window; for one file only: no other loop can run beside playwright's."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


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
