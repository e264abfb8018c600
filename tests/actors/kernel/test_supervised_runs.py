"""Supervised trees in runs made at random: whatever crashes when, the guarantees hold."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    Backoff,
    ChildError,
    ChildSpec,
    DynamicSupervisor,
    Intensity,
    RestartChild,
    StartChild,
    Supervisor,
    SupervisorGaveUpError,
    TerminateChild,
    TrioActor,
)


class Boom(Exception):  # noqa: N818  # what actors raise here on purpose
    """A crash."""


class Wild(TrioActor):
    """Checks the order of each sender over all incarnations, and otherwise does what chance says."""

    def __init__(self, world, name):
        super().__init__()
        self.world = world
        self.name = name
        world.fall(0.2 if self.actor_ref.incarnation > 1 else 0.01)

    def on_start(self):
        self.world.up(self)
        return self.world.pause(0.1) if self.world.chance.random() < 0.5 else None

    def on_stop(self):
        return self.world.pause(0.1) if self.world.chance.random() < 0.5 else None

    def on_failure(self, *exc_info):
        return self.world.pause(0.1) if self.world.chance.random() < 0.5 else None

    def on_receive(self, message):
        world, (sender, number) = self.world, message
        key = (self.actor_ref, sender)
        if world.last.get(key, -1) >= number:
            world.broken.append((key, number, world.last[key]))
        world.last[key] = number
        if world.chance.random() < 0.1:
            self.start_soon(world.pause, 0.3)
        if world.chance.random() < 0.05:
            self.stop()
        world.fall(0.1)
        return world.pause(0.1) if world.chance.random() < 0.5 else message


class World:
    """What the actors of one run share."""

    def __init__(self, chance):
        self.chance = chance
        self.last = {}
        self.broken = []
        self.refs = {}
        self.stopped = []  # those that stay down once they have been stopped

    def up(self, actor):
        self.refs[actor.name] = actor.actor_ref

    def stop(self, ref):
        """Ask an actor to stop; a true answer means that it has ended, and for good unless it is permanent."""
        stopping = ref.stop(block=False, now=self.chance.random() < 0.5)
        if ref._cell.owner.spec.restart != "permanent":
            stopping.on_done(lambda answer: self.stopped.append(ref) if answer.get() else None)
        return stopping

    def fall(self, risk):
        if self.chance.random() < risk:
            raise Boom

    async def pause(self, risk):
        await trio.sleep(self.chance.random() * self.chance.choice([0, 1, 10]))
        self.fall(risk)

    def spec(self, name):
        chance = self.chance
        return ChildSpec(
            name,
            partial(Wild, self, name),
            restart=chance.choice(["permanent", "permanent", "transient", "temporary"]),
            shutdown=chance.choice([0, 0.5, 5, 100]),
        )

    def rules(self):
        return {
            "intensity": Intensity(self.chance.choice([3, 30]), 5),
            "backoff": self.chance.choice([None, Backoff()]),
            "chance": self.chance,
        }

    def tree(self, name, depth):
        children = [self.spec(f"{name}{number}") for number in range(3)]
        if depth:
            sub = partial(Supervisor, self.tree(f"{name}s", depth - 1), **self.rules(), strategy=self.strategy())
            children.insert(self.chance.randrange(4), ChildSpec("sub", sub, kind="supervisor"))
        return children

    def strategy(self):
        return self.chance.choice(["one_for_one", "one_for_all", "rest_for_one"])


@pytest.mark.parametrize("first", range(0, 200, 20))
async def test_the_order_holds_over_restarts_stops_hold_every_ask_ends_and_nothing_is_left(first, autojump_clock):
    for seed in range(first, first + 20):
        await one_run(World(random.Random(seed)))


async def one_run(world):  # noqa: C901  # one run
    chance, replies = world.chance, []
    before = trio.lowlevel.current_statistics().tasks_living

    async def send(sender):
        for number in range(60):
            ref = chance.choice(list(world.refs.values()))
            with suppress(ActorDeadError):
                if chance.random() < 0.6:
                    ref.tell((sender, number))
                else:
                    replies.append(ref.ask((sender, number)))
            if chance.random() < 0.3:
                await trio.sleep(chance.random())

    async def meddle(supervisor, dynamic):
        for number in range(10):
            name = f"a{chance.randrange(3)}"
            requests = [TerminateChild(name), RestartChild(name), StartChild(world.spec(name))]
            replies.append(supervisor.ask(chance.choice(requests)))
            replies.append(dynamic.ask(StartChild(world.spec(f"d{number}"))))
            if chance.random() < 0.3:
                replies.append(world.stop(chance.choice(list(world.refs.values()))))
            assert not any(ref.is_alive() for ref in world.stopped)
            if chance.random() < 0.3:
                replies.append(dynamic.ask(TerminateChild(chance.choice(list(world.refs.values())))))
            await trio.sleep(chance.random() * 3)

    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            with suppress(ChildError):
                spawning = system.spawn(Supervisor, world.tree("a", 2), **world.rules(), strategy=world.strategy())
                replies.append(spawning)
                supervisor = await spawning
                dynamic = await system.spawn(DynamicSupervisor, **world.rules())
                replies += [supervisor.wait_stopped(), dynamic.wait_stopped()]
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(meddle, supervisor, dynamic)
                    for sender in range(3):
                        nursery.start_soon(send, sender)
            if chance.random() < 0.3:
                scope.deadline = trio.current_time() + chance.random() * 5
    assert world.broken == []
    assert len(system) == 0
    assert all(reply.done() for reply in replies)
    for reply in replies:
        with suppress(ActorDeadError, ChildError, Boom, SupervisorGaveUpError):
            reply.get()
    assert trio.lowlevel.current_statistics().tasks_living == before
