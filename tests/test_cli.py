"""The command line itself: fast, light, one line for what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import holdfast
from helpers import run_python
from holdfast import cli
from holdfast.errors import InputError, JobError, MissingError
from holdfast.guard.native import load_torch

HELP = """
import sys
sys.argv = ["holdfast", "--help"]
from holdfast.cli import main
try:
    main()
finally:
    heavy = {"torch", "numpy", "scipy", "polars", "plotly"} & set(sys.modules)
    print("HEAVY", sorted(heavy), file=sys.stderr)
"""


def _call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_lists_the_verbs(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what the whole is for."""
    assert _call(arguments, monkeypatch) == 0
    out = capsys.readouterr().out
    assert "Keeps large PyTorch training runs fast and alive." in out
    verbs = ("run", "inject", "demo", "doctor", "plan", "simulate", "detect", "diagnose", "reliability")
    assert [verb for verb in verbs if f" {verb} " not in out] == []


@pytest.mark.processes
def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """No torch, no numpy: it answers at once."""
    done = run_python("-c", HELP, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "HEAVY []\n")


def test_the_version_is_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line."""
    assert _call(["--version"], monkeypatch) == 0
    assert capsys.readouterr() == (f"holdfast {holdfast.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["fly"], ["--fly"]])
def test_an_unknown_verb_or_flag_is_bad_input(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, its name on stderr, nothing on stdout."""
    assert _call(arguments, monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, arguments[0].lstrip("-") in err) == ("", True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("bad"), 2),
        (MissingError("bad"), 2),
        (JobError("bad", exit_code=137), 137),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_ours_are_one_line_and_a_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback; an interrupt is silent."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert _call([], monkeypatch) == code
    assert capsys.readouterr().err == ("" if isinstance(error, KeyboardInterrupt) else "holdfast: bad\n")


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all packages of this environment but torch."""
    folder = tmp_path_factory.mktemp("no_torch")
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not package.name.startswith(("torch", "functorch")) and package.suffix != ".pth":
            (folder / package.name).symlink_to(package)
    return folder


def _without_torch(no_torch: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(holdfast.__file__).parent.parent)
    path = os.pathsep.join([source, str(no_torch)])
    return run_python("-S", "-m", "holdfast.cli", *arguments, cwd=cwd, env={"PYTHONPATH": path})


@pytest.mark.processes
def test_run_without_torch_says_how_to_get_it(no_torch: Path, tmp_path: Path) -> None:
    """One line and exit code 2."""
    done = _without_torch(no_torch, tmp_path, "run", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "holdfast: holdfast run needs torch: pip install 'holdfast[torch]'\n"


@pytest.mark.processes
def test_help_and_version_work_without_torch(no_torch: Path, tmp_path: Path) -> None:
    """So does the import of the package."""
    assert _without_torch(no_torch, tmp_path, "--help").returncode == 0
    assert _without_torch(no_torch, tmp_path, "--version").stdout == f"holdfast {holdfast.__version__}\n"


def test_torch_is_loaded_quietly_and_the_workers_are_left_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that keeps its native code silent does not stay in the environment."""
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    load_torch("run")
    assert "TORCH_CPP_LOG_LEVEL" not in os.environ
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    load_torch("run")
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "INFO"
