"""The kernel's log: silent until the host configures structlog or the standard `logging`.

structlog prints when nobody has configured it, which a library must not do. So an unconfigured structlog means the
standard logger `quiesce.kernel`, and that one has a `NullHandler`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import structlog

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["report"]

_NAME = "quiesce.kernel"
_standard = logging.getLogger(_NAME)
_standard.addHandler(logging.NullHandler())


def report(event: str, **fields: object) -> None:
    """Log an error of a user's code that the kernel has contained."""
    with suppress(Exception):  # a broken log must not stop every actor, and there is nowhere left to say so
        _logger().error(event, **fields)


def _logger() -> FilteringBoundLogger:
    """Return the logger for the configuration of this moment."""
    if structlog.is_configured():
        return cast("FilteringBoundLogger", structlog.get_logger(_NAME))
    wrapped: Any = structlog.wrap_logger(
        _standard,
        processors=[structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast("FilteringBoundLogger", wrapped)
