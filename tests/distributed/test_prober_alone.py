"""A probe of one rank, in the process of the test: the user's settings, and a store that does not answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.distributed import HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]

from helpers import wait_until
from holdfast.job.orders import ProbeOrder
from holdfast.job.prober import PREFIX, THREAD, run_probe

pytestmark = [pytest.mark.processes, pytest.mark.alone]
ALONE = ProbeOrder(id="alone", at_step=5, ranks=[0], kinds=["gemm", "links"], timeout_s=30.0, repeats=2)
HOST = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host() -> Iterator[subprocess.Popen[str]]:
    """A process that hosts a store and prints its port."""
    host = subprocess.Popen(
        [sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with host:
        yield host
        host.kill()
    wait_until(lambda: not any(thread.name == THREAD for thread in threading.enumerate()))


def test_settings_of_the_user_are_used_by_nothing_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are, the same product is computed, and they are the same after it."""
    real = torch.mm
    seen: set[Any] = set()

    def watched(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        done = real(left, right, out=out)
        seen.update((each.dtype, each.device.type, each.requires_grad) for each in (left, right, done))
        return done

    monkeypatch.setattr(torch, "mm", watched)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    before = torch.get_rng_state()
    try:
        with torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
            result = run_probe(ALONE, 0, HashStore())
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_default_device() == torch.device("meta")
        assert (result.outcome, result.error, len(result.gemm_s)) == ("done", None, 2)
        where = torch.accelerator.current_accelerator() or torch.device("cpu")
        assert seen == {(torch.float32, where.type, False)}
        assert torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_a_job_without_a_store_is_not_probed() -> None:
    """There is nobody to agree with."""
    assert run_probe(ALONE, 0, None).error == "the job has no store"


def test_a_word_that_was_said_is_not_said_again() -> None:
    """The first word counts for all, whoever comes after it."""
    store = HashStore()
    assert run_probe(ALONE, 0, store, is_late=True).outcome == "no_go"
    assert run_probe(ALONE, 0, store).outcome == "no_go"
    assert store.get(f"{PREFIX}/alone/go") == b"no"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=lambda number: number.name)
def test_a_store_that_is_gone_or_stands_still_holds_nobody(
    host: subprocess.Popen[str], number: signal.Signals
) -> None:
    """The probe gives up by itself, the user's time-out stays, and the next probe does not wait behind it."""
    assert host.stdout is not None
    patience = timedelta(seconds=5)
    port = int(host.stdout.readline())
    store = PrefixStore("user", TCPStore("127.0.0.1", port, is_master=False, timeout=patience))
    assert run_probe(msgspec.structs.replace(ALONE, id="first"), 0, store).outcome == "done"
    host.send_signal(number)
    if number == signal.SIGKILL:
        host.wait()
    else:  # All of its threads: one of them answers.
        tasks = Path(f"/proc/{host.pid}/task")
        wait_until(lambda: all("\nState:\tT" in (each / "status").read_text() for each in tasks.iterdir()))
    order = msgspec.structs.replace(ALONE, timeout_s=0.5)
    result = run_probe(order, 0, store)
    assert (result.outcome, result.error) == ("no_answer", "the store: no answer within 0.5 s")
    assert store.timeout == patience  # type: ignore[attr-defined]
    assert run_probe(order, 0, store).error == "an earlier probe still waits for the store"
