"""The front door knows every kind of file, and survives what is none."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mishaps import harm
from readersamples import EXCLUSIONS, SACCT, SAMPLES

from holdfast.errors import InputError
from holdfast.reliability.sacct import read_sacct
from holdfast.reliability.sources import read_any
from holdfast.reliability.tables import ATTEMPTS, EVENTS, MOST_TOLD, OUTAGES, Reading

DATA = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere")
SCHEMAS = {"attempts": ATTEMPTS, "events": EVENTS, "outages": OUTAGES}

HEADS = (SACCT, EXCLUSIONS, "JobID,State\n", '{"jobs": [', "")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_kind_of_file_is_known_without_being_told(name: str, tmp_path: Path) -> None:
    """What comes out has all columns of its table, and nothing of a good file is broken."""
    table, rows, data = SAMPLES[name]
    file = tmp_path / "records"
    file.write_bytes(data)
    which, reading = read_any(file)
    assert (which, reading.table.height, reading.broken) == (table, rows, 0)
    assert reading.table.schema == pl.Schema(SCHEMAS[which])


def test_a_map_of_columns_makes_it_a_table_of_jobs(tmp_path: Path) -> None:
    """Whatever it looks like without."""
    file = tmp_path / "jobs.csv"
    file.write_text("Nr,How\n1,FAILED\n")
    with pytest.raises(InputError, match="nr, how are those of no known record"):
        read_any(file)
    assert read_any(file, columns={"job": "nr", "state": "How"})[1].table["state"].to_list() == ["FAILED"]


def test_a_folder_of_runs_is_known(tmp_path: Path) -> None:
    """Holdfast's own logs come in folders."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_bytes(SAMPLES["own log"][2])
    which, reading = read_any(tmp_path)
    assert (which, reading.table["job"].to_list()) == ("attempts", ["run"])


def test_a_message_about_an_xid_makes_no_kernel_log(tmp_path: Path) -> None:
    """A log that begins with something else is one nevertheless."""
    file = tmp_path / "records"
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"
    file.write_text(
        f"node,health_check,result,start_time,_msg\ngpu1,c,2,1704067200,{line.replace(',', ';')}\n"
    )
    assert read_any(file)[1].table["kind"].to_list() == ["check"]
    file.write_text(f"-- Logs begin here --\n2024-01-01T00:00:00Z gpu1 kernel: {line}\n")
    assert read_any(file)[1].table["kind"].to_list() == ["xid"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n \n", "is empty"),
        (b"123|COMPLETED\n", "sacct -a -D -X -P"),
        (b"hello world\n", "expected a header"),
        (bytes(range(256)), "is not text"),
        (b"[1, 2", "JSON"),
        (b'{"a": 1}', "no known record"),
        (b"{]", "JSON"),
        (b'"node",opened\rclosed\n"a","b"\n', "expected the names of columns"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    """The line names the file."""
    file = tmp_path / "records"
    file.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_any(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- harm -------------------------------------------------------------------------------------


def check(file: Path, data: bytes) -> None:
    """Assert that a file gives a reading whose rows add up, or is refused in one line."""
    file.write_bytes(data)
    try:
        which, reading = read_any(file)
    except InputError as error:
        refusal = str(error)
    else:
        _check_reading(which, reading)
        return
    assert "\n" not in refusal


def _check_reading(which: str, reading: Reading) -> None:
    assert reading.table.schema == pl.Schema(SCHEMAS[which])
    assert len(reading.told) == min(reading.broken, MOST_TOLD)
    has_lists = which == "events" and (reading.table["kind"] == "exclusion").any()
    if not has_lists:  # A row of those gives as many events as it names nodes.
        assert reading.table.height + reading.broken + reading.left_out == reading.rows


@pytest.mark.parametrize("name", sorted(SAMPLES))
@given(seed=st.integers(0, 2**32))
@example(seed=778681)  # A year before the first that Python knows.
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_a_harmed_file_gives_a_reading_or_a_clear_line(name: str, seed: int, tmp_path: Path) -> None:
    """Nothing else is raised, and no row is lost without being counted."""
    check(tmp_path / "records", harm(SAMPLES[name][2], seed))


@given(data=st.binary(max_size=200), head=st.sampled_from(HEADS))
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_bytes_after_a_known_head_do_no_harm(data: bytes, head: str, tmp_path: Path) -> None:
    """What follows may be anything."""
    check(tmp_path / "records", head.encode() + data)


# --- real files -------------------------------------------------------------------------------


@pytest.mark.external
@pytest.mark.parametrize(
    ("name", "rows", "broken", "attempts"),
    [
        ("sample-sacct-one-multiline.txt", 4, 0, 2),
        ("sample-sacct-output-invalid-utf8.txt", 11, 0, 2),
        ("sample-sacct-output-midnight-edge-case.txt", 1186, 0, 306),
        ("sample-sacct-output-with-invalid-lines.txt", 1, 1, 0),
        ("sample-sacct-output.txt", 68, 0, 0),
    ],
)
def test_real_output_of_sacct_is_read(name: str, rows: int, broken: int, attempts: int) -> None:
    """Every row is an attempt, a step or broken."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    which, reading = read_any(DATA / "sacct" / name)
    assert (which, reading.rows, reading.broken, reading.table.height) == ("attempts", rows, broken, attempts)
    assert reading.left_out == rows - broken - attempts


@pytest.mark.external
def test_the_real_row_of_many_lines_is_whole() -> None:
    """Its job was requeued, and had 256 GPUs on 32 nodes."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    table = read_sacct(DATA / "sacct" / "sample-sacct-one-multiline.txt").table
    assert table.select("job", "state", "nodes", "gpus").rows() == [
        ("201729", "FAILED", 128, 1024),
        ("201844", "REQUEUED", 32, 256),
    ]


@pytest.mark.external
def test_real_failure_records_are_read() -> None:
    """All 7,002 rows of seven systems, of which 332 have no cause; front ends are told apart."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    (file,) = (DATA / "failures").glob("lanl-*.csv")
    which, reading = read_any(file)
    table = reading.table
    assert (which, reading.rows, reading.broken) == ("outages", 7002, 0)
    assert table["cause"].null_count() == 332
    assert table["system"].n_unique() == 7
    assert table.filter(pl.col("system") == "20", pl.col("role") == "front end").height == 118
    assert table["at"].null_count() == table["down_min"].null_count() == 0


@pytest.mark.external
@pytest.mark.parametrize("seed", range(20))
def test_real_files_after_mishaps_give_a_reading_or_a_clear_line(seed: int, tmp_path: Path) -> None:
    """A hundred variants of each file of sacct in all."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    for file in sorted((DATA / "sacct").iterdir()):
        data = file.read_bytes()[:20_000]
        for turn in range(5):
            check(tmp_path / "records", harm(data, seed * 1000 + turn))
