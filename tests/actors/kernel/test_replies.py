"""`Reply`: awaiting, blocking, completing, and answering later."""

from __future__ import annotations

import queue
import threading
import traceback
from dataclasses import dataclass

import pykka
import pytest
import trio
import trio.testing
from attrs import frozen

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    BlockingCallError,
    Message,
    Reply,
    ReplyCompletedError,
    SelfWaitError,
    TrioActor,
    receive,
)


@frozen
class Later(Message[str]):
    pass


class Deferring(TrioActor):
    """Takes every reply, and lets the test complete it."""

    def __init__(self):
        super().__init__()
        self.replies = []

    @receive(Later)
    def later(self, message: Later) -> None:
        self.replies.append(self.take_reply(message))

    def on_receive(self, message):
        return self.replies


# -- awaiting ---------------------------------------------------------------------------------------------------------


async def test_any_number_of_tasks_may_wait_for_one_reply_again_and_again():
    got = []

    async def wait(reply):
        got.append(await reply)
        got.append(await reply)

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref = await system.spawn(Deferring)
        reply = ref.ask(Later())
        for _ in range(5):
            nursery.start_soon(wait, reply)
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        (await ref.ask("replies"))[0].set("yes")
    assert got == ["yes"] * 10


async def test_cancelling_one_waiter_leaves_the_others_and_the_work_alone():
    got = []

    async def wait(reply, scope):
        with scope:
            got.append(await reply)

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref = await system.spawn(Deferring)
        reply = ref.ask(Later())
        impatient = trio.CancelScope()
        nursery.start_soon(wait, reply, impatient)
        nursery.start_soon(wait, reply, trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        impatient.cancel()
        await trio.testing.wait_all_tasks_blocked()
        (await ref.ask("replies"))[0].set("yes")
    assert impatient.cancelled_caught
    assert got == ["yes"]


async def test_awaiting_a_finished_reply_honours_cancellation_every_time():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        reply = ref.ask("anything")
        assert reply.done()
        for _ in range(3):
            with trio.CancelScope() as scope:
                scope.cancel()
                await reply
            assert scope.cancelled_caught
        assert await reply == []


async def test_awaiting_finished_replies_in_a_loop_lets_other_tasks_run():
    now = 0.0
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    def clock():
        return now

    async with ActorSystem(work_clock=clock) as system, trio.open_nursery() as nursery:
        ref = await system.spawn(Deferring)
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        before = turns
        for _ in range(100):
            now += 0.00025
            await ref.ask("anything")
        assert 20 <= turns - before <= 60
        nursery.cancel_scope.cancel()


async def test_an_exception_raised_again_and_again_does_not_grow():
    class Failing(TrioActor):
        def on_receive(self, message):
            try:
                raise KeyError("cause")  # noqa: TRY301  # the context is what is tested
            except KeyError:
                raise ValueError("no")  # noqa: B904  # the implicit context is what is tested

    async with ActorSystem() as system:
        ref = await system.spawn(Failing)
        reply = ref.ask(1)
        shapes = set()
        for _ in range(5):
            try:
                raise RuntimeError("the waiter's own")  # noqa: TRY301  # the context is what is tested
            except RuntimeError:
                try:
                    await reply
                except ValueError as error:
                    frames = len(traceback.extract_tb(error.__traceback__))
                    shapes.add((frames, repr(error.__context__), repr(error.__context__.__context__)))
    assert len(shapes) == 1
    assert shapes.pop()[1:] == ("KeyError('cause')", "None")


async def test_a_task_of_another_loop_may_await_a_reply():
    with ActorSystem.on_thread() as elsewhere:
        ref = await elsewhere.spawn(Deferring)
        reply = ref.ask(Later())
        with trio.move_on_after(0):
            await reply
        assert not reply.done()
        (await ref.ask("replies", block=False))[0].set("from the other side")
        assert await reply == "from the other side"


async def test_a_reply_of_no_system_may_be_awaited_and_completed():
    reply = Reply()
    with trio.move_on_after(0):
        await reply
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, reply.set, 5)
        assert await reply == 5
    assert await reply == 5


# -- blocking ---------------------------------------------------------------------------------------------------------


async def test_a_blocking_get_on_the_loops_thread_raises_at_once_unless_the_answer_is_there():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        reply = ref.ask(Later())
        with pytest.raises(BlockingCallError, match="await the reply"):
            reply.get()
        with pytest.raises(BlockingCallError):
            Reply().get()
        replies = ref.ask("replies").get()
        replies[0].set("yes")
        assert reply.get() == "yes"


async def test_a_blocking_ask_or_stop_on_the_loops_thread_raises_and_sends_nothing():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        with pytest.raises(BlockingCallError):
            ref.ask(Later(), block=True)
        with pytest.raises(BlockingCallError):
            ref.stop(block=True)
        with pytest.raises(BlockingCallError):
            ref.stop(block=True, now=True)
        assert await ref.ask("replies") == []
        assert ref.is_alive()


