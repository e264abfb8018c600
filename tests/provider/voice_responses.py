"""How Responses speaks: items that are added and done, numbered events, and the whole response at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from .script import Call, Finish, Text, Thinking, Usage
from .voice import CREATED, Block, Ids, sse, usage_or_default

if TYPE_CHECKING:
    from .seals import Seals

__all__ = ["ResponsesVoice"]

_PREFIX = {Text: "msg_", Thinking: "rs_", Call: "fc_"}
_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


@define
class ResponsesVoice:
    """One reply in Responses.

    Encrypted content is sent to who asks for it with `include`, whole only when its item is done.
    """

    request: object
    ids: Ids
    seals: Seals
    blocks: list[Block] = field(factory=list)
    usage: Usage | None = None
    id: str = ""
    _sequence: int = 0

    def begin(self):
        """The response without output."""
        self.id = self.ids.make("resp_", 48)
        response = self._response("in_progress", None)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def open(self, action):
        """An item is added."""
        number = len(self.blocks)
        index = number if getattr(action, "index", None) is None else action.index
        block = Block(action, number, index, self.ids.make(_PREFIX[type(action)], 48))
        self.blocks.append(block)
        if block.kind is Call:
            block.call_id = self.ids.make("call_") if action.id is None else action.id
        events = [self._about("response.output_item.added", block, item=self._item(block, "in_progress"))]
        if block.kind is Text:
            events.append(self._in_part("response.content_part.added", block, part=_output_text("")))
        if self._has_summary(block):
            events.append(self._in_summary("response.reasoning_summary_part.added", block, part=_summary("")))
        return block, events

    def piece(self, block, text):
        """More of an item."""
        block.text += text
        if block.kind is Text:
            return [self._in_part("response.output_text.delta", block, delta=text, logprobs=[])]
        if block.kind is Call:
            return [self._of_item("response.function_call_arguments.delta", block, delta=text)]
        if self._has_summary(block):
            return [self._in_summary("response.reasoning_summary_text.delta", block, delta=text)]
        return []

    def close(self, block):
        """An item is done; a call whose arguments were cut is incomplete."""
        block.open = False
        events, status = [], self._status(block)
        if block.kind is Text:
            events.append(self._in_part("response.output_text.done", block, text=block.text, logprobs=[]))
            events.append(self._in_part("response.content_part.done", block, part=_output_text(block.text)))
        if block.kind is Call and status == "completed":
            events.append(self._of_item("response.function_call_arguments.done", block, arguments=block.text))
        if self._has_summary(block):
            events.append(self._in_summary("response.reasoning_summary_text.done", block, text=block.text))
            events.append(self._in_summary("response.reasoning_summary_part.done", block, part=_summary(block.text)))
        return [*events, self._about("response.output_item.done", block, item=self._item(block, status))]

    def finish(self, finish):
        """The whole response: completed, or incomplete with the reason."""
        response = self.whole(finish)
        return [self._event(f"response.{response['status']}", response=response)]

    def error(self, action):
        """An `error` event, or `response.failed`."""
        code = action.code or "server_error"
        if action.failed:
            response = {**self._response("failed", None), "error": {"code": code, "message": action.message}}
            return [self._event("response.failed", response=response)]
        return [self._event("error", code=code, message=action.message, param=None)]

    def whole(self, finish: Finish | None):
        """The reply in one piece."""
        self._issue()
        reason = finish and _INCOMPLETE.get(finish.reason)
        return self._response("incomplete" if reason else "completed", reason)

    def _issue(self):
        pending = None
        for block in self.blocks:
            if block.kind is Thinking:
                pending = block.id
            elif pending:
                self.seals.remember_item(block.id, pending)
                pending = None

    def _item(self, block, status):
        if block.kind is Text:
            content = [] if status == "in_progress" else [_output_text(block.text)]
            return {"type": "message", "id": block.id, "status": status, "role": "assistant", "content": content}
        if block.kind is Call:
            name, call_id = block.action.name, block.call_id
            item = {"type": "function_call", "id": block.id, "call_id": call_id, "name": name}
            return {**item, "arguments": block.text, "status": status}
        summary = [_summary(block.text)] if block.text and self._has_summary(block) else []
        return {"type": "reasoning", "id": block.id, "summary": summary, **self._encrypted(block, summary, status)}

    def _encrypted(self, block, summary, status):
        if "reasoning.encrypted_content" not in (self.request.body.get("include") or ()):
            return {}
        whole = self.seals.encrypted(self.request.model, block.id, summary)
        head, dot, _ = whole.rpartition(".")
        return {"encrypted_content": head + dot if status == "in_progress" else whole}

    def _has_summary(self, block):
        return block.kind is Thinking and not block.action.redacted

    def _response(self, status, reason):
        body = self.request.body
        return {
            "id": self.id,
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": body.get("instructions"),
            "metadata": {},
            "model": self.request.model,
            "output": []
            if status == "in_progress"
            else [self._item(block, self._status(block)) for block in self.blocks],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "store": body.get("store", True),
            "temperature": 1.0,
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools") or [],
            "top_p": 1.0,
            "usage": None if status == "in_progress" else self._usage(),
        }

    @staticmethod
    def _status(block):
        return "incomplete" if block.kind is Call and block.action.cut is not None else "completed"

    def _usage(self):
        usage = usage_or_default(self.usage, self.blocks)
        return {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }

    def _event(self, name, **data):
        event = sse({"type": name, "sequence_number": self._sequence, **data}, name)
        self._sequence += 1
        return event

    def _about(self, name, block, **data):
        return self._event(name, output_index=block.index, **data)

    def _of_item(self, name, block, **data):
        return self._about(name, block, item_id=block.id, **data)

    def _in_part(self, name, block, **data):
        return self._of_item(name, block, content_index=0, **data)

    def _in_summary(self, name, block, **data):
        return self._of_item(name, block, summary_index=0, **data)


def _output_text(text):
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary(text):
    return {"type": "summary_text", "text": text}
