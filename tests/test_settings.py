"""Settings: the last one to speak wins, everybody's word is remembered, and errors are one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import InputError
from holdfast.settings import Effective, load


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a room that does not exist."""

    depth: int = 1
    name: str | None = None
    is_loud: bool = False
    wait_s: float = 2.5

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth is {self.depth}, expected 0 or more")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file that is not there yet."""
    return tmp_path / "holdfast.toml"


def _load(
    file: Path, env: dict[str, str] | None = None, flags: dict[str, Any] | None = None
) -> tuple[Knobs, dict[str, Effective]]:
    return load(Knobs, table="room", env=env or {}, flags=flags or {}, file=file)


def test_defaults_hold_where_nobody_speaks(file: Path) -> None:
    """No file, no variable, no flag: the defaults, said to be such."""
    settings, effective = _load(file)
    assert settings == Knobs()
    assert effective == {
        "depth": Effective(value=1, origin="default"),
        "name": Effective(value=None, origin="default"),
        "is_loud": Effective(value=False, origin="default"),
        "wait_s": Effective(value=2.5, origin="default"),
    }


@pytest.mark.parametrize("is_flag", [False, True])
@pytest.mark.parametrize("is_env", [False, True])
@pytest.mark.parametrize("is_file", [False, True])
def test_a_flag_beats_a_variable_beats_the_file(
    file: Path, is_file: bool, is_env: bool, is_flag: bool
) -> None:
    """Of those who speak, the strongest is in force, and is named as the origin."""
    file.write_text("[room]\ndepth = 2\n" if is_file else "[another]\ndepth = 9\n")
    settings, effective = _load(
        file, {"HOLDFAST_DEPTH": "3"} if is_env else {}, {"depth": 4 if is_flag else None}
    )
    told = [(1, "default")]
    told += [(2, str(file))] * is_file + [(3, "HOLDFAST_DEPTH")] * is_env + [(4, "flag")] * is_flag
    assert (settings.depth, effective["depth"].origin) == told[-1]
    assert effective["depth"].value == settings.depth


def test_values_come_in_their_types(file: Path) -> None:
    """Text of variables becomes numbers and truth values; the effective value is the converted one."""
    env = {"HOLDFAST_DEPTH": "7", "HOLDFAST_IS_LOUD": "true", "HOLDFAST_WAIT_S": "3", "HOLDFAST_NAME": "12"}
    settings, effective = _load(file, env)
    assert settings == Knobs(depth=7, name="12", is_loud=True, wait_s=3.0)
    assert effective["wait_s"] == Effective(value=3.0, origin="HOLDFAST_WAIT_S")


def test_an_empty_variable_says_nothing(file: Path) -> None:
    """``HOLDFAST_DEPTH=`` in a script is the same as no such variable."""
    assert _load(file, {"HOLDFAST_DEPTH": ""})[1]["depth"].origin == "default"


def test_a_flag_of_false_or_zero_is_still_a_flag(file: Path) -> None:
    """Only None means that the flag was not given."""
    settings, effective = _load(file, {"HOLDFAST_IS_LOUD": "true"}, {"is_loud": False, "wait_s": 0.0})
    assert (settings.is_loud, settings.wait_s, effective["is_loud"].origin) == (False, 0.0, "flag")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[room\n", "cannot be read: "),
        ("[room]\ndepth = 1\ndepth = 2\n", "cannot be read: "),
        ("[room]\ndeep = 1\n", "[room] has no setting 'deep', expected one of depth, name, is_loud, wait_s"),
        ("room = 3\n", "'room' is 3, expected a table [room]"),
        ("[room]\ndepth = 'x'\n", "depth is 'x': "),
        ("[room]\ndepth = 1.5\n", "depth is 1.5: "),
        ("[room]\nname = 3\n", "name is 3: "),
        ("[room]\nwait_s = true\n", "wait_s is True: "),
        ("[[room]]\ndepth = 1\n", "expected a table [room]"),
    ],
)
def test_a_bad_file_is_named_with_the_value_in_one_line(file: Path, text: str, words: str) -> None:
    """The line begins with the file's name and says what was expected."""
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        _load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert words in message
    assert "\n" not in message


def test_a_file_that_is_not_text_is_named(file: Path) -> None:
    """Bytes that are not UTF-8 are bad input, no crash."""
    file.write_bytes(b"[room]\nname = '\xff\xfe'\n")
    with pytest.raises(InputError, match="cannot be read"):
        _load(file)


def test_a_folder_in_place_of_the_file_is_named(file: Path) -> None:
    """It cannot be read, and that is said."""
    file.mkdir()
    with pytest.raises(InputError, match=r"cannot be read: .*Is a directory"):
        _load(file)


def test_a_bad_variable_is_named(file: Path) -> None:
    """The line begins with the variable."""
    with pytest.raises(InputError, match=r"^HOLDFAST_DEPTH: depth is 'many': Expected `int`"):
        _load(file, {"HOLDFAST_DEPTH": "many"})


def test_a_value_refused_by_the_room_says_where_it_came_from(file: Path) -> None:
    """A check of the Struct itself ends in the same kind of line, with the origin."""
    with pytest.raises(InputError, match=r"depth is -1, expected 0 or more") as caught:
        _load(file, {"HOLDFAST_DEPTH": "-1"})
    assert "HOLDFAST_DEPTH" in str(caught.value)
