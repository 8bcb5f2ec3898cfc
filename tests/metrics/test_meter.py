"""What is shown of runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry
from shownruns import Series, make_seen, read_series

from holdfast.incidents.values import Bill, Incident, RunView, Stage
from holdfast.metrics.meter import Limits, Meter
from holdfast.metrics.names import DEFINITIONS
from holdfast.metrics.ratchet import Ratchet, Ratchets
from holdfast.metrics.seen import Pace, RunSeen, Tally, name_run, read_paces
from holdfast.metrics.sheet import Sheet
from holdfast.metrics.slowest import find_slowest
from holdfast.telemetry import Summary

RUN = "run=big-01234567"
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def _show(*runs: RunSeen, meter: Meter | None = None) -> Series:
    sheet = Sheet()
    (meter or Meter()).describe(runs, sheet)
    return read_series(sheet.metrics())


def _with(view: RunView, **fields: object) -> RunView:
    return msgspec.structs.replace(view, **fields)


def test_a_healthy_run() -> None:
    """Its state, its speed, its workers; no trouble is shown as zero, so that the first one is a rise."""
    shown = _show(make_seen(4, hosts=2, slow=1))
    assert shown[f"holdfast_run_info{{{RUN},name=big,key=0123456789abcdef,run_id=x,host=gpu-0}}"] == 1
    assert shown[f"holdfast_run_state{{{RUN},state=training}}"] == 1
    assert sum(value for name, value in shown.items() if name.startswith("holdfast_run_state")) == 1
    assert shown[f"holdfast_step_seconds{{{RUN}}}"] == 1.0
    assert shown[f"holdfast_step_own_seconds{{{RUN}}}"] == 0.5
    assert shown[f"holdfast_step{{{RUN}}}"] == 5
    assert shown[f"holdfast_workers{{{RUN},state=training}}"] == 4
    assert shown[f"holdfast_workers{{{RUN},state=dead}}"] == 0
    assert shown[f"holdfast_worker_own_ratio{{{RUN},rank=0,host=gpu-0}}"] == 2.0
    assert shown[f"holdfast_host_own_ratio{{{RUN},host=gpu-0}}"] == 1.5
    for name in ("incidents_total", "incidents_open", "incidents_unattended", "incident_lost_seconds_total"):
        assert {shown[f"holdfast_{name}{{{RUN},kind={kind}}}"] for kind in ("slow", "death", "hang")} == {0}
    assert shown[f"holdfast_actions_total{{{RUN},level=S2}}"] == 0


def test_a_job_of_ten_thousand_ranks_has_few_series() -> None:
    """The slowest ranks and hosts are shown, the others are counted."""
    shown = _show(make_seen(10_000, hosts=1250, slow=40))
    assert len(shown) < 300
    ranks = [name for name in shown if name.startswith("holdfast_worker_own_ratio")]
    assert len(ranks) == 10
    assert f"holdfast_worker_own_ratio{{{RUN},rank=0,host=gpu-0}}" in ranks
    hosts = [name for name in shown if name.startswith("holdfast_host_own_ratio")]
    assert len(hosts) == 21
    assert shown[f"holdfast_host_own_ratio{{{RUN},host=others}}"] == pytest.approx(1.0)
    assert shown[f"holdfast_hosts_omitted{{{RUN}}}"] == 1230


def test_a_silent_run_has_only_what_an_alert_needs() -> None:
    """Its speed of some minutes ago is not its speed."""
    shown = _show(make_seen(4, is_live=False))
    assert {name.partition("{")[0] for name in shown} == {
        "holdfast_run_info",
        "holdfast_run_state",
        "holdfast_run_heard_timestamp_seconds",
    }


def test_a_node_shows_its_own_ranks_only() -> None:
    """What the whole run is like is for the guard of the first node to say."""
    shown = _show(make_seen(4, is_whole=False, lost_records={"gpu-0": 3}))
    names = {name.partition("{")[0] for name in shown}
    assert "holdfast_run_state" not in names
    assert "holdfast_workers" not in names
    assert shown[f"holdfast_guard_lost_records_total{{{RUN},host=gpu-0}}"] == 3
    assert "holdfast_worker_own_ratio" in names


def _incident(name: str, *stages: str, words: str = "x", **fields: object) -> Incident:
    told = tuple(Stage(name=stage, at="", words=words, event_id="") for stage in stages)  # type: ignore[arg-type]
    plain = Incident(incident_id=name, kind="slow", opened_at="", stages=told)
    return msgspec.structs.replace(plain, **fields)


def test_incidents_are_counted_by_whether_somebody_did_something() -> None:
    """A decision that was not carried out is nothing done."""
    incidents = (
        _incident("a", "detected", "done", "closed", closed_at="x", lost_s=4.0, paid_s=1.0, saved_s=9.0),
        _incident("b", "detected", "named", "decided", lost_s=2.0),
        _incident("c", "detected", "done"),
        _incident("d", "detected", "decided", words="S2 was not done: the workers did not meet"),
    )
    seen = make_seen(4)
    bill = Bill(lost_gpu_h=2.0, paid_gpu_h=1.0, saved_gpu_h=0.5)
    shown = _show(
        msgspec.structs.replace(
            seen,
            view=_with(seen.view, incidents=incidents, bill=bill),
            tally=Tally(deaths=2, actions={"S2": 3, "S9": 1}),
        )
    )
    assert shown[f"holdfast_incidents_total{{{RUN},kind=slow}}"] == 4
    assert shown[f"holdfast_incidents_open{{{RUN},kind=slow}}"] == 3
    assert shown[f"holdfast_incidents_unattended{{{RUN},kind=slow}}"] == 2
    assert shown[f"holdfast_incident_lost_seconds_total{{{RUN},kind=slow}}"] == 6.0
    assert shown[f"holdfast_incident_paid_seconds_total{{{RUN},kind=slow}}"] == 1.0
    assert shown[f"holdfast_incident_saved_seconds_total{{{RUN},kind=slow}}"] == 9.0
    assert shown[f"holdfast_lost_gpu_seconds_total{{{RUN}}}"] == 7200.0
    assert shown[f"holdfast_deaths_total{{{RUN}}}"] == 2
    assert shown[f"holdfast_actions_total{{{RUN},level=S2}}"] == 3
    assert shown[f"holdfast_actions_total{{{RUN},level=other}}"] == 1


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 50), st.floats(0, 1e6), st.integers(0, 9), st.integers(0, 9), st.booleans()
        ),
        min_size=2,
        max_size=12,
    )
)
def test_no_counter_ever_goes_down(moments: list[tuple[int, float, int, int, bool]]) -> None:
    """Whatever a run does: restarts, corrected bills, shrinking worlds, silence."""
    meter, before = Meter(), Series()
    seen = make_seen(4)
    for step, lost_s, count, lost, is_live in moments:
        incidents = tuple(_incident(str(number), "detected", lost_s=lost_s) for number in range(count))
        view = _with(seen.view, step=step, incidents=incidents, bill=Bill(lost_gpu_h=lost_s))
        now = msgspec.structs.replace(
            seen, view=view, tally=Tally(deaths=count), lost_records={"a": lost}, is_live=is_live
        )
        shown = {name: value for name, value in _show(now, meter=meter).items() if "_total{" in name}
        assert all(value >= before.get(name, 0.0) for name, value in shown.items())
        before |= shown


def test_steps_are_counted_from_the_first_that_was_seen() -> None:
    """As a process counts: the past is not made up for, and going back to a checkpoint costs nothing."""
    ratchet = Ratchet()
    seen = [ratchet.count_steps(step) for step in (-1, 100, 103, 103, 80, 82, -1, 0, 4, 10)]
    assert seen == [0, 0, 3, 3, 3, 5, 5, 6, 10, 16]


def test_runs_that_nobody_asks_for_are_forgotten() -> None:
    """Memory is bounded; the run that was asked for last is kept."""
    ratchets = Ratchets(2)
    ratchets.of("a").hold("x", 5.0)
    ratchets.of("b")
    ratchets.of("a")
    ratchets.of("c")
    assert ratchets.of("a").hold("x", 1.0) == 5.0
    ratchets.of("d")
    ratchets.of("e")
    assert ratchets.of("a").hold("x", 1.0) == 1.0


def test_own_times_that_were_not_measured_make_no_ratio() -> None:
    """Neither do those that are zero; nobody divides by them."""
    paces = [Pace(rank=0, step_s=1.0), Pace(rank=1, step_s=1.0, own_s=0.0)]
    ratios = find_slowest(paces, {}, most_ranks=10, most_hosts=10)
    assert (ratios.ranks, ratios.hosts, ratios.omitted_ratio) == ((), (), None)
    shown = _show(make_seen(2, paces=()))
    assert not [name for name in shown if "_seconds{" in name and "heard" not in name]


def test_two_runs_of_one_name_are_two() -> None:
    """A folder's name is for people; the key tells them apart."""
    assert name_run("train", "aaaaaaaabbbb") != name_run("train", "ccccccccbbbb")
    assert name_run("", "a" * 64) == "a" * 32
    shown = _show(make_seen(1), make_seen(1, key="f" * 32))
    assert f"holdfast_step{{{RUN}}}" in shown
    assert "holdfast_step{run=big-ffffffff}" in shown


