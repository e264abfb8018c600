"""Questions: the calls of the open step that wait for a person, derived from the events of the log.

`PendingCalls` knows which calls are undecided; what was asked about them is kept here, for as long as their step is
open. A question is keyed by its call, never by a provider's label, which may be empty or repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import Factory, define, frozen

from quiesce.protocol.events import ApprovalRequested, StepEnd, TurnEnd, TurnStart
from quiesce.protocol.pending import Standing

if TYPE_CHECKING:
    from quiesce.protocol.events import Event, JsonObject
    from quiesce.protocol.pending import PendingCalls

__all__ = ["CallKey", "Question", "Questions"]

CallKey: TypeAlias = tuple[int, int, int]
"""What identifies a call in its session: turn, step, index in its message."""


@frozen
class Question:
    """A call that waits for a person. `call_id` is the provider's label.

    `arguments` are what the body gets if the call is approved; `text` is what the hook asks, `detail` what it says
    besides, for a program.
    """

    turn: int
    step: int
    index: int
    call_id: str
    name: str
    arguments: JsonObject
    text: str
    detail: JsonObject | None = None

    @property
    def key(self) -> CallKey:
        """What identifies its call."""
        return self.turn, self.step, self.index


@define
class Questions:
    """What was asked about the calls of the open step."""

    _asked: dict[CallKey, Question] = Factory(dict)

    def observe(self, event: Event) -> None:
        """Take the next committed event of the log."""
        body = event.body
        if isinstance(body, ApprovalRequested):
            question = Question(
                body.turn, body.step, body.index, body.call_id, body.name, body.arguments, body.text, body.detail
            )
            self._asked[question.key] = question
        elif self._asked and isinstance(body, (StepEnd, TurnStart, TurnEnd)):
            self._asked.clear()

    def undecided(self, pending: PendingCalls) -> tuple[Question, ...]:
        """Those of the calls that `pending` says nobody has decided about, in call order."""
        keys = ((call.turn, call.step, call.index) for call in pending if call.standing is Standing.ASKED)
        return tuple(self._asked[key] for key in keys)
