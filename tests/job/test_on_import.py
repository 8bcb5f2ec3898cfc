"""Waiting for an import: the action runs once, after it, and nobody else notices."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.job.on_import import on_import


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules to import, and an import system that is put back afterwards."""
    (tmp_path / "hf_plain.py").write_text('"""Plain."""\nimport sys\nvalue = 1\ndef f():\n    return 1\n')
    (tmp_path / "hf_broken.py").write_text("raise RuntimeError('broken')\n")
    package = tmp_path / "hf_package" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("here = __path__\n")
    (package / "__init__.py").write_text("from hf_package.inner import leaf\n")
    (package / "leaf.py").write_text("name = __name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("hf_"):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["hf_plain", "hf_package", "hf_package.inner", "hf_package.inner.leaf"])
def test_the_action_runs_once_after_the_import(modules: Path, name: str) -> None:
    """Not before, not for other modules, not for a second import."""
    seen: list[bool] = []
    on_import(name, lambda: seen.append(name in sys.modules))
    importlib.import_module("wave")
    assert seen == []
    for _ in range(2):
        importlib.import_module(name)
    assert seen == [True]


def test_the_module_is_complete_when_the_action_runs(modules: Path) -> None:
    """What the module defines is there."""
    seen: list[object] = []
    on_import("hf_plain", lambda: seen.append(sys.modules["hf_plain"].value))
    importlib.import_module("hf_plain")
    assert seen == [1]


def test_a_module_imported_before_is_acted_on_at_once(modules: Path) -> None:
    """No finder is left behind."""
    importlib.import_module("hf_plain")
    before, seen = list(sys.meta_path), []
    on_import("hf_plain", lambda: seen.append(1))
    assert (seen, sys.meta_path) == ([1], before)


@pytest.mark.parametrize("name", ["hf_plain", "hf_package"])
def test_the_module_looks_as_if_nobody_had_watched(modules: Path, name: str) -> None:
    """Its loader, spec and source are those of a plain import, and so is the import system."""
    before = list(sys.meta_path)
    on_import(name, lambda: None)
    watched = importlib.import_module(name)
    looks = _looks(name)
    assert sys.meta_path == before
    del sys.modules[name]
    plain = importlib.import_module(name)
    assert (looks, inspect.getsource(watched)) == (_looks(name), inspect.getsource(plain))


def _looks(name: str) -> tuple[object, ...]:
    module = sys.modules[name]
    spec = module.__spec__
    assert spec is not None
    return (
        type(module.__loader__),
        type(spec.loader),
        spec.name,
        spec.origin,
        spec.cached,
        spec.submodule_search_locations,
        module.__file__,
        sorted(vars(module)),
    )


def test_a_reload_does_not_run_the_action_again(modules: Path) -> None:
    """It was the first import that counted."""
    seen: list[int] = []
    on_import("hf_plain", lambda: seen.append(1))
    module = importlib.import_module("hf_plain")
    assert importlib.reload(module) is module
    assert seen == [1]


def test_a_missing_module_is_missing_as_usual(modules: Path) -> None:
    """The error is the interpreter's own."""
    on_import("hf_missing", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'hf_missing'") as caught:
        importlib.import_module("hf_missing")
    assert caught.value.name == "hf_missing"


def test_a_module_that_raises_does_so_as_usual(modules: Path) -> None:
    """Its error reaches the importer, no module is left, and the action does not run."""
    seen: list[int] = []
    on_import("hf_broken", lambda: seen.append(1))
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("hf_broken")
    assert ("hf_broken" in sys.modules, seen) == (False, [])


def test_two_actions_wait_for_one_module(modules: Path) -> None:
    """Both run, and the loader is still the plain one."""
    seen: list[str] = []
    on_import("hf_plain", lambda: seen.append("first"))
    on_import("hf_plain", lambda: seen.append("second"))
    module = importlib.import_module("hf_plain")
    assert sorted(seen) == ["first", "second"]
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_threads_that_import_at_once_run_the_action_once(modules: Path) -> None:
    """The import lock orders them."""
    seen: list[int] = []
    on_import("hf_package.inner", lambda: seen.append(1))
    threads = [threading.Thread(target=importlib.import_module, args=("hf_package.inner",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1]


def test_an_action_that_raises_does_not_reach_the_importer(modules: Path) -> None:
    """Nothing of ours may raise into the user's import."""

    def act() -> None:
        raise OSError("ours")

    on_import("hf_plain", act)
    assert importlib.import_module("hf_plain").value == 1


def test_looking_for_a_module_without_importing_it_does_not_use_up_the_action(modules: Path) -> None:
    """``find_spec`` is how programs ask whether a module is installed."""
    seen: list[int] = []
    on_import("hf_plain", lambda: seen.append(1))
    assert importlib.util.find_spec("hf_plain") is not None
    importlib.import_module("hf_plain")
    assert seen == [1]


def test_an_import_that_failed_at_first_is_still_waited_for(modules: Path) -> None:
    """A script may put the folder on the path only after a first try."""
    seen: list[int] = []
    on_import("hf_later", lambda: seen.append(1))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hf_later")
    (modules / "hf_later.py").write_text("")
    importlib.invalidate_caches()
    importlib.import_module("hf_later")
    assert seen == [1]
