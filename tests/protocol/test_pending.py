"""PendingCalls: which calls of the open step are unanswered, by watching committed events alone."""

from __future__ import annotations

import gc
import sys
from itertools import count

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.events import (
    AssistantMessage,
    Event,
    Record,
    Replace,
    StepEnd,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from quiesce.protocol.pending import PendingCall, PendingCalls, Standing


def watched(events) -> PendingCalls:
    pending = PendingCalls()
    for event in events:
        pending.observe(event)
    return pending


@pytest.fixture
def pending(logs):
    """The calls that a line leaves unanswered: label, and the seq of its record in brackets if it has one."""

    def of(line: str) -> str:
        calls = watched(logs.read(line))
        return " ".join(
            call.call_id + (f"[{call.recorded_seq}]" if call.recorded_seq is not None else "") for call in calls
        )

    return of


# --- what registers, marks, answers and forgets ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "left"),
    [
        pytest.param("turn step user", "", id="input registers nothing"),
        pytest.param("turn step ask", "", id="an answer without calls registers nothing"),
        pytest.param("turn step ask:a,b,c", "a b c", id="an assistant message registers its calls in call order"),
        pytest.param("turn step ask:a,b call:b", "a b[3]", id="a record marks its call and remembers the seq"),
        pytest.param("turn step ask:a call:x", "a", id="a record of another label marks nothing"),
        pytest.param("turn step ask:a call:a@1.2", "a", id="a record of another step marks nothing"),
        pytest.param("turn step ask:a call:a@2.1", "a", id="a record of another turn marks nothing"),
        pytest.param("turn step ask:a,b call:a result:a", "b", id="a result answers its call"),
        pytest.param("turn step ask:a,b unstarted:a", "b", id="a result answers a call without a record"),
        pytest.param("turn step ask:a,b result:b", "a", id="a result out of order answers its own call"),
        pytest.param("turn step ask:a call:a failed:a", "", id="an error result is an answer"),
        pytest.param("turn step ask:a result:x", "a", id="a result of another label answers nothing"),
        pytest.param("turn step ask:a result:a@1.2", "a", id="a result of another step answers nothing"),
        pytest.param("turn step ask:a result:a@2.1", "a", id="a result of another turn answers nothing"),
        pytest.param("turn step ask:a late:a", "a", id="a late result answers nothing"),
        pytest.param("turn step ask:a,b call:a end-step", "", id="the end of the step forgets the rest"),
        pytest.param("turn step ask:a,b call:a end-turn", "", id="the end of the turn forgets the rest"),
        pytest.param("turn step ask:a,b call:a turn", "", id="the start of a turn forgets the rest"),
        pytest.param("turn step ask:a seed foreign splice user attempt", "a", id="other events forget nothing"),
        pytest.param("turn step ask:a call:a result:a>4-4", "a[3]", id="a replacing result answers nothing"),
        pytest.param("turn step ask:a ask:b>0-2", "a", id="an answer that replaces others registers nothing"),
        pytest.param("turn step ask:a user:sum>0-2", "a", id="compaction of the answer does not forget its calls"),
    ],
)
def test_it_follows_committed_events(pending, line, left):
    assert pending(line) == left


# --- labels are only labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "left"),
    [
        pytest.param("turn step ask:a,a,a call:a", "a[3] a a", id="the first unrecorded one is recorded"),
        pytest.param("turn step ask:a,a,a call:a call:a", "a[3] a[4] a", id="the next record marks the next one"),
        pytest.param("turn step ask:a,a,a call:a call:a result:a", "a[4] a", id="the first unanswered one is answered"),
        pytest.param("turn step ask:a,a unstarted:a call:a", "a[4]", id="an answered one is not recorded"),
        pytest.param("turn step ask:a,a call:a result:a result:a", "", id="each is answered once"),
        pytest.param("turn step ask:a,a result:a result:a result:a", "", id="one answer too many is nobody's"),
        pytest.param("turn step ask:,, call:", "[3]  ", id="empty labels are labels like others"),
        pytest.param("turn step ask:a unstarted:a end-step step ask:a", "a", id="a label comes back in a later step"),
        pytest.param("turn step ask:a end-step end-turn turn step ask:a call:a", "a[8]", id="and in a later turn"),
    ],
)
def test_repeated_and_empty_labels_cross_nothing(pending, line, left):
    assert pending(line) == left


