"""The checker of Anthropic Messages: each rule has a list that breaks it alone, and the nearest list that keeps it."""

from __future__ import annotations

import math

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.dialects.anthropic.contract import RULES, problems, tool_problems

ANTHROPIC = PROFILES["anthropic"]
ANY = PROFILES["any-anthropic"]
STRICT = PROFILES["strict-anthropic"]
SHORT = evolve(ANTHROPIC, max_text=3)
PLAIN = evolve(ANTHROPIC, media=frozenset())
TEXTUAL = evolve(ANTHROPIC, images_in_results=False)
REPEATING = evolve(ANTHROPIC, unique_call_ids=False)

GO = {"role": "user", "content": "go"}
OK = {"role": "assistant", "content": "ok"}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
PROGRAM = {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}}


def image(data):
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


IMAGE = image("AA==")


def says(value):
    return {"type": "text", "text": value}


def use(call_id="t1", **more):
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {}, **more}


def result(call_id="t1", content="done", **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*content):
    return {"role": "user", "content": list(content)}


def model(*content):
    return {"role": "assistant", "content": list(content)}


def server(call_id="srvtoolu_1"):
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {}}


def server_result(call_id="srvtoolu_1"):
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def answered(answer, call=None):
    """A round whose result is `answer`."""
    return [GO, model(call or use()), user(answer)]


FINE = answered(result())

