"""Call a function once a module has been imported by somebody else.

Importing torch before the user's script does would freeze settings that the script makes first (thread
counts, allocator, visible devices), so hooks wait until the script has imported it.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def on_import(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` right after the module's first import, at once if it is imported already.

    What the action raises stays with us: it is the user's import that is going on.
    """
    if name in sys.modules:
        _call(action)
    else:
        sys.meta_path.insert(0, _Finder(name, action))


def _call(action: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        action()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module by the finders behind it, and wraps its loader until it has been imported."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._is_searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._finish)
        return spec

    def _finish(self) -> None:
        if self in sys.meta_path:  # A reload comes here a second time.
            sys.meta_path.remove(self)
            _call(self._action)


class _Loader(importlib.abc.Loader):
    """Runs the real loader, puts it back in its place, then says that the import is done."""

    def __init__(self, loader: importlib.abc.Loader, finish: Callable[[], None]) -> None:
        self._loader = loader
        self._finish = finish

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finish()
