"""``holdfast reliability mttf`` as a person uses it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clicalls import call, document

HEADER = (
    "System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,"
    "fru type,mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,"
    "Human Error,Network,Undetermined,Software,Same Event\n"
)


def row(system: int, node: int, started: str, *, hardware: str = "", software: str = "") -> str:
    """A failure in the layout of Los Alamos."""
    fixed = started.replace(" 1", " 2")
    return (
        f"{system},cluster,10,20,2,{node},{node},3-Aug,3-Sep,current,part,4,2,2,1,compute,"
        f"{started},{fixed},60,,{hardware},,,,{software},No\n"
    )


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Two systems of 10 nodes, 100 days each; 5 failures of one, 2 of the other."""
    path = tmp_path / "failures.csv"
    first = [row(2, node, f"1/{day}/2003 10:00", hardware="CPU") for node, day in ((1, 1), (2, 5), (3, 6))]
    others = [row(2, 3, "2/1/2003 10:00", software="OS"), row(2, 4, "4/11/2003 10:00")]
    second = [row(13, 1, "1/1/2003 10:00", hardware="CPU"), row(13, 1, "4/11/2003 10:00")]
    path.write_text(HEADER + "".join([*first, *others, *second]))
    return path


def test_mttf_as_json(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rate with its interval, MTTF by GPUs, the exposure in words, and each system."""
    found = document(["reliability", "mttf", str(record)], monkeypatch, capsys)
    assert found["rate_per_1000_node_days"] == pytest.approx(3.5)
    assert found["rate_low"] < 3.5 < found["rate_high"]
    assert found["mttf_hours"]["8"] == pytest.approx(24_000 / 3.5)
    assert found["mttf_hours"]["16"] == pytest.approx(12_000 / 3.5)
    assert found["exposure"] == "nodes of the system x (last minus first failure); every row is a failure"
    assert list(found["systems"]) == ["2", "13"]
    two = found["systems"]["2"]
    assert [two[key] for key in ("rate_per_1000_node_days", "rate_low", "rate_high")] == pytest.approx(
        [5.0, 1.970, 10.513], abs=1e-3
    )
    assert two["hardware"]["rate_per_1000_node_days"] == pytest.approx(3.0)
    assert (found["rows"], found["broken"]) == (7, 0)


def test_mttf_for_people(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate in one line, causes, a row for each system and one for each size."""
    record.write_text(record.read_text() + "not,a,row\n")
    assert call(["reliability", "mttf", str(record)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "7 failures of 20 nodes, 2 systems; exposure: nodes of the system" in out
    assert "failure rate: 3.5 per 1000 node-days (90% interval 1.64 to 6.57" in out
    assert "causes: Hardware 57.1%" in out
    assert "1 of 8 rows could not be read:" in out
    assert [line.split()[0] for line in out.splitlines() if line.strip().startswith(("2 ", "13 "))] == [
        "2",
        "13",
    ]
    assert "  1024 " in out


def test_one_system_has_no_list_of_systems(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures are those of the file."""
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:6]))
    found = document(["reliability", "mttf", str(record)], monkeypatch, capsys)
    assert "systems" not in found
    assert found["rate_per_1000_node_days"] == pytest.approx(5.0)


def sacct(tmp_path: Path, rows: list[str]) -> Path:
    """Output of sacct."""
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(["JobID|State|Submit|Start|End|NNodes|AllocTRES", *rows, ""]))
    return path


def test_mttf_of_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate of large attempts, and what was measured by size beside what the rate says."""
    days = "2025-01-01T00:00:00|2025-01-01T00:00:00|2025-01-02T00:00:00"
    path = sacct(
        tmp_path,
        [
            f"1|NODE_FAIL|{days}|32|gres/gpu=256",
            f"2|COMPLETED|{days}|32|gres/gpu=256",
            f"3|FAILED|{days}|1|gres/gpu=8",
        ],
    )
    found = document(["reliability", "mttf", str(path)], monkeypatch, capsys)
    assert found["rate_per_1000_node_days"] == pytest.approx(1000 / 64)
    assert [(each["gpus"], each["failures"]) for each in found["measured"]] == [(8, 0), (256, 1)]
    assert "more than 128 GPUs" in found["exposure"]
    assert call(["reliability", "mttf", str(path)], monkeypatch) == 0
    assert "measured MTTF, h" in capsys.readouterr().out


def test_small_attempts_are_taken_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without large ones the rate is null, and people are told how to have it from smaller ones."""
    days = "2025-01-01T00:00:00|2025-01-01T00:00:00|2025-01-02T00:00:00"
    path = sacct(tmp_path, [f"1|COMPLETED|{days}|1|gres/gpu=8"])
    assert (
        document(["reliability", "mttf", str(path)], monkeypatch, capsys)["rate_per_1000_node_days"] is None
    )
    assert call(["reliability", "mttf", str(path)], monkeypatch) == 0
    assert "--over-gpus N takes smaller ones" in capsys.readouterr().out
    found = document(["reliability", "mttf", str(path), "--over-gpus", "7"], monkeypatch, capsys)
    assert found["rate_per_1000_node_days"] == 0
    assert found["mttf_hours"]["8"] is None
    assert found["mttf_hours_low"]["8"] == pytest.approx(24 / 2.996, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "nowhere.csv"),
        ("", "nowhere.csv"),
        ("colour,taste\nred,sour\n", "nowhere.csv"),
        ("node,opened,closed,id,text\nn1,2025-01-01T00:00:00,,T1,broken\n", "events on nodes"),
    ],
)
def test_files_that_say_nothing_of_failures_are_refused(
    text: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Missing, empty, of another kind: one line and exit code 2."""
    path = tmp_path / "nowhere.csv"
    if text is not None:
        path.write_text(text)
    assert call(["reliability", "mttf", str(path)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_days_may_be_given(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then they are the exposure, and it says so."""
    found = document(["reliability", "mttf", str(record), "--days", "200"], monkeypatch, capsys)
    assert found["rate_per_1000_node_days"] == pytest.approx(1.75)
    assert found["exposure"] == "nodes of the system x 200 days; every row is a failure"
    assert call(["reliability", "mttf", str(record), "--days", "0"], monkeypatch) == 2
    assert "--days is '0'" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["polars", "scipy"])
def test_missing_package_is_named(
    package: str, record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how to get it."""
    monkeypatch.setitem(sys.modules, package, None)
    assert call(["reliability", "mttf", str(record)], monkeypatch) == 2
    words = f"holdfast reliability needs {package}: pip install 'holdfast[reliability]'"
    assert capsys.readouterr().err == f"holdfast: {words}\n"
