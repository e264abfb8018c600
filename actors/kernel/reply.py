"""`Reply[T]`: the one future of the kernel. It owns how an answer reaches whoever waits for it, on whichever thread.

A reply is completed once, and then wakes two kinds of waiters:

- `_waiters`: tasks and callbacks of the reply's own loop. Only that loop's thread touches them.
- `_observers`: everybody else (threads that block, tasks of other loops). A lock guards them; each knows the way home.

Whoever waits registers first and looks at the result a second time; whoever completes stores the result first and
looks for waiters afterwards. One of the two always sees the other, so no wake-up is lost and the loop's own path needs
no lock.
"""

# ruff: noqa: ASYNC105  # an __await__ awaits by `yield from`

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pykka
import trio
from pykka import ActorDeadError
from trio.lowlevel import Abort, checkpoint_if_cancelled, current_task, reschedule, wait_task_rescheduled

from quiesce.actors.kernel.errors import AskCycleError, BlockingCallError, ReplyCompletedError, SelfWaitError
from quiesce.actors.kernel.hosts import in_asyncio
from quiesce.actors.kernel.log import report

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from types import TracebackType

    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.system import ActorSystem

    OptExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]

__all__ = ["PENDING", "Reply", "new_reply"]

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
S = TypeVar("S")


class _Pending:
    """The result of a reply that has none yet."""


class _Failure:
    """The result of a reply that was completed with an exception."""

    __slots__ = ("abandoned", "context", "error", "traceback")

    def __init__(self, error: BaseException, *, abandoned: bool = False) -> None:
        self.error = error
        self.traceback = error.__traceback__
        self.context = error.__context__
        self.abandoned = abandoned

    def raise_again(self) -> None:
        """Raise the exception as it was when it arrived: neither traceback nor context grows from waiter to waiter."""
        try:
            raise self.error.with_traceback(self.traceback)
        finally:
            BaseException.__setattr__(self.error, "__context__", self.context)  # a frozen dataclass refuses its own


PENDING: Final = _Pending()
new_reply: Final = object.__new__  # for `ask`
_completing = threading.Lock()  # one for all: held for a few instructions, and never on the loop's own path


