"""Anthropic Messages: a streamed or a whole reply, as deltas.

1. A reply is a list of content blocks: each starts, gets deltas and stops. A block that begins at the index of an open
   one stops that; what is open at the end stops there.
2. A thinking block that was signed, and a redacted one, is what the provider wants back: the whole block (`Sealed`), as
   it stands when it stops. Without a signature it cannot be sent back and is text for people.
3. The arguments of a call come as pieces of JSON text. A server that gives the whole `input` at the start is believed
   if no piece comes. Other fields of a call go along with it.
4. `message_stop` ends a complete reply, and nothing else does. A refusal by the provider's safeguards is an error: what
   it leaves is cut off. `max_tokens` and `model_context_window_exceeded` are the token limit.
5. Blocks of the provider's own tools are kept as they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from attrs import Factory, define

from quiesce.protocol.dialects.faults import malformed
from quiesce.protocol.dialects.replies import EventStream, array, assembled, extras, obj, reply_source, text
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import OpaqueBlock
from quiesce.protocol.model import BlockDone, CallDelta, Finished, ReasoningDelta, Sealed, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quiesce.protocol.dialects.replies import Thing
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Delta, StopReason

__all__ = ["Stream", "parse"]

_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input", "cache_control"})
_LIMITS: Final = frozenset({"max_tokens", "model_context_window_exceeded"})


@define
class _Open:
    """A block that has started: how it began, and the pieces that came since."""

    start: JsonObject
    call: int
    """The number of its call, if it is one: by that, calls that share an index stay apart."""
    pieces: list[str] = Factory(list)
    signature: str = ""

    @property
    def kind(self) -> str:
        return text(self.start.get("type"), "the type of a block")

    def add(self, piece: Thing) -> str:
        """Note the next piece of its thinking or input, and give it back."""
        told = text(piece, "a piece of a block")
        self.pieces.append(told)
        return told

    def whole(self) -> JsonObject:
        """The block as it would stand in a whole reply."""
        if "thinking" in self.start:
            thinking = {"thinking": text(self.start["thinking"], "thinking") + "".join(self.pieces)}
            return {**self.start, **thinking, "signature": self.signature}
        if "input" in self.start and self.pieces:
            return {**self.start, "input": _parsed("".join(self.pieces))}
        return self.start


@define
class Stream(EventStream):
    """One streamed reply. `take` each event, as a JSON object; then `end`."""

    _open: dict[int, _Open] = Factory(dict)
    _calls: int = 0
    _stop_reason: str = ""
    _usage: JsonObject = Factory(dict)
    _source: JsonObject | None = None

    # --- blocks ------------------------------------------------------------------------------------------------

    def _start(self, event: JsonObject) -> Iterator[Delta]:
        index, block = _index(event), obj(event.get("content_block"), "a content block")
        yield from self._close(index)
        self._open[index] = _Open(block, self._calls, signature=text(block.get("signature"), "signature"))
        match block.get("type"):
            case "text":
                yield TextDelta(text(block.get("text"), "text"))
            case "thinking":
                yield ReasoningDelta(text(block.get("thinking"), "thinking"))
            case "tool_use":
                label, name = text(block.get("id"), "the id of a call"), text(block.get("name"), "the name of a call")
                yield CallDelta(self._calls, label, name, replay=extras(block, _CALL_FIELDS))
                self._calls += 1

    def _piece(self, event: JsonObject) -> Iterator[Delta]:
        index, delta = _index(event), obj(event.get("delta"), "a delta")
        block = self._open.get(index)
        if block is None:
            raise malformed("a delta belongs to no open block")
        match delta.get("type"):
            case "text_delta":
                yield TextDelta(text(delta.get("text"), "text"))
            case "thinking_delta":
                yield ReasoningDelta(block.add(delta.get("thinking")))
            case "signature_delta":
                block.signature += text(delta.get("signature"), "signature")
            case "input_json_delta":
                piece = block.add(delta.get("partial_json"))
                if block.kind == "tool_use" and piece:
                    yield CallDelta(block.call, arguments=piece)

    def _stop(self, event: JsonObject) -> Iterator[Delta]:
        yield from self._close(_index(event))

    def _close(self, index: int) -> Iterator[Delta]:
        block = self._open.pop(index, None)
        if block is None:
            return
        match block.kind:
            case "text":
                pass
            case "thinking":
                if block.signature:
                    yield Sealed(block.whole())
            case "redacted_thinking":
                yield Sealed(block.start)
            case "tool_use":
                if not block.pieces and block.start.get("input"):
                    yield CallDelta(block.call, arguments=text(block.start["input"], "the input of a call"))
            case _:
                yield BlockDone(OpaqueBlock(block.whole()))

    # --- the message -------------------------------------------------------------------------------------------

    def _opened(self, event: JsonObject) -> Iterator[Delta]:
        message = obj(event.get("message"), "message")
        self._source = reply_source(message.get("id"), message.get("model"))
        self._count(message)
        return iter(())

    def _changed(self, event: JsonObject) -> Iterator[Delta]:
        reason = obj(event.get("delta") or {}, "delta").get("stop_reason")
        self._stop_reason = text(reason, "stop_reason") or self._stop_reason
        self._count(event)
        return iter(())

    def _count(self, counted: JsonObject) -> None:
        """What is counted at the start is completed, and partly replaced, at the end."""
        usage = obj(counted.get("usage") or {}, "usage")
        self._usage = {**self._usage, **{key: value for key, value in usage.items() if value is not None}}

    def _over(self, _: JsonObject) -> Iterator[Delta]:
        if self._stop_reason == "refusal":
            raise ModelError("the provider's safeguards ended the reply", code="REFUSAL")
        for index in sorted(self._open):
            yield from self._close(index)
        yield Finished(self._reason(), self._usage or None, self._source)

    def _reason(self) -> StopReason:
        if self._stop_reason in _LIMITS:
            return "max-tokens"
        return "tool-calls" if self._calls else "stop"

    _HANDLERS: ClassVar[dict[str, Callable[[Stream, JsonObject], Iterable[Delta]]]] = {
        "message_start": _opened,
        "content_block_start": _start,
        "content_block_delta": _piece,
        "content_block_stop": _stop,
        "message_delta": _changed,
        "message_stop": _over,
    }


def _index(event: JsonObject) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise malformed("the index of a block is no whole number")
    return index


def _parsed(arguments: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise malformed("the input of the provider's own tool is no JSON") from error


def parse(reply: JsonObject) -> tuple[Block, ...]:
    """The blocks of a whole reply (a `message` object). Raises `ModelError` as `Stream` does."""
    stream = Stream()
    return assembled(delta for event in _as_events(obj(reply, "a reply")) for delta in stream.take(event))


def _as_events(reply: JsonObject) -> Iterator[JsonObject]:
    if reply.get("type") == "error":
        yield reply
    for index, block in enumerate(array(reply.get("content"), "content")):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reply.get("stop_reason")}}
    yield {"type": "message_stop"}
