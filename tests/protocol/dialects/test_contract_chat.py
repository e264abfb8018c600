"""The checker of Chat Completions: each rule has a list that breaks it alone, and the nearest list that keeps it."""

from __future__ import annotations

import math

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.dialects.chat.contract import RULES, problems, tool_problems
from quiesce.protocol.dialects.profile import MediaLimits

OPENAI = PROFILES["openai"]
DEEPSEEK = PROFILES["deepseek"]
MISTRAL = PROFILES["mistral"]
ANY = PROFILES["any-chat"]
STRICT = PROFILES["strict-chat"]
SHORT = evolve(OPENAI, max_text=3)
SMALL = evolve(OPENAI, max_media=MediaLimits(image=30, document=30, audio=30))
NO_NULL = evolve(OPENAI, null_content=False)

GO = {"role": "user", "content": "go"}
OK = {"role": "assistant", "content": "ok"}
LONG = "a" * 41


def call(call_id="c1", name="run", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(call_id="c1", content="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content):
    return {"role": "user", "content": content}


def image(data="AA=="):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


ASKED = [GO, asks(call())]

CASES = [
    # rule, profile, a list that breaks it and no other, where, the nearest list that keeps it
    ("lone-surrogate", OPENAI, [user("\ud800")], "messages[0].content", [user("\U0001f600")]),
    ("nul", OPENAI, [user("a\0b")], "messages[0].content", [user("a\x01b")]),
    ("number", OPENAI, [{**GO, "x": math.inf}], "messages[0].x", [{**GO, "x": 1e308}]),
    ("not-json", OPENAI, [{**GO, "x": {1}}], "messages[0].x", [{**GO, "x": [1]}]),
    ("messages", OPENAI, [GO, None], "messages[1]", [GO]),
    ("messages", OPENAI, {"role": "user"}, "messages", (GO,)),
    ("empty", ANY, [], "messages", [GO]),
    ("role", OPENAI, [{"role": "model", "content": "x"}], "messages[0].role", [{"role": "developer", "content": "x"}]),
    ("role", OPENAI, [{"content": "x"}], "messages[0].role", [GO]),
    ("content", OPENAI, [user(None)], "messages[0].content", [user("")]),
    ("content", OPENAI, [user([])], "messages[0].content", [user([{"type": "text", "text": "x"}])]),
    ("content", OPENAI, [*ASKED, tool(content=None)], "messages[2].content", [*ASKED, tool(content="")]),
    ("content-missing", OPENAI, [GO, {"role": "assistant"}], "messages[1].content", [*ASKED, tool()]),
    ("content-null", NO_NULL, [*ASKED, tool()], "messages[1].content", [GO, asks(call(), content=""), tool()]),
    (
        "content-null",
        NO_NULL,
        [GO, {"role": "assistant", "tool_calls": [call()]}, tool()],
        "messages[1].content",
        [GO, asks(call(), content="x"), tool()],
    ),
    ("string-content", DEEPSEEK, [user([{"type": "text", "text": "x"}])], "messages[0].content", [user("x")]),
    ("part", OPENAI, [user([{"type": "tool_result"}])], "messages[0].content[0]", [user([image()])]),
    ("part", OPENAI, [{"role": "system", "content": [image()]}], "messages[0].content[0]", [user([image()])]),
    ("part", OPENAI, [user([{"type": "text"}])], "messages[0].content[0].text", [user([{"type": "text", "text": ""}])]),
    (
        "media",
        MISTRAL,
        [user([{"type": "file", "file": {}}])],
        "messages[0].content[0]",
        [user([image()])],
    ),
    (
        "media-in-result",
        OPENAI,
        [*ASKED, tool(content=[image()])],
        "messages[2].content[0]",
        [*ASKED, tool(content=[{"type": "text", "text": "x"}]), user([image()])],
    ),
    ("media-in-result", OPENAI, [*ASKED, tool(content=[image()])], "messages[2].content[0]", [GO]),
    *(
        (
            "data-length",
            SMALL,
            [user([{"type": kind, kind: {key: "x" * 31}}])],
            f"messages[0].content[0].{kind}.{key}",
            [user([{"type": kind, kind: {key: "x" * 30}}])],
        )
        for kind, key in (("image_url", "url"), ("input_audio", "data"), ("file", "file_data"))
    ),
    (
        "data-length",
        evolve(SMALL, images_in_results=True),
        [*ASKED, tool(content=[image("AAAABBBBCCCC")])],
        "messages[2].content[0].image_url.url",
        [*ASKED, tool(content=[image()])],
    ),
    ("tool-calls", OPENAI, [{**GO, "tool_calls": [call()]}], "messages[0].tool_calls", [{**GO, "tool_calls": None}]),
    ("tool-calls", OPENAI, [{**OK, "tool_calls": {}}], "messages[0].tool_calls", [OK]),
    ("tool-calls-empty", OPENAI, [{**OK, "tool_calls": []}], "messages[0].tool_calls", [OK]),
    ("call", OPENAI, [asks(call(), "x"), tool()], "messages[0].tool_calls[1]", [asks(call()), tool()]),
    (
        "call",
        OPENAI,
        [asks({"id": "c1", "function": {"name": "f", "arguments": "{}"}}), tool()],
        "messages[0].tool_calls[0].type",
        [asks({"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}), tool()],
    ),
    (
        "call",
        OPENAI,
        [asks({"id": "c1", "type": "function"}), tool()],
        "messages[0].tool_calls[0].function",
        [asks(call()), tool()],
    ),
    ("text-length", SHORT, [user("four")], "messages[0].content", [user("one")]),
    ("call-id", OPENAI, [asks({**call(), "id": None})], "messages[0].tool_calls[0].id", [asks(call()), tool()]),
    ("tool-name", OPENAI, [asks(call(name="a.b")), tool()], "messages[0].tool_calls[0].function.name", [GO]),
    ("tool-name", OPENAI, [asks(call(name="")), tool()], "messages[0].tool_calls[0].function.name", [GO]),
    (
        "tool-name",
        OPENAI,
        [asks(call(name="a" * 65)), tool()],
        "messages[0].tool_calls[0].function.name",
        [asks(call(name="a" * 64)), tool()],
    ),
    (
        "call-id-unique",
        ANY,
        [asks(call(), call()), tool(), tool()],
        "messages[0].tool_calls[1].id",
        [asks(call()), tool(), asks(call()), tool()],
    ),
    (
        "call-id-unique",
        OPENAI,
        [asks(call()), tool(), asks(call()), tool()],
        "messages[2].tool_calls[0].id",
        [asks(call()), tool(), asks(call("c2")), tool("c2")],
    ),
    (
        "arguments",
        ANY,
        [asks(call(arguments={})), tool()],
        "messages[0].tool_calls[0].function.arguments",
        [asks(call(arguments="")), tool()],
    ),
    *(
        (
            "arguments-object",
            DEEPSEEK,
            [asks(call(arguments=text)), tool()],
            "messages[0].tool_calls[0].function.arguments",
            [asks(call(arguments='{"a": 1}')), tool()],
        )
        for text in ("", "{", "[]", '{"a": NaN}', "null", "[" * 100_000)
    ),
    ("unanswered", OPENAI, ASKED, "messages[1].tool_calls[0]", [*ASKED, tool()]),
    ("unanswered", OPENAI, [asks(call(), call("c2")), tool("c2")], "messages[0].tool_calls[0]", [GO]),
    ("unanswered", OPENAI, [asks(call()), GO], "messages[0].tool_calls[0]", [asks(call()), tool(), GO]),
    ("orphan", OPENAI, [GO, tool()], "messages[1].tool_call_id", [*ASKED, tool()]),
    ("orphan", OPENAI, [tool(), asks(call()), tool()], "messages[0].tool_call_id", [asks(call()), tool()]),
    ("duplicate", OPENAI, [*ASKED, tool(), tool()], "messages[3].tool_call_id", [*ASKED, tool()]),
    ("duplicate", OPENAI, [*ASKED, tool(), GO, tool()], "messages[4].tool_call_id", [*ASKED, tool(), GO]),
    ("starts-with-user", STRICT, [OK, GO], "messages[0]", [{"role": "system", "content": "s"}, GO]),
    ("same-role", STRICT, [GO, GO], "messages[1]", [GO, OK, GO]),
    ("ends-with-input", MISTRAL, [GO, OK], "messages[1]", [GO, {**OK, "prefix": True}]),
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


def test_a_result_behind_another_message_is_misplaced_and_its_call_unanswered():
    found = problems([*ASKED, user("and?"), tool()], OPENAI)
    assert [(problem.rule, problem.position) for problem in found] == [
        ("unanswered", "messages[1].tool_calls[0]"),
        ("misplaced", "messages[3].tool_call_id"),
    ]


def test_results_of_one_batch_stand_in_any_order():
    assert problems([asks(call("a"), call("b")), tool("b"), tool("a")], OPENAI) == []


def test_equal_ids_in_two_rounds_cross_nothing():
    assert problems([asks(call()), tool(), GO, asks(call()), tool()], ANY) == []


@pytest.mark.parametrize(
    ("call_id", "profile", "fits"),
    [
        ("a" * 40, OPENAI, True),
        (LONG, OPENAI, False),
        ("", OPENAI, False),
        ("abcdefghi", MISTRAL, True),
        ("abcdefgh_", MISTRAL, False),
        ("abcdefgh", MISTRAL, False),
        (LONG, ANY, True),
    ],
)
def test_an_id_that_does_not_fit_is_told_at_the_call_and_at_its_result(call_id, profile, fits):
    found = problems([GO, asks(call(call_id)), tool(call_id)], profile)
    expected = [("call-id", "messages[1].tool_calls[0].id"), ("call-id", "messages[2].tool_call_id")]
    assert [(problem.rule, problem.position) for problem in found] == ([] if fits else expected)


def test_keys_that_are_no_names_are_quoted_in_a_position():
    (problem,) = problems([{**GO, "a b": {"": "\0"}}], OPENAI)
    assert problem.position == 'messages[0]["a b"][""]'


def test_a_problem_is_one_line_with_place_rule_and_words():
    (problem,) = problems([GO, tool("\u202e\n")], ANY)
    assert str(problem) == (
        r"messages[1].tool_call_id: orphan: no call before it is labelled '\u202e\n'; a result needs its call before it"
    )


def test_a_python_value_that_holds_itself_is_looked_at_once():
    message = {"role": "user", "content": "x"}
    message["self"] = message
    assert problems([message], OPENAI) == []


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["user", "assistant", "tool", "function", "text", "c1"])
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "id", "type", "function", "name", "text"])
            | st.integers(),
            inner,
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


def function(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def test_names_of_tools_fit_the_provider():
    tools = [function("calendar.read"), function("calendar/read"), function("n" * 70), function("fine")]
    found = tool_problems(tools, OPENAI)
    assert [(problem.rule, problem.position) for problem in found] == [
        ("tool-name", f"tools[{index}].function.name") for index in range(3)
    ]


def test_names_of_tools_are_distinct():
    (problem,) = tool_problems([function("a"), {"type": "custom", "custom": {"name": "a"}}], OPENAI)
    assert (problem.rule, problem.position) == ("tool-name-unique", "tools[1].custom.name")


@pytest.mark.parametrize(("tools", "where"), [("x", "tools"), ([1], "tools[0]")])
def test_tools_are_a_list_of_objects(tools, where):
    assert [(problem.rule, problem.position) for problem in tool_problems(tools, OPENAI)] == [("tools", where)]
