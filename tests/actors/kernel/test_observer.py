"""An observer is told of every start, message and exit, and changes nothing."""

from __future__ import annotations

import contextlib
import contextvars

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorSystem, Exit, ExitKind, Message, Observer, TrioActor, receive
from quiesce.actors.kernel.cell import ActorCell


class Recorder(Observer):
    def __init__(self):
        self.events = []

    def on_start(self, ref):
        self.events.append(("start", ref))

    def before_message(self, ref, message):
        self.events.append(("before", message))

    def after_message(self, ref, message, error):
        self.events.append(("after", message, error))

    def on_exit(self, ref, exit_):
        self.events.append(("exit", exit_))


class Hello(Message[str]):
    pass


class Plain(TrioActor):
    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        if callable(message):
            return message(self)
        return message

    @receive(Hello)
    def hello(self, message: Hello) -> str:
        return "hello"


class Slow(Plain):
    async def on_receive(self, message):
        await trio.lowlevel.checkpoint()
        return await message(self) if callable(message) else super().on_receive(message)


@pytest.mark.parametrize("cls", [Plain, Slow])
async def test_a_life_is_told_in_order(cls):
    observer = Recorder()
    async with ActorSystem(observer=observer) as system:
        ref = await system.spawn(cls)
        ref.tell("told")
        assert await ref.ask("asked") == "asked"
        hello = Hello()
        assert await ref.ask(hello) == "hello"
        await ref.stop()
    assert observer.events == [
        ("start", ref),
        ("before", "told"),
        ("after", "told", None),
        ("before", "asked"),
        ("after", "asked", None),
        ("before", hello),
        ("after", hello, None),
        ("exit", Exit(ExitKind.NORMAL)),
    ]


@pytest.mark.parametrize("cls", [Plain, Slow])
async def test_what_a_handler_raises_is_told_and_goes_on(cls):
    observer = Recorder()
    error, crash = ValueError("asked"), ValueError("told")
    async with ActorSystem(observer=observer) as system:
        ref = await system.spawn(cls)
        with pytest.raises(ValueError, match="asked"):
            await ref.ask(error)
        ref.tell(crash)
        await ref.wait_stopped()
    assert observer.events == [
        ("start", ref),
        ("before", error),
        ("after", error, error),
        ("before", crash),
        ("after", crash, crash),
        ("exit", Exit(ExitKind.CRASHED, crash)),
    ]


async def test_a_cancelled_handler_is_told_as_such():
    observer = Recorder()

    async def sleep(self):
        await trio.sleep_forever()

    async with ActorSystem(observer=observer) as system:
        ref = await system.spawn(Slow)
        ref.tell(sleep)
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(now=True)
    assert [event[0] for event in observer.events] == ["start", "before", "after", "exit"]
    assert isinstance(observer.events[2][2], trio.Cancelled)


async def test_a_timers_message_is_shown_as_the_actor_sees_it_and_a_cancelled_one_not_at_all(autojump_clock):
    observer = Recorder()

    async def late(self):
        self.timers.once("a", 1, "cancelled")
        self.timers.once("b", 1, "handled")
        await trio.sleep(2)
        self.timers.cancel("a")

    async with ActorSystem(observer=observer) as system:
        ref = await system.spawn(Slow)
        await ref.ask(late)
        await ref.stop()
    assert [event[1] for event in observer.events if event[0] == "before"] == [late, "handled"]


async def test_an_observer_that_raises_changes_nothing():
    class Broken(Observer):
        def on_start(self, ref):
            raise ValueError

        before_message = after_message = on_exit = on_start

    async with ActorSystem(observer=Broken()) as system:
        ref = await system.spawn(Plain)
        assert await ref.ask("asked") == "asked"
        assert await ref.stop() is True


async def test_the_methods_of_a_def_handler_run_in_its_own_context():
    variable = contextvars.ContextVar("variable", default=None)

    class Tracer(Observer):
        def before_message(self, ref, message):
            variable.set(message)

    async with ActorSystem(observer=Tracer()) as system:
        ref = await system.spawn(Plain)
        seen = await ref.ask(lambda self: variable.get())
        assert callable(seen)
        assert variable.get() is None


async def test_an_actor_whose_start_fails_is_not_told():
    class Failing(Plain):
        def on_start(self):
            raise ValueError("no start")

    observer = Recorder()
    async with ActorSystem(observer=observer) as system:
        with contextlib.suppress(ValueError):
            await system.spawn(Failing)
    assert observer.events == []


async def test_a_system_without_an_observer_has_plain_cells():
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        assert type(ref._cell) is ActorCell


def test_a_system_on_a_thread_may_have_an_observer():
    observer = Recorder()
    with ActorSystem.on_thread(observer=observer) as system:
        system.spawn(Plain).get().ask("asked")
    assert [event[0] for event in observer.events] == ["start", "before", "after", "exit"]
