"""The decision of a supervisor, as a pure function: fates, groups, intensity, back-off, auto-shutdown, specs."""

from __future__ import annotations

import math

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from quiesce.actors.kernel.supervision import (
    AT_ONCE,
    FATES,
    INFINITE,
    Backoff,
    ChildSpec,
    Fate,
    Intensity,
    Reason,
    Rules,
    Verdict,
    decide,
)
from quiesce.actors.kernel.supervision_errors import SpecError


@frozen
class Member:
    spec: ChildSpec
    active: bool = True


def spec(name, **fields):
    return ChildSpec(name, object, **fields)


def family(*specs):
    return {each.id: Member(each) for each in specs}


ABCD = family(spec("a"), spec("b"), spec("c", restart="temporary"), spec("d", restart="transient"))


def after(reason, rules=None, children=ABCD, key="b", history=(), now=100.0):
    return decide(rules or Rules(), children, key, reason, history, now)


# -- fates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restart", "reason", "fate"),
    [
        ("permanent", Reason.FINISHED, Fate.RESTART),
        ("permanent", Reason.FAILED, Fate.RESTART),
        ("permanent", Reason.NOT_STARTED, Fate.RESTART),
        ("permanent", Reason.DECLINED, Fate.KEEP),
        ("permanent", Reason.SYSTEM_ENDING, Fate.KEEP),
        ("transient", Reason.FINISHED, Fate.KEEP),
        ("transient", Reason.FAILED, Fate.RESTART),
        ("transient", Reason.NOT_STARTED, Fate.RESTART),
        ("transient", Reason.DECLINED, Fate.KEEP),
        ("transient", Reason.SYSTEM_ENDING, Fate.KEEP),
        ("temporary", Reason.FINISHED, Fate.FORGET),
        ("temporary", Reason.FAILED, Fate.FORGET),
        ("temporary", Reason.NOT_STARTED, Fate.FORGET),
        ("temporary", Reason.DECLINED, Fate.FORGET),
        ("temporary", Reason.SYSTEM_ENDING, Fate.FORGET),
    ],
)
def test_the_restart_type_and_the_reason_give_the_fate(restart, reason, fate):
    assert FATES[restart][reason] is fate
    assert after(reason, children=family(spec("b", restart=restart))).fate is fate


def test_what_is_not_restarted_costs_nothing_and_touches_nobody():
    decision = after(Reason.FAILED, Rules("one_for_all"), key="c", history=(1.0,))
    assert (decision.verdict, decision.history) == (Verdict.GO_ON, (1.0,))
    assert decision.stop == decision.start == decision.forget == ()


# -- groups -----------------------------------------------------------------------------------------------------------


def test_one_for_one_restarts_the_child_alone():
    decision = after(Reason.FAILED)
    assert (decision.verdict, decision.stop, decision.start) == (Verdict.RESTART, (), ("b",))


def test_one_for_all_stops_the_others_last_first_drops_temporaries_and_starts_all_in_order():
    decision = after(Reason.FAILED, Rules("one_for_all"))
    assert (decision.stop, decision.forget, decision.start) == (("d", "c", "a"), ("c",), ("a", "b", "d"))


def test_rest_for_one_takes_those_that_were_started_later():
    decision = after(Reason.FAILED, Rules("rest_for_one"))
    assert (decision.stop, decision.forget, decision.start) == (("d", "c"), ("c",), ("b", "d"))


# -- intensity --------------------------------------------------------------------------------------------------------


def test_the_restart_after_the_last_allowed_one_within_the_period_is_giving_up():
    assert after(Reason.FAILED, history=(96.0, 97.0)).verdict is Verdict.RESTART
    assert after(Reason.FAILED, history=(96.0, 97.0, 98.0)).verdict is Verdict.GIVE_UP


def test_a_restart_stops_counting_after_the_period():
    decision = after(Reason.FAILED, history=(94.9, 95.0, 98.0))
    assert (decision.verdict, decision.history) == (Verdict.RESTART, (95.0, 98.0, 100.0))


