"""A real server for a real browser, and guards that send to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import uvicorn
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

from helpers import wait_until
from holdfast.serve.store import Store
from holdfast.serve.web.app import make_app
from holdfast.serve.web.server import configure
from holdfast.serve.web.settings import Settings
from roomruns import Scribe

TOKEN = "a-token-for-browsers-long-enough"
PATIENCE_MS = 30_000


class Room:
    """A server, its store, and a browser's page that looks at it."""

    def __init__(self, store: Store, context: BrowserContext) -> None:
        self.store = store
        self.context = context
        self.url = ""
        self.port = 0
        self.forgiven: list[str] = []
        """Parts of messages on the console that a test expects."""
        self._told: list[str] = []
        self.page = self.watch(context.new_page())

    def watch(self, page: Page) -> Page:
        """Take note of what a page complains about."""
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._told.append(f"error: {error}"))
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._told.append(f"{message.type}: {message.text}")

    @property
    def complaints(self) -> list[str]:
        """What the console said that nobody expected; violations of the content policy are among it."""
        return [words for words in self._told if not any(part in words for part in self.forgiven)]

    def open(self, path: str) -> Page:
        """Show a page."""
        self.page.goto(self.url + path)
        return self.page

    def post(self, scribe: Scribe) -> None:
        """Send what a run has to say, as its guards do."""
        for shipment in scribe.shipments():
            answer = httpx.post(
                f"{self.url}/api/v1/shipments",
                content=msgspec.json.encode(shipment),
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
                timeout=60,
            )
            assert answer.status_code == 200, answer.text

    def take(self, scribe: Scribe, *, heard_s_ago: float = 0.0) -> None:
        """Put what a run has to say into the store, as heard some time ago."""
        heard_at = datetime.now(UTC) - timedelta(seconds=heard_s_ago)
        self.store.take(scribe.shipments(), heard_at=heard_at)

    def sign_in(self, name: str = "Ada") -> None:
        """Show the token."""
        page = self.open("/sign-in")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_label("Your name").fill(name)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.get_by_role("button", name="sign out").wait_for()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Serve until the block ends; again on the same port, where it was served before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        settings = Settings(token=TOKEN, port=self.port)
        server: uvicorn.Server
        app = make_app(self.store, settings, is_ending=lambda: server.should_exit)
        server = uvicorn.Server(configure(app, settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive(), "the server")
            yield
        finally:
            server.should_exit = True
            thread.join()
            listener.close()
