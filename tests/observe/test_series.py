"""Tables of step times: read as people have them, or refused in one line that says where and why."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.observe.series import Columns, Series, read_series
from holdfast.telemetry import StepTime

TWO = [[StepTime(step=1, duration_s=0.5), StepTime(step=2, duration_s=0.75)]]


def read(folder: Path, content: str | bytes, name: str = "steps.csv", **columns: str | float) -> Series:
    """Read a file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_series(path, Columns(**columns))  # type: ignore[arg-type]


def refusal(folder: Path, content: str | bytes, name: str = "steps.csv", **columns: str | float) -> str:
    """Return why a file is refused: one line that begins with its name."""
    with pytest.raises(InputError) as caught:
        read(folder, content, name, **columns)
    said = str(caught.value)
    assert said.startswith(str(folder / name))
    assert "\n" not in said
    return said.removeprefix(str(folder / name))


def pairs(series: Series) -> list[list[tuple[int, float]]]:
    """Return steps and times alone."""
    return [[(each.step, each.duration_s) for each in attempt] for attempt in series]


@pytest.mark.parametrize(
    "content",
    [
        "step,duration_s\n1,0.5\n2,0.75\n",
        "step,duration_s\n1,0.5\n2,0.75",
        "step,duration_s\r\n1,0.5\r\n2,0.75\r\n",
        "\ufeffstep,duration_s\n1,0.5\n2,0.75\n",
        "step,duration_s\n\n1,0.5\n\n\n2,0.75\n\n",
        "step, duration_s\n1, 0.5\n2, 0.75\n",
        '"step","duration_s"\n"1","0.5"\n"2","7.5e-1"\n',
        "iteration,loss,iteration_time_ms\n1,nan,500\n2,,750\n",
        "iter,step_time\n1.0,0.5\n2.0,0.75\n",
        'duration_s,step,note\n0.5,1,"a\nb"\n0.75,2,x\n',
    ],
)
def test_a_csv_is_read_however_it_was_written(content: str, tmp_path: Path) -> None:
    """Line ends, empty lines, a mark of byte order, spaces, quotes and the usual names make no difference."""
    assert pairs(read(tmp_path, content)) == [[(1, 0.5), (2, 0.75)]]


def test_json_lines_and_parquet_say_the_same_as_csv(tmp_path: Path) -> None:
    """Numbers may be text in JSON; a file without an ending is recognised by its first character."""
    lines = '{"step": 1, "duration_s": 0.5}\n\n{"duration_s": "0.75", "step": 2, "more": [1]}\r\n'
    for name in ("steps.jsonl", "steps.ndjson", "steps.json", "steps"):
        assert read(tmp_path, lines, name) == TWO
    table = polars.DataFrame({"step": [1, 2], "duration_s": [0.5, 0.75]})
    table.write_parquet(tmp_path / "steps.parquet")
    assert read_series(tmp_path / "steps.parquet") == TWO


def test_columns_and_units_can_be_named(tmp_path: Path) -> None:
    """What is named counts, although a usual name is there as well."""
    content = "n,t,duration_s,flops\n3,500,9,1\n4,750,9,2\n"
    series = read(tmp_path, content, time="t", step="n", work="flops", unit_s=1e-3)
    assert series == [
        [StepTime(step=3, duration_s=0.5, work=1.0), StepTime(step=4, duration_s=0.75, work=2.0)]
    ]


def test_seconds_are_preferred_to_names_without_a_unit(tmp_path: Path) -> None:
    """A name that says its unit is surer."""
    assert pairs(read(tmp_path, "step,duration,duration_ms\n1,7,500\n")) == [[(1, 0.5)]]


