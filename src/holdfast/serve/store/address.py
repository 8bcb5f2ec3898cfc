"""Where a store is: what a person wrote, as an address for SQLAlchemy, and as it may be shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from holdfast.errors import InputError


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Of a database."""

    url: sa.URL
    file: Path | None
    """None: it is PostgreSQL's."""
    shown: str
    """Without the password."""

    def hide(self, text: str) -> str:
        """Return the text without the password, should it be in there."""
        secrets = [self.url.password, *(self.url.query.get(word) for word in ("password", "sslpassword"))]
        for secret in secrets:
            text = text.replace(secret, "***") if isinstance(secret, str) and secret else text
        return text


def read_address(text: str) -> Address:
    """Read ``sqlite:///path``, ``postgresql://…`` or a bare path of an SQLite file."""
    kind, colon, _ = text.partition("://")
    if not colon:
        return _of_file(text, text)
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # Its message may hold what was given, and that the password.
        raise InputError(f"{kind}://…: not an address of a store, {_EXPECTED}") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        return _of_file(url.database or "", text)
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise InputError(f"{url.drivername}://…: no store is kept there, {_EXPECTED}")
    url = url.set(drivername="postgresql+psycopg")
    return Address(url=url, file=None, shown=_show(url))


_EXPECTED = "expected a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def _of_file(path: str, text: str) -> Address:
    if path in ("", ":memory:") or path.startswith("file:") or "\0" in path:
        raise InputError(f"{text!r}: no file is named there, {_EXPECTED}")
    file = Path(path).absolute()
    return Address(url=sa.URL.create("sqlite", database=str(file)), file=file, shown=path)


def _show(url: sa.URL) -> str:
    # A password may also stand behind the question mark.
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
