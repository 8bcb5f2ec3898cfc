"""The house keeps its own rules, and the checks that say so are checked themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from architecture import (
    MAY_KNOW,
    PURE_ROOMS,
    Violation,
    check_cycles,
    check_module,
    check_paths,
    check_tree,
)

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

TORCH_FREE = (
    "holdfast",
    "holdfast.values",
    "holdfast.errors",
    "holdfast.cli",
    "holdfast.job.ring",
    "holdfast.job.attach",
    "holdfast.guard.watcher",
)
"""Modules whose import must never import torch."""

EVERYWHERE = frozenset(map(Path, ("/", "/home", "/mnt", "/opt", "/srv", "/tmp", "/usr/src", "/var/tmp")))
"""Folders that every machine has; to name them gives nothing away."""

PROBE = """
import importlib, importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    asked = set()

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "torch":
            self.asked.add("torch")
            raise ImportError(f"{fullname} is refused here")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
importlib.import_module(sys.argv[2])
print(json.dumps(sorted(Refuse.asked | {"torch", "numpy"} & sys.modules.keys())))
"""
"""Imports a module while refusing torch, and prints which heavy libraries it asked for or loaded."""


def assert_none(violations: Iterable[Violation]) -> None:
    """Fail with all violations at once, one on each line."""
    lines = [str(violation) for violation in violations]
    if lines:
        pytest.fail("\n".join(["the house rules are broken:", *lines]), pytrace=False)


def heavy_imports(src: Path, module: str) -> set[str]:
    """Return which of torch and numpy a fresh interpreter needs to import a module."""
    command = [sys.executable, "-P", "-c", PROBE, str(src), module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"import {module} failed without torch:\n{done.stderr}"
    return set(json.loads(done.stdout))


def modules_of(src: Path) -> list[str]:
    """Return the names by which the modules below a folder are imported."""
    files = [path.relative_to(src).with_suffix("") for path in src.rglob("*.py")]
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


def tracked_texts(root: Path) -> dict[str, str]:
    """Return the text of every tracked file that is text, none outside of git."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    files = [name for name in listed.split("\0") if name and (root / name).is_file()]
    blobs = {name: (root / name).read_bytes() for name in files}
    return {name: blob.decode(errors="replace") for name, blob in blobs.items() if b"\0" not in blob}


# --- the house --------------------------------------------------------------------------------


def test_house_keeps_its_rules() -> None:
    """Every module knows only whom it may, and every pure room is pure."""
    assert_none(check_tree(SRC))


@pytest.mark.parametrize("module", [name for name in TORCH_FREE if name in modules_of(SRC)])
def test_module_needs_no_torch(module: str) -> None:
    """The modules that must work on a machine without torch do not even ask for it."""
    assert "torch" not in heavy_imports(SRC, module)


@pytest.mark.skipif("holdfast.cli" not in modules_of(SRC), reason="there is no CLI yet")
def test_cli_starts_light() -> None:
    """The command line answers before numpy is loaded."""
    assert heavy_imports(SRC, "holdfast.cli") == set()


def test_project_names_no_folder_of_this_machine() -> None:
    """No tracked file names the folder of the checkout, the one above it or the home folder."""
    texts = tracked_texts(ROOT)
    if not texts:
        pytest.skip("not a git checkout")
    folders = sorted({ROOT, ROOT.parent, Path.home()} - EVERYWHERE)
    assert_none(found for file, text in texts.items() for found in check_paths(text, file, folders))


# --- the test of the test ---------------------------------------------------------------------

