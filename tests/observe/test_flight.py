"""Flight Recorder dumps are read whatever wrote them, and refused in one line if they are none."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from helpers import run_python
from holdfast.diagnose.hangs import diagnose_hang
from holdfast.errors import InputError
from holdfast.observe import flight
from holdfast.observe.flight import rank_of, read_dump, read_dumps
from holdfast.observe.flightdump import parse_dump

GLOO_JOB = Path(__file__).parent / "gloohang.py"


def entry(**fields: Any) -> dict[str, Any]:
    """Return an operation as NCCL records it, changed where asked."""
    usual = {
        "record_id": 7,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 3,
        "p2p_seq_id": 0,
        "op_id": 3,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4, 2], [3]],
        "input_dtypes": ["Float", "Long"],
        "state": "scheduled",
        "retired": False,
    }
    return usual | fields


def document(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a dump of two ranks."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.9", "pg_config": config, "entries": list(entries)} | fields


def write(path: Path, content: Any) -> Path:
    """Write a pickle and return where."""
    path.write_bytes(pickle.dumps(content, 2))
    return path


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_0", 0),
        ("_dump_12", 12),
        ("nccl_trace_rank_3", 3),
        ("trace_gpu-node-07_rank_3.json", 3),
        ("rank3_gpu07", 3),
        ("_dump_gpu-node-07_5.json", 5),
        ("prefix9.pickle", 9),
        ("fault_injection.log", None),
        ("trace_20261116101500", None),
        ("_dump_9999999", None),
    ],
)
def test_a_name_says_the_rank(name: str, rank: int | None) -> None:
    """After the word, or at the end; times of day are no ranks."""
    assert rank_of(Path(name)) == rank


def test_an_operation_is_read_with_all_that_is_used() -> None:
    """Elements are summed over the tensors, and the backend is taken off the kind."""
    dump = parse_dump(json.dumps(document(entry(), nccl_version="2.20", extra={})).encode(), 1)
    assert (dump.rank, dump.groups, dump.labels) == (1, {"0": [0, 1]}, {"0": "default_pg"})
    (only,) = dump.pending
    assert (only.record, only.group, only.seq, only.kind) == (7, "0", 3, "all_reduce")
    assert (only.elements, only.dtypes, only.is_p2p) == (11, ["Float", "Long"], False)


def test_json_and_pickle_say_the_same(tmp_path: Path) -> None:
    """The form of the file makes no difference."""
    content = document(entry(), entry(record_id=8, state="completed", retired=True))
    (tmp_path / "_dump_1.json").write_text(json.dumps(content))
    assert read_dump(write(tmp_path / "_dump_1", content)) == read_dump(tmp_path / "_dump_1.json")


@pytest.mark.parametrize(
    ("name", "ends"), [("nccl:send 0->2", (4, 8)), ("nccl:recv 0<-2", (8, 4)), ("nccl:send 2->1", (8, 6))]
)
def test_ends_of_messages_are_positions_in_the_group(name: str, ends: tuple[int, int]) -> None:
    """They become ranks of the job by the list of the group's ranks."""
    config = {"3": {"desc": "pp", "ranks": "[4, 6, 8]"}}
    message = entry(process_group=("3", "pp"), profiling_name=name, is_p2p=True)
    (only,) = parse_dump(json.dumps(document(message, pg_config=config)).encode(), 4).operations
    assert (only.src, only.dst) == ends


@pytest.mark.parametrize(
    ("fields", "is_done"),
    [
        ({"state": "completed"}, True),
        ({"retired": True}, True),
        ({"state": None, "retired": True}, True),
        ({"time_discovered_completed_ns": 5}, True),
        ({"time_discovered_completed_ns": 0}, False),
        ({"state": "started"}, False),
        ({"state": None, "retired": None}, False),
    ],
)
def test_done_is_what_any_backend_says_is_done(fields: dict[str, Any], is_done: bool) -> None:
    """NCCL by the state, gloo by retiring it."""
    (only,) = parse_dump(json.dumps(document(entry(**fields))).encode(), 0).operations
    assert only.is_done == is_done


