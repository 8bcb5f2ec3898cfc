"""``holdfast serve``: from what a person typed to a server that listens, and back to an end without noise."""

from __future__ import annotations

import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn
from starlette.types import ASGIApp

from holdfast.errors import InputError
from holdfast.serve.notify.posting import read_webhook
from holdfast.serve.store import Store
from holdfast.serve.web.app import make_app
from holdfast.serve.web.connection import Connection
from holdfast.serve.web.headers import host_name
from holdfast.serve.web.secret import keep_token, read_token
from holdfast.serve.web.settings import STATE, Settings
from holdfast.serve.web.trouble import Seldom

_MOST_CONNECTIONS = 5000
_MOST_HEADER_BYTES = 16 << 10
_DAY_S = 86400.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed, before anything is checked."""

    runs: Path
    host: str
    port: int
    store: str | None = None
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: Sequence[str] = ()
    webhook_file: Path | None = None
    keep_days: float | None = None
    keep_gb: float | None = None


def serve(request: Request, environment: Mapping[str, str]) -> None:
    """Serve until somebody ends it."""
    listener = listen(request.host, request.port)
    try:
        settings, token_file = settle(request, environment, listener)
        _check_tls(settings)
        store = Store.open(settings.store_url)
        try:
            _log_to_stderr()
            _raise_file_limit()
            _run(store, settings, listener, token_file)
        finally:
            store.close()
    finally:
        listener.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that others cannot take any more."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"--host is {host!r}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return listener


def settle(
    request: Request, environment: Mapping[str, str], listener: socket.socket
) -> tuple[Settings, Path | None]:
    """Return how the server is set up, and where its token lies if it made one itself."""
    address, port = listener.getsockname()[:2]
    is_loopback = ipaddress.ip_address(address).is_loopback
    given = read_token(request.token_file, environment)
    if given is None and not is_loopback:
        raise InputError(
            f"--host {request.host} is reached by others, and there is no token: "
            "give --token-file or HOLDFAST_TOKEN"
        )
    if (request.tls_cert is None) != (request.tls_key is None):
        raise InputError("--tls-cert and --tls-key go together")
    state = make_state(request.runs)
    token_file = state / "token" if given is None else None
    settings = Settings(
        token=given if given is not None else keep_token(state / "token"),
        host=request.host,
        port=port,
        runs=request.runs,
        store_url=request.store or str(state / "store.sqlite"),
        tls_cert=request.tls_cert,
        tls_key=request.tls_key,
        webhook_url=read_webhook(request.webhook_file, environment),
        keep_age_s=request.keep_days * _DAY_S if request.keep_days is not None else None,
        keep_bytes=int(request.keep_gb * 1e9) if request.keep_gb is not None else None,
        allowed_hosts=tuple(host_of(host) for host in request.allowed_hosts),
        page=next((host for host in request.allowed_hosts if "://" in host), ""),
        is_loopback=is_loopback,
        # A name of its own means that something in front of it lets others in.
        is_reading_open=is_loopback and given is None and not request.allowed_hosts,
    )
    return settings, token_file


def host_of(words: str) -> str:
    """Return the name of ``holdfast.example`` or ``https://holdfast.example:444``."""
    name = host_name(words.rpartition("://")[2].partition("/")[0])
    if not name:
        raise InputError(f"--allow-host is {words!r}, expected such as https://holdfast.example")
    return name


def make_state(runs: Path) -> Path:
    """Return the folder of what the server keeps for itself; only its owner may look into it."""
    if (runs / "events.jsonl").exists():
        raise InputError(f"{runs} is a run directory; give the folder that it lies in")
    if runs.exists() and not runs.is_dir():
        raise InputError(f"{runs}: is a file, expected a folder of run directories")
    state = runs / STATE
    try:
        runs.mkdir(parents=True, exist_ok=True)
        state.mkdir(mode=0o700, exist_ok=True)
        found = state.stat()
    except OSError as error:
        raise InputError(f"{state}: cannot be made: {error.strerror}") from None
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        # The store would be theirs to change, and with it what runs are told to do.
        raise InputError(f"{state}: others own it, or can write there; remove it, and another is made")
    return state


def _check_tls(settings: Settings) -> None:
    """Refuse files that are no certificate and key, before anything is started."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # Also what ssl says of them.
        raise InputError(f"--tls-cert {settings.tls_cert}, --tls-key {settings.tls_key}: {error}") from None


def _run(store: Store, settings: Settings, listener: socket.socket, token_file: Path | None) -> None:
    server: uvicorn.Server
    app = make_app(store, settings, is_ending=lambda: server.should_exit)
    server = _Announcing(configure(app, settings), _tell(settings, token_file))

    def end(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    # Uvicorn raises what ended it once more afterwards; to be ended is what a server is for, and no failure.
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not server.started:
        raise InputError("the server could not be started; see above")


def configure(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn is to serve it; it writes no log of who asked for what."""
    return uvicorn.Config(
        app,
        lifespan="on",
        http=Connection,  # Of h11, whose headers have a bound.
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.allowed_hosts),
        limit_concurrency=most_connections(),
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_graceful_shutdown=5,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


class _Announcing(uvicorn.Server):
    """Says where it is once it can be reached."""

    def __init__(self, config: uvicorn.Config, words: str) -> None:
        super().__init__(config)
        self._words = words

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(self._words)
            sys.stdout.flush()


def _tell(settings: Settings, token_file: Path | None) -> str:
    lines = [f"holdfast serves {settings.runs} at {settings.url}"]
    if token_file is not None:
        lines.append(f"the token for signing in and for guards is in {token_file}")
    if not settings.is_loopback and not settings.is_tls:
        lines.append("without --tls-cert, whoever is on the way can read the token")
    return "".join(f"{line}\n" for line in lines)


def most_connections() -> int:
    """Return how many connections there may be, so that descriptors are left for the store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(64, min(_MOST_CONNECTIONS, soft - 200))


def _raise_file_limit() -> None:
    """Have room for all connections that are let in, and for the store's files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + 500
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(Seldom())
    handler.setFormatter(logging.Formatter("holdfast: %(message)s"))
    for name, level in (("holdfast.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        log = logging.getLogger(name)
        log.setLevel(level)
        log.addHandler(handler)
        log.propagate = False
