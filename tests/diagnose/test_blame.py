"""Findings become suspects with a cause that fits the function, a price and its victims."""

from __future__ import annotations

import pytest

from holdfast.diagnose.blame import Window, blame, cause_of
from holdfast.diagnose.localise import Finding, What
from holdfast.diagnose.reduce import Known
from holdfast.findings import Cause
from holdfast.observe.kineto import Kind


def finding(
    kind: Kind = "python", what: What = "longer", use: float | None = None, **more: object
) -> Finding:
    """Something that is abnormal on rank 3."""
    fields = {"row": 0, "function": "f", "ranks": [3], "cost": 0.2, "score": 9.0, **more}
    return Finding(kind=kind, what=what, use=use, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stack", "use", "cause"),
    [
        (
            ["<built-in method recv_into of _socket.socket object at 0x7f>", "storage.py(3): get"],
            None,
            "storage",
        ),
        (["<built-in method read of _io.BufferedReader>", "data.py(9): __getitem__"], None, "storage"),
        (["<built-in function collect>", "train.py(4): step"], None, "garbage_collection"),
        (["train.py(9): augment", "data.py(5): __getitem__", "fetch.py(50): fetch"], None, "data_loading"),
        (["<built-in function sleep>", "torch/utils/data/dataloader.py(600): __next__"], 0.1, "data_loading"),
        (["<built-in function sleep>", "loop.py(8): wait", "pauses.py(86): timed_next"], 2.0, "data_loading"),
        (["torch/utils/data/_utils/pin_memory.py(50): pin_memory"], None, "host_memory"),
        (["train.py(20): forward", "train.py(90): main"], None, "compute"),
        (["train.py(20): forward", "train.py(90): main"], 0.5, "cpu_contention"),
        (["<built-in function sleep>", "train.py(90): main"], 0.0, "compute"),
    ],
)
def test_python_functions_have_the_cause_of_what_they_do(
    stack: list[str], use: float | None, cause: Cause
) -> None:
    """By the function itself, then by who called it, then by how busy its processor is."""
    assert cause_of(finding(use=use), Known(kind="python", stack=stack)) == cause


@pytest.mark.parametrize(
    ("kind", "what", "use", "cause"),
    [
        ("compute", "longer", 0.6, "compute"),
        ("compute", "longer", 1.0, "input_imbalance"),
        ("compute", "longer", None, "compute"),
        ("compute", "uneven", 1.0, "input_imbalance"),
        ("collective", "slower network", 0.4, "link"),
        ("memory", "longer", None, "host_memory"),
    ],
)
def test_other_kinds_have_the_cause_of_what_was_found(
    kind: Kind, what: What, use: float | None, cause: Cause
) -> None:
    """A device that is used less is slow; one that is used as much has more to do."""
    assert cause_of(finding(kind, what, use), Known(kind=kind, stack=["f"])) == cause


def test_a_suspect_has_its_price_and_its_victims() -> None:
    """All others wait for one that takes longer; of a network those that use theirs less; of all, nobody."""
    known = [Known(kind="python", stack=["load", "main"])]
    (one,) = blame([finding()], known, Window(ranks=[1, 2, 3], span_s=10.0))
    assert (one.ranks, one.victims, one.cost_s) == ([3], [1, 2], 2.0)
    assert one.slowdown == pytest.approx(1.25)
    assert any("called by main" in sentence for sentence in one.evidence)
    window = Window(ranks=[1, 2, 3], span_s=10.0)
    (network,) = blame([finding("collective", "slower network", waiting=[2])], known, window)
    assert network.victims == [2]
    (common,) = blame([finding(what="common", ranks=[1, 2, 3])], known, window)
    assert common.victims == []
