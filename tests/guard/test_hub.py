"""The hub: real connections; workers join, report, and go on without those who left."""

from __future__ import annotations

import socket
import threading

import pytest
from hubs import Connect, Heard, connect, heard, hub, start

from helpers import wait_until
from holdfast.control import Controller
from holdfast.guard.hub import Callbacks, Hub
from holdfast.guard.sockets import listen, notice_loss
from holdfast.job.messages import Bye, Farewell, Given, Put, Want
from holdfast.membership import Stop
from hubclient import TOKEN, Client, make_hello

__all__ = ["connect", "heard", "hub"]  # Fixtures.


def test_all_who_joined_and_reported_go_on_together(connect: Connect, heard: Heard, hub: Hub) -> None:
    """The first generation has everybody, and the owner is told so once."""
    start(connect, 3)
    assert hub.members() == [0, 1, 2]
    wait_until(lambda: heard.regroups == [(0, [0, 1, 2], [])], "the callback")


def test_nobody_goes_on_before_all_have_joined(connect: Connect) -> None:
    """A report alone decides nothing while a rank is missing."""
    first = connect(0, dp=2)
    first.report(-1)
    second = connect(1, dp=2)
    second.report(-1)
    assert first.regroup().members == second.regroup().members == [0, 1]


def test_the_others_go_on_when_one_dies_before_it_reports(connect: Connect, heard: Heard) -> None:
    """Its death is what completes the reports."""
    clients = start(connect, 3)
    for client in clients[:2]:
        client.report(0, version=7)
    clients[2].die()
    regroups = [client.regroup() for client in clients[:2]]
    assert [(each.generation, each.members) for each in regroups] == [(1, [0, 1])] * 2
    assert [each.agreement.version for each in regroups] == [7, 7]
    wait_until(lambda: heard.regroups[1:] == [(1, [0, 1], [2])], "the callback")
    assert heard.left == [(2, False)]


def test_a_death_after_the_report_takes_the_report_along(connect: Connect, heard: Heard) -> None:
    """The dead rank is no member, although it had reported."""
    clients = start(connect, 3)
    clients[2].report(0)
    clients[0].report(0)
    clients[2].die()
    wait_until(lambda: heard.left == [(2, False)], "the death")
    clients[1].report(0)
    assert [client.regroup().members for client in clients[:2]] == [[0, 1]] * 2


