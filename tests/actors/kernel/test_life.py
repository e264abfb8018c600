"""Starting and stopping one actor, and the ref that others hold."""

from __future__ import annotations

import pykka
import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, SystemStoppedError, TrioActor

events: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Def(TrioActor):
    def on_start(self):
        events.append("start")

    def on_stop(self):
        events.append("stop")

    def on_failure(self, *exc_info):
        events.append("failure")

    def on_receive(self, message):
        events.append(message)
        return message


class Async(Def):
    async def on_start(self):
        await trio.lowlevel.checkpoint()
        events.append("start")

    async def on_stop(self):
        await trio.lowlevel.checkpoint()
        events.append("stop")

    async def on_failure(self, *exc_info):
        await trio.lowlevel.checkpoint()
        events.append("failure")

    async def on_receive(self, message):
        await trio.lowlevel.checkpoint()
        events.append(message)
        return message


KINDS = pytest.mark.parametrize("cls", [Def, Async])


# -- start ------------------------------------------------------------------------------------------------------------


@KINDS
async def test_on_start_runs_before_the_ref_is_there_and_before_any_message(cls):
    class Eager(cls):
        def __init__(self):
            super().__init__()
            self.actor_ref.tell("from init")

    async with ActorSystem() as system:
        ref = await system.spawn(Eager)
        assert events[0] == "start"
        await ref.ask("asked")
    assert events == ["start", "from init", "asked", "stop"]


async def test_the_constructor_gets_the_arguments_and_a_factory_will_do():
    class Greeter(TrioActor):
        def __init__(self, greeting, *, mark="!"):
            super().__init__()
            self.greeting = greeting + mark

        def on_receive(self, message):
            return self.greeting

    async with ActorSystem() as system:
        assert await (await system.spawn(Greeter, "hi", mark="?")).ask(1) == "hi?"
        assert await (await system.spawn(lambda: Greeter("ho"))).ask(1) == "ho!"


@pytest.mark.parametrize("kind", ["init", "def", "async"])
async def test_a_failing_start_raises_in_the_spawner_and_leaves_nothing_behind(kind):
    class Failing(Def):
        def __init__(self):
            super().__init__()
            if kind == "init":
                raise ValueError("no start")

        def on_start(self):
            self.start_soon(self._child)
            if kind == "async":
                return self._later()
            raise ValueError("no start")

        async def _later(self):
            await trio.lowlevel.checkpoint()
            raise ValueError("no start")

        async def _child(self):
            try:
                await trio.sleep_forever()
            finally:
                events.append("child ended")

    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        with pytest.raises(ValueError, match="no start"):
            await system.spawn(Failing)
        assert events == ([] if kind == "init" else ["child ended"])
        assert len(system) == 0
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_an_actor_that_is_stopped_now_while_it_starts_never_was():
    class Slow(Def):
        async def on_start(self):
            await trio.sleep_forever()

    async with ActorSystem() as system:
        leaked = []

        class Leaking(Slow):
            def __init__(self):
                super().__init__()
                leaked.append(self.actor_ref)

        spawning = system.spawn(Leaking)
        (ref,) = leaked
        queued = ref.ask("too early")
        await trio.testing.wait_all_tasks_blocked()
        assert await ref.stop(now=True) is True
        for reply in (spawning, queued):
            with pytest.raises(ActorDeadError):
                await reply
    assert events == []


async def test_asks_to_an_actor_whose_constructor_fails_end():
    leaked = []

    class Failing(TrioActor):
        def __init__(self):
            super().__init__()
            leaked.append(self.actor_ref.ask("hello"))
            raise ValueError("no")

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="no"):
            await system.spawn(Failing)
        with pytest.raises(ActorDeadError):
            await leaked[0]


async def test_forgetting_super_init_is_a_clear_error():
    class Forgetful(TrioActor):
        def __init__(self):
            pass

    async with ActorSystem() as system:
        with pytest.raises(TypeError, match=r"super\(\).__init__\(\)"):
            await system.spawn(Forgetful)


def test_an_actor_made_directly_in_a_constructor_never_takes_the_place_of_its_maker():
    class Maker(TrioActor):
        def __init__(self, first):
            if first:
                self.helper = Def()
            super().__init__()
            if not first:
                self.helper = Def()

    with ActorSystem.on_thread() as system:
        for first in (True, False):
            maker = system.spawn(Maker, first).get()
            helper = maker._cell.actor.helper
            assert maker.actor_class is Maker
            assert helper.actor_ref is not maker
            assert helper.actor_system is not system


