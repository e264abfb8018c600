"""The runtime: opening sessions, repairing them first, refusing what cannot be, and leaving nothing behind."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import (
    Hooks,
    InvalidInput,
    MemoryStore,
    RetryPolicy,
    Runtime,
    ScriptedModel,
    SqliteStore,
    StoreError,
    TurnFailed,
    call,
    fail,
    say,
    tool,
)
from quiesce.actors.watchdog import watchdog
from quiesce.protocol.errors import SessionHeld, StoreFull, UnreadableLog
from quiesce.protocol.events import ToolResult, TurnEnd

# --- opening -----------------------------------------------------------------------------------------------------


async def test_a_runtime_opens_a_path_and_keeps_what_was_said_there(tmp_path):
    for number in (1, 2):
        async with Runtime.open(tmp_path / "agents.db") as runtime:
            agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
            assert (await agent.send("hi")).number == number


async def test_a_store_that_is_open_already_stays_open_when_the_runtime_is_left():
    async with MemoryStore() as store:
        async with Runtime.open(store) as runtime:
            await (await runtime.agent("s", model=ScriptedModel([say("hello")]))).send("hi")
        assert (await store.info("s")).turns == 1


@pytest.mark.parametrize("store", [5, None, b"agents.db", "", "a\0b"])
async def test_what_is_no_store_is_refused(store):
    with pytest.raises(InvalidInput):
        async with Runtime.open(store):
            pytest.fail("it was opened")


async def test_a_store_that_cannot_be_opened_says_which_and_leaves_it_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        async with Runtime.open(path):
            pytest.fail("it was opened")
    assert path.read_text() == "these are my notes"


@pytest.mark.parametrize("sources", [5, lambda: 5])
async def test_what_is_no_sources_is_refused(sources):
    with pytest.raises(InvalidInput, match="sources"):
        async with Runtime.open(MemoryStore(), sources=sources):
            pytest.fail("it was opened")


class NoModel:
    """Has the names of a model, and no `respond`."""

    name = "none"
    provider = "none"


class Nameless(ScriptedModel):
    """A model whose name cannot be stored."""

    name = "a\0b"


def plain():
    """Is no tool."""


@tool
async def work() -> str:
    """Works."""
    return "done"


class Broken(Hooks):
    """A hook that is not async."""

    def prepare(self, call):
        return None


BAD_OPTIONS = {
    "no model": ({"model": None}, "model"),
    "a model that cannot respond": ({"model": NoModel()}, "respond"),
    "a model whose name cannot be stored": ({"model": Nameless([])}, r"model\.name"),
    "a function for a tool": ({"tools": [plain]}, "tools"),
    "a tool for a list of tools": ({"tools": 5}, "tools"),
    "two tools of one name": ({"tools": [work, work]}, "tools"),
    "no hook": ({"hooks": [object()]}, "hooks"),
    "no list of hooks": ({"hooks": 5}, "hooks"),
    "a hook that is not async": ({"hooks": [Broken()]}, "hooks"),
    "a system prompt that is no text": ({"system": 5}, "system"),
    "a system prompt that cannot be sent": ({"system": "\ud800"}, "system"),
    "an empty pool": ({"max_parallel": 0}, "max_parallel"),
    "half a call": ({"max_parallel": 1.5}, "max_parallel"),
    "no steps": ({"max_steps": 0}, "max_steps"),
    "true steps": ({"max_steps": True}, "max_steps"),
    "a grace before now": ({"drain_grace": -1}, "drain_grace"),
    "a grace that is no number": ({"drain_grace": float("nan")}, "drain_grace"),
    "a number of retries": ({"retry": 3}, "retry"),
}


@pytest.mark.parametrize(("options", "name"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
async def test_options_that_cannot_be_are_refused_before_a_session_is_made(options, name):
    async with Runtime.open(MemoryStore()) as runtime:
        with pytest.raises(InvalidInput, match=name):
            await runtime.agent("s", **{"model": ScriptedModel([]), **options})
        assert await runtime.store.list() == []


@pytest.mark.parametrize("session_id", ["", "x" * 201, "a\0b", "\ud800", 5, None])
async def test_a_session_id_that_cannot_be_is_refused(session_id):
    async with Runtime.open(MemoryStore()) as runtime:
        with pytest.raises(InvalidInput, match="session_id"):
            await runtime.agent(session_id, model=ScriptedModel([]))
        assert await runtime.store.list() == []


async def test_options_at_their_limits_are_accepted():
    async with Runtime.open(MemoryStore()) as runtime:
        retry = RetryPolicy(max_attempts=1, base_delay=0, max_delay=0, max_retry_after=0)
        options = {"max_parallel": 1, "max_steps": 1, "drain_grace": float("inf"), "retry": retry, "system": ""}
        agent = await runtime.agent("x" * 200, model=ScriptedModel([say("hello")]), **options)
        assert (await agent.send("hi")).text == "hello"


async def test_a_session_that_is_open_here_is_not_opened_again():
    async with Runtime.open(MemoryStore()) as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
        with pytest.raises(InvalidInput, match="open in this runtime"):
            await runtime.agent("s", model=ScriptedModel([]))
        assert (await agent.send("hi")).text == "hello"


async def test_of_two_who_open_a_session_at_once_one_is_refused():
    async with Runtime.open(MemoryStore()) as runtime:
        opened, refused = [], []

        async def open_it():
            try:
                opened.append(await runtime.agent("s", model=ScriptedModel([say("hello")])))
            except InvalidInput as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            nursery.start_soon(open_it)
        assert (len(opened), len(refused)) == (1, 1)
        assert (await opened[0].send("hi")).text == "hello"


# --- failing to open leaves nothing behind -----------------------------------------------------------------------


async def test_a_log_that_cannot_be_read_is_refused_and_its_lease_is_free(tmp_path):
    path = tmp_path / "agents.db"
    async with Runtime.open(path) as runtime:
        await (await runtime.agent("s", model=ScriptedModel([say("hello")]))).send("hi")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET line = 'no event' WHERE seq = 3")
    connection.close()
    async with Runtime.open(path) as runtime:
        living = await _living(runtime)
        with pytest.raises(UnreadableLog, match="'s'"):
            await runtime.agent("s", model=ScriptedModel([]))
        assert (await runtime.store.info("s")).holder is None
        assert trio.lowlevel.current_statistics().tasks_living == living


async def test_a_held_session_is_refused_and_stays_with_its_holder(tmp_path):
    path = tmp_path / "agents.db"
    async with Runtime.open(path) as one, Runtime.open(path) as two:
        agent = await one.agent("s", model=ScriptedModel([say("hello")]))
        with pytest.raises(SessionHeld):
            await two.agent("s", model=ScriptedModel([]))
        assert (await agent.send("hi")).text == "hello"
        await agent.close()
        again = await two.agent("s", model=ScriptedModel([say("again")]))
        assert (await again.send("hi")).text == "again"


async def test_a_repair_that_the_store_refuses_is_raised_and_the_lease_is_free(agents):
    store = agents.SteppedStore()
    async with Runtime.open(store) as runtime:
        await _leave_a_turn_open(runtime, store)
        store.refuse = lambda _: StoreFull("no room")
        with pytest.raises(StoreFull):
            await runtime.agent("s", model=ScriptedModel([]))
        assert (await store.info("s")).holder is None
        store.refuse = lambda _: None
        agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
        assert (await agent.send("hi")).text == "hello"


async def _living(runtime):
    """How many tasks there are once the runtime has opened and closed an agent."""
    await (await runtime.agent("another", model=ScriptedModel([]))).close()
    await wait_all_tasks_blocked()
    return trio.lowlevel.current_statistics().tasks_living


async def _leave_a_turn_open(runtime, store):
    """A session `s` whose log ends in an open turn, as a crash leaves it."""
    async with Runtime.open(store) as other:
        agent = await other.agent("s", model=ScriptedModel([say("late").after(1000)]))
        await agent.follow_up("go")
        await wait_all_tasks_blocked()
        await agent._tree.stop(block=False, now=True)
    assert (await runtime.store.info("s")).open


@pytest.mark.parametrize("ticks", range(12))
async def test_opening_that_is_cancelled_leaves_nothing_open(agents, ticks):
    store = agents.SteppedStore()
    async with Runtime.open(store) as runtime:
        await _leave_a_turn_open(runtime, store)
        living = await _living(runtime)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_open_quietly, runtime)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        if (await store.info("s")).holder is None:  # the cancel came in time
            assert trio.lowlevel.current_statistics().tasks_living == living
            assert runtime._agents == {}
            agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
            assert (await agent.send("hi")).text == "hello"
        else:
            assert runtime._agents["s"].is_alive()


async def _open_quietly(runtime):
    await runtime.agent("s", model=ScriptedModel([]))


async def test_a_runtime_keeps_nothing_of_agents_that_were_closed():
    async with Runtime.open(MemoryStore()) as runtime:
        for at in range(5):
            await (await runtime.agent(f"s{at}", model=ScriptedModel([]))).close()
        assert runtime._agents == {}
        assert len(runtime._system) == 1  # the supervisor


async def test_no_agent_is_opened_after_the_runtime_was_left():
    async with Runtime.open(MemoryStore()) as runtime:
        pass
    with pytest.raises(StoreError):
        await runtime.agent("s", model=ScriptedModel([]))


# --- resume ------------------------------------------------------------------------------------------------------


async def test_g6_resume_repairs_before_anything_else_happens_and_runs_no_tool_again(agents):
    store, ran = agents.SteppedStore(), []

    @tool
    async def once(of: str) -> str:
        """Notes that it ran."""
        ran.append(of)
        if of == "c2":
            store.refuse = lambda _: StoreError("the plug was pulled")
        return of

    calls = say("", *(call(once, call_id=name, of=name) for name in ("c1", "c2", "c3")))
    async with agents.at_work([calls], store=store, tools=[once]) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("go")
    store.refuse = lambda _: None
    store.submitted.clear()
    async with agents.at_work([say("hello")], store=store, tools=[once]) as desk:
        assert store.submitted == [
            ["result c2 TOOL_OUTCOME_UNKNOWN", "result c3 TOOL_NOT_STARTED", "end step 1.1", "end turn 1 interrupted"]
        ]
        assert (await desk.agent.send("again")).number == 2
        assert ran == ["c1", "c2"]


async def test_resuming_a_log_with_nothing_open_adds_nothing(agents):
    store = MemoryStore()
    async with agents.at_work([say("hello"), fail()], store=store) as desk:
        await desk.agent.send("hi")
        with pytest.raises(TurnFailed):
            await desk.agent.send("more")
        before = await desk.log()
    async with agents.at_work([], store=store) as desk:
        assert await desk.log() == before


async def test_the_history_after_a_resume_is_the_history_before_it(agents):
    store = MemoryStore()
    async with agents.at_work([say("", call(work)), say("done"), say("")], store=store, tools=[work]) as desk:
        await desk.agent.send("one")
        await desk.agent.send("two")
        before = await desk.agent.history()
    async with agents.at_work([], store=store) as desk:
        assert await desk.agent.history() == before


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
async def test_a_log_is_resumed_whole_however_it_is_cut_into_pieces(agents, monkeypatch, piece):
    monkeypatch.setattr("quiesce.actors.lease._PIECE", piece)
    store = MemoryStore()
    async with agents.at_work([say("", call(work)), say("done"), fail()], store=store, tools=[work]) as desk:
        await desk.agent.send("one")
        await desk.agent.follow_up("fails")
        await desk.agent.follow_up("waits")
        await desk.agent.wait()
        before = await desk.agent.history()
    async with agents.at_work([say("two"), say("three")], store=store) as desk:
        assert await desk.agent.history() == before
        assert (await desk.agent.send("now")).number == 4
        assert await desk.timeline("user") == ["user one", "user fails", "user waits", "user now"]


# --- leaving -----------------------------------------------------------------------------------------------------


class Tools:
    """Tools of every kind that are live when their runtime is left."""

    def __init__(self):
        self.running = []
        self.ended = []
        self.release = threading.Event()
        self.all = [tool(parallel=True)(function) for function in (self.task, self.stubborn, self.thread)]

    async def task(self) -> str:
        """Waits."""
        return await self._wait("task", shield=False)

    async def stubborn(self) -> str:
        """Takes its time when it is cancelled."""
        return await self._wait("stubborn", shield=True)

    def thread(self) -> str:
        """Blocks in a thread, which cannot be cancelled."""
        self.running.append("thread")
        self.release.wait()
        self.ended.append("thread")
        return "the thread returned"

    async def _wait(self, name, *, shield):
        self.running.append(name)
        try:
            await trio.sleep_forever()
        finally:
            try:
                with trio.CancelScope(shield=shield):
                    await trio.lowlevel.checkpoint()
            finally:
                self.ended.append(name)


async def by_itself(_):
    await trio.lowlevel.checkpoint()


async def by_an_exception(_):
    raise LookupError("the host's own")


async def by_cancellation(scope):
    scope.cancel()
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("leave", [by_itself, by_an_exception, by_cancellation])
async def test_a_runtime_that_is_left_with_live_tools_leaves_no_task_and_a_log_that_goes_on(agents, leave):
    watchdog()  # started here, so that it is not counted as left behind
    living = trio.lowlevel.current_statistics().tasks_living
    store, tools = MemoryStore(), Tools()
    model = ScriptedModel([say("", *(call(item, call_id=item.name) for item in tools.all))])
    with trio.CancelScope() as scope, suppress(LookupError):
        async with Runtime.open(store) as runtime:
            agent = await runtime.agent("s", model=model, tools=tools.all)
            await agent.follow_up("go")
            while len(tools.running) < len(tools.all):
                await trio.lowlevel.checkpoint()
            trio.lowlevel.spawn_system_task(_release_later, tools)
            await leave(scope)
    assert scope.cancelled_caught == (leave is by_cancellation)
    assert sorted(tools.ended) == ["stubborn", "task", "thread"]
    assert trio.lowlevel.current_statistics().tasks_living == living
    async with agents.at_work([say("hello")], store=store) as desk:
        assert (await desk.agent.send("again")).number == 2
        results = await desk.timeline("result")
        assert len(results) == len(tools.all)
        if leave is not by_cancellation:
            assert results == ["result task ABORTED", "result stubborn ABORTED", "result thread the thread returned"]


async def _release_later(tools):
    await wait_all_tasks_blocked()
    tools.release.set()


async def test_what_the_host_raised_comes_out_of_the_runtime_as_it_was():
    async def host():
        async with Runtime.open(MemoryStore()) as runtime:
            await runtime.agent("s", model=ScriptedModel([]))
            await by_an_exception(runtime)

    with pytest.raises(LookupError, match="the host's own"):
        await host()


async def test_every_agent_of_a_runtime_is_closed_driver_first_and_session_last(agents):
    order = []
    async with Runtime.open(MemoryStore()) as runtime:
        for at in range(3):
            agent = await runtime.agent(f"s{at}", model=ScriptedModel([say("late").after(1000)]))
            await agent.follow_up("go")
            for name in ("session", "driver", "scheduler"):
                ended = getattr(agent, f"_{name}").wait_stopped()
                ended.on_done(lambda _, name=name, at=at: order.append((at, name)))
        await wait_all_tasks_blocked()
    for at in range(3):
        assert [name for who, name in order if who == at] == ["driver", "scheduler", "session"]


async def test_many_agents_work_at_once_and_each_has_its_own_log(agents, tmp_path):
    @tool(parallel=True)
    async def tell(name: str) -> str:
        """Tells its name."""
        await trio.lowlevel.checkpoint()
        return f"I am {name}"

    turns = {}

    async def one(runtime, name):
        model = ScriptedModel([say("", *(call(tell, name=name) for _ in range(4))), say(f"done, {name}")])
        agent = await runtime.agent(name, model=model, tools=[tell])
        turns[name] = await agent.send(f"who are you, {name}?")
        await agents.check_session(runtime.store, name)

    names = [f"agent-{at}" for at in range(40)]
    async with Runtime.open(SqliteStore(tmp_path / "agents.db")) as runtime:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(one, runtime, name)
        for name in names:
            assert turns[name].text == f"done, {name}"
            results = [event.body for event in await runtime.store.read(name) if isinstance(event.body, ToolResult)]
            assert [body.message.content[0].text for body in results] == [f"I am {name}"] * 4


async def test_an_agent_may_run_another_inside_a_tool(agents):
    async with Runtime.open(MemoryStore()) as runtime:

        @tool
        async def ask_the_other(question: str) -> str:
            """Asks another agent."""
            other = await runtime.agent("other", model=ScriptedModel([say(f"you asked {question}")]))
            return (await other.send(question)).text

        model = ScriptedModel([say("", call(ask_the_other, question="why")), say("I see")])
        agent = await runtime.agent("s", model=model, tools=[ask_the_other])
        assert (await agent.send("go")).text == "I see"
        ends = [
            event.body.reason.kind for event in await runtime.store.read("other") if isinstance(event.body, TurnEnd)
        ]
        assert ends == ["completed"]


class _CancelAt(trio.abc.Instrument):
    """Cancels `scope` at the step of any task that is number `step`."""

    def __init__(self, scope, step):
        self.scope, self.steps = scope, iter(range(step))

    def before_task_step(self, _):
        if next(self.steps, None) is None:
            self.scope.cancel()


async def test_a_runtime_that_is_cancelled_while_it_opens_a_session_is_left_quietly():
    """At whichever step of whichever task the cancel comes, it is a cancel and no error."""
    for step in range(60):
        with trio.CancelScope() as scope:
            instrument = _CancelAt(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                async with Runtime.open(MemoryStore()) as runtime:
                    await runtime.agent("s", model=ScriptedModel([]))
            finally:
                trio.lowlevel.remove_instrument(instrument)
