"""Exchanges: any sequence of messages, brought into the order that every dialect's contract starts from.

1. An exchange is input, or a model message with exactly one answer for each of its calls, in call order.
2. Results that stand right behind their calls, in call order, are taken as they stand. So quiesce writes them.
3. Otherwise labels and order decide (`pairing`): a result answers a call before it, the first one wins, and a label
   that comes back draws nothing to another round. A result or a call without a label that is still alone is paired with
   what is left, in order, if they stand right behind each other.
4. Results come to their calls from wherever they stand. What answers no call is left out; a call that nothing answers
   gets an error result that says so. Everything else keeps its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quiesce.protocol.dialects.pairing import Asked, Given, pair
from quiesce.protocol.events import ModelMessage, ToolMessage
from quiesce.protocol.history import unanswered, worded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quiesce.protocol.events import ToolCallBlock, UserMessage
    from quiesce.protocol.model import Visible

__all__ = ["Exchange", "exchanges", "exchanges_in_order"]


class Exchange(NamedTuple):
    """A message, and the answers to its calls: one each, in call order."""

    message: UserMessage | ModelMessage
    calls: tuple[ToolCallBlock, ...] = ()
    answers: tuple[ToolMessage, ...] = ()


def exchanges(messages: Sequence[Visible]) -> list[Exchange]:
    """The exchanges in `messages`, which may be in any order and lack anything."""
    in_order = exchanges_in_order(messages)
    return _paired(messages) if in_order is None else in_order


def exchanges_in_order(messages: Sequence[Visible]) -> list[Exchange] | None:
    """The exchanges in `messages` if they need no pairing (rule 2); None if they do."""
    found: list[Exchange] = []
    at, end = 0, len(messages)
    while at < end:
        message = messages[at]
        at += 1
        if isinstance(message, ToolMessage):
            return None
        calls = message.calls if isinstance(message, ModelMessage) else ()
        if not calls:
            found.append(Exchange(message))
            continue
        if end - at < len(calls):
            return None
        taken = []
        for call in calls:
            answer = messages[at]
            at += 1
            if not isinstance(answer, ToolMessage) or answer.tool_call_id != call.id:
                return None
            taken.append(worded(answer) if answer.is_error else answer)
        found.append(Exchange(message, calls, tuple(taken)))
    return found


# --- pairing -----------------------------------------------------------------------------------------------------


def _paired(messages: Sequence[Visible]) -> list[Exchange]:
    answers = _by_label(messages)
    _add_unlabelled(messages, answers)
    found: list[Exchange] = []
    for at, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        calls = message.calls if isinstance(message, ModelMessage) else ()
        given = (_answer((at, index), call, messages, answers) for index, call in enumerate(calls))
        found.append(Exchange(message, calls, tuple(given)))
    return found


_Place = tuple[int, int]
"""The number of a message and of a call in it; a result is call 0 of its own message."""


def _by_label(messages: Sequence[Visible]) -> dict[_Place, int]:
    """The number of the message that answers each call, by labels."""
    found = pair(_marks(messages)).answers
    return {call: answer[0] for call, answer in found if answer is not None}


def _marks(messages: Sequence[Visible]) -> Iterator[Asked[_Place] | Given[_Place]]:
    for at, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            yield Given((at, 0), message.tool_call_id)
        elif isinstance(message, ModelMessage) and message.calls:
            yield Asked(tuple(((at, index), call.id) for index, call in enumerate(message.calls)))


def _add_unlabelled(messages: Sequence[Visible], answers: dict[_Place, int]) -> None:
    """Pair what is left right behind each other, where the call or the result has no label."""
    used = set(answers.values())
    for at, message in enumerate(messages):
        if isinstance(message, ModelMessage):
            alone = [((at, index), call) for index, call in enumerate(message.calls) if (at, index) not in answers]
            free = [place for place in _run(messages, at + 1) if place not in used]
            answers |= {
                place: result
                for (place, call), result in zip(alone, free, strict=False)
                if not call.id or not _label(messages[result])
            }


def _run(messages: Sequence[Visible], start: int) -> Iterator[int]:
    """The results that stand together from `start` on."""
    for at in range(start, len(messages)):
        if not isinstance(messages[at], ToolMessage):
            return
        yield at


def _label(message: Visible) -> str:
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


def _answer(place: _Place, call: ToolCallBlock, messages: Sequence[Visible], answers: dict[_Place, int]) -> ToolMessage:
    answer = messages[answers[place]] if place in answers else None
    if isinstance(answer, ToolMessage):
        return worded(answer)
    return unanswered(call, f"unanswered-{place[0]}-{place[1]}")
