"""`Watchdog`: one timer for all tool bodies of a Trio run, so that a body with a time-out costs no task of its own.

It sleeps until the first of the times at which somebody wants to be looked at, and without end while there is none: an
idle watchdog leaves no deadline in the clock.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

__all__ = ["Watchdog", "Watched", "watchdog"]


class Watched(Protocol):
    """Something that is looked at when its time has come."""

    def look(self) -> float:
        """Do what is due, without waiting, and return the next time to look (on Trio's clock). Must not raise."""
        ...


class Watchdog:
    """Looks at what it watches when it is time to. Lives in a system task as long as the Trio run."""

    def __init__(self) -> None:
        self._times: dict[Watched, float] = {}
        self._sleep = trio.CancelScope()

    def watch(self, item: Watched, when: float) -> None:
        """Look at `item` at `when`, instead of when it was to be looked at before."""
        self._times[item] = when
        self._sleep.deadline = min(self._sleep.deadline, when)

    def forget(self, item: Watched) -> None:
        """Do not look at `item` any more, if it was watched at all."""
        if self._times.pop(item, None) is not None and not self._times:
            self._sleep.deadline = math.inf

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with trio.CancelScope(deadline=min(self._times.values(), default=math.inf)) as self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            for item in [item for item, when in self._times.items() if when <= now]:
                self._times[item] = item.look()


_current: Final[trio.lowlevel.RunVar[Watchdog]] = trio.lowlevel.RunVar("quiesce tool watchdog")


def watchdog() -> Watchdog:
    """The watchdog of this Trio run, started when first asked for."""
    try:
        return _current.get()
    except LookupError:
        started = Watchdog()
        _current.set(started)
        trio.lowlevel.spawn_system_task(started.run, name="quiesce tool watchdog")
        return started
