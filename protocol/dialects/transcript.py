"""Transcripts: message lists of a provider's dialect, kept by other programs in whatever file, and their dialect.

1. A transcript is JSON: a list of messages, or a whole request body that holds one under `messages` or `input`; or JSON
   lines, a message on each. Lines end at LF and nowhere else; blank ones are passed over. UTF-8, strict JSON.
2. Its dialect is told from features that only one dialect has, wherever they stand; what most of them say counts, and
   the first of them is the reason that is given. Where none is found, the habits of a dialect decide (a system message
   in the list), and a list that has neither is read as Chat: plain messages are the same in Chat and Anthropic.
3. A transcript that is written again has the form it was read in. Messages that are still the same objects keep their
   text to the last byte; a transcript that was not changed is the file that was read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from attrs import evolve, field, frozen

from quiesce.protocol.codec import load_json
from quiesce.protocol.dialects.checking import kind_of
from quiesce.protocol.dialects.problem import position
from quiesce.protocol.errors import InvalidInput, UnreadableLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from quiesce.protocol.dialects.problem import Path
    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.events import JsonObject

__all__ = ["Transcript", "load_transcript"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""

_NAMES: Final = {"chat": "OpenAI Chat Completions", "responses": "OpenAI Responses", "anthropic": "Anthropic Messages"}
_LISTS: Final = ("messages", "input")
"""Where a request body has its messages."""


@frozen
class Transcript:
    """A message list from elsewhere. Its parts are shared with what was read and must not be changed."""

    dialect: DialectName
    messages: list[Any]
    """The provider's own messages or input items."""
    body: JsonObject | None
    """The whole request around them, if there is one. Its list is the one that was read."""
    reason: str
    """Why it is taken for that dialect, in a sentence for people."""
    is_plain: bool
    """Whether nothing told its dialect: such messages are the same in every one of them."""
    _layout: _Layout = field(repr=False, alias="layout")

    @property
    def list_name(self) -> str:
        """What a request calls the list: `messages` or `input`."""
        return _list_name(self.dialect)

    @property
    def continues(self) -> bool:
        """Whether the request goes on from what the server holds, so that calls may stand there."""
        held = ("previous_response_id", "conversation")
        return self.body is not None and any(self.body.get(key) is not None for key in held)

    def with_messages(self, messages: Sequence[Any]) -> Transcript:
        """The same transcript with another list."""
        return evolve(self, messages=list(messages))

    def dump(self) -> str:
        """The text of a file: see rule 3. Raises `InvalidInput` if a message is no JSON."""
        return self._layout.write(self.messages)


def load_transcript(data: str | bytes, format: DialectName | None = None) -> Transcript:  # noqa: A002 - the CLI's word
    """The transcript in `data`. `format` says which dialect it is; without it, that is found out (rule 2).

    Raises `InvalidInput`, naming the line and column or the message, if it is none.
    """
    text = _decoded(data)
    if not text.strip():
        raise InvalidInput("there is nothing in it")
    if format is not None and format not in _NAMES:
        raise InvalidInput(f"format: {format!r} is none of {', '.join(_NAMES)}")
    try:
        found = _read(text)
    except RecursionError as error:
        raise InvalidInput("nested too deeply") from error
    _check_messages(found)
    dialect, reason, is_plain = (format, "as was said", False) if format is not None else _detect(found)
    return Transcript(dialect, found.messages, found.body, reason, is_plain, found.layout)


# --- reading -----------------------------------------------------------------------------------------------------


class _Where(Protocol):
    def __call__(self, index: int, list_name: str = ...) -> str: ...


@frozen
class _Found:
    """What was read: the messages, what stands around them, and how to name the place of one."""

    messages: list[Thing]
    body: JsonObject | None
    layout: _Layout
    where: _Where


def _decoded(data: str | bytes) -> str:
    if isinstance(data, str):
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"line {line}: not UTF-8: {error.reason} at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise InvalidInput("it starts with a byte order mark; a transcript is UTF-8 without one")
    return text


