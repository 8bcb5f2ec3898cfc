"""Files here or elsewhere: a path, or an address that fsspec understands, such as ``s3://bucket/traces``."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from holdfast.errors import InputError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_address(place: str) -> bool:
    """Say whether a place is elsewhere."""
    return _ADDRESS.match(place) is not None


def list_files(place: str, endings: Sequence[str]) -> list[str]:
    """Return the files at an address or a path that end so; what may never end, as a pipe, is none."""
    if not is_address(place):
        return [str(path) for path in _list_here(Path(place)) if path.name.endswith(tuple(endings))]
    with _one_line(place):
        system, path = _file_system(place)
        inside = sorted(system.find(path)) if system.isdir(path) else [path]
        return [str(system.unstrip_protocol(each)) for each in inside if each.endswith(tuple(endings))]


@contextlib.contextmanager
def opened(place: str) -> Iterator[BinaryIO]:
    """Open a file for reading; whatever goes wrong on the way is one line."""
    with _one_line(place):
        if not is_address(place):
            with Path(place).open("rb") as stream:
                yield stream
        else:
            system, path = _file_system(place)
            with system.open(path, "rb") as stream:
                yield cast(BinaryIO, stream)


def _list_here(path: Path) -> list[Path]:
    try:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        return [each for each in inside if each.is_file()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _file_system(place: str) -> tuple[Any, str]:
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise InputError(f"{place}: an address, needs fsspec: pip install 'holdfast[remote]'") from error
    return cast(tuple[Any, str], core.url_to_fs(place))


@contextlib.contextmanager
def _one_line(place: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror or error}") from error
    except (ImportError, ValueError) as error:  # No such protocol, or its package is not installed.
        if not is_address(place):
            raise
        raise InputError(f"{place}: cannot be read: {error}") from error
