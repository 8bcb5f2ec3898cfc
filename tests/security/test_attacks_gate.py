"""Tokens, sessions and other sites: whoever is not let in changes nothing, and who is cannot be kept out."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from attackparts import JSON, TOKEN, Attacked, attacked, codes, hear, make_shipment, ship
from helpers import wait_until
from holdfast.serve.store import Store
from holdfast.serve.web import forms, gate
from holdfast.serve.web.app import make_app
from holdfast.serve.web.settings import Settings

pytestmark = pytest.mark.processes

_HOST = b"Host: localhost\r\n"


@pytest.fixture
def stranger(server: Attacked) -> Iterator[httpx.Client]:
    """Somebody without the token."""
    with server.client(token=None) as client:
        yield client


@pytest.fixture(scope="module")
def guard(server: Attacked) -> Iterator[httpx.Client]:
    """Somebody with it."""
    with server.client() as client:
        assert ship(client, make_shipment("k")).status_code == 200
        yield client


def _sign_in(client: httpx.Client, server: Attacked, **fields: str) -> httpx.Response:
    form = {"token": TOKEN, "name": "Ada"} | fields
    return client.post("/sign-in", data=form, headers={"Origin": server.url})


def _form_token(client: httpx.Client) -> str:
    page = client.get("/runs/k", headers={"Accept": "text/html"}).text
    return str(re.findall(r'name="form_token" value="([^"]+)"', page)[0])


# --- the token ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        b"Bearer ",
        b"Bearer",
        b"",
        b"Bearer \xe9\xff\x80",
        b"Bearer " + TOKEN.encode()[:-1],
        b"Bearer " + TOKEN.encode() + b"x",
        b"Bearer " + TOKEN.encode() + b", Bearer x",
        b"Bearer " + TOKEN.upper().encode(),
        b"Bearer " + b"x" * 12_000,
        b"Basic " + TOKEN.encode(),
        b"Token " + TOKEN.encode(),
        TOKEN.encode(),
        b"Bearer " + TOKEN.encode() + b"\r\nAuthorization: Bearer wrong-wrong-wrong",
        b"Bearer wrong-wrong-wrong\r\nAuthorization: Bearer " + TOKEN.encode(),
    ],
)
def test_what_is_not_the_token_is_refused(server: Attacked, shown: bytes) -> None:
    """Also one that is nearly it, and two at a time."""
    head = b"GET /api/v1/runs HTTP/1.1\r\n" + _HOST + b"Authorization: " + shown + b"\r\n\r\n"
    reply = server.say(head)
    assert codes(reply) == [401]
    assert TOKEN.encode() not in reply


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "HOLDFAST_TOKEN", "key"])
def test_a_token_in_the_address_or_a_cookie_opens_nothing(stranger: httpx.Client, name: str) -> None:
    """Addresses end up in logs and histories."""
    assert stranger.get("/api/v1/runs", params={name: TOKEN}).status_code == 401
    assert stranger.get("/api/v1/runs", headers={"Cookie": f"{name}={TOKEN}"}).status_code == 401
    assert stranger.post("/sign-in", params={name: TOKEN}, data={"name": "x"}).status_code == 401


def test_tokens_are_compared_as_digests_of_one_length() -> None:
    """How long a comparison takes tells neither how much was right nor how long the token is."""
    source = ast.parse(textwrap.dedent(inspect.getsource(gate.Tokens.check)))
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call)]
    (compared,) = [node for node in calls if ast.unparse(node.func) == "hmac.compare_digest"]
    assert [ast.unparse(each) for each in compared.args] == ["_digest(shown)", "self._token"]
    assert {len(gate._digest(token)) for token in ("", "x", TOKEN, "\ud800" * 10_000)} == {32}
    equals = [node for node in ast.walk(source) if isinstance(node, ast.Compare)]
    assert not [node for node in equals if "shown" in ast.unparse(node)]
    assert "hmac.compare_digest" in inspect.getsource(forms.check_form_token)


def test_who_guesses_does_not_lock_out_who_knows(server: Attacked, guard: httpx.Client) -> None:
    """They may have one address, as all users of a machine have."""
    with server.client(token=None) as guessing:
        seen = [
            guessing.post("/sign-in", data={"token": f"guess {number}"}).status_code for number in range(20)
        ]
        assert (set(seen), seen[-1]) == ({401, 429}, 429)
    assert guard.get("/api/v1/runs").status_code == 200
    with server.client(token=None) as browser:
        assert _sign_in(browser, server).status_code == 303
    assert server.said().count("a wrong token") <= 2


def test_the_token_is_in_no_answer_log_metric_or_command_line(server: Attacked, guard: httpx.Client) -> None:
    """Also where something fails."""
    for path in ("/", "/metrics", "/runs/k", "/nowhere", "/sign-in", "/api/v1/runs", "/api/v1/openapi.json"):
        answer = guard.get(path, headers={"Accept": "text/html"})
        assert TOKEN not in answer.text + str(answer.headers)
    assert TOKEN not in guard.post("/api/v1/shipments", content=TOKEN, headers=JSON).text
    assert TOKEN not in guard.post("/sign-in", data={"token": f"{TOKEN}x"}).text
    assert TOKEN not in server.said()
    assert TOKEN.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


_SHOW = """
import os, pathlib, sys
print(dict(os.environ))
for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        words = file.read_bytes().decode(errors="replace").replace(chr(0), " ")
    except OSError:
        continue
    if "holdfast" in words:
        print(words)
