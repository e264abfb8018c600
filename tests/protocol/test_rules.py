"""The rules of the log: each accepted and refused, appends that are all or nothing, foreign logs walked over."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quiesce.protocol.errors import LogError, RuleBroken
from quiesce.protocol.events import BODIES, AssistantMessage, ErrorInfo, ToolCall, ToolResult
from quiesce.protocol.pending import Standing
from quiesce.protocol.rules import CHECKS, PHASES, Break, LogState, Phase, check


@pytest.fixture
def broken(logs):
    """The rules that the last word of a line breaks, coming after all the words before it."""

    def by_last(line: str) -> list[str]:
        *before, last = logs.read(line)
        return [item.rule for item in logs.state_of(before).breaks(last)]

    return by_last


def rules_broken(events) -> list[tuple[int, str]]:
    return [(item.seq, item.rule) for item in check(events)]


# --- one event after another -------------------------------------------------------------------------------------

TURN = "turn step ask:a,b call:a result:a unstarted:b end-step end-turn"
ACCEPTED = {
    "the first turn is number 1": "turn",
    "a turn has the number after the last one": f"{TURN} turn@2",
    "a turn may be empty": "turn end-turn",
    "the first step of a turn is number 1": "turn step@1.1",
    "steps count up": "turn step end-step step@1.2",
    "steps count from 1 again in each turn": f"{TURN} turn step@2.1",
    "a step may be empty": "turn step end-step",
    "a step is closed when all its calls are answered": "turn step ask:a,b call:a result:a unstarted:b end-step",
    "a turn is closed after its last step": f"{TURN[:-9]} end-turn",
    "input may stand before any turn": "user",
    "input may stand before the answer": "turn step user",
    "input may stand after the last result": "turn step ask:a unstarted:a user",
    "an answer stands in the open step": "turn step ask@1.1",
    "a call is recorded once it was asked for": "turn step ask:a call:a",
    "calls are recorded while others run": "turn step ask:a,b call:a call:b",
    "a call is recorded after the result of an earlier one": "turn step ask:a,b call:a result:a call:b",
    "each call of a shared label is recorded": "turn step ask:a,a call:a call:a",
    "an empty label is as good as any": "turn step ask: call: result:",
    "a recorded call has a result": "turn step ask:a call:a result:a",
    "a recorded call may end as unknown": "turn step ask:a call:a unknown:a",
    "a call without a record may be labelled as not started": "turn step ask:a unstarted:a",
    "each call of a shared label has its result": "turn step ask:a,a call:a call:a result:a result:a",
    "a late result may follow its call's answer": "turn step ask:a call:a unknown:a late:a",
    "a late result may come when all is closed": f"{TURN} late:a",
    "a late result may stand between a call and its result": "turn step ask:a,b unstarted:a late:a",
    "a spliced inbox may stand between a call and its result": "turn step ask:a call:a splice",
    "a model attempt may be written down": "turn step attempt",
    "the mark of a seed may stand in an open step": "turn step ask:a call:a seed",
    "a foreign event may stand anywhere": "turn step ask:a call:a foreign",
    "a recorded call is asked about": "turn step ask:a call:a asks:a=0",
    "calls are asked about while others run": "turn step ask:a,b call:a call:b asks:b=1 asks:a=0",
    "an approved call has a result": "turn step ask:a call:a asks:a=0 approves:a=0 result:a",
    "an approved call may end as unknown": "turn step ask:a call:a asks:a=0 approves:a=0 unknown:a",
    "a denied call is answered so": "turn step ask:a call:a asks:a=0 denies:a=0 denied:a",
    "an undecided call may be labelled as not started": "turn step ask:a call:a asks:a=0 unstarted:a",
    "each call of a shared label is decided by its index": (
        "turn step ask:a,a call:a call:a asks:a=0 asks:a=1 denies:a=1 approves:a=0 result:a denied:a"
    ),
    "an event comes from the first one": "turn step<0",
    "an event comes from earlier ones": "turn step ask:a call:a result:a<3",
    "compaction replaces earlier events": "turn step user user end-step end-turn user:sum>2-3",
    "compaction may come while calls are open": "turn step user ask:a call:a user:sum>2-2",
    "a result is replaced in its closed step": f"{TURN} result:a@1.1>4-4",
    "an answer may stand for others and is not the step's own": "turn step user ask:x>2-2 ask:a",
    "a call of the step's own answer is recorded after compaction": "turn step user ask:a ask:b>2-2 call:a",
    "a foreign message may replace others": "turn step user foreign>2-2",
}
REFUSED = {
    "a turn inside a turn": ("turn turn", "phase"),
    "a turn inside a step": ("turn step turn", "phase"),
    "a first turn that is not 1": ("turn@2", "next-turn"),
    "a turn number twice": (f"{TURN} turn@1", "next-turn"),
    "a turn number left out": (f"{TURN} turn@3", "next-turn"),
    "a step without a turn": ("step", "phase"),
    "a step inside a step": ("turn step step", "phase"),
    "a step of another turn": ("turn step@2.1", "open-turn"),
    "a first step that is not 1": ("turn step@1.2", "next-step"),
    "a step number twice": ("turn step end-step step@1.1", "next-step"),
    "a step number left out": ("turn step end-step step@1.3", "next-step"),
    "steps that go on counting in the next turn": (f"{TURN} turn step@2.2", "next-step"),
    "the end of a turn that is not open": ("end-turn", "phase"),
    "the end of a turn long after the last one": (f"{TURN} end-turn@5", "phase"),
    "the end of another turn": ("turn end-turn@2", "open-turn"),
    "the end of a turn whose step is open": ("turn step end-turn", "phase"),
    "the end of a turn while a call is open": ("turn step ask:a end-turn", "phase all-answered"),
    "the end of a step that is not open": ("turn end-step", "phase"),
    "the end of any step where none is open": ("turn end-step@1.7", "phase"),
    "the end of another step": ("turn step end-step@1.2", "open-step"),
    "the end of a step of another turn": ("turn step end-step@2.1", "open-step"),
    "the end of a step while a call is recorded": ("turn step ask:a call:a end-step", "all-answered"),
    "the end of a step while a call is not even recorded": ("turn step ask:a end-step", "all-answered"),
    "the end of a step while the last call is open": ("turn step ask:a,b unstarted:a end-step", "all-answered"),
    "an answer outside of a step": ("turn ask", "phase"),
    "an answer of another step": ("turn step ask@1.2", "open-step"),
    "an answer of another turn": ("turn step ask@2.1", "open-step"),
    "a second answer in a step": ("turn step ask ask", "one-answer"),
    "input between a call and its result": ("turn step ask:a call:a user", "not-between"),
    "input between an answer and its first call": ("turn step ask:a user", "not-between"),
    "input between two results": ("turn step ask:a,b unstarted:a user", "not-between"),
    "a record of another step": ("turn step ask:a call:a@1.2", "open-step asked-for"),
    "a record of another turn": ("turn step ask:a call:a@2.1", "open-step asked-for"),
    "a record outside of a step": ("turn call:a", "phase asked-for"),
    "a record before the answer": ("turn step call:a", "asked-for"),
    "a record that nobody asked for": ("turn step ask:a call:x", "asked-for"),
    "a record of a call of an earlier step": ("turn step ask:a unstarted:a end-step step ask call:a", "asked-for"),
    "a second record": ("turn step ask:a call:a call:a", "asked-for"),
    "a record of a call that was answered": ("turn step ask:a unstarted:a call:a", "asked-for"),
    "a third record of a label that two calls share": ("turn step ask:a,a call:a call:a call:a", "asked-for"),
    "a result outside of a step": ("turn result:a", "phase call-order"),
    "a result of another step": ("turn step ask:a call:a result:a@1.2", "open-step call-order"),
    "a result of another turn": ("turn step ask:a call:a result:a@2.1", "open-step call-order"),
    "a result that nobody waits for": ("turn step ask:a call:a result:x", "call-order"),
    "a second result": ("turn step ask:a call:a result:a result:a", "call-order"),
    "a third result for two calls": ("turn step ask:a,a call:a call:a result:a result:a result:a", "call-order"),
    "a result before that of an earlier call": ("turn step ask:a,b call:a call:b result:b", "call-order"),
    "a recovery result before that of an earlier call": ("turn step ask:a,b call:a unstarted:b", "call-order"),
    "a result without a record": ("turn step ask:a result:a", "recorded-before"),
    "an error without a record": ("turn step ask:a failed:a", "recorded-before"),
    "an unknown outcome without a record": ("turn step ask:a unknown:a", "recorded-before"),
    "an abort without a record": ("turn step ask:a aborted:a", "recorded-before"),
    "a question about a call without a record": ("turn step ask:a asks:a=0", "asked-once"),
    "a second question about a call": ("turn step ask:a call:a asks:a=0 asks:a=0", "asked-once"),
    "a question about a call that was decided": ("turn step ask:a call:a asks:a=0 denies:a=0 asks:a=0", "asked-once"),
    "a question about a call that was answered": ("turn step ask:a call:a result:a asks:a=0", "asked-once"),
    "a question about a call that nobody made": ("turn step ask:a call:a asks:a=1", "asked-once"),
    "a question that names another call's label": ("turn step ask:a call:a asks:b=0", "asked-once"),
    "a question of another step": ("turn step ask:a call:a asks:a=0@1.2", "open-step asked-once"),
    "a question outside of a step": ("turn asks:a=0", "phase asked-once"),
    "a decision that nobody asked for": ("turn step ask:a call:a approves:a=0", "decided-once"),
    "a second decision": ("turn step ask:a call:a asks:a=0 denies:a=0 approves:a=0", "decided-once"),
    "a decision about the call beside": ("turn step ask:a,b call:a call:b asks:a=0 approves:b=1", "decided-once"),
    "a decision that names another call's label": ("turn step ask:a call:a asks:a=0 approves:b=0", "decided-once"),
    "a decision about a call that was answered": (
        "turn step ask:a call:a asks:a=0 unstarted:a approves:a=0",
        "decided-once",
    ),
    "a decision of another step": ("turn step ask:a call:a asks:a=0 approves:a=0@1.2", "open-step decided-once"),
    "a result while a person is asked": ("turn step ask:a call:a asks:a=0 result:a", "decided-before"),
    "an unknown outcome while a person is asked": ("turn step ask:a call:a asks:a=0 unknown:a", "decided-before"),
    "a denial before a person decided": ("turn step ask:a call:a asks:a=0 denied:a", "decided-before"),
    "a success of a call that was denied": ("turn step ask:a call:a asks:a=0 denies:a=0 result:a", "decided-before"),
    "the end of a step while a person is asked": ("turn step ask:a call:a asks:a=0 end-step", "all-answered"),
    "the end of a step with a decision and no result": (
        "turn step ask:a call:a asks:a=0 denies:a=0 end-step",
        "all-answered",
    ),
    "an event that comes from itself": ("turn user<1", "earlier-sources"),
    "an event that comes from a later one": ("turn user<7", "earlier-sources"),
    "an event that comes from nowhere": ("turn user<-1", "earlier-sources"),
    "a range that reaches itself": ("turn step user user:sum>2-3", "earlier-range"),
    "a range that is turned round": ("turn step user user:sum>2-1", "earlier-range"),
    "an end of a step that claims to replace something": (
        "turn step ask:a call:a end-step>2-3",
        "messages-replace all-answered",
    ),
    "a start of a turn that claims to replace something": ("user turn>0-0", "messages-replace"),
}


@pytest.mark.parametrize("line", ACCEPTED.values(), ids=ACCEPTED)
def test_the_log_accepts(broken, line):
    assert broken(line) == []


@pytest.mark.parametrize(("line", "rules"), REFUSED.values(), ids=REFUSED)
def test_the_log_refuses(broken, line, rules):
    assert broken(line) == rules.split()


@pytest.mark.parametrize("change", [{"name": "other"}, {"arguments": '{"x":1}'}, {"arguments": ""}])
def test_the_log_refuses_a_record_that_differs_from_the_message(logs, change):
    record = logs.draft_of("call:a@1.1").at(3, 0)
    changed = evolve(record, body=evolve(record.body, **change))
    assert [item.rule for item in logs.state_of(logs.read("turn step ask:a")).breaks(changed)] == ["asked-for"]


def test_calls_that_share_a_label_are_recorded_as_each_was_asked_for(logs):
    asked = logs.answer(1, 1, logs.block("x", "read"), logs.block("x", "write"))
    state = logs.state_of(logs.read("turn step ask"))
    state.calls = None
    state.watch(evolve(logs.draft_of("ask@1.1").at(2, 0), body=asked))
    read, write = (
        evolve(logs.draft_of("call:x@1.1").at(3, 0), body=ToolCall(1, 1, "x", name, "{}")) for name in ("read", "write")
    )
    assert [item.rule for item in state.breaks(write)] == ["asked-for"]
    assert state.breaks(read) == []
    state.watch(read)
    assert state.breaks(evolve(write, seq=4)) == []


@pytest.mark.parametrize(
    ("is_error", "code", "rules"),
    [
        (True, "TOOL_NOT_STARTED", []),
        (False, "TOOL_NOT_STARTED", ["recorded-before", "labelled"]),
        (True, "TOOL_ERROR", ["recorded-before"]),
        (True, None, ["recorded-before"]),
        (False, None, ["recorded-before"]),
    ],
)
def test_without_a_record_only_an_error_labelled_not_started_is_accepted(logs, is_error, code, rules):
    result = logs.result(1, 1, "a")
    error = None if code is None else ErrorInfo("SomeError", code)
    body = evolve(result, message=evolve(result.message, is_error=is_error), error=error)
    event = evolve(logs.draft_of("result:a@1.1").at(3, 0), body=body)
    assert [item.rule for item in logs.state_of(logs.read("turn step ask:a")).breaks(event)] == rules


def test_a_label_of_an_error_on_a_success_is_refused(logs):
    event = logs.draft_of("failed:a@1.1").at(4, 0)
    body = evolve(event.body, message=evolve(event.body.message, is_error=False))
    state = logs.state_of(logs.read("turn step ask:a call:a"))
    assert [item.rule for item in state.breaks(evolve(event, body=body))] == ["labelled"]


EVERY_KIND = (
    *("turn@1", "end-turn@1", "step@1.1", "end-step@1.1", "user", "attempt@1.1", "ask@1.1", "call:a@1.1"),
    *("result:a@1.1", "late:a@1.1", "splice", "seed", "foreign", "asks:a=0@1.1", "approves:a=0@1.1"),
)


@pytest.mark.parametrize("word", EVERY_KIND)
@pytest.mark.parametrize("seq", [0, 2, -1])
def test_a_seq_that_does_not_continue_the_log_is_refused(logs, word, seq):
    state = logs.state_of(logs.read("foreign"))
    assert "contiguous-seq" in [item.rule for item in state.breaks(logs.draft_of(word).at(seq, 0))]


@pytest.mark.parametrize("word", EVERY_KIND)
def test_sources_that_are_no_earlier_events_are_refused(logs, word):
    assert "earlier-sources" in [item.rule for item in LogState().breaks(logs.draft_of(f"{word}<0").at(0, 0))]


@pytest.mark.parametrize("word", EVERY_KIND)
def test_a_range_that_is_not_earlier_is_refused(logs, word):
    assert "earlier-range" in [item.rule for item in LogState().breaks(logs.draft_of(f"{word}>0-0").at(0, 0))]


# --- G1 in the log itself ----------------------------------------------------------------------------------------


@given(data=st.data())
def test_g1_whatever_the_rules_admit_a_closed_step_has_one_result_per_call_in_call_order(data, logs):
    events = data.draw(logs.admitted())
    assert logs.is_paired(events)


@given(data=st.data())
def test_g4_whatever_the_rules_admit_a_result_of_a_body_stands_behind_a_record(data, logs):
    recorded, ran = Counter[str](), Counter[str]()
    for event in data.draw(logs.admitted()):
        match event.body:
            case AssistantMessage() if event.surface_op == "append":
                recorded.clear()
                ran.clear()
            case ToolCall(call_id=label):
                recorded[label] += 1
            case ToolResult(message=message, error=error) if event.surface_op == "append":
                ran[message.tool_call_id] += error is None or error.code != "TOOL_NOT_STARTED"
        assert ran <= recorded


@given(data=st.data())
def test_g4_whatever_the_rules_admit_no_call_succeeds_that_a_person_did_not_approve(data, logs):
    pending = LogState().pending
    for event in data.draw(logs.admitted()):
        body = event.body
        if isinstance(body, ToolResult) and event.surface_op == "append" and body.error is None:
            call = pending.find(body.turn, body.step, body.message.tool_call_id)
            assert call.standing in (Standing.RECORDED, Standing.APPROVED)
        pending.observe(event)


# --- appends -----------------------------------------------------------------------------------------------------


def drafts(logs, line: str, turn: int = 0, step: int = 0):
    place = logs.Place(turn, step)
    return [logs.draft_of(word, place) for word in line.split()]


def test_an_append_is_numbered_and_timed(logs):
    after = LogState()
    events = after.admit(drafts(logs, "turn step user"), 77)
    assert [(event.seq, event.time) for event in events] == [(0, 77), (1, 77), (2, 77)]
    assert (after.next_seq, after.last_time, after.phase, after.turn, after.step) == (3, 77, Phase.STEP, 1, 1)


def test_each_draft_of_an_append_is_checked_behind_the_ones_before_it(logs):
    after = LogState()
    events = after.admit(drafts(logs, "turn step ask:a call:a result:a end-step end-turn"), 0)
    assert logs.show(events) == "turn step ask:a call:a result:a end-step end-turn:completed"
    assert (after.phase, len(after.pending)) == (Phase.IDLE, 0)


def test_an_append_of_nothing_changes_nothing(logs):
    state = logs.state_of(logs.read("turn step"))
    before = state.copy()
    assert state.admit((), 5) == ()
    assert state == before


@pytest.mark.parametrize("last", ["end-step", "end-turn", "user", "turn", "result:x", "call:a"])
def test_a_refused_append_changes_nothing(logs, last):
    state = logs.state_of(logs.read("turn step ask:a,b call:a result:a"))
    before = state.copy()
    with pytest.raises(RuleBroken):
        state.admit(drafts(logs, f"call:b {last}", 1, 1), 99)
    assert state == before
    assert list(state.pending) == list(before.pending)


@pytest.mark.parametrize("line", ["result:a", "result:a call:b result:b end-step"])
def test_an_accepted_append_counts_and_leaves_a_copy_as_it_was(logs, line):
    state = logs.state_of(logs.read("turn step ask:a,b call:a"))
    before = state.copy()
    events = state.admit(drafts(logs, line, 1, 1), 99)
    assert before == logs.state_of(logs.read("turn step ask:a,b call:a"))
    assert state == logs.state_of((*logs.read("turn step ask:a,b call:a"), *events))


@pytest.mark.parametrize("word", ["call:a", "result:b", "end-step", "turn"])
def test_a_refused_draft_that_is_alone_changes_nothing(logs, word):
    state = logs.state_of(logs.read("turn step ask:a,b call:a"))
    before = state.copy()
    with pytest.raises(RuleBroken):
        state.admit(drafts(logs, word, 1, 1), 99)
    assert state == before


def test_a_refusal_names_the_rule_the_seq_and_what_is_wrong(logs):
    with pytest.raises(RuleBroken, match=r"all-answered: step/end while there are unanswered calls: 'a', ''") as caught:
        logs.state_of(logs.read("turn step ask:a, call:a")).admit(drafts(logs, "end-step", 1, 1), 0)
    assert [(item.seq, item.rule) for item in caught.value.breaks] == [(4, "all-answered")]
    assert isinstance(caught.value, LogError)


def test_a_refused_append_names_every_rule_that_the_draft_breaks(logs):
    with pytest.raises(RuleBroken) as caught:
        logs.state_of(logs.read("turn step ask:a")).admit(drafts(logs, "call:x@9.9<7"), 0)
    assert [item.rule for item in caught.value.breaks] == ["earlier-sources", "open-step", "asked-for"]


def test_the_calls_of_a_closed_step_are_forgotten(logs):
    assert logs.state_of(logs.read("turn step ask:a unstarted:a")).calls
    assert logs.state_of(logs.read("turn step ask:a unstarted:a end-step")).calls is None


def test_a_copy_goes_on_from_here_independently(logs):
    state = logs.state_of(logs.read("turn step ask:a"))
    other = state.copy()
    other.watch(logs.draft_of("unstarted:a@1.1").at(3, 9))
    assert (state.next_seq, len(state.pending)) == (3, 1)
    assert (other.next_seq, other.last_time, len(other.pending)) == (4, 9, 0)


# --- the tables --------------------------------------------------------------------------------------------------


def test_every_type_that_needs_a_phase_is_asked_for_it():
    assert {cls for cls, rules in CHECKS.items() if "phase" in dict(rules)} == set(PHASES)
    assert set(CHECKS) <= set(BODIES.values())


def test_each_rule_has_one_name():
    questions = {question: name for rules in CHECKS.values() for name, question in rules}
    named = {(name, question) for rules in CHECKS.values() for name, question in rules}
    assert len(named) == len(questions) == len(set(questions.values()))


# --- logs from elsewhere -----------------------------------------------------------------------------------------


def test_a_foreign_log_is_reported_break_by_break_with_its_seqs(logs):
    line = "turn step ask:a,b call:a end-step end-turn turn@2 step@2.1 ask:c result:c call:c user end-step turn@4"
    assert rules_broken(logs.read(line)) == [
        (4, "all-answered"),
        (9, "recorded-before"),
        (10, "asked-for"),
        (13, "phase"),
        (13, "next-turn"),
    ]


def test_one_gap_in_the_numbers_is_one_break(logs):
    events = [
        evolve(event, seq=event.seq + 5 * (event.seq > 2)) for event in logs.read("turn step ask end-step end-turn")
    ]
    assert rules_broken(events) == [(8, "contiguous-seq")]


def test_one_turn_left_out_is_one_break(logs):
    assert rules_broken(logs.read("turn end-turn turn@3 end-turn turn@4 end-turn")) == [(2, "next-turn")]


@pytest.mark.parametrize(
    ("line", "rule", "said"),
    [
        ("turn step step", "phase", "step/start stands where a step is open"),
        ("turn@3", "next-turn", "turn 3 starts where turn 1 is due"),
        ("turn step end-step@1.2", "open-step", "it names step 1.2, open is 1.1"),
        ("turn step ask:a call:b", "asked-for", "call 'b' is not a call of this step's message"),
        ("turn step ask:a call:a call:a", "asked-for", "call 'a' has been recorded or answered already"),
        ("turn step ask:a call:a result:b", "call-order", "call 'b' is not a call of this step's message"),
        ("turn step ask:a call:a result:a result:a", "call-order", "call 'a' is answered already"),
        (
            "turn step ask:a,b call:a call:b result:b",
            "call-order",
            "the result of call 'b' stands before that of 'a': results stand in call order",
        ),
    ],
)
def test_a_break_says_in_words_what_is_wrong(logs, line, rule, said):
    events = logs.read(line)
    assert list(check(events)) == [Break(len(events) - 1, rule, said)]


def test_compaction_does_not_break_the_step_it_stands_in(logs):
    assert rules_broken(logs.read("turn step user ask:a call:a user:sum>2-2 result:a end-step end-turn")) == []


def test_the_records_of_a_step_that_was_never_closed_are_reported_and_not_tripped_over(logs):
    assert rules_broken(logs.read("turn step ask:a step@1.2 call:a@1.1")) == [
        (3, "phase"),
        (4, "open-step"),
        (4, "asked-for"),
    ]


def test_the_records_of_a_step_with_two_answers_are_reported_and_not_tripped_over(logs):
    assert rules_broken(logs.read("turn step ask:a,b ask:c call:b")) == [(3, "one-answer"), (4, "asked-for")]


@given(data=st.data())
def test_any_damaged_log_is_walked_to_its_end(data, logs):
    events = logs.read(data.draw(logs.damaged()))
    seqs = [item.seq for item in check(events)]
    assert seqs == sorted(seqs)
    assert all(0 <= seq < len(events) for seq in seqs)


# --- logs as quiesce writes them, and what becomes of them when one thing is wrong ------------------------------


@given(data=st.data())
def test_a_log_as_quiesce_writes_it_has_no_breaks(data, logs):
    events = logs.read(data.draw(logs.walks()))
    assert rules_broken(events) == []
    assert logs.is_paired(events)
    assert all(closed for _, _, closed in logs.steps(events))


def _kinds(words, *kinds):
    return [at for at, word in enumerate(words) if word.split(":")[0] in kinds]


RESULTS = ("result", "failed", "unknown", "unstarted")
STRUCTURE = ("turn", "step", "end-step", "end-turn")


def _without(words, at):
    return [*words[:at], *words[at + 1 :]]


def _twice(words, at):
    return [*words[:at], words[at], *words[at:]]


def _early(words, at):
    """The word at `at`, an end, moved before the last result of its step."""
    results = [result for result in _kinds(words, *RESULTS) if result < at]
    if not results or any(words[mid].startswith("step") for mid in range(results[-1], at)):
        return None
    return [*words[: results[-1]], words[at], *_without(words, at)[results[-1] :]]


def _swapped(words, at):
    """The result at `at` and the next one of its step change places."""
    later = [other for other in _kinds(words, *RESULTS) if other > at]
    if not later or any(words[mid].startswith("step") for mid in range(at, later[0])):
        return None
    swapped = list(words)
    swapped[at], swapped[later[0]] = words[later[0]], words[at]
    return swapped


def _placed(place):
    return lambda words, at: [*words[:at], words[at].split("@")[0] + place, *words[at + 1 :]]


MUTATIONS = {
    "a result is missing": (RESULTS, _without),
    "two results change places": (RESULTS, _swapped),
    "a result stands twice": (RESULTS, _twice),
    "a result names another turn": (RESULTS, _placed("@9.1")),
    "a result names another step": (RESULTS, _placed("@1.9")),
    "a record is missing": (("call",), _without),
    "a record stands twice": (("call",), _twice),
    "a record names another step": (("call",), _placed("@1.9")),
    "an answer names another turn": (("ask",), _placed("@9.1")),
    "an answer stands twice": (("ask",), _twice),
    "an answer with calls is missing": (("ask",), lambda words, at: _without(words, at) if ":" in words[at] else None),
    "a start or an end is missing": (STRUCTURE, lambda words, at: _without(words, at) if words[at + 1 :] else None),
    "a start or an end stands twice": (STRUCTURE, _twice),
    "a turn has another number": (("turn",), _placed("@9")),
    "a step has another number": (("step",), _placed("@1.9")),
    "a step is closed early": (("end-step",), _early),
    "a turn is closed early": (("end-turn",), _early),
}


@pytest.mark.parametrize(("kinds", "mutate"), MUTATIONS.values(), ids=MUTATIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_one_thing_wrong_is_reported_when(data, logs, kinds, mutate):
    words = data.draw(logs.walks(distinct=True)).split()
    found = [changed for at in _kinds(words, *kinds) if (changed := mutate(words, at)) is not None]
    assume(found)
    assert rules_broken(logs.read(" ".join(data.draw(st.sampled_from(found)))))
