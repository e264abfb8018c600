"""A system inside an asyncio program: who wakes whom, what a cancellation ends, and how everything stops."""

from __future__ import annotations

import asyncio
import gc
import signal

import pytest
import sniffio
import trio

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    BlockingCallError,
    Exit,
    ExitKind,
    InboxFullError,
    Message,
    SystemStoppedError,
    TrioActor,
    receive,
)

events: list[object] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Double(Message[int]):
    def __init__(self, number):
        self.number = number


class Plain(TrioActor):
    def __init__(self, name="plain"):
        super().__init__()
        self.name = name

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        if callable(message):
            return message(self)
        events.append(message)
        return message

    @receive(Double)
    async def double(self, message: Double) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * message.number

    def on_stop(self):
        events.append(f"{self.name} stopped")


class Slow(Plain):
    """Sleeps, on Trio, until it is cancelled."""

    async def on_receive(self, message):
        try:
            await trio.sleep_forever()
        finally:
            events.append(f"{self.name} cancelled")


class Soon(Plain):
    async def on_receive(self, message):
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return super().on_receive(message)


def in_asyncio(main):
    """Run a test in asyncio, with an end to it should it hang."""

    async def limited():
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(limited())


async def until(condition):
    """Let both loops go on until something holds that no event tells of."""
    while not condition():  # noqa: ASYNC110  # see there
        await asyncio.sleep(0)


async def under_way(ref):
    """Wait until an actor is in its handler, or beyond."""
    await until(lambda: ref.statistics().state not in ("idle", "ready"))


async def slow_one(system):
    """Spawn an actor that is busy until it is cancelled."""
    ref = await system.spawn(Slow)
    ref.tell("slow")
    await under_way(ref)


# -- using ------------------------------------------------------------------------------------------------------------


def test_asyncio_tasks_spawn_tell_ask_and_stop():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)
            ref.tell("told")
            assert await ref.ask("asked") == "asked"
            assert await ref.ask(Double(4)) == 8
            assert await ref.stop() is True
            assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)
            assert await ref.stop() is False
            with pytest.raises(ActorDeadError):
                await ref.ask("late")
            with pytest.raises(ActorDeadError):
                ref.tell("late")

    in_asyncio(main)
    assert events == ["told", "asked", "plain stopped"]


def test_what_one_task_sends_arrives_in_order_however_it_is_sent():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)
            asked = []
            for number in range(100):
                ref.tell(number)
                asked.append(ref.ask(number + 0.5))
                await ref.send(number + 0.75)
            await asyncio.gather(*asked)

    in_asyncio(main)
    assert events[:-1] == sorted(events[:-1])
    assert len(events) == 301


def test_a_tell_from_asyncio_wakes_a_loop_in_which_nothing_else_happens():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)
            for _ in range(200):
                await asyncio.sleep(0)
            handled = asyncio.Event()
            ref.tell(lambda self: handled.set())
            await handled.wait()

    in_asyncio(main)


def test_handlers_run_in_trio_and_never_inside_the_asking_task():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)

            def look(self):
                return sniffio.current_async_library(), asyncio.current_task(), trio.lowlevel.in_trio_task()

            assert await ref.ask(look) == ("trio", None, True)
            assert sniffio.current_async_library() == "asyncio"

    in_asyncio(main)


def test_awaiting_an_answer_that_is_there_gives_way_to_other_tasks():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)
            reply = ref.ask("asked")
            await reply
            other = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(other.set_result, None)
            assert await reply == "asked"
            assert other.done()

    in_asyncio(main)


def test_many_tasks_wait_for_one_reply_and_others_are_made_from_it():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Soon)
            reply = ref.ask(20)
            made = reply.map(lambda number: number + 1)
            joined = ref.ask(1).join(ref.ask(2))
            tasks = [asyncio.ensure_future(reply) for _ in range(5)]
            assert await asyncio.gather(*tasks) == [20] * 5
            assert await made == 21
            assert await joined == [1, 2]

    in_asyncio(main)


def test_the_exception_of_a_handler_reaches_the_asking_task():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Plain)
            with pytest.raises(ValueError, match="mine"):
                await ref.ask(ValueError("mine"))
            assert await ref.ask("alive") == "alive"

    in_asyncio(main)


