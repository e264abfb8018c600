"""Bounded inboxes: what happens to a message when there is no room for it.

A bounded inbox takes the place of the deque of a cell, so that the others cost nothing. Its rules:

- At most `limit` messages wait. What a thread has sent and the loop has not seen yet counts.
- The messages of the kernel itself (a stop, a timer's tick, `Terminated`) are always taken.
- A full inbox refuses. With the policy "wait", `await ref.send()` waits for its turn instead: first come, first served,
  and nobody else's message goes past those who wait. A message is put in by whoever makes room, so a sender that gives
  up has either not sent its message or sent it.
"""

# ruff: noqa: SLF001  # an inbox is a part of its cell

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pykka import ActorDeadError

from quiesce.actors.kernel.entries import opened, packed
from quiesce.actors.kernel.errors import InboxFullError
from quiesce.actors.kernel.system_message import is_system_message

if TYPE_CHECKING:
    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.entries import Entry
    from quiesce.actors.kernel.reply import Reply

    _Deque = deque[Entry]
else:
    _Deque = deque

__all__ = ["BoundedInbox", "InboxPolicy", "check_bounds"]

InboxPolicy: TypeAlias = Literal["refuse", "wait"]


def check_bounds(actor_class: type[TrioActor]) -> None:
    """Check what a class says about its inbox.

    Raises:
        ValueError: `inbox_limit` or `inbox_policy` makes no sense.

    """
    limit, policy = actor_class.inbox_limit, actor_class.inbox_policy
    if limit is not None and not (type(limit) is int and limit > 0):
        raise ValueError(f"{actor_class.__qualname__}.inbox_limit must be an int above zero or None, not {limit!r}")
    if policy not in get_args(InboxPolicy):
        raise ValueError(f"{actor_class.__qualname__}.inbox_policy must be 'refuse' or 'wait', not {policy!r}")


class BoundedInbox(_Deque):
    """The messages of one actor that wait, and the senders that wait to add theirs.

    `append` and `popleft` keep the rules; the other methods of a deque are for the kernel, which is above them.
    """

    __slots__ = ("_cell", "_reserved", "_room", "_senders", "limit", "waits")

    def __init__(self, cell: ActorCell, limit: int, *, waits: bool) -> None:
        super().__init__(cell.inbox)
        self._cell = cell
        self.limit = limit
        self.waits = waits
        self._room = threading.Lock()  # threads reserve while the loop appends
        self._reserved = 0
        self._senders: dict[Reply[None], object] = {}  # each with its message; touched on the loop's thread only

    @property
    def senders(self) -> int:
        """How many senders wait."""
        return len(self._senders)

    def append(self, entry: Entry) -> None:
        """Take a message.

        Raises:
            InboxFullError: there is no room.

        """
        with self._room:
            self._check(opened(entry)[0])
            super().append(entry)

    def reserve(self, message: object) -> None:
        """On any thread: keep room for a message that is on its way to the loop.

        Raises:
            InboxFullError: there is no room.

        """
        with self._room:
            self._check(message)
            self._reserved += 1

    def append_reserved(self, entry: Entry) -> None:
        """Take a message for which there is room."""
        with self._room:
            self._reserved -= 1
            super().append(entry)

    def popleft(self) -> Entry:
        """Give out the oldest message, and its room to those who wait."""
        entry = super().popleft()
        if self._senders:
            self.admit()
        return entry

    def admit(self) -> None:
        """Give the room there is to those who wait; due whenever there is more of it."""
        while self._senders and self._admit_next():
            pass

    def wait(self, message: object, accepted: Reply[None]) -> None:
        """Have a sender wait: `accepted` is completed when its message is in."""
        self._senders[accepted] = message

    def withdraw(self, accepted: Reply[None]) -> None:
        """Forget a sender that does not wait any more; a message that is in stays in."""
        self._senders.pop(accepted, None)

    def close(self, why: str) -> None:
        """Send away those who wait: the actor is dead."""
        senders, self._senders = self._senders, {}
        for accepted, message in senders.items():
            self._cell.system.dead_letters.add(self._cell, message)
            accepted._abandon(ActorDeadError(why))

    def _admit_next(self) -> bool:
        with self._room:
            if self._taken_up() >= self.limit:
                return False
            accepted = next(iter(self._senders))
            super().append(packed(self._senders.pop(accepted), None))
        accepted._resolve(None)
        return True

    def _taken_up(self) -> int:
        return len(self) + self._reserved

    def _check(self, message: object) -> None:
        full = self._taken_up() >= self.limit or self._senders
        if full and not is_system_message(message):
            raise InboxFullError(f"the inbox of {self._cell} holds {self.limit} messages and takes no more")
