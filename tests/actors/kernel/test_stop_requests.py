"""A stop that somebody asks for finds its child, whatever happens to it; the restart type says if it stays down."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    Backoff,
    ChildSpec,
    CountChildren,
    DynamicSupervisor,
    ExitKind,
    Intensity,
    RestartChild,
    StartChild,
    Supervisor,
    TrioActor,
    WhichChildren,
)

BACKOFF = Backoff(initial=5, jitter=0)
NOW = pytest.mark.parametrize("now", [False, True], ids=["in turn", "now"])


class Slow(TrioActor):
    """Writes down what it does; each hook of a later life waits until `gates` lets it, and fails if `fails` says so."""

    def __init__(self, steps, gates, *, fails=False):
        super().__init__()
        self.steps, self.gates, self.fails = steps, gates, fails

    async def on_start(self):
        if self.actor_ref.incarnation > 1:
            await self._gate("start")
            if self.fails:
                raise ValueError("not again")
        self.steps.append("up")

    async def on_failure(self, *_):
        await self._gate("failure")

    async def on_stop(self):
        await self._gate("stop")

    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        self.steps.append(message)
        return message

    async def _gate(self, hook):
        self.steps.append(hook)
        await self.gates.get(hook, opened()).wait()


def opened():
    event = trio.Event()
    event.set()
    return event


async def states(supervisor):
    return {info.id: info.state.value for info in await supervisor.ask(WhichChildren())}


async def dynamic_with(system, spec):
    supervisor = await system.spawn(DynamicSupervisor, backoff=BACKOFF)
    return supervisor, await supervisor.ask(StartChild(spec))


async def supervisor_with(system, spec, **rules):
    supervisor = await system.spawn(Supervisor, [spec], **rules)
    return supervisor, (await supervisor.ask(WhichChildren()))[0].ref


async def test_of_a_stop_in_back_off_a_transient_child_is_dead_at_once_and_stays_down(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a", restart="transient"), backoff=BACKOFF)
        ref = family.refs["a"]
        family.crash("a")
        assert await family.settle() == "+a !a"
        since, queued = trio.current_time(), ref.ask("x")
        assert await ref.stop() is True
        assert trio.current_time() == since
        assert not ref.is_alive()
        with pytest.raises(ActorDeadError):
            await queued
        assert await states(supervisor) == {"a": "down"}
        await trio.sleep(20)
        assert family.take_events() == ""
        assert await ref.stop() is False


@NOW
@pytest.mark.parametrize("make", [supervisor_with, dynamic_with])
async def test_either_kind_of_stop_under_either_kind_of_supervisor_does_so(make, now, family, autojump_clock):
    rules = {"backoff": BACKOFF} if make is supervisor_with else {}
    async with ActorSystem() as system:
        supervisor, ref = await make(system, family.spec("a", restart="transient"), **rules)
        family.crash("a")
        await family.settle()
        assert await ref.stop(now=now) is True
        counts = await supervisor.ask(CountChildren())
        assert (counts.active, counts.specs) == (0, 0 if make is dynamic_with else 1)
        await trio.sleep(20)
        assert family.take_events() == ""
        assert supervisor.is_alive()


async def test_a_stop_from_a_plain_thread_does_so(family, autojump_clock):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("a", restart="transient"), backoff=Backoff(initial=1_000))
        family.crash("a")
        await family.settle()
        assert await trio.to_thread.run_sync(family.refs["a"].stop) is True
        assert not family.refs["a"].is_alive()


async def test_a_permanent_child_in_back_off_is_not_stopped_and_the_answer_says_so(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"), backoff=BACKOFF, intensity=Intensity(1, 60))
        family.crash("a")
        await family.settle()
        assert await family.refs["a"].stop() is False
        assert await family.refs["a"].stop(now=True) is False
        assert await family.refs["a"].ask("x") == ("a", "x")
        assert supervisor.is_alive()


async def test_a_child_stopped_in_back_off_can_be_restarted_on_request(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a", restart="transient"), backoff=BACKOFF)
        family.crash("a")
        await family.settle()
        await family.refs["a"].aclose()
        assert await (await supervisor.ask(RestartChild("a"))).ask("x") == ("a", "x")


async def test_a_significant_child_stopped_in_back_off_shuts_its_supervisor_down(family, autojump_clock):
    specs = family.specs("a", restart="transient", significant=True)
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, auto_shutdown="any_significant", backoff=BACKOFF)
        family.crash("a")
        await family.settle()
        await family.refs["a"].stop()
        assert (await supervisor.wait_stopped()).kind is ExitKind.NORMAL


@pytest.mark.parametrize(("strategy", "back"), [("rest_for_one", "+b"), ("one_for_all", "+a +b")])
async def test_a_child_that_waits_for_the_restart_of_a_sibling_is_left_out_of_it(
    strategy, back, family, autojump_clock
):
    specs = [family.spec("a"), family.spec("b"), family.spec("c", restart="transient")]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy, backoff=BACKOFF)
        family.crash("b")
        await family.settle()
        assert await family.refs["c"].stop() is True
        await trio.sleep(6)
        assert family.take_events() == back
        assert await states(supervisor) == {"a": "running", "b": "running", "c": "down"}


@NOW
async def test_a_child_asked_to_stop_while_it_is_stopped_for_the_restart_of_a_sibling_is_left_out_of_it(
    now, family, autojump_clock
):
    family.stops = {"b": 2.0}
    specs = [family.spec("a"), family.spec("b", restart="transient")]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy="one_for_all")
        family.crash("a")
        assert await family.settle() == "+a +b !a"
        stopping = family.refs["b"].stop(now=now)
        await trio.sleep(3)
        assert family.take_events() == "-b +a"
        assert stopping.get() is True
        assert not family.refs["b"].is_alive()
        assert await states(supervisor) == {"a": "running", "b": "down"}


@NOW
@pytest.mark.parametrize("restart", ["transient", "permanent"])
async def test_a_stop_while_the_hook_of_a_crash_is_at_work_counts(restart, now):
    steps, gate = [], trio.Event()
    async with ActorSystem() as system:
        spec = ChildSpec("a", partial(Slow, steps, {"failure": gate}), restart=restart)
        supervisor, ref = await supervisor_with(system, spec)
        ref.tell(ValueError("a crash"))
        await wait_all_tasks_blocked()
        stopping, queued = ref.stop(now=now), ref.ask("queued")
        gate.set()
        assert await stopping is True
        await wait_all_tasks_blocked()
        back = restart == "permanent"
        assert await states(supervisor) == {"a": "running" if back else "down"}
        assert steps[: 2 + 3 * back] == ["up", "failure", *["start", "up", "queued"] * back]
        if not back:
            with pytest.raises(ActorDeadError) as caught:
                await queued
            assert str(caught.value.__cause__) == "a crash"


async def test_a_stop_that_is_queued_behind_the_crash_counts():
    steps = []
    async with ActorSystem() as system:
        supervisor, ref = await supervisor_with(system, ChildSpec("a", partial(Slow, steps, {}), restart="transient"))
        ref.tell(ValueError("a crash"))
        assert await ref.stop() is True
        await wait_all_tasks_blocked()
        assert not ref.is_alive()
        assert await states(supervisor) == {"a": "down"}
        assert steps == ["up", "failure"]


@NOW
@pytest.mark.parametrize("fails", [False, True], ids=["a start that works", "one that fails"])
@pytest.mark.parametrize("make", [supervisor_with, dynamic_with])
async def test_a_stop_during_the_start_of_a_restart_ends_it(make, fails, now, autojump_clock):
    steps, gate = [], trio.Event()
    async with ActorSystem() as system:
        spec = ChildSpec("a", partial(Slow, steps, {"start": gate}, fails=fails), restart="transient")
        supervisor, ref = await make(system, spec)
        ref.tell(ValueError("a crash"))
        await trio.sleep(6)
        assert steps == ["up", "failure", "start"]
        stopping = ref.stop(now=now)
        gate.set()
        assert await stopping is True
        assert not ref.is_alive()
        await trio.sleep(60)
        assert steps.count("start") == 1
        assert len(system) == 1
        assert set((await states(supervisor)).values()) <= {"down"}


@NOW
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_a_permanent_child_that_is_stopped_during_the_start_of_a_restart_comes_back(
    strategy, now, autojump_clock
):
    steps, gate = [], trio.Event()
    async with ActorSystem() as system:
        specs = [ChildSpec("a", partial(Slow, steps, {"start": gate})), ChildSpec("b", partial(Slow, [], {}))]
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy)
        a, b = [child.ref for child in await supervisor.ask(WhichChildren())]
        a.tell(ValueError("a crash"))
        await trio.sleep(6)
        stopping = a.stop(now=now)
        gate.set()
        await stopping
        await trio.sleep(60)
        assert set((await states(supervisor)).values()) == {"running"}
        assert (a.is_alive(), b.is_alive()) == (True, True)


async def test_a_stop_between_a_failed_start_and_the_next_attempt_counts():
    class Fails(Slow):
        async def on_start(self):
            self.steps.append("start")
            if self.actor_ref.incarnation == 2:
                raise ValueError("not again")

    steps, answers = [], []
    async with ActorSystem() as system:
        spec = ChildSpec("a", partial(Fails, steps, {}), restart="transient")
        supervisor, ref = await supervisor_with(system, spec)
        ended = ref._cell.owner.ended

        def stop_then(*args, **kwargs):
            ended(*args, **kwargs)
            if len(steps) == 3:
                steps.append("stop")
                answers.append(ref.stop())

        ref._cell.owner = Spy(ref._cell.owner, stop_then)
        ref.tell(ValueError("a crash"))
        await wait_all_tasks_blocked()
        assert steps == ["start", "failure", "start", "stop"]
        assert await answers[0] is True
        assert await states(supervisor) == {"a": "down"}


class Spy:
    """Stands between a cell and its owner."""

    def __init__(self, owner, ended):
        self._owner, self.ended = owner, ended

    def __getattr__(self, name):
        return getattr(self._owner, name)


async def test_a_stop_while_a_start_is_cut_short_for_an_elder_leaves_the_child_out(autojump_clock):
    class Shielded(Slow):
        async def on_start(self):
            self.steps.append("start")
            if self.actor_ref.incarnation == 2:
                with trio.CancelScope(shield=True):
                    await trio.sleep(5)

    steps, elder = [], []
    specs = [
        ChildSpec("elder", partial(Slow, elder, {})),
        ChildSpec("a", partial(Shielded, steps, {}), restart="transient"),
    ]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy="rest_for_one")
        first, second = (info.ref for info in await supervisor.ask(WhichChildren()))
        second.tell(ValueError("a crash"))
        await trio.sleep(1)
        first.tell(ValueError("a crash"))
        await trio.sleep(1)
        assert await second.stop() is True
        await trio.sleep(10)
        assert steps == ["start", "failure", "start", "stop"]
        assert elder[-1] == "up"
        assert await states(supervisor) == {"elder": "running", "a": "down"}


@pytest.mark.parametrize("restart", ["transient", "permanent"])
async def test_a_supervisor_in_back_off_is_stopped_as_any_child(restart, family, autojump_clock):
    inner = ChildSpec(
        "inner", partial(Supervisor, family.specs("a"), intensity=Intensity(0)), kind="supervisor", restart=restart
    )
    async with ActorSystem() as system:
        outer, ref = await supervisor_with(system, inner, backoff=BACKOFF)
        family.crash("a")
        await family.settle()
        assert await ref.stop() is (restart == "transient")
        await trio.sleep(6)
        assert family.take_events() == ("+a" if restart == "permanent" else "")
        assert await states(outer) == {"inner": "running" if restart == "permanent" else "down"}
