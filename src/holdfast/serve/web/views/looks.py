"""How states look: a word, a shape and a colour each, so that nobody has to tell by colour alone."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from holdfast.incidents.values import IncidentKind, RunState, WorkerState


class Look(NamedTuple):
    """How something is shown."""

    word: str
    shape: str
    """Of the shapes that every page holds."""
    tone: str
    """``good``, ``warn``, ``bad`` or ``calm``."""

    @property
    def mark(self) -> Markup:
        """The shape as an element; the word is said beside it."""
        return shape(self.shape)


RUN_LOOKS: dict[RunState, Look] = {
    "starting": Look("starting", "ring", "calm"),
    "training": Look("training", "disc", "good"),
    "slow": Look("slow", "triangle", "warn"),
    "degraded": Look("degraded", "half", "warn"),
    "hung": Look("hung", "bars", "bad"),
    "failed": Look("failed", "cross", "bad"),
    "stopped": Look("stopped", "square", "calm"),
    "ended": Look("ended", "tick", "calm"),
    "lost": Look("lost", "question", "bad"),
}
SILENT = Look("silent", "question", "warn")
"""A run that should be training, and of which nothing is heard."""
WORKER_LOOKS: dict[WorkerState, Look] = {
    "starting": Look("starting", "ring", "calm"),
    "training": Look("training", "", "good"),
    "slow": Look("slow", "triangle", "warn"),
    "hung": Look("hung", "bars", "bad"),
    "dead": Look("dead", "cross", "bad"),
    "left": Look("left", "out", "calm"),
    "done": Look("done", "tick", "calm"),
}
KIND_LOOKS: dict[IncidentKind, Look] = {
    "slow": Look("slow", "triangle", "warn"),
    "death": Look("death", "cross", "bad"),
    "hang": Look("hang", "bars", "bad"),
}
LIVE: frozenset[RunState] = frozenset({"starting", "training", "slow", "degraded", "hung"})
"""States of a run that still goes on."""
_TROUBLE: tuple[RunState, ...] = ("hung", "slow", "degraded", "lost", "failed", "starting", "training")

SHAPES = {
    "ring": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0 -11zM8 5a3 3 0 1 1 0 6a3 3 0 1 1 0 -6z",
    "disc": "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0 -11z",
    "half": "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5v2a3.5 3.5 0 1 1 0 7v2a5.5 5.5 0 1 0 0 -11z",
    "triangle": "M8 2L14.5 13.5H1.5z",
    "bars": "M3.5 2.5h3.2v11H3.5zM9.3 2.5h3.2v11H9.3z",
    "cross": "M4.1 2L8 5.9L11.9 2L14 4.1L10.1 8L14 11.9L11.9 14L8 10.1L4.1 14L2 11.9L5.9 8L2 4.1z",
    "square": "M3 3h10v10H3z",
    "tick": "M6.2 13.4L1.6 8.7L3.5 6.8L6.2 9.5L12.6 3.1L14.5 5z",
    "question": "M5 5.6a3 3 0 1 1 4.6 2.6c-.6 .4 -.6 .6 -.6 1.6H7c0 -1.8 .2 -2.4 1.4 -3.2a1 1 0 1 0 -1.4 -1z"
    "M7 11.2h2v2H7z",
    "out": "M2 3h5v2H4v6h3v2H2zM8.5 4.2L13.5 8L8.5 11.8V9.2H6V6.8h2.5z",
}


def shape(name: str) -> Markup:
    """Return a shape that the page holds already."""
    if not name:
        return Markup("")
    return Markup(
        '<svg class="shape" viewBox="0 0 16 16" aria-hidden="true"><use href="#s-{}"/></svg>'
    ).format(name)


def sprite() -> Markup:
    """Return all shapes, for pages to refer to."""
    symbols = "".join(
        f'<symbol id="s-{name}" viewBox="0 0 16 16"><path fill-rule="evenodd" d="{path}"/></symbol>'
        for name, path in SHAPES.items()
    )
    return Markup(f'<svg width="0" height="0" class="sprite" aria-hidden="true">{symbols}</svg>')


def urgency(state: RunState, *, is_silent: bool) -> int:
    """Return a number by which runs are sorted: the smaller, the sooner somebody should look."""
    if is_silent:
        return _TROUBLE.index("degraded")
    return _TROUBLE.index(state) if state in _TROUBLE else len(_TROUBLE)
