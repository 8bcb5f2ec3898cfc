"""The terminal, behind a queue, so that one that stands still cannot hold up anybody's training."""

from __future__ import annotations

import queue
import threading

from holdfast.guard.say import write_all

_LIMIT_BYTES = 16 * 2**20


class Console:
    """Takes whole lines from any thread and writes them from its own."""

    def __init__(self) -> None:
        self.dropped = 0
        """Pieces of output that did not fit because the terminal was too slow."""
        self._queue: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write, name="holdfast-console", daemon=True)
        self._thread.start()

    def put(self, fd: int, data: bytes) -> None:
        """Hand over whole lines for a descriptor; never waits."""
        with self._lock:
            if self._waiting_bytes + len(data) > _LIMIT_BYTES:
                self.dropped += 1
                return
            self._waiting_bytes += len(data)
        self._queue.put((fd, data))

    def close(self, timeout_s: float) -> None:
        """Write what is queued, but wait no longer than the time-out."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.dropped += self._queue.qsize()  # The mark of the end stands for the piece being written.

    def _write(self) -> None:
        gone: set[int] = set()
        while (item := self._queue.get()) is not None:
            fd, data = item
            with self._lock:
                self._waiting_bytes -= len(data)
            if fd in gone:
                continue
            try:
                write_all(fd, data)
            except OSError:  # Its reader is gone; the files have it all.
                gone.add(fd)
