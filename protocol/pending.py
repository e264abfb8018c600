"""PendingCalls: which calls of the open step are unanswered. THE one implementation, for live, replay, resume and fork.

It watches committed events, one at a time, in order:

1. an assistant message registers its calls, in call order;
2. `tool/call` marks the first unrecorded call of that label as recorded and remembers the seq;
3. `approval/requested` marks the recorded call of that index as asked, `approval/decided` an asked one as decided;
4. `tool/result` of the same turn and step answers the first unanswered call of that label;
5. `step/end`, `turn/start` and `turn/end` forget the rest;
6. a message that replaces others (compaction) registers and answers nothing.

A call is (turn, step, index in its message). Provider ids are labels: they may be empty or repeated, and since records
and results both stand in call order, "the first of that label" crosses nothing. It holds identities, never events, so
that a log of any length is watched in constant memory.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from attrs import Factory, define, evolve, field, frozen

from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantMessage,
    StepEnd,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quiesce.protocol.events import Body, Event

__all__ = ["PendingCall", "PendingCalls", "Standing"]


class Standing(Enum):
    """How far an unanswered call has come, as far as the log says."""

    UNRECORDED = "it has no tool/call"
    RECORDED = "its tool/call is there"
    ASKED = "it waits for a person"
    APPROVED = "a person approved it"
    DENIED = "a person denied it"


_START: Final = {False: Standing.UNRECORDED, True: Standing.RECORDED}


@frozen
class PendingCall:
    """The identity of one unanswered call. `recorded_seq` is the seq of its `tool/call`, None before there is one.

    `reason` is why a person denied it.
    """

    turn: int
    step: int
    index: int
    call_id: str
    name: str
    recorded_seq: int | None = None
    standing: Standing = field(default=Factory(lambda self: _START[self.recorded_seq is not None], takes_self=True))
    reason: str | None = None


@define
class PendingCalls:
    """The unanswered calls of the open step, in call order."""

    _recorded: dict[int, PendingCall] = Factory(dict)
    _unrecorded: dict[int, PendingCall] = Factory(dict)

    def observe(self, event: Event) -> None:
        """Take the next committed event of the log."""
        body = event.body
        kind = type(body)
        if kind in _FORGETTING:
            self._recorded.clear()
            self._unrecorded.clear()
        elif kind in _WATCHED and event.surface_op in (None, "append"):
            self._watch(body, event.seq)

    def _watch(self, body: Body, seq: int) -> None:
        match body:
            case AssistantMessage(turn=turn, step=step, message=message):
                for index, call in enumerate(message.calls):
                    self._unrecorded[index] = PendingCall(turn, step, index, call.id, call.name)
            case ToolCall(turn=turn, step=step, call_id=label):
                if (call_ := _first(self._unrecorded, turn, step, label)) is not None:
                    del self._unrecorded[call_.index]
                    self._recorded[call_.index] = evolve(call_, recorded_seq=seq, standing=Standing.RECORDED)
            case ApprovalRequested():
                self._stands(body, Standing.RECORDED, Standing.ASKED)
            case ApprovalDecided(approved=approved):
                self._stands(body, Standing.ASKED, Standing.APPROVED if approved else Standing.DENIED, body.reason)
            case ToolResult(turn=turn, step=step, message=result):
                if (call_ := self.find(turn, step, result.tool_call_id)) is not None:
                    del (self._unrecorded if call_.recorded_seq is None else self._recorded)[call_.index]

    def _stands(
        self, body: ApprovalRequested | ApprovalDecided, was: Standing, now: Standing, reason: str | None = None
    ) -> None:
        call = self.at(body.turn, body.step, body.index)
        if call is not None and call.standing is was:
            self._recorded[call.index] = evolve(call, standing=now, reason=reason)

    def at(self, turn: int, step: int, index: int) -> PendingCall | None:
        """The unanswered call at that place of that step's message, or None."""
        call = self._recorded.get(index) or self._unrecorded.get(index)
        return call if call is not None and (call.turn, call.step) == (turn, step) else None

    @property
    def undecided(self) -> bool:
        """Whether a call waits for a person."""
        return any(call.standing is Standing.ASKED for call in self._recorded.values())

    @property
    def only_undecided(self) -> bool:
        """Whether calls wait for a person, and nothing that was started could still have a result that is not here."""
        return self.undecided and not any(call.standing in _UNCLEAR for call in self._recorded.values())

    def find(self, turn: int, step: int, label: str) -> PendingCall | None:
        """The first unanswered call of that label in that step, or None. Of one label, the recorded ones come first."""
        return _first(self._recorded, turn, step, label) or _first(self._unrecorded, turn, step, label)

    def find_unrecorded(self, turn: int, step: int, label: str) -> PendingCall | None:
        """The first call of that label in that step that has neither a record nor an answer, or None."""
        return _first(self._unrecorded, turn, step, label)

    def first(self) -> PendingCall | None:
        """The first unanswered call: the one that the next result must answer."""
        heads = [calls[min(calls)] for calls in (self._recorded, self._unrecorded) if calls]
        return min(heads, key=_index, default=None)

    def copy(self) -> PendingCalls:
        """The same calls, to be watched on from here independently."""
        return PendingCalls(dict(self._recorded), dict(self._unrecorded))

    def __len__(self) -> int:
        return len(self._recorded) + len(self._unrecorded)

    def __iter__(self) -> Iterator[PendingCall]:
        return iter(sorted((*self._recorded.values(), *self._unrecorded.values()), key=_index))


_FORGETTING = frozenset({StepEnd, TurnStart, TurnEnd})
_WATCHED = frozenset({AssistantMessage, ToolCall, ApprovalRequested, ApprovalDecided, ToolResult})
_UNCLEAR: Final = frozenset({Standing.RECORDED, Standing.APPROVED})


def _first(calls: dict[int, PendingCall], turn: int, step: int, label: str) -> PendingCall | None:
    return next((c for c in calls.values() if c.call_id == label and c.step == step and c.turn == turn), None)


def _index(call: PendingCall) -> int:
    return call.index
