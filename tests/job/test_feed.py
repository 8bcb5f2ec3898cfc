"""The feed: state and updates get through in order, and whatever goes wrong ends it without a word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from helpers import wait_until
from holdfast.job.feed import MOST_WAITING, DonorLostError, Feeding, Intake

TOKEN = "secret"


@pytest.fixture
def intake() -> Iterator[Intake]:
    """A newcomer that listens."""
    intake = Intake("127.0.0.1", TOKEN)
    yield intake
    intake.close()


def address(intake: Intake) -> str:
    return f"127.0.0.1:{intake.port}"


def test_all_of_it_arrives_in_order(intake: Intake) -> None:
    """State, updates and end, with their versions and tensors."""
    feeding = Feeding(address(intake), TOKEN)
    feeding.give("state", 7, {"weights": torch.arange(1000.0)})
    for version in (8, 9):
        feeding.give("update", version, {"gradients": [torch.full((3,), float(version)), None], "scale": 0.5})
    feeding.end(9)
    found = list(intake.parcels())
    assert [(parcel.kind, parcel.version) for parcel, _ in found] == [
        ("state", 7),
        ("update", 8),
        ("update", 9),
        ("end", 9),
    ]
    assert torch.equal(found[0][1]["weights"], torch.arange(1000.0))
    assert found[1][1]["gradients"][1] is None
    assert found[2][1]["gradients"][0].tolist() == [9.0, 9.0, 9.0]
    assert intake.received_bytes > 4000
    wait_until(lambda: feeding.is_over, "the donor's end")


def test_a_stranger_is_not_listened_to(intake: Intake) -> None:
    """The donor that comes after it is."""
    Feeding(address(intake), "guess").give("state", 1, {"evil": 1})
    with socket.create_connection(("127.0.0.1", intake.port)) as garbage:
        garbage.sendall(b"\xff" * 100)
    feeding = Feeding(address(intake), TOKEN)
    feeding.give("state", 2, {"good": 1})
    feeding.end(2)
    assert [content for _, content in intake.parcels()] == [{"good": 1}, None]


def test_a_donor_that_dies_is_noticed_and_another_may_come(intake: Intake) -> None:
    """In the middle of a tensor."""

    def die() -> None:
        with socket.create_connection(("127.0.0.1", intake.port)) as donor:
            donor.sendall(len(TOKEN).to_bytes(4, "big") + TOKEN.encode() + b"\x00\x00\x10\x00half")

    thread = threading.Thread(target=die)
    thread.start()
    with pytest.raises(DonorLostError):
        list(intake.parcels())
    thread.join()
    feeding = Feeding(address(intake), TOKEN)
    feeding.end(3)
    assert [parcel.version for parcel, _ in intake.parcels()] == [3]


@pytest.mark.parametrize("frame", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x01\x80"])
def test_what_is_no_parcel_ends_it(intake: Intake, frame: bytes) -> None:
    """Nothing is made of it."""

    def send() -> None:
        with socket.create_connection(("127.0.0.1", intake.port)) as donor:
            donor.sendall(len(TOKEN).to_bytes(4, "big") + TOKEN.encode() + frame)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(DonorLostError):
        list(intake.parcels())
    thread.join()


def test_a_newcomer_that_does_not_listen_costs_nothing() -> None:
    """What is given is dropped, and the donor knows; nobody waits."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        feeding = Feeding(f"127.0.0.1:{port}", TOKEN)
        big: Any = {"gradients": [torch.zeros(1 << 18)]}
        for version in range(3 * MOST_WAITING):
            feeding.give("update", version, big)
        wait_until(lambda: feeding.is_over, "giving up")
        assert feeding.is_over
