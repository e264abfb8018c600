"""How long the loop's thread has worked without a break: what decides when a checkpoint is due.

Reading the clock costs a good part of a short message, so it is not read for each. Whoever is about to handle one takes
it from what is `spare`, and reads the clock when there is none:

    if pace.spare:
        pace.spare -= 1
    elif pace.is_due():
        ...

Hot paths do this themselves. While work is brisk, the clock is read for every eighth message; else for each. So what
comes late, a message that is slow after brisk ones, costs the other tasks seven more of its kind at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pace"]

_STRETCH: Final = 0.001  # seconds of work without a checkpoint
_STRIDE: Final = 8  # messages for one reading of the clock, while they are brisk
_BRISK: Final = 0.000_1  # seconds in which so many are handled then; a tenth of a stretch


class Pace:
    """The deadline of the current stretch of work, and how many messages may be handled before it is looked at."""

    __slots__ = ("_clock", "_deadline", "_looked", "spare")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin a new stretch: the loop has just had its turn."""
        self._looked = self._clock()
        self._deadline = self._looked + _STRETCH
        self.spare = 0

    def is_due(self) -> bool:
        """Whether a checkpoint is due. Reads the clock, and allows for what need not read it next."""
        now = self._clock()
        self.spare = _STRIDE - 1 if now - self._looked < _BRISK else 0
        self._looked = now
        return now >= self._deadline

    async def checkpoint(self) -> None:
        """Give the other tasks their turn and begin a new stretch. A checkpoint: may raise `trio.Cancelled`."""
        self.restart()
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self.restart()
