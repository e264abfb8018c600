"""Where replies wait until a test lets them go on."""

from __future__ import annotations

import trio
from attrs import define, field

__all__ = ["Gate"]


@define
class Gate:
    """A gate that is opened for good, or for so many to pass. Waiting there can be cancelled."""

    is_open: bool = False
    passes: int = 0
    _lot: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    @property
    def waiting(self):
        """How many wait."""
        return len(self._lot)

    def open(self):
        """All pass from now on."""
        self.is_open = True
        self._lot.unpark_all()

    def let(self, count=1):
        """`count` more pass: those who wait, then those who come."""
        self.passes += count - len(self._lot.unpark(count=count))

    async def go_through(self):
        """Pass, or wait to be let through."""
        if self.is_open:
            await trio.lowlevel.checkpoint()
        elif self.passes:
            self.passes -= 1
            await trio.lowlevel.checkpoint()
        else:
            await self._lot.park()