async def test_spawning_the_same_actor_again_is_a_clear_error():
    async with ActorSystem() as system:
        actor = (await system.spawn(Def))._cell.actor
        with pytest.raises(TypeError, match="no new TrioActor"):
            await system.spawn(lambda: actor)


async def test_an_actor_may_spawn_others_in_its_constructor():
    class Parent(TrioActor):
        def __init__(self, system):
            self.before = system.spawn(Def).get()
            super().__init__()
            self.after = system.spawn(Def).get()

    async with ActorSystem() as system:
        parent = await system.spawn(Parent, system)
        actor = parent._cell.actor
        assert len({parent, actor.before, actor.after, actor.actor_ref}) == 3


async def test_a_system_that_is_stopping_or_not_running_spawns_nothing():
    class Late(TrioActor):
        def on_stop(self):
            self.late = self.actor_system.spawn(Def)

    system = ActorSystem()
    with pytest.raises(SystemStoppedError):
        await system.spawn(Def)
    async with system:
        actor = (await system.spawn(Late))._cell.actor
    with pytest.raises(SystemStoppedError):
        await actor.late
    with pytest.raises(SystemStoppedError):
        await system.spawn(Def)


# -- stop -------------------------------------------------------------------------------------------------------------


@KINDS
async def test_what_was_sent_before_the_stop_is_handled_and_what_came_after_gets_actor_dead_error(cls):
    async with ActorSystem() as system:
        ref = await system.spawn(cls)
        ref.tell(1)
        before = ref.ask(2)
        stopped = ref.stop()
        after = ref.ask(3)
        assert await stopped is True
        assert await before == 2
        with pytest.raises(ActorDeadError):
            await after
    assert events == ["start", 1, 2, "stop"]


@KINDS
async def test_stop_now_skips_what_is_queued(cls):
    async with ActorSystem() as system:
        ref = await system.spawn(cls)
        ref.tell(1)
        queued = ref.ask(2)
        assert await ref.stop(now=True) is True
        with pytest.raises(ActorDeadError):
            await queued
    assert events == ["start", "stop"]


async def test_stop_now_cancels_the_async_handler_under_way_and_its_asker_gets_actor_dead_error():
    class Slow(Def):
        async def on_receive(self, message):
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                events.append("cancelled")

    async with ActorSystem() as system:
        ref = await system.spawn(Slow)
        reply = ref.ask(1)
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(now=True)
        with pytest.raises(ActorDeadError):
            await reply
    assert events == ["start", "cancelled", "stop"]


@KINDS
async def test_an_actor_may_stop_itself(cls):
    class Short(cls):
        def on_receive(self, message):
            self.stop()
            return super().on_receive(message)

    async with ActorSystem() as system:
        ref = await system.spawn(Short)
        assert await ref.ask(1) == 1
        assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)
    assert events == ["start", 1, "stop"]


async def test_an_actor_may_stop_itself_now_from_a_def_handler():
    class Short(Def):
        def on_receive(self, message):
            self.actor_ref.stop(now=True)
            return message

    async with ActorSystem() as system:
        ref = await system.spawn(Short)
        assert await ref.ask(1) == 1
        ref.tell(2) if ref.is_alive() else None
        assert not ref.is_alive()
    assert events == ["start", "stop"]


async def test_an_actor_that_stops_itself_now_and_goes_on_as_a_coroutine_is_cancelled_there():
    class Short(Def):
        def on_receive(self, message):
            self.actor_ref.stop(now=True)
            return self._later()

        async def _later(self):
            try:
                await trio.sleep_forever()
            finally:
                events.append("cancelled")

    async with ActorSystem() as system:
        ref = await system.spawn(Short)
        with pytest.raises(ActorDeadError):
            await ref.ask(1)
        await ref.wait_stopped()
    assert events == ["start", "cancelled", "stop"]


@KINDS
async def test_stopping_twice_answers_both_and_stopping_a_dead_actor_says_false(cls):
    async with ActorSystem() as system:
        ref = await system.spawn(cls)
        ref.tell("something to do first")
        first, second = ref.stop(), ref.stop()
        assert await first is True
        assert await second is True
        assert await ref.stop() is False
        assert await ref.stop(now=True) is False
        await ref.aclose()
    assert events.count("stop") == 1


