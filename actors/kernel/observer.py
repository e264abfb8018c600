"""Observers: what a tracer or a profiler is told of a system. Only a system that has one pays for it."""

from __future__ import annotations

from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.log import report
from quiesce.actors.kernel.revocable import Revocable
from quiesce.actors.kernel.system_message import is_system_message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.exits import Exit
    from quiesce.actors.kernel.receivers import Handler
    from quiesce.actors.kernel.ref import ActorRef

__all__ = ["ObservedCell", "Observer"]


class Observer:
    """Told of the life of every actor in a system: `ActorSystem(observer=MyObserver())`. Override what you need.

    The methods are called on the loop's thread, synchronously: keep them short. What they raise is logged, and changes
    nothing for the actors; what is no `Exception` stops the system and is raised in its host.
    """

    def on_start(self, ref: ActorRef[Any], /) -> None:
        """Called when an actor's `on_start` has ended; on each restart too, `ref.incarnation` says which."""

    def before_message(self, ref: ActorRef[Any], message: object, /) -> None:
        """Called before a message is handled. An actor handles one at a time. A stop is no message here."""

    def after_message(self, ref: ActorRef[Any], message: object, error: BaseException | None, /) -> None:
        """Called when the handler has ended, `async def` or not, and with what it raised, cancellation included."""

    def on_exit(self, ref: ActorRef[Any], exit_: Exit, /) -> None:
        """Called when an actor that had started has ended, after its exit hook; a restart may follow."""


class ObservedCell(ActorCell):
    """The cell of a system that has an observer: the same hot loop, with each handler wrapped."""

    __slots__ = ()

    def known_handlers(self, _: TrioActor) -> dict[type, Handler]:
        """None, so that each is looked up and wrapped to tell the observer."""
        return {}

    def handler_of(self, message_type: type) -> Handler:
        """What handles a type of message, wrapped."""
        return partial(self.observed, super().handler_of(message_type))

    def observed(self, handler: Callable[..., Any], actor: object, message: object) -> Any:  # noqa: ANN401  # what the handler returns
        """Call a handler, and tell the observer of it."""
        shown = _shown(message)
        if is_system_message(shown):
            return handler(actor, message)
        self._tell("before_message", shown)
        try:
            result = handler(actor, message)
        except BaseException as error:
            self._tell("after_message", shown, error)
            raise
        if type(result) is CoroutineType:
            return self._observed_to_the_end(result, shown)
        self._tell("after_message", shown, None)
        return result

    async def _observed_to_the_end(self, handling: Coroutine[Any, Any, Any], message: object) -> Any:  # noqa: ANN401  # what the handler returns
        try:
            result = await handling
        except BaseException as error:
            self._tell("after_message", message, error)
            raise
        self._tell("after_message", message, None)
        return result

    def _began_life(self) -> None:
        super()._began_life()
        self._tell("on_start")

    def _ended_life(self) -> None:
        super()._ended_life()
        self._tell("on_exit", self.exit)

    def _tell(self, what: str, *args: object) -> None:
        try:
            getattr(self.system.observer, what)(self.ref, *args)
        except Exception as error:  # noqa: BLE001  # watching must not change what is watched
            report("observer_failed", what=what, exc_info=error)
        except BaseException as error:  # noqa: BLE001  # the host gets it
            self.system.fatal(error)


def _shown(message: object) -> object:
    """Return the message as the actor will see it; one that was taken back it will not."""
    return message.message if isinstance(message, Revocable) and not message.revoked else message
