"""Logs of Megatron-LM and torchtitan, as they come out of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.observe.logs import find_format, read_megatron
from holdfast.observe.series import Series, read_series

START = datetime(2026, 5, 18, 16, 4, 46, 338000)
TOKENS = 16_384
"""Of one step on one device."""


def titan(
    step: int, at_s: float, duration_s: float = 2.0, *, rank: int = 0, is_coloured: bool = False
) -> str:
    """Return a line of torchtitan, as a launcher shows it with the rank in front."""
    at = (START + timedelta(seconds=at_s)).isoformat(sep=" ", timespec="milliseconds").replace(".", ",")
    words = [
        f"step: {step:2}",
        "loss:  3.2174",
        "grad_norm:  0.5612",
        "memory: 36.20GiB(45.71%)",
        f"tps: {round(TOKENS / duration_s):,}",
        "tflops: 311.41",
        "mfu: 31.49%",
    ]
    if is_coloured:
        words = [f"\x1b[3{index % 8}m{word}\x1b[39m" for index, word in enumerate(words)]
    return f"[rank{rank}]:{at} - root - INFO - " + "  ".join(words)


def megatron(step: int, ms: float | str = 1234.5, batch: int | str = 512) -> str:
    """Return a line of Megatron-LM."""
    return (
        f" [2026-05-18 16:04:46] iteration {step:8}/    1030 | consumed samples: {step * 512:12} | "
        f"elapsed time per iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): 401.1 | "
        f"learning rate: 1.000000E-04 | global batch size: {batch:>5} | lm loss: 1.09E+01 | "
        f"grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def read(folder: Path, lines: Iterable[str], name: str = "train.log") -> Series:
    """Read a log of these lines, with what else a job says before, between and after them."""
    chatter = "W0518 16:04:45 torch/distributed/run.py:774] Setting OMP_NUM_THREADS to 1"
    path = folder / name
    path.write_text("\n".join([chatter, *lines, "Traceback (most recent call last):", ""]), encoding="utf-8")
    return read_series(path)


def steps(series: Series) -> list[list[int]]:
    """Return the steps of each attempt."""
    return [[each.step for each in attempt] for attempt in series]


def times(series: Series) -> list[list[float]]:
    """Return the times of each attempt."""
    return [[round(each.duration_s, 3) for each in attempt] for attempt in series]


def test_megatron_says_times_and_batches(tmp_path: Path) -> None:
    """Milliseconds become seconds; the batch is the work of a step."""
    series = read(tmp_path, [megatron(15, 1234.5, 512), "saving checkpoint", megatron(16, 2469.0, 1024)])
    assert [(each.step, each.duration_s, each.work) for each in series[0]] == [
        (15, 1.2345, 512.0),
        (16, 2.469, 1024.0),
    ]


def test_a_megatron_batch_that_is_absent_or_0_is_not_known(tmp_path: Path) -> None:
    """Then there is no work, and no error."""
    bare = "iteration 1/ 10 | elapsed time per iteration (ms): 5.0 |"
    series = read(tmp_path, [bare, megatron(2, 5.0, 0)])
    assert [each.work for each in series[0]] == [None, None]


def test_megatron_with_log_interval_10_has_every_tenth_step(tmp_path: Path) -> None:
    """A time is that of one iteration, the mean of ten."""
    series = read(tmp_path, [megatron(step, 950.0) for step in range(10, 60, 10)])
    assert (steps(series), set(times(series)[0])) == ([[10, 20, 30, 40, 50]], {0.95})


def test_torchtitan_gives_seconds_from_tokens_per_second(tmp_path: Path) -> None:
    """How many tokens a step has follows from when the lines were written."""
    durations = [2.0, 2.0, 2.0, 4.0, 2.0, 2.0]
    lines = [titan(step, sum(durations[:step]), durations[step - 1]) for step in range(1, 7)]
    assert times(read(tmp_path, lines)) == [durations]


def test_torchtitan_with_log_freq_10_has_every_tenth_step(tmp_path: Path) -> None:
    """Step 1, then 10, 20, and so on; a time is that of one step."""
    lines = [titan(step, 2.0 * step) for step in (1, 10, 20, 30, 40)]
    series = read(tmp_path, lines)
    assert (steps(series), times(series)) == ([[1, 10, 20, 30, 40]], [[2.0] * 5])


@pytest.mark.parametrize("is_coloured", [False, True])
def test_lines_of_several_ranks_are_one_step(is_coloured: bool, tmp_path: Path) -> None:
    """Coloured or not."""
    lines = [
        titan(step, 2.0 * step + rank / 1000, rank=rank, is_coloured=is_coloured)
        for step in range(1, 9)
        for rank in range(4)
    ]
    series = read(tmp_path, lines)
    assert (steps(series), times(series)) == ([list(range(1, 9))], [[2.0] * 8])


def test_without_times_of_the_lines_torchtitan_still_tells_slow_from_fast(tmp_path: Path) -> None:
    """In another unit: twice the tokens per second is half the time."""
    series = read(tmp_path, ["step: 1  loss: 2  tps: 4,096", "step: 2  loss: 2  tps: 2,048"])
    assert series[0][1].duration_s == pytest.approx(2 * series[0][0].duration_s)


@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
def test_a_restart_from_a_checkpoint_is_a_new_attempt(name: str, tmp_path: Path) -> None:
    """It repeats steps."""
    order = [1, 2, 3, 4, 5, 3, 4, 5, 6]
    lines = [megatron(step) if name == "megatron" else titan(step, 2.0 * n) for n, step in enumerate(order)]
    assert steps(read(tmp_path, lines)) == [[1, 2, 3, 4, 5], [3, 4, 5, 6]]


def test_the_end_of_a_name_does_not_matter(tmp_path: Path) -> None:
    """A log is recognised by its lines, with line ends of any system."""
    for name in ("log", "slurm-1234.out", "log.csv"):
        assert steps(read(tmp_path, [megatron(1) + "\r", megatron(2) + "\r"], name)) == [[1, 2]]


def test_a_megatron_time_of_0_is_refused_with_its_row(tmp_path: Path) -> None:
    """The row of the file, chatter counted."""
    with pytest.raises(InputError, match=r"train\.log, row 3: a step of 0\.0 s, expected more than 0$"):
        read(tmp_path, [megatron(1), megatron(2, "0.0")])


def test_a_log_of_something_else_is_none_that_we_know(tmp_path: Path) -> None:
    """It is refused as a table without the right columns."""
    assert find_format("epoch 1 step 5 loss 3.2\n") is None
    with pytest.raises(InputError, match="no column of step times"):
        read(tmp_path, ["epoch 1 step 5 loss 3.2"])


@given(st.text(max_size=80))
def test_other_lines_change_nothing(line: str) -> None:
    """Whatever a job prints between its steps."""
    text = f"{megatron(1)}\n{line}\n{megatron(2)}\n"
    assert [each.step for each in read_megatron(text)] == [1, 2]
    assert find_format(text) is read_megatron


# --- what once went wrong ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([titan(1, 2.0).replace("tps: 8,192", "tps: 0")], id="no tokens"),
        pytest.param(["step: 5", " loss: 3 tps: 7"], id="two lines"),
    ],
)
def test_a_log_without_a_usable_step_is_refused(lines: list[str], tmp_path: Path) -> None:
    """A series has at least one step."""
    with pytest.raises(InputError):
        read(tmp_path, lines)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(titan(2, 4.0).replace("tps: 8,192", "tps: ,"), id="comma"),
        pytest.param(titan(2, 4.0).replace("tps: 8,192", "tps: 8.1.2"), id="two points"),
        pytest.param(titan(2, 4.0).replace("2026-05", "2026-13"), id="month 13"),
        pytest.param(megatron(2, "1.2.3"), id="ms"),
        pytest.param(megatron(2).replace("       2/", "2" * 5000 + "/"), id="digits"),
    ],
)
def test_a_garbled_line_is_refused_or_passed_over(line: str, tmp_path: Path) -> None:
    """Two processes that write at once leave such lines; nothing but an ``InputError`` comes of them."""
    try:
        read(tmp_path, [line])
    except InputError as error:
        refused = str(error)
    else:
        refused = ""
    assert "\n" not in refused


def test_no_step_of_torchtitan_is_lost(tmp_path: Path) -> None:
    """A line that cannot be used is refused with its row."""
    lines = [titan(1, 2.0), titan(2, 4.0).replace("tps: 8,192", "tps: 0"), titan(3, 6.0)]
    with pytest.raises(InputError, match="row 3"):
        read(tmp_path, lines)


@pytest.mark.parametrize("ms", ["nan", "inf", "-5.0"])
def test_no_step_of_megatron_is_lost(ms: str, tmp_path: Path) -> None:
    """A time that is none is refused with its row."""
    with pytest.raises(InputError, match="row 3"):
        read(tmp_path, [megatron(1), megatron(2, ms), megatron(3)])


def test_several_ranks_of_megatron_are_one_step(tmp_path: Path) -> None:
    """Logs of two ranks in one file are no restarts."""
    assert steps(read(tmp_path, [megatron(step) for step in (1, 1, 2, 2, 3, 3)])) == [[1, 2, 3]]


def test_a_rank_whose_line_is_late_begins_no_attempt(tmp_path: Path) -> None:
    """Pipes of several ranks are merged out of order."""
    order = [(1, 0), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1), (4, 0), (4, 1)]
    lines = [titan(step, 2.0 * step, rank=rank) for step, rank in order]
    assert steps(read(tmp_path, lines)) == [[1, 2, 3, 4]]


def test_a_restart_at_the_last_step_is_a_new_attempt(tmp_path: Path) -> None:
    """The same rank prints a step twice only if it does it twice."""
    order = [1, 2, 3, 4, 5, 5, 6, 7]
    lines = [titan(step, 2.0 * n + 300.0 * (n > 4)) for n, step in enumerate(order)]
    assert steps(read(tmp_path, lines)) == [[1, 2, 3, 4, 5], [5, 6, 7]]


def test_a_log_that_begins_with_a_brace_is_a_log(tmp_path: Path) -> None:
    """Jobs print their configuration first."""
    path = tmp_path / "train.log"
    path.write_text("{'lr': 1e-4}\n" + megatron(1) + "\n")
    assert steps(read_series(path)) == [[1]]


def test_a_byte_that_is_no_text_spoils_no_log(tmp_path: Path) -> None:
    """Logs of clusters have such bytes."""
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xfe node7\n" + megatron(1).encode() + b"\n")
    assert steps(read_series(path)) == [[1]]
