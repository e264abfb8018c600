"""What no request can carry is replaced before an exchange is rendered, wherever it may stand in free-form values.

Text, names and arguments are cleaned as they are rendered. What providers attached (`replay`), opaque blocks (media and
their names among them) and originals would go out as they are, and one lone surrogate in them refuses the whole body.

1. Replaced are lone surrogates, NUL, numbers that JSON does not have, and what is no JSON at all; by what, `storable`
   says. Nothing that quiesce wrote holds any of it: it comes from logs made elsewhere, and from callers.
2. All else stays as it is, to the last byte: what needs nothing is given back as the same object.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import evolve

from quiesce.protocol.dialects.exchanges import Exchange
from quiesce.protocol.events import ModelMessage, OpaqueBlock, ReasoningBlock, Shape, TextBlock, ToolCallBlock
from quiesce.protocol.storable import clean_json

if TYPE_CHECKING:
    from quiesce.protocol.events import Record, ToolMessage, UserMessage

__all__ = ["cleaned"]

M = TypeVar("M", bound="ModelMessage | ToolMessage | UserMessage")
R = TypeVar("R", bound="Record")

_FREE: Final[dict[type, str]] = {OpaqueBlock: "data", ReasoningBlock: "replay", ToolCallBlock: "replay"}
"""Kind of block -> its field that can hold any JSON and may be sent as it is."""


def cleaned(exchange: Exchange) -> Exchange:
    """`exchange` with what no request can carry replaced (rule 1); the same object if there is nothing."""
    said = exchange.message
    message = said if _is_plain(said) else _message(said)
    answers = [answer if _is_plain(answer) else _message(answer) for answer in exchange.answers]
    if message is said and all(map(is_, answers, exchange.answers)):
        return exchange
    return Exchange(message, message.calls if isinstance(message, ModelMessage) else (), tuple(answers))


def _is_plain(message: ModelMessage | ToolMessage | UserMessage) -> bool:
    """Whether nothing free-form is in it, as in most: it can be sent as it is."""
    if message.shape is not None:
        return False
    for block in message.content:
        kind = type(block)
        if block.shape is not None or (kind is not TextBlock and getattr(block, _FREE[kind]) is not None):
            return False
    return True


def _message(message: M) -> M:
    content = tuple([_record(block) for block in message.content])
    if not all(map(is_, content, message.content)):
        message = evolve(message, content=content)
    return _record(message)


def _record(record: R) -> R:
    changed: dict[str, Any] = {}
    name = _FREE.get(type(record))
    if name is not None and (value := getattr(record, name)) is not None and (clean := clean_json(value)) is not value:
        changed[name] = clean
    if record.shape is not None and (clean := clean_json(record.shape.extra)) is not record.shape.extra:
        changed["shape"] = Shape(record.shape.keys, clean)
    return evolve(record, **changed) if changed else record
