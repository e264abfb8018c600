"""Reasoning that a provider signs: how the fake one seals it, and how it finds that it came back changed or not at all.

1. A seal is made of the model and of what it seals, so that any server, also one started anew, can tell whether a
   block is as its model wrote it. A block that no model of this server wrote is refused as forged.
2. What is missing can only be noticed by who remembers it: the thinking that led to certain calls (Anthropic), the
   reasoning item that led to an item whose id was kept (Responses), the reasoning text of calls (DeepSeek), fields of
   a call that only its server knows. It is due with the model that wrote it alone. Anthropic wants its thinking in the
   latest assistant message.
3. Another model of the same provider ignores a good block; variants that are `strict` about it refuse that as well.
"""

from __future__ import annotations

import base64
import hashlib
import json

from attrs import define, field

from .validator import Problem, Rules

__all__ = ["Seals"]

_PREFIX = "FAKE"


@define
class Seals:
    """Makes seals, and remembers what was sealed for as long as the server runs."""

    _thinking: dict[tuple, list] = field(factory=dict)
    _reasoning: dict[tuple, str] = field(factory=dict)
    _led_by: dict[str, str] = field(factory=dict)
    _extras: dict[tuple, dict] = field(factory=dict)

    # --- making ---

    def signature(self, model, thinking):
        """The signature of a thinking block."""
        return _seal(model, "thinking", thinking)

    def redacted(self, model, thinking):
        """The data of a redacted thinking block; what was thought cannot be read in it."""
        return _seal(model, "redacted", hashlib.sha256(thinking.encode()).hexdigest())

    def encrypted(self, model, item_id, summary):
        """The encrypted content of a reasoning item."""
        return _seal(model, "reasoning", _item_words(item_id, summary))

    # --- remembering ---

    def remember_thinking(self, model, blocks):
        """An answer of Anthropic's: its thinking blocks and calls, in order."""
        self._thinking[_calls_key(model, blocks)] = blocks

    def remember_reasoning(self, model, call_ids, text):
        """The reasoning text that led to these calls in Chat Completions."""
        self._reasoning[model, tuple(call_ids)] = text

    def remember_extra(self, model, call_id, extra):
        """The fields of its own that a server gave a call in Chat Completions."""
        self._extras[model, call_id] = extra

    def remember_item(self, item_id, reasoning_id):
        """The reasoning item that led to an item of Responses."""
        self._led_by[item_id] = reasoning_id

    # --- checking ---

    def problems(self, dialect, body, rules: Rules):
        """What is wrong with the sealed parts of a request that otherwise keeps the contract."""
        check = {"chat": self._in_chat, "responses": self._in_responses, "anthropic": self._in_anthropic}[dialect]
        return list(check(body, rules))

    def _in_chat(self, body, rules):
        for at, message in enumerate(body["messages"]):
            yield from self._extra_of_calls(("messages", at, "tool_calls"), message, body["model"], rules)
            calls = tuple(call["id"] for call in message.get("tool_calls") or ())
            due = self._reasoning.get((body["model"], calls))
            sent = message.get("reasoning_content")
            if due is None or (sent is None and not rules.reasoning_content_due):
                continue
            path = ("messages", at, "reasoning_content")
            if sent is None:
                yield Problem(path, "the reasoning that led to these calls has to be sent back", "reasoning")
            elif sent != due:
                yield Problem(path, "the reasoning is not the one that was given", "reasoning")

    def _extra_of_calls(self, path, message, model, rules):
        for index, call in enumerate(message.get("tool_calls") or ()):
            due = self._extras.get((model, call["id"]), {})
            for key in sorted(due.keys() & rules.call_fields):
                if call.get(key) != due[key]:
                    yield Problem((*path, index, key), "has to be sent back as it was given", "reasoning")

    def _in_anthropic(self, body, rules):
        latest = max((at for at, m in enumerate(body["messages"]) if m["role"] == "assistant"), default=None)
        for at, message in enumerate(body["messages"]):
            blocks = message["content"] if isinstance(message["content"], list) else []
            if at == latest and (missing := self._changed(body["model"], blocks)):
                yield Problem(("messages", at, "content"), missing, "thinking")
            for index, block in enumerate(blocks):
                if block["type"] in {"thinking", "redacted_thinking"}:
                    path = ("messages", at, "content", index)
                    yield from _broken_seal(path, body["model"], rules, *_thinking_seal(block))

    def _changed(self, model, blocks):
        said = [block for block in blocks if block["type"] in {"thinking", "redacted_thinking", "tool_use"}]
        due = self._thinking.get(_calls_key(model, said)) if _calls_key(model, said)[1] else None
        if due is None or list(map(_identity, said)) == list(map(_identity, due)):
            return None
        return "the thinking blocks of the latest assistant message have to be as they were in the reply"

    def _in_responses(self, body, rules):
        items = body["input"] if isinstance(body["input"], list) else []
        before = set()
        for at, item in enumerate(items):
            path = ("input", at)
            due = self._led_by.get(item.get("id"))
            if due is not None and due not in before and not body.get("previous_response_id"):
                yield Problem(path, f"the item {item['id']!r} came without its reasoning item {due!r}", "reasoning")
            if item.get("type") == "reasoning":
                before.add(item["id"])
                yield from self._reasoning_item(path, item, body, rules)

    def _reasoning_item(self, path, item, body, rules):
        sealed = item.get("encrypted_content")
        if sealed is not None:
            what = _item_words(item["id"], item["summary"])
            yield from _broken_seal(path, body["model"], rules, sealed, "reasoning", what)
        elif body.get("store") is False:
            yield Problem(path, f"the item {item['id']!r} was not stored and has no encrypted content", "reasoning")


def _seal(model, kind, what):
    digest = hashlib.sha256(json.dumps([model, kind, what]).encode()).digest()
    return ".".join((_PREFIX, _readable(model.encode()), _readable(digest)))


def _item_words(item_id, summary):
    return json.dumps([item_id, summary], sort_keys=True)  # SDKs keep the fields of an object, not their order


def _readable(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _sealed_by(seal):
    """The model that is named in a seal, or None if the seal is of another make."""
    prefix, _, rest = seal.partition(".")
    name, _, digest = rest.partition(".")
    if prefix != _PREFIX or not digest:
        return None
    try:
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return None


def _broken_seal(path, model, rules, seal, kind, what):
    author = _sealed_by(seal)
    if author is None or (what is not None and seal != _seal(author, kind, what)):
        yield Problem(path, f"the {kind} is not as a model of this service wrote it: its seal does not fit", "seal")
    elif author != model and rules.own_reasoning_only:
        yield Problem(path, f"the {kind} was written by {author!r}, another model", "seal")


def _thinking_seal(block):
    if block["type"] == "thinking":
        return block["signature"], "thinking", block["thinking"]
    return block["data"], "redacted thinking", None


def _calls_key(model, blocks):
    return model, tuple(block["id"] for block in blocks if block["type"] == "tool_use")


def _identity(block):
    return ("call", block["id"]) if block["type"] == "tool_use" else tuple(sorted(block.items()))
