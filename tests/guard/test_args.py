"""The command line of ``holdfast run``, as far as it goes before anything is started."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import Std

from holdfast.errors import InputError
from holdfast.guard.args import make_parser, parse

STEP = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_NODEID": "1",
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a script, and an environment that says nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    for name in [name for name in os.environ if name.startswith(("PET_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_a_bare_script_is_one_node_on_a_free_port() -> None:
    """As torchrun does it: c10d on this machine, an id of its own."""
    args = parse(["train.py", "--steps", "3", "--nproc-per-node", "9"], {})
    config = args.config
    assert args.command == ["train.py", "--steps", "3", "--nproc-per-node", "9"]
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (1, 1, 1)
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "localhost:0")
    assert parse(["train.py"], {}).config.run_id != config.run_id
    assert args.shown_ranks is None
    assert args.flags == {
        "run_dir": None,
        "runs": None,
        "stop_grace_s": None,
        "kill_hung": None,
        "rejoin": None,
        "probe": None,
        "precheck": None,
        "profile": None,
        "profile_every": None,
        "act": None,
        "server": None,
        "token_file": None,
        "metrics_port": None,
        "metrics_host": None,
        "metrics_file": None,
    }


def test_torchruns_flags_set_our_settings() -> None:
    """The log folder holds the run directories, and the grace period is the shutdown time-out."""
    args = parse(["--log-dir", "logs", "--shutdown-timeout", "7", "train.py"], {})
    assert args.flags == {
        "run_dir": None,
        "runs": "logs",
        "stop_grace_s": 7,
        "kill_hung": None,
        "rejoin": None,
        "probe": None,
        "precheck": None,
        "profile": None,
        "profile_every": None,
        "act": None,
        "server": None,
        "token_file": None,
        "metrics_port": None,
        "metrics_host": None,
        "metrics_file": None,
    }
    assert parse(["--no-kill-hung", "train.py"], {}).flags["kill_hung"] is False
    assert parse(["train.py"], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "9"}).flags["stop_grace_s"] == "9"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["-m", "json.tool", "x"], ["-m", "json.tool", "x"]),
        (["--no-python", "true", "x"], ["--exec", "true", "x"]),
        (["train.py", "-x", "--", "-y"], ["train.py", "-x", "--", "-y"]),
        (["."], ["."]),
    ],
)
def test_the_command_is_what_boot_is_to_run(arguments: list[str], command: list[str]) -> None:
    """Script, module or program, with all that follows it."""
    assert parse(arguments, {}).command == command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no script given"),
        (["nope.py"], "script nope.py does not exist"),
        (["-m", "nope.inner"], "module nope.inner does not exist"),
        (["-m", ".inner"], "module .inner does not exist"),
        (["--no-python", "nope"], "program nope does not exist or cannot be executed"),
        (["--no-python", "-m", "json.tool"], "exclude each other"),
        (["--nproc-per-node", "-1", "train.py"], "--nproc-per-node is -1, expected at least 1"),
        (["--nproc-per-node", "many", "train.py"], "many"),
        (["--nnodes", "0", "train.py"], "--nnodes is '0', expected at least 1 node"),
        (["--nnodes", "4:2", "train.py"], "MIN no more than MAX"),
        (["--nnodes", "x", "train.py"], "--nnodes is 'x', expected a number or MIN:MAX"),
        (["--nnodes", "1:4", "train.py"], "a range needs --rdzv-backend=c10d"),
        (["--nnodes", "2", "--node-rank", "2", "train.py"], "--node-rank is 2, expected 0 to 1"),
        (["--max-restarts", "-1", "train.py"], "--max-restarts is -1, expected 0 or more"),
        (["--max-restarts", "x", "train.py"], "invalid int value: 'x'"),
        (["--monitor-interval", "0", "train.py"], "--monitor-interval is 0.0, expected more than 0"),
        (["--local-ranks-filter", "a", "train.py"], "local_ranks_filter"),
        (["--redirects", "9", "train.py"], "9"),
        (["--rdzv-conf", "x", "train.py"], "'x' must have a value"),
        (["--master-port", "70000", "train.py"], "expected 0 to 65535"),
        (["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:70000", "train.py"], "expected 0 to 65535"),
        (["--shutdown-timeout", "-1", "train.py"], "-1"),
        (["--no-such-flag", "train.py"], "unrecognized arguments"),
        (["--logs-specs", "x", "train.py"], "--logs-specs is not supported"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments: list[str], words: str) -> None:
    """Whatever is wrong is bad input, with the value in it."""
    with pytest.raises(InputError) as caught:
        parse(arguments, {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--signals-to-handle", "SIGBOGUS", "train.py"],
        ["--signals-to-handle", "SIGKILL", "train.py"],
        ["--monitor-interval", "nan", "train.py"],
        ["--master-port", "-5", "train.py"],
        ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:²", "train.py"],
    ],
    ids=lambda arguments: " ".join(arguments[:-1]),
)
def test_what_can_only_fail_later_is_refused_now(arguments: list[str]) -> None:
    """Before anything is started."""
    with pytest.raises(InputError):
        parse(arguments, {})


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Root can read anything, so the check is only seen by others."""
    (tmp_path / "train.py").chmod(0)
    if os.geteuid() == 0:
        assert parse(["train.py"], {}).command == ["train.py"]
    else:
        with pytest.raises(InputError, match=r"script train.py cannot be read"):
            parse(["train.py"], {})


def test_output_flags_are_understood_per_rank() -> None:
    """--redirects by rank, --local-ranks-filter as a set."""
    args = parse(["--nproc-per-node", "3", "-r", "0:1,2:3", "--local-ranks-filter", "0,2", "train.py"], {})
    assert [args.redirects(rank) for rank in range(3)] == [Std.OUT, Std.NONE, Std.ALL]
    assert args.shown_ranks == frozenset({0, 2})
    assert parse(["-r", "2", "train.py"], {}).redirects(7) == Std.ERR


def test_our_own_flag_is_taken_out() -> None:
    """Both spellings, as torchrun has them."""
    for flag in ("--run-dir", "--run_dir"):
        assert parse([flag, "here", "train.py"], {}).flags["run_dir"] == "here"


def test_slurm_speaks_where_nobody_else_does() -> None:
    """A step of two nodes is a static rendezvous on the first."""
    config = parse(["train.py"], STEP).config
    assert (config.min_nodes, config.rdzv_backend, config.run_id) == (2, "static", "slurm-1234-2")
    assert config.rdzv_endpoint == f"gpu07:{20_000 + (1234 * 7 + 2) % 20_000}"
    assert parse(["--standalone", "train.py"], STEP).config.min_nodes == 1


def test_a_persons_variable_counts_as_a_flag_against_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """``PET_NNODES=1`` in an allocation of two nodes means one node."""
    monkeypatch.setenv("PET_NNODES", "1")
    assert parse(["train.py"], STEP).config.min_nodes == 1


def test_a_taken_port_is_refused_on_the_node_that_would_listen() -> None:
    """The other nodes find it taken by node 0, as it should be."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port)]
        with pytest.raises(InputError, match=f"port {port} is taken"):
            parse([*common, "--node-rank", "0", "train.py"], {})
        assert parse([*common, "--node-rank", "1", "train.py"], {}).config.min_nodes == 2


def test_help_has_torchs_flags_and_ours() -> None:
    """One parser for both."""
    text = make_parser().format_help()
    assert all(flag in text for flag in ("--nproc-per-node", "--rdzv-endpoint", "--run-dir"))
    assert text.startswith("usage: holdfast run ")
