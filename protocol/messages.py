"""The typed messages that the three actors, the user's handle and observers exchange, with the type of each reply.

| message                  | from -> to                  | reply                                             |
|--------------------------|-----------------------------|---------------------------------------------------|
| Append                   | driver, scheduler -> session| Committed: the events are durable                 |
| Subscribe                | any -> session              | EventsCommitted from now on, before each append's reply |
| ReadHistory              | driver -> session           | the entries that the next request is built from   |
| CloseOpenTurn            | driver -> session           | Committed: the closers (none if no turn was open) |
| RunCalls                 | driver -> scheduler         | BatchOutcome, once the batch is quiescent (G2)    |
| AbortCalls               | driver -> scheduler         |                                                   |
| Decide                   | user -> scheduler           | the decision is durable                           |
| ReadQuestions            | user -> session             | the calls that wait for a person                  |
| Quiesce                  | driver -> scheduler         | Quiescent, once nothing of a batch is left        |
| Deliver                  | user -> driver              | Receipt: the input is durable                     |
| Cancel, WhenIdle         | user -> driver              | whether a turn was cancelled; the last turn       |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from attrs import frozen

from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from quiesce.protocol.approvals import CallKey, Question
    from quiesce.protocol.events import Draft, Event, Reason, ToolCallBlock, ToolResult, UserMessage
    from quiesce.protocol.history import Entry
    from quiesce.protocol.inbox import Inbox, Target
    from quiesce.protocol.pending import PendingCall
    from quiesce.protocol.rules import LogState

__all__ = [
    "AbortCalls",
    "Append",
    "BatchOutcome",
    "CallsAborted",
    "CallsCompleted",
    "CallsRejected",
    "Cancel",
    "CloseOpenTurn",
    "Committed",
    "Decide",
    "Deliver",
    "EventsCommitted",
    "HistoryView",
    "Observer",
    "OpenBatch",
    "Quiesce",
    "Quiescent",
    "ReadHistory",
    "ReadQuestions",
    "ReadStatistics",
    "Receipt",
    "RunCalls",
    "SchedulerStatistics",
    "SessionStopped",
    "Settled",
    "Subscribe",
    "Turn",
    "WhenIdle",
]


class Observer(Protocol):
    """Whoever can be told of committed events: an actor ref, or anything else with a `tell` that does not block."""

    def tell(self, message: EventsCommitted | SessionStopped, /) -> None:
        """Take the message without waiting. One that raises is told nothing more."""
        ...


@frozen
class Turn:
    """How a turn ended. `text` is what the model said last in it; `reason` prints as its kind."""

    number: int
    reason: Reason
    text: str
    steps: int


# --- session -----------------------------------------------------------------------------------------------------


@frozen
class Committed:
    """These events are durable, in this order."""

    events: tuple[Event, ...]


@frozen
class Append(Message[Committed]):
    """Validate all drafts, number and store them: all or nothing. May be pipelined: ask now, await the reply later."""

    drafts: tuple[Draft, ...]


@frozen
class EventsCommitted(Message[None]):
    """Told to observers, in log order, before the appender gets its reply."""

    events: tuple[Event, ...]


@frozen
class Subscribe(Message[int]):
    """Tell `observer` of every event committed from now on; the reply is the seq of the first one it will hear of."""

    observer: Observer


@frozen
class HistoryView:
    """What the next turn and request are built from: the messages, the queued input, where the log stands."""

    entries: Sequence[Entry]
    in_order: bool
    inbox: Inbox
    log: LogState
    questions: tuple[Question, ...] = ()

    @property
    def turn(self) -> int:
        """The number of the last turn."""
        return self.log.turn


@frozen
class ReadHistory(Message[HistoryView]):
    """The session as a model and a driver see it now; no copy of the log."""


@frozen
class ReadQuestions(Message["tuple[Question, ...]"]):
    """The calls that wait for a person, in call order."""


@frozen
class SessionStopped(Message[None]):
    """The last thing an observer is told: no event will follow. `failure` is what ended the session, if it crashed."""

    failure: BaseException | None = None


@frozen
class CloseOpenTurn(Message[Committed]):
    """Append the closers of the open turn; nothing if there is none.

    With `keep_questions` a turn in which a call waits for a person stays open.
    """

    cause: Literal["interrupted", "forked"]
    keep_questions: bool = False


# --- scheduler ---------------------------------------------------------------------------------------------------


@frozen
class Settled:
    """A finalized result that is not in the log: what the call of that index in its message really returned."""

    index: int
    body: ToolResult


@frozen
class CallsCompleted:
    """Every call is answered in the log. What the results brought along for the step and the turn is here."""

    context: tuple[UserMessage, ...] = ()
    concludes_turn: bool = False
    blocks_turn: str | None = None


@frozen
class CallsAborted:
    """The batch was aborted: what had finished is kept, each other call is answered as aborted, all in the log."""

    cause: str


@frozen
class CallsRejected:
    """The scheduler failed, and nothing of the batch can write any more. `settled` is in call order."""

    failure: BaseException
    settled: tuple[Settled, ...] = ()


BatchOutcome: TypeAlias = CallsCompleted | CallsAborted | CallsRejected


@frozen
class OpenBatch:
    """What the log says of a batch that began in another process: its calls without a result, and who is asked what."""

    pending: tuple[PendingCall, ...]
    questions: tuple[Question, ...]


@frozen
class RunCalls(Message[BatchOutcome]):
    """Run the calls of one step, or what is left of them if `resumed`; answered only when the batch is quiescent."""

    turn: int
    step: int
    calls: tuple[ToolCallBlock, ...]
    resumed: OpenBatch | None = None


@frozen
class AbortCalls(Message[None]):
    """Start no more calls, cancel the live bodies, answer what never started. Nothing if no batch is running."""

    cause: str


@frozen
class Decide(Message[None]):
    """A person approves or denies the call that waits for it; answered when that is durable.

    Raises `NoOpenQuestion` if nobody is asked about that call (any more), and what the log refuses it with: then the
    question is still open.
    """

    call: CallKey
    approved: bool
    reason: str | None = None


@frozen
class Quiescent:
    """Nothing of any batch is running or writing."""


@frozen
class Quiesce(Message[Quiescent]):
    """Wait until no batch is running; a running one is aborted first."""


@frozen
class SchedulerStatistics:
    """What a scheduler counts in its life."""

    batches: int = 0
    """Batches answered, however they ended."""
    abandoned: int = 0
    """Bodies given up because their tool allows it (`abandon_after`)."""
    abandoned_live: int = 0
    """Those of them that have not ended yet."""


@frozen
class ReadStatistics(Message[SchedulerStatistics]):
    """What the scheduler has counted so far."""


# --- driver ------------------------------------------------------------------------------------------------------


@frozen
class Receipt:
    """The message is durable. `turn` ends with the turn that claims it, or raises that turn's `TurnFailed`."""

    message_id: str
    turn: Awaitable[Turn]


@frozen
class Deliver(Message[Receipt]):
    """Put `message` into the durable inbox `target`; with `wake`, start a turn for it if none is running."""

    message: UserMessage
    target: Target
    wake: bool


@frozen
class Cancel(Message[bool]):
    """End the running turn as aborted. Queued input is dropped unless `keep_inbox`. False if no turn was running.

    With `keep_questions`, a turn that waits for nothing but people is left as it is: False as well.
    """

    cause: str = "user"
    keep_inbox: bool = False
    keep_questions: bool = False


@frozen
class WhenIdle(Message[Turn | None]):
    """Answered when no turn is running or due: the last turn of this agent's life, if there was one."""
