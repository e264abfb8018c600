"""`Timeline`: a log as turns, steps and calls, for people to look at. Values only; how they are drawn is `drawing`'s.

It is built from any log, also one that breaks the rules: what has no place (a result that answers nothing, a message
outside a turn) is kept where it stands. Which call a record or a result belongs to is asked of `PendingCalls`, the one
place that knows.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import Factory, define

from quiesce.actors.cli.contents import content_in_words
from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantMessage,
    ForeignBody,
    InboxSpliced,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from quiesce.protocol.inbox import Inbox
from quiesce.protocol.rules import LogState, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.protocol.events import Body, Event, JsonObject, Reason

__all__ = ["Answer", "Call", "Entry", "Outcome", "Span", "Step", "Timeline", "Turn", "timeline_of"]

Span: TypeAlias = tuple[int, int]
"""From when to when, in milliseconds since the epoch."""


class Outcome(Enum):
    """How a call ended, as far as the log says."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timed out"
    ABORTED = "aborted"
    UNKNOWN = "UNKNOWN"
    NOT_STARTED = "NOT STARTED"
    OPEN = "open"
    WAITING = "WAITING"
    UNANSWERED = "unanswered"


_OUTCOMES: Final = {
    "TOOL_DENIED": Outcome.DENIED,
    "TOOL_TIMEOUT": Outcome.TIMEOUT,
    "ABORTED": Outcome.ABORTED,
    "ABORTED_BEFORE_DISPATCH": Outcome.ABORTED,
    "TOOL_OUTCOME_UNKNOWN": Outcome.UNKNOWN,
    "TOOL_NOT_STARTED": Outcome.NOT_STARTED,
}
"""Code of an error result -> outcome. Every other code is an error."""


_PLACES: Final[dict[type[Body], str]] = {
    ToolCall: "record",
    ApprovalRequested: "asked",
    ApprovalDecided: "decided",
    ToolResult: "answer",
}
"""Body -> the attribute of its call in which the event is kept."""


@define
class Call:
    """One call of a message, its record, what a person was asked about it, and its answer, as far as they are there."""

    label: str
    name: str
    arguments: str
    record: Event | None = None
    answer: Event | None = None
    asked: Event | None = None
    decided: Event | None = None
    abandoned: bool = False
    """Whether its step is over without an answer to it."""

    @property
    def result(self) -> ToolResult | None:
        """What answers it."""
        return self.answer.body if self.answer is not None and isinstance(self.answer.body, ToolResult) else None

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        result = self.result
        if result is None and self.abandoned:
            return Outcome.UNANSWERED
        if result is None:
            return Outcome.WAITING if self.asked is not None and self.decided is None else Outcome.OPEN
        if result.error is not None:
            return _OUTCOMES.get(result.error.code, Outcome.ERROR)
        return Outcome.ERROR if result.message.is_error else Outcome.OK

    @property
    def question(self) -> str:
        """What a person was asked about it; empty if nobody was."""
        body = None if self.asked is None else self.asked.body
        return body.text if isinstance(body, ApprovalRequested) else ""

    @property
    def decision(self) -> str:
        """What a person decided about it; empty if nobody did."""
        body = None if self.decided is None else self.decided.body
        if not isinstance(body, ApprovalDecided):
            return ""
        return "approved" if body.approved else f"denied: {body.reason or 'no reason was given'}"

    @property
    def text(self) -> str:
        """The text of its result."""
        return "" if self.result is None else content_in_words(self.result.message.content)

    @property
    def ran(self) -> Span | None:
        """From its start to its end, as far as the log says: a host that measures bodies puts times in `meta`.

        What waited for a person starts with the decision.
        """
        result = self.result
        if result is not None and (measured := _measured(result.meta)) is not None:
            return measured
        begun = self.decided or self.record
        if begun is None:
            return None
        return begun.time, begun.time if self.answer is None else self.answer.time


def _measured(meta: JsonObject | None) -> Span | None:
    start, end = (meta or {}).get("startedAt"), (meta or {}).get("endedAt")
    if type(start) is not int or type(end) is not int or start > end:
        return None
    return start, end


@define
class Answer:
    """A model's message, with the calls that it asks for."""

    event: Event
    calls: list[Call] = Factory(list)

    @property
    def span(self) -> Span | None:
        """From the first record of its calls to the last result."""
        calls = [call for call in self.calls if call.record is not None]
        spans = [call.ran for call in calls if call.ran is not None]
        times = [event.time for call in calls for event in (call.record, call.answer) if event is not None]
        every = [*times, *(time for span in spans for time in span)]
        return (min(every), max(every)) if every else None


Entry: TypeAlias = "Event | Answer"
"""What stands in a step (or outside of one): an answer with its calls, or any other event that is worth a line."""


@define
class Step:
    """One step; `opened` or `closed` is None if the log does not say so."""

    number: int
    opened: Event | None = None
    closed: Event | None = None
    entries: list[Entry] = Factory(list)


