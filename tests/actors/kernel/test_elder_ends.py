"""A child that ends while one that was started after it, and leans on it, is being started."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from quiesce.actors.kernel import ActorSystem, ChildSpec, ChildStartError, Message, Supervisor, TrioActor, receive


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
