"""Settings from ``holdfast.toml``, then ``HOLDFAST_*`` variables, then flags: the last one to speak wins.

A room declares a frozen Struct; its field names are the keys of a table in the file and, in capitals, the
names of the variables. Every effective value comes with its origin, so that it can be logged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import InputError

FILE_NAME = "holdfast.toml"
S = TypeVar("S", bound=msgspec.Struct)


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it is in force."""

    value: Any
    origin: str
    """``default``, the file's name, the variable's name, or ``flag``."""


def load(
    kind: type[S],
    *,
    table: str,
    env: Mapping[str, str],
    flags: Mapping[str, Any],
    file: Path = Path(FILE_NAME),
) -> tuple[S, dict[str, Effective]]:
    """Return the settings of one room, and where each value came from."""
    given: dict[str, Effective] = {}
    for key, value in _read_table(file, table).items():
        if key not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__)
            raise InputError(f"{file}: [{table}] has no setting {key!r}, expected one of {known}")
        given[key] = Effective(value=value, origin=str(file))
    for key in kind.__struct_fields__:
        variable = f"HOLDFAST_{key.upper()}"
        if env.get(variable):
            given[key] = Effective(value=env[variable], origin=variable)
    for key, value in flags.items():
        if value is not None:
            given[key] = Effective(value=value, origin="flag")
    settings = _convert(kind, given)
    effective = {
        key: given.get(key, Effective(value=None, origin="default")) for key in kind.__struct_fields__
    }
    return settings, {
        key: Effective(value=getattr(settings, key), origin=was.origin) for key, was in effective.items()
    }


def _read_table(file: Path, table: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    found = content.get(table, {})
    if not isinstance(found, dict):
        raise InputError(f"{file}: {table!r} is {found!r}, expected a table [{table}]")
    return found


def _convert(kind: type[S], given: Mapping[str, Effective]) -> S:
    values: dict[str, Any] = {}
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, effective in given.items():
        try:
            values[key] = msgspec.convert(effective.value, hints[key], strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"{effective.origin}: {key} is {effective.value!r}: {error}") from error
    try:
        return kind(**values)
    except ValueError as error:  # From the Struct's own check; only it knows which values do not go together.
        origins = [effective.origin for key, effective in given.items() if key in str(error)]
        raise InputError(f"{', '.join(origins) or 'settings'}: {error}") from error
