"""The token: from a file or the environment, or made here; never on a command line, which others can read."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import InputError
from holdfast.observe.files import decode, read_bytes

TOKEN_ENV = "HOLDFAST_TOKEN"
_LEAST = 16
_MOST = 4096


def read_token(file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the token that was given, if one was."""
    if file is not None:
        return check_token(decode(file, read_bytes(file, most=_MOST)).strip(), f"--token-file {file}")
    if environment.get(TOKEN_ENV):
        return check_token(environment[TOKEN_ENV].strip(), TOKEN_ENV)
    return None


def check_token(token: str, origin: str) -> str:
    """Return a token that can be used; the message about another does not repeat it."""
    if not (token.isascii() and token.isprintable() and " " not in token and len(token) >= _LEAST):
        raise InputError(
            f"{origin}: expected at least {_LEAST} letters, digits or signs without a blank, "
            "such as of `openssl rand -hex 32`"
        )
    return token


def keep_token(file: Path) -> str:
    """Return the token of a file that only its owner can read; make one where there is none."""
    try:
        if not os.path.lexists(file):
            _make(file)
    except FileExistsError:  # Somebody else was faster.
        pass
    except OSError as error:
        raise InputError(f"{file}: cannot be made: {error.strerror}") from None
    return _read_kept(file)


def _make(file: Path) -> None:
    """Make a file with a new token, all of it or nothing; one that is there already stays as it is."""
    fd, fresh = tempfile.mkstemp(prefix=".token-", dir=file.parent)  # Only its owner can read it.
    try:
        with os.fdopen(fd, "w") as opened:
            opened.write(f"{secrets.token_urlsafe(32)}\n")
            opened.flush()
            os.fsync(fd)
        os.link(fresh, file)
    finally:
        Path(fresh).unlink()


def _read_kept(file: Path) -> str:
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise InputError(f"{file}: others could have read or written it; remove it, and another is made")
    return check_token(decode(file, read_bytes(file, most=_MOST)).strip(), str(file))
