"""Cut a stream of bytes into whole lines, with progress bars thinned out."""

from __future__ import annotations

import re

_LONGEST_BYTES = 64 * 1024
"""A longer line is cut, so that a worker that never ends its line cannot fill the memory."""
_BAR_EVERY_S = 1.0


class Lines:
    """One stream; feed it what was read, get the lines that are complete, without their ends.

    A piece that ends in a carriage return is a progress bar about to be overwritten: of those one a
    second is passed on, so that the output of many ranks stays readable. Real lines all are.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._bar_s = float("-inf")
        self._was_cut = False

    def feed(self, data: bytes, now_s: float) -> list[bytes]:
        """Return the lines completed by the data."""
        text = (self._rest + data).replace(b"\r\n", b"\n")
        # The next byte decides whether a carriage return at the very end is half of a line's end.
        held = b"\r" if text.endswith(b"\r") else b""
        *pieces, rest = re.split(rb"([\r\n])", text.removesuffix(held))
        self._rest = rest + held
        lines = []
        for piece, end in zip(pieces[::2], pieces[1::2], strict=True):
            was_cut, self._was_cut = self._was_cut, False
            if not piece and was_cut:
                continue  # The end of a line that was passed on before it ended.
            if end == b"\n" or self._is_bar_due(piece, now_s):
                lines.append(piece)
        if len(self._rest) > _LONGEST_BYTES:
            lines += self.close()
            self._was_cut = True
        return lines

    def close(self) -> list[bytes]:
        """Return what was left without an end."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return [rest] if rest else []

    def _is_bar_due(self, piece: bytes, now_s: float) -> bool:
        if not piece.strip() or now_s - self._bar_s < _BAR_EVERY_S:
            return False
        self._bar_s = now_s
        return True
