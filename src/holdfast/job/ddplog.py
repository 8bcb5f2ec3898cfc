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
from holdfast.values import StepFlag

_SAMPLE_ON_DEVICE = 10
"""On an accelerator reading the log waits for its events: only each so manyth step is looked at."""


class DdpLog:
    """Reads the logs of every DDP module of the process when a step ends."""

    def __init__(self, tally: Tally, channels: Channels) -> None:
        self._tally = tally
        self._channels = channels
        self._modules: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """With the iteration that was read last."""
        self._steps = 0

    def install(self) -> None:
        """Hear of every DDP module that is made."""
        from torch.nn.parallel.distributed import DistributedDataParallel

        wrapped = DistributedDataParallel.__init__

        @functools.wraps(wrapped)
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            wrapped(module, *args, **kwargs)
            self._adopt(module)

        DistributedDataParallel.__init__ = init  # type: ignore[method-assign, assignment]

    def _adopt(self, module: Any) -> None:
        try:
            is_on_host = getattr(module, "device_type", "cpu") == "cpu"
            module._set_ddp_runtime_logging_sample_rate(1 if is_on_host else _SAMPLE_ON_DEVICE)
            self._modules[module] = 0
        except Exception:
            self._tally.errors += 1

    def end_step(self) -> None:
        """Count the waiting of the step that ends."""
        if not self._modules:
            return
        self._steps += 1
        for module, last in list(self._modules.items()):
            try:
                self._modules[module] = self._read(module, last)
            except Exception:
                self._tally.errors += 1
                del self._modules[module]

    def _read(self, module: Any, last: int) -> int:
        if getattr(module, "device_type", "cpu") != "cpu" and self._steps % _SAMPLE_ON_DEVICE:
            self._tally.flags |= StepFlag.UNMEASURED
            return last
        # DDP itself does this at its next forward, which is in the next step.
        module.logger.set_runtime_stats_and_log()
        figures = module.logger._get_ddp_logging_data().ints_map
        iteration = int(figures.get("iteration", 0))
        ended_ns = figures.get("backward_comm_time_end", 0)
        # No figures: no backward since, or gradients are being accumulated.
        if iteration == last or ended_ns <= 0:
            return iteration
        began_ns = max(figures["backward_compute_time_end"], figures["backward_comm_time_start"])
        channel = self._channels.of_group(module.process_group)
        self._tally.add(channel, max(0, ended_ns - began_ns), figures["total_parameter_size_bytes"])
        return iteration
