"""Probes of a real job: they tell who is slow, and whatever happens to them the job goes on as without."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.diagnose.passes import ring_passes
from holdfast.diagnose.probing import judge
from holdfast.faults import Fault
from holdfast.findings import Suspect
from holdfast.job.orders import ProbeOrder, ProbeResult, read_results
from holdfast.lab.fork import Job, Lab, Result
from lab.needs import need

pytestmark = [pytest.mark.processes, pytest.mark.alone]
RANKS = 4
VICTIM = 2
PATIENT = 25
"""Products enough that most of the others' are undisturbed, also where the machine stands still a while."""


class Ran(NamedTuple):
    """A job that was probed, and what its ranks said."""

    job: Result
    order: ProbeOrder
    results: dict[int, ProbeResult]

    @property
    def outcomes(self) -> dict[int, str]:
        """By rank."""
        return {rank: result.outcome for rank, result in self.results.items()}

    def told(self, rank: int, word: str) -> list[str]:
        """Return the lines of a rank that begin with the word."""
        return [line for line in self.job.logs[rank].splitlines() if line.startswith(word)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab whose workers find the job beside this file."""
    before = os.environ.get("PYTHONPATH")
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), str(here.parent), before]))
    try:
        with Lab() as lab:
            yield lab
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def make_order(**changed: Any) -> ProbeOrder:
    """Return an order for all ranks, patient enough for a busy machine, changed where asked."""
    usual: dict[str, Any] = {
        "id": "p1",
        "at_step": 5,
        "ranks": list(range(RANKS)),
        "kinds": ["gemm", "links"],
        "passes": ring_passes(range(RANKS)),
        "timeout_s": 30.0,
        "size_bytes": 1 << 20,
        "repeats": 5,
    }
    return ProbeOrder(**(usual | changed))


def run(
    lab: Lab, folder: Path, order: ProbeOrder, scene: str = "", faults: tuple[Fault, ...] = (), **job: Any
) -> Ran:
    """Run the job to its end, with a probe in it."""
    args = [str(folder), msgspec.json.encode(order).decode(), scene]
    ended = lab.run(Job(module="probejob", ranks=RANKS, args=args, **job), faults, grace_s=30.0)
    found = {result.rank: result for result in read_results(folder, order.id, order.ranks)}
    return Ran(ended, order, found)


def check_finished(ran: Ran) -> None:
    """Fail unless all ranks went on to the end, every all-reduce of theirs gave the right sum."""
    assert ran.job.exit_codes == [0] * RANKS, (ran.job.events, ran.job.logs)
    for rank in range(RANKS):
        assert ran.told(rank, "sum") == [f"sum {4.0 * step}" for step in range(1, 13)]


def first_suspect(ran: Ran) -> Suspect:
    """Return whom the results point at, and show them where they point at nobody."""
    found = judge(ran.results.values(), ran.order)
    assert found, ran.results
    return found[0]


def test_four_healthy_ranks_answer_and_leave_nothing_behind(lab: Lab, tmp_path: Path) -> None:
    """Each product and each link is timed as often as asked, at both ends; threads and sockets are gone."""
    ran = run(lab, tmp_path, make_order())
    check_finished(ran)
    assert set(ran.outcomes.values()) == {"done"}, ran.results
    links = [
        (result.rank, link.source, link.target) for result in ran.results.values() for link in result.links
    ]
    pairs = [pair for each in ran.order.passes for pair in each]
    assert sorted(links) == sorted((rank, *pair) for pair in pairs for rank in pair)
    for result in ran.results.values():
        assert {len(result.gemm_s), *(len(link.times_s) for link in result.links)} == {5}
        assert min(result.gemm_s) > 0
        assert ran.told(result.rank, "open") == ["open True"], ran.job.logs


def test_losses_are_the_same_to_the_last_bit_with_and_without_a_probe(lab: Lab, tmp_path: Path) -> None:
    """Dropout draws the same numbers, and all settings of the user are as they were."""
    probed = run(lab, tmp_path, make_order())
    args = [str(tmp_path), "none"]
    alone = Ran(lab.run(Job(module="probejob", ranks=RANKS, args=args)), probed.order, {})
    assert set(probed.outcomes.values()) == {"done"}
    check_finished(alone)
    for rank in range(RANKS):
        assert len(probed.told(rank, "loss")) == 12
        assert probed.told(rank, "loss") == alone.told(rank, "loss")
        assert probed.told(rank, "settings") == alone.told(rank, "settings")


def test_some_ranks_of_a_job_are_probed_alone(lab: Lab, tmp_path: Path) -> None:
    """The others are not asked, and the job waits for nobody but them."""
    ran = run(lab, tmp_path, make_order(ranks=[1, 3], passes=ring_passes([1, 3])))
    check_finished(ran)
    assert ran.outcomes == {1: "done", 3: "done"}


def test_a_rank_that_never_comes_costs_the_others_the_time_out_alone(lab: Lab, tmp_path: Path) -> None:
    """They say that there was no answer, have timed their products, and go on."""
    ran = run(lab, tmp_path, make_order(timeout_s=1.0), "absent")
    check_finished(ran)
    assert ran.outcomes == {0: "no_answer", 1: "no_answer", 3: "no_answer"}
    for rank, result in ran.results.items():
        assert len(result.gemm_s) == 5
        assert (result.error or "").startswith("the group: ")
        assert ran.told(rank, "open") == ["open True"], ran.job.logs


def test_a_rank_that_comes_when_the_others_have_begun_stays_out(lab: Lab, tmp_path: Path) -> None:
    """It begins no probe of its own, which nobody would answer."""
    ran = run(lab, tmp_path, make_order(timeout_s=1.0), "late")
    check_finished(ran)
    assert ran.outcomes == {0: "no_answer", 1: "no_answer", 2: "no_go", 3: "no_answer"}
    assert ran.results[VICTIM].error == "came after step 5, when the word was 'go'"


def test_a_rank_that_is_past_the_step_calls_it_off_for_all(lab: Lab, tmp_path: Path) -> None:
    """The others ask first, and go on at once."""
    ran = run(lab, tmp_path, make_order(), "ahead")
    assert ran.job.exit_codes == [0] * RANKS, (ran.job.events, ran.job.logs)
    assert set(ran.outcomes.values()) == {"no_go"}
    assert ran.results[0].error == "another rank came too late"
    assert all(result.gemm_s == [] for result in ran.results.values())


@pytest.mark.parametrize("scene", ["dies_in_gemm", "dies_in_links"])
def test_a_rank_killed_in_mid_probe_holds_nobody(lab: Lab, tmp_path: Path, scene: str) -> None:
    """The others get through with the probe, and learn of the death by their own next all-reduce."""
    ran = run(lab, tmp_path, make_order(timeout_s=2.0), scene)
    assert ran.job.exit_codes == [1, 1, -signal.SIGKILL, 1], ran.job.logs
    assert sorted(ran.outcomes) == [0, 1, 3]
    assert ran.outcomes[1] == "no_answer"
    for rank in (0, 1, 3):
        assert len(ran.results[rank].gemm_s) == 5
        assert "dist.all_reduce(total)" in ran.job.logs[rank]


def test_a_slow_product_is_named(lab: Lab, tmp_path: Path) -> None:
    """The rank whose products take 0.2 s longer is the first suspect."""
    ran = run(lab, tmp_path, make_order(kinds=["gemm"], repeats=PATIENT), "slow_gemm")
    check_finished(ran)
    found = first_suspect(ran)
    assert (found.ranks, found.cause) == ([VICTIM], "compute"), ran.results


@pytest.mark.root
def test_a_rank_with_little_cpu_time_is_named(lab: Lab, tmp_path: Path) -> None:
    """A quota of a sixteenth of a core is seen in the products of the rank that has it."""
    need("cgroup")
    fault = Fault(kind="cpu_quota", target=VICTIM, at_step=1, severity=16.0, via="cgroup")
    ran = run(lab, tmp_path, make_order(kinds=["gemm"], repeats=PATIENT), "quota", (fault,))
    check_finished(ran)
    found = first_suspect(ran)
    assert (found.ranks, found.cause) == ([VICTIM], "compute"), ran.results


def test_a_paced_link_is_named(lab: Lab, tmp_path: Path) -> None:
    """Rank 2 sends 10 MB a second, and in a ring it sends to rank 3 alone."""
    ran = run(lab, tmp_path, make_order(kinds=["links"]), "paced")
    check_finished(ran)
    found = first_suspect(ran)
    assert (found.link, found.cause) == ((2, 3), "link"), ran.results


@pytest.mark.root
def test_a_slow_path_between_two_hosts_is_named(lab: Lab, tmp_path: Path) -> None:
    """A path at an eighth of a NIC's rate is the first suspect."""
    need("namespaces")
    fault = Fault(kind="slow_link", target=(1, 2), at_step=1, severity=8.0, via="namespace")
    order = make_order(kinds=["links"])
    ran = run(lab, tmp_path, order, "slow_path", (fault,), in_namespaces=True, nic_bytes_s=50e6)
    check_finished(ran)
    found = first_suspect(ran)
    assert (found.link, found.cause) == ((1, 2), "link"), ran.results
