"""Ports that are taken are found out before torch waits there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from holdfast.errors import InputError
from holdfast.guard.ports import check_is_store, check_port_is_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def test_a_taken_port_is_named(taken: int) -> None:
    """One line with the number and what to do."""
    with pytest.raises(InputError) as caught:
        check_port_is_free(f"localhost:{taken}")
    assert str(caught.value) == (
        f"port {taken} is taken on this machine (Address already in use): "
        "give another --master-port, or none for a free one"
    )


@pytest.mark.parametrize(
    "endpoint", ["localhost:{free}", "anywhere:{free}", "localhost:0", "localhost", "[::1]:{free}"]
)
def test_a_free_port_or_none_is_fine(free: int, endpoint: str) -> None:
    """Asking leaves the port free."""
    for _ in range(2):
        check_port_is_free(endpoint.format(free=free))


@pytest.mark.parametrize("check", [check_port_is_free, check_is_store])
def test_a_port_that_does_not_exist_is_refused(check: object) -> None:
    """There are 65536 of them."""
    assert callable(check)
    with pytest.raises(
        InputError, match="port 65536 of 'localhost:65536' does not exist, expected 0 to 65535"
    ):
        check("localhost:65536")


def test_digits_that_are_no_number_are_no_port() -> None:
    """They are refused in one line."""
    with pytest.raises(InputError, match="port ² of"):
        check_port_is_free("localhost:²")


def test_a_launchers_store_is_welcome() -> None:
    """It is where the others are."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    check_is_store(f"localhost:{store.port}")


def test_nobody_there_yet_is_fine(free: int) -> None:
    """This launcher will be the first."""
    check_is_store(f"localhost:{free}")


@pytest.mark.parametrize("endpoint", ["other.invalid:{taken}", "localhost:0", "localhost", ""])
def test_other_machines_are_not_asked(taken: int, endpoint: str) -> None:
    """Only what this machine itself runs can be judged here."""
    check_is_store(endpoint.format(taken=taken))
