"""Recovery: the results that a failed, killed or forked step still owes, and the closers of an open turn.

Both are built from `PendingCalls`, so they are the same for the live driver, resume and fork. Nothing here retries,
removes, or turns a failed turn into a success. What a call is labelled depends on how far it came in the log:

    no tool/call                            TOOL_NOT_STARTED
    a tool/call                             TOOL_OUTCOME_UNKNOWN
    asked, and nobody decided               TOOL_NOT_STARTED: its body runs only once a person has approved it
    asked, and approved                     TOOL_OUTCOME_UNKNOWN
    asked, and denied                       TOOL_DENIED, with the reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from quiesce.protocol.events import Draft, EndSeed, Event, Reason, StepEnd, ToolResult, TurnEnd, draft
from quiesce.protocol.outcome import ToolOutcome, denial, failure, result_body, undecided
from quiesce.protocol.pending import Standing
from quiesce.protocol.rules import LogState, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from quiesce.protocol.pending import PendingCall

__all__ = ["Cause", "closers", "closing_events", "forked", "recovery_outcome", "recovery_results"]

Cause: TypeAlias = Literal["failed", "interrupted", "forked"]
"""Why calls are unanswered: their step failed, their process died, or the session was forked from another."""

_UNKNOWN: Final = (
    "This call was recorded as started, but no result of it was recorded. Its outcome is unknown: it may have taken "
    "effect. Repeat it only if it only reads or is idempotent; otherwise check for its effects first, or ask the user."
)
_NOT_STARTED: Final = "This call was never started, so it had no effect. Ask for it again if it is still wanted."
_FORKED_UNKNOWN: Final = (
    "This conversation was forked off while the call was running, so its outcome is unknown here: the original "
    "conversation may have completed it. Repeat it only if it only reads or is idempotent; otherwise check for its "
    "effects first, or ask the user."
)
_FORKED_NOT_STARTED: Final = (
    "This conversation was forked off before the call was started here, but the original conversation may have run it "
    "since. If it is still wanted, check for its effects before asking for it again, unless it only reads."
)

_OUTCOMES: Final[dict[tuple[Standing, bool], ToolOutcome]] = {
    # (how far it came, forked): how it ended. What a person denied was denied, wherever it is.
    (Standing.UNRECORDED, False): failure("TOOL_NOT_STARTED", _NOT_STARTED),
    (Standing.RECORDED, False): failure("TOOL_OUTCOME_UNKNOWN", _UNKNOWN),
    (Standing.ASKED, False): undecided(),
    (Standing.APPROVED, False): failure("TOOL_OUTCOME_UNKNOWN", _UNKNOWN),
    (Standing.UNRECORDED, True): failure("TOOL_NOT_STARTED", _FORKED_NOT_STARTED),
    (Standing.RECORDED, True): failure("TOOL_OUTCOME_UNKNOWN", _FORKED_UNKNOWN),
    (Standing.ASKED, True): failure("TOOL_NOT_STARTED", _FORKED_NOT_STARTED),
    (Standing.APPROVED, True): failure("TOOL_OUTCOME_UNKNOWN", _FORKED_UNKNOWN),
}


_MAY_HAVE_RUN: Final = frozenset({Standing.RECORDED, Standing.APPROVED})


def recovery_results(
    pending: Iterable[PendingCall],
    cause: Cause,
    message_id: Callable[[PendingCall, int], str],
    settled: Mapping[int, ToolResult] | None = None,
) -> tuple[Draft, ...]:
    """A result for each pending call, in call order: the settled one where there is one, else a recovery result.

    `settled` maps a call's index to a result that its tool really returned (G3). A call without a record, or without a
    person's approval, has returned nothing: an answer that was meant for it is passed over, as the log would refuse it.
    `message_id` names the message of a recovery result, given the call and the position of the draft in what is
    returned.
    """
    kept = settled or {}

    def answer(call: PendingCall, position: int) -> ToolResult:
        returned = kept.get(call.index) if call.standing in _MAY_HAVE_RUN else None
        return returned or _recovery_body(call, cause, message_id(call, position))

    return tuple(
        draft(answer(call, position), sources=None if call.recorded_seq is None else (call.recorded_seq,))
        for position, call in enumerate(pending)
    )


def closers(state: LogState, cause: Literal["interrupted", "forked"]) -> tuple[Draft, ...]:
    """What closes the open turn of a log that ends in `state`; empty if none is open, so closing twice adds nothing.

    The ids of its messages are derived from call and seq, so that two readers of one log close it in the same words.
    """
    if state.phase is Phase.IDLE:
        return ()
    results = recovery_results(
        state.pending,
        cause,
        lambda call, position: f"interrupted-tool-result-{call.call_id}-{state.next_seq + position}",
    )
    step_end = (draft(StepEnd(state.turn, state.step)),) if state.phase is Phase.STEP else ()
    return (*results, *step_end, draft(TurnEnd(state.turn, Reason(cause))))


def forked(prefix: Sequence[Event]) -> tuple[Event, ...]:
    """The log of a fork: `prefix`, a mark that it was inherited, and the closers of what is open there.

    What is added carries the time of the last event of `prefix`, which must not be empty.
    """
    state = LogState()
    for event in prefix:
        state.watch(event)
    seed = draft(EndSeed(inherited=True)).at(state.next_seq, state.last_time)
    state.watch(seed)
    return (*prefix, seed, *closing_events(state, "forked"))


def closing_events(state: LogState, cause: Literal["interrupted", "forked"]) -> tuple[Event, ...]:
    """The closers of a log that ends in `state`, numbered, with the time of its last event."""
    return tuple(item.at(state.next_seq + at, state.last_time) for at, item in enumerate(closers(state, cause)))


def recovery_outcome(call: PendingCall, cause: Cause) -> ToolOutcome:
    """How a call ended of which the log says no more than `call` does."""
    if call.standing is Standing.DENIED:
        return denial(call.reason)
    return _OUTCOMES[call.standing, cause == "forked"]


def _recovery_body(call: PendingCall, cause: Cause, message_id: str) -> ToolResult:
    outcome = recovery_outcome(call, cause)
    return result_body(outcome, turn=call.turn, step=call.step, call_id=call.call_id, message_id=message_id)
