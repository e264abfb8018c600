"""Statistics: what can be seen of an actor and of a system at one moment."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorStatistics,
    ActorSystem,
    Backoff,
    DynamicSupervisor,
    Intensity,
    StartChild,
    Supervisor,
    SupervisorStatistics,
    SystemStatistics,
    TrioActor,
)


class Plain(TrioActor):
    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        return message


class Slow(Plain):
    async def on_receive(self, message):
        await trio.sleep(message)

    async def on_stop(self):
        await trio.sleep(1)


async def test_an_idle_actor_has_handled_what_it_was_sent(autojump_clock):
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        await trio.sleep(3)
        ref.tell(1)
        ref.tell(2)
        await ref.ask(3)
        await ref.ask(4)
        assert ref.statistics() == ActorStatistics(
            state="idle",
            inbox_length=0,
            inbox_limit=None,
            senders_waiting=0,
            handled=4,
            incarnation=1,
            timers=0,
            age=3,
            supervised=None,
        )


async def test_the_state_is_named_throughout_a_life(autojump_clock):
    async with ActorSystem() as system:
        ref = await system.spawn(Slow)
        states = [ref.statistics().state]
        ref.tell(1)
        states.append(ref.statistics().state)
        await trio.testing.wait_all_tasks_blocked()
        states.append(ref.statistics().state)
        ref.stop(now=True)
        states.append(ref.statistics().state)
        await trio.testing.wait_all_tasks_blocked()
        states.append(ref.statistics().state)
        await ref.wait_stopped()
        states.append(ref.statistics().state)
    assert states == ["idle", "ready", "running", "exiting", "closing", "dead"]


async def test_messages_and_timers_that_wait_are_seen(autojump_clock):
    async with ActorSystem() as system:
        ref = await system.options(inbox_limit=5).spawn(Slow)
        ref._cell.actor.timers.once("a", 100, 0)
        for _ in range(3):
            ref.tell(1)
        await trio.testing.wait_all_tasks_blocked()
        seen = ref.statistics()
        assert (seen.inbox_length, seen.inbox_limit, seen.timers, seen.handled) == (2, 5, 1, 1)
        await ref.stop()
        assert ref.statistics().handled == 4


async def test_async_handlers_are_counted_one_by_one(autojump_clock):
    async with ActorSystem() as system:
        ref = await system.spawn(Slow)
        for number in range(1, 200):
            await ref.ask(0)
            assert ref.statistics().handled == number


async def test_a_system_counts_starts_ends_messages_and_what_was_lost(autojump_clock):
    async with ActorSystem() as system:
        stops, crashes, lives = [await system.spawn(Plain) for _ in range(3)]
        await stops.ask(1)
        await stops.stop()
        crashes.tell(ValueError("boom"))
        crashes.tell("lost")
        await crashes.wait_stopped()
        with pytest.raises(ActorDeadError):
            crashes.tell("lost too")
        lives.tell(1)
        lives._cell.actor.timers.every("a", 5, "tick")
        assert system.statistics() == SystemStatistics(
            alive=1, started=3, stopped=1, crashed=1, handled=3, ready=1, dead_letters=2, timers=1
        )
        await lives.ask(2)
        assert system.statistics().handled == 5
    assert system.statistics() == SystemStatistics(
        alive=0, started=3, stopped=2, crashed=1, handled=6, ready=0, dead_letters=2, timers=0
    )


async def test_a_start_that_fails_counts_as_nothing():
    class Failing(Plain):
        def on_start(self):
            raise ValueError("no start")

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="no start"):
            await system.spawn(Failing)
        seen = system.statistics()
        assert (seen.alive, seen.started, seen.stopped, seen.crashed) == (0, 0, 0, 0)


def test_statistics_may_be_read_from_any_thread():
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Plain).get()
        ref.ask(1)
        assert ref.statistics().handled == 1
        assert ref.statistics().age >= 0
        assert system.statistics().handled == 1


@pytest.mark.parametrize("cls", [ActorStatistics, SystemStatistics])
def test_statistics_are_frozen(cls):
    value = cls(**{field.name: 0 for field in attrs.fields(cls)})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.handled = 1


async def test_a_supervisor_counts_its_children_their_restarts_and_what_counts_towards_its_intensity(
    family, autojump_clock
):
    async with ActorSystem() as system:
        specs = [*family.specs("ab"), family.spec("c", restart="transient")]
        supervisor = await system.spawn(Supervisor, specs, strategy="one_for_all", intensity=Intensity(3, 5.0))
        family.refs["c"].tell("stop")
        await family.settle()
        assert supervisor.statistics().supervised == SupervisorStatistics(3, 2, 0, restarts=0, incidents=0)
        family.crash("a")
        await family.settle()
        assert supervisor.statistics().supervised == SupervisorStatistics(3, 3, 0, restarts=3, incidents=1)
        await trio.sleep(6)
        assert supervisor.statistics().supervised == SupervisorStatistics(3, 3, 0, restarts=3, incidents=0)


async def test_a_supervisor_counts_children_that_wait_for_their_restart(family, autojump_clock):
    async with ActorSystem() as system:
        backoff = Backoff(initial=1.0, jitter=0)
        supervisor = await system.spawn(Supervisor, family.specs("ab"), backoff=backoff)
        family.crash("a")
        await family.settle()
        assert supervisor.statistics().supervised == SupervisorStatistics(2, 1, 1, restarts=0, incidents=1)
        await trio.sleep(2)
        assert supervisor.statistics().supervised == SupervisorStatistics(2, 2, 0, restarts=1, incidents=1)


async def test_a_dynamic_supervisor_has_the_same_statistics(family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(DynamicSupervisor)
        for name in "ab":
            await supervisor.ask(StartChild(family.spec(name)))
        family.crash("a")
        await family.settle()
        assert supervisor.statistics().supervised == SupervisorStatistics(2, 2, 0, restarts=1, incidents=1)
