"""The contract of Anthropic Messages for a list of messages, as a table of rules and the checks that tell them.

What a rule asks of which server is a field of the profile; the rest holds for every server of the dialect. Block types
that are not known here are let be: the vendor adds to them. Not checked, because the list alone does not say it:
whether thinking blocks are unchanged, and whether the model that is asked made them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import frozen

from quiesce.protocol.dialects.checking import (
    DATA_RULE,
    LABEL_RULES,
    VALUE_RULES,
    Ids,
    Report,
    Thing,
    check_call_id,
    check_data,
    check_name,
    check_tools,
    check_values,
    is_blank,
    items_of,
    kind_of,
    shown,
    table,
)
from quiesce.protocol.dialects.ledger import PAIRING_RULES, Ledger
from quiesce.protocol.dialects.problem import Path, Problem, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from quiesce.protocol.dialects.profile import MediaKind, Profile

__all__ = ["RULES", "problems", "tool_problems"]

_SPEC: Final = "Anthropic OpenAPI, 2026-08"
_SKILL: Final = "anthropics/skills 9d2f1ae1, claude-api"
_MAX_MESSAGES: Final = 100_000

RULES: Final = table(
    *VALUE_RULES,
    *LABEL_RULES,
    *PAIRING_RULES,
    Rule("results-first", "results stand before all else", "dsh-plugin-subscriptions#22", "measured", True),
    Rule("result-role", "results stand in user messages", _SPEC, "spec", True),
    Rule("call-role", "tool_use stands in assistant messages only", "dsh-plugin-subscriptions#22", "service", True),
    Rule("results-only", "a program waits for these results: nothing else may stand beside them", _SKILL, "doc"),
    Rule("messages", "a list of objects is needed", _SPEC, "spec"),
    Rule("empty", "a request has something to answer", "Helicone/helicone#5257", "service"),
    Rule("too-many", "a request has at most 100,000 messages", _SPEC, "spec"),
    Rule("role", "a message has one of the roles user, assistant, system", _SPEC, "spec"),
    Rule("content", "content is a string or a list of blocks", _SPEC, "spec"),
    Rule("content-empty", "a message says something", "writingmate/chatlabs#35", "service"),
    Rule("block", "a block is an object with a type and the fields of that type", _SPEC, "spec"),
    Rule("block-role", "blocks of this type stand in messages of another role", _SPEC, "spec"),
    Rule("blank-text", "text must have more than white space", "NousResearch/hermes-agent#41985", "service"),
    Rule("input", "the input of a call is an object", _SPEC, "spec"),
    Rule("result-content", "a result has a string, or a list of text, image, document and the like", _SPEC, "spec"),
    Rule("error-empty", "an error result says what went wrong", "bytedance/trae-agent#230", "service"),
    Rule("signature", "thinking comes with its signature, redacted_thinking with its data", _SPEC, "spec"),
    Rule("text-after-call", "text stands before the calls of its message", "one recorded response", "measured"),
    Rule("open-end", "thinking leads to something", "tailcallhq/forgecode#3071, claude-code#11514", "service"),
    Rule("server-id", "ids of server tools look like srvtoolu_...", _SPEC, "spec"),
    Rule("server-pairing", "it stands in the message of its call, after it", "claude-code#67095", "service"),
    Rule("media", "this provider takes no such block", "Profile.media", "service"),
    DATA_RULE,
    Rule("media-in-result", "it goes behind all results", "Profile.images_in_results", "service"),
    Rule("text-length", "this provider takes no longer text", "Profile.max_text", "spec"),
    Rule("starts-with-user", "the first message is the user's", _SKILL, "doc"),
    Rule("same-role", "the roles alternate: merge it with the message before", f"{_SKILL}, error guide", "doc"),
    Rule("ends-with-input", "a user's message must be last", "Profile.ends_with_input", "service"),
)
"""Every rule of the dialect, by id."""

_ROLES: Final = ("user", "assistant", "system")
_MEDIA: Final[Mapping[str, MediaKind]] = {"image": "image", "document": "document"}
_STANDS_IN: Final[Mapping[str, tuple[str, str]]] = {
    "image": ("user", "block-role"),
    "document": ("user", "block-role"),
    "search_result": ("user", "block-role"),
    "tool_result": ("user", "result-role"),
    "tool_use": ("assistant", "call-role"),
    "server_tool_use": ("assistant", "block-role"),
    "thinking": ("assistant", "block-role"),
    "redacted_thinking": ("assistant", "block-role"),
}
"""Type of a block -> the only role whose messages may hold it, and the rule that says so. Text may stand anywhere."""
_IN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
_SEALED: Final[Mapping[str, tuple[str, ...]]] = {
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
"""What reasoning must come with, as strings; only the words of it may be empty (when they are not displayed)."""
_SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")
_SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


def problems(messages: Thing, profile: Profile) -> list[Problem]:
    """What the provider of `profile` would refuse in `messages`, in their order; empty if nothing. Never raises."""
    report = Report(RULES)
    found = items_of(messages)
    check_values(report, found or messages, ("messages",))
    if type(messages) not in (list, tuple):
        report.tell("messages", ("messages",), f"this is {kind_of(messages)}")
    elif not messages:
        report.tell("empty", ("messages",), "an empty list")
    if len(found) > _MAX_MESSAGES:
        report.tell("too-many", ("messages",), f"{len(found):,} messages")
    checker = _Checker(report, profile, Ids(report, profile))
    for index, message in enumerate(found):
        checker.check(message, ("messages", index))
    _check_pairing(report, found)
    _check_sequence(report, profile, found)
    return report.problems()


def tool_problems(tools: Thing, profile: Profile) -> list[Problem]:
    """What the provider of `profile` would refuse in a list of tools, for their names. Never raises."""
    return check_tools(tools, profile, _name_of)


def _name_of(tool: Thing) -> tuple[Thing, Path] | None:
    return None if tool.get("type") == "mcp_toolset" else (tool.get("name"), ("name",))  # that is named for its server


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
        role, content, place = message.get("role"), message.get("content"), (*at, "content")
        if type(role) is not str or role not in _ROLES:
            self.report.tell("role", (*at, "role"), f"the role is {shown(role)}")
            return
        if type(content) is str:
            self._check_text(content, place, rule="content-empty")
        elif type(content) is not list:
            self.report.tell("content", place, "it is missing" if content is None else f"this is {kind_of(content)}")
        elif not content:
            self.report.tell("content-empty", place, "an empty list")
        else:
            self._check_blocks(content, role, place)

    def _check_blocks(self, blocks: list[Thing], role: str, at: Path) -> None:
        self.ids.next_message()
        for index, block in enumerate(blocks):
            kind = _get(block, "type")
            if type(kind) is not str:
                self.report.tell("block", (*at, index), f"this is {kind_of(block)} without a type")
                continue
            wanted, rule = _STANDS_IN.get(kind, (role, ""))
            if role != wanted:
                self.report.tell(rule, (*at, index), f"a {kind} block in a message of role {role}")
            self._check_block(block, kind, (*at, index))
        self._check_order(blocks, at)
        last = _get(blocks[-1], "type")
        if role == "assistant" and type(last) is str and last in _SEALED:
            self.report.tell("open-end", (*at, len(blocks) - 1), f"a {last} block is last")
        _check_server_pairing(self.report, blocks, at)

    def _check_block(self, block: Thing, kind: str, at: Path) -> None:
        if kind == "text":
            self._check_text(block.get("text"), (*at, "text"), rule="blank-text")
        elif kind == "tool_use":
            self._check_call(block, at)
        elif kind == "tool_result":
            check_call_id(self.report, self.profile, block.get("tool_use_id"), (*at, "tool_use_id"))
            self._check_result(block, (*at, "content"))
        elif kind == "server_tool_use":
            self._check_server_id(block.get("id"), (*at, "id"))
        elif kind in _SEALED:
            self._check_sealed(block, kind, at)
        elif kind in _MEDIA and _MEDIA[kind] not in self.profile.media:
            self.report.tell("media", at, f"a block of type {kind}")
        elif kind in _MEDIA:
            self._check_data(block, kind, at)

    def _check_data(self, block: Thing, kind: str, at: Path) -> None:
        place = (*at, "source", "data")
        check_data(self.report, self.profile, _MEDIA[kind], _get(block.get("source"), "data"), place)

    def _check_text(self, text: Thing, at: Path, *, rule: str) -> None:
        if type(text) is not str:
            self.report.tell("block", at, f"its text is {kind_of(text)}")
        elif is_blank(text):
            self.report.tell(rule, at, f"the text is {shown(text)}")
        elif self.profile.max_text is not None and len(text) > self.profile.max_text:
            self.report.tell("text-length", at, f"{len(text):,} characters, and at most {self.profile.max_text:,} go")

    def _check_call(self, block: Thing, at: Path) -> None:
        self.ids.check(block.get("id"), (*at, "id"))
        check_name(self.report, self.profile, block.get("name"), (*at, "name"))
        if type(block.get("input")) is not dict:
            self.report.tell("input", (*at, "input"), f"the input is {kind_of(block.get('input'))}")

    def _check_server_id(self, call_id: Thing, at: Path) -> None:
        if type(call_id) is not str or _SERVER_ID.fullmatch(call_id) is None:
            self.report.tell("server-id", at, f"the id is {shown(call_id)}")

    def _check_sealed(self, block: Thing, kind: str, at: Path) -> None:
        for key in _SEALED[kind]:
            value = block.get(key)
            if type(value) is not str or (not value and key != "thinking"):
                found = "missing" if value is None else "empty" if value == "" else kind_of(value)
                self.report.tell("signature", (*at, key), f"its {key} is {found}")

    def _check_result(self, block: Thing, at: Path) -> None:
        content = block.get("content")
        if block.get("is_error") is True and not _says_something(content):
            self.report.tell("error-empty", at, "an error result without content")
        if content is not None and type(content) not in (str, list):
            self.report.tell("result-content", at, f"this is {kind_of(content)}")
        for index, part in enumerate(items_of(content)):
            self._check_part(part, (*at, index))

    def _check_part(self, part: Thing, at: Path) -> None:
        kind = _get(part, "type")
        if type(kind) is not str or kind not in _IN_RESULTS:
            self.report.tell("result-content", at, f"a block of type {shown(kind)} in a result")
        elif kind in _MEDIA and not self.profile.images_in_results:
            self.report.tell("media-in-result", at, f"a block of type {kind} in a result")
        elif kind in _MEDIA:
            self._check_data(part, kind, at)
        elif kind == "text" and (type(part.get("text")) is not str or not part["text"]):
            # white space alone is refused in messages; in results only the schema's minimum is known
            found = "empty" if part.get("text") == "" else kind_of(part.get("text"))
            self.report.tell("blank-text", (*at, "text"), f"the text is {found}")

    def _check_order(self, blocks: list[Thing], at: Path) -> None:
        """Text behind a call. The evidence is weak, so a transcript is not blamed for it, only a new request."""
        kinds = [_get(block, "type") for block in blocks]
        if "tool_use" in kinds and not self.profile.verbatim:
            for index in range(kinds.index("tool_use"), len(kinds)):
                if kinds[index] == "text":
                    self.report.tell("text-after-call", (*at, index), "text behind a tool_use block")


def _get(value: Thing, key: str) -> Thing:
    return value.get(key) if type(value) is dict else None


def _says_something(content: Thing) -> bool:
    if type(content) is str:
        return not is_blank(content)
    return any(_get(part, "type") != "text" or str(_get(part, "text")).strip() for part in items_of(content))


def _check_server_pairing(report: Report, blocks: list[Thing], at: Path) -> None:
    """The server's own tools: call and result stand in one message. A call alone may wait for the server to go on."""
    asked = set[str]()
    for index, block in enumerate(blocks):
        kind, call_id, answered = _get(block, "type"), _get(block, "id"), _get(block, "tool_use_id")
        if kind in _SERVER_CALLS and type(call_id) is str:
            asked.add(call_id)
        elif (
            type(kind) is str and kind.endswith("_tool_result") and (type(answered) is not str or answered not in asked)
        ):
            report.tell("server-pairing", (*at, index), f"a {kind} block whose call is not before it")


