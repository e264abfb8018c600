"""What the parsers of all dialects share: the shape of a `Stream`, and reading JSON that nobody has checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from quiesce.protocol.dialects.faults import malformed, model_error
from quiesce.protocol.model import ReasoningDelta, ReplyAssembler, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Delta

__all__ = ["EventStream", "ReplyStream", "array", "assembled", "extras", "obj", "reply_source", "said", "text"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""


class ReplyStream(Protocol):
    """One streamed reply: its events go in, in order, and deltas come out.

    What was delivered is complete only once a `Finished` came out. A provider's error event, and an event that breaks
    the dialect, raise `ModelError`; the stream is over then. Kinds of events that are not known are passed over.
    """

    def take(self, event: JsonObject) -> tuple[Delta, ...]:
        """The deltas that the next event stands for."""
        ...

    def end(self) -> tuple[Delta, ...]:
        """The deltas that are due now that no event will follow; none, if the reply was cut."""
        ...


class EventStream:
    """A `ReplyStream` of events that name their type, and of which one says that the reply is complete."""

    __slots__ = ()

    _HANDLERS: ClassVar[Mapping[str, Callable[[Any, JsonObject], Iterable[Delta]]]]
    """Type of an event -> the method that makes deltas of it."""

    def take(self, event: JsonObject) -> tuple[Delta, ...]:
        """The deltas of an event. Raises `ModelError` for an error of the provider and for what is no event."""
        kind = obj(event, "an event").get("type")
        if kind == "error" or event.get("error") is not None:
            raise model_error(event)
        if not isinstance(kind, str):
            raise malformed("an event has no type")
        handler = self._HANDLERS.get(kind)
        return () if handler is None else said(handler(self, event))

    def end(self) -> tuple[Delta, ...]:
        """Nothing: a reply that is complete has said so."""
        return ()


_NOTHING: Final = (TextDelta(""), ReasoningDelta(""))


def said(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """The deltas without those that say nothing."""
    return tuple(delta for delta in deltas if delta not in _NOTHING)


def assembled(deltas: Iterable[Delta]) -> tuple[Block, ...]:
    """The blocks of a whole reply, as a step records them: without its calls unless the reply is complete."""
    answer = ReplyAssembler()
    for delta in deltas:
        answer.add(delta)
    return answer.interrupted() if answer.finished is None else answer.complete()


def obj(value: Thing, what: str) -> JsonObject:
    """`value`, which must be an object. Raises `ModelError`."""
    if not isinstance(value, dict):
        raise malformed(f"{what} is no object")
    return value


def array(value: Thing, what: str) -> list[Thing]:
    """`value`, which must be a list; a missing one is empty. Raises `ModelError`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed(f"{what} is no list")
    return value


def text(value: Thing, what: str) -> str:
    """`value`, which must be a string; a missing one is empty. Some servers send JSON where its text belongs."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        raise malformed(f"{what} is no text")
    return value


def extras(item: JsonObject, known: frozenset[str]) -> JsonObject | None:
    """What `item` has beside the `known` keys: what its provider wants back with it, if anything."""
    return {key: value for key, value in item.items() if key not in known and value is not None} or None


def reply_source(reply_id: Thing, model: Thing) -> JsonObject | None:
    """What a message remembers of the reply that it came in: its id, and which model served it."""
    named = {"replyId": reply_id, "servedModel": model}
    return {key: value for key, value in named.items() if isinstance(value, str) and value} or None
