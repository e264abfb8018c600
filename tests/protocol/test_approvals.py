"""Questions: what is asked about the calls of the open step, from the events alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.approvals import Question, Questions
from quiesce.protocol.pending import PendingCalls, Standing


def undecided(events):
    questions, pending = Questions(), PendingCalls()
    for event in events:
        questions.observe(event)
        pending.observe(event)
    return questions.undecided(pending)


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("call:a", []),
        ("call:a asks:a=0", [(1, 1, 0)]),
        ("call:a call:b asks:b=1 asks:a=0", [(1, 1, 0), (1, 1, 1)]),
        ("call:a call:b asks:b=1 asks:a=0 approves:a=0", [(1, 1, 1)]),
        ("call:a call:b asks:b=1 asks:a=0 denies:b=1", [(1, 1, 0)]),
        ("call:a call:b asks:a=0 unstarted:a", []),
        ("call:a asks:a=0 end-step", []),
    ],
)
def test_a_question_is_open_until_it_is_decided_or_its_call_is_answered(logs, line, keys):
    assert [question.key for question in undecided(logs.read(f"turn step ask:a,b {line}"))] == keys


def test_a_question_says_which_call_what_it_would_run_with_and_what_is_asked(logs):
    (question,) = undecided(logs.read("turn step ask:a call:a asks:a=0"))
    assert question == Question(1, 1, 0, "a", "tool", {}, "may it?", None)


def test_a_question_of_a_step_that_is_over_is_forgotten(logs):
    events = logs.read("turn step ask:a call:a asks:a=0 unstarted:a end-step step ask:a call:a")
    questions = Questions()
    for event in events:
        questions.observe(event)
    assert questions == Questions()


@given(data=st.data())
def test_the_questions_are_those_of_the_calls_that_stand_undecided(data, logs):
    events = data.draw(logs.admitted())
    for length in range(len(events) + 1):
        pending = logs.state_of(events[:length]).pending
        asked = [(call.turn, call.step, call.index) for call in pending if call.standing is Standing.ASKED]
        assert [question.key for question in undecided(events[:length])] == asked
