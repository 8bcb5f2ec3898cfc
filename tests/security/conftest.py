"""A server that all attacks of one file share: what one leaves behind is there for the next, as in life."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attackparts import Attacked, attacked


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A server with a token of its own: nothing can be read without."""
    with attacked(tmp_path_factory.mktemp("attacked")) as started:
        yield started
