"""What a history would have cost somebody who knew it beforehand."""

from __future__ import annotations

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.model import Model
from holdfast.mitigate.options import options
from holdfast.simulate.incidents import History, Weather
from holdfast.simulate.mitigated import price_of


def clairvoyant_s(history: History, *, is_ready: bool = True) -> float:
    """Return the least that can be lost, with every change of arrangement at its right moment.

    ``is_ready``: who knows it all may arrange the job beforehand for whoever will be slow one day. Else what
    is known is how long everything lasts, and nothing is done about what has not begun.
    """
    model, spans = history.model(), Weather(history.troubles).spans(history.horizon_s)
    ways = [Arrangement()]
    if is_ready:
        ways = _arrangements(model, [condition for _, condition in spans], ways)
    costs = {Arrangement(): 0.0}
    for seconds, condition in spans:
        ways = ways if is_ready else _arrangements(model, [condition], ways)
        slowdowns = {way: model.slowdown(condition, way) for way in ways}
        costs = {
            way: min(
                cost + _passed_s(seconds, slowdowns[way], _price_s(history, before, way))
                for before, cost in costs.items()
                if set(before.without) <= set(way.without)
            )
            for way in ways
            if any(set(before.without) <= set(way.without) for before in costs)
        }
    return min(costs.values())


def _passed_s(seconds: float, slowdown: float, price_s: float) -> float:
    """What is lost in a span that begins with a pause."""
    return price_s + max(0.0, seconds - price_s) * (1 - 1 / slowdown)


def _price_s(history: History, before: Arrangement, after: Arrangement) -> float:
    deed = price_of(before, after)
    return history.prices[deed] if deed is not None else 0.0


def _arrangements(model: Model, conditions: list[Condition], known: list[Arrangement]) -> list[Arrangement]:
    """Return those known, and every arrangement that is worth a thought under a condition, from any other."""
    found = list(known)
    for condition in dict.fromkeys(conditions):
        for way in list(found):
            found += [each.arrangement for each in options(model, condition, way)]
        found = list(dict.fromkeys(found))
    return found