GUILTY = [
    # Who may know whom.
    ("detect.bocpd", "import holdfast.plan", "detect may not know plan"),
    ("detect.bocpd", "from holdfast import plan", "detect may not know plan"),
    ("detect.bocpd", "from ..plan import share", "detect may not know plan"),
    ("detect.__init__", "from ..plan import share", "detect may not know plan"),
    ("detect.bocpd", "from .. import observe", "detect may not know observe"),
    ("detect.bocpd", "from holdfast import watch", "detect may not know job"),
    ("detect.bocpd", "import holdfast\nholdfast.guard.start()", "2: detect may not know guard"),
    ("detect.bocpd", "import importlib\nimportlib.import_module('holdfast.guard')", "2: detect may not know"),
    ("job.hooks", "import holdfast.guard", "job may not know guard"),
    ("job.hooks", "from ..guard import watcher", "job may not know guard"),
    ("job.hooks", "def f():\n    from holdfast.guard import watcher", "2: job may not know guard"),
    (
        "job.hooks",
        "import typing as t\nif t.TYPE_CHECKING:\n    import holdfast.lab",
        "3: job may not know lab",
    ),
    ("job.hooks", "import numpy as np", "job imports numpy"),
    ("values", "from holdfast.errors import InputError", "values may not know errors"),
    ("errors", "from . import values", "errors may not know values"),
    ("settings", "import holdfast.observe", "settings may not know observe"),
    ("observe.steps", "import holdfast.settings", "observe may not know settings"),
    ("mitigate.decide", "import holdfast.diagnose", "mitigate may not know diagnose"),
    ("reliability.ettr", "import holdfast.simulate", "reliability may not know simulate"),
    ("simulate.kernel", "import holdfast.job.ring", "simulate may not know job"),
    ("lab.jobs.demo", "import holdfast.guard", "lab may not know guard"),
    ("guard.watcher", "from holdfast.lab import faults", "guard may not know lab"),
    ("guard.watcher", "import holdfast.serve", "guard may not know serve"),
    ("serve.page", "from holdfast.cli import main", "serve may not know cli"),
    ("__init__", "from holdfast.job.attach import watch", "when loaded"),
    ("__init__", "def f():\n    import holdfast.guard", "__init__ may not know guard"),
    ("utils", "", "unknown room 'utils': add it to MAY_KNOW"),
    # Torch.
    ("detect.bocpd", "import torch", "detect imports torch"),
    ("plan.share", "def f():\n    from torch import nn", "2: plan imports torch"),
    ("cli", "import torch.distributed as dist", "cli imports torch"),
    ("serve.page", "torch = __import__('torch')", "serve imports torch"),
    # Clocks.
    (
        "plan.timing",
        "import time\nstart = time.monotonic()",
        "2: plan is pure, but time.monotonic reads a clock",
    ),
    ("plan.timing", "from time import monotonic as m\nm()", "2: plan is pure, but time.monotonic reads a"),
    ("plan.timing", "import time as t\nt.time()", "2: plan is pure, but time.time reads a clock"),
    ("plan.timing", "import time\ndef f(clock=time.perf_counter): ...", "2: plan is pure"),
    ("plan.timing", "def f():\n    return time.time()\nimport time", "2: plan is pure"),
    ("simulate.kernel", "import time\ntime.sleep(1)", "time.sleep reads a clock"),
    ("values", "from datetime import datetime\ndatetime.now()", "reads a clock"),
    ("values", "import datetime as dt\ndt.datetime.utcnow().isoformat()", "reads a clock"),
    ("control", "from datetime import date\ndate.today()", "reads a clock"),
    # The environment.
    ("control", 'import os\nos.environ["X"]', "os.environ reads the environment"),
    ("control", 'import os\nos.environ.get("X")', "reads the environment"),
    (
        "control",
        'from os import getenv\ngetenv("X")',
        "2: control is pure, but os.getenv reads the environment",
    ),
    ("control", "import sys\nsys.argv[1]", "sys.argv reads the environment"),
    # Files.
    ("plan.ops", 'open("f")', "open touches files"),
    ("plan.ops", 'import io\nio.open("f")', "io.open touches files"),
    ("plan.ops", 'from pathlib import Path\nPath("f").read_text()', "read_text touches files"),
    ("plan.ops", 'from pathlib import Path\nPath("f").open()', "open touches files"),
    ("plan.ops", "def f(path):\n    return path.read_bytes()", "read_bytes touches files"),
    ("plan.ops", "def f(path):\n    path.write_text('')", "write_text touches files"),
    ("reliability.rates", "import polars as pl\npl.scan_csv('f')", "polars.scan_csv touches files"),
    ("diagnose.patterns", "import numpy as np\nnp.loadtxt('f')", "numpy.loadtxt touches files"),
    # Randomness.
    ("simulate.cluster", "import random\nrandom.random()", "random.random draws randomness"),
    ("simulate.cluster", "from random import choice", "random.choice draws randomness"),
    ("simulate.cluster", "import random\nrandom.Random()", "random.Random draws randomness"),
    ("simulate.cluster", "import numpy as np\nnp.random.rand(3)", "numpy.random.rand draws randomness"),
    ("simulate.cluster", "import numpy as np\nnp.random.default_rng()", "default_rng draws randomness"),
    ("simulate.cluster", "import numpy as np\nnp.random.default_rng(None)", "default_rng draws randomness"),
    ("simulate.cluster", "from numpy.random import default_rng\nf(default_rng)", "default_rng draws"),
    ("detect.verify", "from scipy import stats\nstats.norm.rvs(size=3)", "rvs draws randomness"),
    ("values", "import uuid\nuuid.uuid4()", "uuid.uuid4 draws randomness"),
    ("values", "import secrets", "secrets draws randomness"),
    # The world.
    ("control", "import subprocess", "subprocess starts threads, processes or connections"),
    ("control", "from socket import gethostname", "starts threads"),
    ("control", "import threading", "starts threads"),
    ("control", "import asyncio", "starts threads"),
    ("control", "print(1)", "print talks to the terminal"),
    ("control", "import sys\nsys.stderr.write('x')", "talks to the terminal"),
    # The order of sets.
    ("plan.roles", "for x in {1, 2}: ...", "the order of a set shows"),
    ("plan.roles", "for x in set(xs): ...", "the order of a set shows"),
    ("plan.roles", "[x for x in frozenset(xs)]", "the order of a set shows"),
    ("plan.roles", "{x: 1 for x in set(xs)}", "the order of a set shows"),
    ("plan.roles", "list(set(xs))", "the order of a set shows"),
    ("plan.roles", "tuple(set())", "the order of a set shows"),
    ("plan.roles", "[*set(xs)]", "the order of a set shows"),
    ("plan.roles", "','.join({x for x in xs})", "the order of a set shows"),
    ("plan.roles", "next(iter(set(xs) - set(ys)))", "the order of a set shows"),
    ("plan.roles", "for x in a.keys() - b.keys(): ...", "the order of a set shows"),
    ("plan.roles", "def f(dead: set[int]):\n    return [x for x in dead]", "2: plan is pure, but the order"),
    ("plan.roles", "def f(xs):\n    left = set(xs)\n    return left.pop()", "3: plan is pure, but the order"),
    # Danger.
    ("observe.trace", "import pickle\npickle.loads(b'')", "pickle.loads runs what it reads"),
    ("observe.trace", "from pickle import load", "pickle.load runs what it reads"),
    ("observe.trace", "import pickle\nclass U(pickle.Unpickler): ...", "2: pickle.Unpickler runs"),
    ("observe.trace", "import marshal", "marshal runs what it reads"),
    ("guard.log", "import yaml\nyaml.load('')", "yaml.load runs what it reads"),
    ("lab.faults", "eval('1')", "eval runs what it reads"),
    ("job.executor", "exec(compile('1', 'f', 'exec'))", "exec runs what it reads"),
    ("job.boot", "eval('1')", "eval runs what it reads"),
    ("job.executor", "import torch\ntorch.load('f', weights_only=False)", "weights_only=False unpickles"),
    ("plan.ops", "def f(:", "does not parse"),
    # Threads.
    (
        "guard.log",
        "import msgspec\ndef f():\n    msgspec.json.decode(b'', type=list[Step])",
        "3: learns a type",
    ),
    ("guard.log", "from msgspec import json\ndef f():\n    json.Decoder(wire.Step)", "3: learns a type"),
]

