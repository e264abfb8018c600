"""Child work: the tasks that belong to an actor."""

from __future__ import annotations

import contextvars

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, TrioActor

events: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Worker(TrioActor):
    """Starts what it is sent as child work."""

    def on_receive(self, message):
        self.start_soon(*message)

    def on_stop(self):
        events.append("on_stop")

    def on_failure(self, *exc_info):
        events.append("on_failure")


async def until_cancelled(name, *, linger=True):
    events.append(f"{name} begins")
    try:
        await trio.sleep_forever()
    finally:
        if linger:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
        events.append(f"{name} ends")


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def test_stopping_cancels_child_work_and_waits_for_it_before_on_stop():
    async with ActorSystem() as system:
        ref = await system.spawn(Worker)
        ref.tell((until_cancelled, "child"))
        await trio.testing.wait_all_tasks_blocked()
        assert await ref.stop() is True
        assert events == ["child begins", "child ends", "on_stop"]


async def test_child_work_does_not_keep_the_actor_from_its_messages():
    async with ActorSystem() as system:
        ref = await system.spawn(Worker)
        for name in "ab":
            await ref.ask((until_cancelled, name))
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(events) == ["a begins", "b begins"]


async def test_the_nursery_closes_with_the_last_child_and_opens_again_for_the_next():
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()
        ref = await system.spawn(Worker)
        for _ in range(3):
            gate = trio.Event()
            await ref.ask((gate.wait,))
            await ref.ask((trio.lowlevel.checkpoint,))
            await trio.testing.wait_all_tasks_blocked()
            assert living() == before + 2
            gate.set()
            await trio.testing.wait_all_tasks_blocked()
            assert living() == before
            assert ref._cell.tasks == 0


async def test_a_child_started_by_the_last_child_as_it_ends_runs():
    async def second():
        events.append("second")

    class Chain(Worker):
        def on_receive(self, message):
            self.start_soon(self._first)

        async def _first(self):
            await trio.lowlevel.checkpoint()
            self.start_soon(second)

    async with ActorSystem() as system:
        ref = await system.spawn(Chain)
        await ref.ask(1)
        await trio.testing.wait_all_tasks_blocked()
        assert events == ["second"]
        assert ref._cell.tasks == 0


async def test_an_exception_in_child_work_crashes_the_actor_after_its_other_work_has_ended():
    error = ValueError("boom")

    async def fail():
        await trio.lowlevel.checkpoint()
        raise error

    async with ActorSystem() as system:
        ref, sibling = await system.spawn(Worker), await system.spawn(Worker)
        await ref.ask((until_cancelled, "other"))
        await trio.testing.wait_all_tasks_blocked()
        await ref.ask((fail,))
        assert await ref.wait_stopped() == Exit(ExitKind.CRASHED, error)
        assert events == ["other begins", "other ends", "on_failure"]
        assert sibling.is_alive()


async def test_a_crash_in_child_work_cancels_the_async_handler_under_way():
    class Busy(Worker):
        async def on_receive(self, message):
            self.start_soon(self._fail)
            await until_cancelled("handler")

        async def _fail(self):
            raise ValueError("boom")

    async with ActorSystem() as system:
        ref = await system.spawn(Busy)
        with pytest.raises(ActorDeadError):
            await ref.ask(1)
        await ref.wait_stopped()
    assert events == ["handler begins", "handler ends", "on_failure"]


async def test_no_work_is_started_while_the_actor_stops():
    class Late(Worker):
        def on_stop(self):
            with pytest.raises(ActorDeadError):
                self.start_soon(trio.sleep_forever)
            events.append("refused")

    async with ActorSystem() as system:
        ref = await system.spawn(Late)
        await ref.stop()
    assert events == ["refused"]


async def test_work_started_and_stopped_in_the_same_step_still_begins_and_ends():
    async with ActorSystem() as system:
        ref = await system.spawn(Worker)
        ref.ask((until_cancelled, "child"))
        assert await ref.stop(now=True) is True
    assert events == ["child begins", "child ends", "on_stop"]


async def test_child_work_sees_the_context_variables_of_the_moment_it_was_started():
    step = contextvars.ContextVar("step")
    seen = []

    async def look():
        seen.append(step.get())

    class Steps(TrioActor):
        def on_receive(self, message):
            for number in range(3):
                step.set(number)
                self.start_soon(look)

    async with ActorSystem() as system:
        ref = await system.spawn(Steps)
        await ref.ask(1)
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(seen) == [0, 1, 2]


async def test_a_child_has_the_name_that_it_was_given():
    names = []

    async def look():
        names.append(trio.lowlevel.current_task().name)

    class Namer(TrioActor):
        def on_receive(self, message):
            self.start_soon(look, name="given")
            self.start_soon(look)

    async with ActorSystem() as system:
        await (await system.spawn(Namer)).ask(1)
        await trio.testing.wait_all_tasks_blocked()
    assert "given" in names
    assert any(name.endswith("look") for name in names)
