"""Calls that wait for a person: who is asked what, what runs meanwhile, what a restart, a cancel or a crash does."""

from __future__ import annotations

from collections import defaultdict
from contextlib import aclosing, asynccontextmanager

import pytest
import trio
from attrs import evolve
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import (
    AlreadyDecided,
    Ask,
    Hooks,
    InvalidInput,
    MemoryStore,
    NoOpenQuestion,
    Result,
    ToolDenied,
    TurnFailed,
    call,
    say,
    tool,
)
from quiesce.protocol.approvals import Question
from quiesce.protocol.errors import StoreFull
from quiesce.protocol.events import ApprovalDecided, ApprovalRequested, ToolCallBlock, ToolResult, text_of
from quiesce.protocol.rules import check


class Bodies:
    """Two tools, `share` (parallel) and `alone`: which calls ran, with what; each waits until it may `finish`."""

    def __init__(self):
        self.ran = []
        self.notes = []
        self.gates = defaultdict(trio.Event)
        self.tools = [tool(parallel=True)(self.share), tool(self.alone)]

    async def share(self, of: str, *, wait: bool = False, note: str = "") -> str:
        """Runs beside others."""
        return await self._run(of, wait=wait, note=note)

    async def alone(self, of: str, *, wait: bool = False, note: str = "") -> str:
        """Runs alone."""
        return await self._run(of, wait=wait, note=note)

    async def _run(self, of, *, wait, note):
        self.ran.append(of)
        self.notes.append(note)
        if wait:
            await self.gates[of].wait()
        return f"did {of}"

    def finish(self, *labels):
        for label in labels:
            self.gates[label].set()


class AskAbout(Hooks):
    """Asks about the calls of these labels."""

    def __init__(self, *labels):
        self.labels = labels
        self.seen = []

    async def prepare(self, call):
        self.seen.append(call.call_id)
        return Ask(f"run {call.call_id}?", detail={"risk": 1}) if call.call_id in self.labels else None


def share(label, **arguments):
    return call("share", call_id=label, of=label, **arguments)


def alone(label, **arguments):
    return call("alone", call_id=label, of=label, **arguments)


@pytest.fixture
def bodies():
    return Bodies()


@pytest.fixture
def asking(agents, bodies):
    """`asking(calls, "b", ...)`: an agent that makes these calls, has people asked about those labels, and says bye."""

    @asynccontextmanager
    async def at_work(calls, *labels, hooks=(), **options):
        script = [say("on it", *calls), say("bye"), say("bye again")]
        chain = [AskAbout(*labels), *hooks]
        options = {"tools": bodies.tools, **options}
        async with agents.at_work(script, hooks=chain, **options) as desk:
            desk.receipt = await desk.agent.follow_up("go")
            await wait_all_tasks_blocked()
            yield desk

    return at_work


@pytest.fixture
def reopened(agents, bodies):
    """The session `s` of a store opened again, in a runtime of its own: as after a restart."""

    @asynccontextmanager
    async def at_work(store, *, labels=(), **options):
        options = {"tools": bodies.tools, "hooks": [AskAbout(*labels)], **options}
        async with agents.at_work([say("bye"), say("bye again")], store=store, **options) as desk:
            await wait_all_tasks_blocked()
            yield desk

    return at_work


async def crash(desk):
    """End the agent's actors as a killed process would: nothing more is written."""
    await desk.agent._tree.stop(block=False, now=True)
    await wait_all_tasks_blocked()
    await desk.agent.close()


async def keys(agent):
    return [question.key for question in await agent.questions()]


async def answers(desk):
    """What each result in the log says: its code if it is an error, else its text."""
    bodies = [event.body for event in await desk.log() if isinstance(event.body, ToolResult)]
    return [body.error.code if body.error else text_of(body.message.content) for body in bodies]


# --- the question ------------------------------------------------------------------------------------------------


async def test_a_call_that_a_hook_asks_about_does_not_run_before_it_is_approved(asking, bodies):
    async with asking([alone("a")], "a") as desk:
        assert bodies.ran == []
        await desk.agent.approve((await desk.agent.questions())[0])
        turn = await desk.receipt.turn
        assert (str(turn.reason), turn.text, bodies.ran) == ("completed", "bye", ["a"])


