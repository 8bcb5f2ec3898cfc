"""Boot: the script notices nothing, and its last words arrive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers import run_python
from holdfast.job.boot import LAUNCHER_ENV, REPORT_ENV

pytestmark = pytest.mark.processes

BOOT = ("-P", "-m", "holdfast.job.boot")
LOOK = """
import json, os, sys, __main__
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __package__, __doc__, os.getcwd(),
                  __main__.__dict__ is globals(), len(sys.path)]))
"""


class Ended:
    """How a script under boot ended, seen as its launcher sees it."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        folder.joinpath("rings").mkdir(exist_ok=True)
        read_fd, write_fd = os.pipe()
        os.set_inheritable(write_fd, True)
        given = {
            REPORT_ENV: str(write_fd),
            LAUNCHER_ENV: str(os.getpid()),
            "HOLDFAST_RINGS": str(folder / "rings"),
        }
        try:
            done = run_python(*BOOT, *arguments, cwd=folder, env=given | env, pass_fds=[write_fd])
        finally:
            os.close(write_fd)
        with os.fdopen(read_fd, "rb") as pipe:
            self.report = pipe.read()
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    @property
    def words(self) -> dict[str, Any]:
        """The report as the launcher decodes it."""
        assert self.report.endswith(b"\n")
        found: dict[str, Any] = msgspec.json.decode(self.report)
        return found


def _script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return name


def _both(folder: Path, *arguments: str) -> tuple[Any, Any]:
    """Run it under the interpreter alone, and under boot."""
    plain = run_python(*arguments, cwd=folder)
    booted = run_python(*BOOT, *arguments, cwd=folder, env={"HOLDFAST_RINGS": str(folder)})
    return tuple((done.returncode, done.stdout, done.stderr) for done in (plain, booted))  # type: ignore[return-value]


# --- what the script sees ---------------------------------------------------------------------


def _seen(text: str) -> list[Any]:
    found: list[Any] = json.loads(text)
    return found


def test_an_absolute_script_sees_what_it_would_see_alone(tmp_path: Path) -> None:
    """Arguments, path, names and globals are those that the interpreter gives."""
    _script(tmp_path, LOOK)
    plain, booted = _both(tmp_path, str(tmp_path / "train.py"), "--flag", "-m", "ü")
    assert (booted[0], _seen(booted[1])) == (plain[0], _seen(plain[1]))


def test_a_relative_script_sees_what_it_would_see_alone(tmp_path: Path) -> None:
    """``__file__`` is absolute, so that it is right after a change of folder too."""
    (tmp_path / "inner").mkdir()
    _script(tmp_path, LOOK, "inner/train.py")
    plain, booted = _both(tmp_path, "inner/train.py", "x")
    assert _seen(booted[1]) == _seen(plain[1])


@pytest.mark.parametrize("name", ["package", "package.train", "package.inner"])
def test_a_module_sees_what_it_would_see_alone(tmp_path: Path, name: str) -> None:
    """``-m`` with a module, and with a package that has a ``__main__``."""
    folder = tmp_path / "package" / "inner"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(LOOK)
    (folder.parent / "train.py").write_text(LOOK)
    plain, booted = _both(tmp_path, "-m", name, "--flag")
    assert _seen(booted[1]) == _seen(plain[1])


def test_a_folder_with_a_main_sees_what_it_would_see_alone(tmp_path: Path) -> None:
    """``python folder`` is a way to start a script as well."""
    (tmp_path / "job").mkdir()
    _script(tmp_path, LOOK, "job/__main__.py")
    plain, booted = _both(tmp_path, "job", "x")
    assert _seen(booted[1]) == _seen(plain[1])


def test_a_script_behind_a_link_imports_from_where_it_lies(tmp_path: Path) -> None:
    """The first folder of the path is that of the real file."""
    (tmp_path / "real").mkdir()
    _script(tmp_path, "import beside; print(beside.x)", "real/train.py")
    _script(tmp_path, "x = 1", "real/beside.py")
    (tmp_path / "train.py").symlink_to("real/train.py")
    plain, booted = _both(tmp_path, "train.py")
    assert booted == plain == (0, "1\n", "")


