from __future__ import annotations

import json
import math
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from quiesce.actors.results import Result, raised_outcome, to_outcome
from quiesce.protocol.events import (
    ErrorInfo,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    UserMessage,
    text_of,
)
from quiesce.protocol.outcome import ToolOutcome, failure, success
from quiesce.protocol.storable import check_json

IMAGE = OpaqueBlock({"type": "image", "data": "AAAA"})


def text(value: object) -> str:
    outcome = to_outcome(value)
    assert len(outcome.content) == 1
    return text_of(outcome.content)


def check_storable(outcome: ToolOutcome) -> None:
    """Everything in it is JSON, and the model sees something."""
    check_json(json.loads(json.dumps(asdict(outcome), allow_nan=False)))
    for block in outcome.content:
        check_json(asdict(block) | {"shape": None})
    assert text_of(outcome.content).strip() or any(isinstance(block, OpaqueBlock) for block in outcome.content)
    if outcome.is_error:
        assert text_of(outcome.content).strip()


# --- values


def test_text_is_the_result():
    assert to_outcome("done") == success("done")


def test_text_is_made_storable():
    assert text("a\0b\ud800") == "a\u2400b\ufffd"


@pytest.mark.parametrize("value", [None, "", "  \n", Result(), Result(content=""), TextBlock(" "), [TextBlock("")]])
def test_nothing_is_said_to_be_no_output(value):
    assert to_outcome(value) == success("(no output)")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        ({"é": math.nan}, '{"é":"NaN"}'),
        ((1, 2), "[1,2]"),
        (b"ab", "b'ab'"),
    ],
)
def test_other_values_are_shown_as_compact_json(value, shown):
    assert text(value) == shown


def test_a_model_instance_is_shown_as_an_object():
    class Person(BaseModel):
        name: str

    assert text(Person(name="Ada")) == '{"name":"Ada"}'


def test_a_huge_text_passes_whole():
    assert len(text("x" * 5_000_000)) == 5_000_000


def test_a_number_that_python_cannot_print_is_a_result_all_the_same():
    assert text(10**5000)
    assert text([10**5000])


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    @property
    def __class__(self) -> type:
        raise RuntimeError("no")


def test_a_value_that_raises_when_looked_at_is_a_result_all_the_same():
    assert "cannot be shown" in text(_Hostile())
    assert "cannot be shown" in text([_Hostile()])
    assert to_outcome(Result(content="x", meta={"a": _Hostile()})).content == (TextBlock("x"),)


# --- blocks


def test_blocks_pass_as_they_are():
    assert to_outcome(IMAGE).content == (IMAGE,)
    assert to_outcome([TextBlock("a"), IMAGE]).content == (TextBlock("a"), IMAGE)


def test_values_among_blocks_become_text_blocks():
    assert to_outcome(["see", IMAGE, 3]).content == (TextBlock("see"), IMAGE, TextBlock("3"))


def test_blocks_are_made_storable():
    found = to_outcome([TextBlock("\0"), OpaqueBlock({"type": "image", "n": math.nan})])
    assert found.content == (TextBlock("\u2400"), OpaqueBlock({"type": "image", "n": "NaN"}))


def test_what_a_block_carries_besides_its_fields_is_kept_and_made_storable():
    block = TextBlock("a", shape=Shape(("type", "text", "x"), {"x": math.inf}))
    assert to_outcome(block).content == (evolve(block, shape=Shape(("type", "text", "x"), {"x": "Infinity"})),)


@pytest.mark.parametrize("data", [{}, {"type": 3}, [], {"type": "tool-call", "id": "x"}, {"type": "reasoning"}])
def test_an_opaque_block_that_a_log_would_read_as_something_else_becomes_text(data):
    assert to_outcome(OpaqueBlock(data)).content == (TextBlock(json.dumps(data, separators=(",", ":"))),)


@pytest.mark.parametrize("block", [ToolCallBlock("1", "f", "{}"), ReasoningBlock("hm")])
def test_a_result_neither_calls_nor_thinks(block):
    assert isinstance(to_outcome([block, IMAGE]).content[0], TextBlock)


# --- Result


def test_a_result_carries_meta_that_the_model_does_not_see():
    found = to_outcome(Result(content={"a": 1}, meta={"took": 3, "bad": math.nan}))
    assert found == ToolOutcome((TextBlock('{"a":1}'),), meta={"took": 3, "bad": "NaN"})


def test_meta_that_is_no_object_is_put_into_one():
    assert to_outcome(Result(meta=[1])).meta == {"value": [1]}  # type: ignore[arg-type]


def test_a_result_can_say_that_the_call_failed():
    found = to_outcome(Result(content="quota exceeded", is_error=True))
    assert found == failure("TOOL_ERROR", "quota exceeded")


