"""Where the bytes of a command come from and go to: kept in part, or written to a file."""

from collections.abc import AsyncIterator, Callable
from typing import IO

Sink = Callable[[bytes], None]

CHUNK = 64 * 1024


class TransferTooLargeError(Exception):
    """A download passed its cap."""


class Capture:
    """Keeps the first and the last half of `limit` bytes: neither beginning nor verdict of a long output is lost."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def __call__(self, data: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        extra = len(self._tail) - self._half
        if extra > 0:
            del self._tail[:extra]
            self.dropped += extra

    def text(self) -> str:
        """Decoded once, at the end: a character split over two frames survives."""
        self._trim()
        if not self.dropped:
            return bytes(self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {self.dropped} bytes omitted ...]\n{tail}"


class FileSink:
    """Writes to a file up to a cap: an agent can fill /logs without end."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._left = limit

    def __call__(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise TransferTooLargeError(
                "the download is larger than the transfer limit; write less to /logs and artifacts"
            )
        self._file.write(data)


async def chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := file.read(CHUNK):
        yield data
