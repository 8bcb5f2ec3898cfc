"""The page of a diagnosis says who and what, shows it, and never breaks, whatever the profiles are like."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import msgspec
import pytest
from madecases import FUNCTIONS, GEMM, READ, make_staged, make_trace, make_workers, on_hosts, stages

from holdfast.diagnose.case import Case, make_case
from holdfast.diagnose.localise import Finding, What
from holdfast.diagnose.verdict import Verdict
from holdfast.findings import Cause, Suspect
from holdfast.observe.kineto import Kind
from holdfast.serve.casewords import headline, short_name, short_names
from holdfast.serve.diagnosepage import draw_page
from holdfast.serve.heatmap import level_of
from holdfast.serve.nextsteps import COMMON, IN_PYTHON, NEXT_STEPS, next_step
from holdfast.serve.rankmaps import MOST_CELLS, MOST_FUNCTIONS, MOST_RANKS, MOST_STAGES
from holdfast.serve.ranktable import tabulate
from holdfast.serve.tracelanes import MOST_BLOCKS, Block, merge

EVIL = "<script>alert('x')</script>\"&`|\x00\x1b[31m\u202e"
SVG = "{http://www.w3.org/2000/svg}"


class _Page(HTMLParser):
    """Collects tags and all text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def tree_of(page: str) -> ElementTree.Element:
    """The page as XML: stricter than HTML, so that nothing is left open or unescaped."""
    return ElementTree.fromstring(page.removeprefix("<!doctype html>\n"))


def charts(page: str) -> dict[str, ElementTree.Element]:
    """The drawings by their labels."""
    return {each.get("aria-label", ""): each for each in tree_of(page).iter(f"{SVG}svg")}


def cells(page: str, label: str) -> dict[str, str]:
    """Colours of the cells of a map by what is told of them."""
    found = {}
    for each in charts(page)[label].iter(f"{SVG}rect"):
        title = each.findtext(f"{SVG}title", "")
        if re.search(r"^rank \d+:", title, re.MULTILINE):
            found[title] = each.get("class", "")
    return found


def only_of(found: dict[str, str], words: str) -> str:
    """The colour of the one cell that says so."""
    (colour,) = [look for title, look in found.items() if words in title]
    return colour


def check(page: str) -> _Page:
    """Hold a page against what is true of all."""
    tree_of(page)
    assert len(page.encode()) < 2_000_000
    parsed = _Page(page)
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:dark" in page
    return parsed


def test_a_manager_and_an_engineer_find_their_answers() -> None:
    """Who, what, what it costs, since when, who is missing, what was not read, and what to do next."""
    case = msgspec.structs.replace(
        make_staged(missing=[14]),
        about="steps 7 to 9, profiled because of: a change",
        blocked_s=0.25,
        unread=["rank14.json: is empty"],
    )
    text = check(draw_page(case)).text
    (suspect,) = case.verdict.suspects
    assert suspect.cost_s is not None
    share = suspect.cost_s / case.verdict.span_s
    for words in (
        f"Rank 5: its storage is slow; without it {share:.0%} of the time would be saved",
        "Steps 7 to 9, profiled because of: a change",
        "no profile of rank 14",
        "rank14.json: is empty",
        "250 ms",
        f"{share:.1%} of the time: {1000 * suspect.cost_s:.0f} ms of 4.00 s",
        "rank 5 on node1",
        suspect.evidence[0],
        "ranks 0 to 4, 6 to 13 and 15",
        NEXT_STEPS["storage"],
        "data/shards.py(118): __getitem__",
        "There is no timeline: no trace of a suspect is at hand.",
    ):
        assert words in text


def test_functions_by_ranks_has_a_cell_for_each() -> None:
    """Coloured by the difference to the role; what the suspect is blamed for is framed, ranks by role."""
    page = draw_page(make_staged(missing=[14]))
    label = "Heat map: functions by ranks"
    found = cells(page, label)
    assert len(found) == 15 * len(FUNCTIONS)
    assert only_of(found, f"{short_name(READ)}\nrank 5:") == "q8"
    assert only_of(found, f"{short_name(READ)}\nrank 9:") == "q4"
    assert only_of(found, "ncclDevKernel_AllReduce\nrank 5:") == "q0"
    frames = [each for each in charts(page)[label].iter(f"{SVG}rect") if each.get("class") == "out"]
    assert len(frames) == 1
    words = [each.text or "" for each in charts(page)[label].iter(f"{SVG}text")]
    assert [word for word in words if word.startswith("stage")] == [f"stage {n}" for n in range(4)]
    stack = "\ncalled by ".join(FUNCTIONS[-1][1])
    assert stack in [each.text for each in charts(page)[label].iter(f"{SVG}title")]