def _read(text: str) -> _Found:
    try:
        whole = load_json(text)
    except UnreadableLog as error:
        first, _, rest = text.lstrip().partition("\n")
        if rest.strip() and first.startswith("{") and _is_json(first):
            return _read_lines(text)
        raise InvalidInput(_json_fault(error, 0)) from error
    if isinstance(whole, list):
        return _read_list(text, whole, None, ())
    if not isinstance(whole, dict):
        raise InvalidInput(f"{kind_of(whole)}, and neither a list of messages nor a request")
    name = next((key for key in _LISTS if key in whole), None)
    if name is None:
        if ("role" in whole or "type" in whole) and "\n" not in text.strip():
            return _read_lines(text)
        raise InvalidInput(f"an object without {' or '.join(_LISTS)} is no request")
    if name == "input" and isinstance(whole[name], str):
        return _read_list(text, [{"role": "user", "content": whole[name]}], whole, (name,))
    if not isinstance(whole[name], list):
        raise InvalidInput(f"{name}: this must be a list")
    return _read_list(text, whole[name], whole, (name,))


def _read_list(text: str, messages: list[Thing], body: JsonObject | None, path: Path) -> _Found:
    def where(index: int, list_name: str = "messages") -> str:
        return position((*(path or (list_name,)), index))

    return _Found(messages, body, _Layout.of_list(text, messages, path), where)


def _read_lines(text: str) -> _Found:
    messages: list[Thing] = []
    numbers: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            messages.append(load_json(line))
        except UnreadableLog as error:
            raise InvalidInput(_json_fault(error, number)) from error
        numbers.append(number)
    return _Found(messages, None, _Layout.of_lines(text, messages), lambda index, _="": f"line {numbers[index]}")


def _is_json(text: str) -> bool:
    try:
        load_json(text)
    except UnreadableLog:
        return False
    return True


def _json_fault(error: UnreadableLog, line: int) -> str:
    """What is wrong with the text; `line` is its number if it is one of many, else 0."""
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return f"line {line or cause.lineno}: not JSON: {cause.msg}, column {cause.colno}"
    return f"line {line}: {error}" if line else str(error)


def _check_messages(found: _Found) -> None:
    """A list that holds none of our messages is refused with a word of what it is."""
    for index, message in enumerate(found.messages):
        if not isinstance(message, dict):
            raise InvalidInput(f"{found.where(index)}: a message is an object, not {json.dumps(message)[:40]}")
        if index == 0 and message.get("type") == "session":
            raise InvalidInput("line 1: the header of a session log, which is no transcript")
        if any(isinstance(message.get(key), list) for key in _LISTS):
            raise InvalidInput(f"{found.where(index)}: a request among messages; give one transcript at a time")
        for feature in _OTHERS.keys() & _words_of(message):
            raise InvalidInput(f"{found.where(index)}: has {feature!r}, as in {_OTHERS[feature]}, which is not read")


_OTHERS: Final[Mapping[str, str]] = {
    "toolUse": "Bedrock Converse",
    "toolResult": "Bedrock Converse",
    "parts": "Gemini's generateContent",
}
"""Keys of messages and content that only other dialects have."""


def _words_of(message: JsonObject) -> set[str]:
    """The keys of a message that has none of ours, and of its untyped content."""
    if "type" in message or (isinstance(message.get("content"), str) or "tool_calls" in message):
        return set()
    content = message.get("content")
    inner = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return set(message) | {key for part in inner if "type" not in part for key in part}


# --- which dialect -----------------------------------------------------------------------------------------------

_Sign: TypeAlias = "tuple[DialectName, str]"
"""A dialect, and what speaks for it."""


@frozen
class _Hint:
    """A sign, and which message it is in; None for the request itself."""

    dialect: DialectName
    words: str
    index: int | None = None


