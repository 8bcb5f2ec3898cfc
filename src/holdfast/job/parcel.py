"""A tree of plain values and tensors as bytes: msgpack for the tree, the tensors' own memory after it.

Nothing that arrives is executed: a tree is made of None, truth values, numbers, text, bytes, lists, tuples,
dictionaries and counters, and of tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from holdfast.errors import InputError

_TENSOR, _TUPLE, _COUNTER = 1, 2, 3
_PLAIN = (type(None), bool, int, float, str, bytes)


class Form(NamedTuple):
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape}"

    @property
    def size_bytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Packed(NamedTuple):
    """A tree without its tensors, and those in the order in which they are met."""

    tree: bytes
    tensors: list[Tensor]


def pack(value: Any) -> Packed:
    """Take a tree apart; ``InputError`` names what cannot travel."""
    tensors: list[Tensor] = []
    return Packed(msgspec.msgpack.encode(_fold(value, tensors, "")), tensors)


def unpack(tree: bytes, tensors: Sequence[Tensor]) -> Any:
    """Put a tree together again."""
    return _unfold(tree, tensors)


def encode_forms(forms: Sequence[Form]) -> list[tuple[list[int], str]]:
    """Return shapes and types as they are told to others."""
    return [(list(form.shape), str(form.dtype).removeprefix("torch.")) for form in forms]


def decode_forms(rows: Sequence[tuple[Sequence[int], str]]) -> list[Form]:
    """Return the forms that were told; ``InputError`` if there is no such type, or no such shape."""
    found = []
    for shape, name in rows:
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise InputError(f"{name!r} is no type of a tensor")
        if min(shape, default=0) < 0:
            raise InputError(f"{list(shape)} is no shape of a tensor")
        found.append(Form(tuple(shape), dtype))
    return found


def form_of(tensor: Tensor) -> Form:
    """Return the shape and type of a tensor."""
    return Form(tuple(tensor.shape), tensor.dtype)


def memory_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor of this machine's memory that is in one piece."""
    if not tensor.numel():
        return memoryview(bytearray())
    array: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _fold(value: Any, tensors: list[Tensor], path: str) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return msgspec.msgpack.Ext(_TENSOR, (len(tensors) - 1).to_bytes(4, "big"))
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        folded = {_key(key, path): _fold(each, tensors, f"{path}.{key}") for key, each in value.items()}
        return _ext(_COUNTER, folded) if isinstance(value, Counter) else folded
    if isinstance(value, list | tuple):
        items = [_fold(each, tensors, f"{path}[{place}]") for place, each in enumerate(value)]
        return items if isinstance(value, list) else _ext(_TUPLE, items)
    where = path.lstrip(".") or "the state"
    raise InputError(f"{where} is of type {type(value).__name__}, expected a tensor or a plain value")


def _key(key: Any, path: str) -> Any:
    if type(key) not in (int, str):
        raise InputError(f"{path.lstrip('.') or 'the state'} has a key of type {type(key).__name__}")
    return key


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def _unfold(data: bytes | memoryview, tensors: Sequence[Tensor]) -> Any:
    def grow(code: int, inner: memoryview) -> Any:
        if code == _TENSOR:
            return tensors[int.from_bytes(inner, "big")]
        if code == _TUPLE:
            return tuple(_unfold(inner, tensors))
        if code == _COUNTER:
            return Counter(_unfold(inner, tensors))
        raise InputError(f"a value of kind {code} in the state of a stage, expected 1 to 3")

    return msgspec.msgpack.decode(data, ext_hook=grow)
