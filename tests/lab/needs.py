"""What a test needs of the machine: absent, it is skipped in one line at home and fails in CI."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.lab.injectors import namespaces, quota


def need(*names: str) -> None:
    """Skip the test, or fail it where CI=true, unless the machine has all of these."""
    for name in names:
        problem = _problem(name)
        if problem is not None and os.environ.get("CI") == "true":
            pytest.fail(f"needs {name}: {problem}", pytrace=False)
        if problem is not None:
            pytest.skip(f"needs {name}: {problem}")


def _problem(name: str) -> str | None:
    if name == "root":
        return None if os.geteuid() == 0 else "not running as root"
    if name == "cores":
        return None if len(os.sched_getaffinity(0)) >= 2 else "two cores, one per rank"
    if name == "cgroup":
        is_available, detail = quota.available()
        return None if is_available else detail
    if name == "namespaces":
        is_available, detail = namespaces.available()
        return None if is_available else detail
    return None if shutil.which(name) else f"{name} is not installed"