def test_get_times_out_with_pykkas_timeout_and_can_be_called_again():
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Deferring).get()
        reply = ref.ask(Later())
        with pytest.raises(pykka.Timeout):
            reply.get(timeout=0)
        ref.ask("replies")[0].set("yes")
        assert reply.get(timeout=60) == "yes"


def test_a_reply_of_no_system_works_between_plain_threads():
    reply = Reply()
    with pytest.raises(pykka.Timeout):
        reply.get(timeout=0)
    thread = threading.Thread(target=reply.set, args=("hi",))
    thread.start()
    assert reply.get(timeout=60) == "hi"
    thread.join()
    assert reply.map(str.upper).get() == "HI"
    assert reply.join(reply).get() == ["hi", "hi"]


# -- completing -------------------------------------------------------------------------------------------------------


def test_a_second_completion_raises_and_the_first_answer_stands():
    reply = Reply()
    reply.set(1)
    with pytest.raises(ReplyCompletedError):
        reply.set(2)
    with pytest.raises(queue.Full):
        reply.set_exception(ValueError())
    with pytest.raises(ReplyCompletedError):
        reply.set_get_hook(lambda timeout: 3)
    assert reply.get() == 1


def test_set_exception_takes_an_instance_a_triple_or_the_exception_being_handled():
    error = ValueError("x")
    handled, triple, instance, bare = Reply(), Reply(), Reply(), Reply()
    try:
        raise error
    except ValueError:
        handled.set_exception()
    triple.set_exception((ValueError, error, None))
    instance.set_exception(error)
    bare.set_exception((KeyError, None, None))
    for reply in (handled, triple, instance):
        with pytest.raises(ValueError, match="x"):
            reply.get()
    with pytest.raises(KeyError):
        bare.get()
    with pytest.raises(ValueError, match="needs an exception"):
        Reply().set_exception()


async def test_cancellation_never_becomes_an_answer():
    reply, grouped = Reply(), Reply()
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            reply.set_exception(cancelled)
            grouped.set_exception(BaseExceptionGroup("", [cancelled, ValueError()]))
            raise
    for each in (reply, grouped):
        with pytest.raises(ActorDeadError):
            await each


async def test_on_done_runs_on_the_loop_at_completion_or_at_once():
    events = []
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        reply = ref.ask(Later())
        reply.on_done(lambda done: events.append(("first", done.get())))
        reply.on_done(lambda done: 1 / 0)
        reply.on_done(lambda done: events.append(("second", done is reply)))
        (await ref.ask("replies"))[0].set("yes")
        events.append("set returned")
        reply.on_done(lambda done: events.append("late"))
    assert events == [("first", "yes"), ("second", True), "set returned", "late"]


async def test_a_completion_from_a_thread_reaches_tasks_callbacks_and_threads():
    loop_thread = threading.get_ident()
    seen = []
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        reply = ref.ask(Later())
        reply.on_done(lambda done: seen.append(threading.get_ident()))
        handle = (await ref.ask("replies"))[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, reply.get)
            nursery.start_soon(trio.to_thread.run_sync, handle.set, "yes")
            assert await reply == "yes"
    assert seen == [loop_thread]


# -- answering later --------------------------------------------------------------------------------------------------


async def test_what_a_handler_returns_is_no_answer_once_its_reply_is_taken():
    class Later2(Deferring):
        @receive(Later)
        def later(self, message: Later) -> str:
            self.replies.append(self.take_reply(message))
            return "ignored"

    async with ActorSystem() as system:
        ref = await system.spawn(Later2)
        reply = ref.ask(Later())
        assert not reply.done()
        (await ref.ask("replies"))[0].set("the answer")
        assert await reply == "the answer"


async def test_an_async_handler_may_take_its_reply_and_child_work_complete_it():
    class Working(TrioActor):
        @receive(Later)
        async def later(self, message: Later) -> None:
            self.start_soon(self._work, self.take_reply(message))
            await trio.lowlevel.checkpoint()

        async def _work(self, reply):
            await trio.lowlevel.checkpoint()
            reply.set("worked")

    async with ActorSystem() as system:
        ref = await system.spawn(Working)
        assert await ref.ask(Later()) == "worked"


async def test_the_taken_reply_of_a_tell_is_one_that_nobody_waits_for():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        ref.tell(Later())
        (handle,) = await ref.ask("replies")
        handle.set("into the void")
        assert ref.is_alive()