def test_the_current_folder_is_not_on_the_path_of_a_script_elsewhere(tmp_path: Path) -> None:
    """A file beside the caller named like a library does no harm."""
    (tmp_path / "inner").mkdir()
    _script(tmp_path, "import statistics; print(statistics.mean([1]))", "inner/train.py")
    _script(tmp_path, "raise RuntimeError('the wrong one')", "statistics.py")
    assert _both(tmp_path, "inner/train.py")[1] == (0, "1\n", "")


@pytest.mark.parametrize(
    "content",
    [
        "print('grün \N{SNOWMAN}')\n".encode(),
        b"\xef\xbb\xbf" + "print('grün')\n".encode(),
        "# -*- coding: latin-1 -*-\nprint('grün')\n".encode("latin-1"),
        "#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nprint('\u20ac')\n".encode("cp1252"),
        b"print('a')\r\nprint('b')\r\n",
        b"",
        b"print('no end of line')",
    ],
    ids=["utf-8", "bom", "latin-1", "cp1252", "crlf", "empty", "no newline"],
)
def test_any_encoding_that_the_interpreter_reads_is_read(tmp_path: Path, content: bytes) -> None:
    """The output is the same as without boot."""
    (tmp_path / "train.py").write_bytes(content)
    plain, booted = _both(tmp_path, "train.py")
    assert booted == plain
    assert plain[0] == 0


@pytest.mark.parametrize("how", [("train.py",), ("-m", "train")], ids=["script", "module"])
def test_what_the_script_defines_can_be_pickled_and_spawned(tmp_path: Path, how: tuple[str, ...]) -> None:
    """``__main__`` is the script, here and in a spawned child."""
    _script(
        tmp_path,
        "import multiprocessing, pickle\n"
        "class Thing: pass\n"
        "def work(queue, thing): queue.put(type(thing).__name__)\n"
        "if __name__ == '__main__':\n"
        "    assert type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.SimpleQueue()\n"
        "    child = context.Process(target=work, args=(queue, Thing()))\n"
        "    child.start(); print(queue.get()); child.join()\n",
    )
    assert _both(tmp_path, *how)[1] == (0, "Thing\n", "")


@pytest.mark.parametrize(
    "how",
    [
        ("train.py",),
        pytest.param(
            ("-m", "train"),
        ),
    ],
    ids=["script", "module"],
)
def test_a_thread_that_outlives_the_script_can_still_pickle(tmp_path: Path, how: tuple[str, ...]) -> None:
    """``__main__`` stays what it was until the process ends."""
    _script(
        tmp_path,
        "import pickle, threading\n"
        "class Thing: pass\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    print(len(pickle.dumps(Thing())) > 0)\n"
        "threading.Thread(target=work).start()\n",
    )
    assert _both(tmp_path, *how)[1] == (0, "True\n", "")


@pytest.mark.parametrize(
    "line",
    ["sys.exit()", "sys.exit(0)", "sys.exit(7)", "sys.exit('words')", "sys.exit(300)", "sys.exit([1])"],
)
def test_the_script_exits_as_it_would_alone(tmp_path: Path, line: str) -> None:
    """Code and words of SystemExit are the interpreter's, and no last words are sent."""
    _script(tmp_path, f"import sys\n{line}\n")
    plain = run_python("train.py", cwd=tmp_path)
    ended = Ended(tmp_path, "train.py")
    assert (ended.code, ended.stderr, ended.report) == (plain.returncode, plain.stderr, b"")


