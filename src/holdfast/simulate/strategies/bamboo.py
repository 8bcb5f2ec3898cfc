"""Bamboo (NSDI'23, arXiv 2204.12013): every node also does its successor's work, just in case."""

from __future__ import annotations

import msgspec

from holdfast.simulate.models import Model, Profile
from holdfast.simulate.strategies.base import Response, Situation, by_step

RENDEZVOUS_S = 30.0
NODES_PER_PIPELINE = 6


class Bamboo:
    """Rebalances after a loss, and lets newcomers in when they make a whole pipeline."""

    name = "bamboo"
    modelled = (
        "throughput by number of nodes and rebalancing time at every loss from Oobleck's artifact; no "
        "step is lost; newcomers wait until they make a pipeline of 6, then rebalancing + 30 s of "
        "rendezvous; its slow-down after a take-over and its fatal double failures are left out, which "
        "favours it"
    )

    def __init__(self, model: Model, profile: Profile) -> None:
        self._model = model
        self._profile = profile
        self._used = 0

    def begin(self, live: tuple[int, ...]) -> Response:
        self._used = len(live)
        return by_step(self._model, self._profile.at(len(live)))

    def change(self, situation: Situation) -> Response | None:
        live, pause_s = len(situation.live), self._model.bamboo_rebalance_s
        if situation.left:
            return msgspec.structs.replace(self.begin(situation.live), failure_s=pause_s)
        if live // NODES_PER_PIPELINE > self._used // NODES_PER_PIPELINE:
            return msgspec.structs.replace(self.begin(situation.live), join_s=pause_s + RENDEZVOUS_S)
        return None
