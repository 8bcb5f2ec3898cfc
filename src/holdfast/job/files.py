"""Files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a mix; on failure leave nothing."""
    fresh = path.with_suffix(f".{os.getpid()}.new")
    try:
        fresh.write_bytes(data)
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
