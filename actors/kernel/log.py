"""The kernel's log: silent until the host configures structlog or the standard `logging`.

structlog prints when nobody has configured it, which a library must not do. So an unconfigured structlog means the
standard logger `quiesce.kernel`, and that one has a `NullHandler`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import structlog

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["kernel_log"]

_NAME = "quiesce.kernel"
_standard = logging.getLogger(_NAME)
_standard.addHandler(logging.NullHandler())


def kernel_log() -> FilteringBoundLogger:
    """Return the logger for this moment's configuration; asked for only when there is something to say."""
    if structlog.is_configured():
        return cast("FilteringBoundLogger", structlog.get_logger(_NAME))
    wrapped: Any = structlog.wrap_logger(
        _standard,
        processors=[structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast("FilteringBoundLogger", wrapped)