async def test_the_question_and_the_decision_are_durable_events_of_the_call(asking):
    async with asking([alone("a")], "a") as desk:
        await desk.agent.approve((1, 1, 0))
        await desk.receipt.turn
        order = await desk.timeline("call", "ask", "approve", "result")
        assert order == ["call a", "ask a", "approve a", "result a did a"]
        asked, decided = [e.body for e in await desk.log() if isinstance(e.body, (ApprovalRequested, ApprovalDecided))]
        assert asked == ApprovalRequested(1, 1, 0, "a", "alone", {"of": "a"}, "run a?", {"risk": 1})
        assert decided == ApprovalDecided(1, 1, 0, "a", approved=True)


async def test_questions_are_the_calls_that_wait_in_call_order(asking):
    async with asking([share("a"), share("b"), share("c")], "a", "c") as desk:
        first, second = await desk.agent.questions()
        assert first == Question(1, 1, 0, "a", "share", {"of": "a"}, "run a?", {"risk": 1})
        assert (second.key, second.text) == ((1, 1, 2), "run c?")


async def test_subscribers_see_the_question_and_the_decision(asking):
    async with asking([alone("a")], "a") as desk:
        seen = []
        async with aclosing(desk.agent.events()) as events:
            async for event in events:
                seen.append(event.type)
                if event.type == "approval/requested":
                    await desk.agent.approve((event.body.turn, event.body.step, event.body.index))
                if event.type == "turn/end":
                    break
        assert [kind for kind in seen if kind.startswith(("tool/", "approval/"))] == [
            "tool/call",
            "approval/requested",
            "approval/decided",
            "tool/result",
        ]


async def test_a_denied_call_is_answered_with_the_reason_and_its_body_does_not_run(asking, bodies):
    async with asking([alone("a"), alone("b")], "a") as desk:
        await desk.agent.deny((1, 1, 0), "too expensive")
        assert str((await desk.receipt.turn).reason) == "completed"
        assert await answers(desk) == ["TOOL_DENIED", "did b"]
        said = [text_of(message.content) for message in desk.model.requests[-1].messages]
        assert "The call was denied: too expensive" in said
        assert bodies.ran == ["b"]


async def test_an_approved_call_runs_with_the_arguments_that_the_person_was_shown(asking, bodies):
    class Rewrite(Hooks):
        async def prepare(self, call):
            return evolve(call, arguments={**call.arguments, "note": "as agreed"})

    async with asking([alone("a")], "a", hooks=[Rewrite()]) as desk:
        (question,) = await desk.agent.questions()
        assert question.arguments == {"of": "a", "note": "as agreed"}
        await desk.agent.approve(question)
        await desk.receipt.turn
        assert bodies.notes == ["as agreed"]


async def test_what_cannot_be_stored_is_replaced_in_the_question_and_in_what_runs(asking, bodies):
    strange = ToolCallBlock("a", "alone", r'{"of": "a", "note": "x\u0000"}')
    async with asking([strange], "a") as desk:
        (question,) = await desk.agent.questions()
        assert question.arguments["note"] == "x\u2400"
        await desk.agent.approve(question)
        await desk.receipt.turn
        assert bodies.notes == ["x\u2400"]


async def test_several_hooks_ask_one_question(asking):
    async with asking([alone("a")], "a", hooks=[AskAbout("a"), AskAbout("b")]) as desk:
        (question,) = await desk.agent.questions()
        assert question.text == "run a?\nrun a?"


async def test_a_hook_behind_the_one_that_asks_may_still_deny(asking):
    class Deny(Hooks):
        async def prepare(self, call):
            raise ToolDenied("never")

    async with asking([alone("a")], "a", hooks=[Deny()]) as desk:
        await desk.receipt.turn
        assert await answers(desk) == ["TOOL_DENIED"]
        assert await desk.timeline("ask") == []


@pytest.mark.parametrize("arguments", [{"text": 5}, {"text": "x", "detail": "y"}])
def test_an_ask_without_a_text_or_with_a_detail_that_is_no_object_is_refused(arguments):
    with pytest.raises(InvalidInput, match=r"Ask\."):
        Ask(**arguments)


