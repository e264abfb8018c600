"""ReplyAssembler: a streamed answer folded into blocks, whole or cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.codec import check_draft
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import (
    AssistantMessage,
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    draft,
)
from quiesce.protocol.model import BlockDone, CallDelta, Finished, ReasoningDelta, ReplyAssembler, Sealed, TextDelta


def assembled(*deltas) -> ReplyAssembler:
    reply = ReplyAssembler()
    for delta in deltas:
        reply.add(delta)
    return reply


def complete(*deltas):
    return assembled(*deltas).complete()


# --- text --------------------------------------------------------------------------------------------------------


def test_pieces_of_text_are_one_block():
    assert complete(TextDelta("Hel"), TextDelta("lo")) == (TextBlock("Hello"),)


def test_reasoning_and_text_are_blocks_of_their_own_in_the_order_they_came():
    assert complete(ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("so"), ReasoningDelta("or")) == (
        ReasoningBlock("hm"),
        TextBlock("so"),
        ReasoningBlock("or"),
    )


def test_text_behind_a_call_is_a_block_of_its_own():
    assert complete(TextDelta("a"), CallDelta(0, "c", "f", "{}"), TextDelta("b")) == (
        TextBlock("a"),
        ToolCallBlock("c", "f", "{}"),
        TextBlock("b"),
    )


def test_a_block_that_arrives_whole_is_kept_in_its_place():
    image = OpaqueBlock({"type": "image"})
    assert complete(TextDelta("a"), BlockDone(image), TextDelta("b")) == (TextBlock("a"), image, TextBlock("b"))


# --- calls -------------------------------------------------------------------------------------------------------


def test_the_arguments_of_a_call_come_in_pieces():
    assert complete(CallDelta(0, "c", "f"), CallDelta(0, arguments='{"x":'), CallDelta(0, arguments="1}")) == (
        ToolCallBlock("c", "f", '{"x":1}'),
    )


def test_pieces_of_several_calls_may_be_interleaved():
    deltas = [
        CallDelta(0, "A", "ta"),
        CallDelta(1, "B", "tb"),
        CallDelta(0, arguments='{"x":"A"}'),
        CallDelta(1, arguments='{"x":"B"}'),
    ]
    assert complete(*deltas) == (ToolCallBlock("A", "ta", '{"x":"A"}'), ToolCallBlock("B", "tb", '{"x":"B"}'))


def test_text_between_the_pieces_of_a_call_does_not_cut_it():
    assert complete(CallDelta(0, "c", "f", "{"), TextDelta("hm"), CallDelta(0, arguments="}")) == (
        ToolCallBlock("c", "f", "{}"),
        TextBlock("hm"),
    )


def test_two_labels_on_one_index_are_two_calls():
    assert complete(CallDelta(0, "a", "read", "1"), CallDelta(0, "b", "read", "2")) == (
        ToolCallBlock("a", "read", "1"),
        ToolCallBlock("b", "read", "2"),
    )


def test_pieces_without_a_label_belong_to_the_latest_call_of_their_index():
    deltas = [CallDelta(0, "a", "f", "1"), CallDelta(0, "b", "g"), CallDelta(0, arguments="2")]
    assert complete(*deltas) == (ToolCallBlock("a", "f", "1"), ToolCallBlock("b", "g", "2"))


def test_pieces_with_a_label_belong_to_its_call_where_calls_share_an_index():
    deltas = [CallDelta(0, "a", "f", "1"), CallDelta(0, "b", "g", "2"), CallDelta(0, "a", arguments="3")]
    assert complete(*deltas) == (ToolCallBlock("a", "f", "13"), ToolCallBlock("b", "g", "2"))


def test_one_label_on_two_indices_is_two_calls():
    assert complete(CallDelta(0, "x", "f", "1"), CallDelta(1, "x", "f", "2")) == (
        ToolCallBlock("x", "f", "1"),
        ToolCallBlock("x", "f", "2"),
    )


def test_a_label_may_come_after_the_arguments_began():
    assert complete(CallDelta(0, name="f", arguments="{"), CallDelta(0, "late", arguments="}")) == (
        ToolCallBlock("late", "f", "{}"),
    )


def test_a_label_and_a_name_that_are_sent_again_with_each_piece_are_taken_once():
    assert complete(CallDelta(0, "c", "f", "{"), CallDelta(0, "c", "f", "}")) == (ToolCallBlock("c", "f", "{}"),)


def test_a_call_without_any_label_is_kept():
    assert complete(CallDelta(0, name="f", arguments="{}")) == (ToolCallBlock("", "f", "{}"),)


@pytest.mark.parametrize("label", ["", "a"])
def test_another_name_without_a_label_begins_another_call(label):
    deltas = [CallDelta(0, label, "f", '{"x":'), CallDelta(0, name="g", arguments="{}"), CallDelta(0, arguments=" ")]
    assert complete(*deltas) == (ToolCallBlock(label, "f", '{"x":'), ToolCallBlock("", "g", "{} "))


def test_the_same_name_without_a_label_begins_another_call_once_the_first_is_whole():
    deltas = [CallDelta(0, name="f", arguments='{"x":{}'), CallDelta(0, name="f", arguments="}")]
    assert complete(*deltas) == (ToolCallBlock("", "f", '{"x":{}}'),)
    assert complete(*deltas, CallDelta(0, name="f", arguments="{}")) == (
        ToolCallBlock("", "f", '{"x":{}}'),
        ToolCallBlock("", "f", "{}"),
    )


def test_a_name_that_comes_again_with_nothing_behind_a_whole_call_begins_none():
    deltas = [CallDelta(0, name="f", arguments="{}"), CallDelta(0, name="f")]
    assert complete(*deltas) == (ToolCallBlock("", "f", "{}"),)


# --- how an answer ends ------------------------------------------------------------------------------------------

ALL = (TextDelta("text"), ReasoningDelta("hm"), CallDelta(0, "c", "f", "{}"), BlockDone(ToolCallBlock("d", "g", "{}")))


@pytest.mark.parametrize("reason", ["stop", "tool-calls"])
def test_a_complete_answer_keeps_its_calls(reason):
    assert [type(block) for block in complete(*ALL, Finished(reason))] == [
        TextBlock,
        ReasoningBlock,
        ToolCallBlock,
        ToolCallBlock,
    ]


def test_the_token_limit_drops_all_calls_even_if_their_arguments_parse():
    assert complete(*ALL, Finished("max-tokens")) == (TextBlock("text"), ReasoningBlock("hm"))


def test_a_cut_answer_keeps_what_was_said_and_none_of_its_calls():
    assert assembled(*ALL).interrupted() == (TextBlock("text"), ReasoningBlock("hm"))


def test_how_the_answer_finished_is_known():
    assert assembled(TextDelta("x")).finished is None
    finished = Finished("stop", {"outputTokens": 3}, {"model": "m"})
    assert assembled(TextDelta("x"), finished).finished == finished


@pytest.mark.parametrize("delta", [TextDelta(""), ReasoningDelta(""), Finished()], ids=["text", "reasoning", "end"])
def test_nothing_is_delivered_by_an_empty_delta(delta):
    assert not assembled(delta).delivered
    assert complete(delta) == ()


@pytest.mark.parametrize("delta", [TextDelta("x"), ReasoningDelta("x"), CallDelta(0, "c"), BlockDone(TextBlock("x"))])
def test_something_is_delivered_by_the_first_piece_of_anything(delta):
    assert assembled(delta).delivered


# --- foreign text ------------------------------------------------------------------------------------------------

BAD, CLEAN = "a\0b\ud800c", "a\u2400b\ufffdc"


@pytest.mark.parametrize(
    ("delta", "block"),
    [
        (TextDelta(BAD), TextBlock(CLEAN)),
        (ReasoningDelta(BAD), ReasoningBlock(CLEAN)),
        (CallDelta(0, BAD, BAD, BAD), ToolCallBlock(CLEAN, CLEAN, CLEAN)),
        (BlockDone(TextBlock(BAD)), TextBlock(CLEAN)),
        (BlockDone(ReasoningBlock(BAD)), ReasoningBlock(CLEAN)),
        (BlockDone(ToolCallBlock(BAD, BAD, BAD)), ToolCallBlock(CLEAN, CLEAN, CLEAN)),
        (BlockDone(OpaqueBlock({"type": BAD, BAD: [BAD]})), OpaqueBlock({"type": CLEAN, CLEAN: [CLEAN]})),
        (
            BlockDone(TextBlock(BAD, shape=Shape(("text", BAD), {BAD: BAD}))),
            TextBlock(CLEAN, shape=Shape(("text", CLEAN), {CLEAN: CLEAN})),
        ),
    ],
)
def test_nul_and_lone_surrogates_are_replaced_visibly(delta, block):
    assert complete(delta) == (block,)


def test_a_character_that_was_cut_between_two_pieces_is_whole_again():
    assert complete(TextDelta("\ud83d"), TextDelta("\ude00")) == (TextBlock("\U0001f600"),)


def test_a_whole_block_keeps_what_else_its_provider_put_into_it():
    signed = ReasoningBlock("hm", shape=Shape(("type", "text", "signature"), {"signature": "abc"}))
    assert complete(BlockDone(signed)) == (signed,)


def until_finished(deltas):
    """The deltas up to the first end: a model that goes on after it breaks its contract."""
    ends = [at for at, delta in enumerate(deltas) if isinstance(delta, Finished)]
    return deltas[: ends[0] + 1] if ends else deltas


ANY_TEXT = st.text(st.characters(), max_size=6) | st.sampled_from([BAD, "\ud800", "\udc00", "\0"])
DELTAS = st.one_of(
    st.builds(TextDelta, ANY_TEXT),
    st.builds(ReasoningDelta, ANY_TEXT),
    st.builds(CallDelta, st.integers(0, 2), ANY_TEXT, ANY_TEXT, ANY_TEXT),
    st.builds(BlockDone, st.builds(TextBlock, ANY_TEXT) | st.builds(ToolCallBlock, ANY_TEXT, ANY_TEXT, ANY_TEXT)),
    st.builds(Finished, st.sampled_from(["stop", "tool-calls", "max-tokens"])),
)


STREAMS = st.lists(DELTAS, max_size=12).map(until_finished)


@given(STREAMS)
def test_whatever_was_streamed_can_be_stored(deltas):
    for content in (complete(*deltas), assembled(*deltas).interrupted()):
        check_draft(draft(AssistantMessage(1, 1, ModelMessage("assistant", content, {}, "id"))))


@given(STREAMS)
def test_a_cut_answer_has_no_calls_whatever_was_streamed(deltas):
    blocks = assembled(*deltas).interrupted()
    assert not any(isinstance(block, ToolCallBlock) for block in blocks)
    assert blocks == tuple(block for block in complete(*deltas) if not isinstance(block, ToolCallBlock))


# --- a model that breaks its contract ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [
        "hello",
        None,
        TextDelta(None),
        ReasoningDelta(5),
        CallDelta("0"),
        CallDelta(0, None),
        BlockDone("x"),
        Finished("?"),
    ],
)
def test_what_is_no_delta_is_an_error_that_names_it(delta):
    answer = ReplyAssembler()
    with pytest.raises(ModelError, match="no delta") as caught:
        answer.add(delta)
    assert (caught.value.code, caught.value.transient, answer.delivered) == ("BAD_DELTA", False, False)


@pytest.mark.parametrize("late", [TextDelta("more"), Finished()])
def test_nothing_comes_after_the_end_of_an_answer(late):
    answer = ReplyAssembler()
    answer.add(Finished())
    with pytest.raises(ModelError, match="after it had finished"):
        answer.add(late)


def test_ten_thousand_calls_on_one_index_stay_apart():
    answer = ReplyAssembler()
    for index in range(10_000):
        answer.add(CallDelta(0, f"c{index}", "t", "{}"))
    answer.add(Finished("tool-calls"))
    assert [block.id for block in answer.complete()] == [f"c{index}" for index in range(10_000)]


def test_what_a_provider_says_at_the_end_is_made_storable_too():
    answer = assembled(Finished("stop", usage={BAD: float("nan")}, source={"id": BAD}))
    assert answer.finished == Finished("stop", usage={CLEAN: "NaN"}, source={"id": CLEAN})


def test_what_seals_reasoning_stays_with_it_and_the_next_reasoning_is_another():
    seal, other = {"type": "thinking", "signature": "s"}, {"type": "thinking", "signature": "t"}
    blocks = assembled(ReasoningDelta("a"), Sealed(seal), ReasoningDelta("b"), Sealed(other), Sealed(seal)).complete()
    assert blocks == (
        ReasoningBlock("a", replay=seal),
        ReasoningBlock("b", replay=other),
        ReasoningBlock("", replay=seal),
    )


def test_what_a_provider_attached_to_a_call_stays_with_it():
    call = assembled(CallDelta(0, "c", "t", "{"), CallDelta(0, arguments="}", replay={"sig": 1}), Finished()).complete()
    assert call == (ToolCallBlock("c", "t", "{}", replay={"sig": 1}),)


def test_what_a_provider_attached_to_a_call_may_come_in_parts():
    assert complete(CallDelta(0, "c", "t", "{}", {"a": 1}), CallDelta(0, replay={"b": 2})) == (
        ToolCallBlock("c", "t", "{}", replay={"a": 1, "b": 2}),
    )