def test_a_script_may_delete_its_folder(tmp_path: Path) -> None:
    """Its error is told all the same."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text("import os, shutil\nshutil.rmtree(os.getcwd())\nraise ValueError('still told')\n")
    ended = Ended(folder, str(script), HOLDFAST_RINGS=str(tmp_path))
    assert (ended.code, ended.words["error"]) == (1, "ValueError: still told")


# --- last words -------------------------------------------------------------------------------


def test_an_exception_goes_to_the_launcher_and_not_to_the_terminal(tmp_path: Path) -> None:
    """The traceback begins at the user's own frame, and the moment is on the monotonic clock."""
    ended = Ended(tmp_path, _script(tmp_path, "def fail():\n    raise ValueError('broken')\nfail()\n"))
    assert (ended.code, ended.stdout, ended.stderr) == (1, "", "")
    assert ended.words == {
        "error": "ValueError: broken",
        "traceback": (
            "Traceback (most recent call last):\n"
            f'  File "{tmp_path}/train.py", line 3, in <module>\n    fail()\n'
            f"  File \"{tmp_path}/train.py\", line 2, in fail\n    raise ValueError('broken')\n"
            "ValueError: broken\n"
        ),
        "seen_s": pytest.approx(ended.words["seen_s"]),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise ValueError", "ValueError"),
        ("raise ValueError('grün \N{SNOWMAN}')", "ValueError: grün \N{SNOWMAN}"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        (
            "class E(Exception):\n    def __str__(self): raise OSError\nraise E",
            "E: <exception str() failed>",
        ),
        (
            "raise ExceptionGroup('many', [ValueError(1), KeyError(2)])",
            "ExceptionGroup: many (2 sub-exceptions)",
        ),
        (
            "try:\n    1 / 0\nexcept Exception as e:\n    raise OSError(5, 'disk') from e",
            "OSError: [Errno 5] disk",
        ),
        ("raise ValueError('x' * 1_000_000)", "ValueError: " + "x" * 1988),
        pytest.param(
            "raise ValueError('ü' * 1_000_000)",
            "ValueError: " + "ü" * 1988,
        ),
        pytest.param(
            "raise ValueError('\\x00' * 20_000)",
            "ValueError: " + "\0" * 1988,
        ),
        pytest.param(
            "raise ValueError('file \\udcff')",
            "ValueError: file ",
        ),
        pytest.param(
            "e = ValueError('broken')\ne.add_note('a hint')\nraise e",
            "ValueError: broken",
        ),
        pytest.param(
            "raise RuntimeError('first\\nsecond\\n\\nthird')",
            "RuntimeError: first",
        ),
    ],
    ids=[
        "no message",
        "not ascii",
        "syntax",
        "recursion",
        "str raises",
        "group",
        "cause",
        "1 MB",
        "1 MB not ascii",
        "nul bytes",
        "surrogate",
        "note",
        "many lines",
    ],
)
def test_the_error_of_any_exception_arrives_as_one_line(tmp_path: Path, text: str, error: str) -> None:
    """Whatever its message, the launcher can decode the report, and its error line names the exception."""
    ended = Ended(tmp_path, _script(tmp_path, text + "\n"))
    assert ended.code == 1
    assert ended.words["error"].startswith(error)
    assert "\n" not in ended.words["error"]
    assert ended.words["traceback"]
    assert len(ended.report) <= 64 * 1024


def test_a_missing_script_or_module_is_told(tmp_path: Path) -> None:
    """As an error of the worker, without frames of ours."""
    script, module = Ended(tmp_path, "nope.py"), Ended(tmp_path, "-m", "nope.inner")
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/nope.py'"
    assert script.words["error"] == missing
    assert module.words["error"] == "ModuleNotFoundError: No module named 'nope'"
    assert (script.code, module.code) == (1, 1)


def test_an_interrupt_is_no_error(tmp_path: Path) -> None:
    """It ends with 130 and without last words."""
    ended = Ended(tmp_path, _script(tmp_path, "raise KeyboardInterrupt\n"))
    assert (ended.code, ended.stdout, ended.stderr, ended.report) == (130, "", "", b"")


