"""The states of an actor's life, in their order.

    IDLE      the inbox is empty and nobody is at work
    READY     there are messages, and the cell stands once in the dispatcher's queue
    RUNNING   exactly one of these is at work: the dispatcher, an `ask` that runs the handler inline, or the runner
    EXITING   no more messages: the handler under way, the runner and the child work come to their end
    CLOSING   the exit hook (`on_stop` or `on_failure`) is at work
    DOWN      no actor is here; messages wait for its next incarnation (supervised actors only)
    DEAD      nothing is left; every ask has been answered

They are plain integers because the hot paths compare them. From EXITING on, messages are taken only by a cell that is
`kept`, for the next incarnation.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLOSING", "DEAD", "DOWN", "EXITING", "IDLE", "READY", "RUNNING", "STATE_NAMES"]

IDLE: Final[int] = 0
READY: Final[int] = 1
RUNNING: Final[int] = 2
EXITING: Final[int] = 3
CLOSING: Final[int] = 4
DOWN: Final[int] = 5
DEAD: Final[int] = 6

STATE_NAMES: Final = ("idle", "ready", "running", "exiting", "closing", "down", "dead")
