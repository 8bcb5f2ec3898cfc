"""The director: drives a list of faults against a live job, by the steps its targets are in.

Faults that workers act out are written to their control files at the start; the others are applied and
relieved from here. Whatever happens, leaving the director relieves everything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.faults import Fault
from holdfast.lab import mechanisms
from holdfast.lab.control import write_faults
from holdfast.lab.due import Active, is_due, is_over, rebased
from holdfast.lab.faults import check_faults
from holdfast.lab.injectors import Injector
from holdfast.lab.injectors.namespaces import Network
from holdfast.lab.kinds import WORKER
from holdfast.lab.strain import concerns
from holdfast.lab.targets import Targets
from holdfast.values import FaultInjected, FaultRelieved

POLL_S = 0.003
CALM_POLL_S = 0.03
"""While workers act out all that is left: then only the log is kept here, and they need the processor."""
_ACTED = (WORKER, "pacing")
"""By workers themselves."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where the faults take place."""

    folder: Path
    """The lab's folder, which the workers know as HOLDFAST_LAB."""
    world_size: int
    network: Network | None = None
    """The namespaces that the workers run in, if they do."""


class Director:
    """A context around the job; or call ``start`` before the workers start and ``stop`` at the end."""

    def __init__(
        self,
        faults: Sequence[Fault],
        targets: Targets,
        scene: Scene,
        *,
        on_event: Callable[[FaultInjected | FaultRelieved], None],
    ) -> None:
        check_faults(faults, world_size=scene.world_size)
        has_network = scene.network is not None
        self._vias = {fault: mechanisms.choose(fault, has_network=has_network) for fault in faults}
        self._targets = targets
        self._scene = scene
        self._on_event = on_event
        self._pending: list[Fault] = list(dict.fromkeys(faults))
        self._active: dict[Fault, tuple[Active, Injector | None]] = {}
        self._seen_pids: dict[int, int] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """Why it gave up, if it did; ``stop`` raises it."""

    @property
    def is_done(self) -> bool:
        """Say whether every fault has come and gone."""
        return not self._pending and not self._active

    def __enter__(self) -> Director:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            self.stop()
        except Exception:
            if kind is None:  # Do not hide what went wrong inside.
                raise

    def start(self) -> None:
        """Write the control files and begin to direct in a thread."""
        mechanisms.sweep()
        self._pending = [self._rebased(fault) for fault in self._pending]
        self._write_controls(self._pending)
        self._thread = threading.Thread(target=self._run, name="holdfast-director", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Relieve everything and end; raise what made the director give up, if anything did."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _rebased(self, fault: Fault) -> Fault:
        moved = rebased(fault, self._steps(fault))
        self._vias[moved] = self._vias[fault]
        return moved

    def _run(self) -> None:
        # Helpers of injectors end with the thread that started them: this one does all the injecting.
        try:
            while not self._stopping.wait(self._pause_s()):
                self._poll()
        except Exception as error:
            self.error = error
        finally:
            self._relieve_all()

    def _pause_s(self) -> float:
        is_calm = all(self._vias[fault] in _ACTED for fault in (*self._pending, *self._active))
        return CALM_POLL_S if is_calm else POLL_S

    def _poll(self) -> None:
        if self._has_restarted():  # New workers count from 0 again and must not meet faults that are over.
            self._write_controls([*self._pending, *self._active])
        for fault in list(self._pending):
            if is_due(fault, self._steps(fault)):
                self._pending.remove(fault)
                self._apply(fault)
        for fault, (active, _) in list(self._active.items()):
            if is_over(
                active,
                steps=self._steps(fault),
                pids=self._pids(fault),
                now_s=time.monotonic(),
                step_s=self._targets.step_s(fault.ranks[0]),
            ):
                self._relieve(fault)

    def _has_restarted(self) -> bool:
        """Say whether a rank has another process than when we last saw one."""
        is_new = False
        for rank in range(self._scene.world_size):
            pid = self._targets.pid(rank)
            if pid is not None:
                is_new = is_new or self._seen_pids.get(rank, pid) != pid
                self._seen_pids[rank] = pid
        return is_new

    def _apply(self, fault: Fault) -> None:
        pids = self._pids(fault)
        step = self._step(fault)
        via = self._vias[fault]
        if pids[0] is None:  # It died before its time.
            return
        injector = mechanisms.build(fault, via, pid=pids[0], network=self._scene.network)
        if injector is not None:
            try:
                injector.apply()
            except BaseException:
                injector.relieve()  # Nothing half done stays.
                raise
        if fault.kind != "kill":
            self._active[fault] = (Active(fault=fault, since_s=time.monotonic(), pids=pids), injector)
        self._on_event(FaultInjected(fault=fault, step=step, via=via))

    def _relieve(self, fault: Fault) -> None:
        _, injector = self._active.pop(fault)
        if injector is not None:
            injector.relieve()
        self._on_event(FaultRelieved(fault=fault, step=self._step(fault)))

    def _relieve_all(self) -> None:
        self._write_controls([])
        for fault in list(self._active):
            try:
                self._relieve(fault)
            except Exception as error:  # The others must be relieved all the same.
                self.error = self.error or error

    def _write_controls(self, faults: Sequence[Fault]) -> None:
        # Faults that are over stay in the files: while one of the network is there, its NICs are emulated.
        acted = [fault for fault in faults if self._vias[fault] in _ACTED]
        if not acted and not self._scene.folder.is_dir():
            return  # The workers of this job know of no lab, and need not: all faults come from outside.
        for rank in range(self._scene.world_size):
            write_faults(self._scene.folder, rank, [fault for fault in acted if concerns(fault, rank)])

    def _steps(self, fault: Fault) -> dict[int, int | None]:
        return {rank: self._targets.step(rank) for rank in fault.ranks}

    def _step(self, fault: Fault) -> int:
        return max(step or 0 for step in self._steps(fault).values())

    def _pids(self, fault: Fault) -> tuple[int | None, ...]:
        return tuple(self._targets.pid(rank) for rank in fault.ranks)
