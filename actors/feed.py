"""`Feed`: what happens in an agent, as a chain of replies that readers follow at their own pace, on whichever loop.

What a reader has not taken yet is held by that reader alone, so nothing is kept for one that was dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio
from attrs import frozen

from quiesce.actors.kernel import Reply
from quiesce.protocol.messages import EventsCommitted, SessionStopped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from quiesce.actors.kernel import ActorSystem
    from quiesce.actors.live import AttemptFailed, Happening, ModelDelta

__all__ = ["Feed", "Happenings"]


@frozen
class _News:
    """Some of it, and the reply that what follows will come with: none when nothing will."""

    happened: tuple[Happening, ...]
    next: Reply[_News | None]


class Feed:
    """An observer of a session, and of an agent's `Watchers`. Told and closed on the thread of its system's loop."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._closed = False
        self._news: Reply[_News | None] = Reply(system)

    def tell(self, message: EventsCommitted | SessionStopped, /) -> None:
        """Take committed events, or their end."""
        if self._closed:
            raise trio.ClosedResourceError  # the session tells it nothing more
        if isinstance(message, SessionStopped):
            self.close()
        else:
            self._add(message.events)

    def hear(self, what: ModelDelta | AttemptFailed) -> None:
        """Take what is told between events."""
        if self._closed:
            raise trio.ClosedResourceError  # the watchers drop it
        self._add((what,))

    def close(self) -> None:
        """Take nothing more; whoever still reads comes to the end."""
        if not self._closed:
            self._closed = True
            self._news.set(None)

    def read(self) -> Happenings:
        """All that happens from here on."""
        return Happenings(self._news)

    def _add(self, happened: tuple[Happening, ...]) -> None:
        news, self._news = self._news, Reply(self._system)
        news.set(_News(happened, self._news))


class Happenings:
    """An async iterator, in Trio or asyncio, over what happens; it ends when the session stops or crashes."""

    def __init__(self, news: Reply[_News | None]) -> None:
        self._next = news
        self._here: deque[Happening] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Happening:
        while not self._here:
            if not self._take(await self._next):
                raise StopAsyncIteration
        return self._here.popleft()

    def so_far(self) -> Iterator[Happening]:
        """What has happened by now and was not taken yet; it does not wait."""
        while self._here or (self._next.done() and self._take(self._next.get())):
            if self._here:
                yield self._here.popleft()

    def _take(self, news: _News | None) -> bool:
        if news is None:
            return False
        self._here.extend(news.happened)
        self._next = news.next
        return True
