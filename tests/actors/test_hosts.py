"""Runtime and agents from asyncio tasks, plain threads and Trio tasks: the same behaviour, and how each host ends.

A scenario is an async function of a host and a runtime. On a plain thread nothing in it ever waits in its own way: what
it awaits blocks, so that one step runs it from its beginning to its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager

import pytest
import sniffio
import trio
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import (
    Agent,
    InvalidInput,
    MemoryStore,
    ModelDelta,
    ModelError,
    Runtime,
    ScriptedModel,
    SqliteStore,
    StoreError,
    TurnFailed,
    agent_spec,
    call,
    fail,
    say,
    tool,
)
from quiesce.actors.kernel import (
    ActorSystem,
    ChildNotFoundError,
    SelfWaitError,
    Supervisor,
    SystemStoppedError,
    host_in_asyncio,
    host_on_thread,
)
from quiesce.protocol.errors import SessionHeld, SessionNotFound
from quiesce.protocol.events import Event, text_of
from quiesce.protocol.model import TextDelta

# --- the hosts ---------------------------------------------------------------------------------------------------


class InTrio:
    """A Trio program."""

    def run(self, scenario, store):
        async def main():
            with trio.fail_after(60):
                async with Runtime.open(store) as runtime:
                    await scenario(self, runtime)

        trio.run(main)

    async def do(self, method, *args, **kwargs):
        return await method(*args, **kwargs)

    async def wait(self, reply):
        return await reply

    async def on_trio(self, function, *args):
        return await function(*args)

    async def take(self, runtime, stream, number=None):
        """The next items of a stream; all of them without a `number`."""
        taken = []
        async with aclosing(stream):
            while number is None or len(taken) < number:
                try:
                    taken.append(await anext(stream))
                except StopAsyncIteration:
                    break
        return taken


class InAsyncio(InTrio):
    """An asyncio program."""

    def run(self, scenario, store):
        async def main():
            async with asyncio.timeout(60):
                async with Runtime.in_asyncio(store) as self.runtime:
                    await scenario(self, self.runtime)
                assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    async def on_trio(self, function, *args):
        return await self.runtime.run(function, *args)


class OnThread:
    """A program of plain threads."""

    def run(self, scenario, store):
        before = set(threading.enumerate())
        with Runtime.on_thread(store) as self.runtime, pytest.raises(StopIteration):
            scenario(self, self.runtime).send(None)
        assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("actors")]

    async def do(self, method, *args, **kwargs):
        return self.runtime.run(method, *args, **kwargs).get(timeout=60)

    async def wait(self, reply):
        return reply.get(timeout=60)

    on_trio = do

    async def take(self, runtime, stream, number=None):
        """The next items of a stream; all of them without a `number`."""
        taken = []
        for item in runtime.iterate(stream) if number != 0 else ():
            taken.append(item)
            if len(taken) == number:
                break
        return taken


HOSTS = [InTrio, InAsyncio, OnThread]
STORES = {"memory": lambda path: MemoryStore(), "sqlite": lambda path: path / "agents.db"}


@pytest.fixture(params=HOSTS, ids=lambda host: host.__name__)
def host(request):
    """Each of the hosts."""
    return request.param()


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    """A new store of each kind, as `Runtime.open` takes it."""
    return STORES[request.param](tmp_path)


def in_asyncio(main):
    """Run a test in asyncio, with an end to it should it hang."""

    async def limited():
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(limited())


async def go_on(model):
    """Let a stalled model go on, from Trio."""
    model.go_on.set()


async def until_stalled(model):
    """Wait in Trio until a model stalls."""
    await model.stalled.wait()


async def until(condition):
    """Let both loops go on until something holds that no event tells of."""
    while not condition():  # noqa: ASYNC110  # see there
        await asyncio.sleep(0)


# --- every method, from every host -------------------------------------------------------------------------------


def test_an_agent_is_opened_sent_to_and_read(host, store, agents):
    async def scenario(host, runtime):
        model = ScriptedModel([say("one"), say("two")])
        agent = await host.do(runtime.agent, "s", model=model)
        assert await host.do(agent.wait) is None
        turn = await host.do(agent.send, "1")
        assert (turn.number, str(turn.reason), turn.text) == (1, "completed", "one")
        receipt = await host.do(agent.follow_up, "2")
        assert (await host.wait(receipt.turn)).text == "two"
        assert (await host.do(agent.wait)).text == "two"
        said = [message.content[0].text for message in await host.do(agent.history)]
        assert said == ["1", "one", "2", "two"]
        assert (await host.do(agent.statistics)).batches == 0
        await host.on_trio(agents.check_all, runtime.store, model)

    host.run(scenario, store)


def test_input_reaches_the_running_turn(host, store, agents):
    async def scenario(host, runtime):
        model = agents.StallingModel([say("one"), say("two")])
        agent = await host.do(runtime.agent, "s", model=model)
        receipt = await host.do(agent.follow_up, "first")
        await host.on_trio(until_stalled, model)
        await host.do(agent.inject, "injected")
        await host.do(agent.steer, "steered")
        await host.on_trio(go_on, model)
        turn = await host.wait(receipt.turn)
        assert (turn.text, turn.steps) == ("two", 2)
        assert agents.said(model.requests[1]) == ["first", "one", "injected", "steered"]
        await host.on_trio(agents.check_all, runtime.store, model)

    host.run(scenario, store)


def test_cancel_ends_the_running_turn(host, store, agents):
    async def scenario(host, runtime):
        model = agents.StallingModel([say("one"), say("two")])
        agent = await host.do(runtime.agent, "s", model=model)
        receipt = await host.do(agent.follow_up, "first")
        await host.on_trio(until_stalled, model)
        turn = await host.do(agent.cancel, "mine", keep_inbox=True)
        assert (str(turn.reason), turn.reason.cause) == ("aborted", "mine")
        assert await host.wait(receipt.turn) == turn
        await host.on_trio(go_on, model)
        assert (await host.do(agent.send, "again")).number == 2
        await host.on_trio(agents.check_all, runtime.store, model)

    host.run(scenario, store)


def test_sessions_are_forked_by_agents_and_by_the_runtime(host, store):
    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([say("one")]))
        await host.do(agent.send, "1")
        assert await host.do(agent.fork, "by agent") == "by agent"
        assert await host.do(runtime.fork, "s", "by runtime", at=2) == "by runtime"
        fork = await host.do(runtime.agent, "by agent", model=ScriptedModel([say("two")]))
        assert (await host.do(fork.send, "2")).number == 2
        sessions = await host.on_trio(runtime.store.list)
        assert [info.id for info in sessions] == ["s", "by agent", "by runtime"]

    host.run(scenario, store)


def test_events_are_read_from_the_log_and_as_they_come_until_the_agent_is_closed(host, store):
    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([say("one"), say("two")]))
        await host.do(agent.send, "1")
        events = agent.events()
        first = await host.on_trio(anext, events)
        await host.do(agent.send, "2")
        log = await host.on_trio(runtime.store.read, "s")
        await host.do(agent.close)
        assert [first, *await host.take(runtime, events)] == list(log)

    host.run(scenario, store)


def test_a_reader_of_events_may_begin_anywhere_and_leave_early(host, store):
    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([say("one"), say("two")]))
        await host.do(agent.send, "1")
        taken = await host.take(runtime, agent.events(2), 2)
        assert [event.seq for event in taken] == [2, 3]
        await host.do(agent.send, "2")
        assert len(agent._session._cell.actor._observers) == 1  # the driver
        with pytest.raises(InvalidInput, match="from_seq"):
            await host.take(runtime, agent.events(-1))

    host.run(scenario, store)


async def watched_turn(agent, tape):
    """What a watcher sees of a turn."""
    async with agent.watch() as happenings:
        await agent.follow_up("hi")
        async for what in happenings:
            match what:
                case ModelDelta(delta=TextDelta(text)):
                    tape.append(text)
                case Event(type="turn/end"):
                    return


WATCHERS = {
    "the loop of its system": lambda runtime, agent, tape: runtime.run(watched_turn, agent, tape).get(),
    "asyncio in another thread": lambda _, agent, tape: asyncio.run(watched_turn(agent, tape)),
    "Trio in another thread": lambda _, agent, tape: trio.run(watched_turn, agent, tape),
}


@pytest.mark.parametrize("watch", WATCHERS)
def test_an_agent_may_be_watched_from_any_loop_and_only_its_own_touches_what_it_tells(watch, store):
    class Spy:
        def __init__(self, told):
            self._told = told

        def __getattr__(self, name):
            if name in ("add", "remove"):
                touched[name] = threading.get_ident()
            return getattr(self._told, name)

    touched, tape = {}, []
    with Runtime.on_thread(store) as runtime:
        agent = runtime.run(runtime.agent, "s", model=ScriptedModel([say("fine")])).get()
        agent._watchers = Spy(agent._watchers)
        WATCHERS[watch](runtime, agent, tape)
        runtime.run(agent.close).get()
        home = runtime._system.thread
    assert "".join(tape) == "fine"
    assert touched == {"add": home, "remove": home}


def test_an_agent_may_be_watched_from_an_asyncio_program(store):
    async def main():
        async with Runtime.in_asyncio(store) as runtime:
            agent = await runtime.agent("s", model=ScriptedModel([say("fine")]))
            await watched_turn(agent, tape)
            await runtime.run(wait_all_tasks_blocked)
            assert agent._watchers._told == []

    tape = []
    asyncio.run(main())
    assert "".join(tape) == "fine"


def test_a_runtime_for_trio_that_asyncio_enters_says_what_to_enter_there(tmp_path):
    async def main():
        with pytest.raises(RuntimeError, match=r"Runtime\.in_asyncio\(\)"):
            async with Runtime.open(tmp_path / "agents.db"):
                pass

    asyncio.run(main())
    assert not list(tmp_path.iterdir())


def test_a_closed_agent_says_so_and_closing_it_again_does_nothing(host, store):
    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([]))
        await host.do(agent.close)
        await host.do(agent.close)
        assert not agent.is_alive()
        for method in (agent.wait, agent.history, agent.statistics, agent.cancel):
            with pytest.raises(ActorDeadError):
                await host.do(method)
        with pytest.raises(ActorDeadError):
            await host.do(agent.send, "late")
        assert (await host.on_trio(runtime.store.info, "s")).holder is None
        kept.append(agent)

    kept = []
    host.run(scenario, store)
    with pytest.raises(SystemStoppedError):
        asyncio.run(kept[0].history())
    asyncio.run(kept[0].close())
    trio.run(kept[0].close)


def test_errors_arrive_as_themselves(host, store):
    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([fail(ValueError("no model"))]))
        with pytest.raises(TurnFailed) as caught:
            await host.do(agent.send, "1")
        assert caught.value.turn.number == 1
        assert isinstance(caught.value.__cause__, ModelError)
        with pytest.raises(InvalidInput, match="content"):
            await host.do(agent.send, "")
        with pytest.raises(InvalidInput, match="open in this runtime"):
            await host.do(runtime.agent, "s", model=ScriptedModel([]))
        with pytest.raises(InvalidInput, match="max_steps"):
            await host.do(runtime.agent, "t", model=ScriptedModel([]), max_steps=0)
        with pytest.raises(SessionNotFound):
            await host.do(runtime.fork, "none")
        held = await host.on_trio(runtime.store.open, "held")
        with pytest.raises(SessionHeld):
            await host.do(runtime.agent, "held", model=ScriptedModel([]))
        await host.on_trio(held.release)

    host.run(scenario, store)


def test_a_store_that_cannot_be_opened_is_told_by_every_host(host, tmp_path):
    async def scenario(host, runtime):
        pytest.fail("it was opened")

    (tmp_path / "notes.txt").write_text("these are my notes")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        host.run(scenario, tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match="store"):
        host.run(scenario, 5)


def test_tools_run_on_trio_and_may_use_their_agent_but_not_wait_for_their_turn(host, store):
    ran = []

    @tool
    async def look() -> str:
        """Looks around."""
        ran.append(sniffio.current_async_library())
        await trio.lowlevel.checkpoint()
        await agents[0].inject("from the tool")
        for method in (agents[0].wait, agents[0].close, agents[0].cancel):
            with pytest.raises(SelfWaitError):
                await method()
        return "looked"

    async def scenario(host, runtime):
        model = ScriptedModel([say("", call(look)), say("done")])
        agents.append(await host.do(runtime.agent, "s", model=model, tools=[look]))
        assert (await host.do(agents[0].send, "1")).text == "done"

    agents = []
    host.run(scenario, store)
    assert ran == ["trio"]


def test_a_tool_in_a_worker_thread_uses_its_agent_by_way_of_its_own_task(host, store):
    @tool
    def look() -> str:
        """Looks around."""
        trio.from_thread.run(agents[0].inject, "from the tool")
        with pytest.raises(SelfWaitError):
            trio.from_thread.run(agents[0].wait)
        return "looked"

    async def scenario(host, runtime):
        model = ScriptedModel([say("", call(look)), say("done")])
        agents.append(await host.do(runtime.agent, "s", model=model, tools=[look]))
        assert (await host.do(agents[0].send, "1")).text == "done"
        assert "from the tool" in [text_of(message.content) for message in await host.do(agents[0].history)]

    agents = []
    host.run(scenario, store)


@pytest.mark.parametrize("host", HOSTS[1:], indirect=False, ids=lambda host: host.__name__)
def test_an_agent_in_a_tree_of_ones_own_is_used_from_every_host(host, tmp_path):
    host, system = host(), ActorSystem()

    @asynccontextmanager
    async def life():
        async with SqliteStore(tmp_path / "agents.db") as store, system:
            yield await system.spawn(Supervisor, [agent_spec("s", store=store, model=ScriptedModel([say("one")]))])

    async def scenario(tree):
        host.runtime = system
        agent = await host.do(Agent.of, tree, "s")
        assert (await host.do(agent.send, "1")).text == "one"
        assert await host.do(agent.fork, "forked") == "forked"
        with pytest.raises(ChildNotFoundError):
            await host.do(Agent.of, tree, "other")
        await host.do(agent.close)

    async def main():
        async with host_in_asyncio(system, life()) as tree:
            await scenario(tree)

    if isinstance(host, InAsyncio):
        in_asyncio(main)
    else:
        with host_on_thread(system, life()) as tree, pytest.raises(StopIteration):
            scenario(tree).send(None)


# --- cancellation ------------------------------------------------------------------------------------------------


def test_cancelling_a_wait_in_asyncio_does_not_end_the_turn(store, agents):
    async def main():
        async with Runtime.in_asyncio(store) as runtime:
            model = agents.StallingModel([say("one")])
            agent = await runtime.agent("s", model=model)
            sending = asyncio.create_task(agent.send("1"))
            await runtime.run(until_stalled, model)
            waiting = asyncio.create_task(agent.wait())
            await asyncio.sleep(0)
            for task in (sending, waiting):
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            await runtime.run(go_on, model)
            assert (await agent.wait()).text == "one"

    in_asyncio(main)


def test_cancelling_a_wait_of_a_thread_does_not_end_the_turn(store, agents):
    with Runtime.on_thread(store) as runtime:
        model = agents.StallingModel([say("one")])
        agent = runtime.run(runtime.agent, "s", model=model).get()
        sending = runtime.run(agent.send, "1")
        runtime.run(until_stalled, model).get()
        sending.cancel()
        with pytest.raises(ActorDeadError):
            sending.get()
        runtime.run(go_on, model).get()
        assert runtime.run(agent.wait).get().text == "one"


def test_a_cancellation_at_each_step_of_opening_an_agent_leaves_nothing_open():
    async def main():
        opened = 0
        async with Runtime.in_asyncio(MemoryStore()) as runtime:
            for steps in range(60):
                task = asyncio.create_task(runtime.agent("s", model=ScriptedModel([])))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    opened += 1
                    await task.result().close()
                assert runtime._agents == {}, steps
                assert all(info.holder is None for info in await runtime.run(runtime.store.list)), steps
        assert 0 < opened < 60

    in_asyncio(main)


def test_a_cancelled_close_in_asyncio_returns_when_nothing_of_the_agent_is_left(store, agents):
    async def main():
        async with Runtime.in_asyncio(store) as runtime:
            agent = await runtime.agent("s", model=agents.StallingModel([say("one")]))
            await agent.follow_up("1")
            closing = asyncio.create_task(agent.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
            assert not agent.is_alive()
            assert (await runtime.run(runtime.store.info, "s")).holder is None

    in_asyncio(main)


def test_cancelling_a_reader_of_events_in_asyncio_ends_that_reader_alone(store):
    async def main():
        async with Runtime.in_asyncio(store) as runtime:
            agent = await runtime.agent("s", model=ScriptedModel([say("one")]))
            seen, left = [], []

            async def read(into):
                async with aclosing(agent.events()) as events:
                    async for event in events:
                        into.append(event)

            stays, leaves = asyncio.create_task(read(seen)), asyncio.create_task(read(left))
            await until(lambda: len(agent._session._cell.actor._observers) == 3)
            leaves.cancel()
            await asyncio.wait([leaves])
            await agent.send("1")
            log = await runtime.run(runtime.store.read, "s")
            await agent.close()
            await stays
            assert leaves.cancelled()
            assert (seen, left) == (list(log), [])

    in_asyncio(main)


def test_a_task_of_another_trio_loop_uses_a_runtime_on_a_thread(store, agents):
    async def main(runtime):
        model = agents.StallingModel([say("one")])
        agent = await runtime.agent("s", model=model)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.send, "1")
            await runtime.run(until_stalled, model)
            nursery.cancel_scope.cancel()
        await runtime.run(go_on, model)
        assert (await agent.wait()).text == "one"
        assert [event.seq async for event in agent.events() if event.seq < 3 or await agent.close()][:3] == [0, 1, 2]

    with Runtime.on_thread(store) as runtime:
        trio.run(main, runtime)


# --- the end -----------------------------------------------------------------------------------------------------


class Busy:
    """A tool that goes on until it is cancelled, in an agent whose log a later one finds open."""

    def __init__(self, path):
        self.path = path
        self.tape = []
        self.begun = threading.Event()
        self.on_begin = lambda: None

    def agent(self):
        @tool
        async def work() -> str:
            """Works for ever."""
            self.begun.set()
            self.on_begin()
            try:
                await trio.sleep_forever()
            finally:
                self.tape.append("cancelled")

        return {"model": ScriptedModel([say("", call(work)), say("again")]), "tools": [work]}

    def check(self, agents):
        """Nothing is left but a log that can be gone on with, in which the tool has not been run again."""
        assert self.tape == ["cancelled"]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("actors: quiesce")]

        async def main():
            async with Runtime.open(self.path) as runtime:
                agent = await runtime.agent("s", model=ScriptedModel([say("again")]))
                assert (await agent.send("go on")).text == "again"
                await agents.check_session(runtime.store, "s")

        trio.run(main)
        assert self.tape == ["cancelled"]


@pytest.fixture
def busy(tmp_path):
    """A `Busy` on a file of its own."""
    return Busy(tmp_path / "agents.db")


async def host_busily(busy):
    """Host a runtime in asyncio, and do not leave it."""
    async with Runtime.in_asyncio(busy.path) as runtime:
        agent = await runtime.agent("s", **busy.agent())
        await agent.send("work")


def test_cancelling_the_hosting_task_stops_everything_and_leaves_the_log_resumable(busy, agents):
    async def main():
        task = asyncio.create_task(host_busily(busy))
        await until(busy.begun.is_set)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert busy.tape == ["cancelled"]
        assert not trio.lowlevel.in_trio_run()

    in_asyncio(main)
    busy.check(agents)


def test_the_end_of_asyncio_run_stops_a_runtime_that_another_task_hosts(busy, agents):
    async def main():
        keep.append(asyncio.create_task(host_busily(busy)))
        await until(busy.begun.is_set)

    keep = []
    in_asyncio(main)
    busy.check(agents)


def test_a_stopped_asyncio_loop_ends_the_runtime_when_its_tasks_are_cancelled(busy, agents):
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(host_busily(busy))
        busy.on_begin = loop.stop
        loop.run_forever()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()
    busy.check(agents)


def test_ctrl_c_in_asyncio_stops_everything_and_reaches_the_program(busy, agents):
    busy.on_begin = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        in_asyncio(lambda: host_busily(busy))
    busy.check(agents)


def test_ctrl_c_on_the_thread_that_waits_stops_everything_and_reaches_the_program(busy, agents):
    busy.on_begin = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Runtime.on_thread(busy.path) as runtime:  # noqa: PT012  # the block is it
        agent = runtime.run(runtime.agent, "s", **busy.agent()).get()
        runtime.run(agent.send, "work").get()
    busy.check(agents)


def test_an_exception_in_the_block_of_a_thread_stops_everything_and_comes_out(busy, agents):
    with pytest.raises(KeyError, match="mine"), Runtime.on_thread(busy.path) as runtime:  # noqa: PT012
        agent = runtime.run(runtime.agent, "s", **busy.agent()).get()
        sending = runtime.run(agent.send, "work")
        busy.begun.wait()
        raise KeyError("mine")
    with pytest.raises((ActorDeadError, TurnFailed)):
        sending.get()
    busy.check(agents)


class Fatal(BaseException):
    pass


@pytest.mark.parametrize("host", HOSTS, indirect=False, ids=lambda host: host.__name__)
def test_what_is_no_exception_out_of_a_tool_reaches_the_host(host, store):
    @tool
    async def broken() -> str:
        """Raises what concerns the host."""
        raise Fatal

    async def scenario(host, runtime):
        agent = await host.do(runtime.agent, "s", model=ScriptedModel([say("", call(broken))]), tools=[broken])
        await host.do(agent.send, "1")

    with pytest.raises(Fatal):
        host().run(scenario, store)


def test_leaving_the_block_closes_the_agents_as_ever(busy, agents):
    with Runtime.on_thread(busy.path) as runtime:
        agent = runtime.run(runtime.agent, "s", **busy.agent()).get()
        sending = runtime.run(agent.send, "work")
        busy.begun.wait()
    assert str(sending.get().reason) == "aborted"
    busy.check(agents)


def test_two_runtimes_on_two_threads_share_a_file(tmp_path):
    path = tmp_path / "agents.db"

    def work(runtime, name):
        agent = runtime.run(runtime.agent, name, model=ScriptedModel([say(str(at)) for at in range(5)])).get()
        return [runtime.run(agent.send, "hi").get().text for _ in range(5)]

    with Runtime.on_thread(path) as one, Runtime.on_thread(path) as two, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, one, "one"), pool.submit(work, two, "two")]:
            assert future.result(60) == list("01234")
        with pytest.raises(SessionHeld):
            two.run(two.agent, "one", model=ScriptedModel([])).get()


def test_a_second_runtime_in_the_same_asyncio_thread_is_refused_and_one_beside_it_on_a_thread_is_not():
    async def main():
        async with Runtime.in_asyncio(MemoryStore()):
            with pytest.raises(RuntimeError, match="only once"):
                async with Runtime.in_asyncio(MemoryStore()):
                    pytest.fail("it was opened")
            with Runtime.on_thread(MemoryStore()) as runtime:
                agent = await runtime.agent("s", model=ScriptedModel([say("one")]))
                assert (await agent.send("1")).text == "one"

    in_asyncio(main)


def test_many_asyncio_tasks_use_many_agents_at_once(store):
    async def talk(runtime, name):
        agent = await runtime.agent(name, model=ScriptedModel([say("one"), say("two")]))
        return [(await agent.send(text)).text for text in "12"]

    async def main():
        async with Runtime.in_asyncio(store) as runtime:
            answers = await asyncio.gather(*(talk(runtime, f"s{number}") for number in range(20)))
            assert answers == [["one", "two"]] * 20

    in_asyncio(main)
