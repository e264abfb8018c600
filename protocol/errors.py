"""Every error of quiesce, split by whose fault it is. The family tells the caller what to do; the text tells which."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.rules import Break

__all__ = [
    "InvalidInput",
    "LeaseLost",
    "LogError",
    "ModelError",
    "QuiesceError",
    "RuleBroken",
    "SessionExists",
    "SessionHeld",
    "SessionNotFound",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "ToolDenied",
    "UnreadableLog",
]


class QuiesceError(Exception):
    """The root of all errors that quiesce raises on purpose."""


class InvalidInput(QuiesceError, ValueError):  # noqa: N818 - named for what happened, as trio's errors are
    """The caller's fault: a value was refused before anything was stored or started. The text names the field."""


class LogError(QuiesceError):
    """The log's state stands in the way."""


class RuleBroken(LogError):  # noqa: N818 - named for what happened
    """An append was refused by the rules of the log; nothing was stored. `breaks` names each rule and why."""

    def __init__(self, breaks: Sequence[Break]) -> None:
        super().__init__("; ".join(f"{item.rule}: {item.words}" for item in breaks))
        self.breaks = tuple(breaks)


class UnreadableLog(LogError):  # noqa: N818 - named for what happened
    """A log cannot be read: damaged, of an unknown version, or holding an unknown event that must not be skipped.

    `line` is the 1-based line of the file, where there is one.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class StoreError(QuiesceError):
    """The store refused or failed; an append that raises it changed nothing."""


class SessionNotFound(StoreError):  # noqa: N818 - named for what happened
    """The store has no such session."""


class SessionExists(StoreError):  # noqa: N818 - named for what happened
    """A session of that name is there already, and a new one was asked for."""


class SessionHeld(StoreError):  # noqa: N818 - named for what happened
    """Another writer holds the session's lease. Close it there, or wait for it."""


class LeaseLost(StoreError):  # noqa: N818 - named for what happened
    """A newer writer took the lease: this one can append no more, and what it tried changed nothing."""


class StoreFull(StoreError):  # noqa: N818 - named for what happened
    """The disk or the store's limit is full; nothing was stored. Make room and resume the session."""


class StoreLocked(StoreError):  # noqa: N818 - named for what happened
    """Another process kept the store locked beyond the busy time-out; nothing was stored."""


class ToolDenied(QuiesceError):  # noqa: N818 - named for what happened
    """Raised by a `prepare` hook to refuse one call: it gets an error result with this reason, its siblings go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ModelError(QuiesceError):
    """A model request failed at the provider.

    `transient` says whether the same request may succeed later (a retry policy reads it), `retry_after` is the
    provider's own wish in seconds, `code` its short name for the fault.
    """

    def __init__(
        self, message: str, *, code: str = "MODEL_ERROR", transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.transient = transient
        self.retry_after = retry_after
