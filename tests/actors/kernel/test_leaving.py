"""A system that is being left: nobody outside keeps it from ending."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from quiesce.actors.kernel import ActorSystem, SystemStoppedError, TrioActor


class Blocking(TrioActor):
    """When it is stopped it tells, and holds the loop until it may go on."""

    def __init__(self, stopping, go_on):
        super().__init__()
        self.stopping, self.go_on = stopping, go_on

    def on_stop(self):
        self.stopping.set()
        self.go_on.wait()


async def run(found):
    found.append("ran")
    return "ran"


async def nothing():
    pytest.fail("it was begun")
    yield


def call_while_it_is_left(system, stopping, go_on, found):
    """Wait for the end to begin, and have something run: the loop, which is blocked, cannot be who refuses it."""
    stopping.wait()
    call = system.run(run, found)
    found.append(call.done())
    go_on.set()
    for refused in (call, system.run(run, found)):
        with pytest.raises(SystemStoppedError, match="being left"):
            refused.get()
    with pytest.raises(SystemStoppedError, match="being left"):
        next(system.iterate(nothing()))


async def in_trio(stopping, go_on, begin):
    async with ActorSystem() as system:
        await system.spawn(Blocking, stopping, go_on)
        begin(system)


async def in_asyncio(stopping, go_on, begin):
    async with ActorSystem.in_asyncio() as system:
        await system.spawn(Blocking, stopping, go_on)
        begin(system)


def on_a_thread(stopping, go_on, begin):
    with ActorSystem.on_thread() as system:
        system.spawn(Blocking, stopping, go_on).get()
        begin(system)


HOSTS = {
    "trio": lambda *args: trio.run(in_trio, *args),
    "asyncio": lambda *args: asyncio.run(in_asyncio(*args)),
    "thread": on_a_thread,
}


@pytest.mark.parametrize("host", HOSTS)
def test_once_a_system_is_being_left_calls_are_refused_on_the_callers_side(host):
    stopping, go_on, found, callers = threading.Event(), threading.Event(), [], []

    def begin(system):
        callers.append(pool.submit(call_while_it_is_left, system, stopping, go_on, found))

    with ThreadPoolExecutor() as pool:
        HOSTS[host](stopping, go_on, begin)
        callers[0].result()
    assert found == [True]


async def test_the_tasks_of_its_own_loop_call_until_the_system_has_stopped_its_actors():
    class Calling(TrioActor):
        async def on_stop(self):
            answers.append(await self.actor_system.run(run, []))

    answers = []
    async with ActorSystem() as system:
        await system.spawn(Calling)
    assert answers == ["ran"]


def test_an_iteration_that_was_begun_goes_on_while_the_system_is_left_and_its_stream_is_closed():
    class Feeding(TrioActor):
        async def on_stop(self):
            stopping.set()
            for number in range(3):
                await send.send(number)
            await trio.to_thread.run_sync(seen.wait)

    async def numbers():
        try:
            async for number in receive:
                yield number
        finally:
            tape.append("closed")

    def read(system):
        items = system.iterate(numbers())
        taken.append(next(items))
        stopping.wait()
        taken.extend([next(items), next(items), next(items)])
        items.close()
        seen.set()

    send, receive = trio.open_memory_channel(10)
    stopping, seen, taken, tape = threading.Event(), threading.Event(), [], []
    with ThreadPoolExecutor() as pool:
        with ActorSystem.on_thread() as system:
            system.spawn(Feeding).get()
            reading = pool.submit(read, system)
            system.run(send.send, "first").get()
        reading.result()
    assert taken == ["first", 0, 1, 2]
    assert tape == ["closed"]