async def test_a_stop_that_comes_during_on_stop_waits_for_the_end_too():
    class Slow(Def):
        async def on_stop(self):
            await trio.testing.wait_all_tasks_blocked()
            events.append("stop")

    async with ActorSystem() as system:
        ref = await system.spawn(Slow)
        first = ref.stop()
        assert not ref.is_alive()
        assert await ref.stop() is True
        assert events == ["start", "stop"]
        assert await first is True


async def test_a_cancelled_aclose_stops_the_actor_now():
    class Stuck(Def):
        async def on_receive(self, message):
            await trio.sleep_forever()

    async with ActorSystem() as system:
        ref = await system.spawn(Stuck)
        ref.tell(1)
        with trio.move_on_after(0) as scope:
            await ref.aclose()
        assert scope.cancelled_caught
        assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)
    assert events == ["start", "stop"]


@KINDS
async def test_a_failing_on_stop_is_the_exit_reason(cls):
    class Failing(cls):
        def on_stop(self):
            return self._later() if cls is Async else 1 / 0

        async def _later(self):
            await trio.lowlevel.checkpoint()
            return 1 / 0

    async with ActorSystem() as system:
        ref = await system.spawn(Failing)
        assert await ref.stop() is True
        end = await ref.wait_stopped()
        assert (end.kind, type(end.error)) == (ExitKind.CRASHED, ZeroDivisionError)


# -- refs -------------------------------------------------------------------------------------------------------------


async def test_tell_to_a_dead_ref_raises_and_ask_gives_a_failing_reply():
    async with ActorSystem() as system:
        ref = await system.spawn(Def)
        assert ref.is_alive()
        await ref.aclose()
        assert not ref.is_alive()
        with pytest.raises(ActorDeadError, match="Def"):
            ref.tell(1)
        reply = ref.ask(1)
        with pytest.raises(pykka.ActorDeadError, match="Def"):
            await reply
    with pytest.raises(ActorDeadError):
        ref.tell(1)
    with pytest.raises(ActorDeadError):
        await ref.ask(1)
    assert await ref.stop() is False
    assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)


async def test_refs_are_hashable_equal_to_themselves_and_say_who_they_are():
    async with ActorSystem() as system:
        one, two = await system.spawn(Def), await system.spawn(Def)
        assert one == one._cell.actor.actor_ref
        assert len({one, two, one}) == 2
        assert str(one) == str(one._cell.actor) == f"Def ({one.actor_urn})"
        assert repr(one) == f"<ActorRef for Def ({one.actor_urn})>"
        assert one.actor_urn != two.actor_urn
        assert one.actor_class is Def
        assert not one.actor_stopped.is_set()
        await one.aclose()
        assert one.actor_stopped.is_set()
        assert await two.stop()
        assert two.actor_stopped.is_set()


async def test_wait_stopped_says_how_an_actor_ended_to_everybody_who_waits():
    ends = []

    async def wait(ref):
        ends.append(await ref.wait_stopped())

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref = await system.spawn(Def)
        nursery.start_soon(wait, ref)
        nursery.start_soon(wait, ref)
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop()
    assert ends == [Exit(ExitKind.NORMAL)] * 2


async def test_pykkas_inbox_shows_what_waits_and_takes_envelopes():
    from pykka._envelope import Envelope  # noqa: PLC0415

    async with ActorSystem() as system:
        ref = await system.spawn(Def)
        inbox = ref.actor_inbox
        assert inbox.empty()
        inbox.put(Envelope("by envelope"))
        assert not inbox.empty()
        ref.tell("taken out")
        assert len(inbox) == 2
        assert inbox.get().message == "by envelope"
        with pytest.raises(TypeError):
            inbox.put(Envelope(1, reply_to=pykka.ThreadingFuture()))
        await ref.ask("end")
    assert events == ["start", "taken out", "end", "stop"]


async def test_a_new_actor_makes_nothing_that_nobody_asked_for():
    async with ActorSystem() as system:
        ref = await system.spawn(Def)
        cell = ref._cell
        assert (cell._urn, cell._event, cell._ended, cell.taken, cell.runner, cell.work) == (None,) * 6
