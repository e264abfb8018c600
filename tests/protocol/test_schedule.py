"""Batch: which call may start, what is committed when, and when nothing can run or write any more.

A `Shell` plays the part of the scheduler: it does at once what the batch asks for, and writes the log down.
"""

from __future__ import annotations

import pytest
from attrs import Factory, define
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol.schedule import Batch, CallState, Commit, Mode, Run, Start


@define
class Shell:
    """Does what `batch` asks for. `classes` has a letter per call: p(arallel) or e(xclusive)."""

    classes: list[str]
    max_parallel: int = 10
    slow_finalize: bool = False
    slow_append: bool = False
    slow_record: bool = False
    denied: set[int] = Factory(set)
    asked: set[int] = Factory(set)
    slow_prepare: set[int] = Factory(set)
    log: list[str] = Factory(list)
    batch: Batch = None

    def __attrs_post_init__(self):
        self.batch = Batch(len(self.classes), self.max_parallel)
        self.act()

    def act(self):
        while (action := self.batch.next_action()) is not None:
            match action:
                case Start(index):
                    self.start(index)
                case Commit(index):
                    self.batch.committing(index)
                    if not self.slow_finalize:
                        self.finalize(index)
                case Run(index):
                    assert self.batch.prepared(index)
                    self.log.append(f"run{index}")
        return self

    def start(self, index):
        call_class = {"p": "parallel", "e": "exclusive"}[self.classes[index]]
        if not self.batch.try_start(index, call_class):
            return
        self.log.append(f"call{index}")
        if index in self.denied:
            self.batch.answered(index)
            if not self.slow_record:
                self.batch.settled(index)
        elif index in self.asked:
            self.batch.asking(index)
            assert self.batch.asked(index)
        elif index not in self.slow_prepare:
            self.batch.prepared(index)

    def finalize(self, index):
        if self.batch.finalized(index):
            self.log.append(f"result{index}")
            if not self.slow_append:
                self.batch.appended(index)

    def settle(self, *indices):
        for index in indices:
            self.batch.settled(index)
            self.act()
        return self

    def approve(self, *indices):
        for index in indices:
            self.batch.deciding(index)
            assert self.batch.allowed(index)
            self.act()
        return self

    def deny(self, *indices):
        for index in indices:
            self.batch.deciding(index)
            self.batch.settled(index)
            self.act()
        return self

    def abort(self):
        assert self.batch.abort("user")
        for index in (*self.batch.waiting(), *self.batch.unstarted()):
            self.batch.settled(index)
        return self.act()

    @property
    def states(self) -> str:
        return " ".join(self.batch.state(index).value for index in range(self.batch.size))

    @property
    def line(self) -> str:
        return " ".join(self.log)


def shell(classes: str, **options) -> Shell:
    return Shell(list(classes), **options)


# --- 1: calls start in call order, one at a time -----------------------------------------------------------------


def test_calls_start_in_call_order():
    assert shell("ppp").line == "call0 call1 call2"


def test_nothing_starts_while_another_call_is_being_prepared():
    running = shell("ppp", slow_prepare={0})
    assert running.states == "starting waiting waiting"
    assert running.batch.next_action() is None
    assert running.batch.prepared(0)
    assert running.act().line == "call0 call1 call2"


def test_a_call_in_prepare_holds_no_place_in_the_pool():
    running = shell("pp", max_parallel=1, slow_prepare={0})
    running.batch.answered(0)
    assert running.act().states == "answered live"


# --- 2: the pool and the barriers --------------------------------------------------------------------------------


def test_no_more_than_max_parallel_calls_are_live():
    assert shell("ppppp", max_parallel=3).states == "live live live waiting waiting"


def test_a_call_starts_as_soon_as_another_one_ends():
    assert shell("ppp", max_parallel=2).settle(1).states == "live settled live"


def test_with_a_pool_of_2_the_log_reads_call1_call2_result1_call3():
    assert shell("ppp", max_parallel=2).settle(0).line == "call0 call1 result0 call2"


def test_with_a_pool_of_1_calls_run_one_after_the_other():
    assert shell("ppp", max_parallel=1).settle(0, 1, 2).line == "call0 result0 call1 result1 call2 result2"


