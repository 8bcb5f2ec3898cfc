"""Adding up the gradients of many micro-batches on many workers: as floats, or exactly.

Floating-point sums depend on their order, and a failure changes who adds what when. ``ExactSum`` turns
every gradient into a 64-bit integer first, and integers commute. The grid of a tensor is a power of two
that follows from the largest magnitude seen in the last committed step, so it is a function of committed
state alone.

The conversion is one addition: for ``C = 1.5 * 2**(52 + e)`` the double ``g + C`` is g rounded to a
multiple of ``2**e``, and its bits, read as an integer, are those of C plus that multiple. Rounding is
against the constant C and so does not depend on what has been summed before.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from holdfast.job.mesh import Mesh

MANTISSA_BITS = 51
"""What fits on either side of C without leaving its binade."""
HEADROOM_BITS = 8
"""How much larger than in the last step a gradient may be before the step has to be computed again."""
_CEILING = 2.0**1000
"""A double from here on counts as infinite: the constant of its grid would be."""
_CHUNK = 1 << 17
"""Values converted at a time, so that the intermediate result stays in the cache."""


class Reduced:
    """The gradient of a step, the same on all workers of a stage."""

    def __init__(self, gradients: list[Tensor | None]) -> None:
        self.gradients = gradients
        """One per parameter; None where no micro-batch used it."""
        self.overflowed = False
        self.magnitudes: list[float] = []
        """Largest magnitude of any micro-batch, per parameter; only known to an exact sum."""
        self.exponents: list[int] | None = None
        """Of the grids that an exact sum was made on."""

    def square(self) -> float:
        """Return the sum of squares, infinite if any micro-batch had a value that was not finite."""
        if math.inf in self.magnitudes:
            return math.inf
        norms = [torch.linalg.vector_norm(each) for each in self.gradients if each is not None]
        if not norms:
            return 0.0
        return float(torch.stack(norms).to(torch.float64).square().sum())


class FloatSum:
    """Lets autograd add up in ``.grad``; equal to rounding, whatever happens."""

    exponents: list[int] | None = None

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._buffers: list[list[Tensor]] = []
        self._flats: list[Tensor] = []
        self._turn = 0

    def add(self) -> None:
        """Take in the gradients of a micro-batch: they are where they should be."""

    def clear(self) -> None:
        """Forget what was added."""
        for parameter in self._parameters:
            parameter.grad = None

    def reduce(self, mesh: Mesh) -> Reduced:
        """Add up over the stage; when it returns, every live peer holds the same."""
        gradients = [parameter.grad for parameter in self._parameters]
        if len(mesh.peers) > 1:
            used = torch.tensor([float(each is not None) for each in gradients])
            views, flat = self._next_buffer()
            torch._foreach_copy_(views, [_or_zero(g, v) for g, v in zip(gradients, views, strict=True)])
            mesh.sum_stage(flat)
            mesh.max_stage(used)
            # Added up as single floats; a gradient has the type of its parameter.
            gradients = [
                view.to(parameter.dtype) if is_used else None
                for parameter, view, is_used in zip(self._parameters, views, used.tolist(), strict=True)
            ]
        self.clear()
        return Reduced(gradients)

    def _next_buffer(self) -> tuple[list[Tensor], Tensor]:
        """Return one of two buffers in turn: the gradient of the last step may still be needed."""
        if not self._flats:
            for _ in range(2):
                flat, views = _flat_views(self._parameters, torch.float32)
                self._flats.append(flat)
                self._buffers.append(views)
        self._turn ^= 1
        return self._buffers[self._turn], self._flats[self._turn]


class ExactSum:
    """Adds up in integers; the same to the last bit, whoever added what."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, terms: int) -> None:
        self._parameters = parameters
        self._bits = min(MANTISSA_BITS, 62 - math.ceil(math.log2(max(terms, 1))))
        """So that a sum of ``terms`` values fits into 63 bits."""
        self._flat, self._views = _flat_views(parameters, torch.int64)
        self._starts = [0, *itertools.accumulate(each.numel() for each in parameters)]
        """Where each parameter begins in the flat sum."""
        self._magnitudes = torch.zeros(len(parameters), dtype=torch.float64, device=self._flat.device)
        self._used = [False] * len(parameters)
        self._counts = [0] * len(parameters)
        self._scratch = torch.empty(_CHUNK, dtype=torch.float64, device=self._flat.device)
        self.exponents: list[int] | None = None
        """Of each parameter's grid; None before the first step, which is computed once for the magnitudes."""

    def add(self) -> None:
        """Take in the gradients of a micro-batch, and leave none."""
        gradients = {
            index: parameter.grad
            for index, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }
        for index in gradients:
            self._used[index] = True
            self._parameters[index].grad = None
        full = {index: gradient for index, gradient in gradients.items() if gradient.numel()}
        if full:
            self._note_magnitudes(full)
            for run in self._runs(full) if self.exponents is not None else ():
                self._add(run, full)

    def clear(self) -> None:
        """Forget what was added."""
        for parameter in self._parameters:
            parameter.grad = None
        self._flat.zero_()
        self._magnitudes.zero_()
        self._used = [False] * len(self._used)
        self._counts = [0] * len(self._counts)

    def reduce(self, mesh: Mesh) -> Reduced:
        """Add up over the stage; when it returns, every live peer holds the same."""
        self._remove_constants()
        mesh.sum_stage(self._flat)
        # Not a number, which would get lost in a maximum, is not below anything.
        seen = torch.where(self._magnitudes < _CEILING, self._magnitudes, math.inf)
        seen[[not used for used in self._used]] = -1.0
        mesh.max_stage(seen)
        magnitudes: list[float] = seen.tolist()
        gradients = [self._gradient(index, magnitude) for index, magnitude in enumerate(magnitudes)]
        reduced = Reduced(gradients)
        reduced.overflowed, reduced.magnitudes = self._overflowed(magnitudes), magnitudes
        reduced.exponents = self.exponents
        self.clear()
        return reduced

    def exponents_after(self, magnitudes: list[float]) -> list[int]:
        """Return the grids that the step after one with these magnitudes uses."""
        return exponents_of(magnitudes, bits=self._bits)

    def exponents_for(self, reduced: Reduced) -> list[int]:
        """Return the grids with which a step that overflowed fits: those it had where they did."""
        fresh = self.exponents_after(reduced.magnitudes)
        if reduced.exponents is None:
            return fresh
        return [
            old if magnitude < self._limit(old) else new
            for old, new, magnitude in zip(reduced.exponents, fresh, reduced.magnitudes, strict=True)
        ]

    def _note_magnitudes(self, gradients: dict[int, Tensor]) -> None:
        lows, highs = zip(*(torch.aminmax(each) for each in gradients.values()), strict=True)
        largest = torch.maximum(torch.stack(highs), -torch.stack(lows)).to(torch.float64)
        places = list(gradients)
        self._magnitudes[places] = torch.maximum(self._magnitudes[places], largest)

    def _runs(self, gradients: dict[int, Tensor]) -> Iterator[list[int]]:
        """Yield neighbours that fit into the scratch together, and what does not fit alone."""
        run: list[int] = []
        size = 0
        for index, gradient in gradients.items():
            if run and (index != run[-1] + 1 or size + gradient.numel() > _CHUNK):
                yield run
                run, size = [], 0
            run.append(index)
            size += gradient.numel()
        yield run

    def _add(self, run: list[int], gradients: dict[int, Tensor]) -> None:
        assert self.exponents is not None
        for index in run:
            self._counts[index] += 1
        sources = [gradients[index].reshape(-1) for index in run]
        constants = [_constant(self.exponents[index]) for index in run]
        first = self._starts[run[0]]
        for start in range(0, sum(each.numel() for each in sources), _CHUNK):
            # More than one chunk has only a run of one.
            parts = [each[start : start + _CHUNK] for each in sources]
            sizes = [each.numel() for each in parts]
            scratch = self._scratch[: sum(sizes)]
            pieces = torch.split(scratch, sizes)
            # First to doubles, then the addition: in one call it is several times slower.
            torch._foreach_copy_(pieces, parts)
            torch._foreach_add_(pieces, constants)
            target = self._flat[first + start : first + start + scratch.numel()]
            target.add_(scratch.view(torch.int64))

    def _remove_constants(self) -> None:
        if self.exponents is None:
            return
        for view, count, exponent in zip(self._views, self._counts, self.exponents, strict=True):
            if count:
                view.sub_(_wrap(count * _bits_of(_constant(exponent))))

    def _gradient(self, index: int, magnitude: float) -> Tensor | None:
        if magnitude < 0 or self.exponents is None:
            return None
        parameter = self._parameters[index]
        values = self._views[index].to(torch.float64).mul_(2.0 ** self.exponents[index])
        return values.to(parameter.dtype).view_as(parameter)

    def _overflowed(self, magnitudes: list[float]) -> bool:
        if self.exponents is None:
            return math.inf not in magnitudes
        # What is not finite is no overflow: no grid would help.
        return any(
            math.isfinite(magnitude) and magnitude >= self._limit(exponent)
            for magnitude, exponent in zip(magnitudes, self.exponents, strict=True)
        )

    def _limit(self, exponent: int) -> float:
        return math.ldexp(1.0, self._bits + exponent)


