"""The contract of OpenAI Responses for a list of input items, as a table of rules and the checks that tell them.

What a rule asks of which server is a field of the profile; the rest holds for every server of the dialect. Item types
that are not known here are let be: the vendor adds to them. Not checked, because the list alone does not say it:
whether a function call that kept its server `id` has lost a reasoning item that it was made with.
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
_MAX_ID: Final = 64

RULES: Final = table(
    *VALUE_RULES,
    *LABEL_RULES,
    *ARGUMENT_RULES,
    *PAIRING_RULES,
    Rule("items", "a list of objects is needed", _SPEC, "spec"),
    Rule("empty", "a request has something to answer", "pydantic/pydantic-ai#3470", "service"),
    Rule("item-type", "an item has a type, or is a message with a role", _SPEC, "spec"),
    Rule("role", "a message has one of the roles user, assistant, system, developer", _SPEC, "spec"),
    Rule("content", "content is a string or a list of parts that is not empty", _SPEC, "spec"),
    Rule("part", "each role has its own parts of content", f"{_SPEC}, InputItem", "spec"),
    Rule("media", "this provider takes no such part", "Profile.media", "service"),
    Rule("media-in-result", "it goes to a user message behind the whole batch", "Profile.images_in_results", "service"),
    Rule("output", "an output is a string, or a list of input_text, input_image, input_file", _SPEC, "spec"),
    Rule("text-length", "this provider takes no longer text", "Profile.max_text; FunctionCallOutputItemParam", "spec"),
    DATA_RULE,
    Rule("item-id", "an item's id has at most 64 characters", "github/app#409", "service"),
    Rule("reasoning-alone", "the item that reasoning led to must follow it", "vercel/ai#7099", "service"),
    Rule("starts-with-user", "the first message is the user's", "Profile.starts_with_user", "service"),
    Rule("same-role", "the roles alternate, each message merged with its like", "gateways to Chat", "service"),
    Rule("ends-with-input", "a user's message or a result must be last", "Profile.ends_with_input", "service"),
)
"""Every rule of the dialect, by id."""

_OUTPUTS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""A call that the client always answers -> the type of its answer. Results bind by `call_id`."""

_TEXTUAL: Final = frozenset(_OUTPUTS.values())
_INPUT_ITEMS: Final = _TEXTUAL | {"computer_call_output", "shell_call_output", "apply_patch_call_output"}
"""What answers calls. Those that are no text belong to tools of the vendor, which may run on the server as well, so
that their calls are not taken to account here."""

_MEDIA: Final[Mapping[str, MediaKind]] = {"input_image": "image", "input_audio": "audio", "input_file": "document"}
_DATA: Final[Mapping[str, MediaKind]] = {"image_url": "image", "file_data": "document"}
_INPUT: Final = frozenset({"input_text", *_MEDIA})
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "system": _INPUT,
    "developer": _INPUT,
    "user": _INPUT,
    "assistant": frozenset({"output_text", "refusal"}),
}
_PREAMBLE: Final = ("system", "developer")


def problems(items: Thing, profile: Profile, *, continued: bool = False) -> list[Problem]:
    """What the provider of `profile` would refuse in `items`, in their order; empty if nothing. Never raises.

    `continued`: the server holds what came before (`previous_response_id`, a conversation), so that an output may have
    its call there (agno-agi/agno#9372) and the list may start with anything.
    """
    report = Report(RULES)
    check_values(report, items_of(items) or items, ("input",))
    if type(items) not in (list, tuple):
        report.tell("items", ("input",), f"this is {kind_of(items)}")
    elif not items and not continued:
        report.tell("empty", ("input",), "an empty list")
    checker = _Checker(report, profile, Ids(report, profile))
    for index, item in enumerate(items_of(items)):
        checker.check(item, ("input", index))
    _check_pairing(report, profile, items_of(items), continued=continued)
    _check_reasoning(report, items_of(items))
    _check_sequence(report, profile, items_of(items), continued=continued)
    return report.problems()


def tool_problems(tools: Thing, profile: Profile) -> list[Problem]:
    """What the provider of `profile` would refuse in a list of tools, for their names. Never raises."""
    return check_tools(tools, profile, _name_of)


def _name_of(tool: Thing) -> tuple[Thing, Path] | None:
    own = tool.get("type") not in ("function", "custom")  # the server's own tools go by their type
    return None if own else (tool.get("name"), ("name",))


# --- one item ----------------------------------------------------------------------------------------------------