def test_an_exclusive_call_runs_alone():
    running = shell("pep")
    assert running.states == "live waiting waiting"
    assert running.settle(0).states == "committed live waiting"
    assert running.settle(1).states == "committed committed live"


def test_exclusive_calls_run_one_after_the_other():
    assert shell("ee").settle(0, 1).line == "call0 result0 call1 result1"


def test_an_exclusive_call_waits_until_everything_before_it_is_in_the_log():
    running = shell("pe", slow_append=True).settle(0)
    assert running.states == "appending waiting"
    running.batch.appended(0)
    assert running.act().states == "committed live"


def test_an_exclusive_call_waits_for_a_slow_earlier_one():
    running = shell("ppe").settle(1)
    assert running.states == "live settled waiting"
    assert running.settle(0).states == "committed committed live"


def test_nothing_starts_beside_an_exclusive_call_that_is_in_prepare_or_finalize():
    running = shell("ep", slow_prepare={0}, slow_finalize=True)
    assert running.states == "starting waiting"
    running.batch.prepared(0)
    assert running.settle(0).states == "finalizing waiting"
    running.finalize(0)
    assert running.act().states == "committed live"


def test_a_call_behind_a_barrier_does_not_overtake_it():
    assert shell("pep", max_parallel=5).states == "live waiting waiting"


def test_a_call_is_classified_again_at_each_attempt_to_start_it():
    running = shell("ppe")
    running.classes[2] = "p"
    assert running.settle(1).states == "live settled live"


def test_a_call_that_became_exclusive_waits_for_the_pool_to_drain():
    running = shell("ppp", max_parallel=2)
    running.classes[2] = "e"
    assert running.settle(0).states == "committed live waiting"
    assert running.settle(1).states == "committed committed live"


def test_a_refused_start_is_not_asked_for_again_before_something_happened():
    running = shell("pe")
    assert running.batch.next_action() is None
    running.batch.settled(0)
    assert running.batch.next_action() == Commit(0)


# --- 3: results in call order, before the next start -------------------------------------------------------------


def test_a_fast_later_call_waits_for_a_slow_earlier_one():
    running = shell("ppp").settle(2, 1)
    assert running.line == "call0 call1 call2"
    assert running.settle(0).line == "call0 call1 call2 result0 result1 result2"


def test_a_due_result_goes_before_the_next_start():
    running = shell("ppp", max_parallel=2)
    running.batch.settled(0)
    assert running.batch.next_action() == Commit(0)


def test_a_result_is_finalized_while_the_one_before_it_is_being_appended():
    running = shell("pp", slow_append=True, slow_finalize=True).settle(0, 1)
    running.finalize(0)
    assert running.act().states == "appending finalizing"


def test_nothing_starts_while_a_due_result_is_being_finalized():
    running = shell("ppp", max_parallel=2, slow_finalize=True).settle(0)
    assert running.states == "finalizing live waiting"
    running.finalize(0)
    assert running.act().line == "call0 call1 result0 call2"


def test_one_result_is_finalized_at_a_time():
    running = shell("pp", slow_finalize=True).settle(0, 1)
    assert running.states == "finalizing settled"


def test_a_denied_call_is_answered_in_its_place():
    assert shell("ppp", denied={1}).settle(2, 0).line == "call0 call1 call2 result0 result1 result2"


def test_a_denied_exclusive_call_lets_the_next_one_start():
    assert shell("ep", denied={0}).line == "call0 result0 call1"


def test_a_denied_call_takes_no_place_in_the_pool():
    assert shell("pppp", max_parallel=2, denied={1}).states == "live settled live waiting"


def test_the_call_behind_a_denied_one_does_not_wait_for_its_record():
    running = shell("ppp", max_parallel=1, denied={0}, slow_record=True)
    assert running.states == "answered live waiting"
    assert running.settle(0, 1).line == "call0 call1 result0 result1 call2"


def test_the_call_behind_a_denied_exclusive_one_does():
    running = shell("ep", denied={0}, slow_record=True)
    assert running.states == "answered waiting"
    assert running.settle(0).states == "committed live"


# --- 4: abort ----------------------------------------------------------------------------------------------------


