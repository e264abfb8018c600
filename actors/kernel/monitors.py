"""Monitors: an actor learns, by a message, that another one has died for good."""

# ruff: noqa: SLF001  # a monitor joins two cells

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.kernel.revocable import Revocable
from quiesce.actors.kernel.states import EXITING
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.exits import Exit
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.reply import Reply

__all__ = ["Monitor", "Terminated", "monitor"]


@frozen
class Terminated(Message[None]):
    """Sent to whoever monitors an actor, once per monitor, when its ref is dead for good: no restart follows."""

    ref: ActorRef[Any]
    """The actor that has ended."""
    exit: Exit
    """How it ended."""


class Monitor(Revocable):
    """One watch of one actor over another, made by `self.monitor(ref)`; it is also the message that will be sent.

    It hangs on the reply that tells how the target ended. That reply belongs to the target's loop, which may be another
    one than the watcher's.
    """

    __slots__ = ("_watcher", "ref")

    def __init__(self, watcher: ActorCell, ref: ActorRef[Any]) -> None:
        super().__init__(None)
        self._watcher = watcher
        self.ref = ref

    def __repr__(self) -> str:
        return f"<Monitor of {self.ref}>"

    def taken(self) -> None:
        """Be done: the message is about to be handled."""
        self._forget()

    def revoke(self) -> None:
        """Stop watching. No `Terminated` of this monitor is handled after it."""
        self.revoked = True
        self._forget()
        self.ref._cell.system.call_in_order(self._leave)

    def enter(self) -> None:
        """Begin to watch."""
        self.ref._cell.system.call_in_order(self._join)

    def _forget(self) -> None:
        if self._watcher.monitors is not None:
            self._watcher.monitors.discard(self)

    def _join(self) -> None:
        ended = self.ref._cell.ended
        if self.revoked:
            return
        if ended.done():
            self._send(ended)
        else:
            ended._add_waiter(self, self._send)

    def _leave(self) -> None:
        self.ref._cell.ended._drop_waiter(self)

    def _send(self, ended: Reply[Exit]) -> None:
        self.message = Terminated(self.ref, ended.get())
        self._watcher.post(self, None)


def monitor(watcher: ActorCell, ref: ActorRef[Any]) -> Monitor:
    """Have `watcher` told when the actor behind `ref` is dead.

    Raises:
        ActorDeadError: the watcher is stopping.

    """
    if watcher.state >= EXITING:
        raise ActorDeadError(f"{watcher} is stopping and monitors nobody any more")
    made = Monitor(watcher, ref)
    if watcher.monitors is None:
        watcher.monitors = set()
    watcher.monitors.add(made)
    made.enter()
    return made
