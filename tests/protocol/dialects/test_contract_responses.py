"""The checker of Responses: each rule has a list that breaks it alone, and the nearest list that keeps it."""

from __future__ import annotations

import math

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.dialects.profile import MediaLimits
from quiesce.protocol.dialects.responses.contract import RULES, problems, tool_problems

OPENAI = PROFILES["openai-responses"]
ANY = PROFILES["any-responses"]
STRICT = PROFILES["strict-responses"]
SHORT = evolve(OPENAI, max_text=3)
SMALL = evolve(OPENAI, max_media=MediaLimits(image=30))
PARSING = evolve(OPENAI, arguments="object")
PLAIN = evolve(OPENAI, media=frozenset())
TEXTUAL = evolve(OPENAI, images_in_results=False)
FIRST = evolve(OPENAI, starts_with_user=True)
LAST = evolve(OPENAI, ends_with_input=True)

GO = {"role": "user", "content": "go"}
OK = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


def call(call_id="c1", **more):
    return {"type": "function_call", "call_id": call_id, "name": "run", "arguments": "{}", **more}


def output(call_id="c1", value="done"):
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def user(content):
    return {"role": "user", "content": content}


def part(kind, **more):
    return {"type": kind, **more}


CASES = [
    # rule, profile, a list that breaks it and no other, where, the nearest list that keeps it
    ("lone-surrogate", OPENAI, [user("\udfff")], "input[0].content", [user("\U0001f600")]),
    ("nul", OPENAI, [user("a\0b")], "input[0].content", [user("a\x01b")]),
    ("number", OPENAI, [{**GO, "x": math.nan}], "input[0].x", [{**GO, "x": -0.0}]),
    ("not-json", OPENAI, [{**GO, "x": b""}], "input[0].x", [{**GO, "x": ""}]),
    ("items", OPENAI, [GO, "x"], "input[1]", [GO]),
    ("items", OPENAI, "go", "input", [GO]),
    ("empty", ANY, [], "input", [GO]),
    ("item-type", OPENAI, [{"content": "x"}], "input[0]", [GO]),
    ("item-type", OPENAI, [{"type": 1, "role": "user", "content": "x"}], "input[0]", [{"type": "program", "id": "p"}]),
    ("role", OPENAI, [{"role": "tool", "content": "x"}], "input[0].role", [{"role": "system", "content": "x"}]),
    ("content", OPENAI, [user(None)], "input[0].content", [user("")]),
    ("content", OPENAI, [user([])], "input[0].content", [user([part("input_text", text="")])]),
    ("part", OPENAI, [user([part("output_text", text="x")])], "input[0].content[0]", [OK]),
    ("part", OPENAI, [user([part("input_text")])], "input[0].content[0].text", [user([part("input_text", text="x")])]),
    ("media", PLAIN, [user([IMAGE])], "input[0].content[0]", [user("x")]),
    (
        "media-in-result",
        TEXTUAL,
        [call(), output(value=[IMAGE])],
        "input[1].output[0]",
        [call(), output(), user([IMAGE])],
    ),
    ("output", OPENAI, [call(), output(value=None)], "input[1].output", [call(), output(value="")]),
    ("output", OPENAI, [call(), output(value=[part("text")])], "input[1].output[0]", [call(), output(value=[IMAGE])]),
    ("text-length", SHORT, [call(), output(value="four")], "input[1].output", [call(), output(value="one")]),
    (
        "data-length",
        OPENAI,
        [user([part("input_image", image_url="x" * 20_971_521)])],
        "input[0].content[0].image_url",
        [user([part("input_image", image_url="x" * 20_971_520)])],
    ),
    (
        "data-length",
        OPENAI,
        [user([part("input_file", file_data="x" * 73_400_321)])],
        "input[0].content[0].file_data",
        [user([part("input_file", file_data="x" * 73_400_320)])],
    ),
    (
        "data-length",
        SMALL,
        [call(), output(value=[part("input_image", image_url="x" * 31)])],
        "input[1].output[0].image_url",
        [call(), output(value=[part("input_image", image_url="x" * 30)])],
    ),
    ("item-id", OPENAI, [{**OK, "id": "m" * 65}, GO], "input[0].id", [{**OK, "id": "m" * 64}, GO]),
    ("reasoning-alone", OPENAI, [GO, THOUGHT], "input[1]", [GO, THOUGHT, OK]),
    ("reasoning-alone", OPENAI, [THOUGHT, GO], "input[0]", [THOUGHT, THOUGHT, call(), output(), GO]),
    ("call-id", OPENAI, [{**call(), "call_id": None}], "input[0].call_id", [call(), output()]),
    ("call-id-unique", OPENAI, [call(), output(), call(), output()], "input[2].call_id", [call(), output()]),
    ("call-id-unique", ANY, [call(), call(), output(), output()], "input[1].call_id", [call(), output()] * 2),
    ("tool-name", OPENAI, [call(name="a/b"), output()], "input[0].name", [call(name="a" * 128), output()]),
    ("tool-name", OPENAI, [call(), {**output(), "name": ""}], "input[1].name", [call(), {**output(), "name": None}]),
    ("arguments", OPENAI, [call(arguments=None), output()], "input[0].arguments", [call(arguments=""), output()]),
    ("arguments-object", PARSING, [call(arguments=""), output()], "input[0].arguments", [call(), output()]),
    ("unanswered", OPENAI, [GO, call(), GO], "input[1]", [GO, call(), output(), GO]),
    (
        "unanswered",
        OPENAI,
        [{"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"}],
        "input[0]",
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "x"},
        ],
    ),
    ("orphan", OPENAI, [GO, output()], "input[1].call_id", [GO, call(), output()]),
    ("orphan", OPENAI, [output(), call(), output()], "input[0].call_id", [call(), output()]),
    ("duplicate", OPENAI, [call(), output(), output()], "input[2].call_id", [call(), output()]),
    ("starts-with-user", FIRST, [OK, GO], "input[0]", [{"role": "developer", "content": "s"}, GO]),
    ("same-role", FIRST, [GO, GO], "input[1]", [GO, OK, GO]),
    ("ends-with-input", LAST, [GO, OK], "input[1]", [GO, call(), output()]),
]
TOGETHER = {"misplaced"}
"""Rules that no list breaks alone: a result that stands apart leaves its call unanswered."""