def test_after_an_abort_nothing_starts():
    running = shell("ppp", max_parallel=1).abort()
    assert running.states == "live settled settled"
    assert running.settle(0).line == "call0 result0 result1 result2"
    assert running.batch.mode is Mode.ABORTING


def test_what_never_started_is_answered_after_what_did_and_in_order():
    running = shell("pppp", max_parallel=2).abort().settle(1)
    assert running.line == "call0 call1"
    assert running.settle(0).line == "call0 call1 result0 result1 result2 result3"


def test_a_batch_is_not_quiescent_while_what_never_started_is_unanswered():
    batch = Batch(2)
    batch.abort("user")
    assert not batch.quiescent
    assert batch.next_action() is None
    batch.settled(0)
    batch.settled(1)
    assert batch.next_action() == Commit(0)


def test_a_call_in_prepare_is_not_dispatched_after_an_abort():
    running = shell("pp", slow_prepare={0}).abort()
    assert not running.batch.prepared(0)
    assert running.states == "starting settled"
    assert running.settle(0).line == "call0 result0 result1"


def test_the_first_abort_wins():
    batch = Batch(1)
    assert batch.abort("user")
    assert not batch.abort("other")
    assert batch.abort_cause == "user"


def test_an_abort_after_a_failure_changes_nothing():
    batch = Batch(1)
    batch.fail(OSError())
    assert not batch.abort("user")
    assert batch.mode is Mode.FAILING


# --- 5: failure --------------------------------------------------------------------------------------------------


def test_after_a_failure_nothing_starts_and_what_never_started_is_lost():
    running = shell("ppp", max_parallel=1)
    assert running.batch.fail(OSError())
    assert running.act().states == "live lost lost"
    assert running.settle(0).line == "call0 result0"
    assert running.batch.quiescent


def test_g5_the_first_failure_is_kept():
    batch, first = Batch(2), OSError("first")
    assert batch.fail(first)
    assert not batch.fail(OSError("second"))
    assert batch.failure is first


def test_g5_a_failure_after_an_abort_is_kept():
    batch, first = Batch(1), OSError("first")
    batch.abort("user")
    assert batch.fail(first)
    assert (batch.mode, batch.failure, batch.abort_cause) == (Mode.FAILING, first, "user")


def test_results_are_appended_as_far_as_the_order_allows():
    running = shell("pppp")
    running.batch.fail(OSError())
    running.settle(0, 1, 3)
    running.batch.lost(2)
    assert running.act().states == "committed committed lost held"
    assert running.line == "call0 call1 call2 call3 result0 result1"
    assert running.batch.quiescent


def test_g3_what_returned_behind_a_lost_call_is_held():
    running = shell("ppp")
    running.batch.fail(OSError())
    running.batch.lost(0)
    assert running.settle(2, 1).states == "lost held held"
    assert running.batch.quiescent


def test_a_call_in_prepare_is_not_dispatched_after_a_failure():
    running = shell("pp", slow_prepare={1})
    running.batch.fail(OSError())
    assert not running.batch.prepared(1)
    running.batch.lost(1)
    assert running.settle(0).states == "committed lost"
    assert running.batch.quiescent


def test_a_result_that_does_not_pass_finalize_is_lost():
    running = shell("pp", slow_finalize=True).settle(0, 1)
    running.batch.fail(OSError())
    running.batch.lost(0)
    running.act()
    running.finalize(1)
    assert running.act().states == "lost held"


def test_after_a_failed_append_it_and_what_follows_are_held():
    running = shell("ppp", slow_append=True).settle(0, 1)
    error = OSError("full")
    running.batch.append_failed(0, error)
    running.batch.append_failed(1, OSError("does not fit any more"))
    assert running.act().settle(2).states == "held held held"
    assert running.batch.failure is error
    assert running.batch.quiescent


def test_a_refused_record_loses_its_call_and_holds_what_follows():
    running = shell("ppp")
    error = OSError("full")
    running.batch.record_failed(1, error)
    assert running.settle(2, 0).states == "held lost held"
    assert running.batch.failure is error