# --- what goes on meanwhile --------------------------------------------------------------------------------------


async def test_a_waiting_call_holds_no_place_in_the_pool(asking, bodies):
    async with asking([share("a"), share("b")], "a", max_parallel=1) as desk:
        assert bodies.ran == ["b"]
        await desk.agent.approve((1, 1, 0))
        await desk.receipt.turn
        assert bodies.ran == ["b", "a"]


async def test_results_of_siblings_are_recorded_in_call_order_behind_the_question(asking, bodies):
    async with asking([share("a"), share("b"), share("c")], "b") as desk:
        assert sorted(bodies.ran) == ["a", "c"]
        assert await desk.timeline("result") == ["result a did a"]
        await desk.agent.approve((1, 1, 1))
        await desk.receipt.turn
        assert await desk.timeline("result") == ["result a did a", "result b did b", "result c did c"]


async def test_nothing_starts_behind_an_exclusive_call_that_waits(asking, bodies):
    async with asking([alone("a"), share("b")], "a") as desk:
        assert await desk.timeline("call", "ask") == ["call a", "ask a"]
        await desk.agent.deny((1, 1, 0), "no")
        await desk.receipt.turn
        assert bodies.ran == ["b"]


async def test_the_model_is_not_asked_before_every_call_is_decided_and_settled(asking, bodies):
    async with asking([share("a"), share("b", wait=True)], "a", "b") as desk:
        await desk.agent.approve((1, 1, 0))
        await wait_all_tasks_blocked()
        assert len(desk.model.requests) == 1
        await desk.agent.approve((1, 1, 1))
        await wait_all_tasks_blocked()
        assert len(desk.model.requests) == 1
        bodies.finish("b")
        await desk.receipt.turn
        assert len(desk.model.requests) == 2


async def test_approving_one_call_answers_no_other(asking, bodies):
    async with asking([share("x"), share("x"), share("x")], "x") as desk:
        await desk.agent.approve((1, 1, 1))
        await wait_all_tasks_blocked()
        assert await keys(desk.agent) == [(1, 1, 0), (1, 1, 2)]
        assert bodies.ran == ["x"]
        await desk.agent.cancel()
        assert await answers(desk) == ["TOOL_NOT_STARTED", "did x", "TOOL_NOT_STARTED"]


async def test_a_question_waits_for_days(asking, bodies, autojump_clock):
    async with asking([alone("a")], "a", drain_grace=1.0) as desk:
        await trio.sleep(5 * 24 * 3600)
        await desk.agent.approve((1, 1, 0))
        await desk.receipt.turn
        assert bodies.ran == ["a"]


async def test_a_tool_of_the_agent_itself_may_approve(agents, bodies):
    @tool(parallel=True)
    async def decide() -> str:
        await desk.agent.approve((1, 1, 0))
        return "decided"

    script = [say("", share("a"), call(decide)), say("bye")]
    async with agents.at_work(script, tools=[*bodies.tools, decide], hooks=[AskAbout("a")]) as desk:
        assert (await desk.agent.send("go")).text == "bye"
        assert await answers(desk) == ["did a", "decided"]


# --- who may decide ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
async def test_the_second_of_two_decisions_is_told_how_the_first_one_went_and_changes_nothing(asking, bodies, first):
    async with asking([alone("a")], "a") as desk:
        asked = [desk.agent.approve, lambda key: desk.agent.deny(key, "no")]
        one, two = asked if first else asked[::-1]
        await one((1, 1, 0))
        with pytest.raises(AlreadyDecided) as caught:
            await two((1, 1, 0))
        assert caught.value.approved is first
        await desk.receipt.turn
        assert bodies.ran == (["a"] if first else [])
        assert len(await desk.timeline("approve", "deny")) == 1


async def test_of_two_deciders_who_race_the_one_whom_the_log_has_first_wins(asking, agents, bodies):
    store = agents.SteppedStore()
    async with asking([alone("a")], "a", store=store) as desk:
        outcomes = {}

        async def decide(name, deciding):
            try:
                await deciding
                outcomes[name] = "decided"
            except AlreadyDecided as error:
                outcomes[name] = f"approved was {error.approved}"

        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide, "one", desk.agent.deny((1, 1, 0), "no"))
            await wait_all_tasks_blocked()
            nursery.start_soon(decide, "two", desk.agent.approve((1, 1, 0)))
            await wait_all_tasks_blocked()
            assert outcomes == {"two": "approved was False"}
            store.let_go()
        await desk.receipt.turn
        assert outcomes["one"] == "decided"
        assert await desk.timeline("approve", "deny") == ["deny a"]
        assert bodies.ran == []