NAMES = [f"{number}-{case[0]}" for number, case in enumerate(CASES)]


@pytest.mark.parametrize(("rule", "profile", "broken", "where", "kept"), CASES, ids=NAMES)
def test_a_rule_is_told_alone_and_at_its_place(rule, profile, broken, where, kept):
    assert [(problem.rule, problem.position) for problem in problems(broken, profile)] == [(rule, where)]


@pytest.mark.parametrize(("rule", "profile", "broken", "where", "kept"), CASES, ids=NAMES)
def test_the_nearest_list_keeps_it(rule, profile, broken, where, kept):
    assert problems(kept, profile) == []


def test_every_rule_is_among_them():
    assert {case[0] for case in CASES} | TOGETHER == set(RULES)


APART = [GO, call(), GO, OK, output()]


def test_a_result_may_stand_apart_from_its_call():
    assert problems(APART, OPENAI) == []


def test_where_items_become_chat_messages_it_may_not():
    found = problems([GO, call(), {**GO, "role": "system"}, output()], FIRST)
    assert [(problem.rule, problem.position) for problem in found] == [
        ("unanswered", "input[1]"),
        ("misplaced", "input[3].call_id"),
    ]


def test_a_result_is_of_the_latest_call_with_its_id():
    found = problems([call(), GO, call(), output()], ANY)
    assert [(problem.rule, problem.position) for problem in found] == [("unanswered", "input[0]")]


def test_what_the_server_holds_is_no_orphan():
    assert problems([output(), GO], FIRST, continued=True) == []


def test_what_is_referred_to_may_be_a_call():
    assert problems([{"type": "item_reference", "id": "fc_1"}, output()], OPENAI) == []


def test_nothing_is_enough_where_the_server_holds_what_came_before():
    assert problems([], FIRST, continued=True) == []


def test_one_result_too_many_is_told_even_if_the_server_holds_more():
    assert [problem.rule for problem in problems([call(), output(), output()], OPENAI, continued=True)] == ["duplicate"]


def test_calls_of_the_vendors_own_tools_are_not_taken_to_account():
    assert problems([{"type": "shell_call", "call_id": "s1"}, {"type": "web_search_call", "id": "w"}], OPENAI) == []


def test_ids_of_their_results_are_measured_all_the_same():
    (problem,) = problems([{"type": "shell_call_output", "call_id": "s" * 65, "output": []}], OPENAI)
    assert (problem.rule, problem.position) == ("call-id", "input[0].call_id")


@pytest.mark.parametrize(("call_id", "fits"), [("a" * 64, True), ("a" * 65, False), ("", False)])
def test_an_id_that_does_not_fit_is_told_at_the_call_and_at_its_result(call_id, fits):
    found = problems([call(call_id), output(call_id)], OPENAI)
    expected = [("call-id", "input[0].call_id"), ("call-id", "input[1].call_id")]
    assert [(problem.rule, problem.position) for problem in found] == ([] if fits else expected)


ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters(), max_size=3) | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "call_id", "id", "output", "name", "arguments", "text"]),
            inner
            | st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "user", "input_text"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(ANYTHING)
def test_it_never_raises(value):
    for profile in (OPENAI, STRICT, ANY):
        assert all("\n" not in str(problem) for problem in problems(value, profile))
        tool_problems(value, profile)


# --- tools -------------------------------------------------------------------------------------------------------


def test_names_of_tools_fit_and_are_distinct():
    tools = [{"type": "function", "name": name} for name in ("a", "a.b", "a", "n" * 128)]
    assert [(problem.rule, problem.position) for problem in tool_problems(tools, OPENAI)] == [
        ("tool-name", "tools[1].name"),
        ("tool-name-unique", "tools[2].name"),
    ]


def test_the_servers_own_tools_need_no_name():
    assert tool_problems([{"type": "web_search"}], OPENAI) == []


@pytest.mark.parametrize(("tools", "where"), [({}, "tools"), ([None], "tools[0]")])
def test_tools_are_a_list_of_objects(tools, where):
    assert [(problem.rule, problem.position) for problem in tool_problems(tools, OPENAI)] == [("tools", where)]
