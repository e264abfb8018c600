"""The cell: an actor's address, inbox and life. It owns the invariant that an actor does one thing at a time.

The states are in `states.py`. An actor that is still in `on_start` is RUNNING, with `spawning` set. Whoever brings a
handler to its end looks at the state again: a cell that became EXITING meanwhile is taken further by `advance_exit()`,
which goes on once the cell has no task. All of this happens on the loop's thread.
"""

# ruff: noqa: SLF001  # a cell, its actor and the replies to it are one mechanism

from __future__ import annotations

import contextvars
import threading
import uuid
from collections import deque
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from pykka import ActorDeadError
from pykka.messages import _ActorStop

from quiesce.actors.kernel.construction import construct
from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.log import report
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.runner import Runner
from quiesce.actors.kernel.states import CLOSING, DEAD, EXITING, IDLE, READY, RUNNING
from quiesce.actors.kernel.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["ActorCell"]

T = TypeVar("T")

_TAKEN: Final = object()  # stands for the message once its reply was taken over
_first_asking = threading.Lock()  # two threads may be the first to ask for the same thing of one actor


class ActorCell:
    """One actor's address, for as long as anybody holds a ref; `actor` is what lives there."""

    __slots__ = (
        "_ended",
        "_event",
        "_ref",
        "_urn",
        "actor",
        "actor_class",
        "context",
        "exit",
        "inbox",
        "message",
        "reply",
        "runner",
        "spawning",
        "state",
        "stops",
        "system",
        "taken",
        "tasks",
        "work",
    )

    def __init__(self, system: ActorSystem, spawning: Reply[Any]) -> None:
        self.system = system
        self.state = RUNNING  # until on_start has ended, so that messages queue up
        self.inbox: deque[tuple[Any, Reply[Any] | None]] = deque()
        self.context = contextvars.copy_context()
        self.actor: TrioActor | None = None
        self.actor_class: type[TrioActor] | None = None
        self.message: object = None  # what is being handled, and the reply that its asker waits for
        self.reply: Reply[Any] | None = None
        self.taken: set[Reply[Any]] | None = None
        self.runner: Runner | None = None
        self.work: Work | None = None
        self.tasks = 0  # of runner and work: 0 is when an exit can go on
        self.spawning: Reply[Any] | None = spawning  # until on_start has ended
        self.stops: list[Reply[bool]] | None = None
        self.exit: Exit | None = None
        self._ended: Reply[Exit] | None = None
        self._ref: ActorRef[Any] | None = None
        self._urn: str | None = None
        self._event: threading.Event | None = None

    def __str__(self) -> str:
        name = "an actor under construction" if self.actor_class is None else self.actor_class.__name__
        return f"{name} ({self.urn})"

    # -- what is only made when somebody asks --------------------------------------------------------------------------

    @property
    def urn(self) -> str:
        """A universally unique name."""
        if self._urn is None:
            with _first_asking:
                if self._urn is None:
                    self._urn = uuid.uuid4().urn
        return self._urn

    @property
    def ref(self) -> ActorRef[Any]:
        """The one ref to this cell."""
        if self._ref is None:
            self._ref = self.system.ref_to(self)
        return self._ref

    @property
    def stopped_event(self) -> threading.Event:
        """Set once the cell takes no more messages."""
        if self._event is None:
            with _first_asking:
                if self._event is None:
                    self._event = threading.Event()
            if self.state >= EXITING:
                self._event.set()
        return self._event

    @property
    def ended(self) -> Reply[Exit]:
        """The reply that arrives when the actor is dead: how it ended."""
        if self._ended is None:
            with _first_asking:
                if self._ended is None:
                    ended: Reply[Exit] = Reply(self.system)
                    ended._cell = self
                    self._ended = ended
            if self.state == DEAD:
                self._ended._settle(self.exit)
        return self._ended

    # -- start ---------------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def start(self, make: Callable[..., TrioActor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the actor and run `on_start`; `spawning` gets the ref when that has ended, or what went wrong."""
        try:
            actor = self.context.run(construct, self, make, args, kwargs)
            result: object = self.context.run(actor.on_start)
        except Exception as error:  # noqa: BLE001  # the spawner gets it
            self.crash(error)
        except BaseException as error:  # noqa: BLE001  # the host gets it
            self._die(error)
        else:
            if type(result) is CoroutineType:
                self._hand_over(self._start_later(result))
                return
            self._started()
        self.end_turn()

    async def _start_later(self, on_start: Coroutine[Any, Any, None]) -> None:
        await on_start
        self._started()

    def _started(self) -> None:
        spawning, self.spawning = self.spawning, None
        if spawning is not None:
            spawning._resolve(self.ref)

    # -- messages ------------------------------------------------------------------------------------------------------

    def post(self, message: object, reply: Reply[Any] | None) -> None:
        """Send from any thread; what one thread sends arrives in order."""
        if self.system.on_loop():
            self.deliver(message, reply)
        elif self.state == DEAD or not self.system.call_soon(self.deliver, message, reply):
            self._refuse(message, reply, f"{self} not found", dead=True)

    def deliver(self, message: object, reply: Reply[Any] | None) -> None:
        """Put a message into the inbox; an actor that is gone fails the ask and drops the tell."""
        if self.state >= EXITING:
            self._refuse(message, reply, f"{self} not found")
            return
        if reply is not None:
            reply._cell = self
        self.inbox.append((message, reply))
        if self.state == IDLE:
            self.state = READY
            self.system.dispatcher.schedule(self)

    @trio.lowlevel.enable_ki_protection
    def turn(self, run: Callable[..., Any], limit: int) -> None:
        """Handle queued messages, one by one: the only place that calls a handler.

        The caller owns the cell: it took it out of the dispatcher's queue, or found it idle, or is its runner. The turn
        ends when the inbox is empty, after `limit` messages, when a checkpoint is due, when the actor begins its exit,
        or with a handler that is a coroutine, which the runner gets. `run` calls a handler in the actor's context.
        """
        self.state = RUNNING
        inbox = self.inbox
        actor = self.actor
        receivers = actor._receivers  # type: ignore[union-attr]  # gone only when the cell is DEAD
        pace = self.system.pace
        while inbox:
            self.message, self.reply = message, asked = inbox.popleft()
            try:
                result = run(receivers[type(message)], actor, message)
            except Exception as error:  # noqa: BLE001  # a crash stays with this actor, or goes to its asker
                self._handler_failed(error)
            except BaseException as error:  # noqa: BLE001  # carried to the host, past every other actor
                self._lose_asker(error)
                self._die(error)
            else:
                if type(result) is CoroutineType:
                    self._hand_over(result)
                    return
                if asked is not None and self.message is not _TAKEN:
                    asked._resolve(result)
            limit -= 1
            if self.state != RUNNING or not limit or (inbox and pace.clock() >= pace.deadline):
                break
        if self.state == RUNNING and not inbox:  # what end_turn() does most of the time, without the call
            self.state = IDLE
            self.message = self.reply = None
        else:
            self.end_turn()

    def end_turn(self) -> None:
        """Leave RUNNING, with no handler under way, to whatever is next."""
        if self.state != RUNNING:
            self.advance_exit()
        elif self.inbox:
            self.state = READY
            self.system.dispatcher.schedule(self)
        else:
            self.state = IDLE
            self.message = self.reply = None  # nothing of the last message is kept alive

    async def complete(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run an `async def` handler to its end, in the actor's own task, and answer."""
        asked = self.reply
        try:
            result = await _interruptibly(coroutine)
        except Exception as error:  # noqa: BLE001  # a crash stays with this actor, or goes to its asker
            self._handler_failed(error)
        except BaseException as error:
            self._lose_asker(error)
            raise
        else:
            if asked is not None and self.message is not _TAKEN:
                asked._resolve(result)

    def take_reply(self, message: object) -> Reply[Any]:
        """Take over answering the message that is being handled."""
        if message is not self.message or self.state < RUNNING:
            raise LookupError(f"{self} is not handling {message!r}, or its reply has been taken already")
        self.message = _TAKEN
        reply: Reply[Any] = Reply(self.system) if self.reply is None else self.reply
        reply._cell = self
        if self.taken is None:
            self.taken = set()
        self.taken.add(reply)
        return reply

    def has_taken(self, reply: Reply[Any]) -> bool:
        """Whether the actor answers this one later, and has not done so yet."""
        return self.taken is not None and reply in self.taken

    def forget(self, reply: Reply[Any]) -> None:
        """A reply has been completed, on whichever thread."""
        if self.taken is not None:
            self.taken.discard(reply)

    def _handler_failed(self, error: Exception) -> None:
        """Give the exception to the asker; with nobody to give it to, it is a crash."""
        asked = self.reply
        if asked is None or asked.done():
            self.crash(error)
        else:
            asked._fail(error)

    def _lose_asker(self, error: BaseException) -> None:
        if self.reply is not None:
            self.reply._abandon(ActorDeadError(f"{self} ended while it handled the message: {type(error).__name__}"))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _hand_over(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Have the actor's own task run a coroutine; the cell stays RUNNING until that task says otherwise."""
        if self.runner is None:
            self.runner = Runner(self)
            self.tasks += 1
            self.context.run(self.system.start_task, self.runner.run, name=self._task_name())
        self.runner.take(coroutine)
        if self.state >= EXITING:  # the handler stopped its own actor before it became a coroutine
            self.runner.cancel()

    def start_soon(
        self, async_fn: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], name: object
    ) -> None:
        """Start child work, in the nursery that is open while there is any."""
        if self.state >= EXITING:
            raise ActorDeadError(f"{self} is stopping and starts no more work")
        if self.work is None:
            self.work = Work(self)
            self.tasks += 1
            self.system.start_task(self.work.run, name=self._task_name())
        self.work.start_soon(async_fn, args, name)

    def _task_name(self) -> str:
        return "actor" if self.actor_class is None else self.actor_class.__name__

    def task_ended(self) -> None:
        """The runner or the child work has come to its end; the dispatcher takes the exit further."""
        self.tasks -= 1
        if self.state == EXITING:
            self.system.dispatcher.schedule(self)

    def runs_in(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task is the one in which the actor's `async def` handlers run."""
        return self.runner is not None and self.runner.task is task

    # -- end -----------------------------------------------------------------------------------------------------------

    def stop_in_turn(self) -> None:
        """Handle the stop message: everything that was sent before it has been handled."""
        self._await_stop(self.reply)
        self.message = _TAKEN
        self.begin_exit(self._ordinary_exit())

    def stop_now(self, reply: Reply[bool] | None) -> None:
        """Stop ahead of what is queued; a handler under way is cancelled if it has a task, else it ends first."""
        if self.state == DEAD:
            self._refuse(_ActorStop(), reply, f"{self} not found")
            return
        self._await_stop(reply)
        self.begin_exit(self._ordinary_exit())

    def crash(self, error: BaseException) -> None:
        """End the actor because of an exception that nobody else is there to receive."""
        if self.spawning is None:
            report("actor_crashed", actor=str(self), exc_info=error)
        self.begin_exit(Exit(ExitKind.CRASHED, error))

    def break_off(self, error: BaseException) -> BaseException | None:
        """Take apart what came out of a handler or child work that is no plain exception.

        The host gets what concerns it, a plain exception crashes this actor only, and the cancellation that has to
        travel on is returned.
        """
        cancelled, rest = _split_cancelled(error)
        if isinstance(rest, Exception):
            self.crash(rest)
        elif rest is not None:
            self.begin_exit(Exit(ExitKind.CRASHED, rest))
            self.system.fatal(rest)
        return cancelled

    def _die(self, error: BaseException) -> None:
        """What is no plain exception came out of a function, where even a stray cancellation concerns the host."""
        cancelled = self.break_off(error)
        if cancelled is not None:
            self.begin_exit(Exit(ExitKind.CRASHED, cancelled))
            self.system.fatal(cancelled)

    def begin_exit(self, exit_: Exit) -> None:
        """Close the inbox and cancel the work; the first reason to end is the one that counts."""
        if self.state >= EXITING:
            return
        at_work = self.state == RUNNING
        self.exit = exit_
        self.state = EXITING
        if self._event is not None:
            self._event.set()
        if self.runner is not None:
            self.runner.cancel()
        if self.work is not None:
            self.work.cancel()
        if not at_work:
            self.system.dispatcher.schedule(self)

    @trio.lowlevel.enable_ki_protection
    def advance_exit(self) -> None:
        """Go on with the exit once no task is left: the hook, then the end."""
        if self.state != EXITING or self.tasks:
            return
        self.state = CLOSING
        coroutine = self._call_hook()
        if coroutine is None:
            self._finish()
        else:
            self.context.run(self.system.start_task, self._finish_later, coroutine, name=self._task_name())

    def _call_hook(self) -> CoroutineType[Any, Any, Any] | None:
        """Call `on_stop` or `on_failure`; an actor that never started has neither."""
        actor, error = self.actor, self.exit.error  # type: ignore[union-attr]  # set before EXITING
        if self.spawning is not None or actor is None:
            return None
        try:
            if error is None:
                result: object = self.context.run(actor.on_stop)
            else:
                result = self.context.run(actor.on_failure, type(error), error, error.__traceback__)
        except Exception as hook_error:  # noqa: BLE001  # the actor ends in any case
            self._hook_failed(hook_error)
        except BaseException as hook_error:  # noqa: BLE001  # the host gets it
            self._die(hook_error)
        else:
            return result if type(result) is CoroutineType else None
        return None

    async def _finish_later(self, hook: Coroutine[Any, Any, None]) -> None:
        try:
            await hook
        except Exception as error:  # noqa: BLE001  # the actor ends in any case
            self._hook_failed(error)
        except BaseException as error:  # noqa: BLE001  # told apart: the host, a crash, a cancellation
            cancelled = self.break_off(error)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self._finish()

    def _hook_failed(self, error: Exception) -> None:
        report("actor_exit_hook_failed", actor=str(self), exc_info=error)
        if self.exit is not None and self.exit.error is None:
            self.exit = Exit(ExitKind.CRASHED, error)

    def _finish(self) -> None:
        """Be dead: leave the system and answer everybody who still waits."""
        for message, reply in self.inbox:
            self._refuse(message, reply, f"{self} stopped before handling the message")
        self.inbox.clear()
        for reply in list(self.taken or ()):
            reply._abandon(ActorDeadError(f"{self} stopped before it answered"))
        self.state = DEAD
        self.system.remove(self)
        self.actor = self.runner = None
        self._finish_spawning()
        for stop in self.stops or ():
            stop._resolve(True)
        if self._ended is not None:
            self._ended._settle(self.exit)

    def _finish_spawning(self) -> None:
        spawning = self.spawning
        if spawning is not None:
            error = self.exit.error if self.exit is not None else None
            never = ActorDeadError(f"{self} stopped before it had started")
            spawning._fail(error if isinstance(error, Exception) else never)

    def _ordinary_exit(self) -> Exit:
        return Exit(ExitKind.SHUTDOWN if self.system.stopping else ExitKind.NORMAL)

    def _await_stop(self, reply: Reply[bool] | None) -> None:
        if reply is not None:
            reply._cell = self
            self.stops = [*(self.stops or ()), reply]

    def _refuse(self, message: object, reply: Reply[Any] | None, why: str, *, dead: bool = False) -> None:
        """Answer what an actor that is gone, or going, will not handle."""
        if reply is None:
            return
        if type(message) is not _ActorStop:
            reply._abandon(ActorDeadError(why))
        elif dead or self.state == DEAD:
            reply._settle(False)
        else:
            self._await_stop(reply)


@trio.lowlevel.disable_ki_protection
async def _interruptibly(coroutine: Coroutine[Any, Any, T]) -> T:
    """Let Ctrl-C interrupt the user's code, which the runner's protected loop awaits."""
    return await coroutine


def _split_cancelled(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return the cancellation in an exception, and the rest of it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)
