"""Lines out of a stream of bytes, in bounded memory and linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Line", "Lines"]


@frozen
class Line:
    """One line without its end. `cut` says that it was longer than the limit, and what was over is gone."""

    data: bytes
    cut: bool = False


class Lines:
    """Takes chunks, gives lines. A line ends at a line feed, and nowhere else; of one only `limit` bytes are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._cut = False

    def feed(self, chunk: bytes | bytearray) -> Iterator[Line]:
        """The lines that are complete with this chunk."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def end(self) -> Iterator[Line]:
        """What is left when the stream has ended."""
        if self._kept:
            yield self._take()

    def _add(self, part: bytes | bytearray) -> None:
        room = self._limit - len(self._kept)
        self._kept += part[:room]
        self._cut |= len(part) > room

    def _take(self) -> Line:
        line = Line(bytes(self._kept), self._cut)
        self._kept.clear()
        self._cut = False
        return line
