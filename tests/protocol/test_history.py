"""History: what a model sees of a log, and the order that every provider's contract starts from."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.events import (
    AssistantMessage,
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
    text_of,
)
from quiesce.protocol.history import History, history_of, sendable, sendable_problems


@pytest.fixture
def seen(logs):
    """What a model sees of the log of a line: a word per message."""
    return lambda line: words(entry.message for entry in history_of(logs.read(line)).entries())


@pytest.fixture
def sent(logs):
    """The sendable view of the log of a line."""
    return lambda line: sendable(history_of(logs.read(line)).entries())


def words(messages) -> str:
    return " ".join(map(word, messages))


def word(message) -> str:
    match message:
        case UserMessage():
            return f"user:{text_of(message.content)}"
        case ModelMessage():
            return "ask:" + ",".join(call.id for call in message.calls)
        case ToolMessage(tool_call_id=label):
            return f"{'error' if message.is_error else 'result'}:{label}={text_of(message.content)}"


# --- what a model sees -------------------------------------------------------------------------------------------


def test_messages_are_seen_in_log_order(seen):
    assert seen("turn step user:hi ask:a call:a result:a=1 end-step end-turn") == "user:hi ask:a result:a=1"


def test_what_is_no_message_is_not_seen(seen):
    assert seen("splice:x turn step attempt seed foreign late:a end-step end-turn") == ""


def test_an_answer_with_nothing_in_it_is_left_out(seen):
    assert seen("turn step user:hi blank end-step end-turn") == "user:hi"


@pytest.mark.parametrize(
    ("content", "visible"),
    [
        ((), False),
        ((TextBlock(""),), False),
        ((TextBlock(" \n\t"), TextBlock("")), False),
        ((TextBlock(" "), TextBlock("x")), True),
        ((ToolCallBlock("", "", ""),), True),
        ((ReasoningBlock("hm"),), True),
        ((OpaqueBlock({"type": "image"}),), True),
    ],
)
def test_an_answer_is_seen_if_anything_but_blank_text_is_in_it(logs, content, visible):
    event = evolve(logs.draft_of("ask@1.1").at(0, 0), body=logs.answer(1, 1, *content))
    assert len(history_of([event])) == visible


def test_each_message_knows_its_seq_and_step(logs):
    entries = history_of(logs.read("turn step user ask:a call:a result:a end-step step ask")).entries()
    assert [(entry.seq, entry.turn, entry.step) for entry in entries] == [(2, 0, 0), (3, 1, 1), (5, 1, 1), (8, 1, 2)]


def test_what_was_handed_out_does_not_change(logs):
    history = history_of(logs.read("turn step user:hi"))
    before = history.entries()
    history.observe(logs.draft_of("user:sum>0-2").at(3, 0))
    assert (words(entry.message for entry in before), len(history)) == ("user:hi", 1)


# --- compaction --------------------------------------------------------------------------------------------------

TWO_TURNS = "turn step user:1 ask:a call:a result:a end-step end-turn turn step user:2 ask end-step end-turn"


def test_a_replacing_message_takes_the_place_of_those_in_its_range(seen):
    assert seen(f"{TWO_TURNS} user:sum>2-5") == "user:sum user:2 ask:"


def test_it_takes_their_place_in_the_middle_too(seen):
    assert seen(f"{TWO_TURNS} user:sum>5-10") == "user:1 ask:a user:sum ask:"


def test_both_ends_of_the_range_are_included(seen):
    assert seen("user:1 user:2 user:3 user:4 user:sum>1-2") == "user:1 user:sum user:4"


def test_a_result_is_replaced_by_a_shorter_one_and_still_answers_its_call(sent):
    assert words(sent("turn step ask:a call:a result:a=long end-step end-turn result:a=short@1.1>4-4")) == (
        "ask:a result:a=short"
    )


def test_a_compacted_range_may_be_compacted_again(seen):
    assert seen("user:1 user:2 user:3 user:sum>0-1 user:4 user:all>0-3 user:5") == "user:all user:4 user:5"


def test_a_range_without_a_visible_message_is_replaced_at_the_end(seen):
    assert seen("turn step user:1 end-step user:sum>3-3") == "user:1 user:sum"


def test_a_blank_answer_in_place_of_a_range_removes_it(seen):
    assert seen("turn step user:1 user:2 blank>2-2") == "user:2"


def test_compaction_that_takes_a_call_and_leaves_its_result_is_sendable(sent):
    assert words(sent("turn step user:1 ask:a call:a result:a end-step end-turn user:sum>2-3")) == "user:sum"


def test_compaction_that_takes_a_result_and_leaves_its_call_is_sendable(sent):
    messages = sent("turn step user:1 ask:a call:a result:a end-step end-turn user:sum>5-5")
    assert sendable_problems(messages) == []
    assert words(messages).startswith("user:1 ask:a error:a=")


# --- the sendable view -------------------------------------------------------------------------------------------


def test_a_log_in_order_is_sent_as_it_is(logs):
    entries = history_of(logs.read("turn step user ask:a,a, unstarted:a call:a call: failed:a result:")).entries()
    assert sendable(entries) == tuple(entry.message for entry in entries)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "turn step ask:a,b result:b=B result:a=A", "ask:a,b result:a=A result:b=B", id="swapped results are sorted"
        ),
        pytest.param(
            "turn step ask:a user:x result:a=A", "ask:a result:a=A user:x", id="input between moves behind the results"
        ),
        pytest.param(
            "turn step ask:a,b result:a=A user:x result:b=B",
            "ask:a,b result:a=A result:b=B user:x",
            id="input between two results moves behind both",
        ),
        pytest.param("turn step user:x result:a=A", "user:x", id="a result without a call is not sent"),
        pytest.param(
            "turn step ask:a result:a=A result:b=B", "ask:a result:a=A", id="a result of another label is not sent"
        ),
        pytest.param(
            "turn step ask:a result:a=1 result:a=2", "ask:a result:a=1", id="the first of two results is sent"
        ),
        pytest.param(
            "turn step ask:a,a result:a=1 result:a=2",
            "ask:a,a result:a=1 result:a=2",
            id="calls that share a label get their results in order",
        ),
        pytest.param(
            "turn step ask:a result:a=1 end-step step ask:a result:a=2",
            "ask:a result:a=1 ask:a result:a=2",
            id="a label that comes back crosses nothing",
        ),
        pytest.param(
            "turn step ask:a end-step step ask:x result:x=X result:a@1.1=A",
            "ask:a result:a=A ask:x result:x=X",
            id="a result far away is brought to its call",
        ),
        pytest.param(
            "turn step result:a=A ask:a", "ask:a result:a=A", id="a result that stands before its call goes behind it"
        ),
    ],
)
def test_a_broken_log_is_brought_into_order(sent, line, expected):
    line = " ".join(part.replace("@1.1=A", "=A@1.1") for part in line.split())
    messages = sent(line)
    assert words(messages) == expected
    assert sendable_problems(messages) == []


def test_a_call_that_was_never_answered_is_answered_as_unknown_in_the_view_only(logs):
    history = history_of(logs.read("turn step ask:a,b,c result:b=B end-step end-turn user:next"))
    first, a, b, c, user = sendable(history.entries())
    assert words([first, b, user]) == "ask:a,b,c result:b=B user:next"
    for made_up, label in ((a, "a"), (c, "c")):
        assert (made_up.tool_call_id, made_up.is_error) == (label, True)
        assert "outcome is unknown" in text_of(made_up.content)
    assert len(history) == 3


def test_made_up_answers_have_ids_of_their_own_and_always_the_same(sent):
    line = "turn step ask:a,a, end-step end-turn turn step ask:a end-step end-turn"
    ids = [message.id for message in sent(line) if isinstance(message, ToolMessage)]
    assert len(set(ids)) == len(ids) == 4
    assert sent(line) == sent(line)


@pytest.mark.parametrize("content", [(), (TextBlock(" "),), (OpaqueBlock({"type": "image"}),)])
def test_an_error_that_says_nothing_is_sent_with_words(logs, content):
    *before, last = logs.read("turn step ask:a call:a failed:a")
    silent = evolve(last, body=evolve(last.body, message=evolve(last.body.message, content=content)))
    history = history_of([*before, silent])
    messages = sendable(history.entries())
    assert sendable_problems(messages) == []
    assert messages[-1].content[: len(content)] == content
    assert not history.in_order


# --- the check ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("user:x ask:a,b result:a failed:b user:y ask", []),
        ("ask:a", ["at the end: call 'a' is not answered"]),
        ("ask:a,b result:a", ["at the end: call 'b' is not answered"]),
        ("ask:a user:x", ["message 1: call 'a' is not answered before it"]),
        ("ask:a ask:b result:b", ["message 1: call 'a' is not answered before it"]),
        (
            "ask:a,b result:a user:x result:b",
            [
                "message 2: call 'b' is not answered before it",
                "message 3: a result of 'b' answers no call before it",
            ],
        ),
        ("result:a", ["message 0: a result of 'a' answers no call before it"]),
        ("user:x result:a", ["message 1: a result of 'a' answers no call before it"]),
        ("ask:a result:a result:a", ["message 2: a result of 'a' answers no call before it"]),
        (
            "ask:a,b result:b result:a",
            [
                "message 1: a result of 'b' stands where 'a' is due",
                "message 2: a result of 'a' stands where 'b' is due",
            ],
        ),
    ],
    ids=lambda value: value.replace(":", " ") if isinstance(value, str) else "",
)
def test_the_check_finds(logs, line, problems):
    assert sendable_problems([entry.message for entry in history_of(logs.read(line)).entries()]) == problems


def test_the_check_finds_an_error_without_text(logs):
    asked = ModelMessage("assistant", (logs.block("a"),), {}, "m")
    silent = ToolMessage("tool", "a", (TextBlock(" "), OpaqueBlock({"type": "image"})), is_error=True, id="r")
    assert sendable_problems([asked, silent]) == ["message 1: an error result without text"]
    assert sendable_problems([asked, evolve(silent, is_error=False)]) == []


# --- every log ---------------------------------------------------------------------------------------------------


@given(data=st.data())
def test_g9_a_log_as_quiesce_writes_it_is_sent_in_log_order_at_every_event(data, logs):
    history = History()
    for event in logs.read(data.draw(logs.walks())):
        history.observe(event)
        entries = history.entries()
        messages = sendable(entries)
        assert sendable_problems(messages) == []
        assert [message for message in messages if not message.id.startswith("unanswered-")] == [
            entry.message for entry in entries
        ]


@given(data=st.data())
def test_g9_any_damaged_log_is_sendable_and_loses_no_input_and_no_call(data, logs):
    entries = history_of(logs.read(data.draw(logs.damaged()))).entries()
    messages = sendable(entries)
    assert sendable_problems(messages) == []
    assert [message for message in messages if not isinstance(message, ToolMessage)] == [
        entry.message for entry in entries if not isinstance(entry.message, ToolMessage)
    ]


@given(data=st.data())
def test_a_log_as_quiesce_writes_it_is_in_order_whenever_no_call_is_open(data, logs):
    history, state = History(), logs.state_of(())
    for event in logs.read(data.draw(logs.walks())):
        history.observe(event)
        state.watch(event)
        assert history.in_order == (not len(state.pending))


@given(data=st.data())
def test_a_history_that_says_it_is_in_order_is_sent_as_it_stands_whoever_wrote_the_log(data, logs):
    history = History()
    for event in logs.read(data.draw(logs.damaged())):
        history.observe(event)
        if history.in_order:
            messages = sendable(history.entries(), in_order=True)
            assert sendable_problems(messages) == []
            assert messages == sendable(history.entries())


def test_compaction_can_bring_a_history_into_order_again(logs):
    line = "turn step user:1 ask:a user:2 result:a end-step end-turn"
    assert not history_of(logs.read(line)).in_order
    assert history_of(logs.read(f"{line} user:sum>3-5")).in_order


@given(data=st.data())
def test_a_history_followed_live_equals_one_replayed(data, logs):
    events = logs.read(data.draw(logs.damaged()))
    live = History()
    for length, event in enumerate(events, 1):
        live.observe(event)
        assert live.entries() == history_of(events[:length]).entries()


@given(data=st.data())
def test_without_compaction_the_messages_of_any_log_are_all_there_once(data, logs):
    events = [event for event in logs.read(data.draw(logs.damaged())) if event.surface_op in (None, "append")]
    messages = [
        event.seq
        for event in events
        if event.type in ("user/message", "tool/result")
        or (isinstance(event.body, AssistantMessage) and text_of(event.body.message.content).strip())
    ]
    assert [entry.seq for entry in history_of(events).entries()] == messages
