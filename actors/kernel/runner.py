"""The runner: the actor's own task, in which its `async def` handlers run. Started at the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import trio
from trio.lowlevel import Abort, wait_task_rescheduled

from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.states import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import CoroutineType

    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["Runner"]

_BATCH: Final = 64  # messages between two looks at the clock of the loop


class Runner:
    """Runs the coroutines that a cell hands over, and the messages behind them, until there is nothing to do.

    Between messages of an idle actor the task is parked and the cell belongs to the dispatcher again.
    """

    __slots__ = ("_cell", "_coroutine", "_scope", "task")

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell
        self._scope = trio.CancelScope()
        self._coroutine: Coroutine[Any, Any, Any] | None = None  # what the parked task is woken for
        self.task: trio.lowlevel.Task | None = None

    def resume(self, coroutine: CoroutineType[Any, Any, Any]) -> None:
        """Wake the parked task to run a coroutine."""
        self._coroutine = coroutine
        trio.lowlevel.reschedule(cast("trio.lowlevel.Task", self.task))

    def cancel(self) -> None:
        """Cancel the handler under way, or the wait for the next one."""
        self._scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def run(self, first: CoroutineType[Any, Any, Any]) -> None:
        """The task: it ends when the actor begins its exit, or when it is cancelled along with the system."""
        cell = self._cell
        self.task = trio.lowlevel.current_task()
        cell.context = self.task.context
        coroutine: Coroutine[Any, Any, Any] | None = first
        try:
            with self._scope:
                while coroutine is not None:
                    await cell.complete(coroutine)
                    coroutine = await self._next()
        except Exception as error:  # noqa: BLE001  # left over when cancellation and a failure came together
            cell.crash(error)
        except BaseException as error:
            cancelled = cell.break_off(error)
            if cancelled is not None:
                self._cancelled_from_outside()
                raise cancelled from None
        finally:
            cell.task_ended()

    async def _next(self) -> Coroutine[Any, Any, Any] | None:
        """Return the next coroutine to run, now or after a rest; None when the actor has begun its exit."""
        cell = self._cell
        pace = cell.system.pace
        while cell.state == RUNNING:
            if pace.clock() >= pace.deadline:
                await pace.checkpoint()
            coroutine = cell.drain(_call, _BATCH)
            if coroutine is not None:
                return coroutine
            if cell.state == RUNNING and not cell.inbox:
                cell.rest()
                return await self._park()
        return None

    async def _park(self) -> Coroutine[Any, Any, Any] | None:
        def abort(_: Callable[[], None]) -> Abort:
            self._cell.runner = None  # a message that comes now finds no task, and starts another
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        coroutine, self._coroutine = self._coroutine, None
        return coroutine

    def _cancelled_from_outside(self) -> None:
        """The handler under way is lost, and the actor with it; an actor at rest is left to the end of its system."""
        if self._cell.runner is self:
            self._cell.begin_exit(Exit(ExitKind.SHUTDOWN))


def _call(handler: Callable[..., Any], actor: object, message: object) -> Any:
    """Call a handler where the actor's context is in force already."""
    return handler(actor, message)
