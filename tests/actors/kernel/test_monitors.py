"""An actor that monitors another learns how it ended: once, in order, and not after it has changed its mind."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, Terminated, TrioActor, receive


class Watcher(TrioActor):
    """Does what it is told by a function, and records what it learns."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_receive(self, message):
        return message(self)

    @receive(Terminated)
    def terminated(self, message: Terminated) -> None:
        self.seen.append((message.ref, message.exit))


class Target(TrioActor):
    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        return message


async def seen(watcher):
    return await watcher.ask(lambda self: list(self.seen))


async def test_a_stop_and_a_crash_are_told_with_how_they_ended():
    async with ActorSystem() as system:
        watcher, stops, crashes = [await system.spawn(cls) for cls in (Watcher, Target, Target)]
        await watcher.ask(lambda self: [self.monitor(stops), self.monitor(crashes)])
        await stops.stop()
        error = ValueError("boom")
        crashes.tell(error)
        await crashes.wait_stopped()
        assert await seen(watcher) == [
            (stops, Exit(ExitKind.NORMAL)),
            (crashes, Exit(ExitKind.CRASHED, error)),
        ]


async def test_monitoring_an_actor_that_is_dead_already_tells_at_once():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        await target.stop()
        await watcher.ask(lambda self: self.monitor(target))
        assert await seen(watcher) == [(target, Exit(ExitKind.NORMAL))]


async def test_each_monitor_tells_once():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        await watcher.ask(lambda self: [self.monitor(target), self.monitor(target)])
        await target.stop()
        await watcher.ask(lambda self: self.monitor(target))
        await trio.testing.wait_all_tasks_blocked()
        assert len(await seen(watcher)) == 3


async def test_a_monitor_that_was_taken_back_tells_nothing():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        first, second = await watcher.ask(lambda self: [self.monitor(target), self.monitor(target)])
        await watcher.ask(lambda self: self.demonitor(first))
        assert list(target._cell.ended._waiters) == [second]
        await watcher.ask(lambda self: self.demonitor(second))
        await target.stop()
        assert await seen(watcher) == []


async def test_a_monitor_that_is_taken_back_after_the_message_was_sent_tells_nothing():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        monitor = await watcher.ask(lambda self: self.monitor(target))

        async def late(self):
            await target.stop()
            assert len(self.actor_inbox) == 1
            self.demonitor(monitor)

        await watcher.ask(late)
        assert await seen(watcher) == []


async def test_messages_that_the_target_sent_before_its_end_come_before_it():
    class Last(Target):
        def on_receive(self, message):
            watcher.tell(lambda other: other.seen.append("handled"))

        def on_stop(self):
            watcher.tell(lambda other: other.seen.append("on_stop"))

    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Last)
        await watcher.ask(lambda self: self.monitor(target))
        target.tell("go")
        await target.stop()
        assert await seen(watcher) == ["handled", "on_stop", (target, Exit(ExitKind.NORMAL))]


async def test_a_watcher_that_has_ended_leaves_nothing_at_its_target():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        for _ in range(3):
            await watcher.ask(lambda self: self.monitor(target))
        assert len(target._cell.ended._waiters) == 3
        await watcher.stop()
        assert not target._cell.ended._waiters
        await target.stop()


async def test_a_monitor_that_has_told_is_forgotten_by_its_watcher():
    async with ActorSystem() as system:
        watcher, target = await system.spawn(Watcher), await system.spawn(Target)
        monitor = await watcher.ask(lambda self: self.monitor(target))
        await target.stop()
        await seen(watcher)
        assert not watcher._cell.monitors
        await watcher.ask(lambda self: self.demonitor(monitor))  # which changes nothing


async def test_an_actor_that_is_stopping_monitors_nobody():
    class Late(Watcher):
        def on_stop(self):
            with pytest.raises(ActorDeadError):
                self.monitor(target)
            stopped.append(True)

    stopped = []
    async with ActorSystem() as system:
        target = await system.spawn(Target)
        await (await system.spawn(Late)).stop()
    assert stopped == [True]


async def test_an_actor_of_another_loop_may_be_monitored():
    with ActorSystem.on_thread() as other:
        async with ActorSystem() as system:
            watcher = await system.spawn(Watcher)
            target, kept = await other.spawn(Target), await other.spawn(Target)
            taken_back = await watcher.ask(lambda self: [self.monitor(target), self.monitor(kept)][1])
            await watcher.ask(lambda self: self.demonitor(taken_back))
            await target.stop()
            await kept.stop()
            while not await seen(watcher):
                await trio.lowlevel.checkpoint()
            assert await seen(watcher) == [(target, Exit(ExitKind.NORMAL))]
    assert len(system) == 0


async def test_an_actor_whose_loop_has_ended_is_told_at_once():
    with ActorSystem.on_thread() as other:
        target = await other.spawn(Target)
    async with ActorSystem() as system:
        watcher = await system.spawn(Watcher)
        await watcher.ask(lambda self: self.monitor(target))
        assert await seen(watcher) == [(target, Exit(ExitKind.SHUTDOWN))]
