"""One child of a supervisor: how it is started, watched and stopped.

The `Child` is the supervisor's record, and the `owner` of the child's cell. It outlives incarnations; the cell, and so
the ref, outlives them too, until the supervisor gives the child up. A child started again after that gets a new one.
"""

# a child's cell, and its supervisor's, are the kernel's own

from __future__ import annotations

import enum
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import frozen

from quiesce.actors.kernel.administration import ChildInfo, ChildState
from quiesce.actors.kernel.errors import NameTakenError, SystemStoppedError
from quiesce.actors.kernel.exits import Exit, ExitKind, Haste
from quiesce.actors.kernel.log import warn
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.states import DEAD, DOWN, EXITING
from quiesce.actors.kernel.supervision import FATES, Fate, Reason
from quiesce.actors.kernel.supervision_errors import Decline
from quiesce.actors.kernel.system_message import SystemMessage
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.supervision import ChildSpec
    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["Child", "ChildEnded", "Leaving"]

_WARN_EVERY: Final = 5.0  # seconds between two warnings about a child that was cancelled and does not end
_numbers: Final = count()


class Leaving(enum.Enum):
    """Whether the supervisor is stopping a child."""

    NOT = "not"
    FOR_RESTART = "for restart"
    FOR_GOOD = "for good"


@frozen
class ChildEnded(SystemMessage, Message[None]):
    """Sent to a supervisor when a child ended by itself."""

    child: Child


