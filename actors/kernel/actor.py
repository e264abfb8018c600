"""`TrioActor`: the class that users subclass. The machinery behind it is the cell; this is its face."""

# ruff: noqa: ANN401  # messages and their answers may be anything

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import pykka

from quiesce.actors.kernel.bounded import check_bounds
from quiesce.actors.kernel.construction import adopt_cell, unprepared
from quiesce.actors.kernel.errors import UnhandledMessageError
from quiesce.actors.kernel.inbox import Inbox
from quiesce.actors.kernel.monitors import Monitor, monitor
from quiesce.actors.kernel.receivers import ReceiverTable
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.timers import Timers
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from quiesce.actors.kernel.bounded import InboxPolicy
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.default_system import PykkaCell
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.statistics import SupervisorStatistics
    from quiesce.actors.kernel.system import ActorSystem

    class _PykkaActor:
        """Pykka's actor as a type checker shall see it: without the hooks, which Pykka declares to be no coroutines."""

        @classmethod
        def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Any]: ...
        def stop(self) -> None: ...
        def on_receive(self, message: Any) -> Any: ...

else:
    _PykkaActor = pykka.Actor

__all__ = ["TrioActor"]

R = TypeVar("R")


class TrioActor(_PykkaActor):
    """An actor on a Trio loop, made by `await system.spawn(Cls, ...)`.

    Methods marked with `@receive(MessageType)` handle typed messages; `on_receive` handles all others; every public
    method and attribute can be used through `ref.proxy()`. Handlers and hooks may be `def` or `async def`:

    - A `def` handler runs on the system's dispatcher, between other actors' handlers. It must not block.
    - An `async def` handler runs in the actor's own task. The actor handles nothing else until it has ended.

    Either way one message at a time, in the order in which they were sent.
    """

    __slots__ = ("_cell",)

    _cell: ActorCell
    _receivers: ClassVar[ReceiverTable]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._receivers = ReceiverTable(cls)
        check_bounds(cls)

    inbox_limit: ClassVar[int | None] = None
    """Messages that may wait in the inbox; None for any number. May be given at the spawn: `system.options()`."""
    inbox_policy: ClassVar[InboxPolicy] = "refuse"
    """What a full inbox does. "refuse": `tell` and `send` raise `InboxFullError`, an ask is answered with it. "wait":
    `await ref.send(message)` waits for room, first come first served; `tell` and asks are refused. The messages of the
    kernel itself (a stop, a timer's, `Terminated`) are always taken."""

    use_daemon_thread: ClassVar[bool] = False
    """Whether a program may end while an actor of this class, started by `start()`, is alive; see there."""

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:
        """Start an actor Pykka's way: from plain threads, with no system given. Returns its ref at once.

        `__init__` runs here, everything else on the thread of the default system, which all actors started so share.
        They are in `pykka.ActorRegistry`, log to the logger `pykka`, and keep the program alive until they have ended
        (unless `use_daemon_thread` says otherwise). As in Pykka, what leaves a handler and is no `Exception` stops
        every actor of the registry. If `on_start` fails the actor is dead, and using the ref raises `ActorDeadError`
        with that failure as its cause; `system.spawn()` raises it where the actor is started.

        Raises:
            SystemStoppedError: the program is ending.
            Exception: what `__init__` raises.

        """
        with unprepared():
            return super().start(*args, **kwargs)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Subclasses that override this call `super().__init__()` before they use the actor."""
        self._cell = adopt_cell(self)

    def __str__(self) -> str:
        return str(self._cell)

    # -- for subclasses ------------------------------------------------------------------------------------------------

    def take_reply(self, message: Message[R]) -> Reply[R]:
        """Take over answering `message`, which is being handled: what the handler returns is then not the answer.

        Complete the reply when the work is done, from this actor, from its child work or from a thread:
        `reply.set(value)` or `reply.set_exception(error)`. If the actor ends first, whoever asked gets
        `ActorDeadError`, and completing the reply has no effect. An exception that leaves the handler afterwards
        completes a reply that is still open. Of a tell the reply is one that nobody waits for.

        Raises:
            LookupError: `message` is not what this actor is handling now, or its reply was taken before.

        """
        return self._cell.take_reply(message)

    def start_soon(
        self, async_fn: Callable[..., Coroutine[Any, Any, object]], *args: object, name: object = None
    ) -> None:
        """Start `async_fn(*args)` as child work of this actor, and return at once.

        Stopping the actor cancels the work and waits for it, before `on_stop`. An exception that leaves it crashes the
        actor. Call it on the loop's thread.

        Raises:
            ActorDeadError: the actor is stopping.

        """
        self._cell.start_soon(async_fn, args, name)

    @cached_property  # which an attribute of the same name, in an actor that came from Pykka, may replace
    def timers(self) -> Timers:
        """The timers of this actor: `self.timers.once("retry", 5, Retry())`, `.every(...)`, `.cancel("retry")`."""
        timers = self._cell.timers = Timers(self._cell)
        return timers

    def monitor(self, ref: ActorRef[Any]) -> Monitor:
        """Have a `Terminated(ref, exit)` sent to this actor when the actor behind `ref` is dead for good.

        It comes once for each call, also when that actor is dead already. A supervised restart is no end. The ref may
        be of another system. Call it on the loop's thread.

        Raises:
            ActorDeadError: this actor is stopping.

        """
        return monitor(self._cell, ref)

    def demonitor(self, monitor: Monitor) -> None:
        """Take a monitor back: its `Terminated` is not handled any more, even if it is in the inbox already."""
        monitor.revoke()

    def _begin(self) -> Awaitable[None] | None:
        """Start, as the cell has it: a supervisor starts its children here."""
        return self.on_start()

    def _end(self, failure: BaseException | None) -> Awaitable[None] | None:
        """End, as the cell has it: a supervisor stops its children first."""
        if failure is None:
            return self.on_stop()
        return self.on_failure(type(failure), failure, failure.__traceback__)

    def _hurry(self) -> None:
        """Be told to stop now while ending already: a supervisor then gives its children less time."""

    def _supervised(self) -> SupervisorStatistics | None:
        """What can be seen of the children of a supervisor."""
        return None

    @property
    def actor_system(self) -> ActorSystem:
        """The system that this actor lives in."""
        return self._cell.system

    def on_start(self) -> Awaitable[None] | None:
        """Run before the first message; may be `async def`.

        What it raises goes to whoever spawned the actor, which then never was: no other hook runs.
        """

    def on_stop(self) -> Awaitable[None] | None:
        """Run after the last message and after all child work has ended; may be `async def`.

        Not run when the actor crashes: see `on_failure`. What it raises is logged and becomes the actor's exit reason.
        When the system is cancelled from outside, an `async def` is cancelled at its first checkpoint.
        """

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Awaitable[None] | None:
        """Run instead of `on_stop` when an exception ends the actor, after all child work; may be `async def`.

        What it raises is logged.
        """

    def on_receive(self, message: Any) -> Any:
        """Handle a message that has no receiver; may be `async def`. What it returns is the reply to an ask.

        By default it logs a warning, as Pykka does.

        Raises:
            UnhandledMessageError: by default, to whoever *asks* a typed message that has no receiver.

        """
        if isinstance(message, Message) and self._cell.reply is not None:
            raise UnhandledMessageError(f"{type(self).__name__} has no receiver for {type(message).__qualname__}")
        return super().on_receive(message)

    # -- what Pykka's actors have; made when somebody asks -------------------------------------------------------------

    @property
    def actor_ref(self) -> ActorRef[Self]:
        """The ref of this actor, to give to others."""
        return self._cell.ref

    @property
    def actor_urn(self) -> str:
        """A universally unique name of this actor."""
        return self._cell.urn

    @property
    def actor_inbox(self) -> Inbox:
        """Pykka's view of the messages that wait."""
        return Inbox(self._cell)

    @property
    def actor_stopped(self) -> threading.Event:
        """An event that is set once this actor takes no more messages."""
        return self._cell.stopped_event

    @staticmethod
    def _create_actor_inbox() -> Inbox:
        raise NotImplementedError("an actor's inbox is made with its cell")

    @staticmethod
    def _create_future() -> Reply[Any]:
        return Reply()

    def _start_actor_loop(self) -> None:
        cast("PykkaCell", self._cell).launch(self)