def test_where_half_of_a_role_is_guilty_the_other_half_is_usual() -> None:
    """Else all would differ a little, and nobody much."""
    workers, known = make_workers(FUNCTIONS, range(4), [0, 1])
    case = make_case(workers, known, {})
    blamed = Suspect(ranks=[0, 1], function=READ, confidence=0.9)
    verdict = msgspec.structs.replace(case.verdict, suspects=[blamed], findings=[])
    found = cells(draw_page(msgspec.structs.replace(case, verdict=verdict)), "Heat map: functions by ranks")
    looks = [only_of(found, f"{short_name(READ)}\nrank {rank}:") for rank in range(4)]
    assert looks == ["q8", "q8", "q4", "q4"]


def test_stages_by_pipelines_has_a_cell_for_each_rank() -> None:
    """Those without a profile, too; without stages there is no such map."""
    page = draw_page(make_staged(missing=[14]))
    found = cells(page, "Heat map: stages by pipelines")
    assert len(found) == 16
    assert only_of(found, "rank 5:") == "q7"
    assert only_of(found, "rank 14: no profile") == "none"
    assert {look for title, look in found.items() if not re.match("rank (5|14):", title)} == {"q4"}
    workers, known = make_workers(FUNCTIONS, range(8), [5])
    assert list(charts(draw_page(make_case(workers, known, {})))) == ["Heat map: functions by ranks"]


def test_nobody_to_blame_is_an_answer() -> None:
    """And the map is still there, with nothing framed."""
    page = draw_page(make_staged(guilty=[]))
    assert "Nobody is to blame: 16 ranks spend their time alike" in check(page).text
    assert set(cells(page, "Heat map: functions by ranks").values()) == {"q4"}
    assert "Next step" not in page
    assert "timeline" not in page
    assert 'class="out"' not in page


def test_one_rank_has_a_page() -> None:
    """Although there is nobody to compare it with."""
    workers, known = make_workers(FUNCTIONS, [0])
    page = draw_page(make_case(workers, known, {}))
    assert "there is only rank 0" in check(page).text
    assert len(cells(page, "Heat map: functions by ranks")) == len(FUNCTIONS)


def test_no_rank_has_a_page() -> None:
    """All files may have been broken."""
    case = msgspec.structs.replace(make_case([], {}, {}, 4), unread=["a.json: is empty"])
    text = check(draw_page(case)).text
    assert "There is no profile to judge" in text
    assert "ranks 0 to 3" in text


@pytest.mark.parametrize("ranks", [1000, 4096])
def test_a_large_job_is_sampled_and_says_so(ranks: int) -> None:
    """The guilty are among those that are drawn; the page stays small."""
    guilty = [5, 777]
    case = msgspec.structs.replace(
        make_staged(ranks, 8, guilty),
        usage={rank: {"cpu": 0.5, "network": 2e9} for rank in range(ranks)},
    )
    page = draw_page(case)
    text = check(page).text
    assert f"{MOST_RANKS} of {ranks:,} ranks: the suspects and an even sample of the others" in text
    found = cells(page, "Heat map: functions by ranks")
    shown = {int(title.partition(":")[0].removeprefix("rank ")) for title in found}
    assert len(shown) == MOST_RANKS
    assert set(guilty) <= shown
    grid = cells(page, "Heat map: stages by pipelines")
    assert len(grid) == min(ranks, MOST_CELLS)
    assert {f"rank {rank}" for rank in guilty} <= {title.partition(":")[0] for title in grid}
    assert f"64 of {ranks:,} ranks, suspects first" in text


def test_many_stages_are_sampled_too() -> None:
    """A pipeline of 200 stages has nobody to compare, and a page."""
    workers, known = make_workers(FUNCTIONS, range(200))
    page = draw_page(make_case(workers, known, stages(200, 200)))
    assert f"{MOST_STAGES} of 200 stages" in check(page).text
    assert len(cells(page, "Heat map: stages by pipelines")) == MOST_STAGES


