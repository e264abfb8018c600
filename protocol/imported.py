"""Sessions made of what others kept: the log of another harness, or the messages of a transcript.

1. What is imported stands as it is, closed by `session/end-seed`; quiesce goes on behind it.
2. Events of a log that quiesce has no use for are marked as ones that a reader may skip. A turn that is open is closed
   as interrupted, as a resume would.
3. Messages become turns: input opens a step, an answer without calls ends the turn. A call counts as started, since
   somebody ran it, and is answered by its result; one without a result by an error that says that its outcome is
   unknown. What answers no call is left out: the file that was imported still has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import Factory, define, evolve

from quiesce.protocol.dialects.exchanges import exchanges
from quiesce.protocol.events import (
    AssistantMessage,
    EndSeed,
    ErrorInfo,
    ForeignBody,
    ModelMessage,
    Reason,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    draft,
)
from quiesce.protocol.recovery import closers, closing_events
from quiesce.protocol.rules import LogState, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quiesce.protocol.dialects.exchanges import Exchange
    from quiesce.protocol.events import Body, Event, ToolMessage
    from quiesce.protocol.model import Visible

__all__ = ["imported_log", "imported_messages"]

_UNKNOWN: Final = ErrorInfo("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN")


def imported_log(events: Sequence[Event]) -> tuple[Event, ...]:
    """The log of a session that goes on from `events`, which must not be empty. What is added has their last time."""
    state = LogState()
    kept = [evolve(event, ignorable=True) if isinstance(event.body, ForeignBody) else event for event in events]
    for event in kept:
        state.watch(event)
    closing = closing_events(state, "interrupted")
    for event in closing:
        state.watch(event)
    return (*kept, *closing, draft(EndSeed()).at(state.next_seq, state.last_time))


def imported_messages(messages: Sequence[Visible], time: int) -> tuple[Event, ...]:
    """The log of a session that goes on from `messages`, in any order; its events are all of `time` (ms)."""
    log = _Log(time, frozenset(message.id for message in messages))
    for exchange in exchanges(messages):
        log.add(exchange)
    return log.end()


@define
class _Log:
    """A log in the making; every event of it is admitted by the rules."""

    time: int
    answered: frozenset[str]
    """The ids of the results that there are; any other one was made up for a call without."""
    state: LogState = Factory(LogState)
    events: list[Event] = Factory(list)

    def add(self, exchange: Exchange) -> None:
        """Input, or an answer with its calls and their results."""
        self._open_step()
        if isinstance(exchange.message, ModelMessage):
            self._add_answer(exchange.message, exchange.answers)
        else:
            self._write(exchange.message)

    def end(self) -> tuple[Event, ...]:
        """All of it, with what is open closed as interrupted."""
        for item in closers(self.state, "interrupted"):
            self.events += self.state.admit((item,), self.time)
        self._write(EndSeed())
        return tuple(self.events)

    def _add_answer(self, message: ModelMessage, results: Iterable[ToolMessage]) -> None:
        turn, step = self.state.turn, self.state.step
        self._write(AssistantMessage(turn, step, message))
        for call, result in zip(message.calls, results, strict=True):
            self._write(ToolCall(turn, step, call.id, call.name, call.arguments))
            error = None if result.id in self.answered else _UNKNOWN
            self._write(ToolResult(turn, step, evolve(result, tool_call_id=call.id), error))
        if not message.calls:
            self._write(StepEnd(turn, step))
            self._write(TurnEnd(turn, Reason("completed")))

    def _open_step(self) -> None:
        """Be in a step that has no answer yet: each takes one."""
        state = self.state
        if state.phase is Phase.STEP and state.calls is None:
            return
        if state.phase is Phase.STEP:
            self._write(StepEnd(state.turn, state.step))
        if state.phase is Phase.IDLE:
            self._write(TurnStart(state.turn + 1))
        self._write(StepStart(state.turn, state.step + 1))

    def _write(self, body: Body) -> None:
        self.events += self.state.admit((draft(body),), self.time)
