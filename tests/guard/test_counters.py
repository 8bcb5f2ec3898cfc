"""The kernel's files, whole and broken, in a folder that looks like its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.detect.counters import GroupTimes, NodeCounters, Pressure, ProcessCounters, ThreadTimes
from holdfast.guard.cgroups import Mount, find_mount
from holdfast.guard.sampler import Sampler

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
STAT = "7 (a) b) R 1 7 7 0 -1 0 11 12 13 14 150 50 17 18 20 0 2 0 99 4096 3" + " 0" * 17 + " 25 0 0"
FILES = {
    "7/stat": STAT,
    "7/status": "Name:\ta\nVmSwap:\t   4 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
    "7/io": "rchar: 1\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 9\n",
    "7/cgroup": "4:memory:/m\n3:cpu,cpuacct:/job/1\n0::/else\n",
    "7/task/7/schedstat": "1000000000 2000000000 3\n",
    "7/task/8/schedstat": "0 500000000 1\n",
    "stat": "cpu  10 1 20 30 5 0 3 2 0 0\ncpu0 1 1\nintr 1 2\nctxt 77\nprocs_running 4\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n",
    "pressure/io": "some avg10=0.00 total=2000000\nfull avg10=0.00 total=1000000\n",
    "net/snmp": "Ip: A\nIp: 1\nTcp: MaxConn OutSegs RetransSegs\nTcp: -1 100 3\nUdp: A\nUdp: 1\n",
    "meminfo": "MemTotal: 9 kB\nMemAvailable:       8 kB\n",
    "vmstat": "pgfault 1\npswpin 12\n",
    "sys/kernel/task_delayacct": "1\n",
}
WHOLE = ProcessCounters(
    pid=7,
    start_ticks=99,
    state="R",
    cpu_s=200 / TICKS,
    minor_faults=11,
    major_faults=13,
    rss_bytes=3 * PAGE,
    threads={7: ThreadTimes(ran_s=1.0, waited_s=2.0), 8: ThreadTimes(waited_s=0.5)},
    voluntary_switches=5,
    involuntary_switches=6,
    swapped_bytes=4096,
    block_io_delay_s=25 / TICKS,
    read_bytes=3,
    written_bytes=4,
)


def write(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def look(root: Path) -> ProcessCounters | None:
    """Return what is read of process 7."""
    return Sampler(lambda: {0: 7}, root=str(root)).sample().processes.get(0)


def test_whole_files_are_read_exactly(tmp_path: Path) -> None:
    """Every number is where the kernel's documentation says, also behind a name with brackets."""
    write(tmp_path, FILES)
    found = look(tmp_path)
    assert found == WHOLE
    assert (found.run_queue_wait_s, found.throttled_s) == (2.5, None)
    assert Sampler(dict, root=str(tmp_path)).sample().node == NodeCounters(
        total_ticks=71,
        idle_ticks=30,
        iowait_ticks=5,
        steal_ticks=2,
        running=4,
        context_switches=77,
        cpu_pressure=Pressure(some_s=1.5),
        io_pressure=Pressure(some_s=2.0, full_s=1.0),
        sent_segments=100,
        retransmitted_segments=3,
        available_bytes=8192,
        swapped_in_pages=12,
    )


def test_an_empty_machine_knows_nothing(tmp_path: Path) -> None:
    """What is not there is None and never 0, and nobody is there."""
    sample = Sampler(lambda: {0: 7}, root=str(tmp_path)).sample()
    assert (sample.node, sample.processes) == (NodeCounters(), {})


def test_only_what_a_worker_cannot_do_without_leaves_it_out(tmp_path: Path) -> None:
    """With its first file alone it is seen, and all that others say is None."""
    write(tmp_path, {"7/stat": STAT})
    found = look(tmp_path)
    assert found is not None
    assert (found.cpu_s, found.threads, found.read_bytes, found.groups) == (WHOLE.cpu_s, None, None, None)
    assert found.run_queue_wait_s is None


@pytest.mark.parametrize(
    ("said", "ticks", "delay_s"),
    [("0\n", "0", None), ("1\n", "0", 0.0), (None, "0", None), (None, "25", 25 / TICKS)],
)
def test_storage_delay_is_known_only_where_it_is_counted(
    tmp_path: Path, said: str | None, ticks: str, delay_s: float | None
) -> None:
    """A kernel that is told not to count writes 0, which is not the same as no delay."""
    stat = STAT.replace(" 25 ", f" {ticks} ")
    write(tmp_path, {"7/stat": stat} | ({"sys/kernel/task_delayacct": said} if said else {}))
    found = look(tmp_path)
    assert found is not None
    assert found.block_io_delay_s == delay_s


def test_a_scheduler_that_does_not_count_writes_zeros(tmp_path: Path) -> None:
    """Threads of which none has ever run are not counted at all."""
    write(tmp_path, {"7/stat": STAT, "7/task/7/schedstat": "0 0 0\n", "7/task/8/schedstat": "0 0 0\n"})
    found = look(tmp_path)
    assert found is not None
    assert found.threads is None