class Child:
    """The record of one child."""

    __slots__ = (
        "_gone",
        "_supervisor",
        "_up_since",
        "cell",
        "exit",
        "heeding",
        "lasted",
        "leaving",
        "number",
        "restart",
        "spec",
        "state",
        "wait",
    )

    def __init__(self, spec: ChildSpec, supervisor: ActorCell) -> None:
        self.spec = spec
        self.number = next(_numbers)  # later ones were added later
        self.cell: ActorCell | None = None
        self.state = ChildState.DOWN
        self.leaving = Leaving.NOT
        self.exit: Exit | None = None  # of the last incarnation
        self.heeding = False  # it was to be started again, and is not because somebody asked it to stop
        self.lasted = 0.0  # seconds for which it was up; 0 if it did not get that far
        self.wait: float | None = None  # the last back-off, before chance
        self.restart: object = None  # the one that it waits for
        self._supervisor = supervisor
        self._up_since = 0.0
        self._gone: trio.Event | None = None

    @property
    def active(self) -> bool:
        """Whether it runs, or is about to."""
        return self.state is not ChildState.DOWN

    @property
    def runs(self) -> bool:
        """Whether it is up."""
        return self.state is ChildState.RUNNING

    @property
    def ref(self) -> ActorRef[Any]:
        """The ref of an active child."""
        assert self.cell is not None
        return self.cell.ref

    @property
    def info(self) -> ChildInfo:
        """What others may know of it."""
        return ChildInfo(self.spec.id, self.state, self.ref if self.active and self.cell else None, self.spec.kind)

    @property
    def reason(self) -> Reason:
        """Why it ended."""
        return Reason.FINISHED if self.heeding else _reason(self.exit)

    @property
    def start_failure(self) -> Reason:
        """Why it could not be started: one that was stopped before it was up has finished."""
        failed = self.exit is None or self.reason is Reason.FAILED
        return Reason.NOT_STARTED if failed else self.reason

    @property
    def error(self) -> BaseException | None:
        """The exception that ended it, if it was one."""
        return None if self.exit is None else self.exit.error

    def has_ended(self) -> bool:
        """Whether it ended by itself and nobody has dealt with that yet."""
        return self.runs and self.leaving is Leaving.NOT and self._is_down()

    def has_fallen(self) -> bool:
        """Whether it has ended so, and is to be started again."""
        return self.has_ended() and FATES[self.spec.restart][self.reason] is Fate.RESTART

    def _is_down(self) -> bool:
        return self.cell is None or self.cell.state >= DOWN

    def await_restart(self, restart: object) -> None:
        """Be about to be started again, by `restart`."""
        self.state, self.restart = ChildState.RESTARTING, restart

    # -- start ---------------------------------------------------------------------------------------------------------

    def launch(self) -> Reply[Any]:
        """Start it, at its old address if that is still there."""
        self.restart = self.exit = None
        self.heeding = False
        cell = self.cell
        if cell is not None and cell.state != DEAD:
            starting = cell.revive(self.spec.start)
        else:
            self.state = ChildState.STARTING
            starting = self._launch_anew(self._supervisor.system)
        starting._cell = self.cell  # noqa: SLF001  # an `on_start` that waits for its supervisor is a cycle, and refused
        starting.on_done(self._launched)
        return starting

    def _launch_anew(self, system: ActorSystem) -> Reply[Any]:
        starting: Reply[Any] = Reply(system)
        try:
            self.cell = system.spawn_child(self, starting, self.spec.name)
        except (SystemStoppedError, NameTakenError) as error:
            starting.set_exception(error)
        else:
            self.cell.start(self.spec.start, (), {})
        return starting

    def _launched(self, starting: Reply[Any]) -> None:
        """Run, from the moment of the answer: a crash right behind it is one of a running child."""
        try:
            starting.get()
        except Exception:  # noqa: BLE001  # whoever started it gets it
            return
        self.state, self._up_since = ChildState.RUNNING, trio.current_time()
        self._tell_end()

    def outcome(self, starting: Reply[Any]) -> bool:
        """Say what came of a `launch()` that is through. False: it declined, and is down.

        Raises:
            Exception: what kept it from starting.

        """
        try:
            starting.get()
        except Decline:
            self.retire()
            return False
        if self.spec.restart == "temporary":
            self.spec = self.spec.without_start()
        return True

    async def start(self) -> bool:
        """Start it and wait until it is up. False: it declined, and is down.

        A checkpoint. Cancelling the wait leaves it starting.

        Raises:
            Exception: what kept it from starting.

        """
        starting = self.launch()
        with suppress(Exception):
            await starting
        return self.outcome(starting)

    def abort_start(self) -> None:
        """Cut a start that is under way short; the address stays for the next attempt."""
        self.leaving = Leaving.FOR_RESTART
        if self.cell is not None:
            self.cell.cut_short()

    # -- end, as the cell's owner --------------------------------------------------------------------------------------

    def keeps(self, exit_: Exit) -> bool:
        """Whether the address outlives an actor that ends like this."""
        if self.leaving is not Leaving.NOT:
            return self.leaving is Leaving.FOR_RESTART
        return self.state is not ChildState.STARTING and FATES[self.spec.restart][_reason(exit_)] is Fate.RESTART

    def stops(self) -> bool:
        """Whether it is the supervisor that stops the actor."""
        return self.leaving is not Leaving.NOT

    def heeds_stop(self) -> bool:
        """Whether a stop that somebody asks for keeps it from being started again: its restart type says so."""
        return FATES[self.spec.restart][Reason.FINISHED] is not Fate.RESTART

    def ended(self, exit_: Exit, *, heeding: bool = False) -> None:
        """The actor has ended. If nobody waits for that, the supervisor is told."""
        self.exit, self.heeding = exit_, heeding
        self.lasted = trio.current_time() - self._up_since if self.runs else 0.0
        if self._gone is not None:
            self._gone.set()
        self._say_ended()

    def _say_ended(self) -> None:
        if self.heeding and self.leaving is Leaving.NOT:  # as if it had been up until then
            self.state, self.restart = ChildState.RUNNING, None
        self._tell_end()

    def _tell_end(self) -> None:
        if self.has_ended() and self._supervisor.state < EXITING:  # else it is about to stop every child
            self._supervisor.deliver(ChildEnded(self), None)
            self._supervisor.actor._sibling_ended(self)  # type: ignore[union-attr]  # noqa: SLF001  # it is its supervisor's

    # -- stop ----------------------------------------------------------------------------------------------------------

    async def stop(self, leaving: Leaving, haste: Haste = Haste.NONE) -> None:
        """Stop it, and return when it has ended, however long that takes.

        It has its shutdown time to end in good order: for good, after what was sent to it before; for a restart, after
        the message that it is handling. Then it is cancelled and waited for, with a warning every few seconds. A
        checkpoint, unless it is down. When cancelled, it is still being stopped.
        """
        if not self.begin_stop(leaving, haste):
            await self._bring_down(haste)
            self._stopped()

    def begin_stop(self, leaving: Leaving, haste: Haste = Haste.NONE) -> bool:
        """Ask it to stop, and say whether it has: one that is idle may do so at once."""
        self.leaving = leaving
        if not self._is_down() and self._has_time(haste):
            self._ask_to_stop(haste)
        down = self._is_down()
        if down:
            self._stopped()
        return down

    def _stopped(self) -> None:
        if self.leaving is Leaving.FOR_GOOD:
            self.retire()
        self.leaving = Leaving.NOT
        if self.heeding:
            self._say_ended()

    def retire(self) -> None:
        """Be down, at no address."""
        self.state = ChildState.DOWN
        self.restart = None
        self.heeding = False
        if self.cell is not None:
            self.cell.give_up()

    def _has_time(self, haste: Haste) -> bool:
        return self.spec.shutdown > 0 and haste is not Haste.AT_ONCE

    def _ask_to_stop(self, haste: Haste) -> None:
        cell = self.cell
        assert cell is not None
        if haste is Haste.NOW:
            cell.stop_now(None)
        elif self.leaving is Leaving.FOR_RESTART:
            cell.stop_next()
        else:
            cell.ref.stop(block=False)

    async def _bring_down(self, haste: Haste) -> None:
        cell = self.cell
        assert cell is not None
        if self._has_time(haste):
            with trio.move_on_after(self.spec.shutdown):
                await self._wait_down()
        if not self._is_down():
            cell.cut_short()
        since = trio.current_time()
        while not self._is_down():
            with trio.move_on_after(_WARN_EVERY):
                await self._wait_down()
                break
            seconds = trio.current_time() - since
            warn("child_does_not_end", child=self.spec.id, actor=str(cell), cancelled_for=seconds)

    async def _wait_down(self) -> None:
        while not self._is_down():
            if self._gone is None or self._gone.is_set():
                self._gone = trio.Event()
            await self._gone.wait()


def _reason(exit_: Exit | None) -> Reason:
    """Say what an exit means to a supervisor. What is no `Exception` has gone to the host, and everything ends."""
    if exit_ is None or exit_.kind is ExitKind.NORMAL:
        return Reason.FINISHED
    if exit_.kind is ExitKind.CRASHED and isinstance(exit_.error, Exception):
        return Reason.FAILED
    return Reason.SYSTEM_ENDING
