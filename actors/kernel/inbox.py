"""Pykka's view of an inbox. The messages themselves are in the cell's deque; nobody needs this object to send."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

from pykka._envelope import Envelope

from quiesce.actors.kernel.entries import opened
from quiesce.actors.kernel.reply import Reply

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["Inbox"]


class Inbox:
    """What `actor_inbox` gives: Pykka's `put`, `get` and `empty` over the messages that wait."""

    __slots__ = ("_cell",)

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell

    def put(self, envelope: Envelope[Any], /) -> None:
        """Send what the envelope holds. Any thread may do it.

        Raises:
            TypeError: the reply in it is not one of the kernel's.

        """
        reply = envelope.reply_to
        if reply is not None and not isinstance(reply, Reply):
            raise TypeError(f"{reply!r} cannot be completed by a TrioActor; use a Reply")
        self._cell.post(envelope.message, reply)

    def get(self) -> Envelope[Any]:
        """Take the oldest message out, unhandled; never blocks.

        Raises:
            queue.Empty: no message waits.

        """
        try:
            message, reply = opened(self._cell.inbox.popleft())
        except IndexError:
            raise queue.Empty from None
        return Envelope(message, reply_to=reply)

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._cell.inbox

    def __len__(self) -> int:
        return len(self._cell.inbox)
