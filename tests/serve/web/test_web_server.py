"""``holdfast serve`` as a process: what it says, what it refuses, and what is left when it is killed."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from clicalls import call
from helpers import run_python, wait_until
from holdfast.errors import InputError
from holdfast.serve.web.headers import known_hosts
from holdfast.serve.web.secret import keep_token, read_token
from holdfast.serve.web.server import Request, listen, settle
from holdfast.serve.web.settings import Settings
from holdfast.values import StepSeen
from webparts import BEGIN, TOKEN, make_line, make_shipment, make_summary, ship

pytestmark = pytest.mark.processes


class Process:
    """A server of its own, as a person starts it."""

    def __init__(self, folder: Path, *flags: str, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.errors = folder / "stderr"
        self._output = folder / "stdout"
        with self._output.open("wb") as out, self.errors.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", "serve", "runs", *flags],
                cwd=folder,
                env=_clean() | dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        deadline_s = time.monotonic() + 120.0
        while not (found := re.search(r" at (https?://\S+)\n", self._output.read_text())):
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline_s, "the server did not say where it is"
            time.sleep(0.02)
        self.url = found[1]

    def said(self) -> str:
        """Return what it printed."""
        return self._output.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Serve until the block ends."""
    server = Process(folder, *(flags or ("--port", "0")), env=env or {})
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


def test_a_person_on_one_machine_needs_no_setting_up(tmp_path: Path) -> None:
    """It follows the folder, makes a token for its owner only, takes shipments, and ends quietly."""
    run_dir = tmp_path / "runs" / "here"
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_text("{}")
    with serving(tmp_path) as server:
        file = tmp_path / "runs" / ".holdfast" / "token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert "runs/.holdfast/token" in server.said()
        token = file.read_text().strip()
        with httpx.Client(base_url=server.url, timeout=60) as client:
            _see_the_folder(client, run_dir)
            assert ship(client, make_shipment("sent")).status_code == 401
            client.headers["Authorization"] = f"Bearer {token}"
            assert ship(client, make_shipment("sent")).json()["taken"] == len(BEGIN)
            _hear_a_message(client)
        assert server.end(signal.SIGINT) == 0
        assert token not in server.said() + server.errors.read_text()
        assert "Traceback" not in server.errors.read_text()


def _see_the_folder(client: httpx.Client, run_dir: Path) -> None:
    (run_dir / "events.jsonl").write_bytes(
        b"".join(make_line(event, number) for number, event in enumerate(BEGIN))
    )
    (run_dir / "summaries.jsonl").write_bytes(msgspec.json.encode(make_summary(12)) + b"\n")

    def is_seen() -> bool:
        lines = client.get("/api/v1/runs").json()["runs"]
        return [(line["run"]["name"], line["now"]["step"]) for line in lines] == [("here", 12)]

    wait_until(is_seen, "the run of the folder")


def _hear_a_message(client: httpx.Client) -> None:
    with client.stream("GET", "/api/v1/runs/sent/live") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: changed"
        ship(client, make_shipment("sent", [StepSeen(rank=0, step=77)], first=30))
        assert any('"step":77' in line for line in lines)