def test_a_reset_connection_is_a_death(connect: Connect, heard: Heard) -> None:
    """The machine may be up while the process is gone."""
    clients = start(connect, 2)
    clients[0].report(0)
    # A close with this option sends a reset.
    clients[1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    clients[1].die()
    assert clients[0].regroup().members == [0]
    wait_until(lambda: heard.left == [(1, False)], "the callback")


def test_a_goodbye_is_no_death(connect: Connect, heard: Heard, hub: Hub) -> None:
    """Who is done may go, and those who miss it afterwards are done as well."""
    clients = start(connect, 2)
    clients[1].send(Bye())
    clients[1].die()
    wait_until(lambda: hub.members() == [0], "the list")
    assert heard.left == [(1, True)]
    clients[0].report(0)
    assert clients[0].decision() == Farewell()


def test_all_who_are_done_are_told_so_at_the_same_time(connect: Connect, heard: Heard) -> None:
    """Nobody closes what another may still need."""
    clients = start(connect, 3)
    clients[0].send(Bye())
    clients[2].send(Bye())
    clients[1].send(Bye())
    assert [client.hear() for client in clients] == [Farewell()] * 3
    for client in clients:
        client.die()
    wait_until(lambda: sorted(heard.left) == [(0, True), (1, True), (2, True)], "the callbacks")


def test_a_death_among_the_last_does_not_keep_the_others(connect: Connect) -> None:
    """It was the only one that was not done."""
    clients = start(connect, 2)
    clients[0].send(Bye())
    clients[1].die()
    assert clients[0].decision() == Farewell()


def test_a_spare_does_not_keep_the_others_nor_itself(connect: Connect, hub: Hub) -> None:
    """It hears of the end as all do: a launcher that had no workers left waited for it for ever."""
    clients = start(connect, 2)
    spare = connect(7, dp=2, is_newcomer=True)
    wait_until(lambda: hub.members() == [0, 1, 7], "the spare")
    clients[0].send(Bye())
    clients[1].die()
    assert clients[0].decision() == Farewell()
    assert spare.decision() == Farewell()


def test_sessions_know_nothing_of_each_other(connect: Connect, hub: Hub) -> None:
    """Each has generations and values of its own, and a rank may be in both."""
    first, second = start(connect, 1), start(connect, 2, session=1)
    first[0].send(Put(generation=0, key="a/0", value=b"first"))
    second[0].send(Put(generation=0, key="a/0", value=b"second"))
    second[1].send(Want(generation=0, key="a/0"))
    assert second[1].hear() == Given(generation=0, values={"a/0": b"second"})
    assert hub.members() == [0, 1]


def test_the_dead_of_one_session_are_not_waited_for_in_the_next(connect: Connect, heard: Heard) -> None:
    """The pipeline that the survivors open next begins without them."""
    clients = start(connect, 3)
    clients[1].die()
    wait_until(lambda: heard.left == [(1, False)], "the death")
    later = [connect(rank, dp=3, session=1) for rank in (0, 2)]
    for client in later:
        client.report(-1)
    assert [client.regroup().members for client in later] == [[0, 2]] * 2


def test_a_worker_that_the_launcher_saw_die_is_not_waited_for(connect: Connect, hub: Hub) -> None:
    """It never came, and never will."""
    clients = [connect(rank, dp=3) for rank in (0, 2)]
    for client in clients:
        client.report(-1)
    hub.lost(1)
    assert [client.regroup().members for client in clients] == [[0, 2]] * 2
    assert connect(1, dp=3).is_closed()


def test_a_connection_that_outlives_its_worker_is_ended(connect: Connect, hub: Hub, heard: Heard) -> None:
    """A helper that the worker left running may hold it open; the death is one death."""
    clients = start(connect, 2)
    clients[0].report(0)
    hub.lost(1)
    assert clients[0].regroup().members == [0]
    assert clients[1].is_closed()
    wait_until(lambda: hub.members() == [0], "the list")
    # What was decided stands: the end of the connection did not spoil the new generation.
    clients[0].send(Put(generation=1, key="a/0", value=b"x"))
    clients[0].send(Want(generation=1, key="a/0"))
    assert clients[0].hear() == Given(generation=1, values={"a/0": b"x"})
    assert len(heard.regroups) == 2


def test_when_a_stage_is_lost_all_are_told_to_stop(connect: Connect, heard: Heard) -> None:
    """The reason is the controller's, and later reports get the same answer."""
    clients = start(connect, 1, pp=2)
    clients[1].die()
    clients[0].report(0)
    stop = clients[0].decision()
    assert isinstance(stop, Stop)
    assert "every worker of stage 1 is gone (0.1)" in stop.reason
    clients[0].report(0)
    assert clients[0].decision() == stop
    wait_until(lambda: heard.stops, "the callback")
    assert heard.stops == [stop.reason]


def test_workers_of_different_shapes_are_told_to_stop(connect: Connect, heard: Heard) -> None:
    """Also the one that came with the other shape."""
    first, second = connect(0, dp=2), connect(1, dp=3)
    assert first.hear() == second.hear()
    assert len(heard.stops) <= 1


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_without_a_place_is_told_to_stop(connect: Connect, rank: int) -> None:
    """The job has another size than its script believes."""
    stop = connect(rank, dp=2).hear()
    assert stop == Stop(reason=f"rank {rank} has no place in 2 pipelines of 1 stages each")


# --- the server -------------------------------------------------------------------------------


def test_what_the_owner_raises_does_not_reach_the_workers() -> None:
    """The hub serves on."""

    def fail(*_: object) -> None:
        raise RuntimeError("the owner's disk is full")

    hub = Hub(TOKEN, Callbacks(on_regroup=fail, on_left=fail, on_stop=fail), is_local=True)
    clients = [Client(hub.port, make_hello(rank, dp=2)) for rank in range(2)]
    try:
        for client in clients:
            client.report(-1)
        assert [client.regroup().generation for client in clients] == [0, 0]
        clients[1].die()
        clients[0].report(0)
        assert clients[0].regroup().members == [0]
    finally:
        hub.close()
        clients[0].die()


def test_a_failure_of_the_controller_stops_the_job(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer that cannot come."""
    clients = start(connect, 2)
    monkeypatch.setattr(Controller, "_decide", lambda self: 1 / 0)
    clients[0].report(0)
    stop = Stop(reason="the controller failed: ZeroDivisionError: division by zero")
    assert [client.decision() for client in clients] == [stop, stop]


def test_closing_the_hub_is_nobodys_death(connect: Connect, hub: Hub, heard: Heard) -> None:
    """Connections end, the thread too, and closing again does nothing."""
    clients = start(connect, 2)
    hub.close()
    hub.close()
    hub.lost(0)
    assert all(client.is_closed() for client in clients)
    assert heard.left == []
    assert "holdfast-hub" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("is_local", [True, False])
def test_the_hub_listens_where_it_should(is_local: bool) -> None:
    """On loopback alone, or on every interface of either protocol."""
    with listen(is_local=is_local) as listener:
        host, port = listener.getsockname()[:2]
        assert host == ("127.0.0.1" if is_local else "::" if socket.has_dualstack_ipv6() else "0.0.0.0")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            assert client.getpeername()[1] == port


def test_a_machine_that_vanishes_is_noticed_within_seconds() -> None:
    """Probes go out after a second of silence, and three without an answer are the end."""
    with listen(is_local=True) as listener, socket.create_connection(listener.getsockname()) as client:
        notice_loss(client)
        tcp = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [client.getsockopt(socket.IPPROTO_TCP, option) for option in tcp] == [1, 1, 3, 4000]
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
