"""Recovery: what a failed, killed or forked step still owes, and the closers of an open turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol.events import EndSeed, StepEnd, ToolCall, ToolResult, TurnEnd, text_of
from quiesce.protocol.history import history_of, sendable, sendable_problems
from quiesce.protocol.outcome import ERROR_NAMES
from quiesce.protocol.pending import Standing
from quiesce.protocol.recovery import closers, closing_events, forked, recovery_results
from quiesce.protocol.rules import LogState, Phase, check

CODES = {
    Standing.UNRECORDED: "TOOL_NOT_STARTED",
    Standing.RECORDED: "TOOL_OUTCOME_UNKNOWN",
    Standing.ASKED: "TOOL_NOT_STARTED",
    Standing.APPROVED: "TOOL_OUTCOME_UNKNOWN",
    Standing.DENIED: "TOOL_DENIED",
}


def name_it(call, position) -> str:
    return f"{call.call_id}-{position}"


@pytest.fixture
def recovered(logs):
    """The recovery results of what the log of a line leaves open."""

    def of(line, cause="failed", settled=None):
        return recovery_results(logs.state_of(logs.read(line)).pending, cause, name_it, settled)

    return of


@pytest.fixture
def closed(logs):
    """The closers of the log of a line, as events."""

    def of(line, cause="interrupted"):
        return closing_events(logs.state_of(logs.read(line)), cause)

    return of


# --- labels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["failed", "interrupted", "forked"])
@pytest.mark.parametrize(
    ("line", "code", "sources"),
    [
        ("turn step ask:a call:a", "TOOL_OUTCOME_UNKNOWN", (3,)),
        ("turn step ask:a", "TOOL_NOT_STARTED", None),
        ("turn step ask:a call:a asks:a=0", "TOOL_NOT_STARTED", (3,)),
        ("turn step ask:a call:a asks:a=0 approves:a=0", "TOOL_OUTCOME_UNKNOWN", (3,)),
        ("turn step ask:a call:a asks:a=0 denies:a=0", "TOOL_DENIED", (3,)),
    ],
    ids=["recorded", "not recorded", "undecided", "approved", "denied"],
)
def test_g4_the_label_says_how_far_the_call_came(recovered, line, code, sources, cause):
    (item,) = recovered(line, cause)
    assert isinstance(item.body, ToolResult)
    assert (item.body.error.code, item.body.error.name) == (code, ERROR_NAMES[code])
    assert item.body.message.is_error
    assert item.source_event_seqs == sources


def texts(recovered, cause):
    unknown, unstarted = recovered("turn step ask:a,b call:a", cause)
    return text_of(unknown.body.message.content), text_of(unstarted.body.message.content)


def test_an_unknown_outcome_warns_against_a_blind_retry(recovered):
    unknown, _ = texts(recovered, "failed")
    assert "was recorded as started" in unknown
    assert "outcome is unknown" in unknown
    assert "only if it only reads or is idempotent" in unknown
    assert "otherwise check" in unknown


def test_a_call_that_never_started_may_be_asked_for_again(recovered):
    _, unstarted = texts(recovered, "failed")
    assert "never started" in unstarted
    assert "Ask for it again" in unstarted


@pytest.mark.parametrize(("cause", "words"), [("failed", "nobody had decided"), ("forked", "forked off")])
def test_a_call_that_nobody_decided_about_may_be_asked_for_again(recovered, cause, words):
    (item,) = recovered("turn step ask:a call:a asks:a=0", cause)
    assert words in text_of(item.body.message.content)


def test_a_denial_keeps_its_reason_through_recovery(recovered):
    (item,) = recovered("turn step ask:a call:a asks:a=0 denies:a=0")
    assert item.body.error.reason == "no"
    assert text_of(item.body.message.content) == "The call was denied: no"


@pytest.mark.parametrize("words", ["asks:a=0", "asks:a=0 denies:a=0"])
def test_what_is_said_to_have_returned_without_an_approval_is_passed_over(logs, recovered, words):
    settled = {0: logs.result(1, 1, "a", "returned")}
    (item,) = recovered(f"turn step ask:a call:a {words}", settled=settled)
    assert item.body != settled[0]


def test_a_killed_step_says_the_same_as_a_failed_one(recovered):
    assert texts(recovered, "failed") == texts(recovered, "interrupted")


def test_after_a_fork_both_texts_are_cautious(recovered):
    for text in texts(recovered, "forked"):
        assert "forked off" in text
        assert "the original conversation may have" in text
        assert "check for its effects" in text
    assert not set(texts(recovered, "forked")) & set(texts(recovered, "failed"))


def test_a_result_answers_its_call_by_label_turn_and_step(recovered):
    (item,) = recovered("turn end-turn turn step end-step step ask:p,q unstarted:p")
    assert (item.body.turn, item.body.step, item.body.message.tool_call_id) == (2, 2, "q")
    assert (item.body.message.role, item.body.message.id) == ("tool", "q-0")
    assert item.surface_op == "append"


# --- order, and results that tools really returned ---------------------------------------------------------------


def test_g1_what_is_pending_is_answered_in_call_order(logs, recovered):
    assert (
        logs.show(recovered("turn step ask:a,b,c,d call:a call:b call:c result:a")) == "unknown:b unknown:c unstarted:d"
    )


def test_nothing_pending_needs_no_result(recovered):
    assert recovered("turn step ask:a call:a result:a") == ()


@pytest.mark.parametrize("index", range(3))
def test_g3_a_settled_result_wins_wherever_it_stands(logs, recovered, index):
    label = "abc"[index]
    settled = {index: logs.result(1, 1, label, "returned")}
    items = recovered("turn step ask:a,b,c call:a call:b call:c", settled=settled)
    assert logs.show(items) == " ".join(f"{'result' if other == label else 'unknown'}:{other}" for other in "abc")
    assert items[index].body == settled[index]
    assert items[index].source_event_seqs == (3 + index,)


def test_g3_settled_results_behind_a_lost_one_are_kept(logs, recovered):
    settled = {1: logs.result(1, 1, "b"), 3: logs.result(1, 1, "d", code="TOOL_ERROR")}
    items = recovered("turn step ask:a,b,c,d,e call:a call:b call:c call:d", settled=settled)
    assert logs.show(items) == "unknown:a result:b unknown:c failed:d unstarted:e"


def test_settled_results_go_by_index_where_labels_repeat(logs, recovered):
    settled = {1: logs.result(1, 1, "a", "second")}
    items = recovered("turn step ask:a,a call:a call:a", settled=settled)
    assert logs.show(items) == "unknown:a result:a"


def test_a_settled_result_of_a_call_that_was_answered_is_not_written_twice(logs, recovered):
    settled = {0: logs.result(1, 1, "a", "late")}
    assert logs.show(recovered("turn step ask:a,b call:a result:a", settled=settled)) == "unstarted:b"


def test_an_answer_for_a_call_without_a_record_is_passed_over_as_the_log_would_refuse_it(logs, recovered):
    settled = {1: logs.result(1, 1, "b", code="ABORTED_BEFORE_DISPATCH")}
    items = recovered("turn step ask:a,b call:a", settled=settled)
    assert logs.show(items) == "unknown:a unstarted:b"
    logs.state_of(logs.read("turn step ask:a,b call:a")).admit(items, 0)


def test_only_recovery_results_are_named_by_the_caller_with_their_position(logs):
    pending = logs.state_of(logs.read("turn step ask:a,b,c call:a call:b")).pending
    asked = []
    recovery_results(pending, "failed", lambda *at: asked.append(at) or "id", {0: logs.result(1, 1, "a")})
    assert [(call.call_id, position) for call, position in asked] == [("b", 1), ("c", 2)]


# --- closers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param("", "", id="an empty log"),
        pytest.param("user splice", "", id="no turn was ever open"),
        pytest.param("turn step ask end-step end-turn", "", id="the turn is closed"),
        pytest.param("turn step ask:a end-step end-turn", "", id="closed by somebody with a call unanswered"),
        pytest.param("turn", "end-turn:interrupted", id="no step is open"),
        pytest.param("turn step", "end-step end-turn:interrupted", id="nothing was asked for"),
        pytest.param("turn step ask:a call:a result:a", "end-step end-turn:interrupted", id="all is answered"),
        pytest.param("turn step ask:a end-step", "end-turn:interrupted", id="a closed step gets nothing"),
        pytest.param(
            "turn step ask:a,b,c call:a result:a call:b",
            "unknown:b unstarted:c end-step end-turn:interrupted",
            id="calls are open",
        ),
    ],
)
def test_closers_answer_what_is_open_and_close_step_and_turn(logs, closed, line, shown):
    assert logs.show(closed(line)) == shown


def test_closers_name_the_step_and_turn_that_are_open(closed):
    *_, step_end, turn_end = closed("turn end-turn turn step end-step step ask:a")
    assert (step_end.body, turn_end.body.turn) == (StepEnd(2, 2), 2)


@pytest.mark.parametrize("cause", ["interrupted", "forked"])
def test_the_turn_ends_for_the_cause(closed, cause):
    assert closed("turn", cause)[-1].body.reason.kind == cause


def test_the_ids_of_closers_follow_from_label_and_seq(closed):
    results = closed("turn step ask:k1,k2,, call:k1 splice")[:4]
    assert [item.body.message.id for item in results] == [
        "interrupted-tool-result-k1-5",
        "interrupted-tool-result-k2-6",
        "interrupted-tool-result--7",
        "interrupted-tool-result--8",
    ]
    assert [item.seq for item in results] == [5, 6, 7, 8]


def test_closers_carry_the_time_of_the_last_event(logs, closed):
    assert {item.time for item in closed("turn step ask:a,b call:a splice")} == {logs.TIME + 4}


def test_two_readers_of_one_log_close_it_in_the_same_words(closed):
    assert closed("turn step ask:a,b call:a") == closed("turn step ask:a,b call:a")


def test_closing_changes_nothing_in_the_state_it_reads(logs):
    state = logs.state_of(logs.read("turn step ask:a,b call:a"))
    before = state.copy()
    closing_events(state, "interrupted")
    assert state == before


# --- forks -------------------------------------------------------------------------------------------------------


def test_a_fork_is_the_prefix_a_mark_and_the_closers(logs):
    prefix = logs.read("turn step user ask:a,b,c call:a result:a call:b")
    child = forked(prefix)
    assert child[: len(prefix)] == prefix
    assert logs.show(child[len(prefix) :]) == "seed unknown:b unstarted:c end-step end-turn:forked"
    assert child[len(prefix)].body == EndSeed(inherited=True)


def test_a_fork_between_turns_is_the_prefix_and_a_mark(logs):
    assert logs.show(forked(logs.read("turn step ask end-step end-turn"))[5:]) == "seed"


def test_what_a_fork_adds_is_numbered_on_and_timed_as_the_last_event(logs):
    prefix = logs.read("turn step ask:a call:a")
    child = forked(prefix)
    assert [event.seq for event in child] == list(range(len(child)))
    assert {event.time for event in child[len(prefix) :]} == {logs.TIME + 3}


def test_a_fork_of_a_fork_is_closed_already(logs):
    child = forked(logs.read("turn step ask:a call:a"))
    assert logs.show(forked(child)[len(child) :]) == "seed"


# --- every log, at every event -----------------------------------------------------------------------------------


def open_calls(logs, events) -> list[str]:
    return [label for calls, results, closed in logs.steps(events) if not closed for label in calls[len(results) :]]


def prefixes(events):
    return [events[:length] for length in range(len(events) + 1)]


@settings(max_examples=50)
@given(data=st.data())
def test_g1_g6_closed_at_any_event_a_log_has_no_breaks_and_each_call_exactly_one_result(data, logs):
    for prefix in prefixes(logs.read(data.draw(logs.walks()))):
        state = logs.state_of(prefix)
        closing = closing_events(state, "interrupted")
        whole = (*prefix, *closing)
        assert not list(check(whole))
        assert logs.is_paired(whole)
        assert all(closed for _, _, closed in logs.steps(whole))
        assert not any(isinstance(event.body, ToolCall) for event in closing)  # G6: nothing is started
        assert closers(logs.state_of(whole), "interrupted") == ()


@settings(max_examples=50)
@given(data=st.data())
def test_g4_closed_at_any_event_each_open_call_is_labelled_by_its_record(data, logs):
    for prefix in prefixes(logs.read(data.draw(logs.walks()))):
        pending = list(logs.state_of(prefix).pending)
        results = closing_events(logs.state_of(prefix), "interrupted")[: len(pending)]
        assert [event.body.message.tool_call_id for event in results] == open_calls(logs, prefix)
        for event, call in zip(results, pending, strict=True):
            assert event.source_event_seqs == (None if call.recorded_seq is None else (call.recorded_seq,))
            assert event.body.error.code == CODES[call.standing]
        for event in results:
            for seq in event.source_event_seqs or ():
                assert isinstance(prefix[seq].body, ToolCall)
                assert prefix[seq].body.call_id == event.body.message.tool_call_id


@settings(max_examples=50)
@given(data=st.data())
def test_g1_forked_at_any_event_a_log_has_no_breaks_and_each_call_exactly_one_result(data, logs):
    events = logs.read(data.draw(logs.walks()))
    for prefix in prefixes(events)[1:]:
        child = forked(prefix)
        assert child[: len(prefix)] == prefix
        assert not list(check(child))
        assert logs.is_paired(child)
        assert logs.state_of(child).phase is Phase.IDLE


@given(data=st.data())
def test_g1_closers_of_whatever_the_rules_admit_are_admitted(data, logs):
    state = logs.state_of(data.draw(logs.admitted()))
    closing = state.admit(closers(state, "interrupted"), 0)
    assert (state.phase, len(state.pending)) == (Phase.IDLE, 0)
    assert [type(event.body) for event in closing[-1:]] in ([], [TurnEnd])


@settings(max_examples=50)
@given(data=st.data())
def test_g3_a_failed_step_keeps_every_settled_result_whichever_calls_returned(data, logs):
    for prefix in prefixes(logs.read(data.draw(logs.walks()))):
        state = logs.state_of(prefix)
        recorded = [call for call in state.pending if call.standing in (Standing.RECORDED, Standing.APPROVED)]
        returned = data.draw(st.lists(st.sampled_from(recorded), unique=True)) if recorded else []
        settled = {c.index: logs.result(c.turn, c.step, c.call_id, f"returned-{c.index}") for c in returned}
        results = state.admit(recovery_results(state.pending, "failed", name_it, settled), 0)
        kept = [event.body for event in results if event.body.error is None]
        assert kept == [settled[index] for index in sorted(settled)]


@settings(max_examples=50)
@given(data=st.data())
def test_g9_closed_at_any_event_the_history_is_sendable_without_anything_made_up(data, logs):
    for prefix in prefixes(logs.read(data.draw(logs.walks()))):
        entries = history_of((*prefix, *closing_events(logs.state_of(prefix), "interrupted"))).entries()
        assert sendable_problems(sendable(entries)) == []
        assert sendable(entries) == tuple(entry.message for entry in entries)


def test_an_empty_log_needs_no_closers():
    assert closers(LogState(), "interrupted") == ()
