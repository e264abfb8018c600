"""What no request can carry is replaced before a message is rendered, wherever it may stand in free-form values.

Text, names and arguments are cleaned as they are rendered. What providers attached (`replay`), opaque blocks (media and
their names among them) and originals would go out as they are, and one lone surrogate in them refuses the whole body.

1. Replaced are lone surrogates, NUL, numbers that JSON does not have, and what is no JSON at all; by what, `storable`
   says. Nothing that quiesce wrote holds any of it: it comes from logs made elsewhere, and from callers.
2. All else stays as it is, to the last byte: what needs nothing is given back as the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import evolve

from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, Shape, TextBlock, ToolCallBlock
from quiesce.protocol.storable import clean_json, is_clean_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.protocol.events import Record
    from quiesce.protocol.model import Visible

__all__ = ["cleaned"]

R = TypeVar("R", bound="Record")

_FREE: Final[dict[type, str]] = {OpaqueBlock: "data", ReasoningBlock: "replay", ToolCallBlock: "replay"}
"""Kind of block -> its field that can hold any JSON and may be sent as it is."""


def cleaned(messages: Iterable[Visible]) -> list[Visible]:
    """`messages` with what no request can carry replaced (rule 1); one with nothing of it is the same object."""
    return [message if _is_clean(message) else _message(message) for message in messages]


def _is_clean(message: Visible) -> bool:
    """Whether it can be sent as it is, like nearly all: that is found out without making anything."""
    if message.shape is not None and not is_clean_json(message.shape.extra):
        return False
    for block in message.content:
        kind = type(block)
        value = None if kind is TextBlock else getattr(block, _FREE[kind])
        if value is not None and not is_clean_json(value):
            return False
        if block.shape is not None and not is_clean_json(block.shape.extra):
            return False
    return True


def _message(message: Visible) -> Visible:
    return _record(evolve(message, content=tuple(map(_record, message.content))))


def _record(record: R) -> R:
    changed: dict[str, Any] = {}
    name = _FREE.get(type(record))
    if name is not None:
        changed[name] = clean_json(getattr(record, name))
    if record.shape is not None:
        changed["shape"] = Shape(record.shape.keys, clean_json(record.shape.extra))
    return evolve(record, **changed) if changed else record
