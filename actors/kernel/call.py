"""`Call[T]`: an async function that runs in a Trio task of a system, called from anywhere. The way in from other hosts.

A call is its own reply: whoever made it awaits it, in Trio or in asyncio, or blocks a thread on it. Its function runs
in a copy of the caller's context, belongs to no actor, and ends at the latest with the system.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from quiesce.actors.kernel.ending import split_cancelled
from quiesce.actors.kernel.errors import ActorDeadError, SystemStoppedError
from quiesce.actors.kernel.reply import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["Call", "Calls", "iterate"]

T = TypeVar("T")


class Call(Reply[T]):
    """The answer of an async function that `ActorSystem.run` runs.

    Its value is the answer, and so is an `Exception` that it raises. It is `ActorDeadError` when the function was
    cancelled, or raised what concerns the host.
    """

    __slots__ = ("_home", "_scope")

    def __init__(self, system: ActorSystem, function: Callable[[], Awaitable[T]], *, late: bool = False) -> None:
        """Call `function`; once the system is being left, from outside only one that ends something (`late`)."""
        super().__init__(system)
        self._home = system
        self._scope = trio.CancelScope()
        if system.leaving and not late and not system.in_task():  # else those who call could keep it from ending
            self.give_up(SystemStoppedError(f"{system!r} is being left, or was, and takes no more calls"))
            return
        system.call_in_order(copy_context().run, system.calls.start, self, function)

    def cancel(self) -> None:
        """Cancel the function, from any thread, and return at once. Nothing happens if it has ended.

        The answer comes when the function has ended: `ActorDeadError`, or what it answers all the same.
        """
        self._home.call_in_order(self._scope.cancel)

    async def or_cancel(self, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
        """Wait for the answer as if the function ran in the waiting task, be that one of Trio or of asyncio.

        Cancelling the wait cancels the function and waits for its end, however often it is repeated; then the
        cancellation goes on. If the function got its work done all the same, nobody will have its value: `undo` is run
        with it, in the system, and waited for as well.
        """
        try:
            return await self
        except BaseException as error:
            self.cancel()  # nothing, if this is the answer
            if isinstance(error, (trio.Cancelled, asyncio.CancelledError)):
                await self._wait_out()
                if undo is not None:
                    await self._undo(undo)
            raise

    async def _undo(self, undo: Callable[[T], Awaitable[object]]) -> None:
        try:
            value = self.get()  # it is there, or else what was raised instead
        except Exception:  # noqa: BLE001  # whoever waited is being cancelled, and there is nothing to undo
            return
        undoing = Call(self._home, partial(undo, value), late=True)
        await undoing._wait_out()

    async def _wait_out(self) -> None:
        """Wait for the end. The caller is being cancelled, and will say so; the answer no longer matters."""
        with trio.CancelScope(shield=True) if trio.lowlevel.in_trio_task() else nullcontext():
            while not self.done():
                with suppress(Exception, asyncio.CancelledError):
                    await self

    @trio.lowlevel.enable_ki_protection
    async def run(self, function: Callable[[], Awaitable[T]]) -> None:
        """The task."""
        reason = "the call was cancelled"
        try:
            with self._scope:
                self._resolve(await _interruptibly(function))
        except Exception as error:  # noqa: BLE001  # it is the answer
            self._fail(error)
        except BaseException as error:  # noqa: BLE001  # told apart: the host, an answer, a cancellation
            cancelled, rest = split_cancelled(error)
            if isinstance(rest, Exception):
                self._fail(rest)
            elif rest is not None:
                reason = "the call raised what concerns the host of its system"
                self._home.fatal(rest)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self.give_up(ActorDeadError(reason))
            self._home.calls.ended(self)

    def give_up(self, error: ActorDeadError) -> None:
        """Answer with the reason why there will be no answer, unless there is one."""
        self._abandon(error)


@trio.lowlevel.disable_ki_protection
async def _interruptibly(function: Callable[[], Awaitable[T]]) -> T:
    """Let Ctrl-C interrupt the user's code."""
    return await function()


class Calls:
    """The calls of one system that are under way. Only the loop's thread uses it, or anybody once there is none."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._running: dict[Call[Any], None] = {}

    def open(self, nursery: trio.Nursery) -> None:
        """Take calls from now on, and run them in `nursery`."""
        self._nursery = nursery

    def start(self, call: Call[T], function: Callable[[], Awaitable[T]]) -> None:
        """Run a call; it is refused when the system is not running."""
        if self._nursery is None:
            call.give_up(SystemStoppedError("the system is not running"))
            return
        self._running[call] = None
        self._nursery.start_soon(call.run, function, name=function)

    def ended(self, call: Call[Any]) -> None:
        """Forget a call that has been answered."""
        del self._running[call]

    def close(self) -> None:
        """Take no more calls, and cancel those that are under way."""
        self._nursery = None
        for call in self._running:
            call.cancel()


def iterate(system: ActorSystem, stream: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate, on a plain thread, what only the loop can iterate. See `ActorSystem.iterate`."""
    if system.leaving:
        raise SystemStoppedError(f"{system!r} is being left, or was, and begins no iteration")
    try:
        while True:
            call = Call(system, stream.__anext__, late=True)  # it ends with what it reads
            try:
                item = call.get()
            except StopAsyncIteration:
                return
            except BaseException:  # Ctrl-C, above all: nobody waits any more
                call.cancel()
                raise
            yield item
    finally:
        Call(system, stream.aclose, late=True)
