"""A supervisor starts its children, restarts them and gives up; after the suites of Erlang/OTP's supervisor."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, ExitKind, TrioActor
from quiesce.actors.kernel.administration import ChildState, CountChildren, TerminateChild, WhichChildren
from quiesce.actors.kernel.supervision import Backoff, ChildSpec, Intensity
from quiesce.actors.kernel.supervision_errors import ChildStartError, Decline, SpecError, SupervisorGaveUpError
from quiesce.actors.kernel.supervisor import Supervisor


def living():
    return trio.lowlevel.current_statistics().tasks_living


async def states(supervisor):
    return {info.id: info.state.value for info in await supervisor.ask(WhichChildren())}


# -- start ------------------------------------------------------------------------------------------------------------


async def test_children_start_in_order_before_the_supervisor_counts_as_started(family, autojump_clock):
    family.starts = {"a": [2.0], "b": [1.0]}
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("abc"))
        assert family.take_events() == "+a +b +c"
        assert trio.current_time() == pytest.approx(3.0, abs=0.1)
    assert family.take_events() == "-c -b -a"


async def test_a_failing_start_stops_the_started_ones_in_reverse_is_not_retried_and_names_the_child(family):
    error = ValueError("no")
    family.starts = {"c": [error]}
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()
        with pytest.raises(ChildStartError, match="'c'") as caught:
            await system.spawn(Supervisor, family.specs("abcd"))
        assert caught.value.child_id == "c"
        assert caught.value.__cause__ is error
        assert family.take_events() == "+a +b ?c -b -a"
        assert len(system) == 0
        assert living() == before


async def test_a_child_that_declines_is_known_but_does_not_run_and_the_others_start(family):
    family.starts = {"b": [Decline()], "t": [Decline()]}
    async with ActorSystem() as system:
        specs = [*family.specs("ab"), family.spec("t", restart="temporary"), family.spec("c")]
        supervisor = await system.spawn(Supervisor, specs)
        assert await states(supervisor) == {"a": "running", "b": "down", "c": "running"}
        assert not family.refs["b"].is_alive()
    assert family.take_events() == "+a ?b ?t +c -c -a"


async def test_two_children_with_one_id_are_refused_before_anything_starts(family):
    async with ActorSystem() as system:
        with pytest.raises(SpecError, match="'a'") as caught:
            await system.spawn(Supervisor, family.specs("aba"))
        assert caught.value.field == "id"
        with pytest.raises(SpecError, match="ChildSpec"):
            await system.spawn(Supervisor, ["a"])
        with pytest.raises(SpecError, match="strategy"):
            await system.spawn(Supervisor, family.specs("a"), strategy="one_for_none")
    assert family.take_events() == ""


async def test_later_children_find_earlier_ones_through_a_supervisor_that_makes_its_own_specs(family):
    class House(Supervisor):
        def __init__(self):
            specs = [family.spec("a"), ChildSpec("b", self.make_b)]
            super().__init__(specs, strategy="rest_for_one")

        def make_b(self):
            self.found = self.child("a")
            return family.spec("b").start()

    async with ActorSystem() as system:
        house = await system.spawn(House)
        assert house._cell.actor.found is family.refs["a"]


async def test_a_supervisors_own_hooks_run_around_its_children(family):
    class Own(Supervisor):
        async def on_start(self):
            family.events.append("on_start")

        def on_stop(self):
            family.events.append("on_stop")

    async with ActorSystem() as system:
        await system.spawn(Own, family.specs("ab"))
    assert family.take_events() == "on_start +a +b -b -a on_stop"


async def test_stopping_a_supervisor_that_is_still_starting_leaves_nothing(family, autojump_clock):
    family.starts = {"b": [1_000.0]}
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()
        spawning = system.spawn(Supervisor, family.specs("abc"))
        await trio.sleep(1)
        (supervisor,) = (cell.ref for cell in system._live if cell.actor_class is Supervisor)
        assert await supervisor.stop(now=True)
        with pytest.raises(ActorDeadError):
            await spawning
        assert family.take_events() == "+a cancelled +b -a"
        assert living() == before


# -- one child --------------------------------------------------------------------------------------------------------


async def test_the_ref_survives_a_restart_and_the_incarnation_counts_up(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"))
        ref = family.refs["a"]
        assert ref.incarnation == 1
        family.crash("a")
        assert await ref.ask("x") == ("a", "x")
        assert family.refs["a"] is ref
        assert ref.incarnation == 2
        assert ref.is_alive()
    assert family.take_events() == "+a !a +a x>a -a"
    assert not ref.is_alive()


async def test_what_was_queued_behind_the_crash_is_handled_by_the_next_incarnation_in_order(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"))
        ref = family.refs["a"]
        ref.tell(1)
        family.crash("a")
        replies = [ref.ask(number) for number in (2, 3, 4)]
        assert [await reply for reply in replies] == [("a", 2), ("a", 3), ("a", 4)]
    assert family.take_events() == "+a 1>a !a +a 2>a 3>a 4>a -a"


async def test_the_asker_of_the_message_under_way_at_a_crash_is_told(family):
    class Torn(TrioActor):
        def on_start(self):
            self.start_soon(self._crash)

        async def _crash(self):
            if self.actor_ref.incarnation == 1:
                await trio.testing.wait_all_tasks_blocked()
                raise ValueError("child work")

        async def on_receive(self, message):
            if message == "wait":
                await trio.sleep_forever()
            return message

    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [ChildSpec("torn", Torn)])
        ref = supervisor._cell.actor.child("torn")
        under_way, queued = ref.ask("wait"), ref.ask("next")
        with pytest.raises(ActorDeadError):
            await under_way
        assert await queued == "next"
        assert ref.incarnation == 2


async def test_an_exception_that_goes_to_an_asker_restarts_nobody(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"))
        with pytest.raises(ValueError, match="mine"):
            await family.refs["a"].ask(ValueError("mine"))
        assert family.refs["a"].incarnation == 1


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("end", ["crash", "stop"])
async def test_the_restart_type_says_who_comes_back(family, restart, end):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a", restart=restart))
        ref = family.refs["a"]
        ref.tell(ValueError() if end == "crash" else "stop")
        await trio.testing.wait_all_tasks_blocked()
        back = restart == "permanent" or (restart, end) == ("transient", "crash")
        assert ref.is_alive() is back
        assert ref.wait_stopped().done() is not back
        known = {"permanent": {"a": "running"}, "transient": {"a": "running" if back else "down"}, "temporary": {}}
        assert await states(supervisor) == known[restart]


async def test_the_stop_of_a_permanent_child_is_answered_and_the_child_comes_back(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"))
        ref = family.refs["a"]
        ref.tell("something to do first")
        first, second, asked = ref.stop(), ref.stop(), ref.ask("x")
        assert await first is True
        assert await second is True
        assert await asked == ("a", "x")
        assert ref.incarnation == 2


async def test_a_transient_child_whose_on_stop_fails_has_crashed(family):
    family.stops = {"a": ValueError("on_stop")}
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a", restart="transient"))
        family.refs["a"].tell("stop")
        assert await family.settle() == "+a -?a +a"
        family.stops.clear()


async def test_a_crash_right_behind_the_start_is_one_of_a_running_child(family):
    class Hasty(TrioActor):
        def __init__(self):
            super().__init__()
            if self.actor_ref.incarnation == 1:
                self.actor_ref.tell("crash")

        def on_receive(self, message):
            raise ValueError(message)

    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [ChildSpec("a", Hasty)])
        await trio.testing.wait_all_tasks_blocked()
        assert await states(supervisor) == {"a": "running"}
        assert supervisor._cell.actor.child("a").incarnation == 2


async def test_a_child_that_ends_in_its_own_start_is_dealt_with(family):
    class Brief(TrioActor):
        def on_start(self):
            self.actor_ref.stop(now=True)

    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [ChildSpec("a", Brief, restart="transient")])
        await trio.testing.wait_all_tasks_blocked()
        assert await states(supervisor) == {"a": "down"}


async def test_a_child_may_be_made_anew_with_fresh_context_variables_and_no_leftovers(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"))
        ref = family.refs["a"]
        first = ref._cell.actor
        family.crash("a")
        await ref.ask("x")
        assert ref._cell.actor is not first
        assert ref._cell.exit is None


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "events"),
    [
        ("one_for_one", "!b +b"),
        ("one_for_all", "!b -d -c -a +a +b +d"),
        ("rest_for_one", "!b -d -c +b +d"),
    ],
)
async def test_a_crash_takes_along_whom_the_strategy_says(family, strategy, events):
    specs = [*family.specs("ab"), family.spec("c", restart="temporary"), family.spec("d")]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy)
        await family.settle()
        family.crash("b")
        assert await family.settle() == events
        dropped = "-c" in events
        assert await states(supervisor) == dict.fromkeys("abd" if dropped else "abcd", "running")
        assert family.refs["c"].is_alive() is not dropped


async def test_messages_to_those_taken_along_wait_for_their_next_incarnation(family, autojump_clock):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("ab"), strategy="one_for_all")
        a = family.refs["a"]
        a.tell(1.0)
        await family.settle()
        queued = a.ask("queued")
        family.crash("b")
        assert await queued == ("a", "queued")
        assert family.take_events() == "!b ~a -a +a +b queued>a"


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_the_restart_of_a_group_takes_time_that_grows_as_the_group(family, work, strategy):
    done = []
    for size in (100, 100, 800):  # the first one is for what is made once
        names = [f"{size} {number}" for number in range(size)]
        async with ActorSystem() as system:
            await system.spawn(Supervisor, family.specs(names), strategy=strategy)
            with work() as restart:
                family.crash(names[0])
                await family.settle()
            done.append(restart.done)
    assert done[2] < done[1] * 8 * 1.5


async def test_a_failing_start_in_one_for_all_stops_those_already_restarted_and_tries_again(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("abcd"), strategy="one_for_all")
        await family.settle()
        family.starts = {"c": [ValueError()]}
        family.crash("b")
        assert await family.settle() == "!b -d -c -a +a +b ?c -b -a +a +b +c +d"
        assert await states(supervisor) == dict.fromkeys("abcd", "running")


async def test_a_failing_start_in_rest_for_one_leaves_those_already_restarted_alone(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("abcd"), strategy="rest_for_one")
        await family.settle()
        family.starts = {"c": [ValueError()]}
        family.crash("b")
        assert await family.settle() == "!b -d -c +b ?c +c +d"


async def test_two_crashes_at_once_are_two_incidents_of_one_group_at_most(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("abc"), strategy="one_for_all", intensity=Intensity(1, 5))
        await family.settle()
        family.crash("a")
        family.crash("c")
        assert await family.settle() == "!a !c -b +a +b +c"


async def test_a_child_that_was_terminated_comes_back_with_its_group(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("ab"), strategy="one_for_all")
        old = family.refs["a"]
        await supervisor.ask(TerminateChild("a"))
        family.take_events()
        family.crash("b")
        assert await family.settle() == "!b +a +b"
        assert not old.is_alive()
        assert family.refs["a"] is not old


async def test_a_restart_that_declines_leaves_the_child_down_and_its_ref_dead(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("ab"))
        family.starts = {"a": [Decline()]}
        family.crash("a")
        queued = family.refs["a"].ask("x")
        with pytest.raises(ActorDeadError):
            await queued
        assert await states(supervisor) == {"a": "down", "b": "running"}


async def test_a_crash_cancels_no_sibling(family, autojump_clock):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("abc"))
        await family.settle()
        family.refs["a"].tell(1.0)
        family.refs["c"].tell(2.0)
        family.crash("b")
        await trio.sleep(3)
        assert family.take_events() == "!b +b ~a ~c"


# -- giving up --------------------------------------------------------------------------------------------------------


async def test_a_supervisor_gives_up_after_its_intensity_stops_its_children_in_reverse_and_fails(family):
    async with ActorSystem() as system:
        neighbour = await system.spawn(Supervisor, [family.spec("n")])
        supervisor = await system.spawn(Supervisor, family.specs("abc"), intensity=Intensity(2, 10))
        await family.settle()
        last = ValueError("the last one")
        for error in (ValueError(), ValueError(), last):
            family.crash("b", error)
        queued = family.refs["b"].ask("queued")
        end = await supervisor.wait_stopped()
        assert end.kind is ExitKind.CRASHED
        assert isinstance(end.error, SupervisorGaveUpError)
        assert end.error.child_id == "b"
        assert end.error.__cause__ is last
        assert family.take_events() == "!b +b !b +b !b -c -a"
        with pytest.raises(ActorDeadError):
            await queued
        assert neighbour.is_alive()
        assert await family.refs["n"].ask("x") == ("n", "x")


async def test_restarts_further_apart_than_the_period_go_on_for_ever(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"), intensity=Intensity(1, 5))
        for _ in range(10):
            await trio.sleep(5.1)
            family.crash("a")
            await family.settle()
        assert supervisor.is_alive()
        assert family.refs["a"].incarnation == 11


async def test_each_failed_attempt_to_restart_counts(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        family.starts = {"a": [ValueError(number) for number in range(10)]}
        family.crash("a")
        end = await supervisor.wait_stopped()
        assert isinstance(end.error, SupervisorGaveUpError)
        assert end.error.__cause__.args == (2,)
        assert family.take_events() == "+a !a ?a ?a ?a"


async def test_one_incident_counts_once_however_many_children_it_restarts(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(
            Supervisor, family.specs("abcd"), strategy="one_for_all", intensity=Intensity(1, 5)
        )
        family.crash("d")
        await family.settle()
        assert supervisor.is_alive()


async def test_the_intensity_is_one_list_for_all_children(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("abcd"))
        for name in "abcd":
            family.crash(name)
        assert isinstance((await supervisor.wait_stopped()).error, SupervisorGaveUpError)


@pytest.mark.parametrize("restart", ["permanent", "transient"])
async def test_a_supervisor_that_gave_up_is_restarted_by_its_own_at_the_same_address(family, restart):
    inner = ChildSpec(
        "inner", partial(Supervisor, family.specs("ab"), intensity=Intensity(0)), restart=restart, kind="supervisor"
    )
    async with ActorSystem() as system:
        outer = await system.spawn(Supervisor, [inner, family.spec("c")])
        ref = outer._cell.actor.child("inner")
        family.crash("a")
        assert await family.settle() == "+a +b +c !a -b +a +b"
        assert ref.incarnation == 2
        assert (await ref.ask(CountChildren())).active == 2
        assert family.refs["a"].incarnation == 1


async def test_a_restart_storm_climbs_the_tree_and_takes_nobody_else_down(family):
    inner = ChildSpec("inner", partial(Supervisor, family.specs("a")), kind="supervisor")
    async with ActorSystem() as system:
        other = await system.spawn(Supervisor, family.specs("z"))
        outer = await system.spawn(Supervisor, [inner, family.spec("b")])
        family.starts = {"a": [ValueError(number) for number in range(100)]}
        family.crash("a")
        end = await outer.wait_stopped()
        assert isinstance(end.error, SupervisorGaveUpError)
        assert isinstance(end.error.__cause__, ChildStartError)
        assert other.is_alive()
        assert family.refs["z"].is_alive()
        assert len(system) == 2


# -- back-off ---------------------------------------------------------------------------------------------------------


async def test_back_off_waits_longer_each_time_and_messages_wait_with_it(family, autojump_clock):
    backoff = Backoff(initial=1, factor=2, cap=3, jitter=0, reset_after=50)
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"), backoff=backoff, intensity=Intensity(10, 1))
        waits = []
        for pause in (0, 0, 0, 0, 60):
            await trio.sleep(pause)
            since = trio.current_time()
            family.crash("a")
            await family.refs["a"].ask("x")
            waits.append(trio.current_time() - since)
    assert waits == pytest.approx([1, 2, 3, 3, 1], abs=0.01)


async def test_the_jitter_comes_from_the_random_that_is_given(family, autojump_clock):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"), backoff=Backoff(initial=8, jitter=0.5), chance=Random(1))
        family.crash("a")
        since = trio.current_time()
        await family.refs["a"].ask("x")
        assert trio.current_time() - since == pytest.approx(8 * (1 - 0.5 * Random(1).random()))


async def test_while_a_back_off_waits_the_supervisor_answers_at_once(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("ab"), backoff=Backoff(initial=20))
        since = trio.current_time()
        family.crash("a")
        await family.settle()
        counts = await supervisor.ask(CountChildren())
        assert (counts.specs, counts.active) == (2, 1)
        assert await states(supervisor) == {"a": "restarting", "b": "running"}
        queued = family.refs["a"].ask("x")
        await supervisor.ask(TerminateChild("a"))
        with pytest.raises(ActorDeadError):
            await queued
        family.crash("b")
        assert await family.settle() == "!b"
        assert await supervisor.stop()
        assert trio.current_time() == since
        assert family.take_events() == ""


async def test_a_terminated_child_is_not_started_when_its_back_off_is_over(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(
            Supervisor, family.specs("abc"), strategy="one_for_all", backoff=Backoff(initial=5)
        )
        await family.settle()
        family.crash("b")
        assert await family.settle() == "!b -c -a"
        await supervisor.ask(TerminateChild("b"))
        await trio.sleep(6)
        assert family.take_events() == "+a +c"
        assert await states(supervisor) == {"a": "running", "b": "down", "c": "running"}


async def test_a_stop_of_a_child_in_back_off_finds_nothing_to_stop(family, autojump_clock):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a"), backoff=Backoff(initial=5))
        family.crash("a")
        await family.settle()
        assert await family.refs["a"].stop() is False
        assert await family.refs["a"].stop(now=True) is False
        assert family.refs["a"].is_alive()
        assert await family.refs["a"].ask("x") == ("a", "x")


# -- auto-shutdown ----------------------------------------------------------------------------------------------------


async def test_the_end_of_any_significant_child_ends_the_supervisor_normally(family):
    specs = [family.spec("a"), *family.specs("bc", restart="transient", significant=True)]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, auto_shutdown="any_significant")
        await family.settle()
        family.refs["b"].tell("stop")
        assert (await supervisor.wait_stopped()).kind is ExitKind.NORMAL
        assert family.take_events() == "-b -c -a"


async def test_the_end_of_the_last_significant_child_ends_the_supervisor(family):
    specs = [family.spec("a"), *family.specs("bc", restart="transient", significant=True)]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, auto_shutdown="all_significant")
        await family.settle()
        family.refs["b"].tell("stop")
        assert await family.settle() == "-b"
        assert supervisor.is_alive()
        family.refs["c"].tell("stop")
        assert (await supervisor.wait_stopped()).kind is ExitKind.NORMAL


async def test_a_significant_bystander_that_is_restarted_or_dropped_shuts_nothing_down(family):
    specs = [
        family.spec("a", restart="transient"),
        family.spec("b", restart="transient", significant=True),
        family.spec("c", restart="temporary", significant=True),
    ]
    async with ActorSystem() as system:
        supervisor = await system.spawn(
            Supervisor, specs, strategy="one_for_all", auto_shutdown="any_significant", intensity=Intensity(1, 5)
        )
        await family.settle()
        family.crash("a")
        assert await family.settle() == "!a -c -b +a +b"
        assert await states(supervisor) == {"a": "running", "b": "running"}


async def test_terminating_a_significant_child_shuts_nothing_down(family):
    specs = family.specs("a", restart="transient", significant=True)
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, auto_shutdown="any_significant")
        await supervisor.ask(TerminateChild("a"))
        await family.settle()
        assert await states(supervisor) == {"a": "down"}


async def test_auto_shutdown_climbs_where_the_supervisor_is_significant_itself(family):
    inner = ChildSpec(
        "inner",
        partial(Supervisor, family.specs("a", restart="transient", significant=True), auto_shutdown="any_significant"),
        restart="transient",
        significant=True,
        kind="supervisor",
    )
    async with ActorSystem() as system:
        outer = await system.spawn(Supervisor, [family.spec("b"), inner], auto_shutdown="all_significant")
        family.refs["a"].tell("stop")
        assert (await outer.wait_stopped()).kind is ExitKind.NORMAL
        assert family.take_events() == "+b +a -a -b"


async def test_a_child_is_restarting_for_others_while_its_start_takes_time(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        family.starts = {"a": [3.0]}
        family.crash("a")
        await family.settle()
        (child,) = supervisor._cell.actor._children.values()
        assert child.info.state is ChildState.RESTARTING
        assert await family.refs["a"].ask("x") == ("a", "x")
