"""Making an actor object for a cell: how `__init__` finds the address that was prepared for it.

An actor that is made directly, as Pykka's `start()` does it, finds none and gets one in the default system.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["adopt_cell", "construct", "unprepared"]


class _UnderConstruction(threading.local):
    """The cells whose actors this thread makes, and what makes them; the innermost last, None once it was adopted."""

    def __init__(self) -> None:
        self.cells: list[tuple[ActorCell, Callable[..., Any]] | None] = []


_under_construction = _UnderConstruction()  # slow to get at, so once for each use


def construct(cell: ActorCell, factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TrioActor:
    """Call the actor class, or whatever makes the actor, with `cell` waiting to be adopted.

    Raises:
        TypeError: what came out is no actor that adopted the cell.

    """
    cells = _under_construction.cells
    cells.append((cell, factory))
    try:
        actor = factory(*args, **kwargs)
    finally:
        cells.pop()
    if getattr(actor, "_cell", None) is not cell:
        raise TypeError(
            f"{factory!r} made {actor!r}, which is no new TrioActor. "
            "Did you forget to call super().__init__() in an actor's __init__()?"
        )
    return actor  # type: ignore[no-any-return]  # checked above


@contextmanager
def unprepared() -> Iterator[None]:
    """Make actors of the default system, also from within another actor's `__init__`."""
    cells = _under_construction.cells
    cells.append(None)
    try:
        yield
    finally:
        cells.pop()


def adopt_cell(actor: TrioActor) -> ActorCell:
    """Return the cell that this actor was made for. Called by `TrioActor.__init__`, once."""
    cells = _under_construction.cells
    prepared = cells[-1] if cells else None
    cell: ActorCell
    if prepared is None or _is_of_another_class(actor, prepared[1]):
        from quiesce.actors.kernel.default_system import default_cell  # noqa: PLC0415  # that is made of cells

        cell = default_cell()
    else:
        cell = prepared[0]
        cells[-1] = None
    cell.actor = actor
    cell.actor_class = type(actor)
    if cell.bounds is not None or type(actor).inbox_limit is not None:
        cell.bound_inbox(type(actor))
    return cell


def _is_of_another_class(actor: TrioActor, factory: Callable[..., Any]) -> bool:
    """Whether it is one that an `__init__` makes directly, before it calls its own `super().__init__()`."""
    return isinstance(factory, type) and not isinstance(actor, factory)
