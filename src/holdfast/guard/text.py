"""Values as JSON, also where text in them came from outside and is no valid Unicode."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encode_json(value: Any) -> bytes:
    """Return the value as JSON; what no encoding can hold (a file name may have any byte) becomes ``?``."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")
