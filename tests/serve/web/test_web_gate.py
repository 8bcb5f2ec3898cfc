"""Who may do what: tokens, sessions, hosts, forms, and what every answer carries."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from holdfast.serve.store import Store
from holdfast.serve.web.forms import safe_next
from holdfast.serve.web.gate import Tokens
from holdfast.serve.web.headers import host_name, known_hosts
from holdfast.serve.web.intake import is_good_key
from holdfast.serve.web.sessions import Sessions
from holdfast.serve.web.settings import Settings
from holdfast.serve.web.trouble import answer_failure
from holdfast.serve.web.views import failures
from webparts import TOKEN, Running, make_shipment, running, ship

_READING = ["/", "/api/v1/runs", "/api/v1/runs/k", "/api/v1/live", "/metrics", "/nowhere"]


@pytest.fixture
def closed(store: Store) -> Iterator[Running]:
    """A server that others can reach: reading needs the token, too."""
    with running(store, is_loopback=False, is_reading_open=False) as started:
        yield started


def sign_in(client: httpx.Client, url: str, token: str = TOKEN, **fields: str) -> httpx.Response:
    """Sign in as a browser would."""
    return client.post("/sign-in", data={"token": token} | fields, headers={"Origin": url})


def order(client: httpx.Client, **headers: str) -> httpx.Response:
    """Ask for a profile, as the page's script would."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/api/v1/runs/k/orders", json={"kind": "profile"}, headers=named)


def test_without_the_token_nothing_can_be_changed(stranger: httpx.Client, server: Running) -> None:
    """On loopback everybody may read, and that is all."""
    assert stranger.get("/api/v1/runs").status_code == 200
    assert ship(stranger, make_shipment()).status_code == 401
    assert order(stranger).status_code == 401
    assert order(stranger, Origin=server.url).status_code == 401
    assert stranger.post("/sign-out").status_code == 401
    assert stranger.delete("/api/v1/runs/k").status_code == 401
    assert server.context.store.runs() == []


@pytest.mark.parametrize("path", _READING)
def test_beyond_loopback_nothing_can_be_read_without_the_token(store: Store, path: str) -> None:
    """Neither what is there nor what is not."""
    with running(store, is_loopback=False, is_reading_open=False) as closed, closed.client() as client:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.head(path).status_code == 401


def test_a_browser_is_sent_to_sign_in_and_back(closed: Running) -> None:
    """A page that needs a session says where to get one."""
    with closed.client(headers={"Accept": "text/html"}) as browser:
        sent = browser.get("/runs/k?a=b")
        assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=/runs/k")
        assert browser.get("/sign-in").status_code == 200
        back = sign_in(browser, closed.url, next="/runs/k")
        assert (back.status_code, back.headers["location"]) == (303, "/runs/k")
        assert browser.get("/api/v1/runs").status_code == 200


def test_the_token_opens_everything(closed: Running) -> None:
    """Programs show it with every request."""
    with closed.client(token=TOKEN) as client:
        assert ship(client, make_shipment()).status_code == 200
        assert client.get("/api/v1/runs/k").status_code == 200
        assert order(client).status_code == 201


def test_health_is_open_and_says_little(closed: Running) -> None:
    """Whoever keeps the server running has no token."""
    with closed.client() as client:
        assert client.get("/healthz").text == "ok\n"


def test_the_session_cookie_is_for_this_server_and_no_script(server: Running) -> None:
    """HttpOnly, SameSite=Strict, no lifetime beyond the browser's."""
    with server.client() as browser:
        cookie = sign_in(browser, server.url).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "domain" not in cookie


def test_under_tls_the_cookie_is_secure(store: Store, tmp_path: Any) -> None:
    """Its name says that no other host can have set it."""
    with running(store, tls_cert=tmp_path / "cert.pem") as server, server.client() as browser:
        cookie = sign_in(browser, server.url).headers["set-cookie"]
    assert cookie.startswith("__Host-holdfast=")
    assert "Secure" in cookie


