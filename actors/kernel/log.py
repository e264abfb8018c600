"""The kernel's log, `quiesce.kernel`: the lives of actors, and the errors of users' code that the kernel contains."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from quiesce.actors.log import Log

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["enabled", "note", "report", "warn"]

_log: Final = Log("quiesce.kernel")
enabled: Final = _log.enabled


def report(event: str, **fields: object) -> None:
    """Log an error of a user's code that the kernel has contained."""
    _log.write(logging.ERROR, event, **fields)


def warn(event: str, **fields: object) -> None:
    """Log something that takes longer than it should."""
    _log.write(logging.WARNING, event, **fields)


def note(level: int, event: str, cell: ActorCell, **fields: object) -> None:
    """Log what happened in an actor's life, with the actor, its name and its incarnation."""
    if enabled(level) and cell.system.notes_lives:
        _log.write(level, event, actor=str(cell), actor_name=cell.name, incarnation=cell.incarnation, **fields)
