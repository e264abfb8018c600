"""A system inside an asyncio program, on the same thread: Trio's guest mode.

Trio then runs in callbacks of asyncio's loop, its ticks. The system's `thread` is set during those and at no other
time: what asyncio code does between two ticks is treated as another thread's doing, so it is posted to Trio's side and
wakes it. The kernel's own paths need no third case for this, and no handler ever runs within an asyncio task.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

from quiesce.actors.kernel.stay import Stay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from outcome import Outcome

    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["host_in_asyncio"]

L = TypeVar("L")


@asynccontextmanager
async def host_in_asyncio(system: ActorSystem, life: AbstractAsyncContextManager[L]) -> AsyncIterator[L]:
    """Run Trio in asyncio's loop for as long as the block is open.

        async with host_in_asyncio(system, life) as it: ...

    `life` is what lives on Trio's side, and is entered and left there. It has to enter `system`, itself or as a part of
    more, and `it` is what it gives. What `ActorSystem.in_asyncio` says of the end of its block, of cancellations and of
    errors holds for this one.
    """
    guest = _Guest(system, life)
    cancelled = await guest.enter()
    try:
        if cancelled is not None:
            raise cancelled  # noqa: TRY301  # as if the block had been cancelled at its beginning
        yield guest.it
    except BaseException as error:
        await guest.leave(now=True)
        failure = guest.failure()
        if failure is not None:
            raise failure from (None if isinstance(error, asyncio.CancelledError) else error)
        raise
    cancelled = await guest.leave(now=False)
    failure = guest.failure() or cancelled
    if failure is not None:
        raise failure


class _Guest(Generic[L]):
    """One guest run, and the asyncio task that hosts it. `it` is there once the run is entered."""

    it: L

    def __init__(self, system: ActorSystem, life: AbstractAsyncContextManager[L]) -> None:
        self._system = system
        self._stay = Stay(system, life)
        self._loop = asyncio.get_running_loop()
        self._host = cast("asyncio.Task[Any]", asyncio.current_task())
        self._thread = system.thread  # what it is during the next tick
        self._entered = asyncio.Event()
        self._ended = asyncio.Event()
        self._leaving = False
        self._interrupted = False  # the block was cancelled because the system had ended under it
        self._outcome: Outcome[None] | None = None

    async def enter(self) -> asyncio.CancelledError | None:
        """Start the run; return when the system is up, and with what cancelled the wait for it.

        Raises:
            RuntimeError: Trio runs in this thread already, or the system has been entered before.

        """
        if trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "Trio runs in this thread already, and can do so only once: use the system or runtime that is there, "
                "or have a thread of its own for another one (on_thread)"
            )
        trio.lowlevel.start_guest_run(
            self._stay.run,
            self._enter,
            run_sync_soon_threadsafe=self._schedule_from_thread,
            run_sync_soon_not_threadsafe=self._schedule,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
        )
        cancelled = await self._wait_out(self._entered)
        if self._outcome is not None:
            self._outcome.unwrap()
        return cancelled

    async def leave(self, *, now: bool) -> asyncio.CancelledError | None:
        """Stop the actors and end the run, however often the wait for that is cancelled; return what cancelled it."""
        self._leaving = True
        if now:
            self._stay.hurry()
        self._stay.leave()
        return await self._wait_out(self._ended)

    def failure(self) -> BaseException | None:
        """What came out of the run. The cancellation by which the block learned of it is undone."""
        if self._interrupted:
            self._interrupted = False
            self._host.uncancel()
        return getattr(self._outcome, "error", None)

    def _enter(self, it: L) -> None:
        self.it = it
        self._entered.set()

    def _done(self, outcome: Outcome[None]) -> None:
        self._outcome = outcome
        if self._entered.is_set() and not self._leaving:  # a handler raised what concerns the host
            self._interrupted = self._host.cancel()
        self._entered.set()
        self._ended.set()

    async def _wait_out(self, event: asyncio.Event) -> asyncio.CancelledError | None:
        """Wait for an event. A cancellation hurries the end of the system, and then the wait goes on."""
        cancelled = None
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError as error:  # raised again by the caller
                cancelled = error
                self._stay.hurry()
        return cancelled

    def _schedule(self, tick: Callable[[], object]) -> None:
        self._loop.call_soon(self._tick, tick)

    def _schedule_from_thread(self, tick: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop was closed around the block; nobody can help this run any more
            self._loop.call_soon_threadsafe(self._tick, tick)

    def _tick(self, tick: Callable[[], object]) -> None:
        system = self._system
        before, system.thread = system.thread, self._thread
        try:
            tick()
        finally:
            self._thread, system.thread = system.thread, before