INNOCENT = [
    (
        "__init__",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from holdfast.job.attach import watch",
    ),
    ("__init__", "def __getattr__(name):\n    from holdfast.job.attach import watch\n    return watch"),
    (
        "detect.bocpd",
        "from holdfast.values import Step\nfrom ..errors import InputError\nfrom . import period",
    ),
    ("detect.bocpd", "from holdfast import __version__"),
    ("diagnose.groups", "from holdfast.observe.trace import Op"),
    ("settings", "import os, tomllib\nos.environ['X']\nopen('f')"),
    ("simulate.kernel", "import holdfast.control, holdfast.reliability.ettr, holdfast.plan.share"),
    ("job.executor", "import os, time, msgspec, torch\nfrom holdfast.plan.ops import Op\nprint(time.time())"),
    ("job.boot", "code = compile('1', 'f', 'exec')\nexec(code)"),
    ("guard.watcher", "from torch.distributed import TCPStore\nfrom holdfast.job.ring import RingReader"),
    ("lab.jobs.demo", "import holdfast, torch\nholdfast.watch()"),
    ("serve.page", "import holdfast.guard.log, holdfast.lab.faults, holdfast.settings"),
    ("cli", "def run():\n    import holdfast.serve.page, holdfast.guard.launcher"),
    ("values", "import pickle\npickle.dumps(1)"),
    ("values", "def time(): ...\ntime()"),
    ("values", "from datetime import UTC, datetime\ndatetime.fromisoformat('2025-01-01').astimezone(UTC)"),
    ("values", "import re\nre.compile('x')\nmodel.eval()"),
    ("control", "def handle(event, clock):\n    return clock.now() - event.time"),
    ("control", "import os\ndef f(path: os.PathLike[str]):\n    return os.path.join('a', 'b')"),
    ("plan.ops", "from pathlib import Path\ndef f(path: Path) -> str:\n    return path.stem"),
    ("plan.ops", "is_open = door.open"),
    ("reliability.sacct", "from pathlib import Path\ndef read(path: Path):\n    return path.read_text()"),
    ("simulate.cluster", "import numpy as np\nnp.random.default_rng(seed)"),
    ("simulate.cluster", "import numpy as np\nnp.random.default_rng(seed=1).random(3)"),
    ("simulate.cluster", "import numpy as np\ndef f(rng: np.random.Generator):\n    return rng.random()"),
    (
        "simulate.cluster",
        "import random\ndef f(rng: random.Random):\n    return random.Random(1), rng.random()",
    ),
    ("detect.verify", "from scipy import stats\nstats.norm.rvs(size=3, random_state=rng)"),
    ("values", "import uuid\nuuid.UUID('0' * 32)"),
    ("plan.roles", "for x in sorted(set(xs)): ..."),
    ("plan.roles", "sorted(x + 1 for x in set(xs))\nany(x > 1 for x in {1, 2})\nsorted(map(f, set(xs)))"),
    ("plan.roles", "{x for x in set(xs)}\n{*set(xs), 1}\nlen(set(xs)), max(set(xs)), 1 in {1, 2}"),
    ("plan.roles", "def f(xs):\n    xs = set(xs)\n    xs = sorted(xs)\n    return list(xs)"),
    ("plan.roles", "def f(dead: set[int]): ...\ndef g(dead: list[int]):\n    return [x for x in dead]"),
    ("observe.trace", "for x in set(xs):\n    print(x, open('f'))"),
    ("guard.log", "import msgspec\ndef f():\n    msgspec.json.decode(b'', type=dict[str, msgspec.Raw])"),
    ("guard.log", "import msgspec\n_STEP = msgspec.json.Decoder(Step)\ndef f():\n    _STEP.decode(b'')"),
]


