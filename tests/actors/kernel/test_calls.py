"""Async functions that run in a system for somebody elsewhere, and what lives in a loop that another program hosts."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar

import pytest
import trio

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    BlockingCallError,
    Call,
    SystemStoppedError,
    TrioActor,
    host_in_asyncio,
    host_on_thread,
)


class Fatal(BaseException):
    pass


class Stopping(TrioActor):
    """Writes down that it has stopped."""

    def __init__(self, tape):
        super().__init__()
        self.tape = tape

    def on_stop(self):
        self.tape.append("actor stopped")


class Work:
    """An async function that waits until it is cancelled, takes its time to clean up, and may answer all the same."""

    def __init__(self, *answer):
        self.tape = []
        self.answer = answer
        self.started = threading.Event()

    async def __call__(self):
        self.started.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
            self.tape.append("cleaned up")
            if self.answer:
                return self.answer[0]
            raise

    async def take_back(self, value):
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        self.tape.append(f"took back {value}")


async def double(number, *, plus=0):
    await trio.lowlevel.checkpoint()
    return 2 * number + plus


async def fail(error):
    await trio.lowlevel.checkpoint()
    raise error


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


async def until_started(work):
    while not work.started.is_set():  # noqa: ASYNC110  # a threading.Event, so that any host can look at it
        await asyncio.sleep(0)


def in_asyncio(main):
    async def limited():
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(limited())


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_thread_gets_what_the_function_returns():
    with ActorSystem.on_thread() as system:
        call = system.run(double, 4, plus=1)
        assert isinstance(call, Call)
        assert call.get(timeout=60) == 9
        assert call.get() == 9


def test_an_asyncio_task_gets_what_the_function_returns():
    async def main():
        async with ActorSystem.in_asyncio() as system:
            assert await system.run(double, 4) == 8
            assert await asyncio.gather(*(system.run(double, number) for number in range(50))) == [*range(0, 100, 2)]

    in_asyncio(main)


async def test_a_task_of_its_own_loop_gets_what_the_function_returns():
    async with ActorSystem() as system:
        assert await system.run(double, 4) == 8
        assert await system.run(double, 4).or_cancel() == 8


def test_a_task_of_another_loop_gets_what_the_function_returns():
    async def main(system):
        assert await system.run(double, 4) == 8
        assert await system.run(double, 4).or_cancel() == 8

    with ActorSystem.on_thread() as system:
        trio.run(main, system)


def test_an_exception_is_the_answer_and_ends_nothing():
    with ActorSystem.on_thread() as system:
        for error in (ValueError("mine"), ExceptionGroup("mine", [KeyError()])):
            with pytest.raises(type(error)) as caught:
                system.run(fail, error).get()
            assert caught.value is error
        with pytest.raises(TypeError):
            system.run(double).get()
        assert system.run(double, 4).get() == 8


def test_the_function_runs_in_the_context_of_its_caller():
    word = ContextVar("word", default="none")

    async def look():
        return word.get()

    with ActorSystem.on_thread() as system:
        word.set("mine")
        call = system.run(look)
        word.set("later")
        assert call.get() == "mine"


def test_what_is_no_exception_is_raised_in_the_host_and_the_caller_is_told():
    async def beside_a_cancellation():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail, Fatal())

    for function, args in ((fail, (Fatal(),)), (beside_a_cancellation, ())):
        with pytest.raises(BaseException) as caught, ActorSystem.on_thread() as system:  # noqa: PT011, PT012
            with pytest.raises(ActorDeadError):
                system.run(function, *args).get()
            with pytest.raises(ActorDeadError):
                system.run(trio.sleep_forever).get()
        assert isinstance(caught.value, Fatal) or caught.value.split(Fatal)[1] is None


def test_a_system_that_does_not_run_refuses_calls():
    system = ActorSystem()
    with pytest.raises(SystemStoppedError):
        system.run(double, 1).get()
    with ActorSystem.on_thread() as system:
        pass
    with pytest.raises(SystemStoppedError):
        system.run(double, 1).get()

    async def main():
        with pytest.raises(SystemStoppedError):
            await system.run(double, 1).or_cancel()

    asyncio.run(main())
    trio.run(main)


# -- cancellation -----------------------------------------------------------------------------------------------------


def test_a_cancelled_call_ends_with_actor_dead_error_when_its_function_has_ended():
    work = Work()
    with ActorSystem.on_thread() as system:
        call = system.run(work)
        work.started.wait()
        call.cancel()
        with pytest.raises(ActorDeadError):
            call.get()
        assert work.tape == ["cleaned up"]
        call.cancel()
    call.cancel()


def test_what_a_cancelled_function_answers_all_the_same_is_the_answer():
    work = Work("done")
    with ActorSystem.on_thread() as system:
        call = system.run(work)
        work.started.wait()
        call.cancel()
        assert call.get() == "done"


def test_a_call_that_is_cancelled_at_once_is_not_lost():
    with ActorSystem.on_thread() as system:
        call = system.run(trio.sleep_forever)
        call.cancel()
        with pytest.raises(ActorDeadError):
            call.get()


def test_cancelling_a_wait_goes_on_with_the_function():
    work = Work()

    async def main():
        async with ActorSystem.in_asyncio() as system:
            call = system.run(work)
            waiting = asyncio.ensure_future(call)
            await until_started(work)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not call.done()

    in_asyncio(main)
    assert work.tape == ["cleaned up"]  # at the end


@pytest.mark.parametrize("times", [1, 3])
def test_or_cancel_in_asyncio_cancels_the_function_and_waits_for_its_end(times):
    work = Work()

    async def main():
        async with ActorSystem.in_asyncio() as system:
            waiting = asyncio.create_task(system.run(work).or_cancel())
            await until_started(work)
            for _ in range(times):
                waiting.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert work.tape == ["cleaned up"]

    in_asyncio(main)


def test_or_cancel_in_another_loop_cancels_the_function_and_waits_for_its_end():
    work = Work()

    async def main(system):
        with trio.CancelScope() as scope:
            call = system.run(work)
            await trio.to_thread.run_sync(work.started.wait)
            scope.cancel()
            await call.or_cancel()
        assert scope.cancelled_caught
        assert work.tape == ["cleaned up"]

    with ActorSystem.on_thread() as system:
        trio.run(main, system)


def test_a_time_out_in_asyncio_is_one_also_when_the_function_takes_its_time_to_end():
    work = Work("done")

    async def main():
        async with ActorSystem.in_asyncio() as system:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(system.run(work).or_cancel(), 0.001)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await system.run(work).or_cancel()
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(0)

    in_asyncio(main)


def test_what_was_done_all_the_same_for_a_cancelled_task_is_undone():
    work = Work("done")

    async def main():
        async with ActorSystem.in_asyncio() as system:
            waiting = asyncio.create_task(system.run(work).or_cancel(work.take_back))
            await until_started(work)
            for _ in range(3):
                waiting.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert work.tape == ["cleaned up", "took back done"]

    in_asyncio(main)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_calls_that_still_run_when_the_actors_have_stopped_are_cancelled_and_waited_for():
    work = Work()
    with ActorSystem.on_thread() as system:
        system.spawn(Stopping, work.tape).get()
        call = system.run(work)
        work.started.wait()
    assert work.tape == ["actor stopped", "cleaned up"]
    with pytest.raises(ActorDeadError):
        call.get()


async def test_cancelling_the_host_ends_the_calls():
    work = Work()
    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            call = system.run(work)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert work.tape == ["cleaned up"]
    with pytest.raises(ActorDeadError):
        await call


def test_every_call_that_races_the_end_of_the_system_ends():
    def call(system, barrier):
        barrier.wait()
        return [system.run(double, 1) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            barrier = threading.Barrier(5)
            with ActorSystem.on_thread() as system:
                calling = [pool.submit(call, system, barrier) for _ in range(4)]
                barrier.wait()
            for one in (one for future in calling for one in future.result(60)):
                with suppress(ActorDeadError):
                    assert one.get(timeout=60) == 2


# -- streams ----------------------------------------------------------------------------------------------------------


async def count_up(tape, then=None):
    try:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            yield number
        if then is not None:
            then()
            await trio.sleep_forever()
    finally:
        tape.append("closed")


def test_a_thread_iterates_a_stream_to_its_end():
    tape = []
    with ActorSystem.on_thread() as system:
        assert list(system.iterate(count_up(tape))) == [0, 1, 2]
        assert tape == ["closed"]


def test_a_stream_is_closed_when_its_thread_leaves_the_loop():
    tape = []
    with ActorSystem.on_thread() as system:
        numbers = system.iterate(count_up(tape))
        assert next(numbers) == 0
        numbers.close()
        system.run(double, 1).get()
        assert tape == ["closed"]


def test_ctrl_c_ends_the_wait_for_a_stream():
    tape = []
    with ActorSystem.on_thread() as system:
        numbers = system.iterate(count_up(tape, press_ctrl_c))
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(KeyboardInterrupt):
            next(numbers)
        system.run(double, 1).get()
    assert tape == ["closed"]


async def test_iterating_on_the_loops_own_thread_is_refused():
    async with ActorSystem() as system, aclosing(count_up([])) as stream:
        with pytest.raises(BlockingCallError):
            next(system.iterate(stream))


# -- lives in other hosts ---------------------------------------------------------------------------------------------


class Life:
    """Enters a system as a part of more: it writes down what happens, and opens as the test says."""

    def __init__(self, opening=None):
        self.tape = []
        self.system = ActorSystem()
        self.opening = opening
        self.is_opening = threading.Event()

    @asynccontextmanager
    async def __call__(self):
        self.tape.append("before")
        try:
            async with self.system:
                self.is_opening.set()
                if self.opening is not None:
                    await self.opening()
                yield await self.system.spawn(Stopping, self.tape)
        finally:
            self.tape.append("after")


async def no_opening():
    await trio.lowlevel.checkpoint()
    raise ValueError("no opening")


def test_a_thread_gets_what_the_life_gives_and_the_life_ends_with_the_block():
    life = Life()
    with host_on_thread(life.system, life()) as ref:
        assert ref.is_alive()
    assert life.tape == ["before", "actor stopped", "after"]


def test_an_asyncio_program_gets_what_the_life_gives_and_the_life_ends_with_the_block():
    life = Life()

    async def main():
        async with host_in_asyncio(life.system, life()) as ref:
            assert ref.is_alive()
        assert life.tape == ["before", "actor stopped", "after"]

    in_asyncio(main)


def test_what_a_life_raises_at_its_opening_comes_out_of_either_host():
    life = Life(no_opening)
    with pytest.raises(ValueError, match="no opening"), host_on_thread(life.system, life()):
        pytest.fail("it was opened")
    assert life.tape == ["before", "after"]
    life = Life(no_opening)

    async def main():
        with pytest.raises(ValueError, match="no opening"):
            async with host_in_asyncio(life.system, life()):
                pytest.fail("it was opened")

    in_asyncio(main)
    assert life.tape == ["before", "after"]


def test_cancelling_the_opening_in_asyncio_gives_it_up():
    life = Life(trio.sleep_forever)

    async def host():
        async with host_in_asyncio(life.system, life()):
            pytest.fail("it was opened")

    async def main():
        task = asyncio.create_task(host())
        while not life.is_opening.is_set():  # noqa: ASYNC110  # no event of asyncio's
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not trio.lowlevel.in_trio_run()

    in_asyncio(main)
    assert life.tape == ["before", "after"]


def test_ctrl_c_while_a_thread_opens_gives_it_up():
    async def opening():
        press_ctrl_c()
        await trio.sleep_forever()

    life = Life(opening)
    with pytest.raises(KeyboardInterrupt), host_on_thread(life.system, life()):
        pytest.fail("it was opened")
    assert life.tape == ["before", "after"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("actors:")]


def test_ctrl_c_while_the_actors_stop_hurries_them_and_is_raised_when_they_have_stopped():
    class Stuck(TrioActor):
        async def on_receive(self, message):
            press_ctrl_c()
            await trio.sleep_forever()

        def on_stop(self):
            tape.append("stopped")

    tape = []
    with pytest.raises(KeyboardInterrupt), ActorSystem.on_thread() as system:
        system.spawn(Stuck).get().tell("wait")
    assert tape == ["stopped"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("actors:")]
