"""How Chat Completions speaks: chunks with deltas, and `[DONE]` at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from .script import Call, Finish, Text, Thinking, Usage
from .voice import CREATED, Block, Ids, sse, usage_or_default

if TYPE_CHECKING:
    from .seals import Seals

__all__ = ["ChatVoice"]


@define
class ChatVoice:
    """One reply in Chat Completions.

    OpenAI itself counts usage only for who asks, in a chunk without choices; the others send it with the last choice.
    """

    request: object
    ids: Ids
    seals: Seals
    variant: str
    blocks: list[Block] = field(factory=list)
    usage: Usage | None = None
    finish_reason: str | None = None
    id: str = ""

    def begin(self):
        """The role."""
        self.id = self.ids.make("chatcmpl-", 29)
        return [self._chunk({"role": "assistant", "content": ""})]

    def open(self, action):
        """A block begins; of a call that is its id and name."""
        index = sum(block.kind is Call for block in self.blocks)
        block = Block(action, len(self.blocks), index)
        self.blocks.append(block)
        if block.kind is not Call:
            return block, []
        block.index = index if action.index is None else action.index
        block.call_id = self._call_id() if action.id is None else action.id
        whole = action.raw[: action.cut] if action.pieces == 0 else ""
        block.text = whole
        function = {"name": action.name, "arguments": whole}
        start = {"index": block.index, "id": block.call_id, "type": "function", "function": function}
        return block, [self._chunk({"tool_calls": [start | action.extra]})]

    def piece(self, block, text):
        """More of a block."""
        block.text += text
        if block.kind is Text:
            return [self._chunk({"content": text})]
        if block.kind is Thinking:
            return [self._chunk({"reasoning_content": text})]
        return [self._chunk({"tool_calls": [{"index": block.index, "function": {"arguments": text}}]})]

    def close(self, block):
        """A block ends; nothing tells of it."""
        block.open = False
        return []

    def finish(self, finish):
        """The finish reason, the usage, and the end."""
        self._issue()
        self.finish_reason = self._reason(finish)
        usage = self._usage()
        if self.variant in {"deepseek", "mistral"}:
            return [self._chunk({}, self.finish_reason, usage=usage), sse("[DONE]")]
        events = [self._chunk({}, self.finish_reason)]
        if (self.request.body.get("stream_options") or {}).get("include_usage"):
            events.append(sse({**self._envelope("chat.completion.chunk"), "choices": [], "usage": usage}))
        return [*events, sse("[DONE]")]

    def error(self, action):
        """An error in the place of a chunk."""
        body = {"message": action.message, "type": "server_error", "param": None, "code": action.code}
        return [sse({"error": body})]

    def whole(self, finish):
        """The reply in one piece."""
        self._issue()
        self.finish_reason = self._reason(finish)
        calls = [_call(block) for block in self.blocks if block.kind is Call]
        message = {"role": "assistant", "content": self._said(Text), "refusal": None, "annotations": []}
        if calls:
            message["tool_calls"] = calls
        if self._said(Thinking):
            message["reasoning_content"] = self._said(Thinking)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage()}

    def _issue(self):
        calls = [block.call_id for block in self.blocks if block.kind is Call]
        if calls and self._said(Thinking):
            self.seals.remember_reasoning(self.request.model, calls, self._said(Thinking))
        for block in self.blocks:
            if block.kind is Call and block.action.extra:
                self.seals.remember_extra(self.request.model, block.call_id, block.action.extra)

    def _said(self, kind):
        return "".join(block.text for block in self.blocks if block.kind is kind) or None

    def _chunk(self, delta, finish_reason=None, **more):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse({**self._envelope("chat.completion.chunk"), "choices": [choice], **more})

    def _envelope(self, kind):
        return {"id": self.id, "object": kind, "created": CREATED, "model": self.request.model}

    def _call_id(self):
        return self.ids.make("", 9) if self.variant in {"mistral", "strict"} else self.ids.make("call_")

    def _reason(self, finish: Finish | None):
        if finish is None:
            return "tool_calls" if any(block.kind is Call for block in self.blocks) else "stop"
        return {"refusal": "content_filter"}.get(finish.reason, finish.reason)

    def _usage(self):
        usage = usage_or_default(self.usage, self.blocks)
        return {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }


def _call(block):
    function = {"name": block.action.name, "arguments": block.text}
    return {"id": block.call_id, "type": "function", "function": function} | block.action.extra
