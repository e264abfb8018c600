"""What the checkers of all dialects share: collecting problems, the checks of plain values, ids, arguments and names.

They take any Python value for a message list and never raise: what is no JSON is a problem like any other. Nothing here
is used to make a list, so that a fault in the making is not repeated in the check.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, define

from quiesce.protocol.codec import load_json
from quiesce.protocol.dialects.problem import Path, Problem, Rule, position
from quiesce.protocol.errors import UnreadableLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from quiesce.protocol.dialects.profile import LabelRule, MediaKind, Profile

__all__ = [
    "ARGUMENT_RULES",
    "DATA_RULE",
    "LABEL_RULES",
    "TOOL_RULES",
    "VALUE_RULES",
    "Ids",
    "Report",
    "Thing",
    "check_arguments",
    "check_call_id",
    "check_data",
    "check_name",
    "check_tools",
    "check_values",
    "is_blank",
    "items_of",
    "kind_of",
    "shown",
    "table",
]

Thing: TypeAlias = Any
"""A part of a list that nobody has looked at yet."""

_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_SHOWN: Final = 60
_ANY: Final = r"\s\S"
"""The alphabet of a rule that takes every character."""
_SCALARS: Final = (bool, int, type(None))


def table(*rules: Rule) -> dict[str, Rule]:
    """Rules by their id."""
    return {rule.id: rule for rule in rules}


VALUE_RULES: Final = (
    Rule("lone-surrogate", "text must be valid Unicode", "anthropics/claude-code#68325", "service"),
    Rule("nul", "text without U+0000 is safe everywhere", "databases refuse it: LangAlpha#190", "measured"),
    Rule("number", "JSON has finite numbers only", "RFC 8259, section 6", "spec"),
    Rule("not-json", "a request is JSON", "RFC 8259", "spec"),
)
"""The rules of single values, the same for every provider."""

LABEL_RULES: Final = (
    Rule("call-id", "results find their calls by it", "Profile.call_id", "spec"),
    Rule(
        "call-id-unique", "a result must find one call", "NousResearch/hermes-agent#58327, claude-code#20901", "service"
    ),
    Rule("tool-name", "a call names its tool", "Profile.tool_name", "spec"),
)
"""The rules of ids and names that the profile spells out."""

ARGUMENT_RULES: Final = (
    Rule("arguments", "arguments are JSON text", "OpenAI OpenAPI 2.3.0", "spec"),
    Rule("arguments-object", "the text of an object is needed", "MoonshotAI/kimi-cli#1171, vLLM, SGLang", "service"),
)
"""The rules of calls whose arguments are text."""

DATA_RULE: Final = Rule("data-length", "this provider takes no longer media", "Profile.max_media", "spec")
"""The rule of media that come with the request."""

TOOL_RULES: Final = table(
    Rule("tools", "a list of objects is needed", "schemas of all three dialects", "spec"),
    Rule("tool-name", "a tool has a name", "Profile.tool_name", "spec"),
    Rule("tool-name-unique", "the names of the tools are distinct", "calls would be ambiguous", "own"),
)
"""The rules of a list of tools."""


@define
class Report:
    """Collects the problems of one list, by the rules of its dialect."""

    rules: Mapping[str, Rule]
    _found: list[tuple[Path, Problem]] = Factory(list)

    def tell(self, rule: str, at: Path, found: str) -> None:
        """`found` stands at `at` and breaks `rule`. It must be one line; see `shown`."""
        broken = self.rules[rule]
        words = f"{found}; {broken.wants}"
        self._found.append((at, Problem(position(at), rule, words, broken.about_pairing)))

    def problems(self) -> list[Problem]:
        """All that was told, in the order of the messages."""
        return [problem for _, problem in sorted(self._found, key=lambda item: _message(item[0]))]


def kind_of(value: Thing) -> str:
    """What `value` is as JSON: `a list`."""
    return _KINDS.get(type(value), "no JSON value")


def shown(value: Thing) -> str:
    """`value` for a sentence: a string in quotes, short, in printable ASCII; of anything else its kind."""
    if type(value) is not str:
        return kind_of(value)
    return ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}... ({len(value)} characters)"


def is_blank(text: str) -> bool:
    """Whether nothing but white space is in it."""
    return not text.strip()


def check_values(report: Report, value: Thing, at: Path) -> None:
    """Tell every string, key or number in `value` that JSON or a provider has no place for."""
    seen: set[int] = set()
    waiting: list[tuple[Thing, Path]] = [(value, at)]
    while waiting:
        item, place = waiting.pop()
        if type(item) is str:
            _check_text(report, item, place)
        elif type(item) is float:
            if not math.isfinite(item):
                report.tell("number", place, f"{item} is no JSON number")
        elif type(item) is dict or type(item) is list:
            if id(item) not in seen:  # no JSON holds itself, but a Python value may
                seen.add(id(item))
                waiting += reversed(list(_inside(report, item, place)))
        elif type(item) not in _SCALARS:
            report.tell("not-json", place, f"a Python {type(item).__name__} stands here")


def _inside(report: Report, item: Thing, place: Path) -> Iterable[tuple[Thing, Path]]:
    if type(item) is list:
        return [(inner, (*place, index)) for index, inner in enumerate(item)]
    for key in item:
        if type(key) is str:
            _check_text(report, key, (*place, key))
        else:
            report.tell("not-json", place, f"a key is {kind_of(key)}, and keys are strings")
    return [(inner, (*place, key if type(key) is str else "?")) for key, inner in item.items()]


def _check_text(report: Report, text: str, place: Path) -> None:
    if "\0" in text:
        report.tell("nul", place, "the text holds U+0000")
    if not text.isascii() and _SURROGATE.search(text):
        report.tell("lone-surrogate", place, "the text holds a lone surrogate")


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


# --- ids and names -----------------------------------------------------------------------------------------------


@define
class Ids:
    """The call ids of one list: each fits the profile, and stands once in its message, or in the whole list."""

    report: Report
    profile: Profile
    _used: set[str] = Factory(set)

    def next_message(self) -> None:
        """The calls that come are those of another message."""
        if not self.profile.unique_call_ids:
            self._used.clear()

    def check(self, call_id: Thing, at: Path) -> None:
        """The id of a call."""
        check_call_id(self.report, self.profile, call_id, at)
        if type(call_id) is str and call_id in self._used:
            self.report.tell("call-id-unique", at, f"the id {shown(call_id)} stands at a call before this one")
        elif type(call_id) is str:
            self._used.add(call_id)


def check_call_id(report: Report, profile: Profile, call_id: Thing, at: Path) -> None:
    """Tell an id that the profile does not take, at a call or at a result."""
    if type(call_id) is not str or not profile.call_id.allows(call_id):
        report.tell("call-id", at, f"{_refused(call_id)}, and {profile.name} takes {_taken(profile.call_id)}")


def check_name(report: Report, profile: Profile, name: Thing, at: Path) -> None:
    """Tell a tool's name that the profile does not take."""
    if type(name) is not str or not profile.tool_name.allows(name):
        report.tell("tool-name", at, f"{_refused(name)}, and {profile.name} takes {_taken(profile.tool_name)}")