CASES = [
    # rule, profile, a list that breaks it and no other, where, the nearest list that keeps it
    ("lone-surrogate", ANTHROPIC, [user(says("\ud800"))], "messages[0].content[0].text", [user(says("\U0001f600"))]),
    ("nul", ANTHROPIC, [user(says("a\0b"))], "messages[0].content[0].text", [user(says("a\x01b"))]),
    (
        "number",
        ANTHROPIC,
        answered(result(), use(input={"x": math.nan})),
        "messages[1].content[0].input.x",
        answered(result(), use(input={"x": 1e308})),
    ),
    ("not-json", ANTHROPIC, [{**GO, "x": (1,)}], "messages[0].x", [{**GO, "x": [1]}]),
    ("messages", ANTHROPIC, [GO, 1], "messages[1]", [GO]),
    ("messages", ANTHROPIC, None, "messages", [GO]),
    ("empty", ANY, [], "messages", [GO]),
    (
        "data-length",
        ANTHROPIC,
        [user(image("x" * 5_242_881))],
        "messages[0].content[0].source.data",
        [user(image("x" * 5_242_880))],
    ),
    (
        "data-length",
        ANTHROPIC,
        answered(result(content=[image("x" * 5_242_881)])),
        "messages[2].content[0].content[0].source.data",
        answered(result(content=[image("x" * 5_242_880)])),
    ),
    ("too-many", PLAIN, [GO, OK] * 50_000 + [GO], "messages", [GO, OK, GO]),
    ("role", ANTHROPIC, [GO, {"role": "tool", "content": "x"}], "messages[1].role", [GO]),
    ("content", ANTHROPIC, [{"role": "user"}], "messages[0].content", [GO]),
    ("content-empty", ANTHROPIC, [user()], "messages[0].content", [user(says("x"))]),
    ("content-empty", ANTHROPIC, [{"role": "user", "content": " \n"}], "messages[0].content", [GO]),
    ("block", ANTHROPIC, [user("x")], "messages[0].content[0]", [user(says("x"))]),
    ("block", ANTHROPIC, [user({"type": "text"})], "messages[0].content[0].text", [user(says("x"))]),
    ("block-role", ANTHROPIC, [GO, model(IMAGE), GO], "messages[1].content[0]", [user(IMAGE)]),
    (
        "block-role",
        ANTHROPIC,
        [user({"type": "thinking", "thinking": "", "signature": "s"})],
        "messages[0].content[0]",
        [GO, model(THOUGHT, says("x")), GO],
    ),
    ("result-role", ANTHROPIC, [GO, model(result()), GO], "messages[1].content[0]", FINE),
    ("call-role", ANTHROPIC, [user(use())], "messages[0].content[0]", FINE),
    *(("blank-text", ANTHROPIC, [user(says(text))], "messages[0].content[0].text", [GO]) for text in ("", " ", "\n\n")),
    (
        "blank-text",
        ANTHROPIC,
        answered(result(content=[says("")])),
        "messages[2].content[0].content[0].text",
        answered(result(content=[says(" ")])),
    ),
    ("input", ANTHROPIC, answered(result(), use(input="{}")), "messages[1].content[0].input", FINE),
    ("tool-name", ANTHROPIC, answered(result(), use(name="a.b")), "messages[1].content[0].name", FINE),
    (
        "result-content",
        ANTHROPIC,
        answered(result(content={})),
        "messages[2].content[0].content",
        answered({"type": "tool_result", "tool_use_id": "t1"}),
    ),
    (
        "result-content",
        ANTHROPIC,
        answered(result(content=[use()])),
        "messages[2].content[0].content[0]",
        answered(result(content=[IMAGE, says("x")])),
    ),
    *(
        (
            "error-empty",
            ANTHROPIC,
            answered(result(content=content, is_error=True)),
            "messages[2].content[0].content",
            answered(result(content="x", is_error=True)),
        )
        for content in ("", " ", None, [], [says(" ")])
    ),
    (
        "signature",
        ANTHROPIC,
        [GO, model({"type": "thinking", "thinking": "hm"}, says("x")), GO],
        "messages[1].content[0].signature",
        [GO, model(THOUGHT, says("x")), GO],
    ),
    (
        "signature",
        ANTHROPIC,
        [GO, model({"type": "redacted_thinking", "data": ""}, says("x")), GO],
        "messages[1].content[0].data",
        [GO, model({"type": "redacted_thinking", "data": "x"}, says("x")), GO],
    ),
    ("open-end", ANTHROPIC, [GO, model(THOUGHT), GO], "messages[1].content[0]", [GO, model(THOUGHT, says("x")), GO]),
    (
        "text-after-call",
        ANTHROPIC,
        [GO, model(use(), says("x")), user(result())],
        "messages[1].content[1]",
        [GO, model(says("x"), use()), user(result())],
    ),
    (
        "server-id",
        ANTHROPIC,
        [GO, model(server("x"), server_result("x")), GO],
        "messages[1].content[0].id",
        [GO, model(server(), server_result()), GO],
    ),
    (
        "server-pairing",
        ANTHROPIC,
        [GO, model(server()), GO, model(server_result()), GO],
        "messages[3].content[0]",
        [GO, model(server(), server_result()), GO],
    ),
    ("media", PLAIN, [user(IMAGE)], "messages[0].content[0]", [GO]),
    (
        "media-in-result",
        TEXTUAL,
        answered(result(content=[IMAGE])),
        "messages[2].content[0].content[0]",
        [GO, model(use()), user(result(), IMAGE)],
    ),
    ("text-length", SHORT, [user(says("four"))], "messages[0].content[0].text", [user(says("one"))]),
    ("call-id", ANTHROPIC, [GO, model({**use(), "id": None}), GO], "messages[1].content[0].id", FINE),
    (
        "call-id-unique",
        REPEATING,
        [GO, model(use(), use()), user(result(), result())],
        "messages[1].content[1].id",
        [*FINE, model(use()), user(result())],
    ),
    (
        "call-id-unique",
        ANTHROPIC,
        [*FINE, model(use()), user(result())],
        "messages[3].content[0].id",
        [*FINE, model(use("t2")), user(result("t2"))],
    ),
    ("unanswered", ANTHROPIC, [GO, model(use()), GO], "messages[1].content[0]", FINE),
    (
        "unanswered",
        ANTHROPIC,
        [GO, model(use("a"), use("b")), user(result("b"))],
        "messages[1].content[0]",
        [GO, model(use("a"), use("b")), user(result("b"), result("a"))],
    ),
    ("orphan", ANTHROPIC, [user(result(), says("x"))], "messages[0].content[0].tool_use_id", FINE),
    ("orphan", ANTHROPIC, [user(says("x"), result())], "messages[0].content[1].tool_use_id", FINE),
    ("duplicate", ANTHROPIC, [*FINE[:2], user(result(), result())], "messages[2].content[1].tool_use_id", FINE),
    ("duplicate", ANTHROPIC, [*FINE, OK, user(result())], "messages[4].content[0].tool_use_id", [*FINE, OK, GO]),
    ("results-first", ANTHROPIC, [*FINE[:2], user(says("x"), result())], "messages[2].content[1]", FINE),
    (
        "results-first",
        ANTHROPIC,
        [GO, model(use("a"), use("b")), user(result("a"), says("x"), result("b"))],
        "messages[2].content[2]",
        [GO, model(use("a"), use("b")), user(result("a"), result("b"), says("x"))],
    ),
    (
        "results-only",
        ANTHROPIC,
        [GO, model(use(**PROGRAM)), user(result(), says("x"))],
        "messages[2].content",
        [GO, model(use(caller={"type": "direct"})), user(result(), says("x"))],
    ),
    ("starts-with-user", ANTHROPIC, [OK, GO], "messages[0]", [GO, OK, GO]),
    ("same-role", ANTHROPIC, [GO, GO], "messages[1]", [GO, {"role": "system", "content": "s"}, GO]),
    ("ends-with-input", ANTHROPIC, [GO, OK], "messages[1]", [GO]),
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


def test_a_result_in_a_later_message_is_misplaced_and_its_call_unanswered():
    found = problems([GO, model(use()), GO, OK, user(result())], ANTHROPIC)
    assert [(problem.rule, problem.position) for problem in found] == [
        ("unanswered", "messages[1].content[0]"),
        ("misplaced", "messages[4].content[0].tool_use_id"),
    ]


def test_text_behind_a_call_is_let_be_in_a_transcript():
    assert problems([GO, model(use(), says("x")), user(result())], ANY) == []


@pytest.mark.parametrize(("call_id", "fits"), [("a-Z_9" * 99, True), ("a:b", False), ("a.b", False), ("", False)])
def test_an_id_that_does_not_fit_is_told_at_the_call_and_at_its_result(call_id, fits):
    found = problems(answered(result(call_id), use(call_id)), ANTHROPIC)
    expected = [("call-id", "messages[1].content[0].id"), ("call-id", "messages[2].content[0].tool_use_id")]
    assert [(problem.rule, problem.position) for problem in found] == ([] if fits else expected)


def test_a_call_of_the_server_may_wait_for_it_to_go_on():
    assert problems([GO, model(server())], ANY) == []


ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters(), max_size=3) | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "id", "tool_use_id", "input", "text", "caller", "is_error"]),
            inner
            | st.sampled_from(["user", "assistant", "tool_use", "tool_result", "thinking", "text", "server_tool_use"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(ANYTHING)
def test_it_never_raises(value):
    for profile in (ANTHROPIC, STRICT, ANY):
        assert all("\n" not in str(problem) for problem in problems(value, profile))
        tool_problems(value, profile)


# --- tools -------------------------------------------------------------------------------------------------------


def test_names_of_tools_fit_and_are_distinct():
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("a", "a.b", "a", "n" * 128, None)]
    assert [(problem.rule, problem.position) for problem in tool_problems(tools, ANTHROPIC)] == [
        ("tool-name", "tools[1].name"),
        ("tool-name-unique", "tools[2].name"),
        ("tool-name", "tools[4].name"),
    ]


@pytest.mark.parametrize(("tools", "where"), [({}, "tools"), ([None], "tools[0]")])
def test_tools_are_a_list_of_objects(tools, where):
    assert [(problem.rule, problem.position) for problem in tool_problems(tools, ANTHROPIC)] == [("tools", where)]