async def test_a_reply_can_be_taken_once_and_only_of_the_message_being_handled():
    class Greedy(TrioActor):
        @receive(Later)
        def later(self, message: Later) -> None:
            with pytest.raises(LookupError):
                self.take_reply(Later())
            reply = self.take_reply(message)
            with pytest.raises(LookupError):
                self.take_reply(message)
            reply.set("once")

    async with ActorSystem() as system:
        ref = await system.spawn(Greedy)
        message = Later()
        assert await ref.ask(message) == "once"
        with pytest.raises(LookupError):
            ref._cell.actor.take_reply(message)


@pytest.mark.parametrize("how", ["stop", "stop now", "crash", "system"])
async def test_every_taken_reply_ends_with_its_actor_and_completing_it_later_is_a_no_op(how):
    class Fragile(Deferring):
        def on_receive(self, message):
            if message == "crash":
                raise ValueError("boom")
            return self.replies

    async with ActorSystem() as system:
        ref = await system.spawn(Fragile)
        replies = [ref.ask(Later()) for _ in range(3)]
        handles = list(await ref.ask("replies"))
        handles[0].set("in time")
        if how == "crash":
            ref.tell("crash")
        elif how != "system":
            ref.stop(now=how == "stop now")
        if how != "system":
            await ref.wait_stopped()
    assert replies[0].get() == "in time"
    for reply, handle in zip(replies[1:], handles[1:], strict=True):
        with pytest.raises(ActorDeadError):
            reply.get()
        handle.set("too late")
        handle.set_exception(ValueError("too late"))
        with pytest.raises(ActorDeadError):
            reply.get()


async def test_an_exception_after_taking_goes_to_the_asker_if_nobody_has_answered():
    class Careless(TrioActor):
        @receive(Later)
        def later(self, message: Later) -> None:
            self.take_reply(message)
            raise ValueError("after taking")

    async with ActorSystem() as system:
        ref = await system.spawn(Careless)
        with pytest.raises(ValueError, match="after taking"):
            await ref.ask(Later())
        assert ref.is_alive()


async def test_an_exception_after_answering_crashes_the_actor_and_the_answer_stands():
    class Careless(TrioActor):
        @receive(Later)
        def later(self, message: Later) -> None:
            self.take_reply(message).set("answered")
            raise ValueError("after answering")

    async with ActorSystem() as system:
        ref = await system.spawn(Careless)
        assert await ref.ask(Later()) == "answered"
        assert isinstance((await ref.wait_stopped()).error, ValueError)


async def test_completed_replies_are_not_kept_by_their_actor():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        for _ in range(10):
            ref.ask(Later())
        for handle in await ref.ask("replies"):
            handle.set("x")
        assert not ref._cell.taken


# -- waiting for oneself ----------------------------------------------------------------------------------------------


async def test_a_handler_that_awaits_its_own_actors_next_answer_fails_instead_of_hanging():
    class Selfish(TrioActor):
        async def on_receive(self, message):
            if message == "ask":
                return await self.actor_ref.ask("inner")
            if message == "close":
                await self.actor_ref.aclose()
            elif message == "wait":
                await self.actor_ref.wait_stopped()
            return message

    async with ActorSystem() as system:
        for message in ("ask", "close", "wait"):
            ref = await system.spawn(Selfish)
            with pytest.raises(SelfWaitError):
                await ref.ask(message)


async def test_child_work_may_await_its_own_actors_answers():
    class Fine(TrioActor):
        def __init__(self):
            super().__init__()
            self.got = trio.Event()

        def on_receive(self, message):
            if message == "start":
                self.start_soon(self._work)
                return self.got
            return message

        async def _work(self):
            assert await self.actor_ref.ask("inner") == "inner"
            self.got.set()

    async with ActorSystem() as system:
        ref = await system.spawn(Fine)
        await (await ref.ask("start")).wait()


async def test_replies_made_from_replies_can_be_awaited():
    async with ActorSystem() as system:
        ref = await system.spawn(Deferring)
        one, two = ref.ask(Later()), ref.ask(Later())
        both = one.join(two).map("".join)
        with trio.move_on_after(0):
            await both
        for handle, letter in zip(await ref.ask("replies"), "ab", strict=True):
            handle.set(letter)
        assert await both == "ab"
        assert both.get() == "ab"
        assert await Reply.filter(both, lambda letter: letter == "b") == ["b"]
        assert await both.reduce(lambda a, b: a + b) == "ab"


async def test_an_exception_that_refuses_to_be_changed_reaches_every_asker_as_it_is():
    @dataclass(frozen=True)
    class FrozenError(Exception):
        number: int

    class Raising(TrioActor):
        def on_receive(self, message):
            raise FrozenError(message)

    async with ActorSystem() as system:
        reply = (await system.spawn(Raising)).ask(3, block=False)
        for _ in range(2):
            try:
                {}["missing"]
            except KeyError:
                with pytest.raises(FrozenError) as caught:
                    await reply
            assert caught.value == FrozenError(3)
            assert caught.value.__context__ is None
