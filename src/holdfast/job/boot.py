"""What a worker runs: hooks first, then the user's script as ``__main__``, unchanged.

``python -m holdfast.job.boot train.py …``, ``… boot -m package.train …`` or ``… boot --exec ./train …``,
by ``holdfast run`` or by any other launcher. When the script raises under ``holdfast run``, the traceback
goes to the launcher through a pipe instead of to the terminal, so that it is shown once, and only for the
worker that died first.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from holdfast.job import attach
from holdfast.job.deathsig import die_with_parent
from holdfast.job.lastwords import Report, after_hook, describe, note_failure, open_report, write_error_file

LAUNCHER_ENV = "HOLDFAST_LAUNCHER_PID"
"""Process id of the launcher that this worker must not outlive."""
REPORT_ENV = "HOLDFAST_REPORT_FD"
"""Descriptor of the pipe to the launcher for last words."""


def main(argv: list[str]) -> int:
    """Run the script that the arguments name and return the exit code of the process."""
    if not argv or argv in (["-m"], ["--exec"]):
        sys.stderr.write("usage: python -m holdfast.job.boot [-m] SCRIPT [ARGUMENT…]\n")
        return 2
    # Both are for this process alone: what it starts itself must not find them.
    descriptor = os.environ.pop(REPORT_ENV, None)
    launcher = os.environ.pop(LAUNCHER_ENV, None)
    if launcher is not None and launcher.isdecimal():
        die_with_parent(int(launcher))
    if argv[0] == "--exec":
        return _execute(argv[1:])
    attach.watch()
    return _run(argv, open_report(int(descriptor)) if descriptor is not None else None)


def _execute(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _run(argv: list[str], report: Report | None) -> int:
    try:
        if argv[0] == "-m":
            _run_module(argv[1], argv[2:])
        else:
            _run_script(argv[0], argv[1:])
    except KeyboardInterrupt:
        note_failure("interrupted")
        if report is None:
            raise
        return 130
    except SystemExit as stop:
        if stop.code not in (None, 0):
            note_failure(f"exit code {stop.code}")
        raise
    except BaseException as error:
        note_failure(type(error).__name__)
        words = describe(error, own_files={__file__, runpy.__file__, "<frozen runpy>"})
        write_error_file(words)
        if report is None:
            raise
        # Before the script's own hook is called, which may end the process.
        is_sent = report.send(words)
        told = after_hook(error, words)
        if told is not words:
            is_sent = report.send(told) or is_sent
        if not is_sent:
            sys.stderr.write(told.traceback)
        return 1
    return 0


def _run_script(script: str, arguments: list[str]) -> None:
    sys.argv = [script, *arguments]
    path = os.path.abspath(script)  # noqa: PTH100 - as the interpreter does: links are kept.
    if Path(path).is_dir() or path.endswith((".zip", ".pyz")):
        _set_first_path(path)
        _new_main()
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _set_first_path(str(Path(path).resolve().parent))
    module = _new_main()
    module.__file__ = path
    with open(path, "rb") as file:  # noqa: PTH123 - as the interpreter itself opens it.
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    _set_first_path(str(Path.cwd()))
    sys.argv = ["-m", *arguments]
    if importlib.util.find_spec(name) is None:  # Else runpy would end the process by itself.
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    _new_main()
    # What `python -m` itself calls; the public run_module puts the old __main__ back at the end.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _new_main() -> ModuleType:
    """Put an empty ``__main__`` in our place; it stays there, for pickling, spawned children and threads."""
    module = ModuleType("__main__")
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    return module


def _set_first_path(folder: str) -> None:
    # `python -P -m` (holdfast run) put nothing first, `python -m` (other launchers) put the current folder.
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