@pytest.mark.parametrize("key", [(1, 1, 1), (1, 1, 2), (1, 1, 7), (1, 1, -1), (1, 2, 0), (2, 1, 0)])
async def test_deciding_about_a_call_that_nobody_is_asked_about_is_refused(asking, bodies, key):
    async with asking([share("a"), share("b"), share("c", wait=True)], "a") as desk:
        before = await desk.log()
        with pytest.raises(NoOpenQuestion) as caught:
            await desk.agent.approve(key)
        assert not isinstance(caught.value, AlreadyDecided)
        assert await desk.log() == before
        assert await keys(desk.agent) == [(1, 1, 0)]
        bodies.finish("c")
        await desk.agent.approve((1, 1, 0))
        await desk.receipt.turn


@pytest.mark.parametrize("key", [None, "a", (1, 1), (1, 1, "0"), (1, 1, True), [1, 1, 0]])
async def test_what_is_no_question_is_refused(asking, key):
    async with asking([alone("a")], "a") as desk:
        with pytest.raises(InvalidInput, match="question"):
            await desk.agent.approve(key)
        await desk.agent.cancel()


@pytest.mark.parametrize("reason", ["", "  ", None, "\ud800"])
async def test_a_denial_needs_a_reason_that_can_be_stored(asking, reason):
    async with asking([alone("a")], "a") as desk:
        with pytest.raises(InvalidInput, match="reason"):
            await desk.agent.deny((1, 1, 0), reason)
        assert await keys(desk.agent) == [(1, 1, 0)]
        await desk.agent.cancel()


async def test_deciding_when_no_calls_run_is_refused(asking):
    async with asking([alone("a")], "a") as desk:
        await desk.agent.deny((1, 1, 0), "no")
        await desk.receipt.turn
        with pytest.raises(NoOpenQuestion, match="no calls are running"):
            await desk.agent.approve((1, 1, 0))


async def test_a_decision_that_the_store_refuses_leaves_the_question_open(asking, agents, bodies):
    store = agents.SteppedStore()
    async with asking([alone("a")], "a", store=store) as desk:
        store.refuse = lambda words: StoreFull("full") if words == ["approve a"] else None
        with pytest.raises(StoreFull):
            await desk.agent.approve((1, 1, 0))
        assert await keys(desk.agent) == [(1, 1, 0)]
        assert bodies.ran == []
        store.refuse = lambda words: None
        await desk.agent.approve((1, 1, 0))
        assert str((await desk.receipt.turn).reason) == "completed"


async def test_a_decision_that_the_store_refused_counts_for_nothing_when_the_turn_is_cancelled(asking, agents):
    store = agents.SteppedStore()
    store.refuse = lambda words: StoreFull("full") if words == ["approve a"] else None
    async with asking([alone("a")], "a", store=store) as desk:
        with pytest.raises(StoreFull):
            await desk.agent.approve((1, 1, 0))
        assert str((await desk.agent.cancel()).reason) == "aborted"
        assert await answers(desk) == ["TOOL_NOT_STARTED"]


# --- cancel, close, failure --------------------------------------------------------------------------------------


async def test_a_cancel_answers_undecided_calls_as_never_started(asking, bodies):
    async with asking([share("a"), share("b"), share("c")], "a", "c") as desk:
        turn = await desk.agent.cancel()
        assert str(turn.reason) == "aborted"
        assert await answers(desk) == ["TOOL_NOT_STARTED", "did b", "TOOL_NOT_STARTED"]
        assert await desk.agent.questions() == ()
        assert bodies.ran == ["b"]