def test_the_largest_page_is_still_small(tmp_path: Path) -> None:
    """With all functions, ranks, stages, suspects and blocks that can be drawn, and names that grow."""
    name = "<&>" * 60
    small: list[tuple[Kind, list[str], float]] = [
        ("compute", [f"{n}{name}", *[name] * 90], 0.02) for n in range(20)
    ]
    workers, known = make_workers([*FUNCTIONS[:4], *small, FUNCTIONS[-1]], range(4096), [8, 16])
    case = on_hosts(make_case(workers, known, stages(4096, 8), 4096), dict.fromkeys(range(4096), name))
    traces = {rank: make_trace(tmp_path / f"{rank}.json", 9_000, 3, 20_000, f"{name}%d") for rank in (8, 24)}
    usage = {rank: {"cpu": 0.5, "network": 2e9} for rank in range(4096)}
    page = draw_page(msgspec.structs.replace(case, traces=traces, usage=usage, unread=[name * 9] * 99))
    check(page)
    assert "Timeline of ranks 8 and 24" in page


def test_of_many_functions_those_are_shown_that_matter() -> None:
    """What takes most time, and what is abnormal even where it takes little."""
    small: list[tuple[Kind, list[str], float]] = [
        ("compute", [f"kernel{n}"], 0.01 + 0.0001 * n) for n in range(40)
    ]
    functions = [*FUNCTIONS[:4], *small, FUNCTIONS[-1]]
    workers, known = make_workers(functions, range(12), [3])
    found = cells(draw_page(make_case(workers, known, {})), "Heat map: functions by ranks")
    names = {title.partition("\n")[0] for title in found}
    assert len(names) == MOST_FUNCTIONS
    assert {short_name(READ), GEMM, "kernel39"} <= names
    assert "kernel0" not in names


def test_words_of_the_job_cannot_become_part_of_the_page(tmp_path: Path) -> None:
    """Names of functions, hosts, files and reasons with markup in them are shown as they are."""
    functions = [*FUNCTIONS[:-1], (FUNCTIONS[-1][0], [EVIL, f"{EVIL}.py(3): {EVIL}"], 0.02)]
    workers, known = make_workers(functions, range(8), [5])
    hosts = {rank: f"{EVIL}{rank}" for rank in range(8)}
    case = on_hosts(make_case(workers, known, {}, 8), hosts)
    case = msgspec.structs.replace(
        case,
        about=EVIL,
        unread=[EVIL],
        usage={5: {"cpu": 1.0}},
        traces={5: str(tmp_path / "<b>"), 1: "\x00"},
    )
    assert [each.ranks for each in case.verdict.suspects] == [[5]]
    page = draw_page(case)
    text = check(page).text
    assert "<script>alert('x')</script>" in text
    assert "\x00" not in page
    assert "\u202e" not in page


def test_both_timelines_are_drawn_on_one_scale(tmp_path: Path) -> None:
    """The guilty function is marked where the rank spends its time in it, and blocks are few."""
    traces = {
        5: make_trace(tmp_path / "rank5.json", 30_000, steps=40, kernels=900),
        9: make_trace(tmp_path / "rank9.json", 2_000, kernels=900),
    }
    page = draw_page(msgspec.structs.replace(make_staged(), traces=traces))
    check(page)
    drawing = charts(page)["Timeline of ranks 5 and 9"]
    words = [each.text for each in drawing.iter(f"{SVG}text")]
    assert {"rank 5: suspect", "rank 9: normal, of the same role", "Python", "250 ms"} <= set(words)
    rects = list(drawing.iter(f"{SVG}rect"))
    assert len(rects) <= 2 * 4 * (MOST_BLOCKS + 1)
    marked = [
        float(each.get("width", "0")) for each in rects if each.get("class") in ("python g", "python g f")
    ]
    assert len(marked) == 6
    assert sorted(marked)[3] / sorted(marked)[2] == pytest.approx(15, rel=0.2)
    assert any(READ in each.findtext(f"{SVG}title", "") for each in rects)
    assert len([each for each in drawing.iter(f"{SVG}path") if each.get("class") == "step"]) == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not there"),
        ("", "is empty"),
        ('{"traceEvents": [', "ends in the middle"),
        ("no trace", "has no traceEvents"),
        ('{"traceEvents": [{"ph": "M", "name": "x"}]}', "holds nothing that takes time"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "x", "ts": 1, "dur": 0}]}', "tells no times"),
    ],
)
def test_a_trace_that_cannot_be_read_is_one_line(content: str | None, words: str, tmp_path: Path) -> None:
    """And the rest of the page is there."""
    path = tmp_path / "rank9.json"
    if content is not None:
        path.write_text(content)
    traces = {5: make_trace(tmp_path / "rank5.json", 30_000), 9: str(path)}
    page = draw_page(msgspec.structs.replace(make_staged(), traces=traces))
    assert re.search(
        f"There is no timeline: the trace of rank 9 cannot be drawn: .*{words}", check(page).text
    )
    assert "Heat map: stages by pipelines" in charts(page)


