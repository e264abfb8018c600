"""Sessions made of what others kept."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.events import (
    AssistantMessage,
    EndSeed,
    ForeignBody,
    ModelMessage,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    ToolResult,
    UserMessage,
    draft,
    text_of,
)
from quiesce.protocol.history import history_of, sendable, sendable_problems
from quiesce.protocol.imported import imported_log, imported_messages
from quiesce.protocol.rules import LogState, check


def user(text):
    return UserMessage((TextBlock(text),), {"kind": "transcript"}, "user", f"u-{text}")


def model(text, *calls):
    blocks = [ToolCallBlock(label, name, "{}") for label, name in calls]
    return ModelMessage("assistant", (TextBlock(text), *blocks), {"kind": "model"}, f"m-{text}")


def result(label, text, *, is_error=False):
    return ToolMessage("tool", label, (TextBlock(text),), is_error=is_error, id=f"r-{text}")


def words(events):
    """The events in a line each, `type` and what it says."""
    said = {
        UserMessage: lambda body: text_of(body.content),
        AssistantMessage: lambda body: text_of(body.message.content),
        ToolResult: lambda body: body.message.tool_call_id,
    }
    return [f"{event.type} {said.get(type(event.body), lambda _: '')(event.body)}".strip() for event in events]


def imported(*messages):
    events = imported_messages(messages, 5)
    assert list(check(events)) == []
    assert {event.time for event in events} == {5}
    return events


def test_input_opens_a_step_and_an_answer_without_calls_ends_the_turn():
    assert words(imported(user("a"), model("b"), user("c"), model("d"))) == [
        *["turn/start", "step/start", "user/message a", "assistant/message b", "step/end", "turn/end"],
        *["turn/start", "step/start", "user/message c", "assistant/message d", "step/end", "turn/end"],
        "session/end-seed",
    ]


def test_calls_are_recorded_and_answered_in_call_order_and_the_turn_goes_on():
    messages = user("a"), model("b", ("1", "x"), ("2", "y")), result("2", "two"), result("1", "one"), model("c")
    assert words(imported(*messages)) == [
        *["turn/start", "step/start", "user/message a", "assistant/message b"],
        *["tool/call", "tool/result 1", "tool/call", "tool/result 2", "step/end"],
        *["step/start", "assistant/message c", "step/end", "turn/end", "session/end-seed"],
    ]


def test_a_call_without_a_result_is_answered_as_unknown_and_one_with_a_result_is_not():
    events = imported(user("a"), model("b", ("1", "x"), ("2", "y")), result("1", "bad", is_error=True))
    errors = [event.body.error for event in events if isinstance(event.body, ToolResult)]
    assert errors[0] is None
    assert errors[1].code == "TOOL_OUTCOME_UNKNOWN"


def test_a_transcript_that_ends_without_an_answer_is_a_turn_that_was_interrupted():
    events = imported(user("a"), model("b", ("1", "x")), result("1", "one"))
    assert events[-2].body.reason.kind == "interrupted"


def test_a_result_that_answers_no_call_is_left_out():
    assert words(imported(user("a"), result("9", "stray"), model("b")))[2:4] == [
        "user/message a",
        "assistant/message b",
    ]


def test_labels_that_are_empty_or_come_back_cross_nothing():
    events = imported(
        *[user("a"), model("b", ("", "x"), ("", "y")), result("", "one"), result("", "two")],
        *[model("c", ("", "x")), result("", "three")],
    )
    texts = [text_of(event.body.message.content) for event in events if isinstance(event.body, ToolResult)]
    assert texts == ["one", "two", "three"]


labels = st.sampled_from(["", "1", "2"])
messages = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from("abc")),
        st.builds(lambda calls: model("m", *((label, "x") for label in calls)), st.lists(labels, max_size=3)),
        st.builds(result, labels, st.sampled_from("xyz")),
    ),
    max_size=12,
)


@given(messages)
def test_whatever_the_messages_the_log_keeps_the_rules_and_can_be_sent(found):
    history = history_of(imported(*found))
    assert sendable_problems(sendable(history.entries(), in_order=history.in_order)) == []


@given(messages)
def test_no_message_of_a_person_or_a_model_is_lost_or_moved(found):
    kept = [
        event.body if isinstance(event.body, UserMessage) else event.body.message
        for event in imported(*found)
        if isinstance(event.body, UserMessage | AssistantMessage)
    ]
    assert kept == [message for message in found if not isinstance(message, ToolMessage)]


# -- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_goes_on_where_it_ended():
    events = imported(user("a"), model("b"))
    assert words(imported_log(events)) == [*words(events), "session/end-seed"]


def test_an_open_turn_of_a_log_is_closed_as_interrupted():
    cut = imported(user("a"), model("b", ("1", "x")), result("1", "one"))[:5]
    assert words(cut)[-1] == "tool/call"
    assert words(imported_log(cut))[5:] == ["tool/result 1", "step/end", "turn/end", "session/end-seed"]
    assert list(check(imported_log(cut))) == []


def test_events_of_unknown_types_are_kept_as_ones_that_may_be_skipped():
    events = (draft(ForeignBody("note", {"a": 1})).at(0, 1), *(evolve(e, seq=e.seq + 1) for e in imported(user("a"))))
    kept = imported_log(events)[0]
    assert (kept.body, kept.ignorable) == (ForeignBody("note", {"a": 1}), True)


def test_the_end_mark_of_a_log_that_was_imported_says_that_nothing_was_inherited():
    last = imported_log(imported(user("a")))[-1]
    assert last.body == EndSeed()
    state = LogState()
    for event in imported_log(imported(user("a"))):
        state.watch(event)
    assert state.pending.copy() is not None


@pytest.mark.parametrize("cut", range(1, 9))
def test_wherever_a_log_was_cut_it_can_be_gone_on_with(cut):
    whole = imported(user("a"), model("b", ("1", "x"), ("2", "y")), result("1", "one"), result("2", "two"))
    assert list(check(imported_log(whole[:cut]))) == []