def test_a_session_gives_orders_from_our_own_page_only(guard: httpx.Client, server: Running) -> None:
    """Another site can make a browser send requests, but not with the form token, nor from our origin."""
    ship(guard, make_shipment())
    with server.client() as browser:
        sign_in(browser, server.url, name="Ada")
        (session,) = server.context.sessions._sessions.values()
        right = {"X_Form_Token": session.form_token}
        assert order(browser, **right).status_code == 403
        assert order(browser, Origin="http://evil.example", **right).status_code == 403
        assert order(browser, Origin="null", **right).status_code == 403
        assert order(browser, Sec_Fetch_Site="cross-site", Origin=server.url, **right).status_code == 403
        assert order(browser, Sec_Fetch_Site="same-site", **right).status_code == 403
        assert order(browser, Origin=server.url).status_code == 403
        assert order(browser, Origin=server.url, X_Form_Token="wrong").status_code == 403
        assert server.context.store.all_orders("k") == []
        assert order(browser, Origin=server.url, **right).json()["who"] == "Ada"
        form = {"kind": "act", "words": "S2", "form_token": session.form_token, "next": "//evil.example"}
        sent = browser.post("/api/v1/runs/k/orders", data=form, headers={"Sec-Fetch-Site": "same-origin"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/")
        assert ship(browser, make_shipment()).status_code == 401


def test_signing_out_ends_the_session(server: Running) -> None:
    """The cookie is worth nothing afterwards."""
    with server.client() as browser:
        sign_in(browser, server.url)
        (session,) = server.context.sessions._sessions.values()
        cookies = dict(browser.cookies)
        form = {"form_token": session.form_token}
        assert browser.post("/sign-out", data=form, headers={"Origin": server.url}).status_code == 303
        browser.cookies.update(cookies)
        assert order(browser, Origin=server.url, X_Form_Token=session.form_token).status_code == 401


def test_a_page_elsewhere_cannot_sign_a_browser_in(server: Running) -> None:
    """Or a person would act in somebody else's name."""
    with server.client() as browser:
        assert sign_in(browser, "http://evil.example").status_code == 403


def test_wrong_tokens_are_refused_and_then_have_to_wait(store: Store, caplog: Any) -> None:
    """The right one passes all the same; the log has no token in it."""
    caplog.set_level(logging.INFO)
    with running(store) as server, server.client() as client:
        codes = [sign_in(client, server.url, "wrong-" + TOKEN).status_code for _ in range(10)]
        assert codes == [401] * 10
        late = sign_in(client, server.url, "wrong-" + TOKEN)
        assert (late.status_code, 0 < int(late.headers["retry-after"]) <= 61) == (429, True)
        assert sign_in(client, server.url).status_code == 303
        assert client.get("/api/v1/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert TOKEN not in caplog.text


def test_failures_are_forgotten_after_a_minute_and_count_for_their_address_only() -> None:
    """Who did nothing wrong does not wait."""
    now_s = 0.0
    tokens = Tokens(TOKEN, now=lambda: now_s)
    for _ in range(300):
        with pytest.raises(HTTPException) as caught:
            tokens.check("wrong", "a")
        assert caught.value.status_code == 401
    tokens.check(TOKEN, "a")
    for address, is_typed, code in (("a", False, 429), ("b", False, 401), ("a", True, 401)):
        with pytest.raises(HTTPException) as caught:
            tokens.check("wrong", address, is_typed=is_typed)
        assert caught.value.status_code == code
    now_s = 60.0
    with pytest.raises(HTTPException) as caught:
        tokens.check("wrong", "a")
    assert caught.value.status_code == 401


def test_sessions_end_by_themselves() -> None:
    """After half a day a person signs in again."""
    now_s = 0.0
    sessions = Sessions(now=lambda: now_s)
    session = sessions.begin("Ada")
    now_s = 12 * 3600 - 1.0
    assert sessions.find(session.session_id) == session
    now_s += 2.0
    assert sessions.find(session.session_id) is None


@pytest.mark.parametrize("kind", ["Basic abc", "Bearer", "Bearer wrong", "x" * 5000])
def test_other_authorizations_are_refused(picky: httpx.Client, kind: str) -> None:
    """Even where reading is open: who shows something wrong should learn it."""
    assert picky.get("/api/v1/runs", headers={"Authorization": kind}).status_code == 401


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:8417", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost/static/", 400),
        ("localhost@evil.example", 400),
        ("a b", 400),
    ],
)
def test_on_loopback_only_names_of_loopback_are_answered(picky: httpx.Client, host: str, code: int) -> None:
    """A name of another site that leads here (DNS rebinding) gets nothing."""
    assert picky.get("/healthz", headers={"Host": host}).status_code == code


