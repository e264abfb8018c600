"""How long the loop's thread has worked without a break: what decides when a checkpoint is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pace"]

_STRETCH: Final = 0.001  # seconds of work without a checkpoint


class Pace:
    """The deadline of the current stretch of work. Callers on hot paths compare `clock() >= deadline` themselves."""

    __slots__ = ("clock", "deadline")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.deadline = clock() + _STRETCH

    def restart(self) -> None:
        """Begin a new stretch: the loop has just had its turn."""
        self.deadline = self.clock() + _STRETCH

    async def checkpoint(self) -> None:
        """Give the other tasks their turn and begin a new stretch. A checkpoint: may raise `trio.Cancelled`."""
        self.restart()
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self.restart()
