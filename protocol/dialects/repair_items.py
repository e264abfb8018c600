"""Repair where a result is an item of the list: Chat's `tool` messages and the outputs of Responses.

The list is read as batches (what one model message asks for) and results. Results of a batch that stand behind it with
no **wall** between (what its provider, or a gateway to another, does not take there) stay. Behind the last of them come
the ones that stood elsewhere or had to be made, in call order; a note stands where its result stood, or, if that would
part a call from its result, behind the batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, define, evolve, frozen

from quiesce.protocol.dialects.checking import items_of
from quiesce.protocol.dialects.pairing import Asked, Given, pair
from quiesce.protocol.dialects.problem import Path, position
from quiesce.protocol.dialects.repair_notes import UNKNOWN, Change, answered_words, label_words, quoted, quoted_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from quiesce.protocol.dialects.pairing import Leftover, Pairs
    from quiesce.protocol.dialects.profile import Profile

__all__ = ["CHAT", "RESPONSES", "Forms", "repair_items"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""

_Place: TypeAlias = tuple[int, int]
"""The index of an item, and of the call in it (0 for a result)."""


@frozen
class _Call:
    """A call: where it stands, what pairs it, and its id."""

    place: _Place
    path: Path
    key: str
    label: str


@frozen
class Forms:
    """How one dialect writes calls, results and notes."""

    batches: Callable[[Sequence[Thing]], Iterable[tuple[_Call, ...]]]
    """The batches of a list, in order."""
    key_of: Callable[[Thing], str | None]
    """What pairs a result with its call. None: the item is no result; empty: it is one that names no call."""
    label_key: str
    """Where a result has its id."""
    content_key: str
    """Where a result has its content."""
    list_name: str
    answer: Callable[[_Call], Thing]
    """A result that says the outcome is unknown."""
    text_part: str
    """The type of a text part in a user's message."""
    is_wall: Callable[[Thing], bool]
    """Whether no result of a batch before an item may stand behind it."""
    is_adjacent: bool = True
    """Whether results must stand right behind their batch."""
    keeps_orphans: bool = False
    """Whether results without a call here may have it on the server."""

    def for_profile(self, profile: Profile, *, continues: bool) -> Forms:
        """As the server of `profile` wants it (see the contract of Responses)."""
        return evolve(self, is_adjacent=profile.starts_with_user, keeps_orphans=continues)


def repair_items(items: Sequence[Thing], forms: Forms) -> tuple[list[Thing], list[Change]]:
    """The repaired list and what was done. Items that need nothing are the same objects."""
    return _Repair(items, forms, [batch for batch in forms.batches(items) if batch]).run()


@frozen
class _Span:
    """Where the results of a batch stand already: behind `end`, its last call, up to `last`."""

    end: int
    last: int


@define
class _Repair:
    """One repair: what pairs with what, and what was done so far."""

    items: Sequence[Thing]
    forms: Forms
    batches: list[tuple[_Call, ...]]
    answers: dict[_Place, int] = Factory(dict)
    """Call -> index of its result."""
    leftovers: dict[int, Leftover[_Place]] = Factory(dict)
    moved: set[int] = Factory(set)
    """Results that come to stand elsewhere."""
    changes: list[tuple[int, Change]] = Factory(list)

    def run(self) -> tuple[list[Thing], list[Change]]:
        """The repaired list, and what was done."""
        self._pair()
        spans = self._find_spans()
        behind: dict[int, list[Thing]] = {}
        for batch, span in zip(self.batches, spans, strict=True):
            behind.setdefault(span.last, []).extend(item for call in batch for item in self._brought(call, span))
        inside = _joined(spans)
        for index in self.leftovers:
            behind.setdefault(_out_of(inside, index), []).append(self._note(index))
        out: list[Thing] = []
        for index, item in enumerate(self.items):
            if index not in self.moved and index not in self.leftovers:
                out.append(item)
            out += behind.get(index, ())
        return out, [change for _, change in sorted(self.changes, key=lambda item: item[0])]

    def _pair(self) -> None:
        found: Pairs[_Place] = pair(self._marks())
        self.answers = {call: result[0] for call, result in found.answers if result is not None}
        kept = self.forms.keeps_orphans
        self.leftovers = {item.place[0]: item for item in found.leftovers if not (kept and item.why == "orphan")}

    def _marks(self) -> Iterator[Asked[_Place] | Given[_Place]]:
        starting = {batch[0].place[0]: batch for batch in self.batches}
        for index, item in enumerate(self.items):
            if index in starting:
                yield Asked(tuple((call.place, call.key) for call in starting[index]))
            if (key := self.forms.key_of(item)) is not None:
                yield Given((index, 0), key)

    def _find_spans(self) -> list[_Span]:
        walls = [index for index, item in enumerate(self.items) if self.forms.is_wall(item)]
        walls.append(len(self.items))
        return [self._span(batch, walls) for batch in self.batches]

    def _span(self, batch: tuple[_Call, ...], walls: list[int]) -> _Span:
        end = batch[-1].place[0]
        wall = walls[bisect_right(walls, end)]
        own = (self.answers.get(call.place, end) for call in batch)
        return _Span(end, max([end, *(index for index in own if index < wall)]))

    def _brought(self, call: _Call, span: _Span) -> Iterator[Thing]:
        """The result of `call`, if there is none or it has to come from elsewhere."""
        index = self.answers.get(call.place)
        if index is None:
            self._tell(call.path, Change("answered", position(call.path), call.label, answered_words(call.label)))
            yield self.forms.answer(call)
        elif self.forms.is_adjacent and index > span.last:
            self.moved.add(index)
            at: Path = (self.forms.list_name, index)
            self._tell(
                at,
                Change("moved", position(at), call.label, f"the result of call {label_words(call.label)} moved to it"),
            )
            yield self.items[index]

    def _note(self, index: int) -> Thing:
        item, why = self.items[index], self.leftovers[index].why
        label = item.get(self.forms.label_key)
        at: Path = (self.forms.list_name, index)
        named = label if isinstance(label, str) else ""
        self._tell(at, Change("quoted", position(at), named, quoted_words(label, why)))
        text, media = quoted(label, why, item.get(self.forms.content_key))
        content = [{"type": self.forms.text_part, "text": text}, *media] if media else text
        return {"role": "user", "content": content}

    def _tell(self, at: Path, change: Change) -> None:
        self.changes.append((next(step for step in at if isinstance(step, int)), change))


