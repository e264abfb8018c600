"""Timers: messages that an actor has sent to itself later. One heap and one task per system, however many there are.

- A timer has a key; a new one with the same key replaces it. All are gone when the actor begins its exit.
- What a cancelled or replaced timer has sent already is not handled, even if it is in the inbox.
- A periodic timer does not drift: its ticks are due at whole periods after it was set. Ticks that are due while the
  loop is late, or while the last one still waits in the inbox, are left out.
"""

# ruff: noqa: SLF001  # the timers of an actor and the heap of its system are one mechanism

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import trio
from pykka import ActorDeadError

from quiesce.actors.kernel.revocable import Revocable
from quiesce.actors.kernel.states import EXITING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.pace import Pace

__all__ = ["TimerHeap", "Timers"]

_FEW: Final = 64  # cancelled timers that may lie in the heap before anybody counts


class _Timer(Revocable):
    """One timer, and at the same time what it sends."""

    __slots__ = ("_start", "_ticks", "_timers", "at", "key", "period", "queued")

    def __init__(self, timers: Timers, key: Hashable, start: float, seconds: float, message: object) -> None:
        super().__init__(message)
        self._timers = timers
        self._start = start
        self._ticks = 1  # the number of the tick that is due at `at`
        self.key = key
        self.at = start + seconds
        self.period: float | None = None
        self.queued = False  # waits in the inbox

    def taken(self) -> None:
        """Be out of the inbox; a timer that fires once has done its work."""
        self.queued = False
        if self.period is None:
            self._timers._forget(self)

    def fire(self) -> None:
        """Send the message, unless the last tick has not even been handled yet."""
        if not self.queued:
            self.queued = True
            self._timers._cell.deliver(self, None)

    def advance(self, period: float, now: float) -> None:
        """Be due next at the first whole period that is not past."""
        self._ticks = max(self._ticks, math.floor((now - self._start) / period)) + 1
        self.at = self._start + period * self._ticks


class Timers:
    """The timers of one actor, as `self.timers`. To be used on the loop's thread, by the actor and its child work."""

    __slots__ = ("_by_key", "_cell")

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell
        self._by_key: dict[Hashable, _Timer] = {}

    def once(self, key: Hashable, seconds: float, message: object) -> None:
        """Have `message` sent to this actor once, `seconds` from now on Trio's clock.

        Raises:
            ActorDeadError: the actor is stopping.
            ValueError: `seconds` is negative or not finite.

        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds of timer {key!r} must be finite and not negative, not {seconds!r}")
        self._arm(key, seconds, message, None)

    def every(self, key: Hashable, seconds: float, message: object) -> None:
        """Have `message` sent to this actor every so many seconds on Trio's clock, the first time in `seconds`.

        Raises:
            ActorDeadError: the actor is stopping.
            ValueError: `seconds` is not a finite number above zero.

        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"seconds of timer {key!r} must be finite and above zero, not {seconds!r}")
        self._arm(key, seconds, message, seconds)

    def cancel(self, key: Hashable) -> bool:
        """Cancel a timer: its message is not handled any more. False if there is no such timer."""
        timer = self._by_key.pop(key, None)
        if timer is None:
            return False
        timer.revoked = True
        self._cell.system.timers.discard(timer)
        return True

    def cancel_all(self) -> None:
        """Cancel every timer of this actor."""
        for key in list(self._by_key):
            self.cancel(key)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a timer with this key is set, or what it sent still waits in the inbox."""
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def _arm(self, key: Hashable, seconds: float, message: object, period: float | None) -> None:
        if self._cell.state >= EXITING:
            raise ActorDeadError(f"{self._cell} is stopping and sets no more timers")
        self.cancel(key)
        timer = _Timer(self, key, trio.current_time(), seconds, message)
        timer.period = period
        self._by_key[key] = timer
        self._cell.system.timers.add(timer)

    def _forget(self, timer: _Timer) -> None:
        if self._by_key.get(timer.key) is timer:
            del self._by_key[timer.key]


class TimerHeap:
    """All timers of a system by their time, and the task that waits for the next one."""

    __slots__ = ("_cancelled", "_closed", "_heap", "_pace", "_sequence", "_wait")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._heap: list[tuple[float, int, _Timer]] = []
        self._sequence = count()  # timers of the same moment fire in the order in which they were set
        self._cancelled = 0  # of those in the heap
        self._wait = trio.CancelScope()
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, timer: _Timer) -> None:
        """Wait for one more."""
        heappush(self._heap, (timer.at, next(self._sequence), timer))
        if timer.at < self._wait.deadline:  # noqa: PLR1730  # setting it costs more than all the rest
            self._wait.deadline = timer.at

    def discard(self, timer: _Timer) -> None:
        """A timer was revoked. It stays in the heap till its time, unless most are of its kind."""
        if timer.period is None and timer.queued:
            return  # it has fired and is not in the heap
        self._cancelled += 1
        if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].revoked]
            heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Let the task end."""
        self._closed = True
        self._wait.cancel()

    async def run(self) -> None:
        """The task. Waiting for the next timer is a scope whose deadline an earlier timer moves."""
        while not self._closed:
            await self._fire_due()
            deadline = self._heap[0][0] if self._heap else math.inf
            with trio.CancelScope(deadline=deadline) as self._wait:
                if not self._closed:
                    await trio.sleep_forever()

    async def _fire_due(self) -> None:
        pace = self._pace
        while self._heap and self._heap[0][0] <= (now := trio.current_time()):
            _, _, timer = heappop(self._heap)
            if timer.revoked:
                self._cancelled -= 1
                continue
            timer.fire()
            if timer.period is not None:
                timer.advance(timer.period, now)
                heappush(self._heap, (timer.at, next(self._sequence), timer))
            if pace.is_due():
                await pace.checkpoint()