async def test_deciding_after_a_cancel_is_refused_and_changes_nothing(agents, bodies):
    ended = trio.Event()

    @tool(parallel=True)
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await ended.wait()
        return "ended"

    script = [say("", share("a"), call(stubborn))]
    async with agents.at_work(script, tools=[*bodies.tools, stubborn], hooks=[AskAbout("a")]) as desk:
        receipt = await desk.agent.follow_up("go")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            with pytest.raises(NoOpenQuestion):
                await desk.agent.approve((1, 1, 0))
            ended.set()
        assert str((await receipt.turn).reason) == "aborted"
        assert await answers(desk) == ["TOOL_NOT_STARTED", "ended"]
        assert await desk.timeline("approve") == []
        assert bodies.ran == []


@pytest.mark.parametrize("held", ["ask", "approve"])
async def test_a_cancel_while_the_question_or_the_decision_is_on_its_way_lets_nothing_run(agents, bodies, held):
    store = agents.SteppedStore()
    script = [say("", alone("a")), say("bye")]
    async with agents.at_work(script, tools=bodies.tools, hooks=[AskAbout("a")], store=store) as desk:
        receipt = await desk.agent.follow_up("go")
        async with trio.open_nursery() as nursery:
            if held == "approve":
                await wait_all_tasks_blocked()
                store.holding = True
                nursery.start_soon(desk.agent.approve, (1, 1, 0))
                await wait_all_tasks_blocked()
            else:
                await store.hold_at("ask")
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert str((await receipt.turn).reason) == "aborted"
        assert await answers(desk) == [{"ask": "TOOL_NOT_STARTED", "approve": "ABORTED_BEFORE_DISPATCH"}[held]]
        assert bodies.ran == []


async def test_a_cancel_answers_an_approved_call_that_waits_for_a_place(asking, bodies):
    async with asking([share("a"), share("b", wait=True)], "a", max_parallel=1) as desk:
        await desk.agent.approve((1, 1, 0))
        await desk.agent.cancel()
        assert await answers(desk) == ["ABORTED_BEFORE_DISPATCH", "ABORTED"]
        assert bodies.ran == ["b"]


async def test_closing_the_agent_answers_undecided_calls_as_never_started(asking, bodies):
    async with asking([alone("a"), alone("b")], "a") as desk:
        await desk.agent.close()
        assert await answers(desk) == ["TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH"]
        assert await desk.timeline("end") == ["end step 1.1", "end turn 1 aborted"]
        with pytest.raises(ActorDeadError):
            await desk.agent.approve((1, 1, 0))
        assert bodies.ran == []


async def test_g3_a_failure_does_not_wait_for_people_and_loses_no_result_behind_a_question(asking, bodies):
    class Break(Hooks):
        async def prepare(self, call):
            if call.call_id == "c":
                await wait_all_tasks_blocked()
                raise OSError("down")

    async with asking([share("a"), share("b"), share("c")], "a", hooks=[Break()]) as desk:
        with pytest.raises(TurnFailed, match="down"):
            await desk.receipt.turn
        assert await answers(desk) == ["TOOL_NOT_STARTED", "did b", "TOOL_OUTCOME_UNKNOWN"]
        assert bodies.ran == ["b"]
        assert await desk.agent.questions() == ()


async def test_a_failure_keeps_what_a_person_denied(asking, bodies):
    class Break(Hooks):
        async def finalize(self, call, outcome):
            raise OSError("down")

    async with asking([share("a", wait=True), share("b")], "b", hooks=[Break()]) as desk:
        await desk.agent.deny((1, 1, 1), "no")
        bodies.finish("a")
        with pytest.raises(TurnFailed, match="down"):
            await desk.receipt.turn
        assert await answers(desk) == ["TOOL_OUTCOME_UNKNOWN", "TOOL_DENIED"]


async def test_a_question_that_the_log_refuses_fails_the_step(agents, bodies):
    store = agents.SteppedStore()
    store.refuse = lambda words: StoreFull("full") if words == ["ask a"] else None
    script = [say("", alone("a")), say("bye")]
    async with agents.at_work(script, tools=bodies.tools, hooks=[AskAbout("a")], store=store) as desk:
        with pytest.raises(TurnFailed, match="full"):
            await desk.agent.send("go")
        assert await answers(desk) == ["TOOL_OUTCOME_UNKNOWN"]
        assert bodies.ran == []


