"""A failure of the kernel itself, or of who watches it, reaches the host: nothing waits for ever behind it."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    ChildSpec,
    Observer,
    Supervisor,
    TrioActor,
    WhichChildren,
)
from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.dispatcher import Dispatcher


class Plain(TrioActor):
    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        return message


class Slow(TrioActor):
    async def on_receive(self, message):
        await trio.lowlevel.checkpoint()
        return message

    async def on_stop(self):
        await trio.lowlevel.checkpoint()


class Fault(BaseException):
    """What nothing in the kernel expects."""


def fail_once(monkeypatch, owner, method, error):
    """Have a method raise, instead of doing its work, when it is called next."""
    before = getattr(owner, method)

    def failing(self, *args, **kwargs):
        monkeypatch.setattr(owner, method, before)
        raise error

    monkeypatch.setattr(owner, method, failing)


async def runs_into(error, use, observer=None):
    """Let a system run, with some actors, into an error that its host gets, and in time."""
    others = []

    async def host():
        async with ActorSystem(observer=observer) as system:
            others.append(await system.spawn(Plain))
            others.append(await system.spawn(Slow))
            others[-1].tell("under way")
            await use(system)

    with trio.fail_after(20), pytest.raises(type(error)) as caught:
        await host()
    assert caught.value is error
    assert not any(ref.is_alive() for ref in others)


ERRORS = pytest.mark.parametrize("error", [AttributeError("a bug"), Fault()], ids=["exception", "base exception"])
STEPS = pytest.mark.parametrize(
    "method",
    [
        *["turn", "close_turn", "advance_exit", "_call_hook", "_end_life", "_refuse_all", "_leave"],
        *["_ended_life", "_finish_spawning", "_answer_stops", "_say_ended", "_tell_owner"],
    ],
)


async def stop_at_a_fault(system, monkeypatch, cls, method, error):
    """Have one step fail of an actor that ends; it answers everybody nevertheless."""
    ref = await system.spawn(cls)
    assert await ref.ask("hello", block=False) == "hello"
    await trio.testing.wait_all_tasks_blocked()
    fail_once(monkeypatch, ActorCell, method, error)
    ref.tell("queued")
    stopping = ref.stop(block=False)
    with pytest.raises(ActorDeadError):
        await ref.ask("behind", block=False)
    await stopping


@ERRORS
@STEPS
async def test_whatever_fails_in_the_dispatcher_while_an_actor_ends_the_host_is_told(monkeypatch, method, error):
    async def stop(system):
        await stop_at_a_fault(system, monkeypatch, Plain, method, error)
        await trio.sleep_forever()

    await runs_into(error, stop)


@ERRORS
@STEPS
async def test_whatever_fails_while_an_actor_with_a_task_ends_every_actor_ends(monkeypatch, method, error):
    ended = []
    with contextlib.suppress(type(error)), trio.fail_after(20):
        async with ActorSystem() as system:
            ended += [(await system.spawn(cls)).wait_stopped() for cls in (Plain, Slow)]
            await stop_at_a_fault(system, monkeypatch, Slow, method, error)
    assert [reply.done() for reply in ended] == [True, True]


async def test_whoever_stops_an_actor_at_once_does_not_get_what_failed_in_the_kernel_meanwhile(monkeypatch):
    async def stop(system):
        ref = await system.spawn(Plain)
        fail_once(monkeypatch, ActorCell, "_call_hook", error)
        assert await ref.stop(block=False) is True
        await trio.sleep_forever()

    error = AttributeError("a bug")
    await runs_into(error, stop)


async def test_the_ask_whose_turn_failed_is_answered(monkeypatch):
    answers = []

    async def host():
        async with ActorSystem() as system:
            ref = await system.spawn(Plain)
            ref.tell("first")
            fail_once(monkeypatch, ActorCell, "turn", Fault())
            for number in range(3):
                ref.ask(number, block=False).on_done(answers.append)
            await trio.sleep_forever()

    with trio.fail_after(20), pytest.raises(Fault):
        await host()
    assert len(answers) == 3
    for reply in answers:
        with pytest.raises(ActorDeadError):
            reply.get()


@pytest.mark.parametrize(
    "method", ["turn", "_call_hook", "_is_asked_to_stop", "_ended_life", "_take_out_stops", "_tell_owner"]
)
async def test_a_failure_at_a_child_ends_its_supervisor_too(monkeypatch, method):
    error = AttributeError("a bug")

    async def crash(system):
        supervisor = await system.spawn(Supervisor, [ChildSpec(name, Plain) for name in "abc"])
        child = (await supervisor.ask(WhichChildren()))[0].ref
        await trio.testing.wait_all_tasks_blocked()
        fail_once(monkeypatch, ActorCell, method, error)
        child.tell(ValueError("crash"))
        await trio.sleep_forever()

    await runs_into(error, crash)


async def test_the_children_of_a_supervisor_that_failed_end_and_answer(monkeypatch):
    asked = []

    class Waiting(Slow):
        async def on_receive(self, message):
            await trio.sleep_forever()

    async def stop(system):
        supervisor = await system.spawn(Supervisor, [ChildSpec("child", Waiting)])
        child = (await supervisor.ask(WhichChildren()))[0].ref
        asked.extend(child.ask(number, block=False) for number in range(2))
        await trio.testing.wait_all_tasks_blocked()
        fail_once(monkeypatch, ActorCell, "_call_hook", error)
        await supervisor.stop(block=False)
        await trio.sleep_forever()

    error = AttributeError("a bug")
    await runs_into(error, stop)
    for reply in asked:
        with pytest.raises(ActorDeadError):
            reply.get()


async def test_a_dispatcher_that_dies_does_not_leave_the_host_waiting(monkeypatch):
    async def host():
        async with ActorSystem() as system:
            slow, ref = await system.spawn(Slow), await system.spawn(Plain)
            fail_once(monkeypatch, ActorCell, "turn", ValueError("first"))
            fail_once(monkeypatch, ActorCell, "collapse", Fault())
            slow.tell("under way")
            await ref.stop(block=False)

    with trio.fail_after(20), pytest.raises(Fault):
        await host()


@pytest.mark.parametrize("kind", ["body", "end"])
async def test_a_dispatcher_that_never_runs_does_not_leave_the_host_waiting(monkeypatch, kind):
    async def run(self):
        raise Fault

    async def host():
        async with ActorSystem() as system:
            await system.spawn(Plain)
            if kind == "body":
                await trio.sleep_forever()

    monkeypatch.setattr(Dispatcher, "run", run)
    with trio.fail_after(20), pytest.raises(Fault):
        await host()


class Raising(Observer):
    """Raises what is no `Exception` when told of one thing."""

    def __init__(self, what, error):
        def tell(*_):
            raise error

        setattr(self, what, tell)


@pytest.mark.parametrize("cls", [Plain, Slow])
@pytest.mark.parametrize("what", ["on_start", "before_message", "after_message", "on_exit"])
async def test_what_an_observer_raises_and_is_no_exception_reaches_the_host(what, cls):
    async def live(system):
        ref = await system.spawn(cls)
        await ref.ask("hello", block=False)
        await ref.stop(block=False)
        await trio.sleep_forever()

    error = SystemExit(3)
    await runs_into(error, live, Raising(what, error))


async def test_what_a_dead_letter_subscriber_raises_and_is_no_exception_reaches_the_host():
    error = KeyboardInterrupt()

    def subscriber(_letter):
        raise error

    async def leave_a_letter(system):
        system.dead_letters.subscribe(subscriber)
        ref = await system.spawn(Plain)
        ref.tell("first")
        ref.stop(block=False)
        ref.tell("behind")
        await trio.sleep_forever()

    await runs_into(error, leave_a_letter)
