"""OpenAI Chat Completions: a streamed or a whole reply, as deltas.

1. Only the first choice counts. Text and refusals are text. `reasoning_content` (DeepSeek and others) or `reasoning`
   (OpenRouter, newer vLLM) is reasoning; a server that sends both sends the same twice, so one is taken.
2. A fragment of a call has an index, an id and a name, or lacks some of them. One without an index goes on where the
   last one was. Which fragments make one call is decided by the `ReplyAssembler`.
3. A call's extra fields (a thought signature, in `extra_content`) are what its provider wants back with it.
4. The reply is complete if a `finish_reason` came, whatever came or did not come after it; usage may follow in a chunk
   of its own, so the `Finished` comes out at the end. A reason that stands for a failure of the provider is an error,
   and so is one that nobody knows if calls hang on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import define

from quiesce.protocol.dialects.faults import malformed, model_error
from quiesce.protocol.dialects.replies import array, assembled, extras, obj, reply_source, said, text
from quiesce.protocol.errors import ModelError
from quiesce.protocol.model import CallDelta, Finished, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quiesce.protocol.dialects.replies import Thing
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Delta

__all__ = ["Stream", "parse"]

_End: TypeAlias = Literal["complete", "max-tokens", "filtered", "failed"]

_ENDS: Final[dict[str, _End]] = {
    "stop": "complete",
    "eos": "complete",
    "end_turn": "complete",
    "stop_sequence": "complete",
    "tool_calls": "complete",
    "tool_use": "complete",
    "function_call": "complete",
    "length": "max-tokens",
    "max_tokens": "max-tokens",
    "model_length": "max-tokens",  # Mistral
    "content_filter": "filtered",
    "error": "failed",  # Mistral, OpenRouter
    "insufficient_system_resource": "failed",  # DeepSeek
}
_CALL_FIELDS: Final = frozenset({"index", "id", "type", "function"})


@define
class Stream:
    """One streamed reply. `take` each chunk, as a JSON object; then `end`."""

    _finish: str = ""
    _index: int = 0
    _called: bool = False
    _usage: JsonObject | None = None
    _id: Thing = None
    _model: Thing = None

    def take(self, event: JsonObject) -> tuple[Delta, ...]:
        """The deltas of a chunk. Raises `ModelError` for an error of the provider and for what is no chunk."""
        chunk = obj(event, "a chunk")
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise model_error(chunk)
        self._id, self._model = self._id or chunk.get("id"), self._model or chunk.get("model")
        if chunk.get("usage") is not None:
            self._usage = obj(chunk["usage"], "usage")
        choices = [obj(choice, "a choice") for choice in array(chunk.get("choices"), "choices")]
        return said(delta for choice in choices if not choice.get("index") for delta in self._choice(choice))

    def end(self) -> tuple[Delta, ...]:
        """The `Finished`, if the reply is complete. Raises `ModelError` if the provider ended it for a failure."""
        if not self._finish:
            return ()
        end = _ENDS.get(self._finish.lower(), "failed" if self._called else "complete")
        if end == "filtered":
            raise ModelError("the provider's content filter ended the reply", code="CONTENT_FILTER")
        if end == "failed":
            raise model_error(f"the reply ended with {self._finish!r}", code="server_error")
        reason: Final = "max-tokens" if end == "max-tokens" else "tool-calls" if self._called else "stop"
        return (Finished(reason, self._usage, reply_source(self._id, self._model)),)

    def _choice(self, choice: JsonObject) -> Iterator[Delta]:
        delta = obj(choice.get("delta") or {}, "delta")
        reasoning = delta.get("reasoning_content")
        yield ReasoningDelta(text(delta.get("reasoning") if reasoning is None else reasoning, "reasoning"))
        yield from _content(delta.get("content"))
        yield TextDelta(text(delta.get("refusal"), "refusal"))
        for item in array(delta.get("tool_calls"), "tool_calls"):
            yield self._call(obj(item, "a tool call"))
        self._finish = text(choice.get("finish_reason"), "finish_reason") or self._finish

    def _call(self, item: JsonObject) -> CallDelta:
        index = item.get("index")
        if index is not None:
            if type(index) is not int:
                raise malformed("the index of a tool call is no whole number")
            self._index = index
        self._called = True
        function = obj(item.get("function") or {}, "the function of a tool call")
        return CallDelta(
            self._index,
            text(item.get("id"), "the id of a tool call"),
            text(function.get("name"), "the name of a tool call"),
            text(function.get("arguments"), "the arguments of a tool call"),
            extras(item, _CALL_FIELDS),
        )


def _content(content: Thing) -> Iterator[Delta]:
    """Text is a string; with Mistral's reasoning models, a list of parts."""
    if not isinstance(content, list):
        yield TextDelta(text(content, "content"))
        return
    for part in content:
        kind = obj(part, "a part of content").get("type")
        if kind == "text":
            yield TextDelta(text(part.get("text"), "text"))
        elif kind == "thinking":
            for thought in array(part.get("thinking"), "thinking"):
                yield ReasoningDelta(text(obj(thought, "a thought").get("text"), "text"))


def parse(reply: JsonObject) -> tuple[Block, ...]:
    """The blocks of a whole reply (a `chat.completion` object). Raises `ModelError` as `Stream` does."""
    stream, choices = Stream(), array(obj(reply, "a reply").get("choices"), "choices")
    return assembled((*stream.take({**reply, "choices": [_as_chunk(choice) for choice in choices]}), *stream.end()))


def _as_chunk(choice: Thing) -> JsonObject:
    """A choice of a whole reply as that of a chunk: its calls stand in a list, and so each has its own index."""
    message = obj(obj(choice, "a choice").get("message") or {}, "message")
    calls = enumerate(array(message.get("tool_calls"), "tool_calls"))
    numbered = [{**obj(call, "a tool call"), "index": index} for index, call in calls]
    return {**choice, "delta": {**message, "tool_calls": numbered}}