@define
class Turn:
    """One turn, with its steps and what stands between them."""

    number: int
    opened: Event | None = None
    closed: Event | None = None
    parts: list[Step | Entry] = Factory(list)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its calls, in the order in which they were asked for."""
        entries = (entry for part in self.parts for entry in (part.entries if isinstance(part, Step) else (part,)))
        return tuple(call for entry in entries if isinstance(entry, Answer) for call in entry.calls)

    @property
    def reason(self) -> Reason | None:
        """Why it ended; None while it is open."""
        return self.closed.body.reason if self.closed is not None and isinstance(self.closed.body, TurnEnd) else None

    @property
    def last_time(self) -> int | None:
        """The time of its end, as far as it has come."""
        if self.closed is not None:
            return self.closed.time
        times = [time for part in self.parts if (time := _last_time(part)) is not None]
        return max(times, default=None if self.opened is None else self.opened.time)


def _last_time(part: Step | Entry) -> int | None:
    if isinstance(part, Answer):
        return part.event.time if part.span is None else max(part.event.time, part.span[1])
    if not isinstance(part, Step):
        return part.time
    inner = [time for entry in part.entries if (time := _last_time(entry)) is not None]
    return max(inner, default=None if part.opened is None else part.opened.time)


@define
class Timeline:
    """A whole log: its turns and what stands outside of them, in log order; and what is counted, not shown."""

    parts: list[Turn | Entry] = Factory(list)
    events: int = 0
    first_time: int | None = None
    foreign: Counter[str] = Factory(Counter)
    state: LogState = Factory(LogState)
    inbox: Inbox = Factory(Inbox)

    _turn: Turn | None = None
    _step: Step | None = None
    _answer: Answer | None = None

    @property
    def turns(self) -> list[Turn]:
        """Its turns."""
        return [part for part in self.parts if isinstance(part, Turn)]

    @property
    def is_open(self) -> bool:
        """Whether the log ends inside a turn."""
        return self.state.phase is not Phase.IDLE

    def observe(self, event: Event) -> None:
        """Take the next event of the log."""
        self.events += 1
        self.first_time = event.time if self.first_time is None else self.first_time
        self._place(event)
        self.state.watch(event)
        self.inbox.observe(event)

    def _place(self, event: Event) -> None:
        match event.body:
            case TurnStart(turn=number):
                self._leave_turn()
                self._turn = Turn(number, event)
                self.parts.append(self._turn)
            case TurnEnd(turn=number):
                self._in_turn(number).closed = event
                self._leave_turn()
            case StepStart(turn=turn, step=number):
                self._leave_step()
                self._step = Step(number, event)
                self._in_turn(turn).parts.append(self._step)
            case StepEnd() if self._step is not None:
                self._step.closed = event
                self._leave_step()
            case AssistantMessage(message=message) if event.surface_op in (None, "append"):
                self._answer = Answer(event, [Call(call.id, call.name, call.arguments) for call in message.calls])
                self._add(self._answer)
            case ToolCall() | ApprovalRequested() | ApprovalDecided() | ToolResult():
                self._attach(event)
            case ForeignBody(type=kind):
                self.foreign[kind] += 1
                self._add(event)
            case InboxSpliced():
                pass  # the inbox follows it
            case _:
                self._add(event)

    def _attach(self, event: Event) -> None:
        """Find the call that a record, a question, a decision or a result belongs to."""
        call = self._call_of(event)
        if call is None:
            self._add(event)
        else:
            setattr(call, _PLACES[type(event.body)], event)

    def _call_of(self, event: Event) -> Call | None:
        pending, body, found = self.state.pending, event.body, None
        if isinstance(body, ToolCall):
            found = pending.find_unrecorded(body.turn, body.step, body.call_id)
        elif isinstance(body, (ApprovalRequested, ApprovalDecided)):
            found = pending.at(body.turn, body.step, body.index)
        elif isinstance(body, ToolResult) and event.surface_op in (None, "append"):
            found = pending.find(body.turn, body.step, body.message.tool_call_id)
        calls = self._answer.calls if self._answer is not None else []
        # A log that breaks the rules may have calls pending that are not of the latest message.
        if found is None or found.index >= len(calls) or calls[found.index].label != found.call_id:
            return None
        return calls[found.index]

    def _add(self, entry: Entry) -> None:
        if self._step is not None:
            self._step.entries.append(entry)
        elif self._turn is not None:
            self._turn.parts.append(entry)
        else:
            self.parts.append(entry)

    def _in_turn(self, number: int) -> Turn:
        """The open turn; one is made up for a log that never opened it."""
        if self._turn is None:
            self._turn = Turn(number)
            self.parts.append(self._turn)
        return self._turn

    def _leave_step(self) -> None:
        if self._answer is not None:
            for call in self._answer.calls:
                call.abandoned = call.answer is None
        self._step = self._answer = None

    def _leave_turn(self) -> None:
        self._leave_step()
        self._turn = None


def timeline_of(events: Iterable[Event]) -> Timeline:
    """The timeline of a log."""
    timeline = Timeline()
    for event in events:
        timeline.observe(event)
    return timeline
