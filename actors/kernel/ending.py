"""The half of a cell that brings its actor to the end, whatever the reason.

`begin_exit()` closes the inbox; whoever brings the last handler or task to its end calls `advance_exit()`, which runs
the exit hook; then everybody who still waits is answered. All of this happens on the loop's thread.

A supervised cell has an `owner`, which says at the beginning of the exit whether the address outlives the actor. If so
the cell is `kept`: messages queue up, it becomes DOWN instead of DEAD, and then is revived or given up. A stop that
somebody asks for meanwhile ends it for good, unless the owner would start it again after an ordinary end as well.
"""

# ruff: noqa: SLF001  # a cell, its actor and the replies to it are one mechanism

from __future__ import annotations

from logging import DEBUG, ERROR
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import trio
from pykka import ActorDeadError
from pykka.messages import _ActorStop

from quiesce.actors.kernel.bounded import BoundedInbox
from quiesce.actors.kernel.entries import NO_INBOX, opened, packed
from quiesce.actors.kernel.exits import Exit, ExitKind, Haste
from quiesce.actors.kernel.log import enabled, note
from quiesce.actors.kernel.states import CLOSING, DEAD, DOWN, EXITING, IDLE, READY, RUNNING
from quiesce.actors.kernel.system_message import STOP

if TYPE_CHECKING:
    import contextvars
    import threading
    from collections import deque
    from collections.abc import Coroutine

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.entries import Entry
    from quiesce.actors.kernel.monitors import Monitor
    from quiesce.actors.kernel.reply import Reply
    from quiesce.actors.kernel.runner import Runner
    from quiesce.actors.kernel.system import ActorSystem
    from quiesce.actors.kernel.timers import Timers
    from quiesce.actors.kernel.work import Work

__all__ = ["TAKEN", "EndingCell", "Owner", "split_cancelled"]

TAKEN: Final = object()  # stands for the message once its reply was taken over
_NORMAL: Final = Exit(ExitKind.NORMAL)
_SHUTDOWN: Final = Exit(ExitKind.SHUTDOWN)


class Owner(Protocol):
    """What a supervised cell knows of its supervisor."""

    def keeps(self, exit_: Exit) -> bool:
        """Whether the address outlives an actor that ends like this."""

    def stops(self) -> bool:
        """Whether it is the supervisor that stops the actor."""

    def heeds_stop(self) -> bool:
        """Whether a stop that somebody asks for ends an actor for good that was to be started again."""

    def ended(self, exit_: Exit, *, heeding: bool = False) -> None:
        """The actor has ended: the cell is DOWN or DEAD. It may be so for good because of a stop that was heeded."""


