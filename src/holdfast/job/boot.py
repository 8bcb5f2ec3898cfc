"""What a worker runs: hooks first, then the user's script as ``__main__``, unchanged.

``python -m holdfast.job.boot train.py …``, ``… boot -m package.train …`` or ``… boot --exec ./train …``,
by ``holdfast run`` or by any other launcher. When the script raises under ``holdfast run``, the traceback
goes to the launcher through a pipe instead of to the terminal, so that it is shown once, and only for the
worker that died first.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from holdfast.job import attach
from holdfast.job.deathsig import die_with_parent

LAUNCHER_ENV = "HOLDFAST_LAUNCHER_PID"
"""Process id of the launcher that this worker must not outlive."""
REPORT_ENV = "HOLDFAST_REPORT_FD"
"""Descriptor of the pipe to the launcher for last words."""
REPORT_LIMIT_BYTES = 48 * 1024
"""Less than a pipe holds, so that last words never wait for a reader."""


def main(argv: list[str]) -> int:
    """Run the script that the arguments name and return the exit code of the process."""
    if not argv or argv == ["-m"]:
        sys.stderr.write("usage: python -m holdfast.job.boot [-m] SCRIPT [ARGUMENT…]\n")
        return 2
    report_fd = _take_descriptor()
    launcher = os.environ.get(LAUNCHER_ENV)
    if launcher is not None:
        die_with_parent(int(launcher))
    if argv[0] == "--exec":
        return _execute(argv[1:])
    attach.watch()
    if report_fd is not None:
        faulthandler.enable(file=report_fd)
    return _run(argv, report_fd)


def _execute(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _take_descriptor() -> int | None:
    # Taken out of the environment, and closed on exec, so that the worker's own children never hold it.
    text = os.environ.pop(REPORT_ENV, None)
    if text is None:
        return None
    os.set_inheritable(int(text), False)
    return int(text)


def _run(argv: list[str], report_fd: int | None) -> int:
    try:
        if argv[0] == "-m":
            _run_module(argv[1], argv[2:])
        else:
            _run_script(argv[0], argv[1:])
    except KeyboardInterrupt:
        if report_fd is None:
            raise
        return 130
    except Exception as error:
        _leave_word(error, report_fd)
        if report_fd is None:
            raise
        return 1
    return 0


def _run_script(script: str, arguments: list[str]) -> None:
    sys.argv = [script, *arguments]
    if Path(script).is_dir() or script.endswith((".zip", ".pyz")):
        _set_first_path(script)
        runpy.run_path(script, run_name="__main__")
        return
    _set_first_path(str(Path(script).resolve().parent))
    module = ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    # It stays: pickling, spawned children and threads that outlive the script look for it here.
    sys.modules["__main__"] = module
    with open(script, "rb") as file:  # noqa: PTH123 - as the interpreter itself opens it.
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    _set_first_path(str(Path.cwd()))
    sys.argv = [name, *arguments]
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _set_first_path(folder: str) -> None:
    # `python -P -m` (holdfast run) put nothing first, `python -m` (other launchers) put the current folder.
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder


def _leave_word(error: Exception, report_fd: int | None) -> None:
    """Tell the launcher, and whoever reads torchelastic's error file, what went wrong."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _own_frames_cut(error.__traceback__)))
        last_line = traceback.format_exception_only(type(error), error)[-1].strip()
        _write_error_file(last_line, text)
        if report_fd is not None:
            word = {"error": last_line[:2000], "traceback": text[-30_000:], "seen_s": time.monotonic()}
            os.set_blocking(report_fd, False)
            os.write(report_fd, json.dumps(word).encode()[:REPORT_LIMIT_BYTES] + b"\n")
    except OSError:
        return


def _own_frames_cut(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's first frame on."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace


def _write_error_file(message: str, text: str) -> None:
    # The format of torch.distributed.elastic, which @record may have written before us.
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not name or Path(name).exists():
        return
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