def test_without_a_normal_rank_of_its_role_a_suspect_is_shown_alone(tmp_path: Path) -> None:
    """Rank 4 is of another stage."""
    trace = make_trace(tmp_path / "rank.json", 30_000)
    page = draw_page(msgspec.structs.replace(make_staged(), traces={5: trace, 4: trace}))
    assert "No trace of a normal rank of its role is at hand" in check(page).text
    assert "Timeline of rank 5" in charts(page)


def test_the_guilty_come_first_in_the_table_of_resources() -> None:
    """Marked, with the median above them; what was not measured has no column."""
    usage = {rank: {"cpu": 0.6, "faults": 1234.0, "network": 2.5e9} for rank in range(16)}
    usage[5] = {"cpu": 0.2, "network": 1e3}
    page = draw_page(msgspec.structs.replace(make_staged(), usage=usage))
    (body,) = [each for each in tree_of(page).iter("div") if each.get("class") == "used"]
    rows = [["".join(cell.itertext()) for cell in row] for row in body.iter("tr")]
    assert rows[0] == ["rank", "", "host", "CPU of the training thread", "page faults/s", "network/s"]
    assert rows[1] == ["median", "", "", "60%", "1,234", "2.5 GB"]
    assert rows[2] == ["5", "suspect", "node1", "20%", "", "1 kB"]
    assert rows[3] == ["0", "waits", "node0", "60%", "1,234", "2.5 GB"]
    assert len(rows) == 18


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_has_a_next_step(cause: Cause) -> None:
    """And a card, also for suspects of which little is known."""
    suspect = Suspect(ranks=[1], cause=cause, confidence=0.5)
    text = check(draw_page(with_suspects(suspect))).text
    assert NEXT_STEPS[cause] in text
    assert "not known" in text


def test_the_next_step_is_another_one_where_all_have_it() -> None:
    """Then it is no machine; and slow Python is no slow device."""
    mine = Suspect(ranks=[0, 1], cause="compute", function="job.py(3): think", confidence=0.9)
    assert next_step(mine, 2) == f"{COMMON} {IN_PYTHON}"
    assert next_step(mine, 3) == IN_PYTHON
    assert next_step(msgspec.structs.replace(mine, function="sgemm"), 3) == NEXT_STEPS["compute"]
    assert next_step(Suspect(ranks=[0], cause="link", confidence=0.9), 1) == NEXT_STEPS["link"]


def test_a_link_is_told_by_its_ends() -> None:
    """It has no function, and perhaps no ranks."""
    case = with_suspects(
        Suspect(kind="link", ranks=[], link=(3, 4), cause="link", confidence=0.9, cost_s=1.0)
    )
    assert headline(case) == "link 3-4 is slow; without it 25% of the time would be saved"
    check(draw_page(case))


def test_many_suspects_and_long_names_leave_the_page_readable() -> None:
    """The dearest are told in full; ranks that nobody would read are counted."""
    many = [
        Suspect(ranks=list(range(0, 2000, 2)), function="f" * 50_000, confidence=0.9, evidence=["e" * 50_000])
        for _ in range(50)
    ]
    page = draw_page(with_suspects(*many))
    text = check(page).text
    assert (
        "1,000 ranks (0, 2, 4, 6, 8, 10, 12, 14, …): the cause is not known (49 more suspects below)" in text
    )
    assert "And 38 more that cost less" in text
    assert len(page) < 200_000