class Reply(pykka.Future[T]):
    """An answer that is there or will be: await it in Trio, or call `.get()` from a thread.

    Any number of tasks and threads may wait for it, any number of times. Cancelling one waiter affects only that one;
    the work that will answer goes on.
    """

    __slots__ = ("_cell", "_observers", "_result", "_system", "_waiters")

    # Of a reply that is made from others, as by `map()`: how, and from which. Rare, so no slot is spent on them.
    _get_hook: Callable[[float | None], T] | None = None
    _sources: tuple[Reply[Any], ...] = ()

    def __init__(self, system: ActorSystem | None = None) -> None:
        self._system = system
        self._result: object = PENDING
        self._waiters: dict[object, Callable[[Reply[T]], object] | None] | None = None
        self._observers: list[Callable[[], object]] | None = None
        self._cell: ActorCell | None = None  # whose handler has to run, or has taken over, before the answer comes

    def __repr__(self) -> str:
        result = self._result
        state = "pending" if result is PENDING else "failed" if type(result) is _Failure else "done"
        return f"<Reply {state}>"

    # -- reading -------------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the answer is there, so that neither `await` nor `.get()` has to wait."""
        return self._result is not PENDING

    def get(self, *, timeout: float | None = None) -> T:
        """Return the answer, blocking the calling thread until it is there.

        Args:
            timeout: seconds to wait at most; `None` waits for ever.

        Raises:
            BlockingCallError: at once, when called on the loop's own thread and the answer is not there yet.
            pykka.Timeout: the answer did not come in time; the work goes on.
            Exception: the answer, when it is an exception.

        """
        if self._result is PENDING:
            if self._get_hook is None:
                self._block(timeout)
            else:
                self._settle(self._get_hook(timeout))
        result = self._result
        if type(result) is _Failure:
            result.raise_again()
        return result  # type: ignore[return-value]  # what is no failure is the answer; a cast would cost

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait for the answer and return it, or raise it.

        A cancellation point every time, also when the answer is there. A finished reply does not reschedule each time:
        it does so at least once per millisecond of uninterrupted work. Tasks of Trio and of asyncio may await it.
        """
        system = self._system
        if self._result is PENDING:
            yield from self._waiting().__await__()
        elif system is None:
            yield from _checkpoint_here().__await__()
        else:
            try:
                task = current_task()
            except RuntimeError:  # in asyncio
                yield from _checkpoint_here().__await__()
            else:
                pace = system.pace
                if pace.spare:
                    pace.spare -= 1
                elif pace.is_due():
                    yield from pace.checkpoint().__await__()
                try:  # Trio has no public way to ask that does not cost as much as all the rest
                    cancelled = task._cancel_status.effectively_cancelled  # noqa: SLF001
                except AttributeError:  # nor this way any more: then the checkpoint itself is asked each time
                    cancelled = True
                if cancelled:
                    yield from checkpoint_if_cancelled().__await__()
        result = self._result
        if type(result) is _Failure:
            result.raise_again()
        return result  # type: ignore[return-value]  # what is no failure is the answer; a cast would cost

    __iter__ = __await__

    def on_done(self, callback: Callable[[Reply[T]], object]) -> None:
        """Have `callback(reply)` called when the answer arrives, at once if it is there.

        It runs on the loop's thread, synchronously at completion: keep it short. What it raises is logged. (A reply
        that belongs to no system has the thread that completes it run the callback.)
        """
        system = self._system
        if system is None:
            if not self._observe(lambda: self._call(callback)):
                self._call(callback)
        elif not system.on_loop() and system.call_soon(self.on_done, callback):
            return
        elif self._result is PENDING:
            self._add_waiter(object(), callback)
            if self._result is not PENDING:  # completed by another thread meanwhile
                self._wake()
        else:
            self._call(callback)

    # -- replies made from replies ------------------------------------------------------------------------------------

    def filter(self: Reply[Iterable[J]], func: Callable[[J], bool]) -> Reply[Iterable[J]]:
        """Return the reply that will be the list of the items for which `func(item)` is true."""
        return _made_from((self,), super().filter(func))

    def join(self: Reply[Any], *futures: pykka.Future[Any]) -> Reply[Iterable[Any]]:
        """Return the reply that will be the list of the answers of this and the other replies."""
        return _made_from((self, *futures), super().join(*futures))

    def map(self, func: Callable[[T], M]) -> Reply[M]:
        """Return the reply that will be `func(answer)`."""
        return _made_from((self,), super().map(func))

    def reduce(self: Reply[Iterable[J]], func: Callable[[S, J], S], *args: S) -> Reply[S]:
        """Return the reply that will be the answer's items reduced to one value, as `functools.reduce` does."""
        return _made_from((self,), super().reduce(func, *args))

    # -- completing ----------------------------------------------------------------------------------------------------

    def set(self, value: T | None = None) -> None:
        """Complete the reply with a value. Any thread may do it.

        Raises:
            ReplyCompletedError: it was completed before. (When its actor died first, this is a silent no-op instead.)

        """
        self._complete(value)

    def set_exception(self, exc_info: BaseException | OptExcInfo | None = None) -> None:
        """Complete the reply with an exception: an instance, an `exc_info` triple, or the one being handled.

        `trio.Cancelled` never becomes an answer: whoever waits gets `ActorDeadError`.

        Raises:
            ReplyCompletedError: it was completed before. (When its actor died first, this is a silent no-op instead.)

        """
        self._complete(_Failure(_answerable(_exception_of(exc_info))))

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Have `.get()` call `func(timeout)` for the value, as Pykka's `map()` and its kin do.

        Raises:
            ReplyCompletedError: the reply has a value or an exception.

        """
        if self._result is not PENDING:
            raise ReplyCompletedError("a reply that is complete takes no hook")
        self._get_hook = func

    def _complete(self, result: object) -> None:
        with _completing:
            before = self._result
            if before is not PENDING or self._get_hook is not None:
                if type(before) is _Failure and before.abandoned:
                    return
                raise ReplyCompletedError("the reply was completed before; the first answer stands")
            self._result = result
        self._announce()

    def _resolve(self, result: object) -> None:
        """Complete from the loop's own thread, where a reply that is complete already stays as it is."""
        if self._result is PENDING:
            self._result = result
            if self._waiters is not None or self._observers is not None:
                self._announce()

    def _fail(self, error: BaseException) -> None:
        """Complete with the exception of a handler, unless it is complete already."""
        self._settle(_Failure(error))

    def _abandon(self, error: ActorDeadError) -> None:
        """Complete because nobody is left to answer; whoever still tries to is not told off."""
        self._settle(_Failure(error, abandoned=True))

    def _settle(self, result: object) -> None:
        """Complete from any thread, unless it is complete already."""
        with _completing:
            if self._result is not PENDING:
                return
            self._result = result
        self._announce()

    def _announce(self) -> None:
        """Tell everybody who waits; the result is stored by now."""
        if self._cell is not None:
            self._cell.forget(self)
        if self._observers is not None:
            with _completing:
                observers, self._observers = self._observers, None
            for observer in observers or ():
                observer()
        if self._waiters is not None:
            system = cast("ActorSystem", self._system)
            if system.on_loop():
                self._wake()
            else:
                system.call_soon(self._wake)

    def _wake(self) -> None:
        """On the loop's thread: reschedule the tasks and run the callbacks, in the order in which they came."""
        waiters, self._waiters = self._waiters, None
        for waiter, callback in (waiters or {}).items():
            if callback is None:
                reschedule(waiter)  # type: ignore[arg-type]  # whoever has no callback is a task
            else:
                self._call(callback)

    def _call(self, callback: Callable[[Reply[T]], object]) -> None:
        try:
            callback(self)
        except Exception as error:  # noqa: BLE001  # one bad callback must not keep the answer from the others
            report("reply_callback_failed", exc_info=error)
        except BaseException as error:
            if self._system is None:
                raise
            self._system.fatal(error)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _waiting(self) -> Coroutine[Any, Any, None]:
        """Return what has to be awaited before there is a result."""
        if self._get_hook is not None:
            return self._wait_for_sources(self._get_hook)
        if self._system is not None and self._system.on_loop():
            return self._wait_here()
        return self._wait_in_asyncio() if in_asyncio() else self._wait_elsewhere()

    async def _wait_for_sources(self, make: Callable[[float | None], T]) -> None:
        for source in self._sources:
            await source
        self._settle(make(None))

    async def _wait_here(self) -> None:
        task = current_task()
        self._refuse_cycle(task)
        task.custom_sleep_data = self  # where _refuse_cycle() finds what a handler waits for; Trio clears it
        self._add_waiter(task, None)

        def abort(_: Callable[[], None]) -> Abort:
            self._drop_waiter(task)
            return Abort.SUCCEEDED

        if self._result is not PENDING:  # completed by another thread meanwhile
            self._drop_waiter(task)
            await trio.lowlevel.checkpoint()
            return
        await wait_task_rescheduled(abort)

    def _refuse_cycle(self, task: trio.lowlevel.Task) -> None:
        """Follow who waits for whom: handlers that would end up waiting for each other would wait for ever."""
        chain: list[ActorCell] = []
        cell = self._blocked_on()
        while cell is not None and cell not in chain:
            chain.append(cell)
            if cell.runs_in(task):
                error = _cycle_error(chain)
                chain[0].take_back(self, error)
                raise error
            awaited = cell.awaited()
            cell = awaited._blocked_on() if isinstance(awaited, Reply) else None  # noqa: SLF001  # another reply

    def _blocked_on(self) -> ActorCell | None:
        """The actor whose handlers have to end before this answer comes, if there is one."""
        cell = self._cell
        return None if cell is None or self._result is not PENDING or cell.has_taken(self) else cell

    def _add_waiter(self, key: object, callback: Callable[[Reply[T]], object] | None) -> None:
        if self._waiters is None:
            self._waiters = {}
        self._waiters[key] = callback

    def _drop_waiter(self, key: object) -> None:
        if self._waiters is not None:
            self._waiters.pop(key, None)

    async def _wait_elsewhere(self) -> None:
        """Wait in a task of a loop that is not the reply's own; the wake-up hops through that loop's token."""
        token = trio.lowlevel.current_trio_token()
        waiting: list[trio.lowlevel.Task] = [trio.lowlevel.current_task()]

        def wake() -> None:
            if waiting:
                reschedule(waiting.pop())

        def hop() -> None:
            _post(token, wake)

        def abort(_: Callable[[], None]) -> Abort:
            waiting.clear()
            self._unobserve(hop)
            return Abort.SUCCEEDED

        if self._observe(hop):
            await wait_task_rescheduled(abort)
        else:
            waiting.clear()
            await trio.lowlevel.checkpoint()

    async def _wait_in_asyncio(self) -> None:
        """Wait in a task of asyncio, on whatever thread; the wake-up is a callback of its loop."""
        loop, home = asyncio.get_running_loop(), get_ident()
        arrival: asyncio.Future[None] = loop.create_future()

        def arrive() -> None:
            if not arrival.done():  # a cancelled wait is
                arrival.set_result(None)

        def hop() -> None:
            if get_ident() == home:
                arrive()
                return
            with suppress(RuntimeError):  # that loop was closed, and the task that waited there is gone
                loop.call_soon_threadsafe(arrive)

        if self._observe(hop):
            try:
                await arrival
            finally:
                self._unobserve(hop)

    def _block(self, timeout: float | None) -> None:
        if self._system.lives_here() if self._system is not None else trio.lowlevel.in_trio_run():
            raise BlockingCallError(
                "a blocking get() on the loop's own thread would stop every actor: await the reply instead"
            )
        gate = threading.Lock()
        gate.acquire()
        opened = gate.release
        if not self._observe(opened):
            return
        if not gate.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            self._unobserve(opened)
            if self._result is PENDING:
                raise pykka.Timeout(f"{timeout} seconds")

    def _observe(self, observer: Callable[[], object]) -> bool:
        """Register a waiter from anywhere; False means that the answer is there and it will not be called."""
        with _completing:
            if self._observers is None:
                self._observers = []
            self._observers.append(observer)
            if self._result is not PENDING:
                self._observers.remove(observer)
                return False
            return True

    def _unobserve(self, observer: Callable[[], object]) -> None:
        with _completing:
            if self._observers is not None and observer in self._observers:
                self._observers.remove(observer)


