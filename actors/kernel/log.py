"""The kernel's log: silent until the host configures structlog or the standard `logging`.

structlog prints when nobody has configured it, which a library must not do. So an unconfigured structlog means the
standard logger `quiesce.kernel`, and that one has a `NullHandler`. A host that has not imported structlog has not
configured it; it is never imported here, since that takes longer than to import the kernel.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

    from quiesce.actors.kernel.cell import ActorCell

__all__ = ["configured_structlog", "enabled", "note", "report", "warn"]

_NAME = "quiesce.kernel"
_standard = logging.getLogger(_NAME)
_standard.addHandler(logging.NullHandler())
_is_standard_enabled: Final = _standard.isEnabledFor
_METHODS: Final = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
"""What any logger of structlog has, also one that takes no level."""


def configured_structlog() -> ModuleType | None:
    """structlog, if the host has configured it by now."""
    structlog = sys.modules.get("structlog")
    if structlog is None:
        return None
    is_configured = getattr(structlog, "is_configured", None)  # not there yet while a thread imports it
    return structlog if is_configured is not None and is_configured() else None


def report(event: str, **fields: object) -> None:
    """Log an error of a user's code that the kernel has contained."""
    _write(logging.ERROR, event, fields)


def warn(event: str, **fields: object) -> None:
    """Log something that takes longer than it should."""
    _write(logging.WARNING, event, fields)


def enabled(level: int) -> bool:
    """Whether it may matter to log something, which is worth asking first where it happens often."""
    return configured_structlog() is not None or _is_standard_enabled(level)


def note(level: int, event: str, cell: ActorCell, **fields: object) -> None:
    """Log what happened in an actor's life, with the actor, its name and its incarnation."""
    if enabled(level) and cell.system.notes_lives:
        who = {"actor": str(cell), "actor_name": cell.name, "incarnation": cell.incarnation}
        _write(level, event, who | fields)


def _write(level: int, event: str, fields: dict[str, object]) -> None:
    with suppress(Exception):  # a broken log must not stop every actor, and there is nowhere left to say so
        if (structlog := configured_structlog()) is not None:
            getattr(structlog.get_logger(_NAME), _METHODS[level])(event, **fields)
        else:
            error = fields.pop("exc_info", None)
            _standard.log(level, event, exc_info=error if isinstance(error, BaseException) else None, extra=fields)