def test_counts_of_groups_without_entries_are_found_by_the_order_of_creation() -> None:
    """A status is numbered among the rank's own groups, a group among all of the job."""
    config = {name: {"desc": "", "ranks": "[0, 1]"} for name in ("0", "112", "33")}
    status = {name: {"last_enqueued_collective": int(name) + 10} for name in ("0", "4", "17")}
    dump = parse_dump(json.dumps(document(pg_config=config, pg_status=status)).encode(), 0)
    assert dump.enqueued == {"0": 10, "33": 14, "112": 27}
    other = entry(pg_id=4, process_group=("112", ""))  # Then the order of creation is another one.
    dump = parse_dump(json.dumps(document(other, pg_config=config, pg_status=status)).encode(), 0)
    assert dump.enqueued == {"112": 14}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"{",
        b"[1, 2]",
        b"null",
        b'{"version": "2.9"}',
        b'{"entries": 3}',
        b'{"entries": [3]}',
        b'{"entries": [{"profiling_name": "x"}]}',
        b'{"entries": [{"profiling_name": "x", "process_group": 3}]}',
        b'{"entries": [], "pg_config": {"0": {"ranks": "[0, -1]"}}}',
        b'{"entries": [], "pg_config": {"0": {"ranks": "import os"}}}',
        b'{"entries": ' + b"[" * 100_000,
        b'{"entries": [], "pg_config": ' + b'{"a":' * 100_000,
        pickle.dumps({"version": "2.9", "entries": {}}, 2),
        pickle.dumps(["no", "dump"], 2),
        pickle.dumps({"entries": [{}]}, 2),
        pickle.dumps({"entries": [{1: 2}]}, 2),
        pickle.dumps({"entries": [print]}, 2),
        pickle.dumps(document(entry()), 2)[:-20],
        pickle.dumps(document(entry()), 0),
    ],
)
def test_what_is_no_dump_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    """The line names the file and says what was expected."""
    path = tmp_path / "_dump_3"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_dump(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: expected a Flight Recorder dump, JSON or pickle: ")
    assert "\n" not in message
    assert len(message) < 500


def test_one_entry_that_is_referred_to_a_million_times_is_refused(tmp_path: Path) -> None:
    """A pickle can repeat a large value in two bytes; what grows with the references is bounded."""
    body = pickle.dumps(entry(), 2)[2:-1]
    many = b"h\xfe" * 2_000_000
    path = tmp_path / "_dump_3"
    path.write_bytes(b"\x80\x02}X\x07\x00\x00\x00entries](" + body + b"q\xfe" + many + b"es.")
    with pytest.raises(InputError, match="it has 2000001 entries, expected at most 1000000"):
        read_dump(path)


def test_a_long_list_of_ranks_that_all_groups_share_is_refused() -> None:
    """It would be copied for each group."""
    ranks = list(range(100_000))
    config = {str(group): {"ranks": ranks} for group in range(1000)}
    with pytest.raises(ValueError, match="more and larger groups than any job does"):
        parse_dump(pickle.dumps(document(pg_config=config), 2), 0)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    """It is refused by its size; a hole of a gigabyte takes no time."""
    path = tmp_path / "_dump_3"
    with path.open("wb") as file:
        file.truncate(flight.LARGEST_BYTES + 1)
    with pytest.raises(InputError, match="has 268435457 bytes, expected at most 268435456"):
        read_dump(path)


def test_a_folder_is_all_its_dumps_by_rank(tmp_path: Path) -> None:
    """Files that are of no rank are left alone."""
    for rank in (10, 2, 0):
        write(tmp_path / f"_dump_{rank}", document(entry()))
    (tmp_path / "notes.txt").write_text("hello")
    assert [dump.rank for dump in read_dumps([tmp_path])] == [0, 2, 10]


def test_two_dumps_of_a_rank_are_refused(tmp_path: Path) -> None:
    """Both files are named."""
    first, second = (write(tmp_path / name, document()) for name in ("_dump_3", "_old_3"))
    with pytest.raises(InputError) as caught:
        read_dumps([tmp_path])
    assert str(caught.value) == f"{second}: is of rank 3, as is {first}; expected one dump per rank"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder without dumps, a file that is not there, a name without a rank."""
    with pytest.raises(InputError, match="holds no dumps, expected files like _dump_3"):
        read_dumps([tmp_path])
    with pytest.raises(InputError, match="_dump_3: cannot be read: No such file"):
        read_dumps([tmp_path / "_dump_3"])
    with pytest.raises(InputError, match="no rank in the name"):
        read_dumps([write(tmp_path / "notes", document())])


@pytest.mark.processes
def test_real_dumps_of_gloo_name_the_rank_that_did_not_come(tmp_path: Path) -> None:
    """A real job of three ranks, in both forms that PyTorch writes."""
    done = run_python(str(GLOO_JOB), str(tmp_path), cwd=tmp_path, env={"TORCH_FR_BUFFER_SIZE": "100"})
    assert done.returncode == 0, done.stderr
    for form in ("pickle", "json"):
        hang = diagnose_hang(read_dumps([tmp_path / form]))
        assert [suspect.ranks for suspect in hang.suspects] == [[2]]
        assert (hang.victims, hang.missing, hang.world_size) == ([0, 1], [], 3)
        assert hang.suspects[0].confidence > 0.9