_ROLES: Final[Mapping[str, DialectName]] = {"tool": "chat", "function": "chat"}
_KEYS: Final[Mapping[str, DialectName]] = {"tool_calls": "chat", "tool_call_id": "chat", "function_call": "chat"}
_ITEMS: Final = frozenset({"message", "reasoning", "item_reference", "compaction"})
_CALLS: Final = re.compile(r"\w+_call(_output)?")
_PARTS: Final[Mapping[str, DialectName]] = {
    "image_url": "chat",
    "input_audio": "chat",
    "file": "chat",
    "input_text": "responses",
    "output_text": "responses",
    "input_image": "responses",
    "input_file": "responses",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "server_tool_use": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
    "search_result": "anthropic",
}
_BODY_KEYS: Final[Mapping[str, DialectName]] = {
    "input": "responses",
    "instructions": "responses",
    "previous_response_id": "responses",
    "max_output_tokens": "responses",
    "system": "anthropic",
    "anthropic_version": "anthropic",
    "stop_sequences": "anthropic",
    "thinking": "anthropic",
    "max_completion_tokens": "chat",
    "response_format": "chat",
    "stream_options": "chat",
}


def _detect(found: _Found) -> tuple[DialectName, str, bool]:
    """The dialect, why, and whether that is a mere guess."""
    hints = [*_body_hints(found.body), *_all_hints(found.messages, _hints)]
    if not _speaks(found.messages, hints):
        raise InvalidInput(f"there is no message in it, of {' or '.join(_NAMES.values())}")
    is_plain = not hints
    hints = hints or list(_all_hints(found.messages, _habits))
    if not hints:
        return "chat", "nothing tells Chat from Anthropic here, and plain messages are the same in both", True
    votes = Counter(hint.dialect for hint in hints)
    dialect = max(votes, key=lambda name: votes[name])
    first = next(hint for hint in hints if hint.dialect == dialect)
    where = "the request" if first.index is None else found.where(first.index, _list_name(dialect))
    doubt = "" if len(votes) == 1 else ", and so do most signs, though not all"
    return dialect, f"{where} {first.words}{doubt}", is_plain


def _list_name(dialect: DialectName) -> str:
    return "input" if dialect == "responses" else "messages"


def _all_hints(messages: list[Thing], find: Callable[[JsonObject], Iterator[_Sign]]) -> Iterator[_Hint]:
    for index, message in enumerate(messages):
        for dialect, words in find(message):
            yield _Hint(dialect, words, index)


def _speaks(messages: list[Thing], hints: list[_Hint]) -> bool:
    """Whether there are messages at all: they have roles, apart from the items of Responses."""
    if not messages:
        return bool(hints)
    return any("role" in message for message in messages) or any(hint.dialect == "responses" for hint in hints)


def _body_hints(body: JsonObject | None) -> Iterator[_Hint]:
    for key in body or ():
        if key in _BODY_KEYS:
            yield _Hint(_BODY_KEYS[key], f"has {key!r}")
    tools = (body or {}).get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and "input_schema" in tool:
            yield _Hint("anthropic", "has a tool with 'input_schema'")
        elif isinstance(tool, dict) and tool.get("type") == "function":
            yield _Hint("chat" if "function" in tool else "responses", "has tools in that form")


def _hints(message: JsonObject) -> Iterator[_Sign]:
    kind, role = message.get("type"), message.get("role")
    if isinstance(kind, str) and (kind in _ITEMS or _CALLS.fullmatch(kind)):
        yield "responses", f"is an item of type {kind!r}"
    if isinstance(role, str) and role in _ROLES:
        yield _ROLES[role], f"has the role {role!r}"
    for key in _KEYS:
        if key in message:
            yield _KEYS[key], f"has {key!r}"
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        name = part.get("type") if isinstance(part, dict) else None
        if isinstance(name, str) and name in _PARTS:
            yield _PARTS[name], f"holds a part of type {name!r}"