@pytest.mark.parametrize(
    ("who", "behind"),
    [
        ("_scheduler", "TOOL_NOT_STARTED"),
        ("_session", "TOOL_NOT_STARTED"),
        ("_driver", "ABORTED_BEFORE_DISPATCH"),  # the scheduler is there to say so
    ],
)
async def test_a_crash_of_an_actor_closes_the_turn_and_its_questions(asking, bodies, who, behind):
    async with asking([alone("a"), alone("b")], "a") as desk:
        getattr(desk.agent, who)._cell.crash(OSError("crash"))
        with pytest.raises((TurnFailed, ActorDeadError)):
            await desk.receipt.turn
        await desk.agent.wait()
        assert await answers(desk) == ["TOOL_NOT_STARTED", behind]
        with pytest.raises(NoOpenQuestion):
            await desk.agent.approve((1, 1, 0))
        assert (await desk.agent.send("again")).text == "bye"
        assert bodies.ran == []


async def test_a_fork_closes_the_question_in_the_child_and_leaves_the_parent_waiting(asking, agents, bodies):
    async with asking([alone("a"), alone("b")], "a") as desk:
        child = await desk.agent.fork("child")
        log = await desk.store.read(child)
        assert agents.timeline(log)[-5:] == [
            "seed",
            "result a TOOL_NOT_STARTED",
            "result b TOOL_NOT_STARTED",
            "end step 1.1",
            "end turn 1 forked",
        ]
        assert await keys(desk.agent) == [(1, 1, 0)]
        await desk.agent.approve((1, 1, 0))
        await desk.receipt.turn
        assert bodies.ran == ["a", "b"]


# --- restarts ----------------------------------------------------------------------------------------------------


async def test_a_restart_keeps_the_question_open_and_the_turn_goes_on(asking, reopened, bodies):
    store = MemoryStore()
    async with store:
        async with asking([alone("a", note="n"), alone("b")], "a", store=store) as desk:
            (asked,) = await desk.agent.questions()
            await crash(desk)
            before = await desk.log()
        async with reopened(store) as desk:
            assert await desk.log() == before
            assert await desk.agent.questions() == (asked,)
            assert desk.model.requests == []
            await desk.agent.approve(asked)
            turn = await desk.agent.wait()
            assert (turn.number, str(turn.reason), turn.text, turn.steps) == (1, "completed", "bye", 2)
            assert (bodies.ran, bodies.notes) == (["a", "b"], ["n", ""])
            assert await desk.timeline("call", "ask", "approve", "result") == [
                *("call a", "ask a", "approve a", "result a did a"),
                *("call b", "result b did b"),
            ]


async def test_after_a_restart_what_runs_is_what_the_person_was_shown(asking, reopened, bodies):
    class Rewrite(Hooks):
        async def prepare(self, call):
            return evolve(call, arguments={**call.arguments, "note": "as agreed"})

    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store, hooks=[Rewrite()]) as desk:
            await crash(desk)
        async with reopened(store) as desk:
            await desk.agent.approve((1, 1, 0))
            await desk.agent.wait()
            assert bodies.notes == ["as agreed"]


async def test_a_resumed_turn_says_what_the_model_had_said_last(asking, reopened, bodies):
    @tool
    async def last(of: str) -> Result:
        return Result(content=of, concludes_turn=True)

    async with MemoryStore() as store:
        calls = [call(last, call_id="a", of="a")]
        async with asking(calls, "a", store=store, tools=[last]) as desk:
            await crash(desk)
        async with reopened(store, tools=[last]) as desk:
            await desk.agent.approve((1, 1, 0))
            turn = await desk.agent.wait()
            assert (turn.text, turn.steps, desk.model.requests) == ("on it", 1, [])


async def test_after_a_restart_a_call_can_be_denied(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store) as desk:
            await desk.agent.deny((1, 1, 0), "no")
            assert (await desk.agent.wait()).text == "bye"
            assert await answers(desk) == ["TOOL_DENIED"]
            assert bodies.ran == []


