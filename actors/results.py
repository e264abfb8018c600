"""From what a tool's body did to the outcome that is recorded. Nothing here raises: whatever comes, something is kept.

| returned | the model reads |
|---|---|
| text | the text; "(no output)" if it is blank |
| None | "(no output)" |
| `TextBlock`, `OpaqueBlock`, a list with such a block in it | these blocks; text and other values among them as text |
| anything else | its compact JSON, made storable; what is not like JSON, as readable text |
| `Result` | its `content` by the rules above, with meta, context and flags |
| `ToolOutcome` | it is the outcome |

A body that raised is answered `TOOL_ERROR` with type and text; never with a traceback, which names paths of the host.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import frozen

from quiesce.protocol.events import (
    Block,
    ErrorInfo,
    JsonObject,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    UserMessage,
)
from quiesce.protocol.outcome import ERROR_NAMES, ToolOutcome, failure
from quiesce.protocol.storable import clean_text, make_storable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Result", "error_text", "raised_outcome", "to_outcome"]

_NOTHING: Final = "(no output)"
_NO_WORDS: Final = "The tool reported an error and said nothing about it."
_MAX_NESTING: Final = 20
"""How deep an exception group is shown."""

_BLOCKS: Final = (TextBlock, OpaqueBlock)
_NOT_OPAQUE: Final = frozenset({TextBlock.TYPE, ReasoningBlock.TYPE, ToolCallBlock.TYPE})
"""Block types that a log reads as something else: a tool's result neither thinks nor calls."""


@frozen(kw_only=True)
class Result:
    """What a tool returns when there is more to say than a value.

    `content` is what the tool would return otherwise. `meta` is for people and programs; the model does not see it.
    `context` are messages for the next step, texts or whole messages. `concludes_turn` asks to end the turn after this
    step. `is_error` tells the model that the call failed.
    """

    content: object = None
    meta: JsonObject | None = None
    context: Sequence[str | UserMessage] = ()
    concludes_turn: bool = False
    is_error: bool = False


def to_outcome(value: object) -> ToolOutcome:
    """The outcome of a body that returned `value`; see the module. Never raises.

    Context texts become user messages with an empty `id`: whoever queues them names them.
    """
    try:
        return _outcome(value)
    except Exception:  # noqa: BLE001 - a value that raises when it is looked at is a result all the same
        return ToolOutcome((TextBlock("(a result that cannot be shown)"),))


def raised_outcome(error: BaseException) -> ToolOutcome:
    """The outcome of a body that raised `error`: its type and text. Never raises."""
    return failure("TOOL_ERROR", error_text(error), name=_type_name(error))


# --- results -----------------------------------------------------------------------------------------------------


def _outcome(value: object) -> ToolOutcome:
    if isinstance(value, ToolOutcome):
        return _storable(value)
    if not isinstance(value, Result):
        return ToolOutcome(_filled(_content(value)))
    error = ErrorInfo(ERROR_NAMES["TOOL_ERROR"], "TOOL_ERROR") if value.is_error is True else None
    context = cast("Any", value.context)
    return _storable(ToolOutcome(_content(value.content), error, value.meta, context, value.concludes_turn))


def _storable(outcome: ToolOutcome) -> ToolOutcome:
    """The same outcome with nothing in it that a log would refuse."""
    return ToolOutcome(
        _filled(_blocks(outcome.content), is_error=outcome.is_error),
        error=_label(outcome.error),
        meta=_meta(outcome.meta),
        context=tuple(_message(item) for item in _items(outcome.context)),
        concludes_turn=outcome.concludes_turn is True,
        blocks_turn=None if outcome.blocks_turn is None else _text(outcome.blocks_turn),
    )


def _content(value: object) -> tuple[Block, ...]:
    """What the model reads of `value`: its blocks if it has any, else its text."""
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return _blocks(value)
    return () if value is None else (_block(value),)


def _filled(content: tuple[Block, ...], *, is_error: bool = False) -> tuple[Block, ...]:
    """`content`, never blank; an error says something in text, whatever else it shows."""
    if any(_says_something(block, is_error=is_error) for block in content):
        return content
    shown = (block for block in content if not isinstance(block, TextBlock))
    return (*shown, TextBlock(_NO_WORDS if is_error else _NOTHING))


def _says_something(block: Block, *, is_error: bool) -> bool:
    return bool(block.text.strip()) if isinstance(block, TextBlock) else not is_error


def _blocks(items: object) -> tuple[Block, ...]:
    return tuple(_block(item) for item in _items(items))


def _block(item: object) -> Block:
    if isinstance(item, TextBlock):
        return TextBlock(_text(item.text), shape=_shape(item.shape))
    if not isinstance(item, OpaqueBlock):
        return TextBlock(_text(item))
    data = make_storable(item.data)
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind in _NOT_OPAQUE:
        return TextBlock(_text(data))
    return OpaqueBlock(cast("JsonObject", data), shape=_shape(item.shape))


def _shape(shape: Shape | None) -> Shape | None:
    """What a block that was read from a log carried besides; made storable like the rest."""
    if shape is None:
        return None
    return Shape(tuple(map(_text, shape.keys)), cast("JsonObject", make_storable(shape.extra)))


def _label(error: ErrorInfo | None) -> ErrorInfo | None:
    if error is None:
        return None
    reason = None if error.reason is None else _text(error.reason)
    return ErrorInfo(_text(error.name), _text(error.code), reason, shape=_shape(error.shape))


def _meta(meta: object) -> JsonObject | None:
    if meta is None:
        return None
    made = make_storable(meta)
    return made if isinstance(made, dict) else {"value": made}


def _message(item: object) -> UserMessage:
    if not isinstance(item, UserMessage):
        return UserMessage((_block(item),), {"kind": "tool"}, "user", "")
    source = cast("JsonObject", make_storable(item.source))
    return UserMessage(_blocks(item.content), source, "user", _text(item.id), shape=_shape(item.shape))


def _items(value: object) -> tuple[object, ...]:
    """The items of a collection of content; a single one may stand for itself."""
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return () if value is None else (value,)


def _text(value: object) -> str:
    """`value` as text that can be stored: itself, or its compact JSON."""
    if isinstance(value, str):
        return clean_text(value)
    made = make_storable(value)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, separators=(",", ":"))


# --- errors ------------------------------------------------------------------------------------------------------


def error_text(error: BaseException) -> str:
    """`<type>: <text>`, storable and never blank; the members of an exception group each on a line of its own."""
    return "\n".join(_error_lines(error, _MAX_NESTING))


def _error_lines(error: BaseException, depth: int) -> Iterator[str]:
    yield from f"{_type_name(error)}: {_message_of(error)}".split("\n")
    if not isinstance(error, BaseExceptionGroup):
        return
    if depth == 0:
        yield "- ..."
        return
    for member in error.exceptions:
        first, *rest = _error_lines(member, depth - 1)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)


def _message_of(error: BaseException) -> str:
    try:
        text = clean_text(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot be printed is still an error
        return "(a message that cannot be shown)"
    return text if text.strip() else "(no message)"


def _type_name(error: BaseException) -> str:
    return clean_text(type(error).__name__)