def test_calls_that_share_a_label_keep_their_own_index_and_name(logs):
    asked = logs.answer(1, 1, logs.block("x", "read"), logs.block("x", "write"), logs.block("x", "erase"))
    events = logs.read("turn step ask call:x unstarted:x")
    pending = watched(evolve(event, body=asked) if event.seq == 2 else event for event in events)
    assert list(pending) == [PendingCall(1, 1, 1, "x", "write"), PendingCall(1, 1, 2, "x", "erase")]


def test_a_call_is_named_by_turn_step_and_index(logs):
    pending = watched(logs.read("turn step ask end-step step ask:p,q call:q"))
    assert list(pending) == [PendingCall(1, 2, 0, "p", "tool"), PendingCall(1, 2, 1, "q", "tool", recorded_seq=6)]


def test_two_answers_in_one_step_of_a_foreign_log_cross_no_results(logs):
    pending = watched(logs.read("turn step ask:a call:a ask:b result:b"))
    assert [(call.call_id, call.recorded_seq) for call in pending] == [("a", 3)]


# --- questions ---------------------------------------------------------------------------------------------------


def test_the_first_call_is_the_one_that_the_next_result_must_answer(logs):
    pending = watched(logs.read("turn step ask:a,b,c call:b call:c"))
    assert pending.first().call_id == "a"
    pending.observe(logs.draft_of("unstarted:a@1.1").at(5, 0))
    assert pending.first().call_id == "b"


def test_without_calls_there_is_no_first(logs):
    assert PendingCalls().first() is None


def test_a_call_is_found_by_its_label_recorded_or_not(logs):
    pending = watched(logs.read("turn step ask:a,b,b call:b"))
    assert pending.find(1, 1, "a").index == 0
    assert pending.find(1, 1, "b").index == 1
    assert pending.find_unrecorded(1, 1, "b").index == 2
    assert pending.find(1, 1, "x") is None
    assert pending.find(1, 2, "a") is None
    assert pending.find(2, 1, "a") is None


def test_a_copy_goes_on_from_here_independently(logs):
    pending = watched(logs.read("turn step ask:a,b call:a"))
    other = pending.copy()
    other.observe(logs.draft_of("result:a@1.1").at(4, 0))
    assert (len(pending), len(other)) == (2, 1)


@pytest.mark.parametrize(
    ("line", "standing"),
    [
        ("", Standing.UNRECORDED),
        ("call:a", Standing.RECORDED),
        ("asks:a=0", Standing.UNRECORDED),
        ("call:a asks:a=0", Standing.ASKED),
        ("call:a asks:a=1", Standing.RECORDED),
        ("call:a asks:a=0@1.2", Standing.RECORDED),
        ("call:a approves:a=0", Standing.RECORDED),
        ("call:a asks:a=0 approves:a=0", Standing.APPROVED),
        ("call:a asks:a=0 denies:a=0", Standing.DENIED),
        ("call:a asks:a=0 denies:a=0 approves:a=0", Standing.DENIED),
    ],
)
def test_a_call_stands_where_the_log_says(logs, line, standing):
    (call,) = watched(logs.read(f"turn step ask:a {line}"))
    assert call.standing is standing
    assert call.reason == ("no" if standing is Standing.DENIED else None)


def test_calls_that_share_a_label_are_asked_about_and_decided_by_their_index(logs):
    pending = watched(logs.read("turn step ask:a,a,a call:a call:a call:a asks:a=2 asks:a=1 approves:a=1"))
    assert [call.standing for call in pending] == [Standing.RECORDED, Standing.APPROVED, Standing.ASKED]


