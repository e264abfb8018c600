"""G2: the scheduler answers a batch only when no body of it is live and no append of it outstanding.

All of it is read from one tape, on which bodies write when they begin and end, the store when it gets an append and
when it has told how that ended, and the receiver of the reply when it has it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress

import pytest
import trio
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import Hooks, Runtime, ScriptedModel, StoreError, ToolDenied, TurnFailed, call, say, tool
from quiesce.protocol.errors import RecoveryFailed
from quiesce.protocol.events import AssistantMessage, ToolResult, text_of
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.messages import CallsAborted, CallsCompleted, CallsRejected, Quiesce, Settled
from quiesce.protocol.rules import LogState, Phase, check


def unsettled(tape):
    """What is live or outstanding at the end of `tape`: bodies that have not ended, appends that nobody was told of."""
    count = Counter()
    for line in tape:
        word, _, what = line.partition(" ")
        count[_OPENS.get(word) or _CLOSES.get(word), what] += (word in _OPENS) - (word in _CLOSES)
    return sorted(f"{kind} {what}" for (kind, what), left in count.items() if kind and left)


_OPENS = {"submit": "append", "body": "body"}
_CLOSES = {"durable": "append", "refused": "append", "end": "body"}


def assert_quiescent(tape, mark="reply"):
    """Nothing was unsettled when `mark` came, and nothing of the batch came after it."""
    at = tape.index(mark)
    assert unsettled(tape[:at]) == []
    assert tape[at + 1 :] == []


# --- bodies that do not let go -----------------------------------------------------------------------------------


class Stubborn:
    """A tool whose body goes on until the test has it end, whatever happens to it; and a call of it."""

    def __init__(self, tape, plain_tool):
        self.tape = tape
        self.plain_tool = plain_tool
        self.began = trio.Event()
        self.may_end = trio.Event()
        self.call = call("stubborn", call_id="c0")

    async def has_begun(self):
        await self.began.wait()
        await wait_all_tasks_blocked()

    def end(self):
        self.may_end.set()

    @property
    def tool(self):
        async def stubborn(arguments):
            self.tape.append("body c0")
            self.began.set()
            try:
                return await self.body()
            finally:
                self.tape.append("end c0")

        return self.plain_tool(stubborn, parallel=True)

    async def body(self):
        raise NotImplementedError


class Shielding(Stubborn):
    async def body(self):
        with trio.CancelScope(shield=True):
            await self.may_end.wait()
        return "shielded"


class RaisingWhenCancelled(Stubborn):
    async def body(self):
        try:
            await self.may_end.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await self.may_end.wait()
            raise ValueError("tripped over the cancellation") from None
        return "in peace"


class OwningANursery(Stubborn):
    async def body(self):
        async with trio.open_nursery() as nursery:
            for child in ("first", "second"):
                nursery.start_soon(self.child, child)
        return "with children"

    async def child(self, name):
        self.tape.append(f"body {name}")
        try:
            with trio.CancelScope(shield=True):
                await self.may_end.wait()
        finally:
            self.tape.append(f"end {name}")


class InAThread(Stubborn):
    """The thread is released by an event that the loop knows nothing of."""

    def __init__(self, tape, plain_tool):
        super().__init__(tape, plain_tool)
        self.thread_began, self.thread_may_end = threading.Event(), threading.Event()

    async def has_begun(self):
        await trio.to_thread.run_sync(self.thread_began.wait)
        await wait_all_tasks_blocked()

    def end(self):
        self.thread_may_end.set()

    @property
    def tool(self):
        @tool(parallel=True, name="stubborn")
        def stubborn() -> str:
            self.tape.append("body c0")
            self.thread_began.set()
            self.thread_may_end.wait()
            self.tape.append("end c0")
            return "from a thread"

        return stubborn


KINDS = (Shielding, RaisingWhenCancelled, OwningANursery, InAThread)


class FailsOnDemand(Hooks):
    """`prepare` of call `last` waits for the test, and then fails the scheduler."""

    def __init__(self):
        self.now = trio.Event()

    async def prepare(self, call):
        if call.call_id == "last":
            await self.now.wait()
            raise OSError("the scheduler fails")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["completed", "aborted", "quiesced", "rejected", "rejected after the grace"])
async def test_g2_no_reply_while_a_body_is_live(bench, bodies, plain_tool, mock_clock, kind, how):
    body, failing = kind(bodies.tape, plain_tool), FailsOnDemand()
    calls = [body.call, *([bodies.share("last")] if "rejected" in how else [])]
    async with bench(body.tool, hooks=[failing], drain_grace=30) as it:
        reply = await it.start(*calls)
        await body.has_begun()
        if how == "aborted":
            it.abort()
        if how == "quiesced":
            it.scheduler.ask(Quiesce()).on_done(lambda _: it.tape.append("quiescent"))
        failing.now.set()
        await wait_all_tasks_blocked()
        if how == "rejected after the grace":
            mock_clock.jump(31)
        await wait_all_tasks_blocked()
        assert "reply" not in it.tape
        assert "quiescent" not in it.tape
        body.end()
        outcome = await reply
        await wait_all_tasks_blocked()
        if how == "quiesced":
            assert it.tape.pop() == "quiescent"
        assert_quiescent(it.tape)
    wanted = {"completed": CallsCompleted, "aborted": CallsAborted, "quiesced": CallsAborted}
    assert isinstance(outcome, wanted.get(how, CallsRejected))


@pytest.mark.parametrize("how", ["completed", "aborted", "rejected"])
@pytest.mark.parametrize("outstanding", ["call c0", "result c0"])
async def test_g2_no_reply_while_an_append_is_outstanding(bench, bodies, how, outstanding):
    failing = FailsOnDemand()
    calls = [bodies.share("c0", wait=True), *([bodies.share("last")] if how == "rejected" else [])]
    async with bench(hooks=[failing]) as it:
        reply = await it.start(*calls, held=outstanding == "call c0")
        await wait_all_tasks_blocked()
        it.store.held = True
        bodies.finish("c0")
        failing.now.set()
        if how == "aborted":
            it.abort()
        await wait_all_tasks_blocked()
        assert f"submit {outstanding}" in it.tape
        assert "reply" not in it.tape
        while not reply.done():
            it.store.let_go(hold=True)  # one round of appends after the other
            await wait_all_tasks_blocked()
        assert_quiescent(it.tape)


async def test_g2_no_reply_while_the_record_of_the_call_that_failed_is_outstanding(bench, bodies):
    failing = FailsOnDemand()
    failing.now.set()
    async with bench(hooks=[failing]) as it:
        reply = await it.start(bodies.share("last"), held=True)
        await wait_all_tasks_blocked()
        assert it.tape == ["submit call last"]
        it.store.let_go()
        assert isinstance(await reply, CallsRejected)
        assert_quiescent(it.tape)


async def test_g2_no_reply_while_finalize_looks_at_a_result(bench, bodies):
    may_end = trio.Event()

    class Looks(Hooks):
        async def finalize(self, call, outcome):
            await may_end.wait()

    async with bench(hooks=[Looks()]) as it:
        reply = await it.start(bodies.share("c0"))
        await wait_all_tasks_blocked()
        it.abort()
        await wait_all_tasks_blocked()
        assert not reply.done()
        may_end.set()
        await reply
        assert await it.answers() == ["did c0"]


async def test_g2_no_reply_while_a_prepare_that_shields_itself_goes_on(bench, bodies):
    may_end = trio.Event()

    class Shields(Hooks):
        async def prepare(self, call):
            with trio.CancelScope(shield=True):
                await may_end.wait()

    async with bench(hooks=[Shields()]) as it:
        reply = await it.start(bodies.share("c0"))
        await wait_all_tasks_blocked()
        it.abort()
        await wait_all_tasks_blocked()
        assert not reply.done()
        may_end.set()
        await reply
        assert await it.answers() == ["ABORTED_BEFORE_DISPATCH"]
    assert bodies.ran() == []


async def test_g2_refused_appends_are_settled_before_the_reply_as_well(bench, bodies):
    async with bench() as it:
        it.store.refuse["call c1"] = lambda: StoreError("full")
        outcome = await it.run(*(bodies.share(f"c{n}") for n in range(4)))
        assert isinstance(outcome, CallsRejected)
        assert_quiescent(it.tape)


# --- the grace of a failed batch ---------------------------------------------------------------------------------


async def test_live_bodies_go_on_during_the_grace_and_what_they_return_is_kept(bench, bodies, mock_clock):
    failing = FailsOnDemand()
    async with bench(hooks=[failing], drain_grace=30) as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("last"))
        failing.now.set()
        await wait_all_tasks_blocked()
        mock_clock.jump(29)
        await wait_all_tasks_blocked()
        assert "end c0" not in it.tape
        bodies.finish("c0")
        assert isinstance(await reply, CallsRejected)
        assert await it.answers() == ["did c0"]


async def test_g4_bodies_are_cancelled_after_the_grace_and_recovery_says_unknown(
    bodies, taped_store, plain_tool, autojump_clock
):
    failing = FailsOnDemand()
    failing.now.set()
    calls = bodies.share("c0", wait=True), bodies.share("last")
    async with Runtime.open(taped_store) as runtime:
        model = ScriptedModel([say("", *calls)])
        agent = await runtime.agent("s", model=model, tools=bodies.tools, hooks=[failing], drain_grace=30)
        began = trio.current_time()
        with pytest.raises(TurnFailed, match="the scheduler fails"):
            await agent.send("go")
        assert trio.current_time() - began == pytest.approx(30)
        results = [event.body for event in await taped_store.read("s") if isinstance(event.body, ToolResult)]
    assert bodies.ran() == ["c0"]
    assert [result.error.code for result in results] == ["TOOL_OUTCOME_UNKNOWN", "TOOL_OUTCOME_UNKNOWN"]


async def test_without_grace_live_bodies_are_cancelled_at_once(bench, bodies, mock_clock):
    failing = FailsOnDemand()
    async with bench(hooks=[failing], drain_grace=0) as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("last"))
        failing.now.set()
        await wait_all_tasks_blocked()
        assert reply.done()


async def test_g4_a_body_that_raises_when_the_grace_is_over_has_an_unknown_outcome_and_says_what_it_raised(
    bench, bodies, plain_tool, autojump_clock
):
    body, failing = RaisingWhenCancelled(bodies.tape, plain_tool), FailsOnDemand()
    async with bench(body.tool, hooks=[failing], drain_grace=30) as it:
        reply = await it.start(body.call, bodies.share("last"))
        await body.has_begun()
        failing.now.set()
        await trio.sleep(31)
        body.end()
        await reply
        assert await it.answers() == ["TOOL_OUTCOME_UNKNOWN"]
        assert "tripped over the cancellation" in text_of((await it.results())[0].message.content)


async def test_a_user_who_cancels_does_not_wait_for_the_grace(bench, bodies, mock_clock):
    failing = FailsOnDemand()
    async with bench(hooks=[failing], drain_grace=30) as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("last"))
        failing.now.set()
        await wait_all_tasks_blocked()
        assert not reply.done()
        it.abort()
        await wait_all_tasks_blocked()
        assert isinstance(await reply, CallsRejected)


async def test_g3_a_body_in_a_thread_outlasts_the_grace_and_its_result_is_kept(bench, bodies, plain_tool, mock_clock):
    body, failing = InAThread(bodies.tape, plain_tool), FailsOnDemand()
    async with bench(body.tool, hooks=[failing], drain_grace=30) as it:
        reply = await it.start(body.call, bodies.share("last"))
        await body.has_begun()
        failing.now.set()
        await wait_all_tasks_blocked()
        mock_clock.jump(31)
        await wait_all_tasks_blocked()
        body.end()
        await reply
        assert await it.answers() == ["from a thread"]


async def test_g4_a_call_that_never_started_before_an_abort_has_no_result_to_travel_in_the_reply(bench, bodies):
    class Fails(Hooks):
        async def finalize(self, call, outcome):
            raise OSError("finalize fails")

    async with bench(hooks=[Fails()], max_parallel=1) as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("c1"))
        await wait_all_tasks_blocked()
        it.abort()
        outcome = await reply
        assert outcome.settled == ()
        assert await it.order() == ["call c0"]


async def test_g3_what_is_settled_behind_a_gap_travels_in_the_reply(bench, bodies):
    class Fails(Hooks):
        async def finalize(self, call, outcome):
            if call.call_id == "c0":
                raise OSError("finalize fails")

    async with bench(hooks=[Fails()]) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(3)))
        await wait_all_tasks_blocked()
        bodies.finish("c2")
        await wait_all_tasks_blocked()
        bodies.finish("c0")
        await wait_all_tasks_blocked()
        bodies.finish("c1")
        outcome = await reply
        assert [type(item) for item in outcome.settled] == [Settled, Settled]
        found = [(item.index, text_of(item.body.message.content)) for item in outcome.settled]
        assert found == [(1, "did c1"), (2, "did c2")]
        assert await it.answers() == []


# --- all of it at once -------------------------------------------------------------------------------------------


class Chaos(Hooks):
    """A turn in which tools, hooks, store and user do what chance has them do, and what is known of it afterwards."""

    def __init__(self, seed, tape, plain_tool):
        self.random = random.Random(seed)
        self.tape = tape
        self.returned = {}
        self.passed = {}
        self.size = self.random.randint(1, 9)
        self.pool = self.random.choice([1, 2, 3, 10])
        self.trouble = self.random.choice([0, 0.05, 0.2])
        self.tools = [
            plain_tool(self.body, parallel=lambda _: self.random.random() < 0.8),
            plain_tool(self.brief, parallel=True, timeout=1.5),
        ]
        self.calls = [
            call(self.random.choice(["body", "body", "brief", "nowhere"]), call_id=f"c{n}", n=n)
            for n in range(self.size)
        ]

    def happens(self, chance):
        return self.random.random() < chance

    async def body(self, arguments):
        n = arguments["n"]
        self.tape.append(f"body c{n}")
        try:
            with trio.CancelScope(shield=self.happens(0.2)):
                await trio.sleep(self.random.choice([0, 0, 0.3, 1, 2]))
            if self.happens(0.1):
                raise ValueError("a tool may fail")
            self.returned[n] = f"what {n} returned"
            return self.returned[n]
        finally:
            self.tape.append(f"end c{n}")

    async def brief(self, arguments):
        return await self.body(arguments)

    async def prepare(self, call):
        await trio.sleep(self.random.choice([0, 0, 0.2, 0.7]))
        if self.happens(0.1):
            raise ToolDenied("by chance")
        if self.happens(self.trouble):
            raise OSError("prepare")

    async def finalize(self, call, outcome):
        await trio.sleep(self.random.choice([0, 0, 0.2]))
        if self.happens(self.trouble):
            raise OSError("finalize")
        self.passed[call.index] = text_of(outcome.content)

    def calm_down(self, store):
        """From now on everything goes well."""
        self.trouble = 0
        store.let_go()
        store.refuse.clear()

    async def disturb(self, store, agent):
        """The store is slow and refuses something; the user loses patience."""
        if self.happens(self.trouble * 3):
            kind = self.random.choice(["call", "result"])
            store.refuse[f"{kind} c{self.random.randrange(self.size)}"] = lambda: StoreError("refused")
        patience = self.random.choice([1000, 1000, 0.1, 0.5, 1.4])
        while True:
            store.held = self.happens(0.5)
            await trio.sleep(0.1)
            store.let_go()
            patience -= 0.1
            if patience < 0:
                patience = 1000
                with suppress(ActorDeadError):  # the driver is gone when the log refuses to be closed
                    await agent.cancel()


@pytest.fixture
def repeatable(monkeypatch, seed):
    """Trio's own choices, of which task runs first, follow the seed as well."""
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr("trio._core._run._r", random.Random(seed))


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("seed", range(150))
async def test_g1_to_g5_and_g9_hold_whatever_happens(seed, taped_store, plain_tool, autojump_clock):
    chaos = Chaos(seed, taped_store.tape, plain_tool)
    model = ScriptedModel([say("", *chaos.calls), say("done"), say("fine")])
    options = {"model": model, "tools": chaos.tools, "hooks": [chaos], "max_parallel": chaos.pool, "drain_grace": 1}
    async with Runtime.open(taped_store) as runtime:
        agent = await runtime.agent("s", **options)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chaos.disturb, taped_store, agent)
            failed = await failure_of(agent.send("go"))
            nursery.cancel_scope.cancel()
        chaos.calm_down(taped_store)
        at = taped_store.tape.index("submit step/end")
        assert unsettled(tape_of_batch(taped_store.tape[:at])) == []
        if isinstance(failed, RecoveryFailed):  # the log is as a crash would leave it
            chaos.passed.clear()
            await agent.wait()  # for the driver that repairs it
        log = await taped_store.read("s")
        assert_closed(log)
        assert_honest(log, chaos)
        await agent.send("go on")
        assert sendable_problems(model.requests[-1].messages) == []


