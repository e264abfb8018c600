"""Child work: the tasks that belong to one actor, in a nursery that is open only while there are any."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, cast

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.cell import ActorCell

    Child = Callable[..., Coroutine[Any, Any, Any]]

__all__ = ["Work"]


class Work:
    """One opening of an actor's nursery: from the first child until all of its children have ended.

    The cell drops a `Work` with its last child, in the same step in which Trio closes the nursery, so a child started
    later opens a new one.
    """

    __slots__ = ("_cell", "_children", "_nursery", "_scope", "_waiting")

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell
        self._children = 0
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._waiting: list[tuple[contextvars.Context, Child, tuple[Any, ...], object]] = []

    def start_soon(self, async_fn: Child, args: tuple[Any, ...], name: object) -> None:
        """Start a child, as soon as the nursery is open."""
        self._children += 1
        if self._nursery is None:
            self._waiting.append((contextvars.copy_context(), async_fn, args, name))
        else:
            self._open(async_fn, args, name)

    def _open(self, async_fn: Child, args: tuple[Any, ...], name: object) -> None:
        nursery = cast("trio.Nursery", self._nursery)
        nursery.start_soon(self._child, async_fn, args, name=async_fn if name is None else name)

    def cancel(self) -> None:
        """Cancel every child."""
        self._scope.cancel()

    async def run(self) -> None:
        """The task that holds the nursery."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    for context, async_fn, args, name in self._waiting:
                        context.run(self._open, async_fn, args, name)
                    self._waiting.clear()
        finally:
            self._cell.task_ended()

    async def _child(self, async_fn: Child, args: tuple[Any, ...]) -> None:
        try:
            await async_fn(*args)
        except Exception as error:  # noqa: BLE001  # crashes this actor, and nobody else
            self._cell.crash(error)
        except BaseException as error:  # noqa: BLE001  # told apart: the host, a crash, a cancellation
            cancelled = self._cell.break_off(error)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self._children -= 1
            if not self._children and self._cell.work is self:
                self._cell.work = None
