"""What can be seen of an actor and of a system from outside: frozen values, and the counters behind them."""

# ruff: noqa: SLF001  # looks into the system

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from quiesce.actors.kernel.bounded import BoundedInbox
from quiesce.actors.kernel.states import STATE_NAMES

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.system import ActorSystem

__all__ = [
    "ActorStatistics",
    "SupervisorStatistics",
    "SystemStatistics",
    "Tally",
    "actor_statistics",
    "system_statistics",
]


class Tally:
    """What a system counts as it goes, once per life of an actor."""

    __slots__ = ("crashed", "handled", "started", "stopped")

    def __init__(self) -> None:
        self.started = self.stopped = self.crashed = 0
        self.handled = 0  # by actors that are dead


@frozen
class SupervisorStatistics:
    """The children of a supervisor at one moment. See `CountChildren` for more, in the order of its messages."""

    children: int
    """Children it knows, those that are down among them."""
    running: int
    """Children that are up."""
    restarting: int
    """Children that are about to be started again, or wait for that in a back-off."""
    restarts: int
    """Children it has started again so far, all incidents together."""
    incidents: int
    """Restarts that count towards its intensity: when they are more than it allows, it gives up."""


@frozen
class ActorStatistics:
    """An actor at one moment. Read from another thread than the loop's, the fields may be of different moments."""

    state: str
    """`idle`, `ready` (messages wait), `running`, `exiting`, `closing` (in its exit hook), `down`, or `dead`."""
    inbox_length: int
    """Messages that wait."""
    inbox_limit: int | None
    """Messages that may wait, if the inbox is bounded."""
    senders_waiting: int
    """Senders that wait for room in the inbox."""
    handled: int
    """Messages handled so far, by all incarnations, the one under way not among them."""
    incarnation: int
    """1, and one more for each restart that was tried."""
    timers: int
    """Timers that are set."""
    age: float | None
    """Seconds since the present incarnation's start had ended, on Trio's clock; None before that."""
    supervised: SupervisorStatistics | None
    """Of a supervisor: its children."""


@frozen
class SystemStatistics:
    """A system at one moment. Read from another thread than the loop's, the fields may be of different moments."""

    alive: int
    """Actors that are not dead, those that start and those that end among them."""
    started: int
    """Starts that succeeded, restarts among them."""
    stopped: int
    """Actors that have started and ended without a crash."""
    crashed: int
    """Actors that have started and crashed, also if they were restarted then."""
    handled: int
    """Messages handled by all actors, dead and alive. Counted when asked for, in time that grows with `alive`."""
    ready: int
    """Actors in the dispatcher's queue."""
    dead_letters: int
    """Messages that no actor handled."""
    timers: int
    """Timers that are set."""


def actor_statistics(cell: ActorCell) -> ActorStatistics:
    """Look at an actor."""
    inbox = cell.inbox
    bounded = inbox if isinstance(inbox, BoundedInbox) else None
    return ActorStatistics(
        state=STATE_NAMES[cell.state],
        inbox_length=len(inbox),
        inbox_limit=None if bounded is None else bounded.limit,
        senders_waiting=0 if bounded is None else bounded.senders,
        handled=cell.handled,
        incarnation=cell.incarnation,
        timers=0 if cell.timers is None else len(cell.timers),
        age=None if cell.started_at is None else cell.system.now() - cell.started_at,
        supervised=None if cell.actor is None else cell.actor._supervised(),
    )


def system_statistics(system: ActorSystem) -> SystemStatistics:
    """Look at a system."""
    tally = system.tally
    return SystemStatistics(
        alive=len(system),
        started=tally.started,
        stopped=tally.stopped,
        crashed=tally.crashed,
        handled=tally.handled + sum(cell.handled for cell in list(system._live)),
        ready=len(system.dispatcher),
        dead_letters=system.dead_letters.count,
        timers=len(system.timers),
    )