async def failure_of(turn):
    """The failure of a turn, if it fails, which is one of those that chance has in store (G5)."""
    failure = None
    try:
        await turn
    except TurnFailed as failed:
        failure = failed
    assert failure is None or str(failure.__cause__) in {"prepare", "finalize", "refused"}
    return failure


def tape_of_batch(tape):
    """The recovery results are submitted together with the end of the step."""
    while tape and tape[-1].startswith("submit result"):
        tape.pop()
    return tape


def assert_closed(log):
    """G1: all rules are kept, nothing is open, each call has its one result, in call order."""
    assert list(check(log)) == []
    state = LogState()
    for event in log:
        state.watch(event)
    assert state.phase is Phase.IDLE
    messages = [event.body.message for event in log if isinstance(event.body, AssistantMessage)]
    answered = [event.body.message.tool_call_id for event in log if isinstance(event.body, ToolResult)]
    assert answered == [made.id for message in messages for made in message.calls]


def assert_honest(log, chaos):
    """G3 and G4, against what bodies and `finalize` know."""
    for n, result in enumerate(event.body for event in log if isinstance(event.body, ToolResult)):
        code, text = result.error.code if result.error else None, text_of(result.message.content)
        if n in chaos.passed:
            assert text == chaos.passed[n]
        elif code is None:
            assert text == chaos.returned[n]
        if code in {"TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH", "TOOL_DENIED", "UNKNOWN_TOOL"}:
            assert f"body c{n}" not in chaos.tape
