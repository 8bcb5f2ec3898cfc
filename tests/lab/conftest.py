"""One fork server for all tests of the lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.lab.fork import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A lab whose server has imported torch once."""
    with Lab() as lab:
        yield lab
