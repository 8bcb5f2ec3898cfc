"""find_lines: which line of code a rank spends its time in that the others do not, and of what kind it is."""

from __future__ import annotations

import pytest

from holdfast.diagnose.lines import find_lines
from holdfast.findings import Cause
from holdfast.telemetry import Lines, LineSeen


def seen(count: int, line: int = 10, source: str = "loss.backward()", *inner: str) -> LineSeen:
    """Return a line that was seen so often."""
    return LineSeen(
        count=count, file="/job/train.py", line=line, function="step", source=source, inner=list(inner)
    )


def told(rank: int, *lines: LineSeen, samples: int = 100) -> Lines:
    """Return a rank's answer."""
    return Lines(ask="a", rank=rank, samples=samples, lines=list(lines), stack=[])


def cause_of(source: str, *inner: str) -> Cause:
    """Return what a line is taken for when one of two ranks spends its time there."""
    answers = {0: told(0, seen(80, 7, source, *inner)), 1: told(1, seen(80))}
    return find_lines(answers)[0][0].cause


def test_a_line_that_only_one_rank_is_in_is_told() -> None:
    """With its place, its share of the time, and what it says."""
    answers = {rank: told(rank, seen(90)) for rank in (0, 2, 3)}
    answers[1] = told(1, seen(60, 7, "time.sleep(0.1)"), seen(40))
    found = find_lines(answers)
    assert found[0] == found[2] == found[3] == []
    assert [(sign.cause, sign.function) for sign in found[1]] == [("compute", "train.py:7 step")]
    assert found[1][0].strength == pytest.approx(0.6)
    assert found[1][0].evidence == (
        "it is in train.py:7 step for 60% of the time, the others for 0%: time.sleep(0.1)"
    )


def test_a_line_that_all_are_in_is_not_told() -> None:
    """Everybody's backward pass is nobody's fault."""
    found = find_lines({rank: told(rank, seen(80 + rank)) for rank in range(4)})
    assert found == {rank: [] for rank in range(4)}


def test_a_line_seen_from_several_places_is_one_line() -> None:
    """What it calls differs, what it costs adds up; the more frequent one says what it is."""
    mine = told(0, seen(30, 7, "x = load()", "f: a()"), seen(50, 7, "x = load()", "g: handle.read(8)"))
    signs = find_lines({0: mine, 1: told(1, seen(80))})[0]
    assert [(sign.cause, round(sign.strength, 2)) for sign in signs] == [("storage", 0.8)]


def test_the_line_that_takes_most_comes_first() -> None:
    """Lines are in the order of what they explain."""
    mine = told(0, seen(30, 5, "a()"), seen(60, 6, "b()"))
    signs = find_lines({0: mine, 1: told(1, seen(99))})[0]
    assert [sign.function for sign in signs] == ["train.py:6 step", "train.py:5 step"]


def test_few_samples_tell_nothing() -> None:
    """A rank that could hardly be looked at is neither told of nor compared with."""
    few = told(1, seen(3, 7, "x()"), samples=3)
    assert find_lines({0: told(0, seen(90)), 1: few}) == {}
    assert find_lines({0: told(0, seen(90))}) == {}
    assert find_lines({}) == {}


@pytest.mark.parametrize(
    "source",
    [
        "data = self.file.read(size)",
        "with open(path, 'rb') as handle:",
        "image = Image.open(path)",
        "image = cv2.imread(name)",
        "rows = handle.readlines()",
        "text = path.read_text()",
        "frame = pd.read_parquet(path)",
        "frame = pd.read_csv(path)",
        "array = np.load(path, mmap_mode='r')",
        "tokens = np.memmap(name, dtype=np.uint16)",
        "tokens = np.fromfile(handle, dtype=np.uint16)",
        "state = torch.load(path, weights_only=True)",
        "torch.save(model.state_dict(), path)",
        "zip_file.write_record(name, storage, num_bytes)",
        "tensors = load_file(path)",
        "os.fsync(handle.fileno())",
        "os.pread(fd, 4096, offset)",
        "body = client.get_object(Bucket=bucket, Key=key)",
        "shutil.copy(source, target)",
        "shutil.copyfileobj(one, other)",
    ],
)
def test_lines_that_read_and_write_are_storage(source: str) -> None:
    """Lines as scripts and libraries have them."""
    assert cause_of(source) == "storage"


@pytest.mark.parametrize(
    "source",
    [
        "x = spread(y)",
        "worker = threading.Thread(target=run)",
        "thread(f)",
        "already(done)",
        "reopen(it)",
        "self.is_open(x)",
        "torch.loads(x)",
        "threads = torch.get_num_threads()",
        "y = model.read_head(x)",
        "overwrite(x)",
        "sys.stdout.write(line)",
        "sys.stderr.write(line)",
        "chunk = read(handle, remaining)",
        "n = write(self._handle, buf)",
        "out = self.readout(x)",
        "loss = criterion(model(x), y)",
        "collect(batch)",
        "x = torch.copysign(a, b)",
        "optimizer.step()",
    ],
)
def test_lines_that_only_look_like_it_have_no_known_kind(source: str) -> None:
    """A word within a word is not that word; pipes and the terminal are no storage."""
    assert cause_of(source) == "unknown"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("gc.collect()", "garbage_collection"),
        ("buffer = x.clone()", "host_memory"),
        ("target.copy_(source)", "host_memory"),
        ("np.copyto(a, b)", "host_memory"),
        ("model = copy.deepcopy(model)", "host_memory"),
        ("x = x.pin_memory()", "host_memory"),
    ],
)
def test_other_kinds_of_lines_are_known(source: str, cause: Cause) -> None:
    """Collections of garbage, and copies of memory."""
    assert cause_of(source) == cause


def test_what_a_line_calls_tells_its_kind() -> None:
    """The line of the script asks for a batch; deep within a file is read."""
    assert cause_of("batch = next(batches)", "__getitem__: row = self.file.read(n)") == "storage"
