"""How a server is set up; read once, at the entry point."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

PORT = 8417
STATE = ".holdfast"
"""Folder in the folder of runs: the store, the token, and up to where runs were read."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``holdfast serve`` was told, and what follows from it."""

    token: str
    """Who has it may ship, sign in and give orders. It is never printed."""
    host: str = "127.0.0.1"
    """Where it listens."""
    port: int = PORT
    runs: Path | None = None
    """Folder of run directories that is followed; None: runs come from guards only."""
    store_url: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    webhook_url: str | None = None
    keep_age_s: float | None = None
    """Runs that were not heard of for longer are forgotten."""
    keep_bytes: int | None = None
    """The store is not to grow beyond it."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides those of loopback by which a browser may call it."""
    page: str = ""
    """Where a proxy makes it known; empty: at its own address."""
    is_loopback: bool = True
    """Only this machine reaches it."""
    is_reading_open: bool = True
    """Whoever reaches it may look on without the token."""

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls_cert is not None

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        if self.page:
            return self.page.rstrip("/")
        name = self.allowed_hosts[0] if self.allowed_hosts else self.host
        if name in ("0.0.0.0", "::"):
            name = platform.node()
        shown = f"[{name}]" if ":" in name else name
        return f"{'https' if self.is_tls else 'http'}://{shown}:{self.port}"

    def __repr__(self) -> str:  # The token, and passwords in addresses, are to reach no log.
        return f"Settings({self.url})"
