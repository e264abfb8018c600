"""The checkers on the cases from public bug reports: each is found out, at its place, and the valid ones are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.dialects.anthropic import contract as anthropic
from quiesce.protocol.dialects.chat import contract as chat
from quiesce.protocol.dialects.responses import contract as responses

CASES = Path(__file__).parents[2] / "cases"
CONTRACTS = {"chat": chat, "responses": responses, "anthropic": anthropic}
INDEX = [case for case in json.loads((CASES / "index.json").read_text()) if case["format"] in CONTRACTS]
NAMES = [case["file"] for case in INDEX]

# Under each file the profile that it is checked for, and what is told.
FOUND = {
    "B02-no-output.responses.json": ("openai-responses", ["input[1] unanswered"]),
    "B04-tail.anthropic.json": ("any-anthropic", ["messages[1].content[0] unanswered"]),
    "B04-middle.anthropic.json": ("anthropic", ["messages[1].content[0] unanswered"]),
    "B04-disjoint.anthropic.json": (
        "anthropic",
        ["messages[1].content[0] unanswered", "messages[2].content[0].tool_use_id orphan"],
    ),
    "B10-two-user-messages.anthropic.json": ("anthropic", ["messages[3] same-role"]),
    "B12-as-sent-by-bug.anthropic.json": (
        "anthropic",
        ["messages[1].content[0] unanswered", "messages[1].content[1] unanswered"],
    ),
    "B16-split.anthropic.json": (
        "anthropic",
        ["messages[1].content[1] unanswered", "messages[3].content[0].tool_use_id misplaced", "messages[3] same-role"],
    ),
    "B18-interleaved-user.chat.json": (
        "openai",
        ["messages[1].tool_calls[0] unanswered", "messages[3].tool_call_id misplaced"],
    ),
    "B20-text-between.anthropic.json": ("anthropic", ["messages[2].content[2] results-first"]),
    "B20-tool-use-in-user.anthropic.json": (
        "anthropic",
        [
            "messages[1].content[0] call-role",
            "messages[1] same-role",
            "messages[2].content[0].tool_use_id orphan",
            "messages[2] same-role",
        ],
    ),
    "B26-tombstones.chat.json": (
        "openai",
        [
            "messages[1].tool_calls[1] unanswered",
            "messages[3].tool_call_id duplicate",
            "messages[4].tool_call_id duplicate",
        ],
    ),
    "B28-orphan-after-filter.anthropic.json": (
        "anthropic",
        ["messages[1].content[0].tool_use_id orphan", "messages[1] same-role"],
    ),
    "B30-two-outcomes.chat.json": ("openai", ["messages[3].tool_call_id duplicate"]),
    "B32-constant-id.chat.json": (
        "openai",
        [f"messages[{index}].tool_calls[0].id call-id-unique" for index in (3, 5, 7)],
    ),
    "B32-recurring.responses.json": ("openai-responses", ["input[4].call_id call-id-unique"]),
    "B34-empty.chat.json": ("deepseek", ["messages[1].tool_calls[0].function.arguments arguments-object"]),
    "B38-blank-name.chat.json": ("openai", ["messages[1].tool_calls[0].function.name tool-name"]),
    "B38-orphan-output.responses.json": ("openai-responses", ["input[1].call_id orphan"]),
    "B42-empty-array.chat.json": ("openai", ["messages[1].tool_calls tool-calls-empty"]),
    "B44-kimi-id.anthropic.json": (
        "anthropic",
        ["messages[1].content[0].id call-id", "messages[2].content[0].tool_use_id call-id"],
    ),
    "B44-collide.anthropic.json": (
        "anthropic",
        [
            "messages[1].content[0].id call-id",
            "messages[1].content[1].id call-id",
            "messages[2].content[0].tool_use_id call-id",
            "messages[2].content[1].tool_use_id call-id",
        ],
    ),
    "B48-unsigned.anthropic.json": (
        "anthropic",
        ["messages[1].content[0].signature signature", "messages[1].content[1].text blank-text"],
    ),
    "B48-interleaved.anthropic.json": ("anthropic", []),
    "B52-empty-error.anthropic.json": ("anthropic", ["messages[2].content[0].content error-empty"]),
    "B68-far-repair.anthropic.json": (
        "anthropic",
        [
            "messages[1].content[0] unanswered",
            "messages[4].content[0].tool_use_id misplaced",
            "messages[4].content[1].tool_use_id duplicate",
        ],
    ),
    "B64-overlap.responses.json": ("openai-responses", ["input[1] unanswered"]),
}


@pytest.mark.parametrize("case", INDEX, ids=NAMES)
def test_a_case_is_found_out_at_its_place(case):
    name, expected = FOUND[case["file"]]
    messages = json.loads((CASES / case["file"]).read_text())
    found = CONTRACTS[case["format"]].problems(messages, PROFILES[name])
    assert [f"{problem.position} {problem.rule}" for problem in found] == expected
    assert bool(expected) is not case["valid"]


def test_names_of_tools():
    tools = json.loads((CASES / "B50-names.tools.json").read_text())
    found = chat.tool_problems(tools, PROFILES["openai"])
    assert [problem.position for problem in found] == [f"tools[{index}].function.name" for index in range(3)]
