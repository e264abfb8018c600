"""The system: the order in which everything ends, also when it is cancelled."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, TrioActor

events: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Named(TrioActor):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def on_receive(self, message):
        if message == "sleep":
            return self._sleep()
        events.append(f"{self.name} handled {message}")
        return message

    async def _sleep(self):
        try:
            await trio.sleep_forever()
        finally:
            events.append(f"{self.name} cancelled")

    def on_stop(self):
        events.append(f"{self.name} stopped")


class AsyncNamed(Named):
    async def on_stop(self):
        events.append(f"{self.name} stopping")
        await trio.lowlevel.checkpoint()
        events.append(f"{self.name} stopped")


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when tasks have run for a number of steps."""

    def __init__(self, scope, steps):
        self.scope, self.left = scope, steps

    def before_task_step(self, task):
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def test_leaving_the_block_handles_what_was_sent_and_stops_newest_first_each_waited_for():
    async with ActorSystem() as system:
        refs = [await system.spawn(AsyncNamed, name) for name in "abc"]
        for ref in refs:
            ref.tell(1)
        ends = [ref.wait_stopped() for ref in refs]
    assert events == [
        "a handled 1",
        "b handled 1",
        "c handled 1",
        "c stopping",
        "c stopped",
        "b stopping",
        "b stopped",
        "a stopping",
        "a stopped",
    ]
    assert [end.get() for end in ends] == [Exit(ExitKind.SHUTDOWN)] * 3


async def test_an_exception_in_the_block_stops_the_actors_now_and_comes_out_as_it_is():
    with pytest.raises(KeyError) as caught:  # noqa: PT012  # the block is what is tested
        async with ActorSystem() as system:
            one, two = await system.spawn(Named, "one"), await system.spawn(Named, "two")
            one.tell("sleep")
            await trio.testing.wait_all_tasks_blocked()
            two.tell("never handled")
            raise KeyError("mine")
    assert caught.value.args == ("mine",)
    assert events == ["two stopped", "one cancelled", "one stopped"]


@pytest.mark.parametrize("cls", [Named, AsyncNamed])
async def test_cancelling_the_block_from_outside_leaves_nothing_behind(cls):
    before = living()
    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            busy, idle, parked = [await system.spawn(cls, name) for name in ("busy", "idle", "parked")]
            parked._cell.actor._sleep = trio.lowlevel.checkpoint
            await parked.ask("sleep")
            reply = busy.ask("sleep")
            ends = [ref.wait_stopped() for ref in (busy, idle, parked)]
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert living() == before
    with pytest.raises(ActorDeadError):
        reply.get()
    assert all(end.done() for end in ends)
    assert "busy cancelled" in events
    last = "stopped" if cls is Named else "stopping"
    for name in ("busy", "idle", "parked"):
        assert f"{name} {last}" in events
    assert events.index(f"parked {last}") < events.index(f"idle {last}")


async def test_a_cancelled_on_stop_may_shield_itself():
    class Careful(Named):
        async def on_stop(self):
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            events.append("stopped with care")

    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            await system.spawn(Careful, "careful")
            scope.cancel()
            await trio.sleep_forever()
    assert events == ["stopped with care"]


async def test_a_cancellation_while_the_system_waits_for_its_actors_ends_the_wait():
    class Stuck(Named):
        async def on_receive(self, message):
            await trio.sleep_forever()

    before = living()
    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            other = await system.spawn(Named, "other")
            ref = await system.spawn(Stuck, "stuck")
            ref.tell(1)
            queued = other.ask("sleep")
            scope.deadline = trio.current_time()
    assert scope.cancelled_caught
    assert events == ["stuck stopped", "other cancelled", "other stopped"] or sorted(events) == sorted(
        ["stuck stopped", "other cancelled", "other stopped"]
    )
    with pytest.raises(ActorDeadError):
        queued.get()
    assert living() == before


async def test_a_cancellation_at_each_checkpoint_of_a_run_ends_every_ask_and_every_task():  # noqa: C901  # one run
    """Cancel at the first checkpoint, then at the second, and so on until the run is through."""

    class Busy(Named):
        async def on_start(self):
            await trio.lowlevel.checkpoint()

        def on_receive(self, message):
            if message % 2:
                return self._work(message)
            self.start_soon(self._work, message)
            return message

        async def _work(self, message):
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            return message

        async def on_stop(self):
            await trio.lowlevel.checkpoint()

    async def run(replies):
        async with ActorSystem() as system:
            refs = []
            for name in "ab":
                replies.append(system.spawn(Busy, name))
                refs.append(await replies[-1])
            replies.extend(ref.ask(number) for number in range(4) for ref in refs)
            for reply in list(replies):
                await reply
            replies.extend(ref.stop() for ref in refs)
            await refs[0].aclose()

    step, cancelled = 0, True
    before = living()
    while cancelled:
        step += 1
        replies = []
        with trio.CancelScope() as scope:
            instrument = CancelAt(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await run(replies)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert living() == before, step
        assert all(reply.done() for reply in replies), step
        cancelled = scope.cancel_called
    assert 20 < step < 400


async def test_ten_thousand_actors_come_and_go_without_a_trace():
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()
        refs = [await system.spawn(Named, str(number)) for number in range(10_000)]
        assert len(system) == 10_000
        assert living() == before
        for ref in refs:
            ref.tell("hello")
        for ref in refs[::2]:
            await ref.stop()
        assert len(system) == 5_000
        actors = [ref._cell.actor for ref in refs[1::2]]
    assert len(system) == 0
    assert len(events) == 20_000
    assert [actor.name for actor in actors[::-1]] == [
        line.split()[0] for line in events if line.endswith("stopped") and int(line.split()[0]) % 2
    ]


async def test_an_actor_with_tasks_keeps_one_while_idle_and_none_after():
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()

        class Waits(TrioActor):
            async def on_receive(self, message):
                await trio.lowlevel.checkpoint()

        refs = [await system.spawn(Waits) for _ in range(100)]
        assert living() == before
        for ref in refs:
            await ref.ask(1)
        assert living() == before + 100
        for ref in refs:
            await ref.stop()
        assert living() == before


async def test_a_stopped_actor_is_freed_although_its_ref_is_held():
    freed = []

    class Freed(TrioActor):
        def __del__(self):
            freed.append(True)

    async with ActorSystem() as system:
        ref = await system.spawn(Freed)
        await ref.ask(1)
        await ref.stop()
        gc.collect()
        assert freed == [True]


async def test_a_system_is_entered_once():
    system = ActorSystem("one")
    async with system:
        pass
    with pytest.raises(RuntimeError, match="'one'"):
        async with system:
            pass


def test_two_systems_may_live_one_in_the_other_and_ask_each_other():
    class Asks(TrioActor):
        def __init__(self, other):
            super().__init__()
            self.other = other

        async def on_receive(self, message):
            return await self.other.ask(message, block=False)

    async def main():
        async with ActorSystem("outer") as outer, ActorSystem("inner") as inner:
            target = await outer.spawn(Named, "target")
            ref = await inner.spawn(Asks, target)
            return await ref.ask("hello")

    assert trio.run(main) == "hello"