@pytest.mark.parametrize("state", ["Z", "X"])
def test_who_has_ended_is_gone(tmp_path: Path, state: str) -> None:
    """A process that is only waiting for its exit code to be read does not count."""
    write(tmp_path, FILES | {"7/stat": STAT.replace(") R ", f") {state} ")})
    assert look(tmp_path) is None


# --- groups -----------------------------------------------------------------------------------


def test_quotas_of_all_groups_around_are_read_version_1(tmp_path: Path) -> None:
    """Seen from a container, whose own group is the top of what is mounted."""
    point = tmp_path / "cpu"
    mountinfo = f"33 31 0:30 /job {point} rw - cgroup cgroup rw,cpu,cpuacct\n"
    write(tmp_path, FILES | {"self/mountinfo": mountinfo})
    write(point, {"cpu.stat": "nr_throttled 1\nthrottled_time 1000000000\n", "cpuacct.usage": "3000000000\n"})
    write(point / "1", {"cpu.stat": "throttled_time 500000000\n"})
    found = look(tmp_path)
    assert found is not None
    assert found.throttled_s == 1.5
    assert found.groups == {
        f"{point}/1": GroupTimes(throttled_s=0.5),
        str(point): GroupTimes(throttled_s=1.0, cpu_s=3.0),
    }


def test_quotas_of_all_groups_around_are_read_version_2(tmp_path: Path) -> None:
    """The outermost group has no quota and counts no throttling."""
    point = tmp_path / "unified dir"
    mountinfo = f"38 31 0:30 / {tmp_path}/unified\\040dir rw - cgroup2 cgroup2 rw\n"
    write(tmp_path, FILES | {"self/mountinfo": mountinfo})
    write(point, {"cpu.stat": "usage_usec 9\n"})
    write(point / "else", {"cpu.stat": "usage_usec 2000000\nuser_usec 1\nthrottled_usec 250000\n"})
    found = look(tmp_path)
    assert found is not None
    assert found.groups == {f"{point}/else": GroupTimes(throttled_s=0.25, cpu_s=2.0)}


@pytest.mark.parametrize("path", ["/elsewhere", "/job/../../etc", "/jobs/1", "/../x"])
def test_a_group_out_of_sight_is_unknown(tmp_path: Path, path: str) -> None:
    """A process of another container is not charged with a group that happens to be here."""
    write(tmp_path, FILES | {"self/mountinfo": f"3 1 0:3 /job {tmp_path} rw - cgroup cgroup rw,cpu\n"})
    write(tmp_path, {"cpu.stat": "throttled_time 1\n", "7/cgroup": f"3:cpu:{path}\n"})
    found = look(tmp_path)
    assert found is not None
    assert found.groups is None


def test_version_1_goes_before_version_2() -> None:
    """Where both are mounted, the CPU controller is in the first."""
    second = "38 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    first = "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
    other = "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"
    assert find_mount("\n".join([second, other, first])) == Mount(1, "/", "/sys/fs/cgroup/cpu")
    assert find_mount("\n".join([other, second])) == Mount(2, "/", "/sys/fs/cgroup/unified")
    assert find_mount(f"{other}\nbroken - line\n\n - cgroup2") is None


# --- garbage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize(
    "junk", ["", "\x00", "-1 -1 -1", ") ) )", "9" * 5000, "a: b\nc: d", ":" * 99, "Tcp:\nTcp:\n", "cpu  x\n"]
)
def test_a_broken_file_costs_only_what_it_would_have_said(tmp_path: Path, name: str, junk: str) -> None:
    """No file can make a look fail, and those beside it are still read."""
    write(tmp_path, FILES | {name: junk})
    sampler = Sampler(lambda: {0: 7}, root=str(tmp_path))
    for _ in range(2):
        sample = sampler.sample()
        if name != "7/stat":
            assert sample.processes[0].cpu_s == WHOLE.cpu_s
        if name != "stat":
            assert sample.node.total_ticks == 71


def test_folders_and_pipes_in_place_of_files_are_passed_over(tmp_path: Path) -> None:
    """A look neither fails nor waits for something that nobody writes."""
    write(tmp_path, {"7/stat": STAT})
    os.mkfifo(tmp_path / "7" / "status")
    os.mkfifo(tmp_path / "stat")
    (tmp_path / "7" / "io").mkdir()
    (tmp_path / "7" / "task").write_text("no folder")
    found = look(tmp_path)
    assert found is not None
    assert (found.voluntary_switches, found.read_bytes, found.threads) == (None, None, None)


@given(st.dictionaries(st.sampled_from(sorted(FILES)), st.binary(max_size=300)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_makes_a_look_fail(tmp_path: Path, contents: dict[str, bytes]) -> None:
    """Whatever stands in the files, a sample comes back."""
    write(tmp_path, FILES)
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    sample = Sampler(lambda: {0: 7}, root=str(tmp_path)).sample()
    assert sample.processes.keys() <= {0}
