"""A real Slurm cluster on this machine: munge, one controller, a daemon per node, and accounting if wanted.

Everything lives in one folder and on free loopback ports. All processes carry the cluster's ``SLURM_CONF``
in their environment, job steps too (``slurmstepd`` leaves its parent, so no process tree would hold them).
That is how the sweeper, a process of its own, finds and kills them when the block ends or pytest is gone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scancel", "sinfo")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
START_S = 30.0
"""How long the whole cluster may take to come up; it needs one second, and three more with accounting."""


class SlurmCluster:
    """Nodes that are named after loopback addresses, so that the names in Slurm's node lists resolve.

    With accounting, a job shows in ``sacct`` some seconds after its end: the controller sends in batches.
    """

    def __init__(self, folder: Path, *, nodes: int = 2, accounting: bool = False) -> None:
        self.folder = folder
        self.node_names = [f"127.0.0.{number}" for number in range(1, nodes + 1)]
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.env["SLURM_CONF"] = str(folder / "slurm.conf")
        self._accounting = accounting
        self._database_port = 0
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._deadline_s = 0.0

    def __enter__(self) -> Self:
        self._deadline_s = time.monotonic() + START_S
        self._sweeper = _start_sweeper(self.env["SLURM_CONF"])
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 60,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command such as ``srun`` to its end."""
        with self.start(command, cwd=cwd, env=env) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)

    def start(
        self, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command that talks to this cluster and to no other."""
        return subprocess.Popen(
            list(command),
            cwd=cwd or self.folder,
            env=self.env | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def states(self) -> dict[str, str]:
        """Return what ``sinfo`` says of each node; nothing while the controller does not answer."""
        done = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"])
        return dict(line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else {}

    def log_tails(self, lines: int = 15) -> str:
        """Return the last lines of every daemon's log."""
        logs = sorted((self.folder / "logs").glob("*.out"))
        tails = ((log.name, log.read_text(errors="replace").splitlines()[-lines:]) for log in logs)
        return "\n".join(f"--- {name}\n" + "\n".join(tail) for name, tail in tails)

    def _start(self) -> None:
        self._write_files()
        self._start_munge()
        if self._accounting:
            self._start_accounting()
        self._spawn("slurmctld", "-D")
        for name in self.node_names:
            self._spawn("slurmd", "-D", "-N", name, log=f"slurmd.{name}")
        idle = dict.fromkeys(self.node_names, "idle")
        self._wait_until(lambda: self.states() == idle, "all nodes are idle")

    def _write_files(self) -> None:
        for name in ("logs", "state", "spool", "munge", "database"):
            (self.folder / name).mkdir(mode=0o700, parents=True)
        controller, accounting, database, *nodes = _free_ports(3 + len(self.node_names))
        text = _slurm_conf(self.folder, controller, dict(zip(self.node_names, nodes, strict=True)))
        if self._accounting:
            text += _SLURM_CONF_ACCOUNTING.format(folder=self.folder, port=accounting)
            text_of_dbd = _SLURMDBD_CONF.format(folder=self.folder, port=accounting, database=database)
            _write_private(self.folder / "slurmdbd.conf", text_of_dbd.encode())
            self._database_port = database
        (self.folder / "slurm.conf").write_text(text)
        _write_private(self.folder / "munge" / "key", os.urandom(64))

    def _start_munge(self) -> None:
        place = self.folder / "munge"
        files = [f"--{name}-file={place / name}" for name in ("key", "pid", "seed", "log")]
        # Forced, because munge distrusts sockets below /tmp.
        self._spawn("munged", "--foreground", "--force", f"--socket={place / 'socket'}", *files)
        self._wait_until((place / "socket").exists, "munged listens")

    def _start_accounting(self) -> None:
        place = self.folder / "database"
        (place / "init.sql").write_text(_INIT_SQL)
        options = ["--no-defaults", "--user=root", f"--datadir={place / 'data'}"]
        with (self.folder / "logs" / "mariadb-install-db.out").open("wb") as log:
            subprocess.run(
                ["mariadb-install-db", *options, "--skip-test-db"],
                env=self.env,
                stdout=log,
                stderr=log,
                timeout=START_S,
                check=True,
            )
        network = ["--bind-address=127.0.0.1", f"--port={self._database_port}"]
        files = [f"--{name}={place / name}" for name in ("socket", "pid-file")]
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"]
        self._spawn("mariadbd", *options, *network, *files, *fast, f"--init-file={place / 'init.sql'}")
        self._wait_until(lambda: _is_listening(self._database_port), "mariadbd listens")
        self._spawn("slurmdbd", "-D")
        add = ["sacctmgr", "--immediate", "add", "cluster", "holdfast"]
        self._wait_until(lambda: self.run(add).returncode == 0, "slurmdbd knows the cluster")

    def _spawn(self, program: str, *arguments: str, log: str = "") -> None:
        name = log or program
        with (self.folder / "logs" / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                [program, *arguments],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal is for pytest alone.
                start_new_session=True,
            )

    def _wait_until(self, is_true: Callable[[], bool], what: str) -> None:
        while not is_true():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > self._deadline_s:
                problem = f"{', '.join(dead)} ended" if dead else f"not within {START_S:.0f} s"
                raise RuntimeError(f"waiting until {what}: {problem}\n{self.states()}\n{self.log_tails()}")
            time.sleep(0.05)

    def _stop(self) -> None:
        """Have everything killed and collect what is ours to collect."""
        assert self._sweeper is not None
        self._sweeper.communicate()
        for daemon in self._daemons.values():
            daemon.wait()


def pids_with(name: str, value: str) -> list[int]:
    """Return the living processes that were started with this variable."""
    wanted = f"{name}={value}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return sorted(pids)


def _start_sweeper(conf: str) -> subprocess.Popen[bytes]:
    """Start the process that outlives pytest, however that ends: it waits for the end of its input."""
    return subprocess.Popen(
        [sys.executable, __file__, conf],
        env={name: value for name, value in os.environ.items() if name != "SLURM_CONF"},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _sweep(conf: str) -> None:
    """Kill until nothing is left, because what dies may have been about to start something."""
    while pids := pids_with("SLURM_CONF", conf):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    """Return ports below those that the kernel hands out, so that no outgoing connection takes them first."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = random.randrange(10_000, 20_000)
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _write_private(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _slurm_conf(folder: Path, controller: int, nodes: dict[str, int]) -> str:
    # Job ids begin at random: launchers derive a port from them, and another cluster may run beside this one.
    text = _SLURM_CONF.format(folder=folder, port=controller, first_job=random.randrange(1, 1_700))
    for name, port in nodes.items():
        text += f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4\n"
    return text


_SLURM_CONF = """\
ClusterName=holdfast
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/logs/slurmd.%n.log
# More processors than the machine has are believed.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
# Memory is not shared out, so that steps of one job may run side by side.
SelectTypeParameters=CR_Core
ReturnToService=1
FirstJobId={first_job}
PartitionName=all Nodes=ALL Default=YES
"""

_SLURM_CONF_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/socket
JobAcctGatherType=jobacct_gather/linux
"""

_SLURMDBD_CONF = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""

_INIT_SQL = """\
CREATE DATABASE slurm;
CREATE USER slurm@localhost IDENTIFIED BY 'slurm';
CREATE USER slurm@127.0.0.1 IDENTIFIED BY 'slurm';
GRANT ALL ON slurm.* TO slurm@localhost;
GRANT ALL ON slurm.* TO slurm@127.0.0.1;
"""


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _sweep(sys.argv[1])
