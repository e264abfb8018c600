"""A child that ends while one that was started after it, and leans on it, is being started."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from quiesce.actors.kernel import (
    ActorSystem,
    ChildSpec,
    ChildStartError,
    Message,
    Supervisor,
    TerminateChild,
    TrioActor,
    WhichChildren,
    receive,
)


@frozen
class Ping(Message[str]):
    """Asked of the elder."""


class Elder(TrioActor):
    """Answers."""

    @receive(Ping)
    def ping(self, _: Ping) -> str:
        return "pong"


class Younger(TrioActor):
    """Asks the elder when it starts, once it may."""

    def __init__(self, elder, steps, may_ask):
        super().__init__()
        self.elder, self.steps, self.may_ask = elder, steps, may_ask

    async def on_start(self):
        self.steps.append(f"start {self.actor_ref.incarnation}")
        await self.may_ask.wait()
        self.steps.append(await self.elder().ask(Ping()))


class Pair(Supervisor):
    """An elder and a younger."""

    def __init__(self, steps, may_ask, strategy):
        elder = partial(self.child, "elder")
        younger = ChildSpec("younger", lambda: Younger(elder, steps, may_ask))
        super().__init__([ChildSpec("elder", Elder), younger], strategy=strategy)


async def test_a_first_start_that_waits_for_an_elder_that_ended_fails_with_what_ended_the_elder():
    steps, may_ask = [], trio.Event()
    async with ActorSystem() as system:
        starting = system.spawn(Pair, steps, may_ask, "rest_for_one")
        await wait_all_tasks_blocked()
        elder = next(cell for cell in system._live if cell.actor_class is Elder)
        failure = ValueError("a crash")
        elder.crash(failure)
        with pytest.raises(ChildStartError) as caught:
            await starting
        assert (caught.value.child_id, caught.value.__cause__) == ("elder", failure)
        assert len(system) == 0


@pytest.mark.parametrize(("strategy", "incarnation"), [("rest_for_one", 2), ("one_for_all", 3)])
async def test_a_restart_that_waits_for_an_elder_that_ends_meanwhile_is_made_again_after_it(strategy, incarnation):
    steps, may_ask = [], trio.Event()
    may_ask.set()
    async with ActorSystem() as system:
        tree = await system.spawn(Pair, steps, may_ask, strategy)
        pair = tree._cell.actor
        elder, younger = pair.child("elder"), pair.child("younger")
        steps.clear()
        gates = iter([trio.Event(), may_ask])
        make = pair._children["younger"].spec.start

        def gated():
            made = make()
            made.may_ask = next(gates)
            return made

        object.__setattr__(pair._children["younger"].spec, "start", gated)
        younger._cell.crash(ValueError("a crash"))
        await wait_all_tasks_blocked()
        assert steps == ["start 2"]
        elder._cell.crash(ValueError("a crash"))
        await wait_all_tasks_blocked()
        assert steps == ["start 2", "start 3", "pong"]
        assert (elder.incarnation, younger.is_alive()) == (incarnation, True)
        assert len(pair._history) == 2


# --- an elder that is done, and one that is not wanted any more: neither takes anybody along --------------------------


class Job(TrioActor):
    """Crashes when told to, and is done as soon as it has started in the incarnation `done_in`."""

    def __init__(self, done_in):
        super().__init__()
        self.done_in = done_in

    def on_start(self):
        if self.actor_ref.incarnation == self.done_in:
            self.stop()

    def on_receive(self, message):
        raise ValueError(message)


class Slow(TrioActor):
    """Takes its time to start, and answers."""

    async def on_start(self):
        await wait_all_tasks_blocked()

    @receive(Ping)
    def ping(self, _: Ping) -> str:
        return "pong"


async def states(supervisor):
    return {child.id: child.state.value for child in await supervisor.ask(WhichChildren())}


@pytest.mark.parametrize("strategy", ["rest_for_one", "one_for_all"])
@pytest.mark.parametrize("younger", [Elder, Slow])
async def test_a_restart_goes_on_behind_an_elder_that_is_done_at_once(strategy, younger):
    specs = [ChildSpec("job", partial(Job, 2), restart="transient"), *(ChildSpec(name, younger) for name in "ab")]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy)
        job, a, _ = [child.ref for child in await supervisor.ask(WhichChildren())]
        job.tell("a crash")
        await wait_all_tasks_blocked()
        assert await states(supervisor) == {"job": "down", "a": "running", "b": "running"}
        assert (a.incarnation, await a.ask(Ping())) == (2, "pong")


@pytest.mark.parametrize("strategy", ["rest_for_one", "one_for_all"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_a_first_start_goes_on_behind_an_elder_that_is_done_at_once(strategy, restart):
    specs = [ChildSpec("job", partial(Job, 1), restart=restart), ChildSpec("slow", Slow)]
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy)
        await wait_all_tasks_blocked()
        assert (await states(supervisor))["slow"] == "running"


@pytest.mark.parametrize("strategy", ["rest_for_one", "one_for_all"])
async def test_a_restart_goes_on_without_an_elder_that_is_terminated_ahead_of_the_news_of_its_end(strategy):
    gates = [trio.Event() for _ in range(2)]
    gates[0].set()

    class Gated(Slow):
        async def on_start(self):
            await gates[min(self.actor_ref.incarnation, 2) - 1].wait()

    async with ActorSystem() as system:
        specs = [ChildSpec("job", partial(Job, 0)), *(ChildSpec(name, Gated) for name in "ab")]
        supervisor = await system.spawn(Supervisor, specs, strategy=strategy)
        job, a, _ = [child.ref for child in await supervisor.ask(WhichChildren())]
        job.tell("a crash")
        await wait_all_tasks_blocked()
        terminated = supervisor.ask(TerminateChild("job"))  # behind the restart, and ahead of the next end
        job.tell("another crash")
        gates[1].set()
        await terminated
        await wait_all_tasks_blocked()
        assert await states(supervisor) == {"job": "down", "a": "running", "b": "running"}
        assert await a.ask(Ping()) == "pong"
