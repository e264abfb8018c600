"""How Anthropic Messages speaks: a message that starts, blocks that start and stop, and a stop reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attrs import define, field

from .script import Call, Finish, Text, Thinking, Usage
from .voice import Block, Ids, sse, usage_or_default

if TYPE_CHECKING:
    from .seals import Seals

__all__ = ["AnthropicVoice"]

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


@define
class AnthropicVoice:
    """One reply in Anthropic Messages."""

    request: object
    ids: Ids
    seals: Seals
    blocks: list[Block] = field(factory=list)
    usage: Usage | None = None
    id: str = ""

    def begin(self):
        """The message without content, and a ping."""
        self.id = self.ids.make("msg_")
        message = {**self._message(None), "content": [], "usage": {**self._usage(), "output_tokens": 1}}
        return [_event("message_start", message=message), _event("ping")]

    def open(self, action):
        """A block starts; redacted thinking is whole then."""
        number = len(self.blocks)
        index = number if getattr(action, "index", None) is None else action.index
        block = Block(action, number, index)
        self.blocks.append(block)
        if block.kind is Call:
            block.call_id = self.ids.make("toolu_") if action.id is None else action.id
        events = [_event("content_block_start", index=index, content_block=self._start(block))]
        if block.kind is Call:
            events.append(_delta(block, type="input_json_delta", partial_json=""))
        return block, events

    def piece(self, block, text):
        """More of a block."""
        block.text += text
        if block.kind is Call:
            return [_delta(block, type="input_json_delta", partial_json=text)]
        if block.kind is Text:
            return [_delta(block, type="text_delta", text=text)]
        return [] if block.action.redacted else [_delta(block, type="thinking_delta", thinking=text)]

    def close(self, block):
        """A block stops; thinking is signed before that."""
        block.open = False
        stop = _event("content_block_stop", index=block.index)
        if block.kind is Thinking and not block.action.redacted:
            return [_delta(block, type="signature_delta", signature=self._signature(block)), stop]
        return [stop]

    def finish(self, finish):
        """The stop reason and the usage, and the end."""
        self._issue()
        delta = {"stop_reason": self._reason(finish), "stop_sequence": None}
        usage = {"output_tokens": self._usage()["output_tokens"]}
        return [_event("message_delta", delta=delta, usage=usage), _event("message_stop")]

    def error(self, action):
        """An `error` event."""
        error = {"type": action.code or "overloaded_error", "message": action.message}
        return [_event("error", error=error, request_id=self.request.request_id)]

    def whole(self, finish):
        """The reply in one piece."""
        self._issue()
        return {**self._message(self._reason(finish)), "content": [self._done(b) for b in self.blocks]}

    def _issue(self):
        said = [block for block in self.blocks if block.kind is not Text]
        if any(block.kind is Thinking for block in said):
            self.seals.remember_thinking(self.request.model, [self._done(block) for block in said])

    def _start(self, block):
        empty = {Text: {"type": "text", "text": ""}, Thinking: {"type": "thinking", "thinking": "", "signature": ""}}
        if block.kind is Call:
            return {"type": "tool_use", "id": block.call_id, "name": block.action.name, "input": {}}
        return self._done(block) if block.kind is Thinking and block.action.redacted else empty[block.kind]

    def _done(self, block):
        if block.kind is Call:
            return {"type": "tool_use", "id": block.call_id, "name": block.action.name, "input": _parsed(block.text)}
        if block.kind is Text:
            return {"type": "text", "text": block.text}
        if block.action.redacted:
            return {"type": "redacted_thinking", "data": self.seals.redacted(self.request.model, block.action.text)}
        return {"type": "thinking", "thinking": block.text, "signature": self._signature(block)}

    def _signature(self, block):
        return self.seals.signature(self.request.model, block.text)

    def _message(self, stop_reason):
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _reason(self, finish: Finish | None):
        if finish is None:
            return "tool_use" if any(block.kind is Call for block in self.blocks) else "end_turn"
        return _REASONS.get(finish.reason, finish.reason)

    def _usage(self):
        usage = usage_or_default(self.usage, self.blocks)
        return {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        }


def _event(name, **data):
    return sse({"type": name, **data}, name)


def _delta(block, **delta):
    return _event("content_block_delta", index=block.index, delta=delta)


def _parsed(text):
    try:
        return json.loads(text or "{}")
    except ValueError:
        return {"unparsed": text}
