"""What may follow what in a log: tables, and the one checker that reads them.

The theory. A log is at any moment in one of three phases:

    idle --turn/start--> turn --step/start--> step --step/end--> turn --turn/end--> idle

1. `PHASES` says which phase an event type needs and which it leads to. Types that it does not list may stand anywhere.
2. `CHECKS` says what else must hold for a type: a tuple of small questions about the state and the event. A question
   answers None, or the words that say what is wrong.
3. A call is answered once, in call order; a step and a turn are not closed while a call is unanswered (G1).
4. A recorded call may be asked about, once, and decided, once. Until it is decided it has no result but that it was
   never started; one that was denied has no success.
5. A message that replaces earlier ones (compaction) rewrites the surface, not the conversation: of it only the range is
   checked.

`LogState` is all the rules remember: a few numbers, the calls of the open step, and `PendingCalls`. The same state
admits drafts before they are stored (`admit` refuses) and walks logs from elsewhere (`check` reports and goes on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from attrs import Factory, define, fields, frozen

from quiesce.protocol.errors import RuleBroken
from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantMessage,
    Body,
    Draft,
    Event,
    ForeignBody,
    Replace,
    StepEnd,
    StepStart,
    ToolCall,
    ToolCallBlock,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from quiesce.protocol.pending import PendingCalls, Standing

__all__ = ["CHECKS", "PHASES", "Break", "LogState", "Phase", "check"]


class Phase(Enum):
    """Where a log stands between two events."""

    IDLE = "no turn is open"
    TURN = "a turn is open, no step"
    STEP = "a step is open"


@frozen
class Break:
    """One broken rule: the seq of the event that breaks it, the rule's name, and what is wrong in words."""

    seq: int
    rule: str
    words: str


@define
class LogState:
    """What the rules remember of a log. Watch each event once, in order; `copy` to try what has not happened yet."""

    next_seq: int = 0
    last_time: int = 0
    phase: Phase = Phase.IDLE
    turn: int = 0
    step: int = 0
    calls: tuple[ToolCallBlock, ...] | None = None
    pending: PendingCalls = Factory(PendingCalls)

    def copy(self) -> LogState:
        """The same state, to go on from here independently."""
        return LogState(
            self.next_seq, self.last_time, self.phase, self.turn, self.step, self.calls, self.pending.copy()
        )

    def admit(self, drafts: Sequence[Draft], time: int) -> tuple[Event, ...]:
        """Number `drafts`, check them one after the other, and take them as having happened: all or none.

        Raises:
            RuleBroken: a draft breaks a rule; what to tell the appender is in it. This state is as it was.

        """
        trial = self if len(drafts) == 1 else self.copy()  # one draft needs no way back: it is checked before it counts
        events = []
        for item in drafts:
            event = item.at(trial.next_seq, time)
            if breaks := trial.breaks(event):
                raise RuleBroken(breaks)
            trial.watch(event)
            events.append(event)
        if trial is not self:
            self._become(trial)
        return tuple(events)

    def _become(self, other: LogState) -> None:
        for attribute in fields(LogState):
            setattr(self, attribute.name, getattr(other, attribute.name))

    def breaks(self, event: Event) -> list[Break]:
        """Every rule that `event` would break as the next event of this log; empty if it may follow."""
        return [
            Break(event.seq, name, words)
            for name, question in _questions(event)
            if (words := question(self, event)) is not None
        ]

    def watch(self, event: Event) -> None:
        """Take `event` as having happened, whether or not it breaks a rule."""
        body = event.body
        kind = type(body)
        self.next_seq = event.seq + 1
        self.last_time = event.time
        if not _replaces(event):
            self.phase = PHASES.get(kind, _STAYS)[1] or self.phase
            if (mover := _MOVES.get(kind)) is not None:
                mover(self, body)
        self.pending.observe(event)


Question: TypeAlias = Callable[[LogState, Event], str | None]

PHASES: Final[dict[type[Any], tuple[Phase, Phase | None]]] = {
    TurnStart: (Phase.IDLE, Phase.TURN),
    StepStart: (Phase.TURN, Phase.STEP),
    StepEnd: (Phase.STEP, Phase.TURN),
    TurnEnd: (Phase.TURN, Phase.IDLE),
    AssistantMessage: (Phase.STEP, None),
    ToolCall: (Phase.STEP, None),
    ApprovalRequested: (Phase.STEP, None),
    ApprovalDecided: (Phase.STEP, None),
    ToolResult: (Phase.STEP, None),
}
"""Event type -> the phase it needs, the phase it leads to (None: it stays)."""

_STAYS: Final = (None, None)
_MESSAGES: Final = (UserMessage, AssistantMessage, ToolResult)
_NOT_ALLOWED: Final = frozenset({Standing.ASKED, Standing.DENIED})
"""Where a call stands while its body must not run."""


