"""Names: one holder each, from before `__init__` until the address is dead."""

from __future__ import annotations

import pytest
import trio

from quiesce.actors.kernel import (
    ActorSystem,
    ChildStartError,
    CountChildren,
    DynamicSupervisor,
    NameTakenError,
    RestartChild,
    StartChild,
    Supervisor,
    TerminateChild,
    TrioActor,
)


class Plain(TrioActor):
    def __init__(self, value=None, *, name=None):
        super().__init__()
        self.value = value or name

    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        return self.value


async def test_an_actor_is_found_by_its_name():
    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain, 1)
        assert system.lookup("clerk") is ref
        assert system.lookup("nobody") is None


async def test_the_options_leave_the_constructor_its_own_arguments():
    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain, name="its own")
        assert await ref.ask(1) == "its own"


async def test_a_second_holder_is_refused_before_it_is_made():
    made = []

    class Counted(Plain):
        def __init__(self):
            super().__init__()
            made.append(self)

    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain)
        with pytest.raises(NameTakenError, match="'clerk' is held by Plain 'clerk'"):
            await system.options(name="clerk").spawn(Counted)
        assert system.lookup("clerk") is ref
        assert len(system) == 1
    assert made == []


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_a_name_is_free_again_when_its_holder_is_dead(end):
    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain)
        if end == "stop":
            ref.stop()
        else:
            ref.tell(ValueError("boom"))
        await ref.wait_stopped()
        assert system.lookup("clerk") is None
        assert system.lookup("clerk") is not await system.options(name="clerk").spawn(Plain)


async def test_a_name_is_free_again_when_its_holder_never_started():
    class Failing(Plain):
        def on_start(self):
            raise ValueError("no start")

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="no start"):
            await system.options(name="clerk").spawn(Failing)
        assert system.lookup("clerk") is None


async def test_a_name_is_held_while_its_holder_starts_and_while_it_ends():
    steps = []

    class Slow(Plain):
        async def on_start(self):
            await trio.lowlevel.checkpoint()
            steps.append(self.actor_system.lookup("clerk"))

        async def on_stop(self):
            await trio.lowlevel.checkpoint()
            steps.append(self.actor_system.lookup("clerk"))

    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Slow)
        stopping = ref.stop()
        with pytest.raises(NameTakenError):
            await system.options(name="clerk").spawn(Plain)
        await stopping
    assert steps == [ref, ref]


async def test_a_name_stands_in_the_text_of_its_holder():
    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain)
        assert str(ref) == f"Plain 'clerk' ({ref.actor_urn})"
        assert str(await system.spawn(Plain)).startswith("Plain (urn:uuid:")


async def test_names_are_per_system():
    async with ActorSystem() as one, ActorSystem() as two:
        first = await one.options(name="clerk").spawn(Plain)
        second = await two.options(name="clerk").spawn(Plain)
        assert one.lookup("clerk") is first
        assert two.lookup("clerk") is second


def test_threads_spawn_and_look_up_by_name():
    with ActorSystem.on_thread() as system:
        ref = system.options(name="clerk").spawn(Plain).get()
        assert system.lookup("clerk") is ref
        with pytest.raises(NameTakenError):
            system.options(name="clerk").spawn(Plain).get()
    assert system.lookup("clerk") is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": ""}, ValueError),
        ({"name": 3}, TypeError),
        ({"inbox_limit": 0}, ValueError),
        ({"inbox_limit": "many"}, TypeError),
        ({"inbox_policy": "drop"}, ValueError),
    ],
)
async def test_an_option_that_makes_no_sense_is_refused_by_name(options, error):
    async with ActorSystem() as system:
        with pytest.raises(error, match=next(iter(options))):
            system.options(**options)


# -- supervised children ----------------------------------------------------------------------------------------------


async def test_a_supervised_child_is_found_by_its_name_through_restarts_until_it_is_given_up(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [family.spec("a", name="clerk")])
        ref = system.lookup("clerk")
        assert ref is family.refs["a"]
        family.crash("a")
        await family.settle()
        assert system.lookup("clerk") is ref
        assert ref.incarnation == 2
        await supervisor.ask(TerminateChild("a"))
        assert system.lookup("clerk") is None
        await supervisor.ask(RestartChild("a"))
        assert system.lookup("clerk") is family.refs["a"]


async def test_a_child_whose_name_is_taken_is_not_started_and_its_siblings_stop(family):
    async with ActorSystem() as system:
        await system.options(name="clerk").spawn(Plain)
        with pytest.raises(ChildStartError, match="'b'") as caught:
            await system.spawn(Supervisor, [family.spec("a"), family.spec("b", name="clerk")])
        assert isinstance(caught.value.__cause__, NameTakenError)
        assert family.take_events() == "+a -a"
        assert len(system) == 1


async def test_a_dynamic_child_whose_name_is_taken_leaves_nothing_behind(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(DynamicSupervisor)
        await supervisor.ask(StartChild(family.spec("a", name="clerk")))
        with pytest.raises(ChildStartError):
            await supervisor.ask(StartChild(family.spec("b", name="clerk")))
        assert (await supervisor.ask(CountChildren())).specs == 1
        assert len(system) == 2
