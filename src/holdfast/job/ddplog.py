"""How long DistributedDataParallel kept a rank waiting: from its own log, since its reducer is C++.

A communication hook would cost ten times as much, and the user's own registration of one would raise. The
log is a prototype of torch's: what is missing in it is not told.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from holdfast.job.channels import Channels
from holdfast.job.tally import Tally
from holdfast.telemetry import StepFlag

_SAMPLE_ON_DEVICE = 10
"""On an accelerator the log waits for its events: only each so manyth backward pass is looked at."""


class _Read:
    """How far the log of a module was read."""

    def __init__(self) -> None:
        self.ended_ns = 0
        """The end of the communication that was counted last, on the log's clock."""
        self.is_read = True
        """Whether there was no forward pass since."""


class DdpLog:
    """Reads the log of every DDP module when a step ends, and before it is written over."""

    def __init__(self, tally: Tally, channels: Channels) -> None:
        self._tally = tally
        self._channels = channels
        self._modules: list[tuple[weakref.ref[Any], _Read]] = []

    def install(self) -> None:
        """Hear of every DDP module that is made, and of every forward pass whose gradients will be joined."""
        from torch.nn.parallel.distributed import DistributedDataParallel

        wrapped = DistributedDataParallel.__init__

        @functools.wraps(wrapped)
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            wrapped(module, *args, **kwargs)
            self._adopt(module)

        DistributedDataParallel.__init__ = init  # type: ignore[method-assign, assignment]
        from torch.distributed import Logger  # type: ignore[attr-defined]

        log = Logger.set_runtime_stats_and_log

        @functools.wraps(log)
        def log_and_read(logger: Any) -> None:
            log(logger)
            self._begin_pass(logger)

        Logger.set_runtime_stats_and_log = log_and_read  # type: ignore[method-assign, assignment]
        self._log = log

    def _adopt(self, module: Any) -> None:
        try:
            is_on_host = getattr(module, "device_type", "cpu") == "cpu"
            module._set_ddp_runtime_logging_sample_rate(1 if is_on_host else _SAMPLE_ON_DEVICE)
            self._modules = [each for each in self._modules if each[0]() is not None]
            self._modules.append((weakref.ref(module), _Read()))
        except Exception:
            self._tally.errors += 1

    def end_step(self, lasted_ns: int) -> None:
        """Count the waiting of the step that ends, which was no longer than the step."""
        for pair in self._modules:
            module, read = pair[0](), pair[1]
            if module is None:
                continue
            try:
                # DDP itself does this at its next forward, which is in the next step.
                self._log(module.logger)
                self._read(module, read, lasted_ns)
                read.is_read = True
            except Exception:
                self._tally.errors += 1
                self._modules = [each for each in self._modules if each is not pair]

    def _begin_pass(self, logger: Any) -> None:
        """Read what the last backward pass left, unless a step ended since: there are several in this one."""
        try:
            for reference, read in self._modules:
                module = reference()
                if module is not None and module.logger is logger:
                    if not read.is_read:
                        self._read(module, read, None)
                    read.is_read = False
        except Exception:
            self._tally.errors += 1

    def _read(self, module: Any, read: _Read, most_ns: int | None) -> None:
        figures = module.logger._get_ddp_logging_data().ints_map
        ended_ns = figures.get("backward_comm_time_end", 0)
        # Nothing new: no backward since, or gradients are being accumulated, or the log skips this one.
        if ended_ns <= 0 or ended_ns == read.ended_ns:
            if getattr(module, "device_type", "cpu") != "cpu":
                self._tally.flags |= StepFlag.UNMEASURED
            return
        read.ended_ns = ended_ns
        waited_ns = ended_ns - max(figures["backward_compute_time_end"], figures["backward_comm_time_start"])
        if most_ns is not None:  # The log's clock is not monotonic.
            waited_ns = min(waited_ns, most_ns)
        channel = self._channels.of_group(module.process_group)
        self._tally.add(channel, max(0, waited_ns), figures["total_parameter_size_bytes"])
