"""Dead letters: the messages that no actor will handle, counted, and shown to whoever subscribes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.kernel.errors import InboxFullError
from quiesce.actors.kernel.log import note, report
from quiesce.actors.kernel.ref import ActorRef
from quiesce.actors.kernel.system_message import is_system_message
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["DeadLetter", "DeadLetters"]


@frozen
class DeadLetter(Message[None]):
    """A message that reached an actor that was dead or ending, or that still waited when its actor died."""

    message: object
    """What was sent."""
    ref: ActorRef[Any]
    """To whom."""


Subscriber: TypeAlias = "ActorRef[Any] | Callable[[DeadLetter], object]"


class DeadLetters:
    """The dead letters of a system. They are counted in any case; a `DeadLetter` is made when somebody subscribes.

    The sender of a dead letter is told as well: `tell` raises `ActorDeadError`, an ask is answered with it. Only what
    was told before the end, and not handled, is lost without that. The kernel's own messages are no dead letters.
    """

    __slots__ = ("_publishing", "_subscribers", "_system", "count")

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._subscribers: dict[Subscriber, None] = {}
        self._publishing = False
        self.count = 0

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have every dead letter from now on told to an actor, or given to a function. Any thread may subscribe.

        A function is called on the loop's thread: keep it short. What it raises is logged; what is no `Exception` stops
        the system and is raised in its host. A subscriber that is dead is dropped. Letters that come up while
        subscribers are told are counted, and told to nobody.
        """
        self._subscribers = {**self._subscribers, subscriber: None}

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Tell a subscriber no more; no error if it is none."""
        self._subscribers = {other: None for other in self._subscribers if other != subscriber}

    def add(self, cell: ActorCell, message: object) -> None:
        """Count a message that an actor which is gone, or going, will not handle. Any thread may do it."""
        if self._system.on_loop():
            self.add_all(cell, (message,))
        else:
            self._system.call_soon(self.add_all, cell, (message,))

    def add_all(self, cell: ActorCell, messages: Iterable[object]) -> None:
        """Count what one actor leaves behind: one entry in the log, whatever the number."""
        letters = [message for message in messages if not is_system_message(message)]
        if not letters:
            return
        self.count += len(letters)
        note(logging.INFO, "dead_letters", cell, count=len(letters))
        if self._subscribers and not self._publishing:
            self._publishing = True
            try:
                for message in letters:
                    self._publish(DeadLetter(message, cell.ref))
            finally:
                self._publishing = False

    def _publish(self, letter: DeadLetter) -> None:
        for subscriber in self._subscribers:
            try:
                if isinstance(subscriber, ActorRef):
                    subscriber.tell(letter)
                else:
                    subscriber(letter)
            except ActorDeadError:
                self.unsubscribe(subscriber)
            except InboxFullError:
                continue  # it has said how much it wants
            except Exception as error:  # noqa: BLE001  # a bad subscriber must not harm the actor that ends
                report("dead_letter_subscriber_failed", exc_info=error)
            except BaseException as error:  # noqa: BLE001  # the host gets it
                self._system.fatal(error)
