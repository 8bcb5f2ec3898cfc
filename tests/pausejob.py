"""A job of one rank with pauses of known length, evaluations, overflows, forks and threads."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils.data import DataLoader, Dataset

from holdfast.job import attach
from pairs import home, tell

PAUSE_S = 0.05
STEPS = 24


class Numbers(Dataset[torch.Tensor]):
    """Items of eight elements; some of them take long."""

    def __init__(self, count: int, slow: tuple[int, ...] = ()) -> None:
        self._count, self._slow = count, slow

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self._slow:
            time.sleep(PAUSE_S)
        return torch.full((8,), float(index))


class Trainer:
    """A model, an optimizer, and what it takes to make a step of a batch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def backward(self, batch: torch.Tensor) -> None:
        """Add a batch's gradients."""
        self.model(batch).square().mean().backward()

    def step(self, batch: torch.Tensor) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()


def slow_data() -> None:
    """The items of batch 10 sleep; so does the consumer in step 15, which is not the loader's time."""
    trainer = Trainer()
    for step, batch in enumerate(DataLoader(Numbers(2 * STEPS, slow=(20, 21)), batch_size=2)):
        if step == 15:
            time.sleep(PAUSE_S)
        trainer.step(batch)


def slow_workers() -> None:
    """Items come from two forked processes; an optimizer's step in one of them is nobody's."""
    trainer = Trainer()
    loader = DataLoader(Numbers(2 * STEPS), batch_size=2, num_workers=2, worker_init_fn=_update_in_worker)
    for batch in loader:
        trainer.step(batch)


def _update_in_worker(number: int) -> None:
    trainer = Trainer()
    for _ in range(5):
        trainer.step(torch.zeros(2, 8))
        gc.collect(0)


def garbage() -> None:
    """The collector runs in step 10, and its callback sleeps."""
    trainer = Trainer()

    def rest(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            time.sleep(PAUSE_S)

    for step, batch in enumerate(_batches()):
        if step == 10:
            gc.callbacks.insert(0, rest)
            gc.collect(0)
            gc.callbacks.remove(rest)
        trainer.step(batch)


def saving() -> None:
    """Step 10 saves with torch.save, step 15 a distributed checkpoint, which saves within saving."""
    trainer = Trainer()
    for step, batch in enumerate(_batches()):
        if step == 10:
            torch.save(_Slow(), home() / "model.pt")
        if step == 15:
            dcp.save(  # type: ignore[attr-defined]
                {"model": trainer.model.state_dict(), "note": _Slow()}, checkpoint_id=home() / "saved"
            )
        trainer.step(batch)


class _Slow:
    """Takes long to save."""

    def __getstate__(self) -> dict[str, int]:
        time.sleep(PAUSE_S)
        return {}


def accumulation() -> None:
    """Four batches make a step."""
    trainer = Trainer()
    for at, batch in enumerate(DataLoader(Numbers(8 * STEPS), batch_size=2)):
        trainer.backward(batch)
        if at % 4 == 3:
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()


def overflow() -> None:
    """A scaler skips the updates of steps 12 and 18."""
    trainer, scaler = Trainer(), torch.amp.GradScaler("cpu", init_scale=2.0)
    for step, batch in enumerate(DataLoader(Numbers(2 * STEPS), batch_size=2)):
        trainer.optimizer.zero_grad()
        loss = trainer.model(batch).square().mean()
        scaler.scale(loss * (float("inf") if step in (12, 18) else 1.0)).backward()
        scaler.step(trainer.optimizer)
        scaler.update()


def evaluation() -> None:
    """Every eighth step is followed by an evaluation of thirty batches; there are three epochs."""
    trainer, loader = Trainer(), DataLoader(Numbers(2 * STEPS // 3), batch_size=2)
    judge, done = DataLoader(Numbers(30)), 0
    for _ in range(3):
        for batch in loader:
            trainer.step(batch)
            done += 1
            if done % 8 == 0:
                with torch.no_grad():
                    for each in judge:
                        trainer.model(each)


def own_indices() -> None:
    """The sampler and the data are lists, to which no weak reference can be made; there are three epochs."""
    trainer, count = Trainer(), STEPS // 3
    data: Any = [torch.ones(8) for _ in range(count)]
    loader = DataLoader(data, sampler=list(range(count)), batch_size=None)
    for _ in range(3):
        for batch in loader:
            trainer.step(batch)


def forked() -> None:
    """A forked child trains too; its steps are not ours."""
    trainer = Trainer()
    for step, batch in enumerate(_batches()):
        trainer.step(batch)
        if step == 10:
            child = os.fork()
            if child == 0:
                for _ in range(3):
                    trainer.step(batch)
                os._exit(0)
            os.waitpid(child, 0)


def beside() -> None:
    """Another thread trains, loads and saves at the same time; that is not the training."""
    trainer, threads = Trainer(), []
    for step, batch in enumerate(_batches()):
        if step == 10:
            threads.append(threading.Thread(target=_side_job))
            threads[0].start()
            threads[0].join()
        trainer.step(batch)


def _side_job() -> None:
    trainer = Trainer()
    for batch in DataLoader(Numbers(4, slow=(0,))):
        trainer.step(batch)
    torch.save(_Slow(), home() / "side.pt")
    gc.collect(0)


def _batches() -> Iterator[torch.Tensor]:
    return (torch.ones(2, 8) for _ in range(STEPS))


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        slow_data,
        slow_workers,
        garbage,
        saving,
        accumulation,
        overflow,
        evaluation,
        own_indices,
        forked,
        beside,
    )
}


def main() -> None:
    """Run every kind, and tell how many steps were recorded when each was over."""
    warnings.simplefilter("ignore")
    observer = attach._attached
    assert observer is not None
    ends = {}
    for name, job in KINDS.items():
        job()
        gc.collect()
        ends[name] = observer.steps
    tell({"ends": ends, "errors": observer.errors})


def main_in_thread() -> None:
    """Train in a thread that is not the main one."""
    thread = threading.Thread(target=slow_data)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main_in_thread() if "thread" in sys.argv else main()
