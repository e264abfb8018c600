"""An agent whose actors crash: at each message of each, before and after it is handled, in a turn with live tools."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import aclosing

import pytest
import trio
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import Agent, Ask, Hooks, MemoryStore, Runtime, ScriptedModel, agent_spec, call, say, tool
from quiesce.actors.kernel import (
    ActorSystem,
    ChildNotFoundError,
    DynamicSupervisor,
    StartChild,
    Supervisor,
    receive,
)
from quiesce.actors.kernel.receivers import _marked_methods
from quiesce.actors.scheduler import SchedulerActor
from quiesce.actors.session import ResumedSession, _Stored
from quiesce.actors.step_driver import StepDriverActor, _Delivered, _Sync
from quiesce.actors.watchdog import watchdog
from quiesce.protocol.errors import (
    InvalidInput,
    NoOpenQuestion,
    RecoveryFailed,
    SessionHeld,
    StoreFull,
    TurnFailed,
    UnreadableLog,
)
from quiesce.protocol.events import AssistantMessage, ToolCall, ToolResult, UserMessage, text_of
from quiesce.protocol.messages import (
    AbortCalls,
    Append,
    Cancel,
    CloseOpenTurn,
    Decide,
    Deliver,
    EventsCommitted,
    Quiesce,
    ReadHistory,
    ReadQuestions,
    ReadStatistics,
    RunCalls,
    SessionStopped,
    Subscribe,
    WhenIdle,
)

MESSAGES = {
    ResumedSession: (Append, CloseOpenTurn, ReadHistory, ReadQuestions, Subscribe, _Stored),
    SchedulerActor: (RunCalls, AbortCalls, Decide, Quiesce, ReadStatistics),
    StepDriverActor: (EventsCommitted, SessionStopped, _Sync, Deliver, _Delivered, Cancel, WhenIdle),
}
"""All that each of the three actors receives from the others and from its user."""
ABOUT_QUESTIONS = (Decide, ReadQuestions)
CASES = [
    pytest.param(actor, message, when, nth, id=f"{actor.__name__}-{message.__name__}-{when}-{nth}")
    for actor, messages in MESSAGES.items()
    for message in messages
    for when in ("before", "after")
    for nth in (1, 2, 3, 5, 8)
]


@pytest.mark.parametrize("actor", MESSAGES)
def test_no_message_that_an_actor_receives_is_missing_in_the_table(actor):
    assert set(MESSAGES[actor]) == set(_marked_methods(actor))


class Injected(Exception):  # noqa: N818 - it is on purpose, and no error
    """The crash."""


class Crash:
    """Crashes an actor of one class, once, at the `nth` message of a type since it was armed."""

    def __init__(self, actor, message, when, nth=1):
        self.actor, self.message, self.when, self.left = actor, message, when, nth
        self.armed = self.happened = False

    def actors(self):
        """The classes of the three actors, with the one in it that crashes."""
        return tuple(self._crashing() if cls is self.actor else cls for cls in MESSAGES)

    def _crashing(self):
        handler = self.actor._receivers.handler_of(self.message)

        @receive(self.message)
        def crashing(actor, message):
            self.left -= self.armed
            due = self.armed and self.left == 0
            if due and self.when == "before":
                raise self._crash(actor)
            answer = handler(actor, message)
            if due:
                self._crash(actor)
            return answer

        return type(self.actor.__name__, (self.actor,), {"crashing": crashing})

    def _crash(self, actor):
        self.happened = True
        failure = Injected(f"{self.when} {self.message.__name__}")
        actor._cell.crash(failure)
        return failure


class Work:
    """Tools of each kind, live until they may end; which calls ran, and a model that asks for them."""

    def __init__(self):
        self.ran = []
        self.gate, self.thread_gate = trio.Event(), threading.Event()
        self.tools = [tool(parallel=True)(self.task), tool(parallel=True)(self.thread), tool(self.alone)]
        self.model = ScriptedModel([self.answer] * 40)

    def let_go(self):
        self.gate.set()
        self.thread_gate.set()

    async def task(self, of: str) -> str:
        """Waits in a task."""
        self.ran.append(of)
        await self.gate.wait()
        return f"did {of}"

    def thread(self, of: str) -> str:
        """Blocks in a thread."""
        self.ran.append(of)
        self.thread_gate.wait()
        return f"did {of}"

    async def alone(self, of: str) -> str:
        """Runs alone."""
        self.ran.append(of)
        await trio.lowlevel.checkpoint()
        return f"did {of}"

    def answer(self, request):
        """Two steps of calls for "go", nothing but words for anything else."""
        asked = [text_of(said.content) for said in request.messages if isinstance(said, UserMessage)][-1]
        names = {1: ("task", "thread", "task"), 2: ("alone", "alone")}.get(request.step, ()) if asked == "go" else ()
        ids = [f"{request.turn}.{request.step}.{at}" for at in range(len(names))]
        return say("fine", *(call(name, call_id=of, of=of) for name, of in zip(names, ids, strict=True)))


class Asking(Hooks):
    """Has a person asked about the calls of "task", which wait beside the live call of "thread"."""

    async def prepare(self, call):
        return Ask("may it?") if call.name == "task" else None


ANSWERS = (Injected, ActorDeadError, TurnFailed, NoOpenQuestion)
"""What somebody may get who asks an agent for something while it crashes."""


async def outcome(ask, *args):
    """What somebody gets who asks for something: it ends, one way or the other."""
    try:
        return await ask(*args)
    except ANSWERS as failure:
        return failure


async def turn_of(agent, outcomes):
    receipt = await outcome(agent.follow_up, "go")
    outcomes.append(receipt if isinstance(receipt, ANSWERS) else await outcome(receipt_turn, receipt))


async def receipt_turn(receipt):
    return await receipt.turn


async def first_event(agent):
    async with aclosing(agent.events()) as events:
        return await anext(events)


async def decide(agent):
    """Approve one of the calls that wait for a person, deny the other, and look again."""
    questions = await outcome(agent.questions)
    if not isinstance(questions, ANSWERS):
        one, other = questions
        await outcome(agent.approve, one)
        await outcome(agent.deny, other, "not that one")
        await outcome(agent.questions)


async def use(agent, crash):
    """Ask for all that an agent can be asked for, so that each type of message is sent."""
    if crash.message is SessionStopped:
        agent._session._cell.crash(Injected("for the driver to hear of it"))
    if crash.message in (CloseOpenTurn, Quiesce):
        agent._driver._cell.crash(Injected("for the driver to be started again"))
    await outcome(agent.statistics)
    await outcome(agent.history)
    if crash.message in ABOUT_QUESTIONS:
        await decide(agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome, first_event, agent)
        if crash.message in (Cancel, AbortCalls):
            await outcome(agent.cancel)
        await outcome(agent.wait)
        nursery.cancel_scope.cancel()  # of a reader for whom no event comes


def assert_answered_honestly(log, ran):
    """Each call is answered once and in order, by a label that is true of it."""
    calls = [
        block.id for event in log if isinstance(event.body, AssistantMessage) for block in event.body.message.calls
    ]
    results = [event.body for event in log if isinstance(event.body, ToolResult)]
    recorded = {event.body.call_id for event in log if isinstance(event.body, ToolCall)}
    assert [result.message.tool_call_id for result in results] == calls
    assert len(ran) == len(set(ran)), "a tool ran twice"
    for result in results:
        call_id, code = result.message.tool_call_id, result.error.code if result.error else None
        assert code not in ("TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH") or call_id not in ran
        assert code != "TOOL_OUTCOME_UNKNOWN" or call_id in recorded
        assert code is not None or call_id in ran


@pytest.mark.parametrize(("actor", "message", "when", "nth"), CASES)
async def test_a_crash_at_any_message_leaves_a_sound_log_and_an_agent_that_goes_on(
    agents, monkeypatch, actor, message, when, nth
):
    watchdog()  # started here, so that it is not counted as left behind
    living = trio.lowlevel.current_statistics().tasks_living
    crash, work, outcomes = Crash(actor, message, when, nth), Work(), []
    with trio.fail_after(5):  # a net: nothing waits for ever
        async with Runtime.open(MemoryStore()) as runtime:
            other = await runtime.agent("other", model=ScriptedModel([say("untouched")] * 2))
            await other.send("hi")
            monkeypatch.setattr("quiesce.actors.supervised._ACTORS", crash.actors())
            hooks = [Asking()] if message in ABOUT_QUESTIONS else []
            agent = await runtime.agent("s", model=work.model, tools=work.tools, hooks=hooks)
            crash.armed = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn_of, agent, outcomes)
                await wait_all_tasks_blocked()
                nursery.start_soon(use, agent, crash)
                await wait_all_tasks_blocked()
                work.let_go()
            assert len(outcomes) == 1
            assert crash.happened or nth > 1
            crash.armed = False
            assert (await agent.send("again")).text == "fine"
            assert (await other.send("hi")).text == "untouched"
            assert {ref.incarnation for ref in (other._session, other._scheduler, other._driver)} == {1}
            await agents.check_all(runtime.store, work.model)
            assert_answered_honestly(await runtime.store.read("s"), work.ran)
    assert trio.lowlevel.current_statistics().tasks_living == living


# --- the waiter --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["session", "scheduler", "driver"])
async def test_whoever_waits_for_the_turn_gets_the_crash_as_the_cause(name):
    work, failure, caught = Work(), Injected("the cause"), []

    async def send(agent):
        with pytest.raises(ActorDeadError) as raised:
            await agent.send("go")
        caught.append(raised.value)

    async with Runtime.open(MemoryStore()) as runtime:
        agent = await runtime.agent("s", model=work.model, tools=work.tools)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, agent)
            await wait_all_tasks_blocked()
            getattr(agent, f"_{name}")._cell.crash(failure)
            work.let_go()
        cause = caught[0]
        while cause is not failure:
            cause = cause.__cause__
            assert cause is not None
        await wait_all_tasks_blocked()
        await agent.wait()
        assert_answered_honestly(await runtime.store.read("s"), work.ran)


async def test_queued_input_is_parked_by_a_restart_and_goes_along_with_the_next_waking_one(agents):
    work = Work()
    async with Runtime.open(MemoryStore()) as runtime:
        agent = await runtime.agent("s", model=work.model, tools=work.tools)
        await agent.follow_up("go")
        await agent.follow_up("later")
        await wait_all_tasks_blocked()
        agent._driver._cell.crash(Injected("a crash"))
        work.let_go()
        assert await agent.wait() is None
        assert [turn.number for turn in (await agent.send("now"), await agent.wait())] == [3, 3]
        said = [line for line in agents.timeline(await runtime.store.read("s")) if line.startswith("user")]
        assert said == ["user go", "user later", "user now"]


# --- giving up ---------------------------------------------------------------------------------------------------


async def assert_gave_up(agent, cause):
    """The agent is dead, and says why."""
    await wait_all_tasks_blocked()
    assert not agent.is_alive()
    with pytest.raises(ActorDeadError) as caught:
        await agent.send("hi")
    error = caught.value
    while not isinstance(error, cause):
        error = error.__cause__
        assert error is not None
    await agent.close()


async def test_a_session_whose_lease_was_taken_gives_up_and_takes_nobody_else_down(tmp_path):
    path = tmp_path / "agents.db"
    async with Runtime.open(path) as one, Runtime.open(path) as two:
        other = await one.agent("other", model=ScriptedModel([say("fine")]))
        agent = await one.agent("s", model=ScriptedModel([say("fine")]))
        thief = await two.agent("s", model=ScriptedModel([say("mine")]), takeover=True)
        agent._session._cell.crash(Injected("a crash"))
        await agent._tree.wait_stopped()
        await assert_gave_up(agent, SessionHeld)
        assert (await thief.send("hi")).text == "mine"
        assert (await other.send("hi")).text == "fine"


async def test_a_log_that_became_unreadable_ends_its_agent_with_that_cause(tmp_path):
    path = tmp_path / "agents.db"
    async with Runtime.open(path) as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("fine")]))
        await agent.send("hi")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE events SET line = 'no event' WHERE seq = 1")
        connection.close()
        agent._session._cell.crash(Injected("a crash"))
        await agent._tree.wait_stopped()
        await assert_gave_up(agent, UnreadableLog)
        assert (await runtime.store.info("s")).holder is None


async def test_a_full_disk_ends_its_agent_soon_and_the_session_is_repaired_when_there_is_room(agents):
    store = agents.SteppedStore()
    async with Runtime.open(store) as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("fine")]))
        store.refuse = lambda words: (
            None if "user hi" in words or words[0].startswith("queue") else StoreFull("no room")
        )
        with pytest.raises(RecoveryFailed):
            await agent.send("hi")
        await assert_gave_up(agent, StoreFull)
        assert len(store.submitted) < 10
        store.refuse = lambda _: None
        agent = await runtime.agent("s", model=ScriptedModel([say("fine")]))
        assert agents.timeline(await store.read("s"))[-1] == "end turn 1 interrupted"
        assert (await agent.send("again")).text == "fine"


# --- in a tree of one's own --------------------------------------------------------------------------------------


async def test_an_agent_can_be_put_under_any_supervisor():
    async with MemoryStore() as store, ActorSystem() as system:
        spec = agent_spec("s", store=store, model=ScriptedModel([say("1"), say("2")]))
        tree = await system.spawn(Supervisor, [spec])
        agent = await Agent.of(tree, "s")
        assert (await agent.send("one")).text == "1"
        agent._session._cell.crash(Injected("a crash"))
        await wait_all_tasks_blocked()
        assert (await agent.send("two")).text == "2"
        with pytest.raises(ChildNotFoundError):
            await Agent.of(tree, "nobody")


async def test_an_agent_that_gave_up_is_started_again_by_the_supervisor_above_and_reached_by_a_new_handle():
    async with MemoryStore() as store, ActorSystem() as system:
        tree = await system.spawn(DynamicSupervisor)
        await tree.ask(StartChild(agent_spec("s", store=store, model=ScriptedModel([say("fine")]))))
        agent = await Agent.of(tree, "s")
        for _ in range(4):
            agent._session._cell.crash(Injected("a crash"))
            await wait_all_tasks_blocked()
        assert not agent.is_alive()
        assert (await (await Agent.of(tree, "s")).send("hi")).text == "fine"


async def test_an_agent_of_a_spec_that_is_closed_stays_down_and_frees_its_lease():
    async with MemoryStore() as store, ActorSystem() as system:
        tree = await system.spawn(Supervisor, [agent_spec("s", store=store, model=ScriptedModel([]))])
        await (await Agent.of(tree, "s")).close()
        await wait_all_tasks_blocked()
        assert (await store.info("s")).holder is None
        with pytest.raises(ChildNotFoundError):
            await Agent.of(tree, "s")


@pytest.mark.parametrize(("options", "name"), [({"store": 5}, "store"), ({"max_steps": 0}, "max_steps")])
def test_a_spec_that_cannot_be_is_refused_by_name(options, name):
    with pytest.raises(InvalidInput, match=name):
        agent_spec("s", **{"store": MemoryStore(), "model": ScriptedModel([]), **options})