# --- the messages together ---------------------------------------------------------------------------------------


def _check_pairing(report: Report, messages: list[Thing]) -> None:
    """All results of a message stand at the start of the very next message, a user's. Their order is free."""
    ledger = Ledger(report)
    is_called = False
    for index, message in enumerate(messages):
        role, place = _get(message, "role"), ("messages", index, "content")
        blocks = items_of(_get(message, "content"))
        if role == "user":
            _check_results(report, ledger, blocks, place)
            if is_called and any(_get(block, "type") != "tool_result" for block in blocks):
                report.tell("results-only", place, "other blocks beside the results of calls that a program made")
        ledger.close()
        is_called = False
        if role == "assistant":
            ledger.ask(_calls_of(blocks, place))
            is_called = any(_is_from_program(block) for block in blocks)
    ledger.close()


def _check_results(report: Report, ledger: Ledger, blocks: list[Thing], at: Path) -> None:
    is_leading = True
    for index, block in enumerate(blocks):
        label = _get(block, "tool_use_id")
        if _get(block, "type") != "tool_result":
            is_leading = False
        elif type(label) is str:
            if not is_leading and ledger.is_due(label):
                report.tell(
                    "results-first", (*at, index), f"the result of call {shown(label)} stands behind another block"
                )
            ledger.answer(label, (*at, index, "tool_use_id"), label)


