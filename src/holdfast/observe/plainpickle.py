"""Pickles of plain data, read without Python's unpickler: nothing in them can be called or imported.

Only numbers, strings, None, booleans, lists, tuples and dictionaries with string keys are known; every other
instruction is refused by name. Lengths are checked against what is left of the data before anything is
allocated, memo indices are keys of a dictionary rather than sizes of an array, and the number of values is
bounded, so memory stays within a small multiple of the file.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any, NoReturn

MOST_VALUES = 20_000_000
"""A dump of 20,000 operations with stacks has about two million."""
_LONGEST_INT_BYTES = 16

_FIXED: dict[int, tuple[struct.Struct, str]] = {
    ord("J"): (struct.Struct("<i"), "BININT"),
    ord("K"): (struct.Struct("<B"), "BININT1"),
    ord("M"): (struct.Struct("<H"), "BININT2"),
    ord("G"): (struct.Struct(">d"), "BINFLOAT"),
}
_LENGTHS = {
    ord("X"): struct.Struct("<I"),  # BINUNICODE
    0x8C: struct.Struct("<B"),  # SHORT_BINUNICODE
    0x8D: struct.Struct("<Q"),  # BINUNICODE8
}
_CONSTANTS: dict[int, object] = {ord("N"): None, 0x88: True, 0x89: False}
_INDICES = {
    ord("q"): struct.Struct("<B"),  # BINPUT
    ord("r"): struct.Struct("<I"),  # LONG_BINPUT
    ord("h"): struct.Struct("<B"),  # BINGET
    ord("j"): struct.Struct("<I"),  # LONG_BINGET
}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}


class _Mark:
    """Where a list of values begins on the stack."""


_MARK = _Mark()


def read_plain(data: bytes, most_values: int = MOST_VALUES) -> Any:
    """Return the value that a pickle of plain data holds; ValueError says what is wrong with any other."""
    return _Reader(data, most_values).read()


class _Reader:
    def __init__(self, data: bytes, most_values: int) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left = most_values

    def read(self) -> Any:
        while (code := self._take(1)[0]) != ord("."):
            self._step(code)
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            self._fail("ends with other than one value")
        return self._stack[0]

    def _step(self, code: int) -> None:  # noqa: PLR0912 - one case for each family of instructions.
        if code in _INDICES:
            self._use_memo(code)
        elif code in _LENGTHS:
            self._push(self._text(_LENGTHS[code]))
        elif code in _FIXED:
            self._push(self._number(_FIXED[code][0]))
        elif code in _CONSTANTS:
            self._push(_CONSTANTS[code])
        elif code in b"(":
            self._push(_MARK)
        elif code in b"]}":
            self._push([] if code == ord("]") else {})
        elif code in b")":
            self._push(())
        elif code in _TUPLES:
            self._push(tuple(reversed([self._pop() for _ in range(_TUPLES[code])])))
        elif code in b"t":
            self._push(tuple(self._since_mark()))
        elif code in b"ae":
            items = [self._pop()] if code == ord("a") else self._since_mark()
            self._top(list).extend(items)
        elif code in b"su":
            self._set_items([self._pop(), self._pop()][::-1] if code == ord("s") else self._since_mark())
        elif code == 0x8A:
            self._push(self._long())
        elif code == 0x94:
            self._memo[len(self._memo)] = self._top(object)
        elif code == 0x80:
            self._take(1)
        elif code == 0x95:
            self._take(8)
        else:
            self._fail(f"uses {_NAMES.get(code, hex(code))}, expected plain data")

    def _use_memo(self, code: int) -> None:
        index = self._number(_INDICES[code])
        if code in b"qr":
            self._memo[index] = self._top(object)
        elif index in self._memo:
            self._push(self._memo[index])
        else:
            self._fail(f"refers to value {index}, which it never stored")

    def _set_items(self, items: list[Any]) -> None:
        # Only strings are keys: the hash of nested tuples can take longer than the age of the universe.
        if len(items) % 2 or not all(type(key) is str for key in items[::2]):
            self._fail("has a key that is no string")
        self._top(dict).update(zip(items[::2], items[1::2], strict=True))

    def _text(self, length: struct.Struct) -> str:
        try:
            return self._take(self._number(length)).decode("utf-8")
        except UnicodeDecodeError:
            self._fail("has a string that is not UTF-8")

    def _long(self) -> int:
        size = self._take(1)[0]
        if size > _LONGEST_INT_BYTES:
            self._fail(f"has a number of {size} bytes, expected at most {_LONGEST_INT_BYTES}")
        return int.from_bytes(self._take(size), "little", signed=True)

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            self._fail(f"is cut off: {size} bytes expected, {len(self._data) - self._at} left")
        part = self._data[self._at : end]
        self._at = end
        return part

    def _push(self, value: Any) -> None:
        self._left -= 1
        if self._left < 0:
            self._fail("holds more values than any dump does")
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            self._fail("takes a value that is not there")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or self._stack[-1] is _MARK or not isinstance(self._stack[-1], kind):
            self._fail(f"expects a {kind.__name__} that is not there")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        start = len(self._stack) - 1
        while start >= 0 and self._stack[start] is not _MARK:
            start -= 1
        if start < 0:
            self._fail("ends a list that never began")
        items = self._stack[start + 1 :]
        del self._stack[start:]
        return items

    def _fail(self, why: str) -> NoReturn:
        raise ValueError(f"the pickle {why} (byte {self._at})")
