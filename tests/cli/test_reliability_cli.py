"""``holdfast reliability ettr`` as a person uses it, and the help of both verbs."""

from __future__ import annotations

import pytest

from clicalls import call, document

ETTR = ["reliability", "ettr", "--gpus", "12000", "--rate", "6.5"]
V2 = [*ETTR, "--checkpoint-min", "38.4", "--restart-min", "5", "--write-min", "5"]


def test_ettr_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """12,000 GPUs: formula and played runs side by side, the best interval, what adapting gives."""
    found = document(V2, monkeypatch, capsys)
    assert found["ettr"]["closed_form"] == pytest.approx(0.740, abs=6e-4)
    assert found["ettr"]["monte_carlo"] == pytest.approx(0.7355, abs=2e-3)
    assert found["mttf_hours"] == pytest.approx(2.46, abs=0.01)
    assert found["best_interval_min"] == pytest.approx(38.4, abs=0.05)
    assert (found["gpus"], found["conditions"]["nodes"]) == (12_000, 1500)
    assert found["needed"]["target"] == 0.9
    assert found["needed"]["checkpoint_min"] is None
    assert found["adaptive"]["closed_form"] == pytest.approx(found["adaptive"]["monte_carlo"], rel=0.01)
    assert "benchmarks/recovery.py" in found["adaptive"]["caveat"]


def test_free_writes_have_no_best_interval_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is null; nodes may have other numbers of GPUs, and the interval of the rate becomes one of ETTR."""
    flags = ["--write-min", "0", "--gpus-per-node", "4", "--rate-low", "6", "--rate-high", "7"]
    found = document([*ETTR, *flags], monkeypatch, capsys)
    assert found["best_interval_min"] is None
    assert found["conditions"]["nodes"] == 3000
    assert found["ettr"]["low"] < found["ettr"]["exact"] < found["ettr"]["high"]


def test_ettr_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """How often it fails, both ways of living with it, and one line for each knob."""
    assert (
        call([*V2, "--queue-min", "3", "--target", "0.8", "--rate-low", "5", "--rate-high", "8"], monkeypatch)
        == 0
    )
    out = capsys.readouterr().out
    assert "12000 GPUs on 1500 nodes of 8, 6.5 failures per 1000 node-days: a failure every 2.46 h" in out
    assert "best interval: 35.2 min (Daly-Young: 38.4 min)" in out
    for words in ("restart after every failure", "train through failures", "by the interval of the rate"):
        assert words in out
    rows = [line for line in out.splitlines() if "at most" in line or "not enough" in line]
    assert len(rows) == 5
    assert "for ETTR 0.8" in out


def test_best_interval_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job then has it."""
    found = document([*ETTR, "--checkpoint-min", "best", "--write-min", "5"], monkeypatch, capsys)
    assert found["conditions"]["checkpoint_min"] == pytest.approx(found["best_interval_exact_min"])
    assert found["ettr"]["exact"] == pytest.approx(found["ettr_at_best"])


def test_adaptation_can_be_typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that tolerates nothing restarts."""
    flags = ["--pause-s", "5", "--slope", "2", "--repair-hours", "12", "--stages", "4", "--tolerated", "0"]
    found = document([*V2, *flags], monkeypatch, capsys)
    assert found["adaptive"]["assumed"] == {
        "pause_s": 5.0,
        "slope": 2.0,
        "repair_hours": 12.0,
        "stages": 4,
        "tolerated": 0,
    }
    assert found["adaptive"]["closed_form"] == pytest.approx(found["ettr"]["exact"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpus", "0"], "--gpus is '0'"),
        (["--gpus", "many"], "--gpus is 'many'"),
        (["--rate", "0"], "--rate is '0'"),
        (["--rate", "nan"], "--rate is 'nan'"),
        (["--gpus-per-node", "0"], "--gpus-per-node is '0'"),
        (["--checkpoint-min", "0"], "--checkpoint-min is '0'"),
        (["--checkpoint-min", "best"], "no best"),
        (["--restart-min", "-1"], "--restart-min is '-1'"),
        (["--write-min", "x"], "--write-min is 'x'"),
        (["--queue-min", "inf"], "--queue-min is 'inf'"),
        (["--target", "1"], "--target is '1'"),
        (["--rate-low", "1"], "--rate-low and --rate-high together"),
        (["--rate-low", "7", "--rate-high", "8"], "expected it from 7 to 8"),
        (["--stages", "0"], "--stages is '0'"),
        (["--slope", "-1"], "--slope is '-1'"),
        (["--seed", "-1"], "--seed is '-1'"),
    ],
)
def test_bad_flags_are_one_line(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the flag, what was typed and what was expected."""
    assert call([*ETTR, *flags], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert "expected" in err


@pytest.mark.parametrize("missing", [["--gpus", "8"], ["--rate", "6.5"]])
def test_size_and_rate_have_to_be_given(
    missing: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    assert call(["reliability", "ettr", *missing], monkeypatch) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_extremes_are_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs that never get anywhere, and one that hardly ever fails."""
    for flags in (
        ["--gpus", "100000000", "--rate", "1000000", "--checkpoint-min", "1000000"],
        ["--gpus", "100000", "--rate", "6.5", "--restart-min", "10000", "--tolerated", "0"],
        ["--gpus", "1", "--rate", "0.000001", "--checkpoint-min", "0.001", "--write-min", "0.001"],
    ):
        found = document(["reliability", "ettr", *flags], monkeypatch, capsys)
        for ettr in (
            found["ettr"]["closed_form"],
            found["ettr"]["monte_carlo"],
            found["adaptive"]["closed_form"],
        ):
            assert 0 <= ettr <= 1


@pytest.mark.parametrize("verb", ["mttf", "ettr"])
def test_help_has_examples(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of each verb; the group lists both."""
    assert call(["reliability", verb, "--help"], monkeypatch) == 0
    assert capsys.readouterr().out.count("Example: holdfast reliability " + verb) >= 2
    assert call(["reliability", "--help"], monkeypatch) == 0
    assert f" {verb} " in capsys.readouterr().out