# --- the questions -----------------------------------------------------------------------------------------------


def _contiguous(state: LogState, event: Event) -> str | None:
    return None if event.seq == state.next_seq else f"seq {event.seq} stands where {state.next_seq} is due"


def _sources_earlier(_: LogState, event: Event) -> str | None:
    late = [seq for seq in event.source_event_seqs or () if not 0 <= seq < event.seq]
    return f"sourceEventSeqs {late} are not earlier events" if late else None


def _range_earlier(_: LogState, event: Event) -> str | None:
    operation = event.surface_op
    if not isinstance(operation, Replace) or 0 <= operation.start_seq <= operation.end_seq < event.seq:
        return None
    return f"events {operation.start_seq} to {operation.end_seq} cannot be replaced by event {event.seq}"


def _only_messages_replace(_: LogState, event: Event) -> str | None:
    if not isinstance(event.surface_op, Replace) or isinstance(event.body, (*_MESSAGES, ForeignBody)):
        return None
    return f"{event.type} is no message, so it replaces none"


def _in_phase(state: LogState, event: Event) -> str | None:
    needed = PHASES[type(event.body)][0]
    return None if state.phase is needed else f"{event.type} stands where {state.phase.value}"


def _next_turn(state: LogState, event: Event) -> str | None:
    due = state.turn + 1
    return None if _turn(event) == due else f"turn {_turn(event)} starts where turn {due} is due"


def _next_step(state: LogState, event: Event) -> str | None:
    due = state.step + 1
    return None if _step(event) == due else f"step {_step(event)} starts where step {due} is due"


def _open_turn(state: LogState, event: Event) -> str | None:
    if state.phase is Phase.IDLE or _turn(event) == state.turn:
        return None
    return f"it names turn {_turn(event)}, open is turn {state.turn}"


def _open_step(state: LogState, event: Event) -> str | None:
    if state.phase is not Phase.STEP or (_turn(event), _step(event)) == (state.turn, state.step):
        return None
    return f"it names step {_turn(event)}.{_step(event)}, open is {state.turn}.{state.step}"


def _all_answered(state: LogState, event: Event) -> str | None:
    if not len(state.pending):
        return None
    labels = ", ".join(repr(call.call_id) for call in state.pending)
    return f"{event.type} while there are unanswered calls: {labels}"


def _no_call_open(state: LogState, _: Event) -> str | None:
    return "a message may not stand between a call and its result" if len(state.pending) else None


def _one_answer(state: LogState, _: Event) -> str | None:
    return None if state.calls is None else "the step has its assistant message already"


def _asked_for(state: LogState, event: Event) -> str | None:
    body: ToolCall = event.body  # type: ignore[assignment]  # CHECKS asks this of tool/call alone
    due = state.pending.find_unrecorded(body.turn, body.step, body.call_id)
    if due is None:
        known = any(call.id == body.call_id for call in state.calls or ())
        said = "has been recorded or answered already" if known else "is not a call of this step's message"
        return f"call {body.call_id!r} {said}"
    asked = (state.calls or ())[due.index :][:1]  # empty in a log that lost its place: a call of an earlier message
    if any((call.name, call.arguments) == (body.name, body.arguments) for call in asked):
        return None
    return f"call {body.call_id!r} differs from the message in name or arguments"


def _asked_once(state: LogState, event: Event) -> str | None:
    return _stands(state, event, Standing.RECORDED)


def _decided_once(state: LogState, event: Event) -> str | None:
    return _stands(state, event, Standing.ASKED)


def _stands(state: LogState, event: Event, due: Standing) -> str | None:
    """Whether the call that an approval event names stands where it must."""
    body: ApprovalRequested | ApprovalDecided = event.body  # type: ignore[assignment]  # CHECKS asks it of these alone
    call = state.pending.at(body.turn, body.step, body.index)
    if call is None or call.call_id != body.call_id:
        return f"call {body.index} of the step, {body.call_id!r}, is not an unanswered call of its message"
    return None if call.standing is due else f"call {body.call_id!r} is not due for that: {call.standing.value}"


def _decided_before(state: LogState, event: Event) -> str | None:
    body: ToolResult = event.body  # type: ignore[assignment]  # CHECKS asks this of tool/result alone
    answered = state.pending.find(body.turn, body.step, body.message.tool_call_id)
    if answered is None or answered.standing not in _NOT_ALLOWED:
        return None
    if body.message.is_error and (
        answered.standing is Standing.DENIED or (body.error is not None and body.error.code == "TOOL_NOT_STARTED")
    ):
        return None
    return f"call {answered.call_id!r} has a result though {answered.standing.value}"