def test_without_a_launcher_errors_look_as_usual(tmp_path: Path) -> None:
    """Under another launcher the traceback goes to the terminal, and an interrupt is a signal's death."""
    _script(tmp_path, "raise ValueError('broken')\n")
    _script(tmp_path, "raise KeyboardInterrupt\n", "stop.py")
    (code, _, stderr), (stop, _, _) = _both(tmp_path, "train.py")[1], _both(tmp_path, "stop.py")[1]
    assert (code, stderr.splitlines()[-1], stop) == (1, "ValueError: broken", -signal.SIGINT)


def test_a_crash_in_native_code_leaves_the_python_stack(tmp_path: Path) -> None:
    """faulthandler writes into the report, as text."""
    ended = Ended(tmp_path, _script(tmp_path, "import os\ndef crash():\n    os.abort()\ncrash()\n"))
    assert ended.code == -signal.SIGABRT
    assert b"Fatal Python error: Aborted" in ended.report
    assert b"in crash" in ended.report


def test_the_script_and_its_children_know_nothing_of_the_report(tmp_path: Path) -> None:
    """The variable is gone and the descriptor is closed on exec, so no child can hold the pipe open."""
    child = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    text = (
        "import os, subprocess, sys\n"
        "print([name for name in os.environ if 'REPORT' in name], flush=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], close_fds=False)\n"
    )
    # The last number is that of the listing itself.
    assert Ended(tmp_path, _script(tmp_path, text)).stdout == "[]\n['0', '1', '2', '3']\n"


def test_an_error_file_that_cannot_be_written_does_not_cost_the_report(tmp_path: Path) -> None:
    """A full or missing disk is when people need the traceback most."""
    (tmp_path / "file").write_text("")
    ended = Ended(
        tmp_path,
        _script(tmp_path, "raise ValueError('told')\n"),
        TORCHELASTIC_ERROR_FILE=str(tmp_path / "file" / "error.json"),
    )
    assert ended.words["error"] == "ValueError: told"


def test_a_report_that_cannot_be_sent_goes_to_the_terminal(tmp_path: Path) -> None:
    """A script that closes all descriptors still has its traceback shown somewhere."""
    ended = Ended(tmp_path, _script(tmp_path, "import os\nos.closerange(3, 256)\nraise ValueError('told')\n"))
    assert "ValueError: told" in ended.stderr


def test_a_hook_of_the_user_for_exceptions_is_called(tmp_path: Path) -> None:
    """Frameworks use it to abort their peers or to send mail; it is no business of ours to leave it out."""
    text = "import sys\nsys.excepthook = lambda *error: print('hook', error[1])\nraise ValueError('told')\n"
    ended = Ended(tmp_path, _script(tmp_path, text))
    assert (ended.stdout, ended.words["error"]) == ("hook told\n", "ValueError: told")


@pytest.mark.parametrize("end", ["os._exit(7)", "sys.exit(7)"])
def test_a_hook_that_ends_the_process_does_not_cost_the_traceback(tmp_path: Path, end: str) -> None:
    """Last words are sent before the hook is called."""
    text = f"import os, sys\nsys.excepthook = lambda *error: {end}\nraise ValueError('told')\n"
    ended = Ended(tmp_path, _script(tmp_path, text))
    assert (ended.code, ended.words["error"]) == (7, "ValueError: told")


# --- torchelastic's error file ----------------------------------------------------------------


@pytest.mark.parametrize("is_reported", [True, False])
def test_the_error_file_has_torchs_format(tmp_path: Path, is_reported: bool) -> None:
    """With a launcher of ours or not, in a folder that is made for it."""
    file = tmp_path / "errors" / "rank_0.json"
    _script(tmp_path, "raise ValueError('broken')\n")
    if is_reported:
        Ended(tmp_path, "train.py", TORCHELASTIC_ERROR_FILE=str(file))
    else:
        env = {"TORCHELASTIC_ERROR_FILE": str(file), "HOLDFAST_RINGS": str(tmp_path)}
        run_python(*BOOT, "train.py", cwd=tmp_path, env=env)
    content = json.loads(file.read_text())
    assert content["message"]["message"] == "ValueError: broken"
    assert sorted(content["message"]["extraInfo"]) == ["py_callstack", "timestamp"]
    assert content["message"]["extraInfo"]["timestamp"].isdigit()
    assert content["message"]["extraInfo"]["py_callstack"].endswith("ValueError: broken\n")


