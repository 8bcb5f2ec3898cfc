"""SECURITY.md says what was tried; every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists() -> None:
    """In the file that was named last before it."""
    text = (_ROOT / "SECURITY.md").read_text()
    file, missing, found = "", [], 0
    for name in re.findall(r"`(tests/\S+\.py|test_\w+)`", text):
        if name.endswith(".py"):
            file = (_ROOT / name).read_text()
            continue
        found += 1
        if f"def {name}(" not in file:
            missing.append(name)
    assert (missing, found > 30) == ([], True)


def test_every_attack_is_on_the_page() -> None:
    """At least the file that it is in."""
    text = (_ROOT / "SECURITY.md").read_text()
    files = {f"tests/security/{file.name}" for file in Path(__file__).parent.glob("test_*.py")}
    assert {file for file in files if file not in text} == set()
