"""Slow links hurt one pair of ranks, slow NICs all pairs of one rank, by either mechanism."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import combinations

import pytest

from holdfast.faults import Fault
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.injectors.namespaces import FOLDER, Network, sweep
from holdfast.lab.owner import PREFIX

from .measure import of_link, of_rank
from .needs import need

pytestmark = [pytest.mark.processes, pytest.mark.alone]
NIC_BYTES_S = 50e6
SWAP_S = 2 * (1 << 20) / NIC_BYTES_S
LINK = Fault(kind="slow_link", target=(0, 1), at_step=9, for_steps=7, severity=4.0)
NIC = Fault(kind="slow_nic", target=2, at_step=24, for_steps=7, severity=4.0)
ASKED_S = 3 * SWAP_S
PAIRS = list(combinations(range(3), 2))


@pytest.fixture(
    scope="module", params=["pacing", pytest.param("namespace", marks=pytest.mark.root)], ids=lambda via: via
)
def result(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Result]:
    """One run of three ranks that meets a slow link and then a slow NIC."""
    in_namespaces = request.param == "namespace"
    if in_namespaces:
        need("namespaces")
    job = Job(
        module="holdfast.lab.jobs.exchange",
        ranks=3,
        args=["--steps", "39", "--width", "32", "--layers", "1"],
        nic_bytes_s=NIC_BYTES_S,
        in_namespaces=in_namespaces,
    )
    result = lab.run(job, [LINK, NIC])
    assert result.exit_codes == [0, 0, 0], result.logs
    assert [event.via for event in result.events if event.type == "begin"] == [request.param] * 2
    yield result
    assert not list(FOLDER.glob(f"{PREFIX}-*")), "namespaces are left behind"


@pytest.mark.parametrize(("fault", "hurt"), [(LINK, [(0, 1)]), (NIC, [(0, 2), (1, 2)])], ids=["link", "nic"])
def test_transfers_on_the_slow_path_grow(result: Result, fault: Fault, hurt: list[tuple[int, int]]) -> None:
    """The pairs at fault take longer by about what was asked, the others do not, and relief ends it."""
    growth = {pair: of_link(result, pair, fault) for pair in PAIRS}
    others = max(abs(phases.growth) for pair, phases in growth.items() if pair not in hurt)
    for pair in hurt:
        assert growth[pair].growth > ASKED_S / 2, growth
        assert growth[pair].growth > 2 * others, growth
        assert abs(growth[pair].after - growth[pair].before) < ASKED_S / 2, growth


def test_pacing_holds_for_messages_that_python_does_not_see(lab: Lab) -> None:
    """DDP communicates in C++, and a slow NIC slows its steps down all the same."""
    fault = Fault(kind="slow_nic", target=1, at_step=12, for_steps=10, severity=5.0)
    args = ["--steps", "32", "--width", "64"]
    result = lab.run(Job(module="holdfast.lab.jobs.ddp", ranks=2, args=args, nic_bytes_s=20e6), [fault])
    assert result.exit_codes == [0, 0], result.logs
    steps = of_rank(result, 0, lambda row: row.duration_s, fault)
    assert steps.during > 2 * max(steps.before, steps.after), steps


@pytest.mark.root
def test_namespaces_of_a_dead_owner_are_swept() -> None:
    """A lab that was killed leaves namespaces behind, and the next one removes them."""
    need("namespaces")
    network = Network(1, NIC_BYTES_S)
    with network:
        left = FOLDER / network.namespace(0)
        orphan = FOLDER / f"{PREFIX}-4194999-1-rank0"
        subprocess.run(["ip", "netns", "add", orphan.name], check=True)
        sweep()
        assert left.exists()
        assert not orphan.exists()
    assert not left.exists()