@pytest.mark.parametrize(
    ("options", "settled", "left"),
    [
        pytest.param({"slow_prepare": {0}}, [], "starting lost lost", id="starting"),
        pytest.param({"denied": {0}, "slow_record": True}, [], "answered live lost", id="answered"),
        pytest.param({}, [], "live lost lost", id="live"),
        pytest.param({"max_parallel": 2}, [1], "live settled live", id="settled"),
        pytest.param({"slow_finalize": True}, [0], "finalizing lost lost", id="finalizing"),
        pytest.param({"slow_append": True}, [0], "appending live lost", id="appending"),
        pytest.param({}, [0], "committed live lost", id="committed"),
    ],
)
def test_a_failure_leaves_what_was_started_to_go_its_way(options, settled, left):
    running = shell("ppp", **{"max_parallel": 1, **options}).settle(*settled)
    running.batch.fail(OSError())
    assert running.act().states == left


def test_a_failure_after_an_abort_still_answers_what_was_settled():
    running = shell("pp", max_parallel=1).abort()
    running.batch.fail(OSError())
    assert running.settle(0).states == "committed committed"


# --- 6: quiescence -----------------------------------------------------------------------------------------------


def test_a_batch_of_nothing_is_quiescent():
    assert Batch(0).quiescent


def test_a_batch_that_has_not_begun_is_not_quiescent():
    assert not Batch(1).quiescent


@pytest.mark.parametrize(
    ("options", "reports"),
    [
        ({"slow_prepare": {0}}, []),
        ({"denied": {0}, "slow_record": True}, []),
        ({}, []),
        ({"slow_finalize": True}, ["settled"]),
        ({"slow_append": True}, ["settled"]),
    ],
    ids=["starting", "answered", "live", "finalizing", "appending"],
)
@pytest.mark.parametrize("mode", Mode)
def test_g2_a_batch_is_not_quiescent_while_a_call_is(options, reports, mode):
    running = shell("p", **options)
    for report in reports:
        getattr(running.batch, report)(0)
    running.act()
    {Mode.RUNNING: lambda: None, Mode.ABORTING: running.abort, Mode.FAILING: lambda: running.batch.fail(OSError())}[
        mode
    ]()
    assert not running.act().batch.quiescent


def test_g2_a_batch_is_not_quiescent_while_a_result_is_due():
    running = shell("p")
    running.batch.settled(0)
    assert not running.batch.quiescent


def test_g2_it_is_quiescent_when_the_last_result_is_in_the_log():
    running = shell("pe", slow_append=True).settle(0)
    running.batch.appended(0)
    running.act().settle(1)
    assert not running.batch.quiescent
    running.batch.appended(1)
    assert running.batch.quiescent


# --- calls that wait for a person --------------------------------------------------------------------------------


def test_a_call_that_waits_for_a_person_holds_no_place_in_the_pool():
    assert shell("ppp", asked={0}, max_parallel=1).states == "asked live waiting"


def test_parallel_calls_run_on_behind_one_that_waits_and_their_results_wait_for_it():
    running = shell("ppp", asked={0}).settle(1, 2)
    assert running.states == "asked settled settled"
    assert running.line == "call0 call1 call2"
    assert running.approve(0).settle(0).line == "call0 call1 call2 run0 result0 result1 result2"


def test_nothing_starts_behind_an_exclusive_call_that_waits_for_a_person():
    running = shell("ep", asked={0})
    assert running.states == "asked waiting"
    assert running.approve(0).states == "live waiting"
    assert running.settle(0).line == "call0 run0 result0 call1"


def test_an_exclusive_call_waits_for_a_parallel_one_that_waits_for_a_person():
    running = shell("pe", asked={0})
    assert running.states == "asked waiting"
    assert running.deny(0).states == "committed live"


def test_an_approved_call_waits_for_a_place_and_goes_before_the_next_start():
    running = shell("ppp", asked={0}, max_parallel=1).approve(0)
    assert running.states == "allowed live waiting"
    assert running.settle(1).states == "live settled waiting"


def test_an_approved_call_leaves_the_place_to_one_that_is_being_prepared():
    running = shell("pp", asked={0}, slow_prepare={1}, max_parallel=1).approve(0)
    assert running.states == "allowed starting"
    assert running.batch.prepared(1)
    assert running.act().settle(1).states == "live settled"


def test_approved_calls_run_in_call_order():
    running = shell("pppp", asked={0, 1, 2}, max_parallel=1).approve(2, 0)
    assert running.settle(3).states == "live asked allowed settled"


