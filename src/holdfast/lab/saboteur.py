"""The saboteur inside a worker: acts out the faults of its control file, step by step.

It reads the file at every step boundary (one ``stat`` when nothing changed), so faults can be added to a
live job. Storms blow at the end of a step, before the ring records it; the network and storage of the lab
are emulated, at a nominal rate, as soon as the file names a fault of theirs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.faults import Fault
from holdfast.job.on_import import on_import
from holdfast.lab import device
from holdfast.lab.beat import Beat
from holdfast.lab.control import ControlFile, control_path
from holdfast.lab.pacing import DEFAULT_NIC_BYTES_S, NIC_ENV, Pacing
from holdfast.lab.storage import DEFAULT_STORAGE_BYTES_S, STORAGE_ENV, Storage
from holdfast.lab.storms import CopyStorm, GarbageStorm
from holdfast.lab.strain import NETWORK_KINDS, Strain, link_slowdown, strain_on


class Saboteur:
    """Hurts the process it lives in."""

    def __init__(self, folder: Path, *, rank: int, beat: Beat) -> None:
        self._rank = rank
        self._beat = beat
        self._control = ControlFile(control_path(folder, rank))
        self._garbage = GarbageStorm()
        self._copies = CopyStorm()
        self._storage = Storage(_rate(STORAGE_ENV, DEFAULT_STORAGE_BYTES_S))
        self._pacing = Pacing(folder, rank=rank, nic_bytes_s=_rate(NIC_ENV, DEFAULT_NIC_BYTES_S))
        self._is_paced = False
        self._is_stall_due = False
        self._has_warned = False
        self._strain = Strain()

    def install(self) -> None:
        """Hook into torch as soon as the script imports it, and get ready for step 0."""
        self._beat.listen(self._end_step)
        on_import("torch.utils.data.dataloader", self._wrap_loader)
        self._enter(0)

    def _end_step(self, step: int) -> None:
        if self._strain.garbage_s > 0:
            self._garbage.blow(self._strain.garbage_s)
        if self._strain.copying_s > 0:
            self._copies.blow(self._strain.copying_s)
        self._warn_if_in_vain()
        self._enter(step + 1)

    def _enter(self, step: int) -> None:
        faults = self._control.read()
        self._strain = strain_on(faults, rank=self._rank, step=step)
        self._is_stall_due = self._strain.stall_s > 0
        device.current().slowdown = self._strain.device_slowdown
        self._storage.slowdown = self._strain.storage_slowdown
        if any(fault.kind == "slow_storage" for fault in faults):
            self._storage.install()
        self._pace([fault for fault in faults if fault.kind in NETWORK_KINDS], step)

    def _pace(self, faults: list[Fault], step: int) -> None:
        if faults:
            self._pacing.apply(lambda peer: link_slowdown(faults, ends=(self._rank, peer), step=step))
        elif self._is_paced:
            self._pacing.lift()
        self._is_paced = bool(faults)

    def _wrap_loader(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        wrapped: Callable[[Any], Any] = _BaseDataLoaderIter.__next__

        def stalled_next(iterator: Any) -> Any:
            if self._is_stall_due:  # Once per step, however many batches a step takes.
                self._is_stall_due = False
                time.sleep(self._strain.stall_s)
            return wrapped(iterator)

        _BaseDataLoaderIter.__next__ = stalled_next  # type: ignore[assignment, method-assign]

    def _warn_if_in_vain(self) -> None:
        if self._strain.device_slowdown > 1 and device.current().op_s == 0 and not self._has_warned:
            self._has_warned = True
            sys.stderr.write(f"holdfast lab: slow_device has no effect, the job uses no {device.LABEL}\n")


def _rate(variable: str, default: float) -> float:
    return float(os.environ.get(variable) or default)
