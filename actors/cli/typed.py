"""What a person types in a chat: lines, each with what was to be seen when it was begun.

An answer counts for the question that was shown when it was typed. What is typed waits in the terminal or the pipe
until it is read, and a question may be shown meanwhile; so whoever shows one has everything read that is there first
(`catch_up`). Where a system cannot say whether anything is there, lines are read one by one, when they are wanted.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from typing import IO, TYPE_CHECKING, Any, Final

import trio
from attrs import Factory, define, frozen

from quiesce.actors.cli.inputs import decoded

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Line", "Typed"]

_CHUNK: Final = 65_536


@frozen
class Line:
    """One line, without the white space around it, and what was seen when its first character came."""

    text: str
    seen: object


@define
class Typed:
    """The lines of standard input, as an async iterator. `sees` says what is to be seen at the moment."""

    sees: Callable[[], object]
    tell: Callable[[str], object]
    _stream: IO[bytes] = Factory(lambda: sys.stdin.buffer)
    _lines: deque[Line] = Factory(deque)
    _begun: bytes = b""
    _seen: object = None
    _over: bool = False

    def catch_up(self) -> None:
        """Take what is there by now. It does not wait."""
        while not self._over and _is_ready(self._stream):
            self._take(os.read(self._stream.fileno(), _CHUNK))

    def __aiter__(self) -> Typed:
        return self

    async def __anext__(self) -> Line:
        while not self._lines:
            if self._over:
                raise StopAsyncIteration
            await self._take_more()
        return self._lines.popleft()

    async def _take_more(self) -> None:
        if _is_ready(self._stream) is None:
            self._take(await trio.to_thread.run_sync(self._stream.readline, abandon_on_cancel=True))
            return
        try:
            await trio.lowlevel.wait_readable(self._stream.fileno())
        except PermissionError:  # what epoll says of a file, which never has one wait
            await trio.lowlevel.checkpoint()
        self.catch_up()

    def _take(self, data: bytes) -> None:
        if not self._begun:
            self._seen = self.sees()
        *ended, self._begun = (self._begun + data).split(b"\n")
        if not data:
            self._over = True
            ended, self._begun = [self._begun] if self._begun else [], b""
        for line in ended:
            self._lines.append(Line(decoded(line, self._tell_once).strip(), self._seen))
            self._seen = self.sees()

    def _tell_once(self, words: str) -> None:
        self.tell(words)
        self.tell = _nothing


def _nothing(_: str) -> None:
    pass


def _is_ready(stream: IO[Any]) -> bool | None:
    """Whether a read would not wait; None where that cannot be known."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return None
