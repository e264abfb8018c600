"""What a supervisor answers to each request about a child, in each state of the child."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    AskCycleError,
    Exit,
    ExitKind,
    TrioActor,
    UnhandledMessageError,
)
from quiesce.actors.kernel.administration import (
    ChildCounts,
    ChildInfo,
    ChildState,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from quiesce.actors.kernel.supervision import Backoff, ChildSpec, Intensity
from quiesce.actors.kernel.supervision_errors import (
    ChildNotFoundError,
    ChildPresentError,
    ChildRestartingError,
    ChildRunningError,
    ChildStartError,
    Decline,
    SpecError,
)
from quiesce.actors.kernel.supervisor import DynamicSupervisor, Supervisor

REQUESTS = {"start": StartChild, "terminate": TerminateChild, "restart": RestartChild, "delete": DeleteChild}
ANSWERS = {
    ("start", "running"): ChildRunningError,
    ("start", "restarting"): ChildPresentError,
    ("start", "down"): ChildPresentError,
    ("start", "unknown"): "ref",
    ("terminate", "running"): None,
    ("terminate", "restarting"): None,
    ("terminate", "down"): None,
    ("terminate", "unknown"): ChildNotFoundError,
    ("restart", "running"): ChildRunningError,
    ("restart", "restarting"): ChildRestartingError,
    ("restart", "down"): "ref",
    ("restart", "unknown"): ChildNotFoundError,
    ("delete", "running"): ChildRunningError,
    ("delete", "restarting"): ChildRestartingError,
    ("delete", "down"): None,
    ("delete", "unknown"): ChildNotFoundError,
}


async def bring_into(state, family, supervisor):
    if state == "restarting":
        family.crash("a")
        await family.settle()
    elif state in {"down", "unknown"}:
        await supervisor.ask(TerminateChild("a"))
    if state == "unknown":
        await supervisor.ask(DeleteChild("a"))
    else:
        assert [info.state.value for info in await supervisor.ask(WhichChildren())] == [state]


@pytest.mark.parametrize(("request_name", "state"), ANSWERS)
async def test_each_request_has_its_answer_in_each_state(family, request_name, state, autojump_clock):
    answer = ANSWERS[request_name, state]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"), backoff=Backoff())
        await bring_into(state, family, supervisor)
        reply = supervisor.ask(REQUESTS[request_name](family.spec("a") if request_name == "start" else "a"))
        if answer is None:
            assert await reply is None
        elif answer == "ref":
            assert await reply is family.refs["a"]
            assert await family.refs["a"].ask("x") == ("a", "x")
        else:
            with pytest.raises(answer) as caught:
                await reply
            assert caught.value.child_id == "a"
            assert getattr(caught.value, "ref", family.refs["a"]) is family.refs["a"]
        assert supervisor.is_alive()


@pytest.mark.parametrize(
    ("kind", "request_type"),
    [
        (Supervisor, TerminateChild),
        (Supervisor, RestartChild),
        (Supervisor, DeleteChild),
        (DynamicSupervisor, TerminateChild),
    ],
)
async def test_what_cannot_be_an_id_is_that_of_no_child(kind, request_type):
    async with ActorSystem() as system:
        supervisor = await system.spawn(kind)
        for child_id in ([], ([],), {}):
            with pytest.raises(ChildNotFoundError):
                await supervisor.ask(request_type(child_id))
            supervisor.tell(request_type(child_id))
        await trio.testing.wait_all_tasks_blocked()
        assert supervisor.is_alive()


async def test_a_supervisor_has_no_child_of_what_cannot_be_an_id():
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor)
        with pytest.raises(ChildNotFoundError):
            supervisor._cell.actor.child([])


async def test_terminating_kills_the_ref_and_restarting_makes_a_new_one(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        old = family.refs["a"]
        await supervisor.ask(TerminateChild("a"))
        assert not old.is_alive()
        assert await old.wait_stopped() == Exit(ExitKind.SHUTDOWN)
        new = await supervisor.ask(RestartChild("a"))
        assert new is not old
        assert new.incarnation == 1
    assert family.take_events() == "+a -a +a -a"


async def test_terminating_a_temporary_child_forgets_it(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a", restart="temporary"))
        await supervisor.ask(TerminateChild("a"))
        assert await supervisor.ask(WhichChildren()) == ()


async def test_what_was_sent_before_the_termination_is_handled(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        family.refs["a"].tell(1)
        before = family.refs["a"].ask(2)
        terminated = supervisor.ask(TerminateChild("a"))
        assert await before == ("a", 2)
        await terminated
    assert family.take_events() == "+a 1>a 2>a -a"


async def test_a_started_child_is_last_and_takes_part_in_everything(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("ab"), strategy="one_for_all")
        ref = await supervisor.ask(StartChild(family.spec("c")))
        assert ref is family.refs["c"]
        family.crash("a")
        await family.settle()
    assert family.take_events() == "-c -b -a"


async def test_a_child_that_fails_to_start_on_request_is_not_kept(family):
    error = ValueError("no")
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor)
        family.starts = {"a": [error]}
        with pytest.raises(ChildStartError) as caught:
            await supervisor.ask(StartChild(family.spec("a")))
        assert caught.value.__cause__ is error
        assert await supervisor.ask(WhichChildren()) == ()
        assert await supervisor.ask(StartChild(family.spec("a"))) is family.refs["a"]


async def test_a_child_that_fails_to_restart_on_request_stays_down_and_costs_nothing(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"), intensity=Intensity(0))
        await supervisor.ask(TerminateChild("a"))
        family.starts = {"a": [ValueError()]}
        with pytest.raises(ChildStartError):
            await supervisor.ask(RestartChild("a"))
        (info,) = await supervisor.ask(WhichChildren())
        assert info.state is ChildState.DOWN
        assert await supervisor.ask(RestartChild("a")) is family.refs["a"]


@pytest.mark.parametrize(("restart", "kept"), [("permanent", True), ("transient", True), ("temporary", False)])
async def test_a_child_that_declines_on_request_is_known_unless_it_is_temporary(family, restart, kept):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor)
        family.starts = {"a": [Decline()]}
        assert await supervisor.ask(StartChild(family.spec("a", restart=restart))) is None
        assert await supervisor.ask(WhichChildren()) == (
            (ChildInfo("a", ChildState.DOWN, None, "worker"),) if kept else ()
        )


async def test_a_spec_that_does_not_fit_is_refused(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor)
        with pytest.raises(SpecError, match="significant"):
            await supervisor.ask(StartChild(family.spec("a", restart="transient", significant=True)))
        with pytest.raises(SpecError, match="ChildSpec"):
            await supervisor.ask(StartChild("a"))


async def test_counts_tell_specs_from_running_and_supervisors_from_workers(family):
    sub = ChildSpec("sub", partial(Supervisor, family.specs("x")), kind="supervisor")
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [*family.specs("abc"), sub])
        await supervisor.ask(TerminateChild("a"))
        assert await supervisor.ask(CountChildren()) == ChildCounts(specs=4, active=3, supervisors=1, workers=3)
        infos = await supervisor.ask(WhichChildren())
        assert [(info.id, info.state.value, info.ref is None) for info in infos] == [
            ("a", "down", True),
            ("b", "running", False),
            ("c", "running", False),
            ("sub", "running", False),
        ]


async def test_a_request_that_is_only_told_fails_without_the_supervisor(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        dynamic = await system.spawn(DynamicSupervisor)
        for request in (TerminateChild("nobody"), StartChild(family.spec("a")), DeleteChild("a"), RestartChild("a")):
            supervisor.tell(request)
        dynamic.tell(TerminateChild("nobody"))
        await family.settle()
        assert supervisor.is_alive()
        assert dynamic.is_alive()


async def test_requests_to_a_supervisor_that_is_down_wait_for_its_next_incarnation(family, autojump_clock):
    inner = ChildSpec("inner", partial(Supervisor, family.specs("a"), intensity=Intensity(0)), kind="supervisor")
    async with ActorSystem() as system:
        outer = await system.spawn(Supervisor, [inner], backoff=Backoff(initial=1))
        ref = outer._cell.actor.child("inner")
        family.crash("a")
        await family.settle()
        assert await ref.ask(StartChild(family.spec("b"))) is family.refs["b"]
        assert [info.id for info in await ref.ask(WhichChildren())] == ["a", "b"]


def test_all_of_it_works_from_a_plain_thread(family):
    with ActorSystem.on_thread() as system:
        supervisor = system.spawn(Supervisor, family.specs("a")).get()
        ref = supervisor.ask(StartChild(family.spec("b"))).get()
        assert ref.ask("x") == ("b", "x")
        supervisor.ask(TerminateChild("b")).get()
        with pytest.raises(ChildNotFoundError):
            supervisor.ask(TerminateChild("c")).get()
        assert supervisor.ask(CountChildren()).get().active == 1


# -- dynamic supervisors ----------------------------------------------------------------------------------------------


async def test_dynamic_children_are_named_by_their_refs(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        one = await dynamic.ask(StartChild(family.spec("a")))
        two = await dynamic.ask(StartChild(family.spec("a")))
        assert [info.ref for info in await dynamic.ask(WhichChildren())] == [one, two]
        await dynamic.ask(TerminateChild(one))
        assert not one.is_alive()
        assert two.is_alive()
        assert await dynamic.ask(CountChildren()) == ChildCounts(specs=1, active=1, supervisors=0, workers=1)
        for nobody in (one, "a", dynamic):
            with pytest.raises(ChildNotFoundError):
                await dynamic.ask(TerminateChild(nobody))


async def test_a_dynamic_child_is_restarted_at_its_address_and_forgotten_when_it_is_not(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        ref = await dynamic.ask(StartChild(family.spec("a", restart="transient")))
        family.crash("a")
        assert await ref.ask("x") == ("a", "x")
        assert ref.incarnation == 2
        ref.tell("stop")
        await family.settle()
        assert await dynamic.ask(WhichChildren()) == ()


async def test_a_dynamic_child_that_fails_or_declines_is_not_kept(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        family.starts = {"a": [ValueError(), Decline()]}
        with pytest.raises(ChildStartError):
            await dynamic.ask(StartChild(family.spec("a")))
        assert await dynamic.ask(StartChild(family.spec("a"))) is None
        assert await dynamic.ask(WhichChildren()) == ()


async def test_slow_dynamic_children_start_and_stop_at_the_same_time(family, autojump_clock):
    family.starts = {name: [5.0] for name in "abc"}
    family.stops = dict.fromkeys("abc", 4.0)
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        starting = [dynamic.ask(StartChild(spec)) for spec in family.specs("abc")]
        assert [info.state for info in await dynamic.ask(WhichChildren())] == [ChildState.STARTING] * 3
        refs = [await reply for reply in starting]
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        assert refs == [family.refs[name] for name in "abc"]
        await dynamic.stop()
        assert trio.current_time() == pytest.approx(9, abs=0.1)


async def test_a_slow_dynamic_start_that_fails_is_answered_and_forgotten(family, autojump_clock):
    async def fail():
        await trio.sleep(1)
        raise ValueError("late")

    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)

        def start():
            worker = family.spec("a").start()
            worker.on_start = fail
            return worker

        with pytest.raises(ChildStartError):
            await dynamic.ask(StartChild(ChildSpec("a", start)))
        assert await dynamic.ask(WhichChildren()) == ()


async def test_a_dynamic_supervisor_that_stops_while_children_start_answers_and_leaves_nothing(family, autojump_clock):
    family.starts = {name: [1_000.0] for name in "abc"}
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        dynamic = await system.spawn(DynamicSupervisor)
        starting = [dynamic.ask(StartChild(spec)) for spec in family.specs("abc")]
        await family.settle()
        await dynamic.stop()
        for reply in starting:
            with pytest.raises(ChildStartError) as caught:
                await reply
            assert isinstance(caught.value.__cause__, ActorDeadError)
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert len(system) == 0


async def test_a_dynamic_supervisor_gives_up_like_any_other(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor, intensity=Intensity(1, 5))
        for spec in family.specs("ab"):
            await dynamic.ask(StartChild(spec))
        family.crash("a")
        await family.settle()
        family.crash("a")
        assert (await dynamic.wait_stopped()).kind is ExitKind.CRASHED
        assert not family.refs["b"].is_alive()


async def test_a_dynamic_child_in_back_off_can_be_terminated(family, autojump_clock):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor, backoff=Backoff(initial=5))
        ref = await dynamic.ask(StartChild(family.spec("a")))
        family.crash("a")
        await family.settle()
        await dynamic.ask(TerminateChild(ref))
        assert not ref.is_alive()
        await trio.sleep(10)
        assert family.take_events() == ""


async def test_a_dynamic_supervisor_does_not_know_the_requests_of_the_other_kind(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        for request in (RestartChild("a"), DeleteChild("a")):
            with pytest.raises(UnhandledMessageError):
                await dynamic.ask(request)


async def test_what_a_temporary_child_was_started_with_is_not_retained(family):
    class Payload:
        pass

    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        supervisor = await system.spawn(Supervisor)
        for number, boss in enumerate((dynamic, supervisor)):
            payload = Payload()
            seen = weakref.ref(payload)

            def start(worker, _payload):
                return worker()

            spec = ChildSpec(number, partial(start, family.spec("a").start, payload), restart="temporary")
            await boss.ask(StartChild(spec))
            del spec, payload, start
            await family.settle()
            gc.collect()
            assert seen() is None
            assert (await boss.ask(CountChildren())).active == 1


async def test_ten_thousand_dynamic_children_come_and_go_without_a_trace(family):
    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        refs = [await dynamic.ask(StartChild(family.spec("a", restart="temporary"))) for _ in range(10_000)]
        assert (await dynamic.ask(CountChildren())).active == 10_000
        for ref in refs[:5_000]:
            await dynamic.ask(TerminateChild(ref))
        for ref in refs[5_000:7_500]:
            ref.tell("stop")
        await family.settle()
        assert (await dynamic.ask(CountChildren())).specs == 2_500
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living <= before + 1
        await dynamic.stop()
        assert len(system) == 0


async def test_a_child_that_waits_in_its_start_for_its_own_supervisor_is_told_so(family):
    class Waiting(TrioActor):
        def __init__(self, boss):
            super().__init__()
            self.boss = boss

        async def on_start(self):
            await self.boss.ask(CountChildren())

    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor)
        with pytest.raises(ChildStartError) as caught:
            await supervisor.ask(StartChild(ChildSpec("a", partial(Waiting, supervisor))))
        assert isinstance(caught.value.__cause__, AskCycleError)


@pytest.mark.parametrize("step", [ValueError(), Decline(), 3.0])
async def test_a_dynamic_child_terminated_while_its_restart_takes_time_is_gone_and_costs_nothing(
    family, autojump_clock, step
):
    class Slow(TrioActor):
        async def on_start(self):
            if self.actor_ref.incarnation > 1:
                await trio.sleep(2)
                if isinstance(step, Exception):
                    raise step

        def on_receive(self, message):
            raise message

    async with ActorSystem() as system:
        dynamic = await system.spawn(DynamicSupervisor, intensity=Intensity(1, 60))
        ref = await dynamic.ask(StartChild(ChildSpec("a", Slow)))
        ref.tell(ValueError())
        await trio.sleep(1)
        assert await dynamic.ask(TerminateChild(ref)) is None
        await family.settle()
        assert not ref.is_alive()
        assert dynamic.is_alive()
        assert await dynamic.ask(WhichChildren()) == ()


async def test_a_child_that_asks_for_its_own_end_and_waits_is_cancelled_when_its_shutdown_time_is_over(
    family, autojump_clock
):
    class Leaving(TrioActor):
        async def on_receive(self, supervisor):
            await supervisor.ask(TerminateChild("s"))

    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [ChildSpec("s", Leaving, shutdown=3.0)])
        ref = (await supervisor.ask(WhichChildren()))[0].ref
        with pytest.raises(ActorDeadError):
            await ref.ask(supervisor)
        assert trio.current_time() == pytest.approx(3.0, abs=0.1)
        assert (await supervisor.ask(WhichChildren()))[0].state is ChildState.DOWN
