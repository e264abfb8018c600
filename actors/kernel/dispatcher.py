"""The dispatcher: the one task that runs the `def` handlers of every actor of a system, in turn."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio
from trio.lowlevel import Abort, reschedule, wait_task_rescheduled

from quiesce.actors.kernel.states import READY

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.pace import Pace

__all__ = ["INLINE_DEPTH", "Dispatcher"]

_BATCH: Final = 64  # messages of one actor before the next one has its turn
INLINE_DEPTH: Final = 16  # handlers of `ask` on top of each other, before they are queued


class Dispatcher:
    """Drains all ready actors in turn, and gives the loop its turn at least once per millisecond of work."""

    __slots__ = ("_closed", "_pace", "_parked", "_ready", "inline", "schedule")

    schedule: Callable[[ActorCell], None]
    """Queue an actor that became ready, or one whose exit can go on."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._ready: deque[ActorCell] = deque()
        self._parked: trio.lowlevel.Task | None = None
        self._closed = False
        self.schedule = self._ready.append  # all there is to it, unless the task has to be woken
        self.inline = 0  # how many asks run a handler inline, on top of each other, at this moment

    def __len__(self) -> int:
        return len(self._ready)

    def close(self) -> None:
        """Let the task end once the queue is empty."""
        self._closed = True
        self._wake()

    def _wake_for(self, cell: ActorCell) -> None:
        self._ready.append(cell)
        self._wake()

    def _wake(self) -> None:
        self.schedule = self._ready.append
        task, self._parked = self._parked, None
        if task is not None:
            reschedule(task)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task. It is shielded: the system stops its actors in order, and ends it last."""
        ready, pace = self._ready, self._pace
        with trio.CancelScope(shield=True):
            while True:
                while ready:
                    cell = ready.popleft()
                    try:
                        if cell.state == READY:
                            rest = cell.context.run(cell.turn, _BATCH)
                            if rest is not None:
                                cell.close_turn(rest)
                        else:
                            cell.advance_exit()
                    except BaseException as error:  # noqa: BLE001  # the host gets it; the others need this task to end
                        cell.collapse(error)
                    if not pace.spare and pace.is_due():
                        await pace.checkpoint()
                if self._closed:
                    return
                await self._park()
                pace.restart()

    async def _park(self) -> None:
        def abort(_: Callable[[], None]) -> Abort:
            self._parked = None
            self.schedule = self._ready.append
            return Abort.SUCCEEDED

        self._parked = trio.lowlevel.current_task()
        self.schedule = self._wake_for
        await wait_task_rescheduled(abort)
