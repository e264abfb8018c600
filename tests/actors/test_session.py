"""The session actor: what an append promises, who hears of it when, and what happens to the lease."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import MemoryStore, Runtime, ScriptedModel, Sources, SqliteStore, TurnFailed, call, say, tool
from quiesce.actors.kernel import ActorSystem, TrioActor, receive
from quiesce.actors.session import SessionActor, SessionState
from quiesce.protocol.errors import InvalidInput, LeaseLost, RuleBroken, SessionHeld, StoreError, StoreFull
from quiesce.protocol.events import Draft, ForeignBody, ToolCallBlock
from quiesce.protocol.messages import (
    Append,
    CloseOpenTurn,
    Committed,
    EventsCommitted,
    ReadHistory,
    SessionStopped,
    Subscribe,
)


class Bench:
    """A session, its store, and drafts in the words of `tests/logs.py`."""

    def __init__(self, store, ref, logs):
        self.store = store
        self.ref = ref
        self._logs = logs
        self._place = logs.Place()

    def append(self, *words):
        """Send one append; its reply."""
        return self.ref.ask(Append(tuple(self._logs.draft_of(word, self._place) for word in words)))

    async def stored(self):
        return self._logs.show(await self.store.read("s"))


@pytest.fixture
def session(logs, agents):
    """Opens a session in a system of its own, as a `Bench`."""

    @asynccontextmanager
    async def open_session(store=None, sources=None):
        async with store or agents.SteppedStore() as opened, ActorSystem() as system:
            state = SessionState.replay(await opened.read("s") if await opened.list() else ())
            writer = await opened.open("s")
            yield Bench(opened, await system.spawn(SessionActor, writer, state, sources or Sources()), logs)

    return open_session


class Hears:
    """An observer that notes what it is told, on a tape of its own or a shared one."""

    def __init__(self, tape=None):
        self.tape = [] if tape is None else tape

    def tell(self, message):
        self.tape.append("stopped" if isinstance(message, SessionStopped) else [event.seq for event in message.events])


# --- append ------------------------------------------------------------------------------------------------------


async def test_an_append_is_numbered_stored_and_answered_with_its_events(session):
    async with session() as it:
        committed = await it.append("turn", "step", "user:hi")
        assert [event.seq for event in committed.events] == [0, 1, 2]
        assert list(committed.events) == list(await it.store.read("s"))
        assert [event.seq for event in (await it.append("ask:a,b")).events] == [3]


async def test_an_append_that_breaks_a_rule_changes_nothing_and_names_the_rule(session):
    async with session() as it:
        await it.append("turn", "step", "ask:a,b")
        before = await it.stored()
        with pytest.raises(RuleBroken) as caught:
            await it.append("call:a", "call:b", "result:b")
        assert [item.rule for item in caught.value.breaks] == ["call-order"]
        assert await it.stored() == before
        await it.append("call:a", "call:b", "result:a", "result:b", "end-step", "end-turn")


async def test_g1_a_step_and_a_turn_are_not_closed_while_a_call_is_unanswered(session):
    async with session() as it:
        await it.append("turn", "step", "ask:a,b", "call:a", "result:a")
        with pytest.raises(RuleBroken, match="'b'"):
            await it.append("end-step")
        with pytest.raises(RuleBroken, match="'a' is answered already"):
            await it.append("unstarted:a")
        await it.append("unstarted:b", "end-step", "end-turn")


@pytest.mark.parametrize("unstorable", ["a\0b", "\ud800", float("nan"), -0.0, float("inf"), (1, 2), {1: 2}, object()])
async def test_what_is_not_storable_is_refused_and_changes_nothing(session, unstorable):
    async with session() as it:
        await it.append("turn")
        with pytest.raises(InvalidInput, match="data"):
            await it.ref.ask(Append((Draft(ForeignBody("x", {"deep": [unstorable]}), ignorable=True),)))
        assert await it.stored() == "turn"
        assert (await it.append("step")).events[0].seq == 1


async def test_one_draft_that_is_not_storable_takes_the_whole_append_along(session, logs):
    async with session() as it:
        with pytest.raises(InvalidInput):
            await it.ref.ask(Append((logs.draft_of("turn"), Draft(ForeignBody("x", {"bad": "\0"}), ignorable=True))))
        assert await it.stored() == ""
        await it.append("turn")


async def test_appends_may_be_pipelined(session):
    async with session() as it:
        it.store.holding = True
        replies = [it.append(word) for word in ("turn", "step", "ask:a", "call:a", "result:a", "end-step", "end-turn")]
        assert len(it.store.held) == 7
        assert not any(reply.done() for reply in replies)
        it.store.let_go()
        assert [(await reply).events[0].seq for reply in replies] == list(range(7))


async def test_an_append_is_checked_against_what_was_sent_before_it(session):
    async with session() as it:
        it.store.holding = True
        sent = it.append("turn")
        with pytest.raises(RuleBroken):
            await it.append("turn")
        it.store.let_go()
        await sent


async def test_appends_behind_a_failed_one_fail_with_its_error_and_the_session_goes_on(session):
    async with session() as it:
        await it.append("turn")
        it.store.refuse = lambda words: StoreFull("no room") if words == ["step 1.1"] else None
        it.store.holding = True
        replies = [it.append(word) for word in ("step", "user:hi", "ask:a", "call:a")]
        it.store.let_go()
        for reply in replies:
            with pytest.raises(StoreFull, match="no room"):
                await reply
        assert await it.stored() == "turn"
        it.store.refuse = lambda words: None
        it._place = it._logs.Place(1, 0)
        await it.append("step", "ask:a", "unstarted:a")
        assert await it.stored() == "turn step ask:a unstarted:a"


async def test_after_a_failure_a_new_append_succeeds_though_older_ones_are_still_being_refused(session):
    async with session() as it:
        refused = []
        it.store.refuse = lambda words: (
            StoreFull("no room") if not refused.append(words) and len(refused) == 1 else None
        )
        it.store.holding = True
        first, second = it.append("turn"), it.append("step")
        seen = []
        first.on_done(lambda _: seen.append(it.ref.ask(Append((it._logs.draft_of("turn"),)))))
        it.store.let_go()
        for reply in (first, second):
            with pytest.raises(StoreFull):
                await reply
        assert [event.seq for event in (await seen[0]).events] == [0]
        assert await it.stored() == "turn"


async def test_an_empty_append_waits_for_what_was_sent_before_it_and_stores_nothing(session):
    async with session() as it:
        assert await it.append() == Committed(())
        it.store.holding = True
        sent, empty = it.append("turn"), it.append()
        await wait_all_tasks_blocked()
        assert not empty.done()
        it.store.let_go()
        assert await empty == Committed(())
        assert sent.done()
        assert await it.stored() == "turn"


async def test_an_empty_append_is_answered_though_what_was_sent_before_it_fails(session):
    async with session() as it:
        it.store.refuse = lambda _: StoreFull("no room")
        it.store.holding = True
        sent, empty = it.append("turn"), it.append()
        it.store.let_go()
        assert await empty == Committed(())
        with pytest.raises(StoreFull):
            await sent


async def test_time_never_goes_backwards(session):
    times = iter([50, 20, 60, 10])
    async with session(sources=Sources(lambda: next(times))) as it:
        for words in (["turn"], ["step", "user:hi"], ["end-step"], ["end-turn"]):
            await it.append(*words)
        assert [event.time for event in await it.store.read("s")] == [50, 50, 50, 60, 60]


async def test_time_never_goes_backwards_across_a_restart(session):
    store = MemoryStore()
    for time in (50, 20):
        async with session(store, Sources(lambda time=time: time)) as it:
            await it.append("seed")
    async with store:
        assert [event.time for event in await store.read("s")] == [50, 50]


async def test_g7_what_was_acknowledged_is_in_the_store_when_it_is_acknowledged(logs, tmp_path):
    async with (
        SqliteStore(tmp_path / "a.db") as store,
        SqliteStore(tmp_path / "a.db") as other,
        ActorSystem() as system,
    ):
        ref = await system.spawn(SessionActor, await store.open("s"), SessionState(), Sources())
        for number in range(5):
            committed = await ref.ask(Append((logs.draft_of(f"user:{number}"),)))
            assert (await other.read("s"))[-1] == committed.events[0]


# --- observers ---------------------------------------------------------------------------------------------------


async def test_observers_are_told_before_the_appender_gets_its_reply(session):
    async with session() as it:
        tape = []
        await it.ref.ask(Subscribe(Hears(tape)))
        for word in ("turn", "step"):
            it.append(word).on_done(lambda reply: tape.append(f"reply {reply.get().events[0].seq}"))
        await it.append("user:hi")
        assert tape == [[0], "reply 0", [1], "reply 1", [2]]


async def test_observers_are_told_of_nothing_before_it_is_durable(session):
    async with session() as it:
        hears = Hears()
        await it.ref.ask(Subscribe(hears))
        it.store.holding = True
        sent = it.append("turn")
        await wait_all_tasks_blocked()
        assert hears.tape == []
        it.store.let_go()
        await sent
        assert hears.tape == [[0]]


async def test_observers_are_not_told_of_what_was_refused(session):
    async with session() as it:
        hears = Hears()
        await it.ref.ask(Subscribe(hears))
        it.store.refuse = lambda _: StoreFull("no room")
        with pytest.raises(StoreFull):
            await it.append("turn")
        assert hears.tape == []


async def test_a_subscription_says_from_where_on_the_observer_will_hear(session):
    async with session() as it:
        await it.append("turn", "step")
        it.store.holding = True
        on_its_way = it.append("user:hi")
        hears = Hears()
        assert await it.ref.ask(Subscribe(hears)) == 2
        it.store.let_go()
        await on_its_way
        assert hears.tape == [[2]]


async def test_an_observer_that_raises_is_dropped_and_harms_nobody(session):
    class Fails:
        told = 0

        def tell(self, _):
            self.told += 1
            raise ValueError("cannot hear")

    async with session() as it:
        fails, hears = Fails(), Hears()
        await it.ref.ask(Subscribe(fails))
        await it.ref.ask(Subscribe(hears))
        await it.append("turn")
        await it.append("step")
        assert (fails.told, hears.tape) == (1, [[0], [1]])


async def test_observers_are_told_when_no_event_will_follow(session):
    async with session() as it:
        hears = Hears()
        await it.ref.ask(Subscribe(hears))
        await it.append("turn")
        await it.ref.aclose()
        assert hears.tape == [[0], "stopped"]


async def test_an_actor_can_observe(session):
    class Observes(TrioActor):
        def __init__(self):
            super().__init__()
            self.seqs = []

        @receive(EventsCommitted)
        def committed(self, message):
            self.seqs += [event.seq for event in message.events]

        @receive(SessionStopped)
        def stopped(self, _):
            self.seqs.append("stopped")

    async with session() as it, ActorSystem() as system:
        observer = await system.spawn(Observes)
        await it.ref.ask(Subscribe(observer))
        await it.append("turn", "step")
        await it.ref.aclose()
        assert await observer.proxy().seqs == [0, 1, "stopped"]


# --- history and closing -----------------------------------------------------------------------------------------


async def test_the_history_is_what_is_committed(session):
    async with session() as it:
        await it.append("turn", "step", "user:hi")
        it.store.holding = True
        on_its_way = it.append("ask:a")
        view = await it.ref.ask(ReadHistory())
        assert ([entry.seq for entry in view.entries], view.turn) == ([2], 1)
        it.store.let_go()
        await on_its_way
        assert [entry.seq for entry in (await it.ref.ask(ReadHistory())).entries] == [2, 3]


async def test_a_history_that_was_read_does_not_change(session):
    async with session() as it:
        await it.append("splice:a")
        view = await it.ref.ask(ReadHistory())
        await it.append("turn", "step", "user:hi", "splice:b,c")
        assert len(view.entries) == 0
        assert len(view.inbox) == 1


@pytest.mark.parametrize(
    ("log", "closers"),
    [
        ("turn", "end-turn:interrupted"),
        ("turn step", "end-step end-turn:interrupted"),
        ("turn step ask:a,b call:a", "unknown:a unstarted:b end-step end-turn:interrupted"),
        ("turn step ask:a call:a result:a end-step", "end-turn:interrupted"),
    ],
)
async def test_an_open_turn_is_closed_once(session, log, closers):
    async with session(sources=Sources(lambda: 99)) as it:
        await it.append(*log.split())
        assert len((await it.ref.ask(CloseOpenTurn("interrupted"))).events) == len(closers.split())
        assert (await it.stored()).endswith(closers)
        assert await it.ref.ask(CloseOpenTurn("interrupted")) == Committed(())
        await it.append("turn")


async def test_the_closers_carry_the_time_of_the_last_event(session):
    store, times = MemoryStore(), iter([7, 1000])
    async with session(store, Sources(lambda: next(times))) as it:
        await it.append("turn", "step")
        await it.ref.ask(CloseOpenTurn("interrupted"))
        assert {event.time for event in await it.store.read("s")} == {7}


async def test_a_session_with_no_open_turn_has_nothing_to_close(session):
    async with session() as it:
        await it.append("turn", "end-turn")
        assert await it.ref.ask(CloseOpenTurn("forked")) == Committed(())
        assert await it.stored() == "turn end-turn:completed"


# --- the lease ---------------------------------------------------------------------------------------------------


@pytest.fixture
def two_stores(tmp_path):
    """Two ways to one store, as two processes would have them."""
    return SqliteStore(tmp_path / "shared.db"), SqliteStore(tmp_path / "shared.db")


async def test_g8_a_second_writer_of_one_session_is_refused(two_stores):
    async with Runtime.open(two_stores[0]) as one, Runtime.open(two_stores[1]) as two:
        await one.agent("s", model=ScriptedModel([]))
        with pytest.raises(SessionHeld, match="'s'"):
            await two.agent("s", model=ScriptedModel([]))


async def test_g8_after_a_takeover_the_first_writer_can_append_no_more(two_stores):
    async with Runtime.open(two_stores[0]) as one, Runtime.open(two_stores[1]) as two:
        first = await one.agent("s", model=ScriptedModel([say("first")]))
        await first.send("one")
        second = await two.agent("s", model=ScriptedModel([say("second")]), takeover=True)
        with pytest.raises(LeaseLost):
            await first.send("two")
        assert (await second.send("three")).number == 2
        texts = [message.content[0].text for message in await second.history()]
        assert texts == ["one", "first", "three", "second"]


async def test_g8_a_takeover_in_the_middle_of_a_turn_keeps_the_first_writer_from_running_another_tool(two_stores):
    ran, gate, running = [], trio.Event(), trio.Event()

    @tool
    async def step(of: str) -> str:
        """Notes that it ran, and waits."""
        ran.append(of)
        running.set()
        await gate.wait()
        return of

    script = [say("", *(call(step, call_id=name, of=name) for name in ("c1", "c2", "c3"))), say("unwanted")]
    async with Runtime.open(two_stores[0]) as one, Runtime.open(two_stores[1]) as two:
        first = await one.agent("s", model=ScriptedModel(script), tools=[step])
        receipt = await first.follow_up("go")
        await running.wait()
        second = await two.agent("s", model=ScriptedModel([say("mine now")]), tools=[step], takeover=True)
        gate.set()
        with pytest.raises(TurnFailed) as caught:
            await receipt.turn
        assert isinstance(caught.value.__cause__, LeaseLost)
        assert (await second.send("go on")).text == "mine now"
        assert ran == ["c1"]
        codes = [event.body.error.code for event in await two.store.read("s") if event.type == "tool/result"]
        assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]
        await first._tree.wait_stopped()
        assert not first.is_alive()


async def test_g8_a_takeover_by_another_runtime_of_the_same_store_fences_as_well():
    store = MemoryStore()
    async with Runtime.open(store) as one, Runtime.open(store) as two:
        first = await one.agent("s", model=ScriptedModel([]))
        await two.agent("s", model=ScriptedModel([]), takeover=True)
        with pytest.raises(LeaseLost):
            await first.inject("late")


async def test_closing_a_fenced_agent_leaves_the_lease_to_its_new_owner(two_stores):
    async with Runtime.open(two_stores[0]) as one, Runtime.open(two_stores[1]) as two:
        first = await one.agent("s", model=ScriptedModel([]))
        second = await two.agent("s", model=ScriptedModel([say("hello")]), takeover=True)
        await first.close()
        assert (await second.send("hi")).text == "hello"


async def test_the_lease_is_given_back_when_the_session_stops(session):
    store = MemoryStore()
    async with session(store) as it:
        await it.ref.aclose()
        await store.open("s")


async def test_the_lease_is_given_back_when_the_session_crashes(session):
    store = MemoryStore()
    async with session(store) as it:
        it.ref._cell.actor._state = None
        it.ref.tell(ReadHistory())
        await it.ref.wait_stopped()
        await store.open("s")


async def test_what_was_handed_over_before_the_session_stopped_is_stored(session):
    async with session() as it:
        it.store.holding = True
        sent = it.append("turn")
        it.ref.stop(block=False)
        await wait_all_tasks_blocked()
        with pytest.raises(ActorDeadError):
            await sent
        assert await it.stored() == "turn"


async def test_an_append_after_the_store_was_closed_is_refused(logs):
    store = MemoryStore()
    async with ActorSystem() as system:
        async with store:
            ref = await system.spawn(SessionActor, await store.open("s"), SessionState(), Sources())
        with pytest.raises(StoreError, match="not open"):
            await ref.ask(Append((logs.draft_of("turn"),)))


async def test_replaying_a_log_gives_the_state_that_writing_it_left(session, logs):
    async with session() as it:
        for words in ("splice:x", "turn", "step", "user:x", "ask:a,b", "call:a", "call:b", "result:a"):
            await it.append(words)
        replayed = SessionState.replay(await it.store.read("s"))
        assert replayed == it.ref._cell.actor._state
        assert [pending.call_id for pending in replayed.log.pending] == ["b"]
        assert replayed.log.calls[0] == ToolCallBlock("a", logs.NAME, logs.ARGUMENTS)