def test_without_a_column_of_steps_rows_are_counted(tmp_path: Path) -> None:
    """They grow by one per row and name the line in the file."""
    assert pairs(read(tmp_path, "duration_s\n0.5\n0.75\n")) == [[(2, 0.5), (3, 0.75)]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("step,duration_s\n1,1\n2,1\n3,1\n1,1\n2,1\n", [[1, 2, 3], [1, 2]]),
        ("step,duration_s\n0,1\n1,1\n0,1\n1,1\n", [[0, 1], [0, 1]]),
        ("attempt,step,duration_s\n1,5,1\n1,6,1\n2,4,1\n2,5,1\n", [[5, 6], [4, 5]]),
        ("attempt,step,duration_s\n1,5,1\n2,6,1\n", [[5], [6]]),
        ("attempt,step,duration_s\na,5,1\na,9,1\nb,5,1\n", [[5, 9], [5]]),
    ],
)
def test_attempts_are_told_apart(content: str, expected: list[list[int]], tmp_path: Path) -> None:
    """By their column, or where steps begin again."""
    assert [[each.step for each in attempt] for attempt in read(tmp_path, content)] == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ": it is empty, expected step times"),
        (" \n\t\n", ": it is empty, expected step times"),
        ("step,duration_s\n", ": it has no rows, expected step times"),
        ("step,duration_s\n1,1\n2,nan\n", ", row 3: duration_s is nan, expected a finite number"),
        ("step,duration_s\n1,-inf\n", ", row 2: duration_s is -inf, expected a finite number"),
        ("step,duration_s\n1,-2.5\n", ", row 2: duration_s is -2.5, expected more than 0"),
        ("step,duration_s\n1,0\n", ", row 2: duration_s is 0, expected more than 0"),
        ("step,duration_s\n\n1,1\n2,fast\n", ", row 4: duration_s is 'fast', expected a number"),
        ("step,duration_s\n1,\n", ", row 2: duration_s is empty, expected a number"),
        ("step,duration_s\n1.5,1\n", ", row 2: step is 1.5, expected a whole number below 2^63"),
        ("step,duration_s\nnan,1\n", ", row 2: step is nan, expected a finite number"),
        ("step,duration_s\n0x1,1\n", ", row 2: step is '0x1', expected a number"),
        ("step,duration_s,tokens\n1,1,0\n", ", row 2: tokens is 0, expected more than 0"),
        ("step,duration_s,tokens\n1,1,many\n", ", row 2: tokens is 'many', expected a number"),
        ("step,duration_s\n1,1,1\n", ", row 2: more cells than the header has columns"),
        ("step,duration_s\n1\n", ", row 2: duration_s is empty, expected a number"),
        ('step,duration_s\n1,"2\n', ": cannot be read as CSV: unexpected end of data"),
        ("step,duration_s\n1,\x001\n", ", row 2: duration_s is '\\x001', expected a number"),
    ],
)
def test_a_bad_table_is_refused(content: str, said: str, tmp_path: Path) -> None:
    """The line names the file, the row, the value and what was expected."""
    assert refusal(tmp_path, content) == said


@pytest.mark.parametrize("steps", ["5,3", "5,5", "2,5,3", "1,1"])
def test_steps_that_do_not_grow_are_refused(steps: str, tmp_path: Path) -> None:
    """The line has both steps, and says how a new attempt begins."""
    numbers = steps.split(",")
    content = "step,duration_s\n" + "".join(f"{step},1\n" for step in numbers)
    said = refusal(tmp_path, content)
    assert f", row {len(numbers) + 1}: step is {numbers[-1]} after {numbers[-2]}, expected" in said
    assert "'attempt'" in said


def test_a_missing_column_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    """Whether it was asked for or only looked for."""
    said = refusal(tmp_path, "step,loss\n1,2\n")
    assert ("'step', 'loss'" in said, "--column" in said) == (True, True)
    for wanted in ("time", "step", "work"):
        said = refusal(tmp_path, "step,duration_s\n1,2\n", **{wanted: "t"})
        assert said == ": no column 't', expected one of 'step', 'duration_s'"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1, 2]", "got `array`"),
        ('{"step": 1', "truncated"),
        ('{"step": 2, "loss": 1}', "duration_s is empty, expected a number"),
        ('{"step": [2], "duration_s": 1}', "step is [2], expected a number"),
        ('{"step": 2, "duration_s": NaN}', "malformed"),
        ('{"step": 2, "duration_s": null}', "duration_s is empty, expected a number"),
        ('{"a": ' + "[" * 100_000, "expected one JSON object"),
        ("step 2", "expected one JSON object"),
    ],
)
def test_bad_json_is_refused_with_its_row(line: str, said: str, tmp_path: Path) -> None:
    """However deep it is."""
    content = '{"step": 1, "duration_s": 1.0}\n\n' + line + "\n"
    whole = refusal(tmp_path, content, "steps.jsonl")
    assert whole.startswith(", row 3: ")
    assert said in whole


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """Noise, UTF-16 and compressed files alike."""
    for content in (b"\x80\x81\xff" * 50, "step,duration_s\n1,1\n".encode("utf-16"), b"\x1f\x8b\x08\x00\xff"):
        assert refusal(tmp_path, content) == ": cannot be read: it is not text in UTF-8"


@given(content=st.binary(max_size=200), name=st.sampled_from(["a.csv", "a.jsonl", "a.log"]))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(content: bytes, name: str, tmp_path: Path) -> None:
    """Nothing but an ``InputError`` comes out."""
    try:
        said = ""
        assert read(tmp_path, content, name)
    except InputError as error:
        said = str(error)
    assert said == "" or said.startswith(str(tmp_path / name))


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["1", "2", "3", "-1", "x", "1e3", ""]),
            st.sampled_from(["1", "0.5", "nan", "-1", ""]),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost(rows: list[tuple[str, str]], tmp_path: Path) -> None:
    """A table that is not refused gives one step per row, in their order."""
    content = "step,duration_s\n" + "".join(f"{step},{time}\n" for step, time in rows)
    try:
        series = read(tmp_path, content)
    except InputError:
        return
    assert [(each.step, each.duration_s) for attempt in series for each in attempt] == [
        (int(float(step)), float(time)) for step, time in rows
    ]


def test_a_hundred_thousand_rows_are_all_read(tmp_path: Path) -> None:
    """The last one is there."""
    content = "step,duration_s\n" + "".join(f"{step},0.5\n" for step in range(1, 100_001))
    (attempt,) = read(tmp_path, content)
    assert (len(attempt), attempt[-1]) == (100_000, StepTime(step=100_000, duration_s=0.5))
