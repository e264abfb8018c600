"""`ActorRef`: the handle to an actor that may be passed around, in any thread."""

# ruff: noqa: ANN401  # messages and their answers may be anything

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pykka
import trio

from quiesce.actors.kernel.actor import TrioActor
from quiesce.actors.kernel.dispatcher import INLINE_DEPTH
from quiesce.actors.kernel.entries import NO_INBOX
from quiesce.actors.kernel.errors import BlockingCallError
from quiesce.actors.kernel.hosts import checkpoint, in_event_loop
from quiesce.actors.kernel.inbox import Inbox
from quiesce.actors.kernel.reply import PENDING, Reply, new_reply
from quiesce.actors.kernel.states import EXITING, IDLE, READY
from quiesce.actors.kernel.statistics import actor_statistics
from quiesce.actors.kernel.system_message import STOP
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.exits import Exit
    from quiesce.actors.kernel.statistics import ActorStatistics

__all__ = ["ActorRef"]

A = TypeVar("A", bound=TrioActor)
R = TypeVar("R")


class ActorRef(pykka.ActorRef[Any], Generic[A]):
    """A reference to an actor. There is one per actor, so refs compare and hash by identity.

    `tell` and `ask` may be called from any thread. What one thread, or one task, sends arrives in the order sent.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell

    def __str__(self) -> str:
        return str(self._cell)

    # -- sending -------------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def tell(self, message: object) -> None:
        """Send a message and wait for nothing. Never blocks.

        Raises:
            ActorDeadError: the actor takes no more messages.
            InboxFullError: its inbox is bounded and full.

        """
        cell = self._cell
        state = cell.state
        if get_ident() == cell.system.thread:
            if state == READY:  # it has an inbox and will come to it: nearly always so, in a flood
                cell.inbox.append(message)
                return
            if state < EXITING:
                inbox = cell.inbox
                if inbox is NO_INBOX:
                    inbox = cell.made_inbox()
                inbox.append(message)
                if state == IDLE:
                    cell.state = READY
                    cell.system.dispatcher.schedule(cell)
                return
        if state >= EXITING and not cell.kept:
            cell.system.dead_letters.add(cell, message)
            raise cell.dead_error(f"{self} not found")
        cell.post(message, None)

    @overload  # type: ignore[override]  # typed messages give typed replies, and the default of `block` is by thread
    def ask(self, message: Message[R], *, block: Literal[False] | None = None, timeout: None = None) -> Reply[R]: ...
    @overload
    def ask(self, message: Message[R], *, block: Literal[True], timeout: float | None = None) -> R: ...
    @overload
    def ask(self, message: Any, *, block: Literal[False], timeout: float | None = None) -> Reply[Any]: ...
    @overload
    def ask(self, message: Any, *, block: bool | None = None, timeout: float | None = None) -> Any: ...
    @trio.lowlevel.enable_ki_protection
    def ask(self, message: Any, block: bool | None = None, timeout: float | None = None) -> Any:  # noqa: FBT001  # keyword-only to the type checker, which costs nothing
        """Send a message that is to be answered.

        A typed message gives a `Reply`, typed with what the message says, on every thread. For any other message
        `block` decides, and by default it depends on the caller: where Trio or asyncio runs, a `Reply` to await; on a
        plain thread, as in Pykka, the call waits up to `timeout` seconds and returns the answer.

        When the actor is idle and its handler is a `def`, an ask from the loop's thread may run it at once.

        Raises:
            BlockingCallError: at once, for `block=True` on the loop's own thread.
            pykka.Timeout: a blocking ask was not answered in time; the message will still be handled.
            Exception: the answer of a blocking ask, if it is an exception. `ActorDeadError` if there will be none;
                `InboxFullError` if the inbox is bounded and full.

        """
        cell = self._cell
        system = cell.system
        if get_ident() != system.thread:
            return self._ask_from_outside(message, block=block, timeout=timeout)
        if block:
            raise BlockingCallError("a blocking ask on the loop's own thread would stop every actor: await the reply")
        reply = new_reply(Reply)  # and what `Reply.__init__` does: half of the time of a call
        reply._system, reply._result = system, PENDING  # noqa: SLF001
        reply._cell = reply._waiters = reply._observers = None  # noqa: SLF001
        dispatcher = system.dispatcher
        if cell.state == IDLE and dispatcher.inline < INLINE_DEPTH:
            dispatcher.inline += 1
            try:
                cell.handle_at_once(message, reply)
            finally:
                dispatcher.inline -= 1
        else:
            cell.deliver(message, reply)
        return reply

    def _ask_from_outside(self, message: Any, *, block: bool | None, timeout: float | None) -> Any:
        system = self._cell.system
        if block and system.lives_here():
            raise BlockingCallError("a blocking ask on the loop's own thread would stop every actor: await the reply")
        reply: Reply[Any] = Reply(system)
        self._cell.post(message, reply)
        if block is None:
            block = not isinstance(message, Message) and not in_event_loop()
        return reply.get(timeout=timeout) if block else reply

    async def send(self, message: object) -> None:
        """Send a message, as `tell` does, but wait for room in a bounded inbox whose policy is "wait".

        A cancellation point. If it is cancelled the message was not sent (in asyncio: unless room was made at that very
        moment). Senders are served in the order in which they came, and nobody's `tell` goes past them.

        Raises:
            ActorDeadError: the actor takes no more messages, or died while the sender waited.
            InboxFullError: the inbox is full and its policy is "refuse".
            SelfWaitError: a handler would wait for room in its own actor's full inbox.

        """
        cell = self._cell
        await checkpoint(cell.system)
        if not getattr(cell.inbox, "waits", False):
            self.tell(message)
            return
        accepted: Reply[None] = Reply(cell.system)
        cell.system.call_in_order(cell.offer, message, accepted)
        if accepted.done():
            accepted.get()
            return
        try:
            await accepted
        except BaseException:
            cell.system.call_in_order(cell.withdraw, accepted)
            raise

    def statistics(self) -> ActorStatistics:
        """Return what can be seen of the actor at this moment. From any thread."""
        return actor_statistics(self._cell)

    # -- life ----------------------------------------------------------------------------------------------------------

    def is_alive(self) -> bool:
        """Whether the actor takes messages. It may have stopped by the time the caller acts on it.

        A supervised actor is alive until its supervisor gives it up: between two incarnations messages wait.
        """
        return self._cell.state < EXITING or self._cell.kept

    @property
    def incarnation(self) -> int:
        """1, and one more for each time that a supervisor has tried to restart the actor."""
        return self._cell.incarnation

    @overload  # type: ignore[override]  # the default of `block` is by thread
    def stop(self, *, block: Literal[True], timeout: float | None = None, now: bool = False) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None, now: bool = False) -> Reply[bool]: ...
    @overload
    def stop(self, *, block: None = None, timeout: float | None = None, now: bool = False) -> Any: ...
    def stop(self, *, block: bool | None = None, timeout: float | None = None, now: bool = False) -> Any:
        """Ask the actor to stop. The answer comes when it has stopped: True, or False if it was dead already.

        What was sent before is handled first; with `now=True` it is not: the actor ends after the message that it is
        handling, and an `async def` handler is cancelled. What is left over is answered with `ActorDeadError`.

        A supervised actor that is asked to stop while it crashes, restarts or waits for its restart has ended as well,
        and stays down if its restart type says so of one that finished; then what waited for the next incarnation is
        left over. A permanent one comes back: False when there was nothing to stop.

        `block` and `timeout` work as for an untyped `ask`.

        Raises:
            BlockingCallError: at once, and without stopping anything, for `block=True` on the loop's own thread.
            pykka.Timeout: a blocking stop took too long; the actor goes on stopping.

        """
        if not now:
            return self.ask(STOP, block=block, timeout=timeout)
        cell = self._cell
        on_loop = cell.system.on_loop()
        if block and cell.system.lives_here():
            raise BlockingCallError("a blocking stop on the loop's own thread would stop every actor: await the reply")
        reply: Reply[bool] = Reply(cell.system)
        if on_loop:
            cell.stop_now(reply)
        elif not cell.system.call_soon(cell.stop_now, reply):
            reply.set(False)
        if block is None:
            block = not in_event_loop()
        return reply.get(timeout=timeout) if block else reply

    async def aclose(self) -> None:
        """Stop the actor and wait until it has stopped. Closing a dead actor does nothing.

        A checkpoint. If the wait is cancelled, the actor is told to stop `now`, and not waited for.
        """
        reply = self.stop(block=False)
        try:
            await reply
        except BaseException:  # cancelled, by Trio or by asyncio
            self.stop(block=False, now=True)
            raise

    def wait_stopped(self) -> Reply[Exit]:
        """Return the reply that arrives when the actor has stopped, and says how it ended.

        Await it, or `.get()` it in a thread. Cancelling the wait does not stop the actor.
        """
        return self._cell.ended

    def proxy(self) -> pykka.ActorProxy[Any]:
        """Return Pykka's proxy: attributes and method calls are asks, and give replies.

        Setting an attribute through it blocks, so on the loop's own thread it raises `BlockingCallError`.

        Raises:
            ActorDeadError: the actor takes no more messages.

        """
        return _Proxy(actor_ref=self)

    # -- what Pykka's refs have; made when somebody asks ---------------------------------------------------------------

    @property
    def actor_class(self) -> type[A]:  # type: ignore[override]  # Pykka sets it in every ref
        """The class of the actor."""
        return self._cell.actor_class  # type: ignore[return-value]  # set when the actor was made

    @property
    def actor_urn(self) -> str:  # type: ignore[override]  # see actor_class
        """A universally unique name of the actor."""
        return self._cell.urn

    @property
    def actor_inbox(self) -> Inbox:  # type: ignore[override]  # see actor_class
        """Pykka's view of the messages that wait."""
        return Inbox(self._cell)

    @property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]  # see actor_class
        """An event that is set once the actor takes no more messages."""
        return self._cell.stopped_event

    @property
    def _actor_weakref(self) -> Callable[[], A | None]:  # type: ignore[override]  # see actor_class
        """What Pykka's proxy looks through for the attributes there are."""
        return lambda: self._cell.actor  # type: ignore[return-value]  # the actor is an A


class _Proxy(pykka.ActorProxy[Any]):
    """Pykka's proxy, which does not lose the answer to setting an attribute where waiting for it is impossible."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is pykka.ActorProxy:
            found = _Proxy(actor_ref=found.actor_ref, attr_path=(*self._attr_path, name))
            self._actor_proxies[(*self._attr_path, name)] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "actor_ref" or name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        message = pykka.messages.ProxySetAttr(attr_path=(*self._attr_path, name), value=value)
        self.actor_ref.ask(message, block=True)
