"""The bundle tells a case in Markdown: complete, short enough, and made of nothing but what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from madecases import FUNCTIONS, READ, STACK, make_staged, make_workers, on_hosts

from holdfast.diagnose.case import Case, make_case
from holdfast.findings import Suspect
from holdfast.serve.bundle import LIMIT_BYTES, write_bundle
from holdfast.serve.excerpt import LARGEST, read_excerpt
from holdfast.serve.markdown import block, code, table, words

HEADINGS = [
    "# Why is this training job slow?",
    "## The job",
    "## Suspects",
    "## Functions that take most time",
    "## Hosts",
    "## What is missing",
    "## Questions",
]
EVIL = "```\n# Ignore\n<script>alert(1)</script> ````` | a | \x00\u202e [x](http://x) __b__"


def outside(text: str) -> list[str]:
    """The lines of a text outside of its blocks, found as CommonMark does; all blocks must end."""
    lines, fence = [], ""
    for line in text.split("\n"):
        ticks = (re.match("`{3,}", line) or [""])[0]
        if fence:
            fence = "" if line.strip("`") == "" and len(ticks) >= len(fence) else fence
        elif ticks and "`" not in line[len(ticks) :]:
            fence = ticks
        else:
            lines.append(line)
    assert not fence, "a block has no end"
    return lines


def headings(text: str) -> list[str]:
    """All headings but those of suspects."""
    return [line for line in outside(text) if line.startswith("#") and not line.startswith("### ")]


def stacked(tmp_path: Path, line: int = 20) -> Case:
    """A case whose guilty function is called from a file that is there."""
    file = tmp_path / "shards.py"
    file.write_text("".join(f"line_{number} = {number}\n" for number in range(1, 101)))
    stack = [READ, f"{file}({line}): __getitem__", "gone/train.py(9): main"]
    workers, known = make_workers([*FUNCTIONS[:-1], ("python", stack, 0.02)], range(16), [5])
    return on_hosts(make_case(workers, known, {}, 16), {rank: f"node{rank // 4}" for rank in range(16)})


def test_a_bundle_has_all_that_is_known() -> None:
    """The job, the suspects with costs and evidence, the functions, the hosts, what is missing, questions."""
    case = msgspec.structs.replace(
        make_staged(missing=[14]),
        usage={rank: {"cpu": 0.2 if rank == 5 else 0.6} for rank in range(16)},
        unread=["rank14.json: is empty"],
        blocked_s=0.25,
        about="steps 7 to 9",
    )
    text = write_bundle(case)
    assert headings(text) == HEADINGS
    for expected in (
        "Rank 5: its storage is slow; without it",
        "- 16 ranks, 15 of them profiled",
        "- 4 hosts",
        "4 roles (stages of a pipeline, by their groups): 0: 4 ranks, 1: 4 ranks, 2: 3 ranks, 3: 4 ranks",
        "10 steps",
        f"- function: `{READ}`",
        "- waiting for it: ranks 0 to 4, 6 to 13 and 15",
        "\n".join(["```text", *STACK, "```"]),
        "Code of `data/shards.py(118): __getitem__`: the file is not at hand.",
        "| function | kind | rank 5 | median of role 1 | median | most | on rank |",
        "| 5 | suspect | `node1` | 20% |",
        "- no profile of rank 14",
        "- not read: rank14.json: is empty",
        "1. Do the stack and the code explain",
    ):
        assert expected in text


def test_code_is_shown_around_the_line(tmp_path: Path) -> None:
    """About fifteen lines, the one that is named marked."""
    text = write_bundle(stacked(tmp_path))
    shown = re.findall(r"^(.) *(\d+)  line_(\d+) = ", text, re.MULTILINE)
    assert [int(number) for _, number, _ in shown] == list(range(16, 31))
    assert [number for mark, number, _ in shown if mark == ">"] == ["20"]
    assert all(number == line for _, number, line in shown)
    assert "`gone/train.py(9): main`: the file is not at hand" in text


def test_a_stack_is_told_once(tmp_path: Path) -> None:
    """However many suspects share it."""
    case = stacked(tmp_path)
    again = msgspec.structs.replace(case.verdict.suspects[0], ranks=[6])
    finding = msgspec.structs.replace(case.verdict.findings[0], ranks=[6])
    verdict = msgspec.structs.replace(
        case.verdict,
        suspects=[*case.verdict.suspects, again],
        findings=[*case.verdict.findings, finding],
    )
    text = write_bundle(msgspec.structs.replace(case, verdict=verdict))
    assert text.count("Stack, the function itself first:") == 1
    assert "Stack and code: see suspect 1." in text


@pytest.mark.parametrize("line", [0, 101, 10**9])
def test_a_line_that_is_not_in_the_file_is_another_version(line: int, tmp_path: Path) -> None:
    """Then nothing is shown, rather than something else."""
    assert "it is another version" in write_bundle(stacked(tmp_path, line))


def test_only_code_is_read(tmp_path: Path) -> None:
    """A trace may name any file; keys, folders, binaries and what is too large are not shown."""
    (tmp_path / "id_rsa").write_text("secret\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "id_rsa")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "binary.py").write_bytes(b"a\0b\n")
    (tmp_path / "large.py").write_bytes(b"x\n" * LARGEST)
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    for name in ("id_rsa", "link.py", "folder.py", "binary.py", "large.py", "loop.py", "\0.py", "n" * 5000):
        found = read_excerpt(f"{tmp_path / name}(1): f")
        assert not found.lines, name
        assert found.why
    assert read_excerpt("gemm").why == "its name tells no file"


def test_names_cannot_break_the_markdown(tmp_path: Path) -> None:
    """Backticks, fences, bars, markup and control characters in all that the job names."""
    functions = [*FUNCTIONS[:-1], ("python", [EVIL, f"{EVIL}.py(3): {EVIL}", EVIL], 0.02)]
    workers, known = make_workers(functions, range(8), [5])
    case = on_hosts(make_case(workers, known, {}, 8), {rank: f"{EVIL}{rank}" for rank in range(8)})
    case = msgspec.structs.replace(
        case, about=EVIL, unread=[EVIL, "# x", "- y", "1. z"], usage={5: {"cpu": 1.0}}
    )
    assert [each.ranks for each in case.verdict.suspects] == [[5]]
    text = write_bundle(case)
    assert headings(text) == HEADINGS
    assert "\x00" not in text
    assert "\u202e" not in text
    rows = [line for line in outside(text) if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert widths == {8, 5}
    bare = [re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", line) for line in outside(text)]
    assert not [line for line in bare if re.search(r"(?<!\\)<script", line)]
    assert "- not read: \\# x" in text
    assert "- not read: 1\\. z" in text


def test_nobody_to_blame_has_other_questions() -> None:
    """And no stack."""
    text = write_bundle(make_staged(guilty=[]))
    assert headings(text) == HEADINGS
    assert "None: nobody differs from the others of its role." in text
    assert "a reason that all ranks share" in text


def test_one_rank_and_none() -> None:
    """Little is known, and that is said."""
    workers, known = make_workers(FUNCTIONS, [0])
    assert "there is only rank 0" in write_bundle(make_case(workers, known, {}))
    nothing = write_bundle(make_case([], {}, {}, 3))
    assert headings(nothing) == HEADINGS
    assert "no profile of ranks 0 to 2" in nothing


def test_a_large_job_has_a_small_bundle() -> None:
    """Of 1,000 ranks only some are listed."""
    usage = {rank: {"cpu": 0.5} for rank in range(1000)}
    text = write_bundle(msgspec.structs.replace(make_staged(1000, 8, [5, 777]), usage=usage))
    assert len(text.encode()) < 20_000
    assert "968 more ranks are left out." in text


@pytest.mark.parametrize("letter", ["x", "`", "\U0001f600", "<"])
def test_a_bundle_is_never_large(letter: str) -> None:
    """Whatever names, stacks and evidence are like."""
    stacks = [[f"{n}{letter * 5000}", *[f"{letter * 900}.py(1): {n}"] * 200] for n in range(30)]
    functions = [("compute", stack, 0.02) for stack in stacks]
    workers, known = make_workers(functions, range(8))  # type: ignore[arg-type]
    case = make_case(workers, known, {})
    suspects = [
        Suspect(ranks=[1], function=stack[0], confidence=0.9, evidence=[letter * 9000] * 30)
        for stack in stacks
    ]
    verdict = msgspec.structs.replace(case.verdict, suspects=suspects, findings=[])
    case = msgspec.structs.replace(case, verdict=verdict, unread=[letter * 9000] * 500, about=letter * 9000)
    text = write_bundle(case)
    assert len(text.encode()) <= LIMIT_BYTES
    assert headings(text) == HEADINGS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("a\n\nb", "`a b`"),
        ("", "` `"),
        ("```", "```` ``` ````"),
    ],
)
def test_code_has_more_backticks_than_its_text(text: str, expected: str) -> None:
    """So that it ends where it should."""
    assert code(text) == expected


def test_blocks_and_tables_hold_anything() -> None:
    """A fence is longer than any within; a bar is no border."""
    assert block(["a", "````", "b"]) == "`````text\na\n````\nb\n`````"
    assert table(["x", "y"], [[code("a|b"), r"c\|d"]]) == "| x | y |\n| --- | ---: |\n| `a\\|b` | c\\|d |"
    assert words("# a_b __c__ <d>") == r"\# a_b \_\_c\_\_ \<d\>"
