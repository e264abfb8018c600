"""`ActorSystem`: where actors live. It owns the loop, the dispatcher, and the order in which everything ends."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import trio

from quiesce.actors.kernel.actor import TrioActor
from quiesce.actors.kernel.asyncio_host import host_in_asyncio
from quiesce.actors.kernel.call import Call, Calls, iterate
from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.dead_letters import DeadLetters
from quiesce.actors.kernel.dispatcher import Dispatcher
from quiesce.actors.kernel.errors import NameTakenError, SystemStoppedError
from quiesce.actors.kernel.hosts import refuse_asyncio
from quiesce.actors.kernel.log import report
from quiesce.actors.kernel.names import Names
from quiesce.actors.kernel.observer import ObservedCell
from quiesce.actors.kernel.options import SpawnOptions
from quiesce.actors.kernel.pace import Pace
from quiesce.actors.kernel.ref import ActorRef
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.statistics import Tally, system_statistics
from quiesce.actors.kernel.thread_host import host_on_thread
from quiesce.actors.kernel.timers import TimerHeap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
    from types import TracebackType
    from typing import Self

    from quiesce.actors.kernel.bounded import InboxPolicy
    from quiesce.actors.kernel.ending import Owner
    from quiesce.actors.kernel.observer import Observer
    from quiesce.actors.kernel.statistics import SystemStatistics

__all__ = ["ActorSystem"]

A = TypeVar("A", bound=TrioActor)
P = ParamSpec("P")
T = TypeVar("T")

_NO_THREAD = -1


class ActorSystem:
    """Hosts actors: `async with ActorSystem() as system` in Trio.

    In an asyncio program it is `async with ActorSystem.in_asyncio() as system`, for plain threads `with
    ActorSystem.on_thread() as system`.

    Leaving the block stops all actors, newest first, each one waited for: what was sent to them before is handled. If
    an exception or a cancellation leaves the block they are stopped `now` instead, in the same order. Either way no
    task and no unanswered ask is left.

    A system can be entered once, and by itself only in Trio: in an asyncio task that is a `RuntimeError`. `work_clock`
    gives seconds and decides when a checkpoint is due; a test that has to repeat a run exactly passes a counter. An
    `observer` is told of every start, message and exit.
    """

    notes_lives: ClassVar[bool] = True  # whether the kernel's log tells of starts, stops and crashes of actors

    def __init__(
        self,
        name: str = "actors",
        *,
        work_clock: Callable[[], float] = time.perf_counter,
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self.observer = observer
        self.names = Names()
        self.tally = Tally()
        self.dead_letters = DeadLetters(self)
        self.now: Callable[[], float] = work_clock  # Trio's clock, once the system is entered
        self.pace = Pace(work_clock)
        self.dispatcher = Dispatcher(self.pace)
        self.timers = TimerHeap(self.pace)
        self.calls = Calls()
        self.thread = _NO_THREAD  # of the loop; in an asyncio program, only while it is Trio's turn
        self._home = _NO_THREAD
        self.stopping = False
        self.leaving = False  # the block that it was entered by, or more around it: no calls from outside are taken
        self._cell_class = ActorCell if observer is None else ObservedCell
        self._live: dict[ActorCell, None] = {}  # in the order of their start
        self._scope = trio.CancelScope()
        self._last_wait = trio.CancelScope(shield=True)  # for the actors to end; given up without a dispatcher
        self._fatal: BaseException | None = None
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._lifetime: AbstractAsyncContextManager[None] | None = None

    def __repr__(self) -> str:
        return f"<ActorSystem {self.name!r}: {len(self._live)} actors>"

    def __len__(self) -> int:
        return len(self._live)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._lifetime is not None:
            raise RuntimeError(f"{self!r} has been entered before; make a new one")
        refuse_asyncio("ActorSystem()", "ActorSystem.in_asyncio()")
        self._lifetime = self._live_here()
        await self._lifetime.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._lifetime is not None  # entered
        return await self._lifetime.__aexit__(kind, error, traceback)

    @classmethod
    def on_thread(
        cls,
        name: str = "actors",
        *,
        work_clock: Callable[[], float] = time.perf_counter,
        observer: Observer | None = None,
    ) -> AbstractContextManager[ActorSystem]:
        """Host a system on a loop thread of its own: `with ActorSystem.on_thread() as system`, without Trio.

        `spawn`, `tell`, `ask`, `run`, `.get()` and `stop` then work from every plain thread. Leaving the block stops
        all actors and ends the thread. When an exception leaves it, Ctrl-C's among them, or one comes while the actors
        stop, they are stopped `now` and still waited for.

        Raises:
            BaseException: when leaving the block, what came out of a handler and is no `Exception` (`SystemExit`, ...).

        """
        system = cls(name, work_clock=work_clock, observer=observer)
        return host_on_thread(system, system)

    @classmethod
    def in_asyncio(
        cls,
        name: str = "actors",
        *,
        work_clock: Callable[[], float] = time.perf_counter,
        observer: Observer | None = None,
    ) -> AbstractAsyncContextManager[ActorSystem]:
        """Host a system in an asyncio program, on the same thread: `async with ActorSystem.in_asyncio() as system`.

        asyncio tasks use it as Trio tasks would: they await spawns, asks, `ref.send()` and `ref.aclose()`. Cancelling
        such a task cancels its wait, and nothing else. Other async functions of Trio's they have run by `run`. The
        actors themselves run on Trio, between the steps of asyncio's tasks. One system can live in a thread so.

        Leaving the block stops all actors as always. A cancellation that comes meanwhile has them stopped `now`, is
        raised when they have stopped, and leaves none behind. When a handler raises what is no `Exception`, the block
        is cancelled and the exception comes out of it. Leave the block before the loop is closed: `asyncio.run()` sees
        to that.

        Raises:
            RuntimeError: when entered in a thread in which Trio runs already, or without asyncio.
            BaseException: when leaving the block, what came out of a handler and is no `Exception` (`SystemExit`, ...).

        """
        system = cls(name, work_clock=work_clock, observer=observer)
        return host_in_asyncio(system, system)

    @asynccontextmanager
    async def _live_here(self) -> AsyncIterator[None]:
        """The whole life of a system, in the task of its host."""
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                self.thread = self._home = get_ident()
                self._token = trio.lowlevel.current_trio_token()
                self.now = trio.lowlevel.current_clock().current_time
                self.calls.open(self._nursery)
                self._nursery.start_soon(self._dispatch, name=f"{self.name}: dispatcher")
                self._nursery.start_soon(self.timers.run, name=f"{self.name}: timers")
                try:
                    with self._scope:  # cancelled when a handler raises what concerns the host
                        yield
                        await self._stop_all(now=False)
                except BaseException as error:  # noqa: BLE001  # raised again below, when every actor has stopped
                    failure = error
                try:
                    with self._last_wait:
                        await self._stop_all(now=True)
                finally:  # also when that is interrupted (a second Ctrl-C): nobody else ends the dispatcher
                    self.calls.close()
                    self._end_the_rest()
                    self.dispatcher.close()
                    self.timers.close()
        except BaseException as error:  # noqa: BLE001  # raised again below, unless there is an earlier failure
            failure = failure or error
        finally:
            self.thread = self._home = _NO_THREAD
        await self._raise(failure)

    @trio.lowlevel.enable_ki_protection
    async def _dispatch(self) -> None:
        """Run the dispatcher. Should it fail, no actor can end any more: the host is told, and nothing waited for."""
        try:
            await self.dispatcher.run()
        except BaseException as error:  # noqa: BLE001  # the host gets it; shielded, so it is no cancellation
            assert self._nursery is not None  # this task is in it
            self._last_wait.cancel()
            self._nursery.cancel_scope.cancel()
            self.fatal(error)

    async def _stop_all(self, *, now: bool) -> None:
        """Stop the actors there are, newest first, each one waited for. None is spawned from here on."""
        self.stopping = self.leaving = True
        for cell in [cell for cell in reversed(self._live) if cell.owner is None]:  # supervisors stop the others
            await cell.ref.stop(block=False, now=now)

    def _end_the_rest(self) -> None:
        """End whom nobody could stop, because the kernel failed on their supervisor, or on the dispatcher."""
        if self._fatal is not None:
            for cell in list(self._live):
                cell.collapse(self._fatal)

    async def _raise(self, failure: BaseException | None) -> None:
        """Raise what the host has to see: what a handler threw at it, else what ended the block."""
        if self._fatal is not None:
            raise self._fatal
        if isinstance(failure, trio.Cancelled):
            await trio.lowlevel.checkpoint_if_cancelled()  # raises it anew for the scope that is cancelled
        elif failure is not None:
            raise failure

    # -- actors --------------------------------------------------------------------------------------------------------

    def spawn(self, factory: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> Reply[ActorRef[A]]:
        """Make an actor and start it: `ref = await system.spawn(Counter, 1)`, or `.get()` from a thread.

        `factory` is an actor class, or a callable that makes a new actor. `__init__` and `on_start` run at once on the
        loop's thread (an `async def on_start` in the actor's own task, to its first checkpoint and beyond).

        The reply is the ref once `on_start` has ended. If `__init__` or `on_start` raises, that exception is the reply
        and nothing is left behind. Cancelling the wait does not undo the spawn: the actor lives until it is stopped,
        at the latest with its system.

        Raises (as the reply):
            SystemStoppedError: the system is not running, or stopping.
        """
        reply: Reply[ActorRef[A]] = Reply(self)
        self._spawn(reply, None, factory, args, kwargs)
        return reply

    def options(
        self, *, name: str | None = None, inbox_limit: int | None = None, inbox_policy: InboxPolicy | None = None
    ) -> SpawnOptions:
        """Spawn with options: `ref = await system.options(name="counter", inbox_limit=100).spawn(Counter, 1)`.

        Args:
            name: held by one actor of the system at a time, from before `__init__` until it is dead.
            inbox_limit: instead of the class's own, see `TrioActor.inbox_limit`.
            inbox_policy: instead of the class's own, see `TrioActor.inbox_policy`.

        Raises:
            TypeError: an option is of a wrong type.
            ValueError: an option makes no sense.

        """
        return SpawnOptions(system=self, name=name, inbox_limit=inbox_limit, inbox_policy=inbox_policy)

    def lookup(self, name: str) -> ActorRef[Any] | None:
        """Return the ref of the actor that holds a name, also while it starts or ends; None if nobody does.

        Any thread may call it.
        """
        return self.names.get(name)

    def _spawn(
        self,
        reply: Reply[ActorRef[A]],
        options: SpawnOptions | None,
        factory: Callable[..., A],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if self.stopping:
            reply.set_exception(SystemStoppedError(f"{self!r} is stopping"))
            return
        if get_ident() != self.thread:
            if not self.call_soon(self._spawn, reply, options, factory, args, kwargs):
                reply.set_exception(SystemStoppedError(f"{self!r} is not running"))
            return
        cell = self._cell_class(self, reply)
        reply._cell = cell  # noqa: SLF001  # an `on_start` that waits for its spawner is a cycle, and refused
        if options is not None:
            try:
                options.apply(cell)
            except NameTakenError as error:
                reply.set_exception(error)
                return
        self._live[cell] = None
        cell.start(factory, args, kwargs)

    def statistics(self) -> SystemStatistics:
        """Return what can be seen of the system at this moment, in time that grows with its actors. From any thread."""
        return system_statistics(self)

    def spawn_child(self, owner: Owner, spawning: Reply[Any], name: str | None) -> ActorCell:
        """Make a cell for a supervised actor, which the supervisor starts and stops.

        Raises:
            SystemStoppedError: the system is stopping.
            NameTakenError: another actor holds the name.

        """
        if self.stopping:
            raise SystemStoppedError(f"{self!r} is stopping")
        cell = self._cell_class(self, spawning)
        cell.owner = owner
        if name is not None:
            self.names.claim(name, cell)
        self._live[cell] = None
        return cell

    # -- calls ---------------------------------------------------------------------------------------------------------

    def run(self, async_fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Run an async function in a Trio task of the system, from any thread: `system.run(fetch, url).get()`.

        It starts at once, in a copy of the caller's context, whether or not anybody waits for its answer. `await` the
        call, in Trio or asyncio, or `.get()` it in a thread; cancelling that wait does not end the function:
        `call.cancel()` does, and so does a cancelled `await call.or_cancel()`.

        An `Exception` that it raises is the answer, and told to nobody else. What is no `Exception` is raised in the
        host of the system, as if it came out of a handler. Functions that still run when the system has stopped its
        actors are cancelled, and waited for.

        Raises (as the answer):
            ActorDeadError: it was cancelled, or raised what concerns the host.
            SystemStoppedError: the system is not running, or being left, and the caller is no task of its own loop.
        """
        return Call(self, partial(async_fn, *args, **kwargs))

    def iterate(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate an async generator on a plain thread; it runs in the system.

        Leaving the loop early closes it. Raises, at the first step, `BlockingCallError` on the loop's own thread, and
        `SystemStoppedError` when the system is not running, or being left; what was begun before goes on to its end.
        """
        return iterate(self, stream)

    # -- for the rest of the kernel ------------------------------------------------------------------------------------

    def on_loop(self) -> bool:
        """Whether the caller is on the thread of this system's loop."""
        return get_ident() == self.thread

    def in_task(self) -> bool:
        """Whether the caller is a Trio task of the loop in which this system lives, or has lived."""
        return trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is self._token

    def lives_here(self) -> bool:
        """Whether blocking the calling thread would block this system."""
        return get_ident() == self._home

    def call_soon(self, call: Callable[..., object], *args: object) -> bool:
        """Have the loop's thread call something; False when there is no loop any more. In order, for each thread."""
        if self._token is None:
            return False
        try:
            self._token.run_sync_soon(call, *args)
        except trio.RunFinishedError:
            return False
        return True

    def call_in_order(self, call: Callable[..., object], *args: object) -> None:
        """Call something on the loop's thread, behind what the calling thread has sent there before."""
        if self.on_loop() or not self.call_soon(call, *args):  # without a loop there is nobody to disturb
            call(*args)

    def start_task(self, async_fn: Callable[..., Any], *args: object, name: str) -> None:
        """Start a task of an actor, in the context of the caller."""
        assert self._nursery is not None  # there is no actor before the system is entered
        self._nursery.start_soon(async_fn, *args, name=name)

    def ref_to(self, cell: ActorCell) -> ActorRef[Any]:
        """Make the one ref of a cell."""
        return ActorRef(cell)

    def remove(self, cell: ActorCell) -> None:
        """Forget an actor that is dead."""
        self._live.pop(cell, None)
        if cell.name is not None:
            self.names.free(cell.name)
        self.tally.handled += cell.handled

    def stop_now(self) -> None:
        """Cancel the block that the system was entered by, from any thread: its actors are stopped `now`."""
        self.call_soon(self._scope.cancel)

    def fatal(self, error: BaseException) -> None:
        """Stop everything because of an exception that concerns the host; the first one is raised there."""
        if self._fatal is None:
            self._fatal = error
            self._scope.cancel()
        elif error is not self._fatal:
            report("another_fatal_error", system=self.name, exc_info=error)
