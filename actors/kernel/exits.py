"""How an actor ended: the value that `ref.wait_stopped()` gives. And how much its end is hurried."""

from __future__ import annotations

import enum

from attrs import frozen

__all__ = ["Exit", "ExitKind", "Haste"]


class ExitKind(enum.Enum):
    """Why an actor is no longer there."""

    NORMAL = "normal"
    """Somebody asked it to stop: `ref.stop()`, `ref.aclose()`, or the actor itself."""
    SHUTDOWN = "shutdown"
    """Its system or its supervisor stopped it, or its system was cancelled."""
    CRASHED = "crashed"
    """An exception came out of a handler of a tell, out of a hook, or out of its child work."""


@frozen
class Exit:
    """The end of one actor: the kind, and the exception where there was one."""

    kind: ExitKind
    error: BaseException | None = None


class Haste(enum.IntEnum):
    """How much the end of an actor is hurried; it only ever grows."""

    NONE = 0
    """What is under way, and what was sent before, is done first."""
    NOW = 1
    """The handler under way is cancelled; the exit hook runs to its end."""
    AT_ONCE = 2
    """The exit hook is cancelled too, at its first checkpoint."""