def test_a_denied_call_is_settled_without_a_place():
    assert shell("pp", asked={0}, max_parallel=1).deny(0).line == "call0 call1 result0"


def test_approving_one_call_leaves_the_others_waiting():
    assert shell("ppp", asked={0, 1, 2}).approve(1).states == "asked live asked"


def test_a_decision_that_the_log_refused_leaves_the_question_open():
    running = shell("p", asked={0})
    running.batch.deciding(0)
    assert running.batch.asked(0)
    assert running.approve(0).states == "live"


@pytest.mark.parametrize("decisions", [["approve", "approve"], ["deny", "approve"], ["approve", "deny"]])
def test_a_call_is_decided_once(decisions):
    running = shell("pp", asked={0})
    getattr(running, decisions[0])(0)
    with pytest.raises(AssertionError, match="call 0 cannot go from"):
        getattr(running, decisions[1])(0)


def test_g2_a_batch_is_not_quiescent_while_a_person_is_asked():
    running = shell("pe", asked={0, 1})
    assert not running.batch.quiescent
    assert not running.deny(0).batch.quiescent
    assert running.deny(1).batch.quiescent


def test_an_abort_answers_calls_that_wait_for_a_person_or_for_a_place():
    running = shell("pppp", asked={0, 1}, max_parallel=1).approve(0)
    assert running.states == "allowed asked live waiting"
    assert running.batch.waiting() == (0, 1)
    assert running.abort().states == "committed committed live settled"
    assert running.settle(2).batch.quiescent


def test_a_failure_does_not_wait_for_people():
    running = shell("pppp", asked={0, 1}, max_parallel=1).approve(0)
    running.batch.fail(OSError())
    assert running.act().states == "lost lost live lost"
    assert running.settle(2).states == "lost lost held lost"
    assert running.batch.quiescent


@pytest.mark.parametrize("mode", ["abort", "fail"])
@pytest.mark.parametrize("report", ["asked", "allowed"])
def test_what_comes_too_late_is_not_waited_for(mode, report):
    batch = Batch(1)
    assert batch.try_start(0, "parallel")
    batch.asking(0)
    if report == "allowed":
        assert batch.asked(0)
        batch.deciding(0)
    getattr(batch, mode)(OSError())
    assert not batch.quiescent  # it is on its way into the log
    assert not getattr(batch, report)(0)
    batch.lost(0)
    assert batch.quiescent


# --- batches that began elsewhere --------------------------------------------------------------------------------

STATES = {"c": CallState.COMMITTED, "s": CallState.SETTLED, "a": CallState.ASKED, "w": CallState.WAITING}


def resumed(states: str, classes: str, **options) -> Shell:
    running = shell("", **{name: options.pop(name) for name in ("asked",) if name in options})
    running.classes = list(classes)
    running.batch = Batch.resumed([STATES[letter] for letter in states], **options)
    return running.act()


def test_a_resumed_batch_goes_on_with_what_was_never_started():
    running = resumed("cacw", "pppp")
    assert running.states == "committed asked committed live"
    assert running.line == "call3"


def test_nothing_starts_behind_an_exclusive_call_that_waits_still():
    running = resumed("caw", "pep", exclusive=1)
    assert running.states == "committed asked waiting"
    assert running.approve(1).settle(1).line == "run1 result1 call2"


def test_what_is_settled_already_is_answered_when_its_turn_comes():
    running = resumed("saw", "ppe")
    assert running.states == "committed asked waiting"
    assert running.deny(1).settle(2).line == "result0 result1 call2 result2"
    assert running.batch.quiescent


def test_the_results_behind_a_question_wait_as_ever():
    running = resumed("as", "pp")
    assert running.line == ""
    assert running.deny(0).line == "result0 result1"


def test_a_batch_of_which_nothing_was_left_is_quiescent():
    assert resumed("cc", "pp").batch.quiescent


@pytest.mark.parametrize("states", ["wa", "aws", "wc"])
def test_nothing_can_have_begun_behind_what_has_not(states):
    with pytest.raises(AssertionError):
        Batch.resumed([STATES[letter] for letter in states])


