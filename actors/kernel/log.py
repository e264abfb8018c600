"""The kernel's log: silent until the host configures structlog or the standard `logging`.

structlog prints when nobody has configured it, which a library must not do. So an unconfigured structlog means the
standard logger `quiesce.kernel`, and that one has a `NullHandler`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import structlog
from structlog import is_configured

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["enabled", "note", "report", "warn"]

_NAME = "quiesce.kernel"
_standard = logging.getLogger(_NAME)
_standard.addHandler(logging.NullHandler())
_is_standard_enabled = _standard.isEnabledFor


def report(event: str, **fields: object) -> None:
    """Log an error of a user's code that the kernel has contained."""
    with suppress(Exception):  # a broken log must not stop every actor, and there is nowhere left to say so
        _logger().error(event, **fields)


def warn(event: str, **fields: object) -> None:
    """Log something that takes longer than it should."""
    with suppress(Exception):  # as above
        _logger().warning(event, **fields)


def enabled(level: int) -> bool:
    """Whether it may matter to log something, which is worth asking first where it happens often."""
    return is_configured() or _is_standard_enabled(level)


def note(level: int, event: str, cell: ActorCell, **fields: object) -> None:
    """Log what happened in an actor's life, with the actor, its name and its incarnation."""
    if enabled(level) and cell.system.notes_lives:
        with suppress(Exception):  # as above
            who = {"actor": str(cell), "actor_name": cell.name, "incarnation": cell.incarnation}
            _logger().log(level, event, **who, **fields)


def _logger() -> FilteringBoundLogger:
    """Return the logger for the configuration of this moment."""
    if is_configured():
        return cast("FilteringBoundLogger", structlog.get_logger(_NAME))
    wrapped: Any = structlog.wrap_logger(
        _standard,
        processors=[structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast("FilteringBoundLogger", wrapped)
