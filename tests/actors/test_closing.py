"""Closing an agent: whatever its actors are doing, nothing of it is left and its lease is free."""

from __future__ import annotations

import asyncio

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import Agent, MemoryStore, Runtime, ScriptedModel, agent_spec, say
from quiesce.actors.kernel import ActorSystem, Backoff, ChildNotFoundError, Supervisor
from quiesce.protocol.errors import StoreError


class Injected(Exception):  # noqa: N818 - it is on purpose, and no error
    """The crash."""


class GatedStore(MemoryStore):
    """A session can only be opened while the gate is open; an opening that `fails` does so behind the gate."""

    def __init__(self):
        super().__init__()
        self.gate = trio.Event()
        self.gate.set()
        self.openings = 0
        self.fails = False

    async def open(self, session_id, **options):
        self.openings += 1
        await self.gate.wait()
        if self.fails:
            raise StoreError("no")
        return await super().open(session_id, **options)


def crash_session(agent):
    agent._session._cell.crash(Injected("a crash"))


async def give_up(agent):
    """Crash the session more often than the agent allows: its supervisor waits with the next start."""
    for _ in range(4):
        crash_session(agent)
        await wait_all_tasks_blocked()


async def be_running(agent, store):
    pass


async def be_in_restart(agent, store):
    store.gate = trio.Event()
    crash_session(agent)
    await wait_all_tasks_blocked()


async def be_in_back_off(agent, store):
    await give_up(agent)


async def be_in_restart_from_above(agent, store):
    await give_up(agent)
    store.gate = trio.Event()
    await trio.sleep(6)


async def be_in_a_restart_that_fails(agent, store):
    store.fails = True
    await be_in_restart_from_above(agent, store)


STATES = pytest.mark.parametrize(
    "bring",
    [be_running, be_in_restart, be_in_back_off, be_in_restart_from_above, be_in_a_restart_that_fails],
    ids=lambda bring: bring.__name__.replace("_", " "),
)


async def assert_gone(tree, store):
    """It is not there, its lease is free, and however long one waits, it is not opened again."""
    openings = store.openings
    with pytest.raises(ChildNotFoundError):
        await Agent.of(tree, "s")
    assert (await store.info("s")).holder is None
    await trio.sleep(100)
    assert store.openings == openings


@STATES
async def test_after_close_an_agent_under_any_supervisor_is_gone_whatever_its_actors_were_doing(bring, autojump_clock):
    async with GatedStore() as store, ActorSystem() as system:
        spec = agent_spec("s", store=store, model=ScriptedModel([]))
        tree = await system.spawn(Supervisor, [spec], backoff=Backoff(initial=5, jitter=0))
        agent = await Agent.of(tree, "s")
        await bring(agent, store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.close)
            await wait_all_tasks_blocked()
            store.gate.set()
        await assert_gone(tree, store)


@STATES
async def test_a_cancelled_close_waits_for_no_restart_and_leaves_nothing_either(bring, autojump_clock):
    async with GatedStore() as store, ActorSystem() as system:
        spec = agent_spec("s", store=store, model=ScriptedModel([]))
        tree = await system.spawn(Supervisor, [spec], backoff=Backoff(initial=5, jitter=0))
        agent = await Agent.of(tree, "s")
        await bring(agent, store)
        with trio.move_on_after(1):
            await agent.close()
        await assert_gone(tree, store)


@pytest.mark.parametrize("bring", [be_running, be_in_restart, be_in_back_off])
async def test_the_session_of_a_closed_agent_can_be_opened_again_at_once(bring, autojump_clock):
    async with GatedStore() as store, Runtime.open(store) as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([]))
        await bring(agent, store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.close)
            await wait_all_tasks_blocked()
            store.gate.set()
        again = await runtime.agent("s", model=ScriptedModel([say("fine")]))
        assert (await again.send("hi")).text == "fine"


def test_a_close_from_asyncio_while_the_runtime_is_left_returns_when_the_agent_is_gone():
    async def release():
        tasks.append(asyncio.get_running_loop().create_task(close()))  # it runs between two steps of Trio
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        tape.append("released")

    async def close():
        await agents[0].close()
        tape.append("closed")

    async def main():
        async with Runtime.in_asyncio(MemoryStore()) as runtime:
            agents.append(await runtime.agent("s", model=ScriptedModel([])))
            agents[0]._session._cell.actor._writer.release = release
        await asyncio.wait(tasks)

    agents, tasks, tape = [], [], []
    asyncio.run(main())
    assert tape == ["released", "closed"]
