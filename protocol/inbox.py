"""`Inbox`: the user's queued input, derived from the `agent/inbox/spliced` events of the log.

Input is durable before it is acknowledged, so the queues are never changed by hand: drafts of splices are appended, and
the queues follow what was committed. A splice is read as JavaScript's is: a start beyond the end means the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from attrs import Factory, define

from quiesce.protocol.events import InboxSpliced, UserMessage, draft

if TYPE_CHECKING:
    from quiesce.protocol.events import Draft, Event

__all__ = ["Inbox", "Target", "insert", "remove"]

Target: TypeAlias = Literal["next-turn", "next-step"]
"""Which queue a message enters: the one that each new turn takes one from, or the one that the next step empties."""


@define
class Inbox:
    """The two queues, oldest first."""

    _queues: dict[str, tuple[UserMessage, ...]] = Factory(lambda: dict.fromkeys(get_args(Target), ()))

    def observe(self, event: Event) -> None:
        """Take the next committed event of the log."""
        if isinstance(event.body, InboxSpliced):
            body = event.body
            queue = self._queues.get(body.target, ())
            end = body.start + (body.removed_count or 0)
            self._queues[body.target] = (*queue[: body.start], *body.inserted, *queue[end:])

    def queued(self, target: Target) -> tuple[UserMessage, ...]:
        """What waits in that queue."""
        return self._queues[target]

    def __len__(self) -> int:
        return sum(len(self._queues[target]) for target in get_args(Target))  # nobody takes from a foreign queue

    def copy(self) -> Inbox:
        """The same queues, to follow the log from here independently."""
        return Inbox(dict(self._queues))


def insert(target: Target, start: int, *messages: UserMessage) -> Draft:
    """The draft that queues `messages` at `start`."""
    return draft(InboxSpliced(target, start, messages))


def remove(target: Target, count: int, outcome: str | None = None) -> tuple[Draft, ...]:
    """The drafts that take the first `count` messages from the queue; none for zero. `outcome` says why, if unused."""
    return (draft(InboxSpliced(target, 0, (), removed_count=count, outcome=outcome)),) if count else ()
