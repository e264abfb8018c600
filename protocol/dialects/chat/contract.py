"""The contract of OpenAI Chat Completions for a list of messages, as a table of rules and the checks that tell them.

What a rule asks of which server is a field of the profile; the rest holds for every server of the dialect. Not checked,
because the list alone does not say it: whether an answer with calls was made in a thinking mode, so that its
`reasoning_content` must come back (DeepSeek); whether a server takes text beside calls (Mistral before version 5 of its
validator), or a system message behind results (Mistral).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from quiesce.protocol.dialects.checking import (
    ARGUMENT_RULES,
    DATA_RULE,
    LABEL_RULES,
    VALUE_RULES,
    Ids,
    Report,
    Thing,
    check_arguments,
    check_call_id,
    check_data,
    check_name,
    check_tools,
    check_values,
    items_of,
    kind_of,
    shown,
    table,
)
from quiesce.protocol.dialects.ledger import PAIRING_RULES, Ledger
from quiesce.protocol.dialects.problem import Path, Problem, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quiesce.protocol.dialects.profile import MediaKind, Profile

__all__ = ["RULES", "problems", "tool_problems"]

_SPEC: Final = "OpenAI OpenAPI 2.3.0"

RULES: Final = table(
    *VALUE_RULES,
    *LABEL_RULES,
    *ARGUMENT_RULES,
    *PAIRING_RULES,
    Rule("messages", "a list of objects is needed", _SPEC, "spec"),
    Rule("empty", "a request has something to answer", "CopilotKit/CopilotKit#529", "service"),
    Rule("role", "a message has one of the roles system, developer, user, assistant, tool", _SPEC, "spec"),
    Rule("content", "content is a string or a list of parts that is not empty", _SPEC, "spec"),
    Rule("content-missing", "content may be null beside tool_calls only", _SPEC, "spec"),
    Rule("content-null", "this provider takes an empty string in its place", "Profile.null_content", "service"),
    Rule("string-content", "this provider takes content as one string", "Profile.text_parts", "service"),
    Rule("part", "each role has its own parts of content", f"{_SPEC}, ChatCompletionRequest*Message", "spec"),
    Rule("media", "this provider takes no such part", "Profile.media", "service"),
    DATA_RULE,
    Rule("media-in-result", "it goes to a user message behind the whole batch", "Factory-AI/factory#31", "measured"),
    Rule("tool-calls", "tool_calls is a list of calls of an assistant message", _SPEC, "spec"),
    Rule("tool-calls-empty", "an answer without calls has no tool_calls", "openai/openai-python#2061", "service"),
    Rule("call", "a call is an object with an id, a type and a function", _SPEC, "spec"),
    Rule("text-length", "this provider takes no longer text", "Profile.max_text", "spec"),
    Rule("starts-with-user", "the first message is the user's", "Profile.starts_with_user", "service"),
    Rule("same-role", "the roles alternate, each message merged with its like", "templates of open models", "service"),
    Rule("ends-with-input", "a user's message or a result must be last", "mistral-common bc022b9", "spec"),
)
"""Every rule of the dialect, by id."""

_MEDIA: Final[Mapping[str, MediaKind]] = {"image_url": "image", "input_audio": "audio", "file": "document"}
_DATA: Final[Mapping[str, str]] = {"image_url": "url", "input_audio": "data", "file": "file_data"}
"""Type of a part that shows media -> the key in its inner object under which they stand."""
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", *_MEDIA}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}
_PREAMBLE: Final = ("system", "developer")
_SPEAKERS: Final = ("user", "assistant")


def problems(messages: Thing, profile: Profile) -> list[Problem]:
    """What the provider of `profile` would refuse in `messages`, in their order; empty if nothing. Never raises."""
    report = Report(RULES)
    check_values(report, items_of(messages) or messages, ("messages",))
    if type(messages) not in (list, tuple):
        report.tell("messages", ("messages",), f"this is {kind_of(messages)}")
    elif not messages:
        report.tell("empty", ("messages",), "an empty list")
    checker = _Checker(report, profile, Ids(report, profile))
    for index, message in enumerate(items_of(messages)):
        checker.check(message, ("messages", index))
    _check_pairing(report, items_of(messages))
    _check_sequence(report, profile, items_of(messages))
    return report.problems()


def tool_problems(tools: Thing, profile: Profile) -> list[Problem]:
    """What the provider of `profile` would refuse in a list of tools, for their names. Never raises."""
    return check_tools(tools, profile, _name_of)


def _name_of(tool: Thing) -> tuple[Thing, Path]:
    kind = "custom" if tool.get("type") == "custom" else "function"
    return _get(tool.get(kind), "name"), (kind, "name")


# --- one message -------------------------------------------------------------------------------------------------


@frozen
class _Checker:
    """Checks message after message, each by itself."""

    report: Report
    profile: Profile
    ids: Ids

    def check(self, message: Thing, at: Path) -> None:
        """One message of the list."""
        if type(message) is not dict:
            self.report.tell("messages", at, f"this is {kind_of(message)}")
            return
        role = message.get("role")
        if type(role) is not str or role not in _PARTS:
            self.report.tell("role", (*at, "role"), f"the role is {shown(role)}")
            return
        self._check_content(message, role, (*at, "content"))
        if message.get("tool_calls") is not None:  # null is as good as absent: the SDK writes it
            self._check_calls(message["tool_calls"], role, (*at, "tool_calls"))
        if role == "tool":
            check_call_id(self.report, self.profile, message.get("tool_call_id"), (*at, "tool_call_id"))

    def _check_content(self, message: Thing, role: str, at: Path) -> None:
        content = message.get("content")
        if content is None and role == "assistant":
            if not any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")):
                self.report.tell("content-missing", at, "an assistant message with neither content nor calls")
            elif not self.profile.null_content:
                self.report.tell("content-null", at, "it is null" if "content" in message else "it is missing")
        elif type(content) is str:
            self._check_length(content, at)
        elif type(content) is not list or not content:
            self.report.tell("content", at, "an empty list" if content == [] else f"this is {kind_of(content)}")
        else:
            if not self.profile.text_parts:
                self.report.tell("string-content", at, "a list of parts")
            for index, part in enumerate(content):
                self._check_part(part, role, (*at, index))

    def _check_part(self, part: Thing, role: str, at: Path) -> None:
        kind = _get(part, "type")
        media = _MEDIA.get(kind) if type(kind) is str else None
        if role == "tool" and media is not None:
            if self.profile.images_in_results:
                self._check_data(part, kind, at)
            else:
                self.report.tell("media-in-result", at, f"a part of type {shown(kind)} in a result")
        elif type(kind) is not str or kind not in _PARTS[role]:
            self.report.tell("part", at, f"a part of type {shown(kind)} in a message of role {role}")
        elif media is not None and media not in self.profile.media:
            self.report.tell("media", at, f"a part of type {shown(kind)}")
        elif media is not None:
            self._check_data(part, kind, at)
        elif kind in ("text", "refusal"):
            text = part.get(kind)
            if type(text) is not str:
                self.report.tell("part", (*at, kind), f"its {kind} is {kind_of(text)}")
            else:
                self._check_length(text, (*at, kind))

    def _check_data(self, part: Thing, kind: str, at: Path) -> None:
        media, key = _MEDIA[kind], _DATA[kind]
        check_data(self.report, self.profile, media, _get(part.get(kind), key), (*at, kind, key))

    def _check_length(self, text: str, at: Path) -> None:
        if self.profile.max_text is not None and len(text) > self.profile.max_text:
            self.report.tell("text-length", at, f"{len(text):,} characters, and at most {self.profile.max_text:,} go")

    def _check_calls(self, calls: Thing, role: str, at: Path) -> None:
        if role != "assistant":
            self.report.tell("tool-calls", at, f"calls in a message of role {role}")
        elif type(calls) is not list:
            self.report.tell("tool-calls", at, f"this is {kind_of(calls)}")
        elif not calls:
            self.report.tell("tool-calls-empty", at, "an empty list")
        else:
            self.ids.next_message()
            for index, call in enumerate(calls):
                self._check_call(call, (*at, index))

    def _check_call(self, call: Thing, at: Path) -> None:
        if type(call) is not dict:
            self.report.tell("call", at, f"this is {kind_of(call)}")
            return
        self.ids.check(call.get("id"), (*at, "id"))
        kind, text = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        body = call.get(kind)
        if type(body) is not dict:
            self.report.tell("call", (*at, kind), f"its {kind} is {kind_of(body)}")
            return
        if call.get("type") not in ("function", "custom"):
            self.report.tell("call", (*at, "type"), f"its type is {shown(call.get('type'))}")
        check_name(self.report, self.profile, body.get("name"), (*at, kind, "name"))
        if kind == "function":
            check_arguments(self.report, self.profile, body.get(text), (*at, kind, text))


def _get(value: Thing, key: str) -> Thing:
    return value.get(key) if type(value) is dict else None


# --- the messages together ---------------------------------------------------------------------------------------


def _check_pairing(report: Report, messages: list[Thing]) -> None:
    """Results stand right after the message that asked; their order among themselves is free (talon#172)."""
    ledger = Ledger(report)
    for index, message in enumerate(messages):
        role = _get(message, "role")
        if role == "tool":
            label = message.get("tool_call_id")
            if type(label) is str:
                ledger.answer(label, ("messages", index, "tool_call_id"), label)
            continue
        ledger.close()
        if role == "assistant":
            ledger.ask(_calls_of(message, ("messages", index, "tool_calls")))
    ledger.close()


def _calls_of(message: Thing, at: Path) -> list[tuple[str, Path]]:
    calls = [(_get(call, "id"), (*at, index)) for index, call in enumerate(items_of(message.get("tool_calls")))]
    return [(label, place) for label, place in calls if type(label) is str]


def _check_sequence(report: Report, profile: Profile, messages: list[Thing]) -> None:
    """Which role may be first, last, and beside its like. Servers that want a user first are those whose templates
    want the roles to alternate, too.
    """
    roles = [_get(message, "role") for message in messages]
    spoken = [index for index, role in enumerate(roles) if role not in _PREAMBLE]
    if profile.starts_with_user and spoken and roles[spoken[0]] != "user":
        report.tell("starts-with-user", ("messages", spoken[0]), f"the first role is {shown(roles[spoken[0]])}")
    if profile.starts_with_user and profile.merge:
        for index in range(1, len(roles)):
            if roles[index] in _SPEAKERS and roles[index] == roles[index - 1]:
                report.tell("same-role", ("messages", index), f"two messages of role {roles[index]} in a row")
    last = messages[-1] if messages else None
    if profile.ends_with_input and roles and roles[-1] == "assistant" and not _get(last, "prefix"):
        report.tell("ends-with-input", ("messages", len(roles) - 1), "the last message is the model's own")
