"""History: what a model sees of a log, derived from its events one at a time.

1. A message event appends its message; one that replaces (compaction) takes the place of those in its range.
2. An answer with nothing in it is left out; so is everything that is not a message.
3. `sendable` gives the view that every provider's contract starts from: right after an assistant message come the
   results of its calls, one per call, in call order, then everything else in log order. A log that quiesce wrote is in
   that order already; one from elsewhere is brought into it, and a call that was never answered there is answered here,
   in the view only (closed history is never rewritten).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import Factory, define, evolve, frozen

from quiesce.protocol.events import (
    AssistantMessage,
    ModelMessage,
    Replace,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    ToolResult,
    UserMessage,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from quiesce.protocol.events import Block, Event
    from quiesce.protocol.model import Visible

__all__ = ["NO_WORDS", "Entry", "History", "history_of", "sendable", "sendable_problems", "unanswered", "worded"]


@frozen
class Entry:
    """One message of the history, with the seq of its event and the step it belongs to ((0, 0) for input)."""

    seq: int
    turn: int
    step: int
    message: Visible


@define
class History:
    """The model-visible messages of a log, kept up to date event by event."""

    _entries: list[Entry] = Factory(list)
    _order: _Order = Factory(lambda: _order_of(()))

    @property
    def in_order(self) -> bool:
        """Whether its messages can be sent as they stand: rule 3 has nothing to move. True of what quiesce wrote."""
        return self._order.kept and not self._order.due

    def observe(self, event: Event) -> None:
        """Take the next committed event of the log."""
        entry = _entry(event)
        if isinstance(event.surface_op, Replace):
            self._replace(event.surface_op, entry)
        elif entry is not None:
            self._entries.append(entry)
            self._order.take(entry)

    def entries(self) -> Sequence[Entry]:
        """The messages up to now. What is returned never changes; taking it copies nothing but references."""
        return tuple(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _replace(self, operation: Replace, entry: Entry | None) -> None:
        covered = [at for at, old in enumerate(self._entries) if operation.start_seq <= old.seq <= operation.end_seq]
        place = covered[0] if covered else len(self._entries)
        gone = frozenset(covered)
        kept = [old for at, old in enumerate(self._entries) if at not in gone]
        self._entries = [*kept[:place], *([entry] if entry is not None else []), *kept[place:]]
        self._order = _order_of(self._entries)


def history_of(events: Iterable[Event]) -> History:
    """The history of a whole log."""
    history = History()
    for event in events:
        history.observe(event)
    return history


def sendable(entries: Sequence[Entry], *, in_order: bool = False) -> tuple[Visible, ...]:
    """The messages in the order every provider's contract starts from: see rule 3 above.

    `in_order` says that nothing has to move, as `History.in_order` knows without going through them all.
    """
    if in_order:
        return tuple([entry.message for entry in entries])
    results = _results_by_step(entries)
    return tuple(message for entry in entries for message in _placed(entry, results))


def sendable_problems(messages: Sequence[Visible]) -> list[str]:
    """What would make a provider refuse these messages for their calls and results; empty if nothing would.

    It reads the messages alone and knows nothing of how they were made.
    """
    problems: list[str] = []
    due: list[ToolCallBlock] = []
    for at, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            problems += _misplaced(at, message, due)
            continue
        problems += [f"message {at}: call {call.id!r} is not answered before it" for call in due]
        due = list(message.calls) if isinstance(message, ModelMessage) else []
    return problems + [f"at the end: call {call.id!r} is not answered" for call in due]


def _misplaced(at: int, message: ToolMessage, due: list[ToolCallBlock]) -> list[str]:
    if not due:
        return [f"message {at}: a result of {message.tool_call_id!r} answers no call before it"]
    call = due.pop(0)
    found = []
    if message.tool_call_id != call.id:
        found.append(f"message {at}: a result of {message.tool_call_id!r} stands where {call.id!r} is due")
    if _is_silent(message):
        found.append(f"message {at}: an error result without text")
    return found


# --- how an event becomes an entry -------------------------------------------------------------------------------


def _entry(event: Event) -> Entry | None:
    match event.body:
        case UserMessage() as message:
            return Entry(event.seq, 0, 0, message)
        case AssistantMessage(turn=turn, step=step, message=message) if _says_something(message.content):
            return Entry(event.seq, turn, step, message)
        case ToolResult(turn=turn, step=step, message=message):
            return Entry(event.seq, turn, step, message)
        case _:
            return None


def _says_something(content: tuple[Block, ...]) -> bool:
    return any(not isinstance(block, TextBlock) or block.text.strip() for block in content)


# --- how results find their calls --------------------------------------------------------------------------------

_StepLabel = tuple[int, int, str]


@define
class _Order:
    """Whether each call is followed by its result and each error has text, as far as the messages went."""

    kept: bool = True
    due: list[_StepLabel] = Factory(list)

    def take(self, entry: Entry) -> None:
        """The next message."""
        message = entry.message
        if isinstance(message, ToolMessage):
            label = (entry.turn, entry.step, message.tool_call_id)
            self.kept &= bool(self.due) and self.due.pop() == label and not _is_silent(message)
        elif self.due:
            self.kept = False
        elif isinstance(message, ModelMessage):
            self.due = [(entry.turn, entry.step, call.id) for call in reversed(message.calls)]


def _order_of(entries: Iterable[Entry]) -> _Order:
    order = _Order()
    for entry in entries:
        order.take(entry)
    return order


_UNANSWERED: Final = (
    "No result of this call was recorded. Its outcome is unknown: it may have taken effect. Check before repeating it."
)
NO_WORDS: Final = "The tool reported an error and said nothing about it."
"""The text of an error result that has none."""


def _results_by_step(entries: Sequence[Entry]) -> dict[_StepLabel, Iterator[ToolMessage]]:
    found: dict[_StepLabel, list[ToolMessage]] = {}
    for entry in entries:
        if isinstance(entry.message, ToolMessage):
            found.setdefault((entry.turn, entry.step, entry.message.tool_call_id), []).append(entry.message)
    return {label: iter(messages) for label, messages in found.items()}


def _placed(entry: Entry, results: dict[_StepLabel, Iterator[ToolMessage]]) -> Iterator[Visible]:
    if isinstance(entry.message, ToolMessage):
        return  # it stands after its call, or nowhere: an answer without a call is never sent
    yield entry.message
    if isinstance(entry.message, ModelMessage):
        for index, call in enumerate(entry.message.calls):
            answer = next(results.get((entry.turn, entry.step, call.id), iter(())), None)
            yield worded(answer) if answer else unanswered(call, f"unanswered-{entry.seq}-{index}")


def worded(answer: ToolMessage) -> ToolMessage:
    """An error result has text: one that says nothing, in a log from elsewhere, says so."""
    return evolve(answer, content=(*answer.content, TextBlock(NO_WORDS))) if _is_silent(answer) else answer


def _is_silent(message: ToolMessage) -> bool:
    """Whether it is an error result without text, which providers refuse."""
    return message.is_error and not text_of(message.content).strip()


def unanswered(call: ToolCallBlock, message_id: str) -> ToolMessage:
    """The answer that is sent for a call that has none: an error that says its outcome is unknown."""
    return ToolMessage("tool", call.id, (TextBlock(_UNANSWERED),), is_error=True, id=message_id)
