"""A PostgreSQL of one's own in a temporary folder, on a Unix socket: no port, and nothing stays behind."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60.0
PASSWORD = "a-word-that-nobody-must-see"
_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def why_no_postgres() -> str | None:
    """Return what is missing for one, None where nothing is."""
    if _binary("postgres") is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and "postgres" not in {user.pw_name for user in pwd.getpwall()}:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


class Postgres:
    """A server and its one database."""

    def __init__(self, folder: Path, *, is_durable: bool = True) -> None:
        self._is_durable = is_durable
        self._log = folder / "postgres.log"
        # Not in the folder: the path of a socket must be short, and where PostgreSQL is another user, pytest
        # shuts him out of all its folders whenever it starts anew.
        self._socket = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._data = self._socket / "data"
        self._process: subprocess.Popen[bytes] | None = None
        secret = self._socket / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(self._socket, "postgres", "postgres")
            shutil.chown(secret, "postgres", "postgres")
        _run("initdb", "-D", self._data, "-U", "holdfast", "-A", "scram-sha-256", f"--pwfile={secret}", "-N")
        self.start()
        self.sql("CREATE DATABASE holdfast", database="postgres")

    @property
    def url(self) -> str:
        """Of the database that is there from the start."""
        return self.url_of("holdfast")

    def url_of(self, database: str) -> str:
        """Return the address of a database, with the password in it."""
        return f"postgresql://holdfast:{PASSWORD}@/{database}?host={self._socket}"

    def make_schema(self, name: str) -> str:
        """Make an empty corner of the database; return the address that leads there."""
        self.sql(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def sql(self, statement: str, *, database: str = "holdfast") -> None:
        """Do something as its owner."""
        import psycopg

        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self._process is None
        options = [f"unix_socket_directories={self._socket}", "listen_addresses=", "shared_buffers=32MB"]
        options += [] if self._is_durable else ["fsync=off"]
        command = _command(
            "postgres", "-D", self._data, *(word for option in options for word in ("-c", option))
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once; connections are cut."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # A fast shutdown, in PostgreSQL's words.
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise
            finally:
                self._process = None

    def close(self) -> None:
        """Stop it and leave nothing behind but its log."""
        self.stop()
        shutil.rmtree(self._socket, ignore_errors=True)

    def _answers(self) -> bool:
        asked = _command("pg_isready", "-h", self._socket, "-U", "holdfast", "-d", "postgres", "-q")
        return subprocess.run(asked, check=False).returncode == 0


@contextmanager
def start_postgres(folder: Path, *, is_durable: bool = True) -> Iterator[Postgres]:
    """Start one that lasts as long as the block; its log is left in the folder.

    Not durable, it is quicker: it survives the death of its clients and its own end, not that of the machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Postgres(folder, is_durable=is_durable)
    try:
        yield server
    finally:
        server.close()


def _binary(name: str) -> Path | None:
    return _BINARIES[-1].with_name(name) if _BINARIES else None


def _command(name: str, *words: str | Path) -> list[str]:
    drop = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]
    return [*(drop if os.geteuid() == 0 else []), str(_binary(name)), *map(str, words)]


def _run(name: str, *words: str | Path) -> None:
    done = subprocess.run(_command(name, *words), check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}"
