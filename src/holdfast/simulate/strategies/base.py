"""What every strategy answers when workers leave or come, and what they all share."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from holdfast.simulate.models import Model

Loss = Literal["nothing", "step", "unit", "checkpoint"]

LINK_BYTES_PER_S = 10e9 / 8
"""10 Gb/s between nodes, the link of the AWS P3 instances of the spot trace."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Who is there after a change, and who changed."""

    at_s: float
    live: tuple[int, ...]
    left: tuple[int, ...] = ()
    came: tuple[int, ...] = ()


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy does: pauses in the order of the fields, then training at a new pace."""

    throughput: float
    """Samples/s while it computes; 0: it stops and waits for workers."""
    unit_s: float = 1.0
    """Computing time between two points that a failure goes back to: a step, or a checkpoint interval."""
    first_s: float | None = None
    """The same before the first such point, if that is sooner."""
    write_s: float = 0.0
    """What it takes to write such a point down, each time."""
    checkpoint_s: float = 0.0
    """A checkpoint written now, before the pause, because the pause is on purpose."""
    failure_s: float = 0.0
    """Pause because workers left."""
    join_s: float = 0.0
    """Pause because workers came."""
    loses: Loss = "nothing"
    """What is done again.

    Half a step, or as far as it had come if it is the first; the unit as far as it had come; or all since the
    hourly checkpoint. Where in its step a job is when something fails is luck, and failures at a fixed
    interval would have the same luck every time: so half.
    """


class Strategy(Protocol):
    """A way to train on while workers come and go; one object lives through one trace."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def modelled(self) -> str:
        """What of it is modelled, and where the constants come from."""

    def begin(self, live: tuple[int, ...]) -> Response:
        """Say how training starts."""

    def change(self, situation: Situation) -> Response | None:
        """Say what is done about a change; None: carry on as before, a pause that is going on too."""


def step_s(model: Model, throughput: float) -> float:
    """How long one step takes."""
    return model.samples_per_step / throughput


def by_step(model: Model, throughput: float) -> Response:
    """Return training that loses at most the step it is in."""
    if throughput <= 0:
        return Response(throughput=0.0)
    return Response(throughput=throughput, unit_s=step_s(model, throughput))


def transfer_s(model: Model) -> float:
    """How long it takes to copy the state of one stage from a peer; several copies run side by side."""
    return model.stage_bytes / LINK_BYTES_PER_S