def _joined(spans: list[_Span]) -> list[_Span]:
    """Those that run into each other as one, in their order."""
    found: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.end):
        if found and span.end < found[-1].last:
            found[-1] = _Span(found[-1].end, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found


def _out_of(spans: list[_Span], index: int) -> int:
    """Where a note for the result at `index` parts no call from its result."""
    at = bisect_left(spans, index, key=lambda span: span.end)
    return max(index, spans[at - 1].last) if at else index


# --- Chat --------------------------------------------------------------------------------------------------------


def _chat_batches(messages: Sequence[Thing]) -> Iterator[tuple[_Call, ...]]:
    for index, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            calls = enumerate(items_of(message.get("tool_calls")))
            yield tuple(
                _Call((index, at), ("messages", index, "tool_calls", at), _key("tool", call["id"]), call["id"])
                for at, call in calls
                if isinstance(call, dict) and isinstance(call.get("id"), str)
            )


def _chat_key(message: Thing) -> str | None:
    return _key("tool", message.get("tool_call_id")) if _is_tool(message) else None


def _is_tool(message: Thing) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _key(kind: str, label: Thing) -> str:
    """What pairs calls and results; a result without an id has one that no call has."""
    return f"{kind} {label}" if isinstance(label, str) else ""


def _chat_answer(call: _Call) -> Thing:
    return {"role": "tool", "tool_call_id": call.label, "content": UNKNOWN}


CHAT: Final = Forms(
    batches=_chat_batches,
    key_of=_chat_key,
    label_key="tool_call_id",
    content_key="content",
    list_name="messages",
    answer=_chat_answer,
    text_part="text",
    is_wall=lambda message: not _is_tool(message),
)
"""Chat Completions: an assistant message is a batch, and results must follow it."""


# --- Responses ---------------------------------------------------------------------------------------------------

_OUTPUTS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
_BETWEEN_CALLS: Final = ("reasoning",)


def _responses_batches(items: Sequence[Thing]) -> Iterator[tuple[_Call, ...]]:
    """Calls that follow one another, or have only reasoning between them, are one batch."""
    batch: list[_Call] = []
    for index, item in enumerate(items):
        kind, label = _kind(item), item.get("call_id") if isinstance(item, dict) else None
        if kind in _OUTPUTS and isinstance(label, str):
            batch.append(_Call((index, 0), ("input", index), _key(_OUTPUTS[kind], label), label))
        elif kind not in _BETWEEN_CALLS:
            yield tuple(batch)
            batch.clear()
    yield tuple(batch)


def _responses_key(item: Thing) -> str | None:
    kind = _kind(item)
    if kind not in _OUTPUTS.values():
        return None
    return _key(kind, item.get("call_id"))


def _kind(item: Thing) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else ""


def _responses_answer(call: _Call) -> Thing:
    return {"type": call.key.partition(" ")[0], "call_id": call.label, "output": UNKNOWN}


def _is_message(item: Thing) -> bool:
    kind = item.get("type") if isinstance(item, dict) else ""
    return kind == "message" or (kind is None and item.get("role") is not None)


RESPONSES: Final = Forms(
    batches=_responses_batches,
    key_of=_responses_key,
    label_key="call_id",
    content_key="output",
    list_name="input",
    answer=_responses_answer,
    text_part="input_text",
    is_wall=_is_message,
    is_adjacent=False,
)
"""Responses: results bind by their id, wherever they stand behind their calls."""
