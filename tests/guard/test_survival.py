"""A launcher's part in a job that survives deaths, as far as it can be seen from one node."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import WorkerState

from helpers import Ears, make_death, wait_until
from holdfast.guard.board import Board
from holdfast.guard.eventlog import EventLog
from holdfast.guard.survival import Survival, hub_env
from holdfast.job.messages import HUB_ENV, TOKEN_ENV, Bye
from hubclient import Client, make_hello


def _join(survival: Survival, rank: int, *, dp: int) -> Client:
    env = hub_env(survival.word("localhost"))
    port = int(env[HUB_ENV].rpartition(":")[2])
    return Client(port, make_hello(rank, dp=dp, token=env[TOKEN_ENV]))


def _log(folder: Path, ears: Ears) -> EventLog:
    return EventLog(folder, node=0, host="a", say=ears.say)


def test_every_attempt_has_a_token_of_its_own(tmp_path: Path, ears: Ears) -> None:
    """Workers of one cannot speak in another."""
    words = []
    for _ in range(2):
        survival = Survival(ears.say, _log(tmp_path, ears), None, is_host=True)
        words.append(hub_env(survival.word("localhost"))[TOKEN_ENV])
        survival.close()
    assert words[0] != words[1]


def test_a_node_without_a_hub_has_no_word_of_it(tmp_path: Path, ears: Ears) -> None:
    """And workers that find none are told of none."""
    survival = Survival(ears.say, _log(tmp_path, ears), None, is_host=False)
    assert hub_env(survival.word("localhost")) == {}


def test_a_single_node_without_workers_has_failed(tmp_path: Path, ears: Ears) -> None:
    """There is nobody else."""
    survival = Survival(ears.say, _log(tmp_path, ears), None, is_host=True)
    assert survival.outlook() == WorkerState.FAILED
    survival.close()


@pytest.mark.parametrize(("has_goodbye", "end"), [(True, WorkerState.SUCCEEDED), (False, WorkerState.FAILED)])
def test_node_0_ends_with_the_last_member(
    tmp_path: Path, ears: Ears, has_goodbye: bool, end: WorkerState
) -> None:
    """It succeeds if somebody had the last word, and fails if the last one died."""
    board = Board(HashStore(), prefix="holdfast")
    survival = Survival(ears.say, _log(tmp_path, ears), board, is_host=True)
    client = _join(survival, 0, dp=1)
    client.report(-1)
    client.regroup()
    assert survival.outlook() == WorkerState.HEALTHY
    if has_goodbye:
        client.send(Bye())
    client.die()
    wait_until(lambda: survival.outlook() != WorkerState.HEALTHY, "the end")
    assert survival.outlook() == end
    survival.close()


def test_another_node_without_workers_fails_only_with_the_job(tmp_path: Path, ears: Ears) -> None:
    """It waits a moment for node 0's word, and leaves well if there is none."""
    store = HashStore()
    quiet = Survival(ears.say, _log(tmp_path, ears), Board(store, prefix="0"), is_host=False)
    assert quiet.outlook() == WorkerState.HEALTHY
    wait_until(lambda: quiet.outlook() == WorkerState.SUCCEEDED, "the end of its patience")
    Board(store, prefix="1").post_failure()
    told = Survival(ears.say, _log(tmp_path, ears), Board(store, prefix="1"), is_host=False)
    assert told.outlook() == WorkerState.FAILED


def test_node_0_waits_for_all_but_the_dead(tmp_path: Path, ears: Ears) -> None:
    """Ranks whose launcher has spoken and ranks that died make up the whole job."""
    board = Board(HashStore(), prefix="holdfast")
    survival = Survival(ears.say, _log(tmp_path, ears), board, is_host=True)
    board.post_end([2, 3])
    survival.mourn(make_death(rank=4, signal="SIGKILL", exit_code=137))
    survival.part([0, 1], world_size=5, timeout_s=1e9)
    assert board.ended() == {0, 1, 2, 3}
    assert ears.lines() == ["holdfast: rank 4 died: SIGKILL; the others go on"]
    survival.close()
