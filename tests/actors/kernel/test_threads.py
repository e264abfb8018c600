"""A system on a thread of its own, and senders from plain threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import trio

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    Exit,
    ExitKind,
    Message,
    SystemStoppedError,
    TrioActor,
    receive,
)


class Double(Message[int]):
    def __init__(self, number):
        self.number = number


class Collector(TrioActor):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_receive(self, message):
        self.seen.append(message)
        return len(self.seen)

    @receive(Double)
    async def double(self, message: Double) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * message.number


def test_plain_threads_spawn_tell_ask_get_and_stop():
    with ActorSystem.on_thread("aside") as system:
        ref = system.spawn(Collector).get()
        ref.tell("a")
        assert ref.ask("b") == 2
        assert ref.ask("b", block=False).get() == 3
        assert ref.ask(Double(4)).get(timeout=60) == 8
        assert ref.ask(Double(4), block=True) == 8
        assert ref.stop() is True
        assert ref.stop() is False
        assert ref.wait_stopped().get() == Exit(ExitKind.NORMAL)
        assert ref.actor_stopped.is_set()
        with pytest.raises(ActorDeadError):
            ref.tell("c")
        with pytest.raises(ActorDeadError):
            ref.ask("c")
        other = system.spawn(Collector).get()
        assert other.stop(now=True) is True
        assert other.stop(now=True, block=False).get() is False


def test_a_failing_start_raises_in_the_thread_that_spawned():
    class Failing(Collector):
        async def on_start(self):
            raise ValueError("no start")

    with ActorSystem.on_thread() as system:
        with pytest.raises(ValueError, match="no start"):
            system.spawn(Failing).get()
        assert len(system) == 0


def test_after_the_block_refs_are_dead_and_nothing_is_spawned():
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Collector).get()
        thread = next(thread for thread in threading.enumerate() if thread.name.startswith("actors:"))
    assert not thread.is_alive()
    assert ref.wait_stopped().get() == Exit(ExitKind.SHUTDOWN)
    with pytest.raises(ActorDeadError):
        ref.tell(1)
    with pytest.raises(ActorDeadError):
        ref.ask(1)
    with pytest.raises(SystemStoppedError):
        system.spawn(Collector).get()
    assert ref.stop() is False
    assert ref.stop(now=True) is False


def test_an_exception_in_the_block_comes_out_and_the_actors_are_stopped_now():
    class Stuck(Collector):
        async def on_receive(self, message):
            await trio.sleep_forever()

    with pytest.raises(KeyError, match="mine"), ActorSystem.on_thread() as system:  # noqa: PT012
        ref = system.spawn(Stuck).get()
        reply = ref.ask(1, block=False)
        raise KeyError("mine")
    with pytest.raises(ActorDeadError):
        reply.get()


@pytest.mark.parametrize("how", ["tell", "ask", "both"])
def test_what_each_of_ten_threads_sends_arrives_in_the_order_it_was_sent(how):
    def send(sender):
        replies = []
        for number in range(300):
            if how == "tell" or (how == "both" and number % 2):
                ref.tell((sender, number))
            else:
                replies.append(ref.ask((sender, number), block=False))
        for reply in replies:
            reply.get(timeout=60)

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Collector).get()
        actor = ref._cell.actor
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(send, range(10)))
        ref.stop()
    assert len(actor.seen) == 3000
    for sender in range(10):
        assert [number for who, number in actor.seen if who == sender] == list(range(300))


def test_every_ask_that_races_a_stop_ends():
    answered = dead = 0

    def ask(ref, barrier):
        barrier.wait()
        return [ref.ask(Double(1) if number % 2 else number, block=False) for number in range(20)]

    def stop(ref, barrier, *, now):
        barrier.wait()
        return ref.stop(now=now)

    with ActorSystem.on_thread() as system, ThreadPoolExecutor(5) as pool:
        for attempt in range(100):
            ref = system.spawn(Collector).get()
            barrier = threading.Barrier(5)
            asking = [pool.submit(ask, ref, barrier) for _ in range(4)]
            assert pool.submit(stop, ref, barrier, now=attempt % 2 == 0).result(60) is True
            for reply in (reply for future in asking for reply in future.result(60)):
                try:
                    reply.get(timeout=60)
                    answered += 1
                except ActorDeadError:
                    dead += 1
    assert answered + dead == 100 * 4 * 20


def test_every_ask_that_races_the_end_of_the_system_ends():
    replies = []
    stop = threading.Event()

    def ask(ref):
        mine = []
        while not stop.is_set():
            mine.append(ref.ask("x", block=False))
        mine.extend(ref.ask("x", block=False) for _ in range(10))
        return mine

    with ThreadPoolExecutor(4) as pool:
        with ActorSystem.on_thread() as system:
            ref = system.spawn(Collector).get()
            asking = [pool.submit(ask, ref) for _ in range(4)]
            ref.ask("first")
        stop.set()
        replies = [reply for future in asking for reply in future.result(60)]
    for reply in replies:
        with suppress(ActorDeadError):
            reply.get(timeout=60)
    assert all(reply.done() for reply in replies)


async def test_threads_of_a_trio_program_may_use_its_system():
    def use(ref):
        assert ref.ask("x") == 1
        return ref.stop()

    async with ActorSystem() as system:
        ref = await system.spawn(Collector)
        assert await trio.to_thread.run_sync(use, ref) is True


def test_tasks_of_another_loop_get_replies_to_await_by_default():
    async def main(ref):
        assert await ref.ask("x") == 1
        assert await ref.ask(Double(4)) == 8
        await ref.aclose()
        return await ref.wait_stopped()

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Collector).get()
        assert trio.run(main, ref) == Exit(ExitKind.NORMAL)


def test_many_threads_may_block_on_one_reply():
    with ActorSystem.on_thread() as system, ThreadPoolExecutor(8) as pool:
        ref = system.spawn(Collector).get()
        reply = ref.ask(Double(21))
        assert list(pool.map(lambda _: reply.get(timeout=60), range(8))) == [42] * 8


def test_ten_threads_may_wait_for_the_end_of_one_actor_at_once():
    with ActorSystem.on_thread() as system, ThreadPoolExecutor(10) as pool:
        for _ in range(50):
            ref = system.spawn(Collector).get()
            waiting = [pool.submit(lambda ref=ref: ref.wait_stopped().get(timeout=60)) for _ in range(9)]
            ref.stop(block=False)
            assert {future.result(60) for future in waiting} == {Exit(ExitKind.NORMAL)}