def _calls_of(blocks: list[Thing], at: Path) -> Iterable[tuple[str, Path]]:
    for index, block in enumerate(blocks):
        if _get(block, "type") == "tool_use" and type(block.get("id")) is str:
            yield block["id"], (*at, index)


def _is_from_program(block: Thing) -> bool:
    """Whether a program that the model runs on the server made this call."""
    kind = _get(_get(block, "caller"), "type")
    return _get(block, "type") == "tool_use" and type(kind) is str and kind.startswith("code_execution")


def _check_sequence(report: Report, profile: Profile, messages: list[Thing]) -> None:
    """Which role may be first, last, and beside its like."""
    roles = [_get(message, "role") for message in messages]
    spoken = [index for index, role in enumerate(roles) if role != "system"]
    if profile.starts_with_user and spoken and roles[spoken[0]] != "user":
        report.tell("starts-with-user", ("messages", spoken[0]), f"the first role is {shown(roles[spoken[0]])}")
    if profile.merge:
        for index in range(1, len(roles)):
            if roles[index] in ("user", "assistant") and roles[index] == roles[index - 1]:
                report.tell("same-role", ("messages", index), f"two messages of role {roles[index]} in a row")
    if profile.ends_with_input and roles and roles[-1] == "assistant":
        report.tell("ends-with-input", ("messages", len(roles) - 1), "the last message is the model's own")
