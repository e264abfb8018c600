"""Timers on Trio's clock: keyed, without drift, one task for all of them, and gone with their actor."""

from __future__ import annotations

import gc
import math

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Message, TrioActor, receive

events: list[object] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Tick(Message[None]):
    pass


class Clocked(TrioActor):
    """Does what it is told by a function; anything else it records with the time."""

    def on_receive(self, message):
        if callable(message):
            return message(self)
        events.append((trio.current_time(), message))
        return None

    @receive(Tick)
    def tick(self, message: Tick) -> None:
        events.append((trio.current_time(), "typed"))


@pytest.fixture
async def ref():
    async with ActorSystem() as system:
        yield await system.spawn(Clocked)


async def test_once_sends_its_message_once_after_its_time(ref, autojump_clock):
    await ref.ask(lambda self: self.timers.once("a", 5, "five"))
    await ref.ask(lambda self: self.timers.once("b", 2, Tick()))
    await trio.sleep(100)
    assert events == [(2, "typed"), (5, "five")]
    assert await ref.ask(lambda self: len(self.timers)) == 0


async def test_every_sends_its_message_again_and_again_until_it_is_cancelled(ref, autojump_clock):
    await ref.ask(lambda self: self.timers.every("a", 2, "tick"))
    await trio.sleep(7)
    assert await ref.ask(lambda self: "a" in self.timers)
    assert await ref.ask(lambda self: self.timers.cancel("a")) is True
    assert await ref.ask(lambda self: self.timers.cancel("a")) is False
    await trio.sleep(100)
    assert events == [(2, "tick"), (4, "tick"), (6, "tick")]


async def test_a_timer_with_the_same_key_replaces_the_one_before(ref, autojump_clock):
    await ref.ask(lambda self: self.timers.once("a", 5, "first"))
    await ref.ask(lambda self: self.timers.every("a", 10, "second"))
    await trio.sleep(11)
    await ref.ask(lambda self: self.timers.once("a", 1, "third"))
    await trio.sleep(100)
    assert events == [(10, "second"), (12, "third")]


async def test_an_earlier_timer_does_not_wait_for_a_later_one_that_was_set_before_it(ref, autojump_clock):
    await ref.ask(lambda self: self.timers.once("late", 1000, "late"))
    await trio.testing.wait_all_tasks_blocked()
    await ref.ask(lambda self: self.timers.once("early", 1, "early"))
    await trio.sleep(2)
    assert events == [(1, "early")]


async def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_set(ref, autojump_clock):
    for key in "cab":
        await ref.ask(lambda self, key=key: self.timers.once(key, 1, key))
    await trio.sleep(2)
    assert events == [(1, "c"), (1, "a"), (1, "b")]


async def test_a_timer_of_no_seconds_fires_after_what_is_in_the_inbox(ref, autojump_clock):
    async def arm(self):
        self.timers.once("now", 0, "timer")
        self.actor_ref.tell("told")
        await trio.lowlevel.checkpoint()

    await ref.ask(arm)
    await trio.sleep(1)
    assert [what for _, what in events] == ["told", "timer"]


@pytest.mark.parametrize("arm", ["once", "every"])
async def test_what_a_timer_has_sent_is_not_handled_once_it_is_cancelled(ref, autojump_clock, arm):
    async def late(self):
        getattr(self.timers, arm)("a", 1, "old")
        await trio.sleep(3)
        assert len(self.actor_inbox) == 1
        self.timers.once("a", 1, "new")

    await ref.ask(late)
    await trio.sleep(10)
    assert events == [(4, "new")]


async def test_every_does_not_drift_when_its_actor_is_slow(ref, autojump_clock):
    async def slow(self):
        events.append(trio.current_time())
        if len(events) == 1:
            await trio.sleep(3.5)

    await ref.ask(lambda self: self.timers.every("a", 1, slow))
    await trio.sleep(6.9)
    assert events == [1, 4.5, 5, 6]  # those of 2, 3 and 4 are one, which waited in the inbox


async def test_every_leaves_out_the_ticks_for_which_the_loop_was_late(mock_clock):
    async with ActorSystem() as system:
        ref = await system.spawn(Clocked)
        await ref.ask(lambda self: self.timers.every("a", 1, "tick"))
        for jump in (1, 3.5, 0.4, 0.1, 1):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(jump)
        await trio.testing.wait_all_tasks_blocked()
    assert events == [(1, "tick"), (4.5, "tick"), (5, "tick"), (6, "tick")]


