"""Files that are named on the command line: read or written, or refused in one line that says which."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.errors import InputError
from holdfast.observe.files import decode, read_bytes


def one_line(text: str) -> str:
    """Return a text with line breaks and whatever else cannot be printed written out, as ``\\n``."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def read_text(path: Path) -> str:
    """Return what is in a file; one that may never end, such as a pipe, is refused."""
    return decode(path, read_bytes(path))


def check_chart(path: Path, flag: str = "--chart", endings: Sequence[str] = (".svg", ".html")) -> None:
    """Refuse before anything long begins what could not be written afterwards."""
    if path.suffix not in endings:
        raise InputError(f"{flag} is {str(path)!r}, expected a name that ends in {' or '.join(endings)}")
    try:
        has_folder, is_folder = path.absolute().parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InputError(f"{flag} {path}: cannot be written: {error.strerror}") from error
    if not has_folder:
        raise InputError(f"{flag} is {str(path)!r}, expected a folder that exists")
    if is_folder:
        raise InputError(f"{flag} is {str(path)!r}, expected a file, not a folder")


def write_chart(path: Path, text: str, flag: str = "--chart") -> None:
    """Write a chart whole or not at all: one that was there before is only replaced by a whole one."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # It may never have been made.
            part.unlink()
        raise InputError(f"{flag} {path}: cannot be written: {error.strerror}") from error