class EndingCell:
    """How an actor ends. The other half, and all of the state, is in `cell.py`."""

    __slots__ = (
        "_ended",
        "_event",
        "actor",
        "exit",
        "haste",
        "hook_scope",
        "hook_task",
        "kept",
        "message",
        "monitors",
        "owner",
        "reply",
        "runner",
        "spawning",
        "state",
        "stops",
        "taken",
        "timers",
    )

    if TYPE_CHECKING:  # set in `cell.py`
        system: ActorSystem
        state: int
        inbox: deque[Entry]
        context: contextvars.Context
        actor: TrioActor | None
        message: object
        reply: Reply[Any] | None
        taken: set[Reply[Any]] | None
        runner: Runner | None
        work: Work | None
        tasks: int
        spawning: Reply[Any] | None
        stops: list[Reply[bool]] | None
        exit: Exit | None
        haste: Haste
        hook_scope: trio.CancelScope | None
        hook_task: trio.lowlevel.Task | None
        kept: bool
        owner: Owner | None
        timers: Timers | None
        monitors: set[Monitor] | None
        _ended: Reply[Exit] | None
        _event: threading.Event | None

        def _task_name(self) -> str: ...

    def stop_in_turn(self) -> None:
        """Handle the stop message: everything that was sent before it has been handled."""
        self._await_stop(self.reply)
        self.message = TAKEN
        self.begin_exit(self._ordinary_exit())

    def stop_now(self, reply: Reply[bool] | None) -> None:
        """Stop ahead of what is queued; a handler under way is cancelled if it has a task, else it ends first."""
        if self.state >= DOWN:
            self._refuse(STOP, reply, f"{self} not found")
            return
        self._await_stop(reply)
        self.haste = max(self.haste, Haste.NOW)
        if self.state == CLOSING and self.actor is not None:
            self.actor._hurry()
        self.begin_exit(self._ordinary_exit())

    def stop_next(self) -> None:
        """Stop when the handler under way has ended, ahead of what is queued."""
        if self.state >= EXITING:
            return
        (cast("ActorCell", self).made_inbox() if self.inbox is NO_INBOX else self.inbox).appendleft(STOP)
        if self.state == IDLE:
            self.state = READY
            self.system.dispatcher.schedule(cast("ActorCell", self))

    def cut_short(self) -> None:
        """Stop at once: all work is cancelled, and the exit hook at its first checkpoint."""
        self.haste = Haste.AT_ONCE
        self.begin_exit(self._ordinary_exit())
        if self.hook_scope is not None:
            self.hook_scope.cancel()

    def crash(self, error: BaseException) -> None:
        """End the actor because of an exception that nobody else is there to receive."""
        if self.spawning is None:
            note(ERROR, "actor_crashed", cast("ActorCell", self), exc_info=error)
        self.begin_exit(Exit(ExitKind.CRASHED, error))

    def break_off(self, error: BaseException) -> BaseException | None:
        """Take apart what came out of a handler or child work that is no plain exception.

        The host gets what concerns it, a plain exception crashes this actor only, and the cancellation that has to
        travel on is returned.
        """
        cancelled, rest = split_cancelled(error)
        if isinstance(rest, Exception):
            self.crash(rest)
        elif rest is not None:
            self.fatal(rest)
        return cancelled

    def _die(self, error: BaseException) -> None:
        """What is no plain exception came out of a function, where even a stray cancellation concerns the host."""
        cancelled = self.break_off(error)
        if cancelled is not None:
            self.fatal(cancelled)

    def fatal(self, error: BaseException) -> None:
        """End the actor because of an exception that concerns the host, and have it raised there."""
        self.begin_exit(Exit(ExitKind.CRASHED, error))
        self.system.fatal(error)

    def begin_exit(self, exit_: Exit) -> None:
        """Close the inbox and cancel the work; the first reason to end is the one that counts."""
        if self.state >= EXITING:
            return
        at_work = self.state == RUNNING
        self._conclude(exit_)  # first: whoever sees the new state, on whatever thread, sees what it means
        self.state = EXITING
        self._set_event()
        if self.runner is not None:
            self.runner.cancel()
        if self.work is not None:
            self.work.cancel()
        if self.timers is not None or self.monitors is not None:
            self.release()
        if not at_work:
            self.system.dispatcher.schedule(cast("ActorCell", self))

    def _conclude(self, exit_: Exit) -> None:
        """Have a reason to end, and know what it means for the address."""
        self.exit = exit_
        self.kept = self.owner is not None and self.owner.keeps(exit_)

    def _set_event(self) -> None:
        if self._event is not None and not self.kept:
            self._event.set()

    def release(self) -> None:
        """Let go of what belongs to the actor that ends, and not to its address: its timers and its monitors."""
        timers, self.timers = self.timers, None
        if timers is not None:
            timers.cancel_all()
        monitors, self.monitors = self.monitors, None
        for watched in monitors or ():
            watched.revoke()

    @trio.lowlevel.enable_ki_protection
    def advance_exit(self) -> None:
        """Go on with the exit once no task is left: the hook, then the end."""
        if self.state != EXITING or self.tasks:
            return
        self.state = CLOSING
        try:
            coroutine = self._call_hook()
            if coroutine is not None:
                self.context.run(self.system.start_task, self._finish_later, coroutine, name=self._task_name())
                return
        except BaseException as error:  # noqa: BLE001  # the host gets it, and not whoever happens to stop the actor
            self.collapse(error)
        else:
            self._finish()

    def _call_hook(self) -> CoroutineType[Any, Any, Any] | None:
        """Call `on_stop` or `on_failure`; an actor that never started has neither."""
        actor, error = self.actor, self.exit.error  # type: ignore[union-attr]  # set before EXITING
        if self.spawning is not None or actor is None:
            return None
        try:
            failure = error if error is not None and self.is_failure(error) else None
            result: object = self.context.run(actor._end, failure)
        except Exception as hook_error:  # noqa: BLE001  # the actor ends in any case
            self._hook_failed(hook_error)
        except BaseException as hook_error:  # noqa: BLE001  # the host gets it
            self._die(hook_error)
        else:
            return result if type(result) is CoroutineType else None
        return None

    def is_failure(self, _error: BaseException) -> bool:
        """Whether the hook for what ended the actor is `on_failure`."""
        return True

    async def _finish_later(self, hook: Coroutine[Any, Any, None]) -> None:
        try:
            self.hook_task = trio.lowlevel.current_task()
            with trio.CancelScope() as self.hook_scope:
                if self.haste is Haste.AT_ONCE:
                    self.hook_scope.cancel()
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
        note(ERROR, "actor_exit_hook_failed", cast("ActorCell", self), exc_info=error)
        if self.exit is not None and self.exit.error is None:
            self._conclude(Exit(ExitKind.CRASHED, error))
            self._set_event()

    def _finish(self) -> None:
        if self.state == DEAD:  # it collapsed while its hook was at work
            return
        try:
            self._end_life()
        except BaseException as error:  # noqa: BLE001  # the host gets it; nobody may wait for this actor for ever
            self.collapse(error)

    def _end_life(self) -> None:
        """Be dead, or down: answer everybody who still waits, except those whom the next incarnation will answer."""
        heeding = self.kept and self._is_asked_to_stop()
        if heeding:
            self.kept = False
            self._set_event()
        if not self.kept and self.inbox is not NO_INBOX:
            self._refuse_all()
        if self.taken:
            self._abandon_taken()
        if self.kept:
            self.state = DOWN
            self._take_out_stops()
        else:
            self._leave()
        if self.spawning is None:
            self._ended_life()
        self.actor = self.runner = self.taken = self.hook_scope = self.hook_task = None
        self.message = self.reply = None
        self._finish_spawning()
        self._answer_stops()
        if not self.kept:
            self._say_ended()
        self._tell_owner(heeding=heeding)

    def collapse(self, error: BaseException) -> None:
        """Be dead at once, without a hook: the kernel itself failed on this actor. The host gets the exception."""
        self.system.fatal(error)
        self.kept = False
        self.exit = self.exit or Exit(ExitKind.CRASHED, error)
        for step in (
            self._leave,
            self._set_event,
            self._cancel_tasks,
            self.release,
            self._refuse_all,
            self._answer_stops,
            self._abandon_handled,
            self._abandon_taken,
            self._finish_spawning,
            self._say_ended,
            self._tell_owner,
        ):
            try:
                step()
            except BaseException as another:  # noqa: BLE001  # the host gets the first; the other steps are due too
                self.system.fatal(another)

    def _cancel_tasks(self) -> None:
        for task in (self.runner, self.work, self.hook_scope):
            if task is not None:
                task.cancel()

    def _abandon_handled(self) -> None:
        if self.reply is not None:
            self.reply._abandon(self.dead_error(f"{self} ended while it handled the message"))

    def _abandon_taken(self) -> None:
        for reply in list(self.taken or ()):
            reply._abandon(self.dead_error(f"{self} stopped before it answered"))

    def _answer_stops(self) -> None:
        stops, self.stops = self.stops, None
        for stop in stops or ():
            stop._resolve(True)

    def _tell_owner(self, *, heeding: bool = False) -> None:
        if self.owner is not None:
            self.owner.ended(cast("Exit", self.exit), heeding=heeding)

    def _ended_life(self) -> None:
        """An incarnation that had started has ended."""
        kind = self.exit.kind  # type: ignore[union-attr]  # set before EXITING
        if kind is ExitKind.CRASHED:  # which has been logged
            self.system.tally.crashed += 1
            return
        self.system.tally.stopped += 1
        if enabled(DEBUG):
            note(DEBUG, "actor_stopped", cast("ActorCell", self), exit=kind.value)

    def give_up(self) -> None:
        """Let the address die: no incarnation follows. Of an actor that still ends, it dies with it."""
        self.kept = False
        self._set_event()
        if self.state == DOWN:
            self._refuse_all()
            self._leave()
            self._say_ended()

    def _refuse_all(self) -> None:
        inbox = self.inbox
        if inbox:
            entries = [opened(entry) for entry in inbox]
            inbox.clear()
            for message, reply in entries:
                self._answer_refused(message, reply, f"{self} stopped before handling the message")
            self.system.dead_letters.add_all(cast("ActorCell", self), [message for message, _ in entries])
        if type(inbox) is BoundedInbox:
            inbox.close(f"{self} stopped before there was room for the message")

    def _is_asked_to_stop(self) -> bool:
        """Whether a stop is heeded that somebody asked for: also one that is still queued, behind what was at work."""
        if self.owner is None or not self.owner.heeds_stop():
            return False
        queued = (reply for message, reply in map(opened, self.inbox) if type(message) is _ActorStop)
        return bool(self.stops) or any(reply is not None for reply in queued)

    def _stop_down(self) -> bool:
        """Stop while no actor is here: whether that ends it for good."""
        if self.state != DOWN or self.owner is None or not self.owner.heeds_stop():
            return False
        self.give_up()
        self._tell_owner(heeding=True)
        return True

    def _take_out_stops(self) -> None:
        """Have the end answer every stop that was queued for it: the next incarnation is not stopped by them."""
        entries = [opened(entry) for entry in self.inbox]
        self.inbox.clear()
        for message, reply in entries:
            if type(message) is _ActorStop:
                self._await_stop(reply)
            else:
                self.inbox.extend([packed(message, reply)])  # which also a bounded inbox that is full takes
        if type(self.inbox) is BoundedInbox:
            self.inbox.admit()

    def _leave(self) -> None:
        if self.state == DEAD:
            return
        self.state = DEAD
        cell: ActorCell = self  # type: ignore[assignment]  # the other half is always there
        cell.loosen_ref()
        self.system.remove(cell)

    def _say_ended(self) -> None:
        if self._ended is not None:
            self._ended._settle(self.exit)

    def _finish_spawning(self) -> None:
        spawning = self.spawning
        if spawning is not None:
            error = self.exit.error if self.exit is not None else None
            never = ActorDeadError(f"{self} stopped before it had started")
            self.spawning = None
            spawning._fail(error if isinstance(error, Exception) else never)

    def _ordinary_exit(self) -> Exit:
        from_above = self.system.stopping or (self.owner is not None and self.owner.stops())
        return _SHUTDOWN if from_above else _NORMAL

    def _await_stop(self, reply: Reply[bool] | None) -> None:
        if reply is not None:
            reply._cell = self  # type: ignore[assignment]  # the other half is always there
            self.stops = [*(self.stops or ()), reply]

    def dead_error(self, why: str) -> ActorDeadError:
        """Make the error of whoever sends to an actor that is gone; its cause is the failure that ended the actor."""
        error = ActorDeadError(why)
        if self.exit is not None and self.exit.error is not None:
            error.__cause__ = self.exit.error
        return error

    def _refuse(self, message: object, reply: Reply[Any] | None, why: str, *, dead: bool = False) -> None:
        """Answer what an actor that is gone, or going, will not handle, and count it."""
        self._answer_refused(message, reply, why, dead=dead)
        self.system.dead_letters.add(cast("ActorCell", self), message)

    def _answer_refused(self, message: object, reply: Reply[Any] | None, why: str, *, dead: bool = False) -> None:
        if reply is None:
            return
        if type(message) is not _ActorStop:
            reply._abandon(self.dead_error(why))
        elif dead or self.state >= DOWN:
            reply._settle(not dead and self._stop_down())
        else:
            self._await_stop(reply)


def split_cancelled(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return the cancellation in an exception, and the rest of it. Groups around one exception are undone."""
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return cancelled, _alone(rest)
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)


def _alone(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