# --- what must not be reported -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "report",
    [
        lambda batch: batch.prepared(0),
        lambda batch: batch.appended(0),
        lambda batch: batch.finalized(0),
        lambda batch: batch.committing(0),
        lambda batch: batch.append_failed(0, OSError()),
    ],
)
def test_a_report_that_makes_no_sense_is_a_bug_of_the_shell(report):
    with pytest.raises(AssertionError, match="call 0 cannot go from waiting"):
        report(Batch(1))


def test_a_call_is_settled_once():
    running = shell("p", slow_append=True).settle(0)
    with pytest.raises(AssertionError, match="call 0 cannot go from appending to settled"):
        running.batch.settled(0)


# --- any schedule ------------------------------------------------------------------------------------------------

ENDS = {CallState.COMMITTED, CallState.HELD, CallState.LOST}
PERSON = {CallState.ASKING, CallState.ASKED, CallState.DECIDING, CallState.ALLOWED}
BUSY = {
    *(CallState.STARTING, CallState.ANSWERED, CallState.LIVE, CallState.FINALIZING, CallState.APPENDING),
    *PERSON,
}


@define
class Walk:
    """A shell that is as slow and as unlucky as chance has it; it keeps the books that the checks read."""

    chance: st.DataObject
    batch: Batch
    aborts: bool
    faults: bool
    classes: dict[int, str] = Factory(dict)
    started: list[int] = Factory(list)
    appends: list[int] = Factory(list)
    committed: list[int] = Factory(list)
    returned: set[int] = Factory(set)
    failures: list[Exception] = Factory(list)
    asked: set[int] = Factory(set)
    decided: dict[int, str] = Factory(dict)
    refusing: bool = False

    def run(self) -> None:
        """Act and report until nothing is left to do."""
        for _ in range(40 * self.batch.size + 40):
            self.act()
            if self.batch.quiescent:
                return
            self.report()
            self.check()
        raise AssertionError("the batch does not come to an end")

    def among(self, *states) -> list[int]:
        return [index for index in range(self.batch.size) if self.batch.state(index) in states]

    def pick(self, options):
        return self.chance.draw(st.sampled_from(options))

    # --- what the batch asks for

    def act(self) -> None:
        for _ in range(4 * self.batch.size + 4):
            match self.batch.next_action():
                case None:
                    return
                case Commit(index):
                    assert self.among(*ENDS, CallState.APPENDING)[:index] == list(range(index))
                    self.batch.committing(index)
                case Start(index):
                    self.start(index)
                case Run(index):
                    assert self.decided[index] == "approve"
                    assert self.batch.prepared(index)
            self.check()
        raise AssertionError("the batch asks for the same things without end")

    def start(self, index: int) -> None:
        call_class = self.pick(["parallel", "parallel", "exclusive"])
        before = self.among(*set(CallState) - {CallState.COMMITTED})
        assert not self.among(CallState.FINALIZING)
        if self.batch.try_start(index, call_class):
            assert call_class == "parallel" or min(before) == index
            self.classes[index] = call_class
            self.started.append(index)
        else:
            assert call_class == "exclusive"
            assert self.batch.next_action() is None

    # --- what happens

    def report(self) -> None:
        happenings = [(kind, index) for kind, states in HAPPENINGS.items() for index in self.among(states)]
        happenings = [(kind, i) for kind, i in happenings if kind != "append" or i == self.appends[0]]
        if (trouble := self.pick(TROUBLE)) == "abort" and self.aborts and self.batch.mode is Mode.RUNNING:
            happenings = [("abort", 0)]
        elif trouble == "fail" and self.faults:
            happenings = [("fail", 0)]
        kind, index = self.pick(happenings)
        getattr(self, kind)(index)

    def prepare(self, index: int) -> None:
        how = self.pick([*["pass"] * 7, "deny", *["ask"] * 3, *(["raise", "refuse"] if self.faults else [])])
        if how == "deny":
            self.batch.answered(index)
        elif how == "ask":
            self.asked.add(index)
            self.batch.asking(index)
        elif how == "raise":
            self.fail(index)
            self.batch.lost(index)
        elif how == "refuse":
            self.batch.record_failed(index, self.failure())
        elif not self.batch.prepared(index):
            self.not_wanted(index)

    def not_wanted(self, index: int) -> None:
        assert self.batch.mode is not Mode.RUNNING
        self.settle(index) if self.batch.mode is Mode.ABORTING else self.batch.lost(index)

    def question(self, index: int) -> None:
        if self.faults and self.pick([*[False] * 7, True]):
            self.batch.record_failed(index, self.failure())
        elif not self.batch.asked(index):
            self.not_wanted(index)

    def person(self, index: int) -> None:
        assert index not in self.decided
        self.decided[index] = self.pick(["approve", "approve", "deny"])
        self.batch.deciding(index)

    def decision(self, index: int) -> None:
        if self.pick([*[False] * 7, True]):
            del self.decided[index]
            if not self.batch.asked(index):
                self.not_wanted(index)
        elif self.decided[index] == "deny":
            self.settle(index)
        elif not self.batch.allowed(index):
            self.not_wanted(index)

    def record(self, index: int) -> None:
        if self.faults and self.pick([*[False] * 7, True]):
            self.batch.record_failed(index, self.failure())
        else:
            self.settle(index)

    def body(self, index: int) -> None:
        how = self.pick([*["return"] * 5, "lose", "refuse"])
        if how == "lose" and self.batch.mode is Mode.FAILING:
            self.batch.lost(index)
        elif how == "refuse" and self.faults:
            self.batch.record_failed(index, self.failure())
        else:
            self.settle(index)

    def settle(self, index: int) -> None:
        self.returned.add(index)
        self.batch.settled(index)

    def finalize(self, index: int) -> None:
        if self.faults and self.pick([*[False] * 7, True]):
            self.fail(index)
            self.batch.lost(index)
            self.returned.discard(index)
        elif self.batch.finalized(index):
            self.appends.append(index)

    def append(self, index: int) -> None:
        assert self.appends.pop(0) == index
        self.refusing |= self.faults and self.pick([*[False] * 7, True])
        if self.refusing:  # what was sent behind a refused append does not fit any more
            self.batch.append_failed(index, self.failure())
        else:
            self.batch.appended(index)
            self.committed.append(index)

    def abort(self, _: int) -> None:
        assert self.batch.abort("user")
        for index in (*self.batch.waiting(), *self.batch.unstarted()):
            self.settle(index)

    def fail(self, _: int) -> None:
        self.batch.fail(self.failure())

    def failure(self) -> Exception:
        self.failures.append(OSError(len(self.failures)))
        return self.failures[-1]

    # --- what holds at every moment

    def check(self) -> None:
        live = self.among(CallState.LIVE)
        assert len(live) <= self.batch.max_parallel
        assert all(self.decided.get(index) == "approve" for index in live if index in self.asked)
        working = self.among(CallState.STARTING, CallState.LIVE)
        assert len(working) == 1 or all(self.classes[index] == "parallel" for index in working)
        assert len(self.among(CallState.STARTING)) <= 1
        assert len(self.among(CallState.FINALIZING)) <= 1
        assert self.started == sorted(self.started)
        assert self.committed == list(range(len(self.committed)))
        assert not (self.batch.quiescent and self.among(*BUSY))
        assert self.batch.failure is (self.failures[0] if self.failures else None)


TROUBLE = [*["none"] * 10, "abort", "fail"]
HAPPENINGS = {
    "prepare": CallState.STARTING,
    "question": CallState.ASKING,
    "person": CallState.ASKED,
    "decision": CallState.DECIDING,
    "record": CallState.ANSWERED,
    "body": CallState.LIVE,
    "finalize": CallState.FINALIZING,
    "append": CallState.APPENDING,
}


@settings(max_examples=250)
@given(
    data=st.data(), size=st.integers(0, 8), max_parallel=st.integers(1, 4), aborts=st.booleans(), faults=st.booleans()
)
def test_whatever_happens_a_batch_keeps_its_rules_and_comes_to_an_end(data, size, max_parallel, aborts, faults):
    walk = Walk(data, Batch(size, max_parallel), aborts, faults)
    walk.run()
    assert set(walk.among(*ENDS)) == set(range(size))
    assert walk.batch.next_action() is None
    if walk.batch.mode is not Mode.FAILING:
        assert walk.committed == list(range(size))
    assert walk.returned == set(walk.among(CallState.COMMITTED, CallState.HELD))  # G3