@pytest.mark.parametrize(("module", "text", "message"), GUILTY)
def test_guilty_snippet_is_reported(module: str, text: str, message: str) -> None:
    """Each slip is found, on its line, with the rule it broke."""
    found = [str(violation) for violation in check_module(text, f"holdfast.{module}")]
    assert any(message in line for line in found), found


@pytest.mark.parametrize(("module", "text"), INNOCENT)
def test_innocent_snippet_is_left_alone(module: str, text: str) -> None:
    """What looks like a slip and is none is not reported."""
    assert_none(check_module(text, f"holdfast.{module}"))


@pytest.mark.parametrize("room", sorted(PURE_ROOMS))
def test_every_pure_room_is_held_to_purity(room: str) -> None:
    """No pure room reads a clock, whether it is a file or a folder."""
    text = "import time"
    assert check_module(text, f"holdfast.{room}")
    assert check_module(text, f"holdfast.{room}.__init__")


def test_reader_is_forgiven_files_only() -> None:
    """A reader of a pure room may read the file it is given, and still no clock."""
    found = check_module("import time\nopen('f')", "holdfast.reliability.sacct")
    assert [violation.line for violation in found] == [1]


def test_table_says_who_is_known_by_whom() -> None:
    """Read the other way, the table says what the design says of the rooms that few may know."""
    known_by = {room: {who for who, known in MAY_KNOW.items() if room in known} for room in MAY_KNOW}
    edges = {room: known_by[room] for room in ("settings", "job", "simulate", "lab", "guard", "serve", "cli")}
    assert edges == {
        "settings": {"guard", "lab", "serve", "cli"},
        "job": {"__init__", "guard", "lab", "serve", "cli"},
        "simulate": {"serve", "cli"},
        "lab": {"serve", "cli"},
        "guard": {"serve", "cli"},
        "serve": {"cli"},
        "cli": set(),
    }


def test_table_has_no_circle_of_rooms() -> None:
    """The table itself lets no two rooms know each other."""
    mutual = [(a, b) for a, known in MAY_KNOW.items() for b in known if a in MAY_KNOW[b]]
    assert mutual == []


def test_violation_says_where_and_what() -> None:
    """A violation reads as file, line and message, so that editors can jump to it."""
    found = check_module("\nimport torch", "holdfast.detect.__init__")
    assert [str(violation) for violation in found] == [
        "src/holdfast/detect/__init__.py:2: detect imports torch; only guard, job, lab may"
    ]


