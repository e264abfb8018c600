"""Two thousand actors in one system, of each kind of life: when they have stopped nothing of them is left."""

from __future__ import annotations

import gc
import logging
import threading
from collections import Counter
from pathlib import Path

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from quiesce.actors.kernel import (
    ActorRef,
    ActorSystem,
    ChildSpec,
    DynamicSupervisor,
    Reply,
    StartChild,
    Terminated,
    TrioActor,
    receive,
)
from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.child import Child
from quiesce.actors.kernel.runner import Runner
from quiesce.actors.kernel.work import Work

KERNELS = (ActorCell, ActorRef, Child, Reply, Runner, TrioActor, Work)
OPEN_FILES = Path("/proc/self/fd")


class Plain(TrioActor):
    """All `def`: it never has a task."""

    def on_receive(self, message):
        return message


class Tasked(TrioActor):
    """Has a task, as its handlers and hooks wait."""

    async def on_start(self):
        await trio.lowlevel.checkpoint()

    async def on_receive(self, message):
        await trio.lowlevel.checkpoint()
        return message

    async def on_stop(self):
        await trio.lowlevel.checkpoint()


class Busy(Plain):
    """Has child work, a timer, and somebody whom it watches: itself."""

    def on_start(self):
        self.start_soon(trio.sleep_forever)
        self.timers.every("tick", 1_000.0, "tick")
        self.monitor(self.actor_ref)

    @receive(Terminated)
    def terminated(self, _: Terminated) -> None:
        """Nobody is there any more to be told."""


class Crashing(Plain):
    """Crashes at every word told."""

    def on_receive(self, message):
        if message == "told":
            raise ValueError(message)
        return message


CROWD = [Plain, Tasked, Busy, Crashing] * 500


@frozen
class Left:
    """What a process holds on to."""

    tasks: int
    threads: frozenset[int | None]
    files: int

    @classmethod
    def now(cls):
        files = len(list(OPEN_FILES.iterdir())) if OPEN_FILES.exists() else 0
        threads = frozenset(thread.ident for thread in threading.enumerate())
        return cls(trio.lowlevel.current_statistics().tasks_living, threads, files)

    def is_no_more_than(self, before):
        """Whether nothing came; a thread of somebody else's may have gone meanwhile."""
        return self.tasks <= before.tasks and self.threads <= before.threads and self.files <= before.files


def kernel_objects():
    """How many objects of the kernel there are, by type; those in cycles that nobody holds are freed first."""
    gc.collect()
    return Counter(kind for kind in map(type, gc.get_objects()) if issubclass(kind, KERNELS))


async def alone(system, _):
    return [await system.spawn(cls) for cls in CROWD]


async def named(system, _):
    return [await system.options(name=f"n{at}", inbox_limit=5).spawn(cls) for at, cls in enumerate(CROWD)]


async def supervised(_, supervisor):
    return [await supervisor.ask(StartChild(ChildSpec("a", cls, restart="temporary"))) for cls in CROWD]


async def tell_and_ask(refs):
    for ref in refs:
        ref.tell("told")
    asked = [ref.ask("asked") for ref in refs]
    await wait_all_tasks_blocked()
    assert all(reply.done() for reply in asked)


async def stop_each(refs):
    for number, ref in enumerate(refs):
        await ref.stop(block=False, now=bool(number % 2))


@pytest.fixture
def _no_log():
    """Log records keep the exceptions that they tell of, and so what these came through."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_no_log")
@pytest.mark.parametrize("spawn", [alone, named, supervised])
async def test_of_actors_that_were_started_told_asked_and_stopped_nothing_is_left(spawn):
    objects, outside = kernel_objects(), Left.now()
    async with ActorSystem() as system:
        supervisor = await system.spawn(DynamicSupervisor)
        await (await supervisor.ask(StartChild(ChildSpec("a", Plain, restart="temporary")))).stop()
        await wait_all_tasks_blocked()
        before, alive = Left.now(), len(system)
        refs = await spawn(system, supervisor)
        assert len(system) == alive + len(CROWD)
        await tell_and_ask(refs)
        assert Left.now().tasks > before.tasks
        await stop_each(refs)
        await wait_all_tasks_blocked()
        assert (len(system), system.statistics().timers) == (alive, 0)
        assert Left.now().is_no_more_than(before)
        refs = await spawn(system, supervisor)  # these end with their system
        await tell_and_ask(refs)
    assert Left.now().is_no_more_than(outside)
    del system, supervisor, refs
    assert kernel_objects() - objects == Counter()