async def test_a_period_that_floats_cannot_express_does_not_drift_over_a_million_ticks():
    from quiesce.actors.kernel.timers import _Timer  # noqa: PLC0415  # the arithmetic alone

    timer = _Timer(None, "a", 1000.0, 0.1, "tick")
    last = 1000.0
    for number in range(1, 1_000_000):
        assert timer.at > last
        last = timer.at
        if number % 100_000 == 0:
            assert math.isclose(timer.at, 1000 + 0.1 * number, rel_tol=0, abs_tol=1e-6)
        timer.advance(0.1, last)


async def test_timers_are_gone_with_their_actor(ref, autojump_clock):
    other = await ref._cell.system.spawn(Clocked)
    await other.ask(lambda self: [self.timers.every("a", 1, "tick"), self.timers.once("b", 2, "tick")])
    await other.stop()
    await trio.sleep(5)
    assert events == []
    assert len(ref._cell.system.timers) == 0


async def test_a_stop_in_turn_does_not_wait_for_timers_and_drops_what_they_sent(ref, autojump_clock):
    other = await ref._cell.system.spawn(Clocked)

    async def busy(self):
        self.timers.once("a", 1, "tick")
        other.stop()
        await trio.sleep(2)

    other.tell(busy)
    await other.wait_stopped()
    assert trio.current_time() == 2
    assert events == []


async def test_an_actor_that_is_stopping_sets_no_timers():
    class Late(Clocked):
        def on_stop(self):
            with pytest.raises(ActorDeadError):
                self.timers.once("a", 1, "never")
            events.append("stopped")

    async with ActorSystem() as system:
        await (await system.spawn(Late)).stop()
    assert events == ["stopped"]


@pytest.mark.parametrize(
    ("arm", "seconds"), [("once", -1), ("once", math.nan), ("once", math.inf), ("every", 0), ("every", math.nan)]
)
async def test_seconds_that_make_no_sense_are_refused_by_name(ref, autojump_clock, arm, seconds):
    with pytest.raises(ValueError, match="seconds of timer 'a'"):
        await ref.ask(lambda self: getattr(self.timers, arm)("a", seconds, "tick"))


async def test_a_timer_may_be_set_from_on_start_and_from_child_work(autojump_clock):
    class Early(Clocked):
        def on_start(self):
            self.timers.once("start", 1, "from on_start")
            self.start_soon(self._work)

        async def _work(self):
            await trio.sleep(2)
            self.timers.once("work", 1, "from child work")

    async with ActorSystem() as system:
        await system.spawn(Early)
        await trio.sleep(5)
    assert events == [(1, "from on_start"), (3, "from child work")]


async def test_there_is_one_task_for_all_timers(ref, autojump_clock):
    before = trio.lowlevel.current_statistics().tasks_living
    for key in range(1000):
        await ref.ask(lambda self, key=key: self.timers.every(key, 1, "tick"))
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert len(ref._cell.system.timers) == 1000


async def test_setting_one_timer_again_and_again_keeps_no_more_than_a_few_of_the_old_ones(ref, autojump_clock):
    def again(self):
        for _ in range(10_000):
            self.timers.once("idle", 60, "idle")

    await ref.ask(again)
    heap = ref._cell.system.timers
    assert len(heap) == 1
    assert len(heap._heap) < 200


async def test_an_actor_that_came_from_pykka_may_have_an_attribute_of_that_name():
    class Old(TrioActor):
        def __init__(self):
            super().__init__()
            self.timers = ["its own"]

        def on_receive(self, message):
            return self.timers

    async with ActorSystem() as system:
        assert await (await system.spawn(Old)).ask(1) == ["its own"]


async def test_a_stopped_actor_with_a_cancelled_timer_is_freed(ref, autojump_clock):
    freed = []

    class Freed(Clocked):
        def __del__(self):
            freed.append(True)

    other = await ref._cell.system.spawn(Freed)
    await other.ask(lambda self: self.timers.once("a", 1000, "never"))
    await other.stop()
    gc.collect()
    assert freed == [True]