def _answers_next(state: LogState, event: Event) -> str | None:
    body: ToolResult = event.body  # type: ignore[assignment]  # CHECKS asks this of tool/result alone
    label = body.message.tool_call_id
    answered = state.pending.find(body.turn, body.step, label)
    if answered is None:
        known = any(call.id == label for call in state.calls or ())
        return f"call {label!r} " + ("is answered already" if known else "is not a call of this step's message")
    due = state.pending.first()
    if due is not None and due.index != answered.index:
        return f"the result of call {label!r} stands before that of {due.call_id!r}: results stand in call order"
    return None


def _recorded_before(state: LogState, event: Event) -> str | None:
    body: ToolResult = event.body  # type: ignore[assignment]  # CHECKS asks this of tool/result alone
    answered = state.pending.find(body.turn, body.step, body.message.tool_call_id)
    if answered is None or answered.recorded_seq is not None:
        return None
    if body.error is not None and body.error.code == "TOOL_NOT_STARTED" and body.message.is_error:
        return None
    return f"call {answered.call_id!r} has a result but no tool/call, and is not labelled TOOL_NOT_STARTED"


def _labelled(_: LogState, event: Event) -> str | None:
    body: ToolResult = event.body  # type: ignore[assignment]  # CHECKS asks this of tool/result alone
    return None if body.error is None or body.message.is_error else "a result labelled with an error is not an error"


# --- the table ---------------------------------------------------------------------------------------------------

_ALWAYS: Final[tuple[tuple[str, Question], ...]] = (
    ("contiguous-seq", _contiguous),
    ("earlier-sources", _sources_earlier),
    ("earlier-range", _range_earlier),
    ("messages-replace", _only_messages_replace),
)
_PHASE: Final[tuple[str, Question]] = ("phase", _in_phase)
_NAMES_TURN: Final[tuple[str, Question]] = ("open-turn", _open_turn)
_NAMES_STEP: Final[tuple[str, Question]] = ("open-step", _open_step)
_ANSWERED: Final[tuple[str, Question]] = ("all-answered", _all_answered)

CHECKS: Final[dict[type[Any], tuple[tuple[str, Question], ...]]] = {
    TurnStart: (*_ALWAYS, _PHASE, ("next-turn", _next_turn)),
    TurnEnd: (*_ALWAYS, _PHASE, _NAMES_TURN, _ANSWERED),
    StepStart: (*_ALWAYS, _PHASE, _NAMES_TURN, ("next-step", _next_step)),
    StepEnd: (*_ALWAYS, _PHASE, _NAMES_STEP, _ANSWERED),
    UserMessage: (*_ALWAYS, ("not-between", _no_call_open)),
    AssistantMessage: (*_ALWAYS, _PHASE, _NAMES_STEP, ("one-answer", _one_answer)),
    ToolCall: (*_ALWAYS, _PHASE, _NAMES_STEP, ("asked-for", _asked_for)),
    ApprovalRequested: (*_ALWAYS, _PHASE, _NAMES_STEP, ("asked-once", _asked_once)),
    ApprovalDecided: (*_ALWAYS, _PHASE, _NAMES_STEP, ("decided-once", _decided_once)),
    ToolResult: (
        *_ALWAYS,
        _PHASE,
        _NAMES_STEP,
        ("call-order", _answers_next),
        ("recorded-before", _recorded_before),
        ("decided-before", _decided_before),
        ("labelled", _labelled),
    ),
}
"""Event type -> the named rules that it must keep. Every other type keeps `_ALWAYS` only."""


def _questions(event: Event) -> tuple[tuple[str, Question], ...]:
    return _ALWAYS if _replaces(event) else CHECKS.get(type(event.body), _ALWAYS)


def _replaces(event: Event) -> bool:
    return isinstance(event.surface_op, Replace) and isinstance(event.body, _MESSAGES)


def _turn(event: Event) -> int:
    return event.body.turn  # type: ignore[union-attr]  # CHECKS asks it only of types that name a turn


def _step(event: Event) -> int:
    return event.body.step  # type: ignore[union-attr]  # CHECKS asks it only of types that name a step


# --- what the state takes from an event --------------------------------------------------------------------------


def _move_turn_start(state: LogState, body: TurnStart) -> None:
    state.turn, state.step, state.calls = body.turn, 0, None


def _move_step_start(state: LogState, body: StepStart) -> None:
    state.step, state.calls = body.step, None


def _move_answer(state: LogState, body: AssistantMessage) -> None:
    state.calls = body.message.calls


def _move_close(state: LogState, _: Body) -> None:
    state.calls = None


_MOVES: Final[dict[type[Any], Callable[[LogState, Any], None]]] = {
    TurnStart: _move_turn_start,
    StepStart: _move_step_start,
    AssistantMessage: _move_answer,
    StepEnd: _move_close,
    TurnEnd: _move_close,
}


def check(events: Iterable[Event]) -> Iterator[Break]:
    """Walk any log and yield each break of the rules, with its seq, in log order. It never refuses to go on."""
    state = LogState()
    for event in events:
        yield from state.breaks(event)
        state.watch(event)
