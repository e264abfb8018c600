"""Whether a request keeps the contract of its dialect: the fake provider's own judgement.

It is written from the providers' contracts alone and shares no code with the package under test, so that a
misunderstanding there is not repeated here. It reads a parsed request body and gives `Problem`s: the place, what is
wrong, and the name of the rule. `Rules` holds what differs between servers; `VARIANTS` has the ready ones.

The rules, by name. In brackets, what is strict in some variants only.

envelope     the body is an object; a model; `stream` is a boolean; `stream_options` only with it; `max_tokens` for
             Anthropic; no lone surrogate anywhere; something to answer
tools        definitions have a valid name, each its own, and an object as schema; `tool_choice` only with tools, and of
             one that is there
shape        roles, kinds of content and fields that the dialect knows; no content where none may be missing [never]
blank        no text without a visible character (Anthropic) [assistant messages of Mistral that say nothing]
call-id      alphabet and length of call ids
unique       ids are not used twice, in a message [in a request]
name         alphabet and length of tool names
arguments    a string (OpenAI), an object (Anthropic) [a string that holds an object]
empty-calls  never `tool_calls: []`
size         no text, image or file longer than the dialect allows
pairing      every call is answered, at once and once; every result has its call
order        first message, alternation, results in front [text before calls; last message]
reasoning    thinking blocks are whole; a reasoning item is followed by the item it led to

Three rules stand in no schema, but live services were reported to refuse what breaks them: Anthropic unknown fields and
thinking at the end of an assistant message, Responses item ids without the prefix of their kind.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from attrs import frozen

__all__ = ["VARIANTS", "Problem", "Rules", "problems"]


@frozen
class Problem:
    """Something that a provider refuses: where in the body, what, and by which rule."""

    path: tuple[str | int, ...]
    text: str
    rule: str

    @property
    def dotted(self):
        """The place in Anthropic's notation: `messages.3.content.0`."""
        return ".".join(map(str, self.path))

    @property
    def bracketed(self):
        """The place in OpenAI's notation: `messages[3].content[0]`."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).removeprefix(".")

    def __str__(self):
        return f"{self.bracketed}: {self.text}"


@frozen
class Rules:
    """What differs between servers of one dialect."""

    chat_call_id: str = r"[\x20-\x7e]{1,40}"
    chat_roles: frozenset[str] = frozenset({"developer", "system", "user", "assistant", "tool"})
    unique_in_request: bool = False  # call ids in Chat Completions; the other dialects want it everywhere
    arguments_are_objects: bool = False
    images_only: bool = False  # Chat: a user sends text and images, and neither files nor audio
    alternation: bool = False  # Chat: no two messages of the user, or of the model, in a row
    says_something: bool = False  # Chat: an assistant message has text or calls
    last_is_input: bool = False  # the last message is the user's or a result
    outputs_adjacent: bool = False  # Responses: outputs stand before any message, as in Chat
    text_before_calls: bool = False  # Anthropic: no text after a call in a message
    null_content: bool = True  # Chat: content may be null, or missing, beside calls
    limit: str = "max_completion_tokens"  # Chat: what the most tokens of an answer are called; no other name is known
    call_fields: frozenset[str] = frozenset()  # Chat: fields of calls beside the usual ones
    reasoning_content: bool = False  # Chat: the field is known
    reasoning_content_due: bool = False  # Chat: it has to be sent back with the calls it led to
    own_reasoning_only: bool = False  # signed reasoning of another model is refused instead of ignored
    max_body: int = 32 * 1024 * 1024


_OTHER_ROLES = frozenset({"system", "user", "assistant", "tool"})
_OPENAI = Rules()

VARIANTS = {
    "openai": _OPENAI,
    "anthropic": _OPENAI,
    "deepseek": Rules(
        chat_roles=_OTHER_ROLES,
        limit="max_tokens",
        unique_in_request=True,
        reasoning_content=True,
        reasoning_content_due=True,
    ),
    "compatible": Rules(
        chat_roles=_OTHER_ROLES,
        limit="max_tokens",
        unique_in_request=True,
        arguments_are_objects=True,
        null_content=False,
        images_only=True,
    ),
    "mistral": Rules(
        chat_call_id="[a-zA-Z0-9]{9}",
        chat_roles=_OTHER_ROLES,
        limit="max_tokens",
        unique_in_request=True,
        alternation=True,
        says_something=True,
        last_is_input=True,
    ),
    "strict": Rules(
        chat_call_id="[a-zA-Z0-9]{9}",
        chat_roles=_OTHER_ROLES,
        limit="max_tokens",
        null_content=False,
        unique_in_request=True,
        arguments_are_objects=True,
        alternation=True,
        says_something=True,
        last_is_input=True,
        outputs_adjacent=True,
        text_before_calls=True,
        reasoning_content=True,
        own_reasoning_only=True,
    ),
}
"""The ready variants. `strict` neither forbids nor demands `reasoning_content`, on which providers disagree."""

_NAME_64 = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME_128 = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_STRING = 10_485_760
_MAX_DATA_URL = 20_971_520
_MAX_FILE = 73_400_320
_MAX_IMAGE = 5 * 1024 * 1024
_MAX_MESSAGES = 100_000


def problems(dialect, body, rules=_OPENAI):
    """Everything that a server with these rules refuses in a request of `dialect` ("chat", "responses", "anthropic").

    Each problem stands alone: what has not even the shape of a message is not judged further.
    """
    if not isinstance(body, dict):
        return [Problem((), "the body has to be an object", "envelope")]
    if not _encodes(body):
        return [Problem((), "the body has a lone surrogate in it, which is no text", "envelope")]
    found = [*_envelope(dialect, body, rules), *_tools(dialect, body)]
    return found + list(_CONVERSATIONS[dialect](body, rules))


# --- envelope and tools ------------------------------------------------------------------------------------------

_LIMITS = {"max_tokens", "max_completion_tokens"}
_LIST = {"chat": "messages", "responses": "input", "anthropic": "messages"}


def _encodes(body):
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _envelope(dialect, body, rules):
    if not _is_text(body.get("model")):
        yield Problem(("model",), "a model has to be named", "envelope")
    if not isinstance(body.get("stream", False), bool | None):
        yield Problem(("stream",), "has to be a boolean", "envelope")
    if dialect == "chat" and body.get("stream_options") is not None and not body.get("stream"):
        yield Problem(("stream_options",), "is only for streams", "envelope")
    if dialect == "chat":
        for name in sorted(_LIMITS - {rules.limit}):
            if body.get(name) is not None:
                yield Problem((name,), f"is not known here; it is called {rules.limit}", "envelope")
    tokens = {"chat": rules.limit, "responses": "max_output_tokens", "anthropic": "max_tokens"}[dialect]
    if dialect == "anthropic" or body.get(tokens) is not None:
        yield from _positive(body, tokens)
    messages = body.get(_LIST[dialect])
    if not messages or not isinstance(messages, list | str if dialect == "responses" else list):
        yield Problem((_LIST[dialect],), "there is nothing to answer", "envelope")
    elif len(messages) > _MAX_MESSAGES and isinstance(messages, list):
        yield Problem((_LIST[dialect],), f"has more than {_MAX_MESSAGES} messages", "envelope")


def _positive(body, key):
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        yield Problem((key,), "has to be given as a positive integer", "envelope")


def _tools(dialect, body):
    tools = body.get("tools")
    if tools is None:
        tools = []
    elif not isinstance(tools, list) or (dialect == "chat" and not tools):
        yield Problem(("tools",), "has to be a list with something in it", "tools")
        return
    names = []
    for at, tool in enumerate(tools):
        definition, path = _definition(dialect, tool, ("tools", at))
        if definition is None:
            yield Problem(path, "is no definition of a function", "tools")
            continue
        yield from _tool(dialect, definition, path)
        if definition.get("name") in names:
            yield Problem((*path, "name"), "is the name of another tool already", "tools")
        names.append(definition.get("name"))
    yield from _tool_choice(dialect, body.get("tool_choice"), names, has_tools=bool(tools))


def _definition(dialect, tool, path):
    if not isinstance(tool, dict):
        return None, path
    if dialect == "anthropic":
        return (tool if tool.get("type", "custom") == "custom" else None), path
    if tool.get("type") != "function":
        return None, (*path, "type")
    if dialect == "responses":
        return tool, path
    function = tool.get("function")
    return (function if isinstance(function, dict) else None), (*path, "function")


def _tool(dialect, definition, path):
    pattern = _NAME_64 if dialect == "chat" else _NAME_128
    if not _fits(pattern, definition.get("name")):
        yield Problem((*path, "name"), f"does not match {pattern.pattern}", "tools")
    if not isinstance(definition.get("description", ""), str):
        yield Problem((*path, "description"), "has to be a string", "tools")
    key = "input_schema" if dialect == "anthropic" else "parameters"
    schema = definition.get(key, None if dialect == "anthropic" else {"type": "object"})
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield Problem((*path, key), "has to be the schema of an object", "tools")


def _tool_choice(dialect, choice, names, *, has_tools):
    if choice is None:
        return
    if not has_tools:
        yield Problem(("tool_choice",), "is only for requests with tools", "tools")
        return
    if isinstance(choice, dict):
        named = _word(choice.get("function") if dialect == "chat" else choice, "name")
        if named is not None and named not in names:
            yield Problem(("tool_choice",), f"names {named!r}, which is no tool here", "tools")


# --- Chat Completions --------------------------------------------------------------------------------------------

_CHAT_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "audio", "annotations", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_CHAT_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def _chat(body, rules):
    messages = body.get("messages")
    if not isinstance(messages, list):
        return
    for at, message in enumerate(messages):
        yield from _chat_message(("messages", at), message, rules)
    well_formed = [message if isinstance(message, dict) else {} for message in messages]
    yield from _chat_pairing(well_formed)
    yield from _chat_ids(well_formed, rules)
    yield from _chat_order(well_formed, rules)


def _chat_message(path, message, rules):
    role = _word(message, "role")
    if role not in rules.chat_roles:
        yield Problem((*path, "role"), f"{role!r} is no role; there are {', '.join(sorted(rules.chat_roles))}", "shape")
        return
    known = _CHAT_FIELDS[role] | ({"reasoning_content"} if role == "assistant" and rules.reasoning_content else set())
    yield from _unknown_fields(path, message, known)
    yield from _chat_content(path, role, message, rules)
    if "tool_calls" in message:
        yield from _chat_calls((*path, "tool_calls"), message["tool_calls"], rules)
    if role == "assistant" and rules.says_something and not _says_something(message):
        yield Problem(path, "an assistant message has to have text or calls", "blank")


def _chat_content(path, role, message, rules):
    content, path = message.get("content"), (*path, "content")
    if isinstance(content, str):
        return
    if content is None:
        if role != "assistant" or not (message.get("tool_calls") or message.get("refusal") or message.get("audio")):
            yield Problem(path, "may not be missing here", "shape")
        elif not rules.null_content:
            yield Problem(path, "may be an empty string, but neither null nor missing", "shape")
    elif not isinstance(content, list) or not content:
        yield Problem(path, "has to be a string or a list of parts with something in it", "shape")
    else:
        for index, part in enumerate(content):
            yield from _chat_part((*path, index), role, part, rules)


def _chat_part(path, role, part, rules):
    kind = _word(part, "type")
    if kind not in _CHAT_PARTS[role] or (rules.images_only and kind in {"file", "input_audio"}):
        yield Problem((*path, "type"), f"{kind!r} may not stand in a message of {role}", "shape")
    elif kind in {"text", "refusal"} and not isinstance(part.get(kind), str):
        yield Problem((*path, kind), "has to be a string", "shape")
    elif kind == "image_url" and not _word(part.get("image_url"), "url"):
        yield Problem((*path, "image_url"), "has to have a url", "shape")


def _chat_calls(path, calls, rules):
    if not isinstance(calls, list):
        yield Problem(path, "has to be a list", "shape")
        return
    if not calls:
        yield Problem(path, "is an empty list; leave it out where there is no call", "empty-calls")
    ids = []
    for index, call in enumerate(calls):
        yield from _chat_call((*path, index), call, rules)
        call_id = _word(call, "id")
        if call_id in ids:
            yield Problem((*path, index, "id"), f"{call_id!r} is the id of another call of this message", "unique")
        ids.append(call_id)


def _chat_call(path, call, rules):
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        yield Problem(path, "is no call of a function", "shape")
        return
    yield from _unknown_fields(path, call, {"id", "type", "function"} | rules.call_fields)
    yield from _unknown_fields((*path, "function"), function, {"name", "arguments"})
    if not _fits(re.compile(rules.chat_call_id), call.get("id")):
        yield Problem((*path, "id"), f"does not match {rules.chat_call_id}", "call-id")
    if not _fits(_NAME_64, function.get("name")):
        yield Problem((*path, "function", "name"), f"does not match {_NAME_64.pattern}", "name")
    yield from _arguments((*path, "function", "arguments"), function.get("arguments"), rules)


def _arguments(path, arguments, rules):
    if not isinstance(arguments, str):
        yield Problem(path, "has to be a string", "arguments")
    elif rules.arguments_are_objects and not _is_object(arguments):
        yield Problem(path, "has to hold a JSON object", "arguments")


def _chat_pairing(messages):
    due, since = [], None
    for at, message in enumerate(messages):
        if _word(message, "role") == "tool":
            call_id = _word(message, "tool_call_id")
            if call_id in due:
                due.remove(call_id)
            else:
                text = f"a tool message for {call_id!r}, which no call in the message before it waits for"
                yield Problem(("messages", at), text, "pairing")
            continue
        yield from _unanswered(("messages", since), due)
        due, since = _chat_call_ids(message), at
    yield from _unanswered(("messages", since), due)


def _unanswered(path, due):
    if due:
        yield Problem(path, f"tool calls without a result right after them: {', '.join(map(str, due))}", "pairing")


def _chat_call_ids(message):
    calls = message.get("tool_calls") if _word(message, "role") == "assistant" else None
    return [_word(call, "id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _chat_ids(messages, rules):
    seen = set()
    for at, message in enumerate(messages):
        ids = _chat_call_ids(message)
        for index, call_id in enumerate(ids):
            if rules.unique_in_request and call_id in seen:
                path = ("messages", at, "tool_calls", index, "id")
                yield Problem(path, f"{call_id!r} is the id of an earlier call of this request", "unique")
        seen.update(ids)


def _chat_order(messages, rules):
    roles = [_word(message, "role") for message in messages]
    if rules.alternation:
        for at, (before, now) in enumerate(pairwise(roles), start=1):
            if before == now and now in {"user", "assistant"}:
                yield Problem(("messages", at), f"two messages of {now} in a row", "order")
    if rules.last_is_input and roles and roles[-1] == "assistant" and not messages[-1].get("prefix"):
        yield Problem(("messages", len(roles) - 1), "the last message has to be the user's or a result", "order")


def _says_something(message):
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content or "")
    return bool(text.strip().strip('"')) or bool(message.get("tool_calls"))


# --- Responses ---------------------------------------------------------------------------------------------------

_ITEM_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fc"}
_RESPONSES_ROLES = {"user", "assistant", "system", "developer"}
_RESPONSES_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_RESPONSES_MEDIA = {"input_image", "input_file"}


def _responses(body, rules):
    items = body.get("input")
    if not isinstance(items, list):
        return
    for at, item in enumerate(items):
        yield from _item(("input", at), item, rules)
    kept = [item if isinstance(item, dict) else {} for item in items]
    elsewhere = bool(body.get("previous_response_id") or body.get("conversation"))
    yield from _responses_pairing(kept, elsewhere=elsewhere)
    yield from _followed(kept)
    if rules.outputs_adjacent:
        yield from _adjacent(kept)


def _item(path, item, rules):
    kind = _kind(item) if isinstance(item, dict) else None
    check = _ITEMS.get(kind)
    if check is None:
        yield Problem(path, f"{kind!r} is no kind of item", "shape")
        return
    yield from _item_id(path, kind, item)
    yield from check(path, item, rules)


def _kind(item):
    return "message" if "type" not in item and "role" in item else _word(item, "type")


def _item_id(path, kind, item):
    item_id, prefix = item.get("id"), _ITEM_PREFIX[kind]
    if item_id is None:
        if kind == "reasoning":
            yield Problem((*path, "id"), "may not be missing here", "shape")
    elif not isinstance(item_id, str) or not 1 <= len(item_id) <= 64:
        yield Problem((*path, "id"), "has to have 1 to 64 characters", "call-id")
    elif not item_id.startswith(prefix):
        yield Problem((*path, "id"), f"has to begin with {prefix!r}", "shape")


def _message_item(path, item, rules):
    role, content = _word(item, "role"), item.get("content")
    if role not in _RESPONSES_ROLES:
        yield Problem((*path, "role"), f"{role!r} is no role", "shape")
    elif isinstance(content, list) and content:
        texts = {"output_text", "refusal"} if role == "assistant" else {"input_text"}
        allowed = texts if role == "assistant" else texts | _RESPONSES_MEDIA
        for index, part in enumerate(content):
            yield from _responses_part((*path, "content", index), part, allowed)
    elif not isinstance(content, str):
        yield Problem((*path, "content"), "has to be a string or a list of parts with something in it", "shape")


def _responses_part(path, part, allowed):
    kind = _word(part, "type")
    if kind not in allowed:
        yield Problem((*path, "type"), f"{kind!r} may not stand here, only {', '.join(sorted(allowed))}", "shape")
    elif kind in _RESPONSES_PARTS:
        yield from _string((*path, _RESPONSES_PARTS[kind]), part.get(_RESPONSES_PARTS[kind]), _MAX_STRING)
    elif kind == "input_image" and not part.get("file_id"):
        yield from _string((*path, "image_url"), part.get("image_url"), _MAX_DATA_URL)
    elif kind == "input_file" and part.get("file_data") is not None:
        yield from _string((*path, "file_data"), part["file_data"], _MAX_FILE)


def _string(path, value, limit):
    if not isinstance(value, str):
        yield Problem(path, "has to be a string", "shape")
    elif len(value) > limit:
        yield Problem(path, f"has more than {limit} characters", "size")


def _call_item(path, item, rules):
    yield from _call_id(path, item)
    if not _fits(_NAME_128, item.get("name")):
        yield Problem((*path, "name"), f"does not match {_NAME_128.pattern}", "name")
    yield from _arguments((*path, "arguments"), item.get("arguments"), rules)


def _call_id(path, item):
    call_id = _word(item, "call_id")
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64:
        yield Problem((*path, "call_id"), "has to have 1 to 64 characters", "call-id")


def _output_item(path, item, rules):
    yield from _call_id(path, item)
    output = item.get("output")
    if isinstance(output, list) and output:
        for index, part in enumerate(output):
            yield from _responses_part((*path, "output", index), part, {"input_text", *_RESPONSES_MEDIA})
    else:
        yield from _string((*path, "output"), output, _MAX_STRING)


def _reasoning_item(path, item, rules):
    summary = item.get("summary")
    if not isinstance(summary, list):
        yield Problem((*path, "summary"), "has to be a list", "reasoning")
        return
    for index, part in enumerate(summary):
        if not isinstance(part, dict) or part.get("type") != "summary_text" or not isinstance(part.get("text"), str):
            yield Problem((*path, "summary", index), "has to be a summary_text", "reasoning")


_ITEMS = {
    "message": _message_item,
    "function_call": _call_item,
    "function_call_output": _output_item,
    "reasoning": _reasoning_item,
}


def _responses_pairing(items, *, elsewhere):
    called, answered = {}, set()
    for at, item in enumerate(items):
        kind, call_id = _kind(item), _word(item, "call_id")
        path = ("input", at)
        if kind == "function_call":
            if call_id in called:
                yield Problem((*path, "call_id"), f"{call_id!r} is the id of an earlier call", "unique")
            called.setdefault(call_id, at)
        elif kind == "function_call_output":
            if call_id in answered:
                yield Problem(path, f"{call_id!r} has an output already", "pairing")
            elif call_id not in called and not elsewhere:
                yield Problem(path, f"there is no function call {call_id!r} before this output", "pairing")
            answered.add(call_id)
    for call_id, at in called.items():
        if call_id not in answered:
            yield Problem(("input", at), f"there is no output for the function call {call_id!r}", "pairing")


def _followed(items):
    for at, item in enumerate(items):
        if _kind(item) == "reasoning":
            after = items[at + 1] if at + 1 < len(items) else {}
            if not _follows_reasoning(after):
                yield Problem(("input", at), "the reasoning item came without the item it led to", "reasoning")


def _follows_reasoning(item):
    kind = _kind(item)
    return kind in {"function_call", "reasoning"} or (kind == "message" and _word(item, "role") == "assistant")


def _adjacent(items):
    due = []
    for at, item in enumerate(items):
        kind = _kind(item)
        if kind == "function_call":
            due.append(_word(item, "call_id"))
        elif kind == "function_call_output":
            due = [call_id for call_id in due if call_id != _word(item, "call_id")]
        elif kind == "message" and due:
            yield Problem(("input", at), f"a message before the output of {', '.join(map(str, due))}", "order")
            due = []


# --- Anthropic Messages ------------------------------------------------------------------------------------------

_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BLOCK_FIELDS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "search_result": {"source", "title", "content", "citations"},
    "tool_reference": {"tool_name"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
}
_ANTHROPIC_BLOCKS = {
    "user": {"text", "image", "document", "search_result", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "result": {"text", "image", "document", "search_result", "tool_reference"},
}


def _anthropic(body, rules):
    yield from _system(body.get("system"))
    messages = body.get("messages")
    if not isinstance(messages, list):
        return
    for at, message in enumerate(messages):
        yield from _anthropic_message(("messages", at), message, rules)
    kept = [message if isinstance(message, dict) else {} for message in messages]
    yield from _anthropic_order(kept, rules)
    yield from _anthropic_pairing(kept)
    yield from _anthropic_ids(kept)


def _system(system):
    if isinstance(system, list):
        for index, block in enumerate(system):
            yield from _block(("system", index), block, {"text"})
    elif not isinstance(system, str | None):
        yield Problem(("system",), "has to be a string or a list of text blocks", "shape")


def _anthropic_message(path, message, rules):
    role = _word(message, "role")
    if role not in {"user", "assistant"}:
        yield Problem((*path, "role"), f"{role!r} is no role; there are user and assistant", "shape")
        return
    yield from _unknown_fields(path, message, {"role", "content"})
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield Problem((*path, "content"), "text has to have visible characters", "blank")
    elif not isinstance(content, list) or not content:
        yield Problem((*path, "content"), "has to be a string or a list of blocks with something in it", "shape")
    else:
        for index, block in enumerate(content):
            yield from _block((*path, "content", index), block, _ANTHROPIC_BLOCKS[role])
        yield from _within(path, role, content, rules)


def _block(path, block, allowed):
    kind = _word(block, "type")
    if kind not in allowed:
        yield Problem(path, f"{kind!r} may not stand here, only {', '.join(sorted(allowed))}", "shape")
        return
    yield from _unknown_fields((*path, kind), block, {"type", "cache_control", *_BLOCK_FIELDS[kind]})
    yield from _BLOCKS.get(kind, _nothing)(path, block)


def _nothing(path, block):
    return ()


def _text_block(path, block):
    if not isinstance(block.get("text"), str) or not block["text"].strip():
        yield Problem((*path, "text"), "text has to have visible characters", "blank")


def _source_block(path, block):
    source = block.get("source")
    if not isinstance(source, dict):
        yield Problem((*path, "source"), "has to be given", "shape")
    elif "title" in block and not 1 <= len(_word(block, "title") or "") <= 500:
        yield Problem((*path, "title"), "has to have 1 to 500 characters", "shape")
    elif block["type"] == "image" and len(_word(source, "data") or "") > _MAX_IMAGE:
        yield Problem((*path, "source", "data"), f"has more than {_MAX_IMAGE} bytes in base64", "size")


def _thinking_block(path, block):
    for key in ("thinking", "signature"):
        if not isinstance(block.get(key), str) or (key == "signature" and not block[key]):
            yield Problem((*path, key), "has to be given", "reasoning")


def _redacted_block(path, block):
    if not _is_text(block.get("data")):
        yield Problem((*path, "data"), "has to be given", "reasoning")


def _use_block(path, block):
    if not _fits(_TOOL_USE_ID, block.get("id")):
        yield Problem((*path, "id"), f"does not match {_TOOL_USE_ID.pattern}", "call-id")
    if not isinstance(block.get("name"), str) or not 1 <= len(block["name"]) <= 200:
        yield Problem((*path, "name"), "has to have 1 to 200 characters", "name")
    if not isinstance(block.get("input"), dict):
        yield Problem((*path, "input"), "has to be an object", "arguments")


def _result_block(path, block):
    if not _fits(_TOOL_USE_ID, _word(block, "tool_use_id")):
        yield Problem((*path, "tool_use_id"), f"does not match {_TOOL_USE_ID.pattern}", "call-id")
    content, path = block.get("content"), (*path, "content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            yield from _block((*path, index), part, _ANTHROPIC_BLOCKS["result"])
    elif not isinstance(content, str | None):
        yield Problem(path, "has to be a string or a list of blocks", "shape")
    blank = not content.strip() if isinstance(content, str) else not content
    if block.get("is_error") and blank:
        yield Problem(path, "may not be empty in a result that is an error", "blank")


_BLOCKS = {
    "text": _text_block,
    "image": _source_block,
    "document": _source_block,
    "thinking": _thinking_block,
    "redacted_thinking": _redacted_block,
    "tool_use": _use_block,
    "tool_result": _result_block,
}


def _within(path, role, content, rules):
    """The order of the blocks of one message."""
    kinds = [_word(block, "type") for block in content]
    if role == "user":
        run = next((at for at, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
        late = [at for at, kind in enumerate(kinds) if kind == "tool_result" and at > run]
        for at in late:
            yield Problem((*path, "content", at), "tool results have to stand in front, in one run", "order")
    elif kinds[-1] in {"thinking", "redacted_thinking"}:
        yield Problem(path, "the last block of an assistant message may not be thinking", "reasoning")
    elif rules.text_before_calls and "tool_use" in kinds and "text" in kinds[kinds.index("tool_use") :]:
        yield Problem(path, "text has to stand before the calls", "order")


def _anthropic_order(messages, rules):
    roles = [_word(message, "role") for message in messages]
    if roles and roles[0] != "user":
        yield Problem(("messages", 0), "the first message has to be the user's", "order")
    for at, (before, now) in enumerate(pairwise(roles), start=1):
        if before == now:
            yield Problem(("messages", at), f"two messages of {now} in a row", "order")
    if rules.last_is_input and roles and roles[-1] == "assistant":
        yield Problem(("messages", len(roles) - 1), "the last message has to be the user's", "order")


def _anthropic_pairing(messages):
    due = []
    for at, message in enumerate(messages):
        given = []
        for index, block in _of_kind(message, "tool_result", "user"):
            call_id, path = _word(block, "tool_use_id"), ("messages", at, "content", index)
            if call_id in given:
                yield Problem(path, f"{call_id!r} has a result already", "pairing")
            elif call_id not in due:
                yield Problem(path, f"there is no tool_use {call_id!r} in the message before", "pairing")
            given.append(call_id)
        yield from _unanswered(("messages", at - 1), [call_id for call_id in due if call_id not in given])
        due = [_word(block, "id") for _, block in _of_kind(message, "tool_use", "assistant")]
    yield from _unanswered(("messages", len(messages) - 1), due)


def _anthropic_ids(messages):
    seen = set()
    for at, message in enumerate(messages):
        for index, block in _of_kind(message, "tool_use", "assistant"):
            if _word(block, "id") in seen:
                yield Problem(("messages", at, "content", index, "id"), "is the id of an earlier call", "unique")
            seen.add(_word(block, "id"))


def _of_kind(message, kind, role):
    content = message.get("content")
    if _word(message, "role") != role or not isinstance(content, list):
        return []
    return [(at, block) for at, block in enumerate(content) if isinstance(block, dict) and block.get("type") == kind]


_CONVERSATIONS = {"chat": _chat, "responses": _responses, "anthropic": _anthropic}


# --- what all have in common -------------------------------------------------------------------------------------


def _unknown_fields(path, value, known):
    for key in sorted(value.keys() - known):
        yield Problem((*path, key), "is no field that is known here", "shape")


def _word(thing, key):
    """The text under a key, or None where there is none: what is no text is no role, kind or id."""
    value = thing.get(key) if isinstance(thing, dict) else None
    return value if isinstance(value, str) else None


def _fits(pattern, value):
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_text(value: Any):
    return isinstance(value, str) and bool(value)


def _is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
