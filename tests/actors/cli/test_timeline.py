"""`Timeline`: which call a record or a result belongs to, how calls end, and what becomes of what has no place."""

from __future__ import annotations

import pytest
from attrs import evolve

from quiesce.actors.cli.timeline import Answer, Outcome, Step, Turn, timeline_of


@pytest.fixture
def timeline(logs):
    return lambda line: timeline_of(logs.read(line))


def calls_of(timeline):
    return [call for turn in timeline.turns for call in turn.calls]


def test_records_and_results_find_their_calls(timeline):
    calls = calls_of(timeline("turn step user ask:a,b call:a call:b result:a result:b end-step end-turn"))
    assert [(call.label, call.record.seq, call.answer.seq) for call in calls] == [("a", 4, 6), ("b", 5, 7)]


@pytest.mark.parametrize("label", ["a", ""])
def test_calls_with_one_label_keep_their_own(timeline, label):
    calls = calls_of(timeline(f"turn step ask:{label},{label} call:{label} call:{label} result:{label} result:{label}"))
    assert [(call.record.seq, call.answer.seq) for call in calls] == [(3, 5), (4, 6)]


def test_a_label_that_comes_again_in_a_later_turn_is_another_call(timeline):
    one = "turn step ask:a call:a result:a end-step end-turn"
    assert [call.answer.seq for call in calls_of(timeline(f"{one} {one}"))] == [4, 11]


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("result:a", Outcome.OK),
        ("failed:a", Outcome.ERROR),
        ("aborted:a", Outcome.ABORTED),
        ("unknown:a", Outcome.UNKNOWN),
        ("unstarted:a", Outcome.NOT_STARTED),
        ("", Outcome.OPEN),
        ("asks:a=0", Outcome.WAITING),
        ("asks:a=0 approves:a=0", Outcome.OPEN),
        ("asks:a=0 denies:a=0 denied:a", Outcome.DENIED),
        ("asks:a=0 unstarted:a", Outcome.NOT_STARTED),
        ("asks:a=0 end-step", Outcome.UNANSWERED),
        ("end-step", Outcome.UNANSWERED),
        ("end-turn", Outcome.UNANSWERED),
        ("turn", Outcome.UNANSWERED),
    ],
)
def test_how_a_call_ended(timeline, word, outcome):
    assert [call.outcome for call in calls_of(timeline(f"turn step ask:a call:a {word}"))] == [outcome]


def test_a_question_and_a_decision_find_their_call_by_its_index(timeline):
    calls = calls_of(timeline("turn step ask:a,a call:a call:a asks:a=1 asks:a=0 denies:a=1"))
    assert [(call.question, call.decision) for call in calls] == [("may it?", ""), ("may it?", "denied: no")]


def test_a_call_that_waited_for_a_person_ran_from_the_decision_on(timeline):
    (call,) = calls_of(timeline("turn step ask:a call:a asks:a=0 splice approves:a=0 result:a"))
    assert call.ran == (call.decided.time, call.answer.time)


def test_an_error_without_a_label_is_an_error(logs):
    events = logs.read("turn step ask:a call:a result:a")
    bare = evolve(events[4].body, message=evolve(events[4].body.message, is_error=True))
    (call,) = calls_of(timeline_of((*events[:4], evolve(events[4], body=bare))))
    assert call.outcome is Outcome.ERROR


def test_a_call_ran_from_its_record_to_its_result(timeline, logs):
    (call,) = calls_of(timeline("turn step ask:a call:a foreign foreign result:a"))
    assert call.ran == (logs.TIME + 3, logs.TIME + 6)


@pytest.mark.parametrize(
    ("meta", "ran"),
    [
        ({"startedAt": 1_003, "endedAt": 1_004}, (1_003, 1_004)),
        ({"startedAt": 1_004, "endedAt": 1_003}, (1_003, 1_006)),
        ({"startedAt": 1_003}, (1_003, 1_006)),
        ({"startedAt": "1", "endedAt": True}, (1_003, 1_006)),
    ],
)
def test_times_that_a_host_measured_are_better(logs, meta, ran):
    events = logs.read("turn step ask:a call:a foreign foreign result:a")
    (call,) = calls_of(timeline_of((*events[:6], evolve(events[6], body=evolve(events[6].body, meta=meta)))))
    assert call.ran == ran


def test_the_axis_of_an_answer_spans_its_calls(timeline, logs):
    (turn,) = timeline("turn step user ask:a,b call:a call:b result:a result:b end-step end-turn").turns
    (step,) = turn.parts
    answer = next(entry for entry in step.entries if isinstance(entry, Answer))
    assert answer.span == (logs.TIME + 4, logs.TIME + 7)


def test_an_answer_whose_calls_never_started_has_no_axis(timeline):
    (turn,) = timeline("turn step ask:a unstarted:a").turns
    assert turn.parts[0].entries[0].span is None


def test_steps_stand_in_their_turns(timeline):
    (first, second) = timeline("turn step end-step step end-step end-turn turn step").turns
    assert [part.number for part in first.parts] == [1, 2]
    assert (first.reason.kind, second.reason, second.parts[0].closed) == ("completed", None, None)


def test_what_stands_outside_of_turns_stays_where_it_is(timeline):
    parts = timeline("user turn end-turn seed turn").parts
    assert [isinstance(part, Turn) for part in parts] == [False, True, False, True]


def test_a_step_without_a_turn_gets_one(timeline):
    (turn,) = timeline("step ask end-step").turns
    assert turn.opened is None
    assert isinstance(turn.parts[0], Step)


@pytest.mark.parametrize("stray", ["result:a", "call:a", "result:z", "call:z"])
def test_a_record_or_result_of_no_call_is_an_entry_of_its_own(timeline, stray):
    (turn,) = timeline(f"turn step ask:a call:a result:a {stray}").turns
    assert turn.parts[0].entries[-1].seq == 5


def test_a_message_that_replaces_others_is_no_answer(timeline):
    (turn,) = timeline("turn step ask:a ask:b>2-2 call:a").turns
    assert [call.label for call in turn.calls] == ["a"]
    assert turn.calls[0].record.seq == 4


def test_foreign_events_are_counted_by_type(timeline):
    assert timeline("foreign:x foreign:y foreign:x").foreign == {"x": 2, "y": 1}


def test_input_that_was_not_taken_waits(timeline):
    assert len(timeline("splice:later,even-later").inbox) == 2


def test_how_long_a_turn_took_so_far(timeline, logs):
    (turn,) = timeline("turn step user ask:a call:a result:a").turns
    assert turn.last_time == logs.TIME + 5