def _made_from(sources: tuple[pykka.Future[Any], ...], made: pykka.Future[T]) -> Reply[T]:
    """Make what Pykka made of a reply awaitable: its sources are awaited before its hook looks at them."""
    reply = cast("Reply[T]", made)
    reply._sources = tuple(source for source in sources if isinstance(source, Reply))  # noqa: SLF001  # a Reply's own
    return reply


def _cycle_error(chain: list[ActorCell]) -> SelfWaitError:
    waiting = chain[-1]
    if len(chain) == 1:
        return SelfWaitError(f"{waiting} waits in a handler for an answer that it can only give after that handler")
    ring = " waits for ".join(str(cell) for cell in (waiting, *chain))
    return AskCycleError(f"these handlers would wait for each other for ever: {ring}")


def _exception_of(exc_info: BaseException | OptExcInfo | None) -> BaseException:
    """Return the exception that `set_exception()` means, whichever of Pykka's forms it was given in."""
    if isinstance(exc_info, BaseException):
        return exc_info
    kind, error, traceback = exc_info or sys.exc_info()
    if error is None:
        if kind is None:
            raise ValueError("set_exception() needs an exception: none was given and none is being handled")
        error = kind()
    return error.with_traceback(traceback)


def _answerable(error: BaseException) -> BaseException:
    """Cancellation is between a task and its scope; whoever asked only learns that nobody will answer."""
    cancelled = isinstance(error, trio.Cancelled) or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None
    )
    return ActorDeadError("the work that would have answered was cancelled") if cancelled else error


async def _checkpoint_here() -> None:
    """Checkpoint in whatever kind of task this is: a reply of no system may be awaited in either."""
    if trio.lowlevel.in_trio_task():
        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def _post(token: trio.lowlevel.TrioToken, call: Callable[[], object]) -> None:
    try:
        token.run_sync_soon(call)
    except trio.RunFinishedError:
        return  # that loop has ended, and the task that waited there with it