def with_suspects(*suspects: Suspect) -> Case:
    """A healthy job with suspects of another's making."""
    case = make_staged(guilty=[])
    verdict: Verdict = msgspec.structs.replace(case.verdict, suspects=list(suspects), findings=[])
    return msgspec.structs.replace(case, verdict=verdict)


def test_all_ranks_are_told_as_all() -> None:
    """Where everybody has it, nobody can be compared with."""
    everybody = Suspect(ranks=list(range(16)), cause="storage", function=READ, confidence=0.9, cost_s=1.0)
    case = with_suspects(everybody)
    assert headline(case) == "all 16 ranks: their storage is slow; without it 25% of the time would be saved"
    uneven = with_suspects(msgspec.structs.replace(everybody, cause="input_imbalance"))
    assert headline(uneven).startswith("all 16 ranks: some have more input than others")
    check(draw_page(case))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("a/b/train.py(12): step", "step (train.py:12)"),
        ("<built-in method read of _io.FileIO object at 0x7f>", "built-in method read of _io.FileIO"),
        ("gemm\n  x", "gemm x"),
        ("k" * 30 + "e" * 30, "k" * 30 + "e…" + "e" * 16),
        ("", ""),
    ],
)
def test_short_names_keep_what_tells(function: str, expected: str) -> None:
    """The function before its file; of long ones both ends."""
    assert short_name(function) == expected


def test_functions_of_one_name_are_told_apart_by_who_differs() -> None:
    """Not by a caller that all have."""
    stacks = [["a.py(1): f", "b.py(2): g", f"nn.Module: Block_{n}"] for n in range(2)]
    assert short_names([*stacks, ["x"]], 42) == ["f (a.py:1) ← Block_0", "f (a.py:1) ← Block_1", "x"]
    assert short_names([["f"], ["f"]], 42) == ["f", "f"]


@pytest.mark.parametrize(("what", "rows"), [("common", 3), ("longer", 1)])
def test_what_is_common_is_framed_whoever_calls_it(what: What, rows: int) -> None:
    """All ways to a function count together where all ranks spend too much on it."""
    paths: list[tuple[Kind, list[str], float]] = [("python", [READ, f"caller{n}"], 0.03) for n in range(3)]
    workers, known = make_workers([*FUNCTIONS[:4], *paths], range(6))
    case = make_case(workers, known, {})
    row = [function.name for function in tabulate(case).functions].index(READ)
    found = Finding(
        row=row, function=READ, kind="python", what=what, ranks=list(range(6)), cost=0.1, score=9.0
    )
    suspect = Suspect(ranks=list(range(6)), function=READ, confidence=0.9)
    verdict = msgspec.structs.replace(case.verdict, suspects=[suspect], findings=[found])
    page = draw_page(msgspec.structs.replace(case, verdict=verdict))
    frames = charts(page)["Heat map: functions by ranks"].iter(f"{SVG}rect")
    assert len([each for each in frames if each.get("class") == "out"]) == rows


def test_levels_are_the_same_to_both_sides() -> None:
    """A step is reached by its value."""
    steps = (0.01, 0.02, 0.05, 0.15)
    assert [level_of(value, steps) for value in (0.0, 0.009, 0.01, 0.06, 9.0)] == [0, 0, 1, 3, 4]
    assert [level_of(-value, steps) for value in (0.0, 0.009, 0.01, 0.06, 9.0)] == [0, 0, -1, -3, -4]


def test_merging_keeps_the_time_and_what_took_most_of_it() -> None:
    """However many blocks there are; a long one is not lost among short ones."""
    blocks = [
        Block(start_us=10.0 * n, end_us=10.0 * n + 5, names={f"f{n % 7}": 5.0}, count=1) for n in range(5000)
    ]
    blocks[2500] = Block(start_us=25_000.0, end_us=25_009.0, names={"long": 90_000.0})
    merged = merge(blocks, 1.0, 50)
    assert len(merged) <= 50
    assert sum(block.count for block in merged) == 5000
    assert (merged[0].start_us, merged[-1].end_us) == (0.0, 49_995.0)
    assert "long" in {block.name for block in merged}
