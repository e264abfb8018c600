"""`ToolOutcome`: how one call ended, before it is written down, and the table of the labels of an error result.

The table is the one place where a code, its error name and quiesce's own words stand together (behaviour: outcomes of
one call, recovery).
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from quiesce.protocol.events import Block, ErrorInfo, JsonObject, TextBlock, ToolMessage, ToolResult, UserMessage

__all__ = ["ERROR_NAMES", "ToolOutcome", "denial", "failure", "result_body", "success", "undecided"]

ERROR_NAMES: Final[dict[str, str]] = {
    "TOOL_ERROR": "ToolError",
    "UNKNOWN_TOOL": "ToolNotFoundError",
    "INVALID_ARGS": "InvalidArgumentsError",
    "TOOL_DENIED": "ToolDeniedError",
    "TOOL_TIMEOUT": "ToolTimeoutError",
    "ABORTED": "ToolAbortedError",
    "ABORTED_BEFORE_DISPATCH": "ToolAbortedError",
    "TOOL_OUTCOME_UNKNOWN": "ToolOutcomeUnknownError",
    "TOOL_NOT_STARTED": "ToolNotStartedError",
}
"""Code of an error result -> the error name beside it. A body that raised has the name of what it raised instead."""


@frozen
class ToolOutcome:
    """How a call ended. `error` is set exactly for error results, and an error result always has text.

    `context` are messages that enter the next step after the last result of the batch. `concludes_turn` asks to end the
    turn after this step; `blocks_turn` (a `finalize` hook's word) ends it as blocked, with that reason.
    """

    content: tuple[Block, ...]
    error: ErrorInfo | None = None
    meta: JsonObject | None = None
    context: tuple[UserMessage, ...] = ()
    concludes_turn: bool = False
    blocks_turn: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the model is told that the call failed."""
        return self.error is not None


def success(text: str) -> ToolOutcome:
    """A success whose content is `text`."""
    return ToolOutcome((TextBlock(text),))


def failure(code: str, text: str, *, name: str | None = None, reason: str | None = None) -> ToolOutcome:
    """An error result labelled `code`; its error name comes from the table unless `name` is given."""
    return ToolOutcome((TextBlock(text),), error=ErrorInfo(name or ERROR_NAMES[code], code, reason))


def denial(reason: str | None) -> ToolOutcome:
    """The outcome of a call that a hook or a person refused."""
    return failure("TOOL_DENIED", f"The call was denied: {reason or 'no reason was given.'}", reason=reason or None)


def undecided() -> ToolOutcome:
    """The outcome of a call that waited for a person who did not decide."""
    return failure(
        "TOOL_NOT_STARTED",
        "This call waited for a person's approval, and nobody had decided about it. It was never started, so it had no "
        "effect. Ask for it again if it is still wanted.",
    )


def result_body(outcome: ToolOutcome, *, turn: int, step: int, call_id: str, message_id: str) -> ToolResult:
    """The log's record of `outcome` as the answer to the call that is labelled `call_id`."""
    message = ToolMessage("tool", call_id, outcome.content, outcome.is_error, message_id)
    return ToolResult(turn, step, message, outcome.error, outcome.meta)
