"""One message at a time, in the order sent, whichever way the handlers run."""

from __future__ import annotations

import contextvars
import itertools

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.actors.kernel import ActorSystem, TrioActor


class Recorder(TrioActor):
    """Handles ("def", n) at once and ("async", n) with a pause in the middle."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.at_work = False

    def on_receive(self, message):
        kind, number = message
        return self._slow(number) if kind == "async" else self._fast(number)

    def _fast(self, number):
        assert not self.at_work
        self.events.append(number)
        return number

    async def _slow(self, number):
        assert not self.at_work
        self.at_work = True
        self.events.append(number)
        await trio.lowlevel.checkpoint()
        self.at_work = False
        return number


@pytest.mark.parametrize("kinds", [["def"], ["async"], ["def", "async"], ["async", "def", "def", "async"]])
async def test_messages_of_one_sender_are_handled_in_the_order_sent(kinds):
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder)
        actor = ref._cell.actor
        replies = []
        for number in range(200):
            message = (kinds[number % len(kinds)], number)
            if number % 3:
                ref.tell(message)
            else:
                replies.append(ref.ask(message))
        assert [await reply for reply in replies] == list(range(0, 200, 3))
    assert actor.events == list(range(200))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["def", "async"]), st.sampled_from(["tell", "ask", "await"])), max_size=40))
def test_any_mix_of_tells_asks_and_handler_kinds_keeps_the_order(plan):
    async def main():
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder)
            actor = ref._cell.actor
            for number, (kind, how) in enumerate(plan):
                if how == "tell":
                    ref.tell((kind, number))
                elif how == "ask":
                    ref.ask((kind, number))
                else:
                    assert await ref.ask((kind, number)) == number
        return actor.events

    assert trio.run(main) == list(range(len(plan)))


async def test_a_def_message_behind_a_suspended_async_handler_waits_for_it():
    events = []

    class Mixed(TrioActor):
        async def slow(self, gate):
            events.append("slow begins")
            await gate.wait()
            events.append("slow ends")

        def fast(self):
            events.append("fast")

        def on_receive(self, message):
            return self.slow(message) if isinstance(message, trio.Event) else self.fast()

    async with ActorSystem() as system:
        ref = await system.spawn(Mixed)
        gate = trio.Event()
        ref.tell(gate)
        fast = ref.ask("fast")
        await trio.testing.wait_all_tasks_blocked()
        assert events == ["slow begins"]
        gate.set()
        await fast
    assert events == ["slow begins", "slow ends", "fast"]


async def test_an_ask_does_not_overtake_a_tell_that_was_sent_before_it():
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder)
        ref.tell(("def", 1))
        await ref.ask(("def", 2))
        assert ref._cell.actor.events == [1, 2]


async def test_an_ask_to_an_idle_actor_runs_a_def_handler_before_it_returns():
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder)
        assert ref.ask(("def", 1)).done()
        assert not ref.ask(("async", 2)).done()


async def test_an_actor_that_asks_itself_is_not_entered_twice():
    class Selfish(TrioActor):
        def __init__(self):
            super().__init__()
            self.events = []

        def on_receive(self, message):
            self.events.append(f"{message} begins")
            if message == "outer":
                self.inner = self.actor_ref.ask("inner")
                assert not self.inner.done()
            self.events.append(f"{message} ends")

    async with ActorSystem() as system:
        ref = await system.spawn(Selfish)
        actor = ref._cell.actor
        await ref.ask("outer")
        await actor.inner
    assert actor.events == ["outer begins", "outer ends", "inner begins", "inner ends"]


async def test_asks_on_top_of_each_other_are_queued_beyond_a_bounded_depth():
    done_at_once = []

    class Link(TrioActor):
        def __init__(self, successor):
            super().__init__()
            self.successor = successor

        def on_receive(self, message):
            if self.successor is not None:
                done_at_once.append(self.successor.ask(message).done())

    async with ActorSystem() as system:
        ref = None
        for _ in range(3000):
            ref = await system.spawn(Link, ref)
        await ref.ask("go")
    assert len(done_at_once) == 2999
    assert done_at_once.count(False) > 100
    assert done_at_once.count(True) > 1000


async def test_two_actors_that_ask_each_other_keep_one_message_at_a_time():
    class Player(TrioActor):
        def __init__(self):
            super().__init__()
            self.busy = False
            self.other = None

        def on_receive(self, message):
            assert not self.busy
            self.busy = True
            if message:
                self.other.ask(message - 1)
            self.busy = False
            return message

    async with ActorSystem() as system:
        one, two = await system.spawn(Player), await system.spawn(Player)
        one._cell.actor.other, two._cell.actor.other = two, one
        assert await one.ask(100) == 100


async def test_a_busy_actor_does_not_keep_the_others_from_their_turn():
    class Endless(TrioActor):
        def on_receive(self, message):
            self.actor_ref.tell(message)

    async with ActorSystem() as system:
        endless = await system.spawn(Endless)
        endless.tell("again")
        other = await system.spawn(Recorder)
        assert await other.ask(("def", 1)) == 1
        other.tell(("def", 2))
        assert await other.ask(("def", 3)) == 3
        await endless.stop(now=True)


async def test_the_dispatcher_gives_the_loop_a_turn_at_least_once_per_millisecond_of_work():
    now = 0.0

    class Worker(TrioActor):
        def on_receive(self, message):
            nonlocal now
            now += 0.0004

    async with ActorSystem(work_clock=lambda: now) as system:
        ref = await system.spawn(Worker)
        for number in range(30):
            ref.tell(number)
        waiting = []
        while ref._cell.inbox:
            waiting.append(len(ref._cell.inbox))
            await trio.lowlevel.checkpoint()
        waiting.append(0)
    *others, longest = sorted(a - b for a, b in itertools.pairwise(waiting))
    assert longest <= 7 + 2 * 3  # the first: until then everything was brisk
    assert max(others) <= 2 * 3  # two turns, in the worst order


async def test_an_async_handler_that_never_waits_gives_the_loop_its_turn_too():
    now = 0.0

    class Worker(TrioActor):
        async def on_receive(self, message):
            nonlocal now
            now += 0.0004

    async with ActorSystem(work_clock=lambda: now) as system:
        ref = await system.spawn(Worker)
        for number in range(30):
            ref.tell(number)
        waiting = []
        while ref._cell.inbox:
            waiting.append(len(ref._cell.inbox))
            await trio.lowlevel.checkpoint()
        waiting.append(0)
    assert max(a - b for a, b in itertools.pairwise(waiting)) <= 2 * 3  # two turns, in the worst order


async def test_context_variables_set_in_a_handler_stay_with_its_actor():
    who = contextvars.ContextVar("who", default="nobody")

    class Named(TrioActor):
        def on_receive(self, message):
            if message == "async":
                return self._read()
            if message != "read":
                who.set(message)
            return who.get()

        async def _read(self):
            return who.get()

    async with ActorSystem() as system:
        who.set("spawner")
        one, two = await system.spawn(Named), await system.spawn(Named)
        assert await one.ask("read") == "spawner"
        await one.ask("one")
        two.tell("two")
        assert await two.ask("read") == "two"
        assert await one.ask("async") == "one"
        await one.ask("uno")
        assert await one.ask("async") == "uno"
        assert await one.ask("read") == "uno"
        assert who.get() == "spawner"