async def test_g6_after_a_restart_nothing_that_may_have_run_runs_again(asking, reopened, bodies):
    calls = [share("done"), share("asked"), share("live", wait=True), share("held"), share("approved", wait=True)]
    async with MemoryStore() as store:
        async with asking(calls, "asked", "approved", store=store) as desk:
            await desk.agent.approve((1, 1, 4))
            await wait_all_tasks_blocked()
            assert sorted(bodies.ran) == ["approved", "done", "held", "live"]
            await crash(desk)
        async with reopened(store) as desk:
            assert await keys(desk.agent) == [(1, 1, 1)]
            assert await answers(desk) == ["did done"]
            with pytest.raises(AlreadyDecided):
                await desk.agent.deny((1, 1, 4), "no")
            await desk.agent.approve((1, 1, 1))
            await desk.agent.wait()
            unknown = ["TOOL_OUTCOME_UNKNOWN"] * 3
            assert await answers(desk) == ["did done", "did asked", *unknown]
            assert sorted(bodies.ran) == ["approved", "asked", "done", "held", "live"]


async def test_after_a_restart_a_denial_stands(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([share("a"), share("b")], "a", "b", store=store) as desk:
            await desk.agent.deny((1, 1, 1), "no")
            await crash(desk)
        async with reopened(store) as desk:
            with pytest.raises(AlreadyDecided):
                await desk.agent.approve((1, 1, 1))
            await desk.agent.approve((1, 1, 0))
            await desk.agent.wait()
            assert await answers(desk) == ["did a", "TOOL_DENIED"]


async def test_after_a_restart_an_exclusive_call_that_waits_still_bars_what_is_behind_it(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a"), share("b")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store) as desk:
            assert bodies.ran == []
            await desk.agent.approve((1, 1, 0))
            await desk.agent.wait()
            assert bodies.ran == ["a", "b"]


async def test_after_a_restart_what_had_never_started_has_its_turn_and_its_hooks(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a"), alone("b"), alone("c")], "a", "b", store=store) as desk:
            await crash(desk)
        async with reopened(store, labels=["b"]) as desk:
            await desk.agent.approve((1, 1, 0))
            await wait_all_tasks_blocked()
            assert await keys(desk.agent) == [(1, 1, 1)]
            await desk.agent.approve((1, 1, 1))
            await desk.agent.wait()
            assert bodies.ran == ["a", "b", "c"]


async def test_a_question_survives_any_number_of_restarts(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store) as desk:
            await crash(desk)
        for _ in range(3):
            async with reopened(store) as desk:
                await crash(desk)
        async with reopened(store) as desk:
            await desk.agent.approve((1, 1, 0))
            assert (await desk.agent.wait()).text == "bye"
            assert bodies.ran == ["a"]


async def test_a_resumed_turn_is_cancelled_as_any_other(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a"), alone("b")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store) as desk:
            assert str((await desk.agent.cancel()).reason) == "aborted"
            assert await answers(desk) == ["TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH"]
            assert await desk.timeline("end") == ["end step 1.1", "end turn 1 aborted"]
            assert (await desk.agent.send("more")).number == 2


async def test_input_that_comes_while_a_resumed_turn_waits_has_the_next_turn(asking, reopened):
    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store) as desk:
            receipt = await desk.agent.follow_up("and then")
            await wait_all_tasks_blocked()
            assert desk.model.requests == []
            await desk.agent.approve((1, 1, 0))
            turn = await receipt.turn
            assert (turn.number, turn.text) == (2, "bye again")


@pytest.mark.parametrize(("tools", "code"), [([], "UNKNOWN_TOOL"), ("other", "INVALID_ARGS")])
async def test_an_approved_call_whose_tool_has_changed_since_is_answered_so(asking, reopened, tools, code):
    @tool(name="alone")
    async def other(number: int) -> str:
        return "?"

    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store, tools=[other] if tools else []) as desk:
            await desk.agent.approve((1, 1, 0))
            await desk.agent.wait()
            assert await answers(desk) == [code]


async def test_a_resumed_turn_that_fails_is_closed_as_any_other(asking, reopened, bodies):
    class Break(Hooks):
        async def finalize(self, call, outcome):
            raise OSError("down")

    async with MemoryStore() as store:
        async with asking([alone("a"), alone("b")], "a", store=store) as desk:
            await crash(desk)
        async with reopened(store, hooks=[Break()]) as desk:
            await desk.agent.approve((1, 1, 0))
            assert str((await desk.agent.wait()).reason) == "error"
            assert await answers(desk) == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]


async def test_leaving_the_runtime_keeps_a_question_that_is_all_that_the_turn_waits_for(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([share("a"), share("b")], "b", store=store) as desk:
            receipt = desk.receipt
        with pytest.raises(ActorDeadError):
            await receipt.turn
        async with reopened(store) as desk:
            assert await keys(desk.agent) == [(1, 1, 1)]
            await desk.agent.approve((1, 1, 1))
            await desk.agent.wait()
            assert await answers(desk) == ["did a", "did b"]
            assert bodies.ran == ["a", "b"]


async def test_leaving_the_runtime_waits_for_a_cancel_that_came_before(asking, agents):
    store = agents.SteppedStore()
    async with asking([alone("a")], "a", store=store) as desk:
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            nursery.start_soon(desk.agent._leave)
            await wait_all_tasks_blocked()
            store.let_go()
        assert await desk.timeline("end") == ["end step 1.1", "end turn 1 aborted"]


async def test_g3_leaving_the_runtime_closes_a_turn_with_results_that_would_be_lost(asking, reopened, agents, bodies):
    async with MemoryStore() as store:
        async with asking([share("a"), share("b"), share("c", wait=True)], "a", store=store) as desk:
            receipt = desk.receipt
        assert str((await receipt.turn).reason) == "aborted"
        async with reopened(store) as desk:
            assert await desk.agent.questions() == ()
            assert await answers(desk) == ["TOOL_NOT_STARTED", "did b", "ABORTED"]


async def test_a_session_with_an_open_question_that_is_closed_is_not_asked_again(asking, reopened):
    async with MemoryStore() as store:
        async with asking([alone("a")], "a", store=store) as desk:
            await desk.agent.close()
        async with reopened(store) as desk:
            assert await desk.agent.questions() == ()
            assert (await desk.agent.send("hello")).number == 2


async def test_without_an_open_question_a_restart_closes_the_turn_as_interrupted(asking, reopened, bodies):
    async with MemoryStore() as store:
        async with asking([alone("a", wait=True)], "a", store=store) as desk:
            await desk.agent.approve((1, 1, 0))
            await wait_all_tasks_blocked()
            await crash(desk)
        async with reopened(store) as desk:
            assert await answers(desk) == ["TOOL_OUTCOME_UNKNOWN"]
            assert await desk.timeline("end") == ["end step 1.1", "end turn 1 interrupted"]
            assert bodies.ran == ["a"]


async def test_wherever_it_is_killed_and_whatever_is_decided_then_no_call_runs_twice_and_each_has_one_result(
    asking, agents, bodies
):
    """Cut the log of a turn with questions behind each event, resume it, approve what is open, and look."""
    calls = [share("a"), share("b"), share("c"), alone("d"), share("e")]
    async with asking(calls, "a", "c", "d") as desk:
        for index in (2, 0):
            await desk.agent.approve((1, 1, index))
        await wait_all_tasks_blocked()
        await desk.agent.deny((1, 1, 3), "no")
        await desk.receipt.turn
        log = await desk.log()
    for length in range(1, len(log) + 1):
        await _resume(agents, log[:length])


async def _resume(agents, prefix):
    bodies = Bodies()
    recorded = {event.body.call_id for event in prefix if event.type == "tool/call"}
    asked = {event.body.call_id for event in prefix if event.type == "approval/requested"}
    decided = {event.body.call_id for event in prefix if event.type == "approval/decided"}
    async with MemoryStore() as store:
        writer = await store.open("s")
        stored = trio.Event()
        writer.append(prefix, lambda error: stored.set())
        await stored.wait()
        await writer.release()
        script = [say("bye")] * 3
        async with agents.at_work(script, store=store, tools=bodies.tools, hooks=[AskAbout("a", "c", "d")]) as desk:
            while questions := await desk.agent.questions():
                for question in questions:
                    await desk.agent.approve(question)
                await wait_all_tasks_blocked()
            await desk.agent.wait()
            assert not (recorded - (asked - decided)) & set(bodies.ran)
            assert len(bodies.ran) == len(set(bodies.ran))
            assert list(check(await desk.log())) == []