def _refused(label: Thing) -> str:
    return "it is missing" if label is None else f"it is {shown(label)}"


def _taken(rule: LabelRule) -> str:
    """What a rule of labels allows, in words."""
    least, most = rule.min_length, rule.max_length
    size = f"{least} or more" if most is None else f"{most}" if most == least else f"{least} to {most}"
    return f"{size} characters" if rule.alphabet == _ANY else f"{size} characters of [{rule.alphabet}]"


def check_arguments(report: Report, profile: Profile, arguments: Thing, at: Path) -> None:
    """Tell the argument text of a call that is none, or does not parse where it must."""
    if type(arguments) is not str:
        report.tell("arguments", at, f"the arguments are {kind_of(arguments)}")
    elif profile.arguments == "object" and type(_parsed(arguments)) is not dict:
        report.tell("arguments-object", at, f"the arguments are {shown(arguments)}")


def check_data(report: Report, profile: Profile, kind: MediaKind, data: Thing, at: Path) -> None:
    """Tell the text of an image, a document or audio that is too long."""
    most = profile.max_media.of(kind)
    if type(data) is str and most is not None and len(data) > most:
        report.tell("data-length", at, f"{len(data):,} characters, and at most {most:,} of an {kind} go")


def _parsed(text: str) -> Thing:
    try:
        return load_json(text)
    except UnreadableLog:
        return None


def check_tools(tools: Thing, profile: Profile, name_of: Callable[[Thing], tuple[Thing, Path] | None]) -> list[Problem]:
    """What is wrong with a list of tools, and then with their names. `name_of` a tool gives its name, and where in the
    tool that stands; None for one that has none to check.
    """
    report = Report(TOOL_RULES)
    if type(tools) not in (list, tuple):
        report.tell("tools", ("tools",), f"this is {kind_of(tools)}")
    names: list[tuple[Thing, Path]] = []
    for index, tool in enumerate(items_of(tools)):
        if type(tool) is not dict:
            report.tell("tools", ("tools", index), f"this is {kind_of(tool)}")
        elif (found := name_of(tool)) is not None:
            names.append((found[0], ("tools", index, *found[1])))
    return report.problems() + _check_names(names, profile)


def _check_names(names: Iterable[tuple[Thing, Path]], profile: Profile) -> list[Problem]:
    report, used = Report(TOOL_RULES), set[str]()
    for name, at in names:
        check_name(report, profile, name, at)
        if type(name) is str and name in used:
            report.tell("tool-name-unique", at, f"the name {shown(name)} stands at a tool before this one")
        elif type(name) is str:
            used.add(name)
    return report.problems()


def items_of(value: Thing) -> list[Thing]:
    """The items of a list or tuple; of anything else none."""
    return list(value) if type(value) in (list, tuple) else []


# --- positions ---------------------------------------------------------------------------------------------------


def _message(at: Path) -> int:
    """Which message of the list `at` is in."""
    return next((step for step in at if type(step) is int), -1)
