"""What stands in an inbox: a message that was told stands there bare, one that was asked as `Asked`, with its reply.

So a tell makes nothing but its place in the deque.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from quiesce.actors.kernel.reply import Reply

__all__ = ["NO_INBOX", "Asked", "Entry", "opened", "packed"]

Entry: TypeAlias = object

NO_INBOX: Final[deque[Entry]] = deque(maxlen=0)  # of an actor for which nothing has waited yet; never appended to


class Asked(tuple[Any, "Reply[Any]"]):
    """A message and the reply that its asker waits for; a type of its own, since tuples may be messages."""

    __slots__ = ()


def packed(message: object, reply: Reply[Any] | None) -> Entry:
    """Return what stands in the inbox for a message, and for the reply if somebody waits for one."""
    return message if reply is None else Asked((message, reply))


def opened(entry: Entry) -> tuple[Any, Reply[Any] | None]:
    """Return the message and the reply, if any, of what stands in the inbox."""
    return entry if type(entry) is Asked else (entry, None)
