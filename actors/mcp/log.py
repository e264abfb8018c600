"""The log of what happens to servers: silent until the host configures structlog or the standard `logging`."""

from __future__ import annotations

import logging
from contextlib import suppress

from quiesce.actors.kernel.log import configured_structlog

__all__ = ["note"]

_NAME = "quiesce.mcp"
_standard = logging.getLogger(_NAME)
_standard.addHandler(logging.NullHandler())


def note(level: int, event: str, **fields: object) -> None:
    """Log what happened to a server. Never raises: there is nobody left to tell."""
    with suppress(Exception):  # a host's log processor that raises must not end a connection
        if (structlog := configured_structlog()) is not None:
            structlog.get_logger(_NAME).log(level, event, **fields)
        else:
            _standard.log(level, "%s %s", event, fields)
