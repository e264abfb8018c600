"""The logs of this library: silent until the host configures structlog or the standard `logging`.

structlog prints when nobody has configured it, which a library must not do. So an unconfigured structlog means the
standard logger of the same name, and that one has a `NullHandler`. A host that has not imported structlog has not
configured it; it is never imported here, since that takes longer than to import the kernel.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Log"]

_METHODS: Final = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
"""What any logger of structlog has, also one that takes no level."""
_FORMATTED: Final = ("message", "asctime")
"""What a formatter of the standard `logging` writes into a record."""


def _configured_structlog() -> ModuleType | None:
    """structlog, if the host has configured it by now."""
    structlog = sys.modules.get("structlog")
    if structlog is None:
        return None
    is_configured = getattr(structlog, "is_configured", None)  # not there yet while a thread imports it
    return structlog if is_configured is not None and is_configured() else None


class Log:
    """What is logged under one name, as an event with fields.

    structlog gets them as they are. A standard record has them as attributes and, for whoever reads plain lines, in its
    message: `actor_crashed actor='Clerk (urn:uuid:...)' incarnation=1`. Its template (`record.msg`) is the same for all
    that have the same fields, which is what collectors of errors group by.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._standard = logging.getLogger(name)
        self._standard.addHandler(logging.NullHandler())

    def enabled(self, level: int) -> bool:
        """Whether it may matter to write, which is worth asking first where it happens often."""
        return _configured_structlog() is not None or self._standard.isEnabledFor(level)

    def write(self, level: int, event: str, **fields: object) -> None:
        """Log an event; an exception among its fields is called `exc_info`.

        Never raises: a host's processor that does must not stop what is at work, and there is nowhere left to say so.
        """
        with suppress(Exception):
            if (structlog := _configured_structlog()) is not None:
                getattr(structlog.get_logger(self._name), _METHODS[level])(event, **fields)
            elif self._standard.isEnabledFor(level):
                self._write_record(level, event, fields)

    def _write_record(self, level: int, event: str, fields: dict[str, object]) -> None:
        error = fields.pop("exc_info", None)
        said = {name: value for name, value in fields.items() if value is not None}
        template = " ".join([event, *(f"{name}=%r" for name in said)])
        caught = (type(error), error, error.__traceback__) if isinstance(error, BaseException) else None
        path, line, function, _ = self._standard.findCaller(stacklevel=3)  # who called `write`
        record = self._standard.makeRecord(
            self._name, level, path, line, template, tuple(said.values()), caught, function
        )
        for name in fields.keys() - vars(record).keys() - {*_FORMATTED}:  # `extra` raises for what a record has already
            setattr(record, name, fields[name])
        self._standard.handle(record)
