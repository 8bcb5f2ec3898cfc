"""A pipeline on disk: one file per stage and a description, in a folder that is there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
import torch

from holdfast.errors import InputError

DESCRIPTION = "pipeline.json"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds."""

    schema: int = 1
    step: int
    stages: int
    exact: bool
    at_s: float = 0.0
    """When its state was that of the run, in seconds since 1970; 0: not told."""


_DESCRIPTION = msgspec.json.Decoder(Description)


def stage_file(folder: Path, stage: int) -> Path:
    """Return where a stage lies."""
    return folder / f"stage_{stage}.pt"


def draft_of(folder: Path) -> Path:
    """Return where a checkpoint is written before it is complete."""
    return folder.with_name(f".{folder.name}.partial")


def write_stage(folder: Path, stage: int, content: dict[str, Any]) -> None:
    """Write one stage into the draft; whole or not at all, and again if need be."""
    draft = draft_of(folder)
    draft.mkdir(parents=True, exist_ok=True)
    fresh = stage_file(draft, stage).with_suffix(f".{os.getpid()}")
    try:
        with fresh.open("w+b") as file:
            torch.save(content, file)
            _settle(file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with _digest_file(draft, stage).open("w") as file:
            file.write(f"{digest}\n")
            _settle(file)
        fresh.rename(stage_file(draft, stage))
    finally:
        fresh.unlink(missing_ok=True)


def _settle(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _settle_folder(folder: Path) -> None:
    """Make the names in a folder last, too."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _digest_file(folder: Path, stage: int) -> Path:
    return folder / f"stage_{stage}.sha256"


def finish(folder: Path, description: Description) -> None:
    """Give a complete draft its name; an older checkpoint of that name goes."""
    draft = draft_of(folder)
    if not draft.exists() and (folder / DESCRIPTION).exists():
        return  # Done already, by whoever was to do it before the generation changed.
    with (draft / DESCRIPTION).open("wb") as file:
        file.write(msgspec.json.encode(description))
        _settle(file)
    _settle_folder(draft)
    older = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(older, ignore_errors=True)
    if folder.exists():
        folder.rename(older)
    draft.rename(folder)
    _settle_folder(folder.parent)
    shutil.rmtree(older, ignore_errors=True)


def failure_of(write: Callable[[], None]) -> str | None:
    """Write, and return why that failed, None if it did not; torch reports a full disk as it pleases."""
    try:
        write()
    except (OSError, RuntimeError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        return (
            words if isinstance(error, OSError) else f"torch could not write it, as on a full disk: {words}"
        )
    return None


def read_description(folder: Path) -> Description:
    """Return what a checkpoint holds; refuse what is none."""
    file = folder / DESCRIPTION
    try:
        return _DESCRIPTION.decode(file.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder} holds no complete checkpoint: {DESCRIPTION} is missing") from None
    except (msgspec.MsgspecError, OSError) as error:
        raise InputError(f"{file}: {error}") from None


def read_stage(folder: Path, stage: int) -> dict[str, Any]:
    """Return a stage of a checkpoint; nothing in it is executed."""
    file = stage_file(folder, stage)
    _check_digest(folder, stage)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is cut off or no checkpoint at all.
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file} cannot be read: {first}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds {type(content).__name__}, expected a stage")
    return content


def _check_digest(folder: Path, stage: int) -> None:
    """Refuse a stage that is not as it was written."""
    file = stage_file(folder, stage)
    try:
        told = _digest_file(folder, stage).read_text().strip()
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    if found != told:
        raise InputError(
            f"{file} is not as it was written: its SHA-256 begins with {found[:12]}, expected {told[:12]!r}"
        )
