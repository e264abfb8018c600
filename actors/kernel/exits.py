"""How an actor ended: the value that `ref.wait_stopped()` gives."""

from __future__ import annotations

import enum

from attrs import frozen

__all__ = ["Exit", "ExitKind"]


class ExitKind(enum.Enum):
    """Why an actor is no longer there."""

    NORMAL = "normal"
    """Somebody asked it to stop: `ref.stop()`, `ref.aclose()`, or the actor itself."""
    SHUTDOWN = "shutdown"
    """Its system stopped, or was cancelled."""
    CRASHED = "crashed"
    """An exception came out of a handler of a tell, out of a hook, or out of its child work."""


@frozen
class Exit:
    """The end of one actor: the kind, and the exception where there was one."""

    kind: ExitKind
    error: BaseException | None = None