def test_a_failing_start_raises_in_the_spawning_task():
    class Failing(Plain):
        async def on_start(self):
            raise ValueError("no start")

    async def main():
        async with ActorSystem.in_asyncio() as system:
            with pytest.raises(ValueError, match="no start"):
                await system.spawn(Failing)

    in_asyncio(main)


def test_blocking_calls_are_refused_at_once_on_the_thread_that_both_loops_share():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Slow)
            with pytest.raises(BlockingCallError):
                ref.ask("blocks", block=True)
            with pytest.raises(BlockingCallError):
                ref.ask("blocks").get()
            with pytest.raises(BlockingCallError):
                ref.stop(block=True)
            with pytest.raises(BlockingCallError):
                ref.stop(block=True, now=True)
            assert ref.is_alive()
            await ref.stop(now=True)

    in_asyncio(main)


def test_plain_threads_use_the_same_system():
    async def main():
        async with ActorSystem.in_asyncio() as system:

            def work():
                ref = system.spawn(Plain).get()
                return ref.ask("asked"), ref.ask(Double(3)).get(), ref.stop()

            assert await asyncio.to_thread(work) == ("asked", 6, True)

    in_asyncio(main)


def test_asyncio_tasks_wait_for_a_system_on_a_thread_of_its_own():
    async def main(system):
        ref = await system.spawn(Soon)
        assert await ref.ask("asked") == "asked"
        slow = await system.spawn(Slow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.ask("slow"), 0)
        await slow.stop(now=True)
        reply = ref.ask("done")
        await reply
        assert await reply == "done"
        await ref.aclose()

    with ActorSystem.on_thread() as system:
        asyncio.run(main(system))
        system.spawn(Plain).get().stop()


def test_a_sender_in_asyncio_waits_for_room_and_leaves_nothing_when_it_is_cancelled():
    class Gated(Plain):
        inbox_limit = 1
        inbox_policy = "wait"

        async def on_start(self):
            self.gate = trio.Event()

        async def on_receive(self, message):
            await self.gate.wait()
            events.append(message)

    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Gated)
            await ref.send("under way")
            await under_way(ref)
            await ref.send("in")
            with pytest.raises(InboxFullError):
                ref.tell("refused")
            cancelled, waits = (asyncio.create_task(ref.send(what)) for what in ("cancelled", "waits"))
            await until(lambda: ref.statistics().senders_waiting == 2)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            system.call_soon(ref._cell.actor.gate.set)
            await waits

    in_asyncio(main)
    assert events == ["under way", "in", "waits", "plain stopped"]


# -- cancellation -----------------------------------------------------------------------------------------------------


def test_cancelling_a_task_that_waits_cancels_the_wait_and_nothing_else():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Soon)
            reply = ref.ask("goes on")
            task = asyncio.ensure_future(reply)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await reply == "goes on"
            assert reply._observers in (None, [])

    in_asyncio(main)


def test_an_actor_that_is_cancelled_answers_with_actor_dead_error():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Slow)
            reply = ref.ask("slow")
            await under_way(ref)
            await ref.stop(now=True)
            with pytest.raises(ActorDeadError):
                await reply

    in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped"]


def test_a_cancelled_aclose_has_the_actor_stopped_now():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Slow)
            ref.tell("slow")
            closing = asyncio.create_task(ref.aclose())
            await under_way(ref)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)

    in_asyncio(main)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_leaving_the_block_handles_what_was_sent_and_stops_newest_first():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            for name in "abc":
                (await system.spawn(Plain, name)).tell(name)
        assert not trio.lowlevel.in_trio_run()
        with pytest.raises(SystemStoppedError):
            await system.spawn(Plain)

    in_asyncio(main)
    assert events == ["a", "b", "c", "c stopped", "b stopped", "a stopped"]


def test_an_exception_in_the_block_stops_the_actors_now_and_comes_out_as_it_is():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            await slow_one(system)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped"]


def test_cancelling_the_hosting_task_stops_the_actors_now_and_is_raised_when_they_have_stopped():
    up = asyncio.Event()

    async def host():
        async with ActorSystem.in_asyncio() as system:
            await slow_one(system)
            up.set()
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(host())
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("host ended")

    in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped", "host ended"]


