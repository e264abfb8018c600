"""The runner: the actor's own task, in which its `async def` handlers run. Started at the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import trio
from trio.lowlevel import Abort, wait_task_rescheduled

from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.states import EXITING, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["Runner"]

_BATCH: Final = 64  # messages before the actors of the dispatcher have their turn


class Runner:
    """Runs the coroutines that a cell hands over, and goes on with the messages behind each.

    When nothing is left, or the loop must have its turn, the cell belongs to the dispatcher again and the task parks.
    One that was started for `on_start` ends instead: most such actors never need a task again.
    """

    __slots__ = ("_cell", "_next", "_parked", "_scope", "parks", "task")

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell
        self._scope = trio.CancelScope()
        self._next: Coroutine[Any, Any, Any] | None = None
        self._parked = False
        self.parks = True
        self.task: trio.lowlevel.Task | None = None

    def take(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine next; the cell is RUNNING, on behalf of this task."""
        self._next = coroutine
        if self._parked:
            self._parked = False
            trio.lowlevel.reschedule(cast("trio.lowlevel.Task", self.task))

    def cancel(self) -> None:
        """Cancel the handler under way, or the wait for the next one."""
        self._scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task: it ends when the actor begins its exit, or when it is cancelled along with the system.

        One flat coroutine, because ten thousand parked runners keep ten thousand of each frame.
        """
        cell = self._cell
        pace = cell.system.pace
        self.task = trio.lowlevel.current_task()
        cell.context = self.task.context
        try:
            with self._scope:
                while True:
                    if self._next is None:
                        if cell.state >= EXITING:
                            break
                        if not self.parks:
                            cell.runner = None  # a coroutine that comes now finds no task, and starts another
                            break
                        self._parked = True  # the cell belongs to the dispatcher until take()
                        await wait_task_rescheduled(self._abort_wait)
                    coroutine, self._next = cast("Coroutine[Any, Any, Any]", self._next), None
                    await cell.complete(coroutine)
                    if cell.state != RUNNING or not cell.inbox or pace.is_due():
                        cell.end_turn()
                    else:
                        rest = cell.turn(_BATCH)
                        if rest is not None:
                            cell.close_turn(rest)
        except Exception as error:  # noqa: BLE001  # left over when cancellation and a failure came together
            cell.crash(error)
        except BaseException as error:  # noqa: BLE001  # told apart: the host, a crash, a cancellation
            cancelled = cell.break_off(error)
            if cancelled is not None:
                self._cancelled_from_outside()
                raise cancelled from None
        finally:
            cell.task_ended()

    def _abort_wait(self, _: Callable[[], None]) -> Abort:
        self._parked = False
        self._cell.runner = None  # a coroutine that comes now finds no task, and starts another
        return Abort.SUCCEEDED

    def _cancelled_from_outside(self) -> None:
        """The handler under way is lost, and the actor with it; an actor at rest is left to the end of its system."""
        if self._cell.runner is self:
            self._cell.begin_exit(Exit(ExitKind.SHUTDOWN))