def test_one_incident_counts_once_however_many_children_it_restarts():
    assert after(Reason.FAILED, Rules("one_for_all")).history == (100.0,)


def test_an_intensity_of_zero_gives_up_at_the_first_failure():
    assert after(Reason.FAILED, Rules(intensity=Intensity(0))).verdict is Verdict.GIVE_UP


@given(st.lists(st.floats(0, 100), max_size=30), st.floats(0, 20), st.floats(0.1, 50))
def test_what_counts_of_a_history_is_what_lies_within_the_period(times, since, period):
    intensity, history = Intensity(period=period), tuple(sorted(times))
    now = max(times, default=0.0) + since
    counting = tuple(time for time in history if now - time <= period)
    assert intensity.add(history, now) == (*counting, now)
    assert intensity.counting(history, now) == len(counting)


def test_the_next_of_thousands_of_failures_costs_no_look_at_each_of_them():
    class Now(float):
        looks = 0

        def __sub__(self, other):
            Now.looks += 1
            return float(self) - other

    history = tuple(range(10_000))
    assert len(Intensity(10_000, period=5_000.0).add(history, Now(10_000))) == 5_001
    assert Now.looks < 20


# -- back-off ---------------------------------------------------------------------------------------------------------


def test_the_wait_grows_up_to_its_cap_and_begins_again_when_a_child_lasted():
    backoff = Backoff(initial=1, factor=3, cap=10, reset_after=60)
    waits = [backoff.next_wait(None, 0)]
    for _ in range(3):
        waits.append(backoff.next_wait(waits[-1], 59.9))
    assert waits == [1, 3, 9, 10]
    assert backoff.next_wait(10, 60) == 1


def test_chance_only_shortens_a_wait():
    backoff = Backoff(jitter=0.5)
    assert [backoff.shortened(8, chance) for chance in (0, 0.5, 1)] == [8, 6, 4]


@given(st.lists(st.floats(0, 100), max_size=2_000), st.floats(0, 1))
def test_a_wait_is_never_above_the_cap_and_never_below_the_part_left_by_chance(uptimes, chance):
    backoff, wait = Backoff(factor=1.5), None
    for uptime in uptimes:
        wait = backoff.next_wait(wait, uptime)
        assert backoff.initial <= wait <= backoff.cap
        assert 0 < backoff.shortened(wait, chance) <= wait


# -- auto-shutdown ----------------------------------------------------------------------------------------------------


def significant(*names, restart="transient", active=True):
    return {name: Member(spec(name, restart=restart, significant=True), active) for name in names}


@pytest.mark.parametrize("restart", ["transient", "temporary"])
def test_any_significant_child_that_stays_down_shuts_the_supervisor_down(restart):
    rules = Rules(auto_shutdown="any_significant")
    assert after(Reason.FINISHED, rules, significant("a", "b", restart=restart)).verdict is Verdict.SHUT_DOWN


def test_all_significant_waits_for_the_last_significant_child():
    rules = Rules(auto_shutdown="all_significant")
    children = significant("b") | family(spec("plain"))
    assert after(Reason.FINISHED, rules, children | significant("c")).verdict is Verdict.GO_ON
    assert after(Reason.FINISHED, rules, children | significant("c", active=False)).verdict is Verdict.SHUT_DOWN
    assert after(Reason.FINISHED, rules, children).verdict is Verdict.SHUT_DOWN


def test_a_significant_child_that_is_restarted_or_one_that_is_not_significant_shuts_nothing_down():
    rules = Rules(auto_shutdown="any_significant")
    assert after(Reason.FAILED, rules, significant("b")).verdict is Verdict.RESTART
    assert after(Reason.FINISHED, rules, family(spec("b", restart="transient"))).verdict is Verdict.GO_ON


def test_a_significant_temporary_child_that_fails_shuts_the_supervisor_down():
    rules = Rules(auto_shutdown="any_significant")
    assert after(Reason.FAILED, rules, significant("b", restart="temporary")).verdict is Verdict.SHUT_DOWN


