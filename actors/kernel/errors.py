"""The errors of the kernel, each named for what happened."""

from __future__ import annotations

import queue

from pykka import ActorDeadError

__all__ = [
    "ActorDeadError",
    "AskCycleError",
    "BlockingCallError",
    "InboxFullError",
    "NameTakenError",
    "ReplyCompletedError",
    "SelfWaitError",
    "SystemStoppedError",
    "UnhandledMessageError",
]


class BlockingCallError(RuntimeError):
    """A blocking call was made on the thread of the loop, where it would have stopped every actor.

    Await the reply instead (`await reply`), or make the call from another thread.
    """


class InboxFullError(queue.Full):
    """A message was sent to an actor whose bounded inbox was full; it was not taken.

    Send less, or later; or have the class say `inbox_policy = "wait"` and send by `await ref.send(message)`.
    """


class NameTakenError(ValueError):
    """An actor was to be spawned by a name that another one in the system holds."""


class ReplyCompletedError(queue.Full):
    """A reply was completed a second time; the first value or exception stands.

    It is a `queue.Full` because that is what Pykka's own futures raise.
    """


class SelfWaitError(RuntimeError):
    """A handler waited for something that its own actor can only do once that handler has ended.

    Answer later instead (`take_reply`), or wait in child work (`start_soon`).
    """


class AskCycleError(SelfWaitError):
    """A handler waited for an actor whose own handler waits, directly or through others, for the first one.

    Nobody in that ring could ever go on, so the last to wait gets this at once; the others get what its handler makes
    of it. Its message is taken back, if no handler has it yet. Break the ring: tell instead of asking, answer later
    (`take_reply`), or wait in child work (`start_soon`). What is found are waits in the handlers' own tasks: a ring
    through systems on different threads, or through a task that a handler starts and waits for, is not; those handlers
    wait until somebody stops one of them.
    """


class SystemStoppedError(ActorDeadError):
    """An actor was spawned in a system that is stopping, has stopped, or was never entered."""


class UnhandledMessageError(TypeError):
    """A typed message was asked of an actor that has no receiver for it."""