def test_summaries_give_paces() -> None:
    """Names of ranks that are none are left out."""
    summary = Summary(
        at="", node=0, attempt=0, steps={"0": 3}, duration_s={"0": 0.5, "x": 1.0}, own_s={"0": 0.25}
    )
    assert read_paces(summary) == (Pace(rank=0, step_s=0.5, own_s=0.25),)


class _Fixed(Collector):
    def __init__(self, *runs: RunSeen) -> None:
        self._runs = runs

    def collect(self) -> object:  # type: ignore[override]
        sheet = Sheet()
        Meter(Limits(most_ranks=2)).describe(self._runs, sheet)
        return sheet.metrics()


def test_what_others_chose_breaks_no_line() -> None:
    """Names with quotes, line ends and backslashes come back whole; endless ones are cut."""
    nasty = 'a"b\\c\nd} 5\n# EOF\n'
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(make_seen(2, name=nasty, host="x" * 10_000)))
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    assert text.count("# EOF") == text.count("# EOF\\n") + 1
    assert max(map(len, text.splitlines())) < 1000
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

    families = parse(text)  # type: ignore[no-untyped-call]
    runs = {sample.labels["run"] for metric in families for sample in metric.samples}
    assert runs == {f"{nasty}-01234567"}


def test_names_follow_the_conventions() -> None:
    """Of Prometheus: a prefix, base units at the end, and ``_total`` for counters and for nothing else."""
    for definition in DEFINITIONS.values():
        assert re.fullmatch(r"holdfast_[a-z_]+", definition.name)
        assert (definition.kind == "counter") == definition.name.endswith("_total")
        assert (definition.kind == "info") == definition.name.endswith("_info")
        assert not re.search(r"_(ms|milliseconds|minutes|hours|percent|kb|mb|gb)(_|$)", definition.name)
        assert definition.words.endswith(".")
    with pytest.raises(KeyError):
        Sheet().put("holdfast_made_up", 1.0)
    with pytest.raises(ValueError, match="zip"):
        Sheet().put("holdfast_step", 1.0)


def test_the_docs_list_every_metric_with_its_labels() -> None:
    """And no other; the meaning is word for word the one that Prometheus shows."""
    rows = dict(re.findall(r"^\| `(holdfast_\w+)` \| (.*) \|$", DOCS.read_text(), flags=re.MULTILINE))
    wanted = {}
    for name, definition in DEFINITIONS.items():
        labels = ", ".join(f"`{label}`" for label in definition.labels)
        wanted[name] = f"{definition.kind} | {labels} | {definition.words}"
    assert rows == wanted


def test_the_plain_text_is_read_back_by_its_own_parser() -> None:
    """The format of old scrapers and of text files."""
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(make_seen(4)))
    families = {each.name for each in text_string_to_metric_families(generate_latest(registry).decode())}
    assert {"holdfast_run_info", "holdfast_steps", "holdfast_workers"} <= families