def test_a_server_that_is_killed_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """Senders send again what was not answered; after that everything is there once."""
    env = {"HOLDFAST_TOKEN": TOKEN}
    sent = 60
    with serving(tmp_path, env=env) as server:
        port = server.url.rpartition(":")[2]
        acknowledged: set[int] = set()

        def send_all() -> None:
            with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                for number in range(sent):
                    while number not in acknowledged:
                        try:
                            event = StepSeen(rank=number, step=1)
                            answer = ship(client, make_shipment("k", [event], first=number))
                        except httpx.HTTPError:
                            time.sleep(0.05)
                            continue
                        if answer.status_code == 200:
                            acknowledged.add(number)

        sender = threading.Thread(target=send_all)
        sender.start()
        wait_until(lambda: len(acknowledged) >= 10, "ten that were acknowledged")
        server.end(signal.SIGKILL)
        before = set(acknowledged)
        with serving(tmp_path, "--port", port, env=env) as again:
            with httpx.Client(base_url=again.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                kept = client.get("/api/v1/runs/k/events").json()["events"]
                assert before <= {each["record"]["event"]["rank"] for each in kept}
                sender.join(120)
                kept = client.get("/api/v1/runs/k/events").json()["events"]
                assert [each["record"]["event"]["rank"] for each in kept] == list(range(sent))
            assert again.end() == 0


def test_a_server_speaks_tls(tmp_path: Path) -> None:
    """With the certificate and key that it is given."""
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *key, *subject]
    subprocess.run(command, check=True, capture_output=True)
    flags = ("--port", "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem")
    with serving(tmp_path, *flags, env={"HOLDFAST_TOKEN": TOKEN}) as server:
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with httpx.Client(base_url=server.url, verify=context, timeout=60) as client:
            assert client.get("/api/v1/runs").status_code == 401
            assert client.post("/sign-in", data={"token": TOKEN}).status_code == 303
            assert client.get("/api/v1/runs").status_code == 200


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "0.0.0.0"], "there is no token"),
        (["--token-file", "none"], "none: cannot be read"),
        (["--token-file", "short"], "at least 16"),
        (["--tls-cert", "short"], "go together"),
        (["--tls-cert", "short", "--tls-key", "short"], "--tls-cert short"),
        (["--host", "no.such.host.invalid"], "--host is"),
        (["--store", "mysql://x"], "mysql"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    words: str,
) -> None:
    """Before anything listens, with exit code 2."""
    (tmp_path / "short").write_text("short")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    assert call(["serve", "--port", "0", *flags], monkeypatch) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """One line, exit code 2."""
    script = ["import sys", "sys.modules['uvicorn'] = None", "sys.argv = ['holdfast', 'serve']"]
    done = run_python("-c", "; ".join([*script, "from holdfast.cli import main", "main()"]), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'holdfast[serve]'" in done.stderr


def _settle(tmp_path: Path, env: Mapping[str, str] | None = None, **more: Any) -> Settings:
    listener = listen("127.0.0.1", 0)
    try:
        request = Request(runs=tmp_path / "runs", host="127.0.0.1", port=0, **more)
        return settle(request, env or {}, listener)[0]
    finally:
        listener.close()


def test_reading_is_open_only_where_nobody_else_comes_in(tmp_path: Path) -> None:
    """A token of one's own, or a name that a proxy gives it, closes it."""
    assert _settle(tmp_path).is_reading_open
    assert not _settle(tmp_path, env={"HOLDFAST_TOKEN": TOKEN}).is_reading_open
    assert not _settle(tmp_path, allowed_hosts=["x.example"]).is_reading_open


def test_behind_a_proxy_it_is_known_by_its_address(tmp_path: Path) -> None:
    """Links in messages lead there, and its name may be called."""
    settings = _settle(tmp_path, allowed_hosts=["https://x.example:444/", "y.example"])
    assert settings.url == "https://x.example:444"
    assert known_hosts(settings) == frozenset({"localhost", "127.0.0.1", "::1", "x.example", "y.example"})


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """With what the system says of it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use"):
            listen("127.0.0.1", port)


def test_a_kept_token_stays_the_same_unless_others_could_read_it(tmp_path: Path) -> None:
    """Guards and pages of yesterday still have the right one."""
    file = tmp_path / "token"
    token = keep_token(file)
    assert keep_token(file) == token
    file.chmod(0o644)
    with pytest.raises(InputError, match="others could have read"):
        keep_token(file)


def test_a_token_that_could_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finds no empty file that it would have to refuse."""
    file = tmp_path / "token"

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(InputError, match="cannot be made: No space left on device"):
            keep_token(file)
    assert list(tmp_path.iterdir()) == []
    assert len(keep_token(file)) > 16
    assert [(each.name, stat.S_IMODE(each.stat().st_mode)) for each in tmp_path.iterdir()] == [
        ("token", 0o600)
    ]


@pytest.mark.root
def test_a_token_for_which_there_is_no_room_leaves_nothing(small_disk: Path) -> None:
    """Of a disk that is really full."""
    (small_disk / "full").write_bytes(b"x" * 8192)
    with pytest.raises(InputError, match="No space left on device"):
        keep_token(small_disk / "token")
    (small_disk / "full").unlink()
    assert len(keep_token(small_disk / "token")) > 16


def test_who_makes_a_token_at_the_same_time_gets_the_same(tmp_path: Path) -> None:
    """Whoever was first has made it, and nobody replaces it."""
    meeting = threading.Barrier(8)

    def keep() -> str:
        meeting.wait(20)
        return keep_token(tmp_path / "token")

    with ThreadPoolExecutor(8) as pool:
        tokens = {each.result() for each in [pool.submit(keep) for _ in range(8)]}
    assert tokens == {keep_token(tmp_path / "token")}
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_token_comes_from_its_file_before_the_environment(tmp_path: Path) -> None:
    """And is never repeated where it is wrong."""
    file = tmp_path / "file"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {"HOLDFAST_TOKEN": "x" * 20}) == TOKEN
    assert read_token(None, {"HOLDFAST_TOKEN": "x" * 20}) == "x" * 20
    assert read_token(None, {}) is None
    with pytest.raises(InputError) as caught:
        read_token(None, {"HOLDFAST_TOKEN": "a secret with blanks"})
    assert "secret" not in str(caught.value)


def test_a_run_directory_is_not_taken_for_a_folder_of_them(tmp_path: Path) -> None:
    """A slip that would otherwise show nothing at all."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.jsonl").touch()
    with pytest.raises(InputError, match="is a run directory"):
        _settle(tmp_path)