def test_a_host_header_cannot_pretend_to_be_a_path(store: Store) -> None:
    """What is open is told by the path of the request, and by nothing else."""
    with running(store, is_loopback=False, is_reading_open=False) as server, server.client() as client:
        assert client.get("/api/v1/runs", headers={"Host": "x/static/y?"}).status_code == 400
        assert client.get("//static/../api/v1/runs").status_code in (401, 404)
        assert client.get("/static/../api/v1/runs").status_code in (401, 404)
        assert client.get("/static/%2e%2e/api/v1/runs").status_code == 404


def test_two_host_headers_are_refused(picky: httpx.Client) -> None:
    """Nobody can tell which one a proxy believed."""
    port = picky.base_url.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("GET", "/healthz", skip_host=True)
    connection.putheader("Host", "localhost")
    connection.putheader("Host", "evil.example")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_hosts_are_known_by_the_settings() -> None:
    """Beyond loopback any name will do, as a token is needed for everything."""
    assert host_name("Example.org:80") == "example.org"
    assert host_name("[::1]") == "::1"
    assert known_hosts(Settings(token=TOKEN, is_loopback=False, host="0.0.0.0")) is None
    allowed = known_hosts(Settings(token=TOKEN, allowed_hosts=("Holdfast.example",)))
    assert allowed == frozenset({"localhost", "127.0.0.1", "::1", "holdfast.example"})


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/runs", "/nowhere", "/api/v1/runs/none", "/metrics"])
def test_every_answer_carries_what_keeps_browsers_safe(picky: httpx.Client, path: str) -> None:
    """No inline scripts, no frames, no guessing of types, no copies."""
    headers = picky.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_long_addresses_and_headers_are_refused(picky: httpx.Client) -> None:
    """Neither is read to its end."""
    assert picky.get("/api/v1/runs/" + "a" * 3000).status_code == 414
    assert picky.get("/api/v1/runs?text=" + "a" * 5000).status_code == 414


def test_a_bug_shows_nothing_and_is_logged_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets one line without details, the log the traceback without the query."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a detail")

    with running(store) as server, server.client() as client, monkeypatch.context() as patch:
        patch.setattr(store, "runs", fail)
        answer = client.get("/api/v1/runs?text=private")
    assert (answer.status_code, "detail" in answer.text) == (500, False)
    assert "default-src" in answer.headers["content-security-policy"]
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "GET /api/v1/runs failed"
    assert "private" not in caplog.text


def test_an_error_page_that_fails_is_answered_in_words(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser gets a line then."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a detail")

    browser = {"Accept": "text/html"}
    with running(store) as server, server.client(headers=browser) as client, monkeypatch.context() as patch:
        patch.setattr(failures, "error_page", fail)
        patch.setattr(store, "runs", fail)
        answer = client.get("/")
    assert (answer.status_code, "detail" in answer.text, answer.text.count("\n")) == (500, False, 1)


def test_a_caller_cannot_write_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What it chose is shown in one line."""
    scope = {"type": "http", "method": "GET", "path": "/x\nholdfast: all is well", "headers": []}
    assert answer_failure(Request(scope), RuntimeError("a bug")).status_code == 500
    assert caplog.records[0].getMessage() == "GET /x?holdfast: all is well failed"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("/runs/k", "/runs/k"),
        ("//evil", "/"),
        ("/\\evil", "/"),
        ("http://evil", "/"),
        ("/\nevil", "/"),
        ("", "/"),
    ],
)
def test_after_a_form_a_browser_stays_here(words: str, path: str) -> None:
    """What was asked for is a path of ours, or is not followed."""
    assert safe_next(words) == path


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a\\b", " a", "a\n", "a\0", "x" * 201])
def test_keys_that_no_address_can_hold_are_not_good(key: str) -> None:
    """A run is known by its key in addresses, too."""
    assert not is_good_key(key)
    assert is_good_key("20261117-run.of_ünïcode")


def test_settings_do_not_tell_the_token() -> None:
    """Not even to a log that shows everything."""
    assert TOKEN not in repr(Settings(token=TOKEN))