@pytest.mark.parametrize(
    ("line", "undecided", "only"),
    [
        ("call:a call:b", False, False),
        ("call:a call:b asks:b=1", True, False),
        ("call:a call:b asks:b=1 result:a", True, True),
        ("call:a call:b asks:a=0 asks:b=1", True, True),
        ("call:a call:b asks:a=0 asks:b=1 approves:a=0", True, False),
        ("call:a call:b asks:a=0 asks:b=1 denies:a=0", True, True),
        ("call:a asks:a=0", True, True),
        ("call:a asks:a=0 denies:a=0", False, False),
    ],
)
def test_it_says_whether_people_are_asked_and_whether_that_is_all_that_is_open(logs, line, undecided, only):
    pending = watched(logs.read(f"turn step ask:a,b {line}"))
    assert (pending.undecided, pending.only_undecided) == (undecided, only)


# --- it holds identities only ------------------------------------------------------------------------------------


def reachable(root: object) -> list[object]:
    """Every object that `root` keeps alive, itself included; classes and functions are not looked into."""
    found, todo = {}, [root]
    while todo:
        item = todo.pop()
        if id(item) in found or isinstance(item, type) or callable(item):
            continue
        found[id(item)] = item
        todo += gc.get_referents(item)
    return list(found.values())


def test_it_keeps_no_event_and_no_message_alive(logs):
    held = reachable(watched(logs.read("turn step user ask:a,b call:a")))
    assert any(isinstance(item, PendingCall) for item in held)
    assert not any(isinstance(item, (Event, Record)) for item in held)


def test_a_log_of_any_length_is_watched_in_constant_memory(logs):
    pending, sizes, seqs = PendingCalls(), set(), count(1_000_000)
    turn = logs.read("turn step user ask:a,b,c call:a call:b result:a result:b unstarted:c end-step end-turn")
    for _ in range(200_000 // len(turn)):
        for event in turn:
            pending.observe(event.at(next(seqs), 0))
            if event.type == "tool/call":
                sizes.add(sum(sys.getsizeof(item) for item in reachable(pending)))
    assert len(pending) == 0
    assert len(sizes) == 2  # with one call recorded, and with two


# --- any log -----------------------------------------------------------------------------------------------------


def pending_by_hand(events) -> list[tuple[int, int, int, str, int | None]]:
    """What is unanswered, by the rules read out loud: a list that is searched from the front."""
    calls: list[list] = []
    for event in events:
        body, appended = event.body, not isinstance(event.surface_op, Replace)
        if isinstance(body, (StepEnd, TurnStart, TurnEnd)):
            calls = []
        elif isinstance(body, AssistantMessage) and appended:
            calls += [[body.turn, body.step, at, call.id, None] for at, call in enumerate(body.message.calls)]
        elif isinstance(body, ToolCall):
            mine = [c for c in calls if c[:2] == [body.turn, body.step] and c[3] == body.call_id and c[4] is None]
            for call in mine[:1]:
                call[4] = event.seq
        elif isinstance(body, ToolResult) and appended:
            label = body.message.tool_call_id
            mine = [c for c in calls if c[:2] == [body.turn, body.step] and c[3] == label]
            for call in mine[:1]:
                calls.remove(call)
    return [tuple(call) for call in calls]


def as_tuples(pending: PendingCalls) -> list[tuple[int, int, int, str, int | None]]:
    return [(call.turn, call.step, call.index, call.call_id, call.recorded_seq) for call in pending]


@given(data=st.data())
def test_at_every_event_of_a_log_as_quiesce_writes_it_the_plain_model_agrees(data, logs):
    events, pending = logs.read(data.draw(logs.walks())), PendingCalls()
    for length, event in enumerate(events, 1):
        pending.observe(event)
        assert as_tuples(pending) == pending_by_hand(events[:length])


@given(data=st.data())
def test_at_every_event_of_any_log_that_the_rules_admit_the_plain_model_agrees(data, logs):
    events, pending = data.draw(logs.admitted()), PendingCalls()
    for length, event in enumerate(events, 1):
        pending.observe(event)
        assert as_tuples(pending) == pending_by_hand(events[:length])
        assert pending.first() == next(iter(pending), None)
        assert len(pending) == len(list(pending))