@frozen
class _Checker:
    """Checks item after item, each by itself."""

    report: Report
    profile: Profile
    ids: Ids

    def check(self, item: Thing, at: Path) -> None:
        """One item of the list."""
        if type(item) is not dict:
            self.report.tell("items", at, f"this is {kind_of(item)}")
            return
        kind = _type_of(item)
        if type(item.get("id")) is str and len(item["id"]) > _MAX_ID:
            self.report.tell("item-id", (*at, "id"), f"the id is {shown(item['id'])}")
        if type(kind) is not str:
            self.report.tell("item-type", at, "neither type nor role" if kind is None else f"its type is {shown(kind)}")
        elif kind == "message":
            self._check_message(item, at)
        elif kind in _OUTPUTS:
            self._check_call(item, kind, at)
        elif kind in _INPUT_ITEMS:
            check_call_id(self.report, self.profile, item.get("call_id"), (*at, "call_id"))
            if item.get("name") is not None:
                check_name(self.report, self.profile, item["name"], (*at, "name"))
            if kind in _TEXTUAL:
                self._check_output(item.get("output"), (*at, "output"))
        if not _is_of_model(item):
            self.ids.next_message()

    def _check_message(self, item: Thing, at: Path) -> None:
        role, content = item.get("role"), item.get("content")
        if type(role) is not str or role not in _PARTS:
            self.report.tell("role", (*at, "role"), f"the role is {shown(role)}")
        elif type(content) is str:
            self._check_length(content, (*at, "content"))
        elif type(content) is not list or not content:
            found = "an empty list" if content == [] else f"this is {kind_of(content)}"
            self.report.tell("content", (*at, "content"), found)
        else:
            for index, part in enumerate(content):
                self._check_part(part, role, (*at, "content", index))

    def _check_part(self, part: Thing, role: str, at: Path) -> None:
        kind = _get(part, "type")
        if type(kind) is not str or kind not in _PARTS[role]:
            self.report.tell("part", at, f"a part of type {shown(kind)} in a message of role {role}")
        elif kind in _MEDIA and _MEDIA[kind] not in self.profile.media:
            self.report.tell("media", at, f"a part of type {shown(kind)}")
        elif kind in _MEDIA:
            self._check_data(part, at)
        else:
            self._check_text(part, "refusal" if kind == "refusal" else "text", at)

    def _check_call(self, item: Thing, kind: str, at: Path) -> None:
        self.ids.check(item.get("call_id"), (*at, "call_id"))
        check_name(self.report, self.profile, item.get("name"), (*at, "name"))
        if kind == "function_call":
            check_arguments(self.report, self.profile, item.get("arguments"), (*at, "arguments"))

    def _check_output(self, output: Thing, at: Path) -> None:
        if type(output) is str:
            self._check_length(output, at)
        elif type(output) is not list:
            self.report.tell("output", at, "it is missing" if output is None else f"this is {kind_of(output)}")
        for index, part in enumerate(items_of(output)):
            kind, place = _get(part, "type"), (*at, index)
            if type(kind) is not str or kind not in _INPUT or kind == "input_audio":
                self.report.tell("output", place, f"a part of type {shown(kind)}")
            elif kind in _MEDIA and not self.profile.images_in_results:
                self.report.tell("media-in-result", place, f"a part of type {shown(kind)} in a result")
            elif kind in _MEDIA:
                self._check_data(part, place)
            else:
                self._check_text(part, "text", place)

    def _check_text(self, part: Thing, key: str, at: Path) -> None:
        if type(part.get(key)) is str:
            self._check_length(part[key], (*at, key))
        else:
            self.report.tell("part", (*at, key), f"its {key} is {kind_of(part.get(key))}")

    def _check_length(self, text: str, at: Path) -> None:
        if self.profile.max_text is not None and len(text) > self.profile.max_text:
            self.report.tell("text-length", at, f"{len(text):,} characters, and at most {self.profile.max_text:,} go")

    def _check_data(self, part: Thing, at: Path) -> None:
        for key, kind in _DATA.items():
            check_data(self.report, self.profile, kind, part.get(key), (*at, key))


def _get(value: Thing, key: str) -> Thing:
    return value.get(key) if type(value) is dict else None


def _type_of(item: Thing) -> Thing:
    """The type of an item; a message need not name it."""
    kind = _get(item, "type")
    return "message" if kind is None and _get(item, "role") is not None else kind


def _is_of_model(item: Thing) -> bool:
    """Whether it may be a part of a model's answer, rather than what the user or a tool said."""
    kind = _type_of(item)
    return _get(item, "role") == "assistant" if kind == "message" else type(kind) is str and kind not in _INPUT_ITEMS


# --- the items together ------------------------------------------------------------------------------------------


def _check_pairing(report: Report, profile: Profile, items: list[Thing], *, continued: bool) -> None:
    """Results bind by `call_id`, and may stand anywhere after their calls. Servers that turn the items into Chat
    messages (which want a user first, too) want them before any message (oh-my-pi#5850).
    """
    referring = any(_type_of(item) == "item_reference" for item in items)
    ledger = Ledger(report, may_be_elsewhere=continued or referring)
    asked: list[tuple[str, Path]] = []
    for index, item in enumerate(items):
        kind, label = _type_of(item), _get(item, "call_id")
        if asked and not _is_of_model(item):
            ledger.ask(asked)
            asked = []
        if type(kind) is str and type(label) is str and kind in _OUTPUTS:
            asked.append((f"{_OUTPUTS[kind]} {label}", ("input", index)))
        elif type(kind) is str and type(label) is str and kind in _TEXTUAL:
            ledger.answer(f"{kind} {label}", ("input", index, "call_id"), label)
        elif kind == "message" and profile.starts_with_user:
            ledger.ask(asked)
            asked = []
            ledger.close()
    ledger.ask(asked)
    ledger.close()


def _check_reasoning(report: Report, items: list[Thing]) -> None:
    for index, item in enumerate(items):
        if _type_of(item) == "reasoning" and (index + 1 == len(items) or not _is_of_model(items[index + 1])):
            report.tell("reasoning-alone", ("input", index), "a reasoning item that nothing of the model follows")


def _check_sequence(report: Report, profile: Profile, items: list[Thing], *, continued: bool) -> None:
    """Which role may be first, last, and beside its like."""
    roles = [_get(item, "role") if _type_of(item) == "message" else None for item in items]
    spoken = [index for index, role in enumerate(roles) if role not in _PREAMBLE]
    if profile.starts_with_user and not continued and spoken and roles[spoken[0]] != "user":
        report.tell("starts-with-user", ("input", spoken[0]), "the first item is not the user's")
    if profile.starts_with_user and profile.merge:
        for index in range(1, len(roles)):
            if roles[index] in ("user", "assistant") and roles[index] == roles[index - 1]:
                report.tell("same-role", ("input", index), f"two messages of role {roles[index]} in a row")
    if profile.ends_with_input and items and _is_of_model(items[-1]):
        report.tell("ends-with-input", ("input", len(items) - 1), "the last item is the model's own")