CYCLES = [
    ({"plan.a": "import holdfast.plan.b", "plan.b": "from . import a"}, 1),
    ({"plan.a": "from .b import x", "plan.b": "from .c import x", "plan.c": "from .a import x"}, 1),
    ({"plan.__init__": "from .a import x", "plan.a": "from holdfast.plan import y"}, 1),
    ({"plan.__init__": "import holdfast.job", "job": "from holdfast.plan.a import x", "plan.a": ""}, 1),
    (
        {
            "plan.a": "from . import b, c",
            "plan.b": "class X:\n    from . import a",
            "plan.c": "try:\n    from . import a\nexcept ImportError: ...",
        },
        2,
    ),
    ({"plan.a": "from . import b", "plan.b": "def f():\n    from . import a"}, 0),
    (
        {
            "plan.a": "from . import b",
            "plan.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a",
        },
        0,
    ),
    ({"plan.__init__": "from .a import x", "plan.a": "from holdfast.plan.b import y", "plan.b": ""}, 0),
    ({"plan.a": "from holdfast.values import x", "plan.b": "from .a import x", "values": ""}, 0),
]


@pytest.mark.parametrize(("texts", "count"), CYCLES)
def test_cycles_are_counted(texts: dict[str, str], count: int) -> None:
    """Imports that run in a circle are found, each circle once; lazy ones make none."""
    found = check_cycles({f"holdfast.{module}": text for module, text in texts.items()})
    assert len(found) == count, found


def test_cycle_is_shown_whole() -> None:
    """A cycle names its modules in the order of import, at the line where it can be cut."""
    found = check_cycles({"holdfast.a": "\nimport holdfast.b", "holdfast.b": "\n\nimport holdfast.a"})
    assert [str(violation) for violation in found] in (
        ["src/holdfast/a.py:2: import cycle: holdfast.a -> holdfast.b -> holdfast.a"],
        ["src/holdfast/b.py:3: import cycle: holdfast.b -> holdfast.a -> holdfast.b"],
    )


def write_tree(src: Path, files: dict[str, str]) -> Path:
    """Write a package of the given files, and return the folder that holds it."""
    for name, text in files.items():
        path = src / "holdfast" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return src


def test_tree_with_bad_files_fails_with_all_of_them(tmp_path: Path) -> None:
    """The check of a whole tree fails on bad files and shows every violation at once."""
    src = write_tree(
        tmp_path,
        {
            "__init__.py": "",
            "values.py": "",
            "helpers.py": "",
            "detect/__init__.py": "",
            "detect/bad.py": "import math\nimport torch\n\nprint(math.pi)\n",
            "plan/a.py": "import holdfast.plan.b\n",
            "plan/b.py": "import holdfast.plan.a\n",
        },
    )
    with pytest.raises(pytest.fail.Exception) as caught:
        assert_none(check_tree(src))
    shown = str(caught.value).split()
    assert [word for word in shown if ".py:" in word] == [
        "src/holdfast/detect/bad.py:2:",
        "src/holdfast/detect/bad.py:4:",
        "src/holdfast/helpers.py:1:",
        "src/holdfast/plan/a.py:1:",
    ]


def test_tree_without_bad_files_passes(tmp_path: Path) -> None:
    """The check of a whole tree is quiet about a good one."""
    src = write_tree(tmp_path, {"__init__.py": "", "values.py": "import math\n"})
    assert_none(check_tree(src))


def test_tree_that_is_not_there_is_no_pass(tmp_path: Path) -> None:
    """A wrong folder is an error, not a house without violations."""
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        check_tree(tmp_path)


def test_torch_hidden_behind_a_try_is_seen(tmp_path: Path) -> None:
    """An import that swallows the absence of torch has still asked for it."""
    text = "try:\n    import torch.nn\nexcept ImportError: ...\n"
    src = write_tree(tmp_path, {"__init__.py": "", "values.py": text})
    assert heavy_imports(src, "holdfast.values") == {"torch"}
    assert heavy_imports(src, "holdfast") == set()


def test_torch_needed_on_import_fails(tmp_path: Path) -> None:
    """An import that cannot do without torch fails with the traceback."""
    src = write_tree(tmp_path, {"__init__.py": "import torch\n"})
    with pytest.raises(AssertionError, match="torch is refused here"):
        heavy_imports(src, "holdfast")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("cd /srv/someone/main", [1]),
        ("a\n'/srv/someone'\nfile:///srv/someone/x", [2, 3]),
        ("in /srv/someone.", [1]),
        ("/srv/someone-else /srv/someones ~/srv/someone ../srv/someone https://host/srv/someone", []),
    ],
)
def test_folder_of_one_machine_is_found(text: str, lines: list[int]) -> None:
    """A folder is found where it is one, and not where it is part of another name."""
    found = check_paths(text, "README.md", [Path("/srv/someone")])
    assert [violation.line for violation in found] == lines
