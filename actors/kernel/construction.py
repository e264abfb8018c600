"""Making an actor object for a cell: how `__init__` finds the address that was prepared for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["adopt_cell", "construct"]


class _Construction(threading.local):
    cell: ActorCell | None = None


_construction = _Construction()


def construct(cell: ActorCell, factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TrioActor:
    """Call the actor class, or whatever makes the actor, with `cell` waiting to be adopted.

    Raises:
        TypeError: what came out is no actor that adopted the cell.

    """
    before, _construction.cell = _construction.cell, cell
    try:
        actor = factory(*args, **kwargs)
    finally:
        _construction.cell = before
    if getattr(actor, "_cell", None) is not cell:
        raise TypeError(
            f"{factory!r} made {actor!r}, which is no new TrioActor. "
            "Did you forget to call super().__init__() in an actor's __init__()?"
        )
    return actor  # type: ignore[no-any-return]  # checked above


def adopt_cell(actor: TrioActor) -> ActorCell:
    """Return the cell that this actor was made for. Called by `TrioActor.__init__`, once."""
    cell, _construction.cell = _construction.cell, None
    if cell is None:
        raise RuntimeError(f"{type(actor).__name__} is made by `await system.spawn({type(actor).__name__}, ...)`")
    cell.actor = actor
    cell.actor_class = type(actor)
    return cell
