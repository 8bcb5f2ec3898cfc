"""Read faults from a TOML file or from words on a command line, and refuse the ones that make no sense.

Every refusal is one line that names the place, the value and what was expected.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError
from holdfast.faults import FAULT_KINDS, Fault
from holdfast.lab.kinds import REFERENCE

_WORDS = {"rank": "target", "at": "at_step", "for": "for_steps", "severity": "severity", "via": "via"}


def read_faults(path: Path) -> list[Fault]:
    """Return the faults of a TOML file with one ``[[fault]]`` table each."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    unknown = sorted(set(content) - {"fault"})
    if unknown:
        raise InputError(f"{path}: unknown key {unknown[0]!r}, expected [[fault]] tables")
    tables = content.get("fault", [])
    if not isinstance(tables, list):
        raise InputError(f"{path}: fault is {tables!r}, expected [[fault]] tables (two brackets)")
    return [_fault(table, f"{path}: fault {number}") for number, table in enumerate(tables, start=1)]


def parse_fault(words: str) -> Fault:
    """Return the fault that words describe: ``slow_device rank=1 at=20 for=20 severity=2``."""
    kind, *pairs = words.split() or [""]
    fields: dict[str, Any] = {"kind": kind}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in _WORDS:
            expected = ", ".join(f"{word}=…" for word in _WORDS)
            raise InputError(f"fault {words!r}: cannot use {pair!r}, expected {expected}")
        fields[_WORDS[name]] = _value(name, value, words)
    if "target" not in fields and kind in FAULT_KINDS:
        raise InputError(f"fault {words!r}: rank is missing, expected such as rank=1 (slow_link: rank=0-1)")
    return _fault(fields, f"fault {words!r}")


def check_faults(faults: Sequence[Fault], *, world_size: int) -> None:
    """Refuse the first fault that the job cannot have."""
    for number, fault in enumerate(faults, start=1):
        if max(fault.ranks) >= world_size:
            expected = f"0 to {world_size - 1}" if world_size > 1 else "0"
            raise InputError(
                f"fault {number} ({fault.kind}): target is rank {max(fault.ranks)}, "
                f"expected a rank of this job: {expected}"
            )


def _value(name: str, value: str, words: str) -> Any:
    try:
        if name == "rank":
            ranks = [int(part) for part in value.split("-")]
            return ranks if len(ranks) > 1 else ranks[0]
        if name in ("at", "for"):
            return int(value)
        return float(value) if name == "severity" else value
    except ValueError:
        expected = {"rank": "a rank such as 1, or two such as 0-1", "severity": "a number"}
        raise InputError(
            f"fault {words!r}: {name} is {value!r}, expected {expected.get(name, 'a whole number')}"
        ) from None


def _fault(fields: Any, place: str) -> Fault:
    if not isinstance(fields, dict):
        raise InputError(f"{place}: is {fields!r}, expected a table")
    for name in ("kind", "target"):
        if name not in fields and fields.get("kind", FAULT_KINDS[0]) in FAULT_KINDS:
            raise InputError(f"{place}: {name} is missing")
    if fields["kind"] not in FAULT_KINDS:
        raise InputError(f"{place}: kind is {fields['kind']!r}, expected one of {', '.join(FAULT_KINDS)}")
    unknown = sorted(set(fields) - set(Fault.__struct_fields__))
    if unknown:
        known = ", ".join(Fault.__struct_fields__)
        raise InputError(f"{place}: unknown field {unknown[0]!r}, expected one of {known}")
    try:
        fault = msgspec.convert(fields, Fault)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: {_explain(error, fields)}") from error
    _check_mechanism(fault, place)
    return fault


def _explain(error: msgspec.ValidationError, fields: dict[str, Any]) -> str:
    """Say it with the field and its value, which msgspec leaves out of type errors."""
    text = str(error)
    message, _, where = text.partition(" - at `$.")
    name = where.rstrip("`").partition("[")[0]
    return f"{name} is {fields[name]!r}: {message[:1].lower()}{message[1:]}" if name in fields else message


def _check_mechanism(fault: Fault, place: str) -> None:
    known = ("auto", *REFERENCE[fault.kind].mechanisms)
    if fault.via not in known:
        raise InputError(
            f"{place}: via is {fault.via!r}, expected one of {', '.join(known)} for {fault.kind}"
        )
    if fault.kind == "busy_neighbour" and (fault.severity < 2 or fault.severity != int(fault.severity)):
        raise InputError(
            f"{place}: severity of busy_neighbour is {fault.severity:g}, "
            "expected a whole number from 2 up (one rival halves the target's share)"
        )
