"""Every error of quiesce, split by whose fault it is. The family tells the caller what to do; the text tells which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.messages import Turn
    from quiesce.protocol.rules import Break

__all__ = [
    "AlreadyDecided",
    "InputDropped",
    "InputParked",
    "InvalidInput",
    "LeaseLost",
    "LogError",
    "ModelError",
    "NoOpenQuestion",
    "QuiesceError",
    "RecoveryFailed",
    "RuleBroken",
    "SessionExists",
    "SessionHeld",
    "SessionNotFound",
    "StepLimitReached",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "ToolDenied",
    "TurnFailed",
    "UnreadableLog",
]


class QuiesceError(Exception):
    """The root of all errors that quiesce raises on purpose."""


class InvalidInput(QuiesceError, ValueError):
    """The caller's fault: a value was refused before anything was stored or started. The text names the field."""


class NoOpenQuestion(InvalidInput):
    """A call was approved or denied about which nobody is asked now: there is no such question, its call has a result,
    or its turn is over or being cancelled. Nothing has changed. `Agent.questions` says what is open.
    """


class AlreadyDecided(NoOpenQuestion):
    """Somebody else decided first: `approved` says how. (Should the store refuse it, the question is open.)"""

    def __init__(self, message: str, *, approved: bool) -> None:
        super().__init__(message)
        self.approved = approved


class LogError(QuiesceError):
    """The log's state stands in the way."""


class RuleBroken(LogError):
    """An append was refused by the rules of the log; nothing was stored. `breaks` names each rule and why."""

    def __init__(self, breaks: Sequence[Break]) -> None:
        super().__init__("; ".join(f"{item.rule}: {item.words}" for item in breaks))
        self.breaks = tuple(breaks)


class UnreadableLog(LogError):
    """A log cannot be read: damaged, of an unknown version, or holding an unknown event that must not be skipped.

    `line` is the 1-based line of the file, where there is one.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class StoreError(QuiesceError):
    """The store refused or failed; an append that raises it changed nothing."""


class SessionNotFound(StoreError):
    """The store has no such session."""


class SessionExists(StoreError):
    """A session of that name is there already, and a new one was asked for."""


class SessionHeld(StoreError):
    """Another writer holds the session's lease. Close it there, or wait for it."""


class LeaseLost(StoreError):
    """A newer writer took the lease: this one can append no more, and what it tried changed nothing."""


class StoreFull(StoreError):
    """The disk or the store's limit is full; nothing was stored. Make room and resume the session."""


class StoreLocked(StoreError):
    """Another process kept the store locked beyond the busy time-out; nothing was stored."""


class TurnFailed(QuiesceError):
    """A turn failed. It is closed in the log, with every call answered; `turn` is how it ended, the cause why."""

    def __init__(self, turn: Turn, failure: BaseException) -> None:
        super().__init__(f"turn {turn.number} failed: {type(failure).__name__}: {failure}")
        self.turn = turn


class RecoveryFailed(TurnFailed, ExceptionGroup[Exception]):
    """A turn failed and the log refused to close it: step and turn stay open there, and resume repairs them.

    An exception group of the original failure (which is its cause as well) and the log's refusal, in this order.
    """

    def __new__(cls, turn: Turn, failure: Exception, refusal: Exception) -> Self:
        return ExceptionGroup.__new__(cls, f"turn {turn.number} failed and could not be closed", [failure, refusal])

    def __init__(self, turn: Turn, failure: Exception, refusal: Exception) -> None:
        ExceptionGroup.__init__(self, f"turn {turn.number} failed and could not be closed", [failure, refusal])
        self.turn = turn

    def derive(self, excs: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]  # of one type only
        """A part of it is a plain group: it is no failed turn any more."""
        return ExceptionGroup(self.message, excs)


class StepLimitReached(QuiesceError):
    """The turn took as many steps as its agent allows (`max_steps`)."""

    code = "MAX_STEPS"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the turn was not over after {limit} steps, which is its max_steps")


class InputParked(QuiesceError):
    """The turn before this input failed, was cancelled or was blocked. The input stays queued: the next input that
    wakes the agent takes it along. Its cause is the failure of that turn, if it failed.
    """


class InputDropped(QuiesceError):
    """The input was dropped from the inbox by a cancel before any turn claimed it."""


class ToolDenied(QuiesceError):
    """Raised by a `prepare` hook to refuse one call: it gets an error result with this reason, its siblings go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ModelError(QuiesceError):
    """A model request failed at the provider, or on the way there. The text says all of it that is worth a log line.

    `transient` says whether the same request may succeed later (a retry policy reads it), `retry_after` is the
    provider's own wish in seconds, `code` its short name for the fault. `status` is that of HTTP, `request_id` what the
    provider's support asks for, `position` the place in the request that was refused: `messages[3].content[0]`. What
    is not known is None.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "MODEL_ERROR",
        transient: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
        position: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.transient = transient
        self.retry_after = retry_after
        self.status = status
        self.request_id = request_id
        self.position = position