# -- specs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", None),
        ("id", []),
        ("id", ([],)),
        ("start", 3),
        ("start", (object, 1)),
        ("restart", "always"),
        ("restart", []),
        ("kind", "boss"),
        ("shutdown", -1),
        ("shutdown", math.nan),
        ("shutdown", "brutal_kill"),
        ("shutdown", True),
        ("significant", 1),
        ("name", ""),
        ("name", 3),
    ],
)
def test_a_wrong_field_of_a_spec_is_refused_by_name(field, value):
    with pytest.raises(SpecError, match=f"^{field} ") as caught:
        ChildSpec(**{"id": "a", "start": object, field: value})
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (Rules, "strategy", "one_for_two"),
        (Rules, "intensity", (3, 5)),
        (Rules, "backoff", 1.0),
        (Rules, "auto_shutdown", "always"),
        (Intensity, "restarts", -1),
        (Intensity, "restarts", 1.5),
        (Intensity, "period", 0),
        (Backoff, "initial", 0),
        (Backoff, "factor", 0.5),
        (Backoff, "cap", math.inf),
        (Backoff, "jitter", 2),
        (Backoff, "reset_after", -1),
    ],
)
def test_a_wrong_rule_is_refused_by_name(make, field, value):
    with pytest.raises(SpecError, match=f"^{field} ") as caught:
        make(**{field: value})
    assert caught.value.field == field


def test_a_permanent_child_cannot_be_significant():
    with pytest.raises(SpecError) as caught:
        spec("a", significant=True)
    assert caught.value.field == "significant"


def test_a_significant_child_needs_auto_shutdown():
    with pytest.raises(SpecError) as caught:
        Rules().check(spec("a", restart="transient", significant=True))
    assert caught.value.field == "significant"


def test_workers_have_five_seconds_and_supervisors_all_the_time_unless_the_spec_says_otherwise():
    assert spec("a").shutdown == 5.0
    assert spec("a", kind="supervisor").shutdown == INFINITE
    assert spec("a", kind="supervisor", shutdown=1).shutdown == 1
    assert spec("a", shutdown=AT_ONCE).shutdown == 0


# -- random walks -----------------------------------------------------------------------------------------------------


SPECS = st.builds(spec, st.integers(0, 7), restart=st.sampled_from(["permanent", "transient", "temporary"]))
HAPPENINGS = st.tuples(
    st.integers(0, 7), st.sampled_from([Reason.FINISHED, Reason.FAILED, Reason.NOT_STARTED]), st.floats(0, 3)
)


@given(
    st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
    st.builds(Intensity, st.integers(0, 5), st.floats(0.5, 10)),
    st.lists(SPECS, unique_by=lambda each: each.id, min_size=1),
    st.lists(HAPPENINGS, max_size=40),
)
def test_whatever_happens_order_and_intensity_hold_and_temporaries_never_come_back(
    strategy, intensity, specs, happenings
):
    rules, children, history, now, restarts = Rules(strategy, intensity), family(*specs), (), 0.0, []
    for key, reason, pause in happenings:
        now += pause
        if key not in children:
            continue
        order = list(children)
        decision = decide(rules, children, key, reason, history, now)
        history = decision.history
        if decision.verdict is Verdict.GIVE_UP:
            assert len([time for time in restarts if now - time <= intensity.period]) == intensity.restarts
            return
        if decision.verdict is Verdict.RESTART:
            restarts.append(now)
            assert len([time for time in restarts if now - time <= intensity.period]) <= intensity.restarts
            assert key in decision.start
            assert key not in decision.stop
            assert list(decision.start) == sorted(decision.start, key=order.index)
            assert list(decision.stop) == sorted(decision.stop, key=order.index, reverse=True)
            assert all(children[other].spec.restart != "temporary" for other in decision.start)
            assert set(decision.stop) | {key} == set(decision.start) | set(decision.forget)
            if strategy == "rest_for_one":
                assert all(order.index(other) > order.index(key) for other in decision.stop)
        if decision.fate is Fate.FORGET:
            del children[key]
        for other in decision.forget:
            assert children.pop(other).spec.restart == "temporary"