def _habits(message: JsonObject) -> Iterator[_Sign]:
    """What other dialects allow as well, but hardly anybody writes there."""
    if message.get("role") in ("system", "developer"):
        yield "chat", f"has the role {message['role']!r}"


# --- writing -----------------------------------------------------------------------------------------------------


@frozen
class _Layout:
    """How the file was written: what stands before, between and after its messages, and their own text."""

    source: str
    before: str
    between: str
    after: str
    originals: tuple[Thing, ...]
    """The messages that were read."""
    texts: tuple[str, ...]
    """Their own text; empty if the list stands for something shorter."""
    dump: Callable[[Thing], str]
    """The text of a new message, in the style of the others."""

    @classmethod
    def of_lines(cls, text: str, messages: list[Thing]) -> _Layout:
        """JSON lines."""
        lines = [line for line in text.split("\n") if line.strip()]
        after = "\n" if text.endswith("\n") else ""
        dump = _dumper(lines[0], 0, text)
        return cls(text, "", "\n", after, tuple(messages), tuple(lines), dump)

    @classmethod
    def of_list(cls, text: str, messages: list[Thing], path: Path) -> _Layout:
        """One JSON text, with the list at `path`."""
        start, end, spans = _spans(text, path)
        texts = [text[first:last] for first, last in spans]
        between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else ", "
        before, after = ("[", "]") if not spans else (text[start : spans[0][0]], text[spans[-1][1] : end])
        if len(spans) == 1 and "\n" in before:
            between = "," + before[before.index("\n") :]
        base = len(before) - len(before.rstrip(" "))
        dump = _dumper(texts[0] if texts else "", base, text)
        return cls(text, text[:start] + before, between, after + text[end:], tuple(messages), tuple(texts), dump)

    def write(self, messages: Iterable[Thing]) -> str:
        """The file with these messages."""
        written = list(messages)
        if [id(item) for item in written] == [id(item) for item in self.originals]:
            return self.source
        texts = dict(zip(map(id, self.originals), self.texts, strict=False))
        return self.before + self.between.join(texts.get(id(item)) or self.dump(item) for item in written) + self.after


def _spans(text: str, path: Path) -> tuple[int, int, list[tuple[int, int]]]:
    """Where the list at `path` starts and ends in `text`, which is JSON, and where each of its items does."""
    start = _skip(text, 0)
    for key in path:
        start = _value_of(text, start, key)
    end = _SCAN(text, start)[1]
    spans = []
    at = _skip(text, start + 1)
    while text[start] == "[" and text[at] != "]":
        last = _SCAN(text, at)[1]
        spans.append((at, last))
        at = _skip(text, last)
        at = _skip(text, at + 1) if text[at] == "," else at
    return start, end, spans


def _value_of(text: str, start: int, key: str | int) -> int:
    """Where the value of `key` starts in the object at `start`. Of a repeated key the last one counts."""
    found = start
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, at = _SCAN(text, at)
        at = _skip(text, _skip(text, at) + 1)
        found = at if name == key else found
        at = _skip(text, _SCAN(text, at)[1])
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    match = _WHITE.match(text, at)
    return at if match is None else match.end()


def _dumper(sample: str, base: int, text: str) -> Callable[[Thing], str]:
    """Writes messages as `sample` is written, `base` columns to the right, in ASCII if all of `text` is."""
    inner = re.search(r"\n( *)", sample)
    indent = max(1, len(inner[1]) - base) if inner else None
    separators = (",", ": ") if indent else (", ", ": ") if re.search(r'":\s', sample) else (",", ":")
    encoder = json.JSONEncoder(ensure_ascii=text.isascii(), allow_nan=False, indent=indent, separators=separators)

    def dump(message: Thing) -> str:
        try:
            written = encoder.encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"a message is no JSON: {error}") from error
        return _SURROGATE.sub(_escaped, written).replace("\n", "\n" + " " * base)

    return dump


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


_SCAN: Final = json.JSONDecoder().raw_decode
_WHITE: Final = re.compile(r"[ \t\n\r]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