def test_the_error_file_is_like_the_one_that_torch_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's own handler gives the same message and the same keys for the same error."""
    from torch.distributed.elastic.multiprocessing.errors import ErrorHandler, ProcessFailure

    ours, torchs = tmp_path / "ours.json", tmp_path / "torchs.json"
    Ended(tmp_path, _script(tmp_path, "raise ValueError('broken')\n"), TORCHELASTIC_ERROR_FILE=str(ours))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(torchs))
    ErrorHandler().record_exception(ValueError("broken"))
    mine, its = json.loads(ours.read_text())["message"], json.loads(torchs.read_text())["message"]
    assert (mine["message"], sorted(mine)) == (its["message"], sorted(its))
    assert sorted(mine["extraInfo"]) == sorted(its["extraInfo"])
    assert ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(ours)).timestamp > 0


def test_an_error_file_written_before_us_is_kept(tmp_path: Path) -> None:
    """``@record`` was nearer to the error."""
    file = tmp_path / "error.json"
    file.write_text("{}")
    Ended(tmp_path, _script(tmp_path, "raise ValueError\n"), TORCHELASTIC_ERROR_FILE=str(file))
    assert file.read_text() == "{}"


# --- the rest of the command line -------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-m",),
        pytest.param(("--exec",)),
    ],
)
def test_a_command_line_without_a_script_gets_the_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """One line and exit code 2."""
    done = run_python(*BOOT, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr[:29]) == (2, "usage: python -m holdfast.job")


@pytest.mark.parametrize(
    ("command", "code"), [(("sh", "-c", "exit 5"), 5), (("./nope",), 127), (("./plain.txt",), 126)]
)
def test_exec_ends_as_a_shell_would_say(tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    """The program's own code, 127 where there is none, 126 where it cannot be executed."""
    (tmp_path / "plain.txt").write_text("")
    assert Ended(tmp_path, "--exec", *command).code == code


def test_a_program_under_exec_dies_with_the_launcher_too(tmp_path: Path) -> None:
    """The kernel keeps the wish across exec; a launcher that is gone ends it before it starts."""
    ended = Ended(tmp_path, "--exec", "echo", "hello", **{LAUNCHER_ENV: "1"})
    assert (ended.code, ended.stdout) == (137, "")


def test_a_job_inside_a_worker_can_boot(tmp_path: Path) -> None:
    """A script may start torchrun with boot itself: that launcher, not ours, is then the parent."""
    inner = _script(tmp_path, "print('inner')\n", "inner.py")
    command = [sys.executable, *BOOT, inner]
    outer = _script(tmp_path, f"import subprocess, sys\nsys.exit(subprocess.run({command!r}).returncode)\n")
    ended = Ended(tmp_path, outer)
    assert (ended.code, ended.stdout) == (0, "inner\n")


def test_importing_boot_costs_no_torch(tmp_path: Path) -> None:
    """The script decides when torch is imported, and what is set before."""
    ended = Ended(tmp_path, _script(tmp_path, "import sys\nprint({'torch', 'numpy'} & set(sys.modules))\n"))
    assert ended.stdout == "set()\n"


def test_the_worker_may_be_started_with_any_standard_stream_closed(tmp_path: Path) -> None:
    """``2>&-`` in a batch script is no reason to fail."""
    _script(tmp_path, "print('out')\n")
    (tmp_path / "rings").mkdir()
    line = f'"{sys.executable}" -P -m holdfast.job.boot train.py 2>&- <&-'
    env = os.environ | {"HOLDFAST_RINGS": str(tmp_path / "rings")}
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"out\n")