@pytest.mark.parametrize("content", [None, "", IMAGE])
def test_an_error_always_says_something_in_text(content):
    found = to_outcome(Result(content=content, is_error=True))
    assert found.is_error
    assert "said nothing" in text_of(found.content)
    assert (IMAGE in found.content) == (content is IMAGE)


def test_context_texts_become_user_messages_without_an_id():
    found = to_outcome(Result(context=["look here"]))
    assert found.context == (UserMessage((TextBlock("look here"),), {"kind": "tool"}, "user", ""),)


def test_one_context_text_is_one_message():
    assert len(to_outcome(Result(context="look here")).context) == 1


def test_context_messages_pass_storable():
    message = UserMessage((TextBlock("a\0"),), {"kind": "note", "n": math.nan}, "user", "id")
    cleaned = UserMessage((TextBlock("a\u2400"),), {"kind": "note", "n": "NaN"}, "user", "id")
    assert to_outcome(Result(context=[message])).context == (cleaned,)


@pytest.mark.parametrize("flag", [True, False])
def test_a_result_can_ask_to_end_the_turn(flag):
    assert to_outcome(Result(concludes_turn=flag)).concludes_turn is flag


@pytest.mark.parametrize("flag", [1, "yes", object()])
def test_only_exactly_true_sets_a_flag(flag):
    found = to_outcome(Result(content="x", concludes_turn=flag, is_error=flag))
    assert found == success("x")


def test_an_outcome_is_the_outcome():
    outcome = failure("TOOL_ERROR", "bad", name="Mine", reason="why")
    assert to_outcome(outcome) == outcome


def test_an_outcome_is_made_storable():
    found = to_outcome(ToolOutcome((), ErrorInfo("E\0", "C", "r\0"), {"x": math.inf}, blocks_turn="b\0"))
    assert found.error == ErrorInfo("E\u2400", "C", "r\u2400")
    assert (found.meta, found.blocks_turn) == ({"x": "Infinity"}, "b\u2400")
    assert text_of(found.content)


_things = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text("\0\ud800a ")
    | st.binary()
    | st.builds(object)
    | st.builds(TextBlock, st.text("\0\ud800a "))
    | st.builds(OpaqueBlock, st.dictionaries(st.text(), st.floats()) | st.just({"type": "image", "x": b""})),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.builds(Result, content=inner, meta=inner, context=inner, concludes_turn=inner, is_error=inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(_things)
def test_whatever_a_tool_returns_something_storable_is_recorded(value: Any):
    check_storable(to_outcome(value))


@given(_things)
def test_an_outcome_does_not_change_when_it_passes_again(value: Any):
    outcome = to_outcome(value)
    assert to_outcome(outcome) == outcome


# --- errors


def test_an_error_is_named_by_type_and_text():
    assert raised_outcome(ValueError("no such file")) == failure(
        "TOOL_ERROR", "ValueError: no such file", name="ValueError"
    )


@pytest.mark.parametrize("error", [ValueError(), ValueError(""), ValueError(" \n")])
def test_an_error_without_text_still_has_one(error):
    assert text_of(raised_outcome(error).content) == "ValueError: (no message)"


def test_an_error_that_cannot_be_printed_still_has_a_text():
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert text_of(raised_outcome(MuteError()).content) == "MuteError: (a message that cannot be shown)"


def test_the_text_of_an_error_is_made_storable():
    assert text_of(raised_outcome(ValueError("\0\ud800")).content) == "ValueError: \u2400\ufffd"


def test_the_members_of_an_exception_group_are_listed():
    inner = ExceptionGroup("inner", [KeyError("k")])
    found = raised_outcome(ExceptionGroup("several", [ValueError("a\nb"), inner]))
    assert found.error == ErrorInfo("ExceptionGroup", "TOOL_ERROR")
    assert text_of(found.content).splitlines() == [
        "ExceptionGroup: several (2 sub-exceptions)",
        "- ValueError: a",
        "  b",
        "- ExceptionGroup: inner (1 sub-exception)",
        "  - KeyError: 'k'",
    ]


def test_a_very_deep_exception_group_is_cut():
    error: Exception = ValueError("deep")
    for _ in range(500):
        error = ExceptionGroup("g", [error])
    assert text_of(raised_outcome(error).content).splitlines()[-1].strip() == "- ..."


def test_an_error_does_not_show_where_it_was_raised():
    with pytest.raises(ValueError, match="here") as caught:
        raise ValueError("here")
    assert __file__ not in text_of(raised_outcome(caught.value).content)


@given(st.builds(ValueError, _things) | st.builds(lambda x: ExceptionGroup("g", [ValueError(x)]), _things))
def test_whatever_a_tool_raises_something_storable_is_recorded(error):
    check_storable(raised_outcome(error))