GradientSum = FloatSum | ExactSum


def exponents_of(magnitudes: Sequence[float], *, bits: int) -> list[int]:
    """Return the grid of each tensor: fine, but with room for values that are some bits larger.

    A tensor that had no gradient but zeros gets the grid of the largest one.
    """
    known = [magnitude for magnitude in magnitudes if 0 < magnitude < math.inf]
    top = max(known, default=1.0)
    return [
        math.frexp(magnitude if 0 < magnitude < math.inf else top)[1] + HEADROOM_BITS - bits
        for magnitude in magnitudes
    ]


def _constant(exponent: int) -> float:
    return math.ldexp(1.5, 52 + exponent)


def _bits_of(value: float) -> int:
    found: int = struct.unpack("=q", struct.pack("=d", value))[0]
    return found


def _wrap(value: int) -> int:
    """Return the number that 64 bits hold in its place."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _flat_views(parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    device = parameters[0].device if parameters else torch.device("cpu")
    flat = torch.zeros(sum(each.numel() for each in parameters), dtype=dtype, device=device)
    pieces = torch.split(flat, [each.numel() for each in parameters])
    if dtype == torch.int64:
        return flat, list(pieces)
    return flat, [piece.view_as(each) for piece, each in zip(pieces, parameters, strict=True)]


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient
