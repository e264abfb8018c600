"""What one may ask of a supervisor, and its answers: `await supervisor.ask(StartChild(spec))`, or `.get()` in a thread.

| asked of a child that  | runs                | is being restarted     | is down             | is unknown           |
|------------------------|---------------------|------------------------|---------------------|----------------------|
| `StartChild`           | `ChildRunningError` | `ChildPresentError`    | `ChildPresentError` | its ref              |
| `TerminateChild`       | None: it has stopped| None: it stays down    | None                | `ChildNotFoundError` |
| `RestartChild`         | `ChildRunningError` | `ChildRestartingError` | its new ref         | `ChildNotFoundError` |
| `DeleteChild`          | `ChildRunningError` | `ChildRestartingError` | None                | `ChildNotFoundError` |

An answer that is an error goes to the asker and changes nothing. When nobody asked (`tell`) it is only logged.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from attrs import frozen

from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Hashable

    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.supervision import ChildSpec, Kind

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildState",
    "CountChildren",
    "DeleteChild",
    "RestartChild",
    "StartChild",
    "TerminateChild",
    "WhichChildren",
]


class ChildState(enum.Enum):
    """Where a child is."""

    STARTING = "starting"
    """It is started for the first time, and has not answered yet."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """It ended, or was stopped because of a sibling, and is about to be started again. Messages to it wait."""
    DOWN = "down"
    """It does not run and will not by itself: it was terminated, has finished, or declined."""


@frozen
class ChildInfo:
    """One child, as `WhichChildren` has it."""

    id: Hashable
    state: ChildState
    ref: ActorRef[Any] | None
    """Its ref, unless it is DOWN."""
    kind: Kind


@frozen
class ChildCounts:
    """How many children there are."""

    specs: int
    """Of all, whether they run or not."""
    active: int
    """Of those that run."""
    supervisors: int
    """Of all that are supervisors, whether they run or not."""
    workers: int
    """Of all that are not."""


@frozen
class StartChild(Message["ActorRef[Any] | None"]):
    """Add a child and start it. The answer is its ref, or None if it declined.

    Raises (as the answer):
        ChildStartError: it failed to start, and is not kept.
        ChildRunningError: a child with this id runs.
        ChildPresentError: a child with this id is known.
        SpecError: it is no spec for this supervisor.
    """

    spec: ChildSpec


@frozen
class TerminateChild(Message[None]):
    """Stop a child, within its shutdown time, and keep it down. The answer comes when it has stopped.

    Its ref is dead for good. A temporary child is forgotten. It never shuts the supervisor down.

    A child that asks this for itself, in a handler that awaits the answer, is waited for until its shutdown time is
    over, and then cancelled: tell it instead, or `stop()`.

    Raises (as the answer):
        ChildNotFoundError: there is no such child.
    """

    child: Hashable
    """The id of a `Supervisor`'s child, the ref of a `DynamicSupervisor`'s."""


@frozen
class RestartChild(Message["ActorRef[Any] | None"]):
    """Start a child that is down. The answer is its new ref, or None if it declined. It does not count as a restart.

    Raises (as the answer):
        ChildStartError: it failed to start, and is still down.
        ChildRunningError: it runs.
        ChildRestartingError: it is about to run.
        ChildNotFoundError: there is no such child.
    """

    child: Hashable


@frozen
class DeleteChild(Message[None]):
    """Forget a child that is down.

    Raises (as the answer):
        ChildRunningError: it runs.
        ChildRestartingError: it is about to run.
        ChildNotFoundError: there is no such child.
    """

    child: Hashable


@frozen
class WhichChildren(Message[tuple[ChildInfo, ...]]):
    """Ask for all children, in start order."""


@frozen
class CountChildren(Message[ChildCounts]):
    """Ask how many children there are."""
