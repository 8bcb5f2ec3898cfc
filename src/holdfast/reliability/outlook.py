"""All there is to say about one job before it runs: formulas, played runs, what would have to change."""

from __future__ import annotations

import msgspec
import numpy as np

from holdfast.errors import InputError
from holdfast.reliability.adaptive import CAVEAT, Adaptation, Layout, Through, lay_out, train_through
from holdfast.reliability.ettr import (
    Conditions,
    best_interval_min,
    closed_form,
    daly_young_min,
    exact,
    is_closed_form_good,
    mttf_hours,
)
from holdfast.reliability.forecast import Needed, needed
from holdfast.reliability.montecarlo import Played, play
from holdfast.reliability.throughplay import play_through


class Ettr(msgspec.Struct, frozen=True, kw_only=True):
    """The share of productive time, by three ways."""

    closed_form: float
    exact: float
    monte_carlo: float
    monte_carlo_low: float
    monte_carlo_high: float
    """Nine runs of ten end between the two."""
    monte_carlo_error: float
    """Standard error of the mean."""
    low: float | None = None
    high: float | None = None
    """Of ``exact``, from the interval of the rate where that was given."""


class Adapted(msgspec.Struct, frozen=True, kw_only=True):
    """The same for a job that trains through failures."""

    closed_form: float
    monte_carlo: float
    monte_carlo_low: float
    monte_carlo_high: float
    down_share: float
    restarts_per_day: float
    pauses_per_day: float
    assumed: Adaptation
    layout: Layout
    caveat: str = CAVEAT


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What to expect of a job."""

    conditions: Conditions
    mttf_hours: float
    ettr: Ettr
    closed_form_error: float | None
    """Relative to ``exact``; None: that is 0."""
    is_closed_form_good: bool
    best_interval_min: float | None
    """Daly and Young's; None: writes are free."""
    best_interval_exact_min: float | None
    ettr_at_best: float | None
    needed: Needed
    adaptive: Adapted
    run_days: float
    replicas: int


def look_ahead(
    conditions: Conditions,
    rng: np.random.Generator,
    *,
    target: float = 0.9,
    adaptation: Adaptation | None = None,
    rate_interval: tuple[float, float] | None = None,
) -> Outlook:
    """Return what to expect of a long run under these conditions."""
    wanted = needed(conditions, target)
    played = play(conditions, rng)
    best = best_interval_min(conditions)
    sure, rough = exact(conditions), closed_form(conditions)
    return Outlook(
        conditions=conditions,
        mttf_hours=float(mttf_hours(conditions.nodes, conditions.rate_per_1000_node_days)),
        ettr=_ettr(conditions, played, rate_interval),
        closed_form_error=rough / sure - 1 if sure > 0 else None,
        is_closed_form_good=is_closed_form_good(conditions),
        best_interval_min=daly_young_min(conditions),
        best_interval_exact_min=best,
        ettr_at_best=None
        if best is None
        else exact(msgspec.structs.replace(conditions, checkpoint_min=best)),
        needed=wanted,
        adaptive=_adapted(conditions, adaptation or Adaptation(), rng),
        run_days=played.run_days,
        replicas=played.replicas,
    )


def _ettr(conditions: Conditions, played: Played, rates: tuple[float, float] | None) -> Ettr:
    ends: tuple[float | None, float | None] = (None, None)
    if rates is not None:
        given = conditions.rate_per_1000_node_days
        if not rates[0] <= given <= rates[1]:
            raise InputError(f"the rate is {given:g}, expected it between {rates[0]:g} and {rates[1]:g}")
        high, low = (_exact_at(conditions, rate) for rate in rates)
        ends = (low, high)
    return Ettr(
        closed_form=closed_form(conditions),
        exact=exact(conditions),
        monte_carlo=played.mean,
        monte_carlo_low=played.low,
        monte_carlo_high=played.high,
        monte_carlo_error=played.error,
        low=ends[0],
        high=ends[1],
    )


def _exact_at(conditions: Conditions, rate_per_1000_node_days: float) -> float:
    return exact(msgspec.structs.replace(conditions, rate_per_1000_node_days=rate_per_1000_node_days))


def _adapted(conditions: Conditions, adaptation: Adaptation, rng: np.random.Generator) -> Adapted:
    through: Through = train_through(conditions, adaptation)
    played = play_through(conditions, adaptation, rng)
    return Adapted(
        closed_form=through.ettr,
        monte_carlo=played.mean,
        monte_carlo_low=played.low,
        monte_carlo_high=played.high,
        down_share=through.down_share,
        restarts_per_day=through.restarts_per_day,
        pauses_per_day=through.pauses_per_day,
        assumed=adaptation,
        layout=lay_out(conditions, adaptation),
    )
