"""A pipeline on disk: one file per stage and a description, in a folder that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    with fresh.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(stage_file(draft, stage))


def finish(folder: Path, description: Description) -> None:
    """Give a complete draft its name; an older checkpoint of that name goes."""
    draft = draft_of(folder)
    if not draft.exists() and (folder / DESCRIPTION).exists():
        return  # Done already, by whoever was to do it before the generation changed.
    (draft / DESCRIPTION).write_bytes(msgspec.json.encode(description))
    older = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(older, ignore_errors=True)
    if folder.exists():
        folder.rename(older)
    draft.rename(folder)
    shutil.rmtree(older, ignore_errors=True)


def failure_of(write: Callable[[], None]) -> str | None:
    """Write, and return why that failed, None if it did not; torch reports a full disk as it pleases."""
    try:
        write()
    except (OSError, RuntimeError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def read_description(folder: Path) -> Description:
    """Return what a checkpoint holds; refuse what is none."""
    file = folder / DESCRIPTION
    try:
        return msgspec.json.decode(file.read_bytes(), type=Description)
    except FileNotFoundError:
        raise InputError(f"{folder} holds no complete checkpoint: {DESCRIPTION} is missing") from None
    except (msgspec.MsgspecError, OSError) as error:
        raise InputError(f"{file}: {error}") from None


def read_stage(folder: Path, stage: int) -> dict[str, Any]:
    """Return a stage of a checkpoint; nothing in it is executed."""
    file = stage_file(folder, stage)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is cut off or no checkpoint at all.
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file} cannot be read: {first}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds {type(content).__name__}, expected a stage")
    return content