def test_a_cancellation_while_the_actors_stop_hurries_them_and_is_raised_when_they_have_stopped():
    up = asyncio.Event()

    async def host():
        async with ActorSystem.in_asyncio() as system:
            await slow_one(system)
            up.set()

    async def main():
        task = asyncio.create_task(host())
        await up.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("host ended")

    in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped", "host ended"]


def test_a_cancellation_at_each_step_of_a_short_life_leaves_nothing():
    async def host():
        async with ActorSystem.in_asyncio() as system:
            ref = await system.spawn(Soon)
            ref.tell("told")
            await ref.ask("asked")

    async def main():
        for steps in range(60):
            task = asyncio.create_task(host())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert not trio.lowlevel.in_trio_run(), steps
            assert task.cancelled() or task.exception() is None

    in_asyncio(main)


def test_the_end_of_the_main_task_stops_a_system_in_another_task():
    up = asyncio.Event()

    async def host():
        async with ActorSystem.in_asyncio() as system:
            await slow_one(system)
            up.set()
            await asyncio.Event().wait()

    async def main():
        keep.append(asyncio.create_task(host()))
        await up.wait()

    keep = []
    in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_is_no_exception_comes_out_of_the_block(error):
    async def main():
        async with ActorSystem.in_asyncio() as system:
            await system.spawn(Plain, "other")
            ref = await system.spawn(Plain)
            ref.tell(error)
            await asyncio.Event().wait()

    with pytest.raises(type(error)) as caught:
        in_asyncio(main)
    assert caught.value is error
    assert events == ["other stopped"]


def test_a_fatal_error_can_be_caught_around_the_block_and_leaves_the_task_uncancelled():
    class Fatal(BaseException):
        pass

    async def main():
        with pytest.raises(Fatal):  # noqa: PT012  # the block is what is tested
            async with ActorSystem.in_asyncio() as system:
                (await system.spawn(Plain)).tell(Fatal())
                await asyncio.Event().wait()
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)

    in_asyncio(main)


def test_ctrl_c_stops_the_actors_and_reaches_the_program():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            await slow_one(system)
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        in_asyncio(main)
    assert events == ["plain cancelled", "plain stopped"]


def test_a_second_system_in_the_same_thread_is_refused_and_a_later_one_is_not():
    async def main():
        async with ActorSystem.in_asyncio():
            with pytest.raises(RuntimeError, match="only once"):
                async with ActorSystem.in_asyncio():
                    pass
        async with ActorSystem.in_asyncio() as system:
            assert await (await system.spawn(Plain)).ask(1) == 1

    in_asyncio(main)


def test_a_system_for_trio_that_asyncio_enters_says_what_to_enter_there():
    async def main():
        system = ActorSystem()
        with pytest.raises(RuntimeError, match=r"ActorSystem\.in_asyncio\(\)"):
            async with system:
                pass
        async with ActorSystem.in_asyncio():
            with pytest.raises(RuntimeError, match=r"ActorSystem\.in_asyncio\(\)"):
                await ActorSystem().__aenter__()
        return system

    async def enter(system):
        async with system:
            assert await (await system.spawn(Plain)).ask(1) == 1

    trio.run(enter, asyncio.run(main()))  # it has not been entered before


def test_it_needs_a_running_asyncio_loop():
    async def main():
        with pytest.raises(RuntimeError):
            async with ActorSystem.in_asyncio():
                pass

    trio.run(main)


def test_a_thousand_actors_come_and_go():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            refs = await asyncio.gather(*(system.spawn(Plain, str(number)) for number in range(1000)))
            answers = await asyncio.gather(*(ref.ask(number) for number, ref in enumerate(refs)))
            assert answers == list(range(1000))
            await asyncio.gather(*(ref.stop() for ref in refs[::2]))
            assert len(system) == 500
        assert len(system) == 0

    in_asyncio(main)
    gc.collect()


def test_a_proxy_works_and_refuses_what_would_block():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            proxy = (await system.spawn(Plain, "named")).proxy()
            assert await proxy.name == "named"
            with pytest.raises(BlockingCallError):
                proxy.name = "other"

    in_asyncio(main)