"""


def test_the_token_of_a_guard_is_on_no_command_line_and_not_passed_on(tmp_path: Path) -> None:
    """Its own children, and the workers of its job, do not know it."""
    script = tmp_path / "job.py"
    script.write_text(_SHOW)
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "holdfast.cli", "run", "--server", "http://127.0.0.1:9"),
            *("--run-dir", str(tmp_path / "run"), str(script)),
        ],
        env=env | {"HOLDFAST_TOKEN": TOKEN},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    written = "".join(file.read_text(errors="replace") for file in _files(tmp_path / "run"))
    assert "holdfast.guard" in written
    assert TOKEN not in written + done.stdout + done.stderr


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


# --- sessions -----------------------------------------------------------------------------------


def test_a_session_cannot_be_fixed_from_outside(server: Attacked, guard: httpx.Client) -> None:
    """A cookie that somebody else set is not taken over; after signing in, it is another one."""
    name = f"holdfast-{server.port}"
    with server.client(token=None) as browser:
        browser.cookies.set(name, "chosen-by-somebody-else", domain="127.0.0.1")
        cookie = _sign_in(browser, server).headers["set-cookie"]
        assert "chosen" not in cookie
        assert {"httponly", "samesite=strict", "path=/"} <= {
            part.strip().lower() for part in cookie.split(";")
        }
        first = browser.cookies.get(name, domain="") or re.findall(r"=([^;]+)", cookie)[0]
        again = _sign_in(browser, server).headers["set-cookie"]
        assert first not in again
    with server.client(token=None) as other:
        other.cookies.set(name, "chosen-by-somebody-else", domain="127.0.0.1")
        assert other.get("/api/v1/runs").status_code == 401


def test_after_signing_out_the_cookie_is_worth_nothing(server: Attacked, guard: httpx.Client) -> None:
    """Neither for reading, nor for orders; and the form token of one session is not that of another."""
    with server.client(token=None) as browser, server.client(token=None) as other:
        _sign_in(browser, server)
        _sign_in(other, server)
        token, cookie = _form_token(browser), browser.cookies.jar
        kept = "; ".join(f"{each.name}={each.value}" for each in cookie)
        assert (
            other.post("/sign-out", data={"form_token": token}, headers={"Origin": server.url}).status_code
            == 403
        )
        assert (
            browser.post("/sign-out", data={"form_token": token}, headers={"Origin": server.url}).status_code
            == 303
        )
        replayed = {"Cookie": kept, "Origin": server.url, "X-Form-Token": token}
        assert other.get("/api/v1/runs").status_code == 200
        with server.client(token=None) as thief:
            assert thief.get("/api/v1/runs", headers=replayed).status_code == 401
            assert (
                thief.post("/api/v1/runs/k/orders", json={"kind": "undo"}, headers=replayed).status_code
                == 401
            )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:9"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {},
    ],
)
def test_another_site_cannot_use_a_session(
    server: Attacked, guard: httpx.Client, headers: dict[str, str]
) -> None:
    """Neither with the form token, should it have it, nor by signing somebody in or out."""
    with server.client(token=None) as browser:
        _sign_in(browser, server)
        token = _form_token(browser)
        form = {"kind": "profile", "form_token": token}
        assert browser.post("/api/v1/runs/k/orders", data=form, headers=headers).status_code == 403
        assert browser.post("/sign-out", data=form, headers=headers).status_code == 403
        if headers:
            assert browser.post("/sign-in", data={"token": TOKEN}, headers=headers).status_code == 403
        assert browser.post("/api/v1/shipments", content=b"{}", headers=headers | JSON).status_code == 401
    assert guard.get("/api/v1/runs/k/orders").json() == {"orders": []}


def test_our_own_page_without_its_form_token_changes_nothing(server: Attacked, guard: httpx.Client) -> None:
    """Empty, wrong, and in the address."""
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    with server.client(token=None) as browser:
        _sign_in(browser, server)
        token = _form_token(browser)
        for form in ({}, {"form_token": ""}, {"form_token": "\u00e9" * 43}, {"form_token": token[:-1]}):
            answer = browser.post("/api/v1/runs/k/orders", data={"kind": "undo"} | form, headers=own)
            assert answer.status_code == 403
        params = {"form_token": token}
        sent = browser.post("/api/v1/runs/k/orders", params=params, data={"kind": "undo"}, headers=own)
        assert sent.status_code == 403
    assert guard.get("/api/v1/runs/k/orders").json() == {"orders": []}


def test_no_get_changes_anything(tmp_path: Path, guard: httpx.Client) -> None:
    """All that changes something is a POST, of which there are four."""
    store = Store.open(str(tmp_path / "store.sqlite"))
    try:
        app = make_app(store, Settings(token=TOKEN))
    finally:
        store.close()
    routes = [route for route in app.routes if isinstance(route, Route)]
    changing = {route.path for route in routes if not {"GET", "HEAD"} >= (route.methods or set())}
    assert changing == {"/api/v1/shipments", "/api/v1/runs/{key}/orders", "/sign-in", "/sign-out"}
    for path in ("/api/v1/runs/k/orders?kind=undo", "/sign-out", "/api/v1/shipments", "/sign-in?token=x"):
        for override in ({}, {"X-HTTP-Method-Override": "POST"}):
            guard.get(path, headers=override)
    assert guard.get("/api/v1/runs/k/orders").json() == {"orders": []}


@pytest.mark.parametrize(
    "words",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil",
        "/\tevil",
        "javascript:x",
        "/x\r\nA: b",
    ],
)
def test_signing_in_leads_nowhere_else(server: Attacked, words: str) -> None:
    """A link with an address in it cannot use the page to look trustworthy."""
    with server.client(token=None) as browser:
        assert _sign_in(browser, server, next=words).headers["location"] == "/"
        page = browser.get("/sign-in", params={"next": words}).text
        assert "evil" not in "".join(re.findall(r'(?:href|action|value)="([^"]*)"', page))


def test_answers_are_kept_by_nobody(guard: httpx.Client, stranger: httpx.Client) -> None:
    """What one person may see is in no cache for the next."""
    for path in ("/", "/runs/k", "/api/v1/runs", "/metrics", "/sign-in", "/nowhere"):
        for client in (guard, stranger):
            headers = client.get(path, headers={"Accept": "text/html"}).headers
            assert headers["cache-control"] == "no-store", path
            assert "access-control-allow-origin" not in headers


def test_forged_shipments_are_not_taken_and_keys_are_not_guarded(
    server: Attacked, guard: httpx.Client
) -> None:
    """Who has no token adds nothing; who has it may add to any run, and take nothing away from it."""
    with server.client(token=None) as stranger:
        assert ship(stranger, make_shipment("k", name="forged")).status_code == 401
    before = guard.get("/api/v1/runs/k/events").json()["events"]
    assert ship(guard, make_shipment("k", name="renamed", host="elsewhere")).json()["taken"] == 0
    assert guard.get("/api/v1/runs/k/events").json()["events"] == before


# --- TLS ----------------------------------------------------------------------------------------


def test_under_tls_plain_words_are_refused_cleanly(tmp_path: Path) -> None:
    """Nothing is answered to who speaks plainly, nothing is said of it, and others are served."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    command = ["openssl", "req", "-x509", "-nodes", "-days", "1", *made, *subject]
    subprocess.run(command, check=True, capture_output=True)
    with attacked(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        for words in (b"GET /healthz HTTP/1.1\r\n" + _HOST + b"\r\n", b"\0" * 300, b"\x16\x03\x01\xff\xff"):
            with server.connect() as connection, contextlib.suppress(OSError):
                connection.sendall(words)
                connection.shutdown(socket.SHUT_WR)
                assert b"HTTP" not in hear(connection)
        with httpx.Client(base_url=server.url, verify=_trust(cert), timeout=60) as client:
            assert client.get("/healthz").text == "ok\n"
            cookie = client.post("/sign-in", data={"token": TOKEN}).headers["set-cookie"]
            assert (cookie.startswith("__Host-"), "Secure" in cookie) == (True, True)
        wait_until(lambda: server.process.poll() is None, "the server")
        assert "Traceback" not in server.said()


def _trust(cert: Path) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(cert))
