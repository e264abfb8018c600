"""Turns (behaviour, section 5): input, attempts at the model, the limits of a turn, cancelling, and what is parked."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import trio
from attrs import evolve
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import (
    Hooks,
    InputDropped,
    InputParked,
    MemoryStore,
    ModelError,
    Result,
    RetryPolicy,
    Runtime,
    ScriptedModel,
    Sources,
    TurnFailed,
    call,
    fail,
    say,
    tool,
)
from quiesce.actors.models.scripted import ScriptedReply
from quiesce.protocol.errors import InvalidInput, LeaseLost, RecoveryFailed, StepLimitReached, StoreFull
from quiesce.protocol.events import AssistantAttempt, AssistantMessage, TextBlock, ToolCallBlock, text_of
from quiesce.protocol.messages import Cancel
from quiesce.protocol.model import BlockDone, CallDelta, Finished, ReasoningDelta, TextDelta


@tool(parallel=True)
async def work(of: str) -> str:
    """Does something, at once."""
    return f"did {of}"


def asked(*call_ids, text="on it"):
    """An answer that asks for `work`, once for each id."""
    return say(text, *(call(work, call_id=call_id, of=call_id) for call_id in call_ids))


class Gated:
    """A tool that waits for `gate`, and sets `running` when it does: `wait` alone, `share` beside others."""

    def __init__(self):
        self.gate = trio.Event()
        self.running = trio.Event()
        self.wait = tool(name="wait")(self._wait)
        self.share = tool(name="share", parallel=True)(self._wait)

    async def _wait(self, of: str) -> str:
        """Waits."""
        self.running.set()
        await self.gate.wait()
        return f"waited for {of}"


@pytest.fixture
def gated():
    return Gated()


class Finalize(Hooks):
    """A hook whose `finalize` is the function given."""

    def __init__(self, function):
        self.function = function

    async def finalize(self, call, outcome):
        return self.function(call, outcome)


class Prepare(Hooks):
    """A hook whose `prepare` is the async function given."""

    def __init__(self, function):
        self.function = function

    async def prepare(self, call):
        return await self.function(call)


# --- input -------------------------------------------------------------------------------------------------------


async def test_a_follow_up_wakes_an_idle_agent_and_has_a_turn_of_its_own(agents):
    async with agents.at_work([say("hello")]) as desk:
        receipt = await desk.agent.follow_up("hi")
        turn = await receipt.turn
        assert (turn.number, str(turn.reason), turn.text, turn.steps) == (1, "completed", "hello", 1)
        assert await desk.timeline() == [
            "turn 1",
            "step 1.1",
            "user hi",
            "answer hello",
            "end step 1.1",
            "end turn 1 completed",
        ]


async def test_a_follow_up_waits_for_the_end_of_the_running_turn(agents, gated):
    script = [say("", call(gated.wait, call_id="c1", of="it")), say("first"), say("second")]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        first = await desk.agent.follow_up("one")
        await gated.running.wait()
        second = await desk.agent.follow_up("two")
        gated.gate.set()
        assert (await first.turn).number == 1
        assert (await second.turn).number == 2
        assert "user two" in (await desk.timeline())[(await desk.timeline()).index("end turn 1 completed") :]


async def test_steering_enters_the_running_turn_at_its_next_step(agents, gated):
    script = [say("", call(gated.wait, call_id="c1", of="it")), say("I see")]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        first = await desk.agent.follow_up("go")
        await gated.running.wait()
        steering = await desk.agent.steer("look left")
        gated.gate.set()
        assert await steering.turn == await first.turn
        assert (await desk.timeline())[7:11] == ["step 1.2", "user look left", "answer I see", "end step 1.2"]


async def test_steering_keeps_a_turn_going_that_would_have_ended(agents):
    model = agents.StallingModel([say("first"), say("second")])
    async with agents.at_work([], model=model) as desk:
        first = await desk.agent.follow_up("go")
        await model.stalled.wait()
        await desk.agent.steer("and then?")
        model.go_on.set()
        assert (await first.turn).steps == 2
        assert agents.said(model.requests[1]) == ["go", "first", "and then?"]


async def test_steering_wakes_an_idle_agent(agents):
    async with agents.at_work([say("hello")]) as desk:
        assert (await (await desk.agent.steer("hi")).turn).text == "hello"


async def test_injected_input_wakes_nobody(agents):
    async with agents.at_work([say("hello")]) as desk:
        await desk.agent.inject("by the way")
        await wait_all_tasks_blocked()
        assert await desk.agent.wait() is None
        assert desk.model.requests == []


async def test_injected_input_enters_at_the_next_step_whenever_there_is_one(agents):
    async with agents.at_work([say("hello")]) as desk:
        injected = await desk.agent.inject("by the way")
        turn = await desk.agent.send("hi")
        assert await injected.turn == turn
        assert agents.said(desk.model.requests[0]) == ["by the way", "hi"]


async def test_input_that_was_injected_after_the_last_step_of_a_steered_turn_starts_no_turn(agents):
    store = agents.SteppedStore()
    async with agents.at_work([asked("c1"), say("done"), say("unwanted")], store=store, tools=[work]) as desk:
        await desk.agent.follow_up("go")
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.steer, "left")
            await store.hold_at("end step 1.2")
            nursery.start_soon(desk.agent.inject, "by the way")
            await wait_all_tasks_blocked()
            store.let_go()
        await desk.agent.wait()
        assert len(desk.model.requests) == 2
        assert (await desk.log())[-1].type == "agent/inbox/spliced"


@pytest.mark.parametrize("way", ["follow_up", "steer", "inject"])
async def test_input_is_durable_before_it_is_acknowledged(agents, way):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello")], store=store) as desk, trio.open_nursery() as nursery:
        acknowledged = []

        async def deliver():
            await getattr(desk.agent, way)("hi")
            acknowledged.append([agents.word(event) for event in await desk.log()])

        store.holding = True
        nursery.start_soon(deliver)
        await wait_all_tasks_blocked()
        assert acknowledged == []
        store.let_go()
        await wait_all_tasks_blocked()
        assert acknowledged[0][0].startswith("queue next-")


async def test_input_that_the_log_refuses_is_not_acknowledged_and_starts_nothing(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello")], store=store) as desk:
        store.refuse = lambda _: StoreFull("no room")
        with pytest.raises(StoreFull, match="no room"):
            await desk.agent.send("hi")
        assert await desk.agent.wait() is None
        assert await desk.log() == []
        store.refuse = lambda _: None
        assert (await desk.agent.send("hi again")).text == "hello"


@pytest.mark.parametrize("way", ["follow_up", "steer", "inject"])
async def test_acknowledged_input_survives_a_restart_and_enters_with_the_next_waking_input(agents, way):
    store = agents.SteppedStore()
    async with agents.at_work([], store=store) as desk:
        store.refuse = lambda words: StoreFull("no room") if "turn 1" in words else None
        receipt = await getattr(desk.agent, way)("before")
        if way != "inject":
            with pytest.raises(TurnFailed):
                await receipt.turn
    store.refuse = lambda _: None
    async with agents.at_work([say("one"), say("two")], store=store) as desk:
        await desk.agent.send("after")
        told = await desk.timeline("user")
        assert told == ["user before", "user after"]


async def test_a_restart_alone_starts_no_turn_for_input_that_waits(agents):
    store = MemoryStore()
    async with agents.at_work([fail()], store=store) as desk:
        await desk.agent.follow_up("one")
        await desk.agent.follow_up("two")
        await desk.agent.wait()
    async with agents.at_work([], store=store) as desk:
        await wait_all_tasks_blocked()
        assert await desk.agent.wait() is None


async def test_a_step_that_opens_a_turn_claims_all_step_input_and_one_follow_up(agents):
    store = MemoryStore()
    async with agents.at_work([fail()], store=store) as desk:
        await desk.agent.follow_up("fails")
        for text in ("one", "two"):
            await desk.agent.follow_up(text)
        await desk.agent.wait()
        await desk.agent.inject("left")
        await desk.agent.inject("right")
    async with agents.at_work([say("1"), say("2"), say("3")], store=store) as desk:
        await desk.agent.send("three")
        told = await desk.timeline("turn", "user")
        assert told[2:] == [
            "turn 2",
            "user left",
            "user right",
            "user one",
            "turn 3",
            "user two",
            "turn 4",
            "user three",
        ]


async def test_input_leaves_its_queue_in_the_same_append_in_which_it_enters_the_log(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello")], store=store) as desk:
        await desk.agent.send("hi")
        assert store.submitted[:2] == [
            ["queue next-turn +"],
            ["turn 1", "queue next-turn -", "step 1.1", "user hi"],
        ]


@pytest.mark.parametrize("way", ["follow_up", "steer", "inject"])
async def test_input_never_enters_between_a_call_and_its_result(agents, gated, way):
    script = [say("", *(call(gated.wait, call_id=f"c{at}", of="it") for at in range(3))), say("done"), say("more")]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        await getattr(desk.agent, way)("meanwhile")
        gated.gate.set()
        await desk.agent.wait()
        told = await desk.timeline()
        assert told.index("user meanwhile") > told.index("end step 1.1") > told.index("result c2 waited for it")


async def test_a_burst_of_follow_ups_makes_as_many_turns_in_order(agents):
    async with agents.at_work([say(f"answer {at}") for at in range(20)]) as desk:
        receipts = [await desk.agent.follow_up(f"question {at}") for at in range(20)]
        turns = [await receipt.turn for receipt in receipts]
        assert [(turn.number, turn.text) for turn in turns] == [(at + 1, f"answer {at}") for at in range(20)]


async def test_follow_ups_from_many_tasks_each_have_a_turn(agents):
    async with agents.at_work([say("ok")] * 20) as desk:
        turns = []

        async def send(text):
            turns.append((await desk.agent.send(text)).number)

        async with trio.open_nursery() as nursery:
            for at in range(20):
                nursery.start_soon(send, f"question {at}")
        assert sorted(turns) == list(range(1, 21))


async def test_turn_numbers_continue_across_resume(agents):
    store = MemoryStore()
    for number in (1, 2, 3):
        async with agents.at_work([say("ok")], store=store) as desk:
            assert (await desk.agent.send("go")).number == number


async def test_turn_numbers_continue_in_a_fork(agents):
    async with agents.at_work([say("ok"), say("ok")]) as desk:
        await desk.agent.send("one")
        child = await desk.agent.fork()
        agent = await desk.runtime.agent(child, model=ScriptedModel([say("ok")]))
        assert (await agent.send("two")).number == 2
        assert (await desk.agent.send("two")).number == 2


# --- attempts ----------------------------------------------------------------------------------------------------


def quickly(max_attempts=3):
    return RetryPolicy(max_attempts=max_attempts, base_delay=0)


async def test_a_transient_failure_that_delivered_nothing_is_retried(agents):
    async with agents.at_work([fail(transient=True), say("hello")], retry=quickly()) as desk:
        turn = await desk.agent.send("hi")
        assert (turn.text, turn.steps) == ("hello", 1)
        assert desk.model.requests[0] == desk.model.requests[1]


@pytest.mark.parametrize("failure", [fail("no key"), ValueError("a bug")])
async def test_a_failure_that_is_not_transient_is_not_retried(agents, failure):
    async with agents.at_work([failure, say("unwanted")], retry=quickly()) as desk:
        with pytest.raises(TurnFailed) as caught:
            await desk.agent.send("hi")
        assert caught.value.__cause__ is failure
        assert len(desk.model.requests) == 1


@pytest.mark.parametrize("delta", [TextDelta("well"), ReasoningDelta("hm"), CallDelta(0, "c1", "work", "{")])
async def test_an_attempt_that_delivered_something_is_not_retried(agents, delta):
    cut = ScriptedReply((delta,)).then_fail(fail(transient=True))
    async with agents.at_work([cut, say("unwanted")], retry=quickly()) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert len(desk.model.requests) == 1


async def test_the_number_of_attempts_is_bounded(agents):
    async with agents.at_work([fail(transient=True)] * 9, retry=quickly(max_attempts=4)) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert len(desk.model.requests) == 4


class TimedModel(ScriptedModel):
    """Notes the time of each request."""

    def __init__(self, script):
        super().__init__(script)
        self.times = []

    async def respond(self, request, emit):
        self.times.append(trio.current_time())
        await super().respond(request, emit)

    @property
    def pauses(self):
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]


async def test_the_back_off_doubles_up_to_its_limit_and_is_jittered(agents, autojump_clock):
    model = TimedModel([*[fail(transient=True)] * 6, say("hello")])
    retry = RetryPolicy(max_attempts=7, base_delay=1, max_delay=8)
    async with agents.at_work([], model=model, retry=retry) as desk:
        await desk.agent.send("hi")
    for pause, longest in zip(model.pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= pause <= longest
    assert len({pause / longest for pause, longest in zip(model.pauses, [1, 2, 4, 8, 8, 8], strict=True)}) > 1


async def test_the_jitter_comes_from_the_injected_source(agents, autojump_clock):
    pauses = []
    for _ in range(2):
        model = TimedModel([fail(transient=True), say("hello")])
        sources = Sources(lambda: agents.NOW, random.Random(7))
        async with agents.at_work([], model=model, sources=sources) as desk:
            await desk.agent.send("hi")
        pauses.append(model.pauses)
    assert pauses[0] == pytest.approx(pauses[1])


async def test_the_providers_retry_after_is_honoured_when_it_is_longer(agents, autojump_clock):
    model = TimedModel([fail(transient=True, retry_after=60), say("hello")])
    async with agents.at_work([], model=model) as desk:
        await desk.agent.send("hi")
    assert model.pauses == pytest.approx([60])


async def test_a_retry_after_that_is_too_long_ends_the_attempts(agents, autojump_clock):
    retry = RetryPolicy(max_retry_after=30)
    async with agents.at_work([fail(transient=True, retry_after=60), say("unwanted")], retry=retry) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert len(desk.model.requests) == 1


async def test_each_failed_attempt_is_visible_in_the_log_and_not_in_the_history(agents):
    script = [ModelError("busy", code="OVERLOADED", transient=True), say("hello"), say("again")]
    async with agents.at_work(script, retry=quickly()) as desk:
        await desk.agent.send("hi")
        await desk.agent.send("more")
        attempts = [event.body for event in await desk.log() if isinstance(event.body, AssistantAttempt)]
        assert [(body.turn, body.step, body.error.code, body.error.reason) for body in attempts] == [
            (1, 1, "OVERLOADED", "busy")
        ]
        assert agents.said(desk.model.requests[2]) == ["hi", "hello", "more"]


async def test_a_cancel_beats_a_retry(agents, autojump_clock):
    async with agents.at_work([fail(transient=True, retry_after=60), say("unwanted")]) as desk:
        receipt = await desk.agent.follow_up("hi")
        await trio.sleep(1)
        await desk.agent.cancel()
        assert trio.current_time() < 60
        assert str((await receipt.turn).reason) == "aborted"
        assert len(desk.model.requests) == 1


async def test_after_a_tool_of_the_step_has_run_nothing_is_retried(agents, gated):
    async def refuse(call):
        if call.call_id == "c2":
            await gated.running.wait()
            raise fail("the sandbox is busy", transient=True)

    gated.gate.set()
    script = [say("", *(call(gated.share, call_id=name, of=name) for name in ("c1", "c2"))), say("unwanted")]
    async with agents.at_work(script, tools=[gated.share], hooks=[Prepare(refuse)], retry=quickly()) as desk:
        with pytest.raises(TurnFailed, match="sandbox"):
            await desk.agent.send("go")
        assert len(desk.model.requests) == 1
        assert await desk.timeline("result") == ["result c1 waited for c1", "result c2 TOOL_OUTCOME_UNKNOWN"]


async def test_a_retried_request_of_a_later_step_runs_no_tool_again(agents):
    ran = []

    @tool
    async def once(of: str) -> str:
        """Notes that it ran."""
        ran.append(of)
        return of

    script = [say("", call(once, of="it")), fail(transient=True), say("done")]
    async with agents.at_work(script, tools=[once], retry=quickly()) as desk:
        assert (await desk.agent.send("go")).text == "done"
    assert ran == ["it"]


# --- answers that are cut or empty -------------------------------------------------------------------------------


HALF_A_CALL = (TextDelta("I shall "), TextDelta("look"), CallDelta(0, "c1", "work", '{"of": "c'))


@pytest.mark.parametrize("ending", ["failure", "end without Finished"])
async def test_a_cut_stream_keeps_its_text_as_an_interrupted_message_without_its_half_calls(agents, ending):
    cut = ScriptedReply(HALF_A_CALL)
    script = [cut.then_fail(fail("gone", transient=True)) if ending == "failure" else cut, say("go on")]
    async with agents.at_work(script, tools=[work]) as desk:
        with pytest.raises(TurnFailed) as caught:
            await desk.agent.send("hi")
        assert caught.value.turn.text == "I shall look"
        assert caught.value.__cause__.code == ("MODEL_ERROR" if ending == "failure" else "CUT_STREAM")
        assert (await desk.timeline())[3:] == ["interrupted I shall look", "end step 1.1", "end turn 1 error"]
        message = next(event.body.message for event in await desk.log() if isinstance(event.body, AssistantMessage))
        assert message.content == (TextBlock("I shall look"),)
        await desk.agent.send("go on")
        assert agents.said(desk.model.requests[1]) == ["hi", "I shall look", "go on"]


async def test_a_cut_stream_without_text_is_kept_as_an_attempt(agents):
    cut = ScriptedReply((CallDelta(0, "c1", "work", "{"),)).then_fail(fail("gone", transient=True))
    async with agents.at_work([cut], tools=[work]) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert (await desk.timeline())[3:] == ["attempt MODEL_ERROR", "end step 1.1", "end turn 1 error"]


async def test_an_empty_answer_is_recorded_and_left_out_of_the_history(agents):
    async with agents.at_work([say(""), say("yes?")]) as desk:
        turn = await desk.agent.send("hi")
        assert (str(turn.reason), turn.text) == ("completed", "")
        await desk.agent.send("hello?")
        assert "answer" in await desk.timeline()
        assert agents.said(desk.model.requests[1]) == ["hi", "hello?"]


async def test_what_cannot_be_stored_of_a_models_text_is_replaced_visibly(agents):
    async with agents.at_work([say("a\0b\ud800c")]) as desk:
        assert (await desk.agent.send("hi")).text == "a\u2400b\ufffdc"


async def test_an_answer_that_cannot_be_recorded_fails_the_turn_and_not_the_agent(agents):
    broken = ScriptedReply((BlockDone("no block"), Finished()))
    async with agents.at_work([broken, say("fine")]) as desk:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert (await desk.agent.send("again")).text == "fine"


# --- limits ------------------------------------------------------------------------------------------------------


async def test_max_steps_ends_the_turn_with_a_clear_reason(agents):
    async with agents.at_work([asked(f"c{at}") for at in range(9)], tools=[work], max_steps=3) as desk:
        with pytest.raises(TurnFailed, match="3 steps") as caught:
            await desk.agent.send("go")
        assert isinstance(caught.value.__cause__, StepLimitReached)
        assert caught.value.turn.steps == 3
        assert caught.value.turn.reason.code == "MAX_STEPS"
        assert (await desk.timeline())[-2:] == ["end step 1.3", "end turn 1 error"]


async def test_a_turn_that_needs_max_steps_exactly_completes(agents):
    async with agents.at_work([asked("c1"), say("done")], tools=[work], max_steps=2) as desk:
        assert str((await desk.agent.send("go")).reason) == "completed"


async def test_the_token_limit_is_sticky_within_its_turn_and_not_beyond(agents):
    model = agents.StallingModel([say("half", stop="max-tokens"), say("the rest"), say("next")])
    async with agents.at_work([], model=model) as desk:
        first = await desk.agent.follow_up("go")
        await model.stalled.wait()
        await desk.agent.steer("go on")
        model.go_on.set()
        turn = await first.turn
        assert (str(turn.reason), turn.text, turn.steps) == ("max-tokens", "the rest", 2)
        assert str((await desk.agent.send("another")).reason) == "completed"


async def test_the_token_limit_drops_the_calls_of_the_answer_even_if_they_parse(agents):
    cut = evolve(asked("c1"), deltas=(*asked("c1").deltas[:-1], Finished("max-tokens")))
    async with agents.at_work([cut], tools=[work]) as desk:
        assert str((await desk.agent.send("go")).reason) == "max-tokens"
        assert (await desk.timeline())[3:] == ["answer on it", "end step 1.1", "end turn 1 max-tokens"]
        assert not any(isinstance(block, ToolCallBlock) for block in (await desk.agent.history())[-1].content)


async def test_a_follow_up_goes_on_after_a_turn_that_met_the_token_limit(agents):
    async with agents.at_work([say("half", stop="max-tokens"), say("next")]) as desk:
        receipts = [await desk.agent.follow_up(text) for text in ("one", "two")]
        assert [str((await receipt.turn).reason) for receipt in receipts] == ["max-tokens", "completed"]


# --- how a step decides ------------------------------------------------------------------------------------------


@tool
async def conclude() -> Result:
    """Ends the turn."""
    return Result(content="that was it", concludes_turn=True)


async def test_a_result_may_conclude_the_turn(agents):
    async with agents.at_work([say("", call(conclude)), say("unwanted")], tools=[conclude]) as desk:
        turn = await desk.agent.send("go")
        assert (str(turn.reason), turn.steps) == ("completed", 1)


async def test_a_turn_that_is_concluded_goes_on_while_step_input_waits(agents, gated):
    script = [say("", call(gated.wait, of="it"), call(conclude)), say("hello")]
    async with agents.at_work(script, tools=[gated.wait, conclude]) as desk:
        receipt = await desk.agent.follow_up("go")
        await gated.running.wait()
        await desk.agent.steer("one thing more")
        gated.gate.set()
        assert (await receipt.turn).steps == 2


async def test_context_messages_of_results_enter_the_next_step_in_call_order_after_the_last_result(agents):
    @tool(parallel=True)
    async def tell(of: str) -> Result:
        """Brings context along."""
        return Result(content=of, context=[f"about {of}"])

    script = [say("", call(tell, call_id="c1", of="a"), call(tell, call_id="c2", of="b")), say("ok")]
    async with agents.at_work(script, tools=[tell]) as desk:
        await desk.agent.send("go")
        told = await desk.timeline()
        assert told[told.index("end step 1.1") :][:4] == ["end step 1.1", "step 1.2", "user about a", "user about b"]


async def test_a_finalize_hook_may_block_the_turn(agents):
    def block(_, outcome):
        return evolve(outcome, blocks_turn="a secret")

    script = [asked("c1"), say("unwanted")]
    async with agents.at_work(script, tools=[work], hooks=[Finalize(block)]) as desk:
        turn = await desk.agent.send("go")
        assert (str(turn.reason), turn.reason.message, turn.steps) == ("blocked", "a secret", 1)


# --- cancel ------------------------------------------------------------------------------------------------------


async def test_cancelling_an_idle_agent_does_nothing(agents):
    async with agents.at_work([say("hello"), say("again")]) as desk:
        assert await desk.agent.cancel() is None
        turn = await desk.agent.send("hi")
        await desk.agent.inject("stays")
        before = await desk.log()
        assert await desk.agent.cancel() == turn
        assert await desk.log() == before
        assert (await desk.agent.send("more")).text == "again"


async def test_the_first_cause_wins(agents, gated):
    store = agents.SteppedStore()
    async with agents.at_work([say("", call(gated.wait, of="it"))], store=store, tools=[gated.wait]) as desk:
        receipt = await desk.agent.follow_up("go")
        await gated.running.wait()
        store.holding = True
        async with trio.open_nursery() as nursery:
            for cause in ("first", "second"):
                nursery.start_soon(desk.agent.cancel, cause)
                await wait_all_tasks_blocked()
            assert desk.agent._driver._cell.actor._running is not None
            store.let_go()
        assert (await receipt.turn).reason.cause == "first"


async def test_what_a_later_cancel_says_of_the_queue_counts_as_little_as_its_cause(agents, gated):
    store = agents.SteppedStore()
    script = [say("", call(gated.wait, of="it")), say("1"), say("2")]
    async with agents.at_work(script, store=store, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = await desk.agent.follow_up("one")
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: desk.agent.cancel("first", keep_inbox=True))
            await wait_all_tasks_blocked()
            nursery.start_soon(lambda: desk.agent.cancel("second", keep_inbox=False))
            await wait_all_tasks_blocked()
            store.let_go()
        with pytest.raises(InputParked):
            await queued.turn


async def test_an_aborted_turn_is_not_an_error(agents, gated):
    async with agents.at_work([say("", call(gated.wait, of="it"))], tools=[gated.wait]) as desk:
        receipt = await desk.agent.follow_up("go")
        await gated.running.wait()
        turn = await desk.agent.cancel()
        assert await receipt.turn == turn
        assert (str(turn.reason), turn.number) == ("aborted", 1)


async def test_cancel_returns_when_the_turn_is_over(agents, gated):
    @tool
    async def slow_to_end() -> str:
        """Takes its time when it is cancelled."""
        gated.running.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await gated.gate.wait()

    async with agents.at_work([say("", call(slow_to_end))], tools=[slow_to_end]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            assert "end turn 1 aborted" not in await desk.timeline()
            gated.gate.set()
        assert "end turn 1 aborted" in await desk.timeline()


async def test_a_cancel_drops_what_is_queued_and_tells_whoever_waits_for_it(agents, gated):
    script = [say("", call(gated.wait, of="it")), say("hello")]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = [await desk.agent.follow_up("one"), await desk.agent.steer("two"), await desk.agent.inject("three")]
        await desk.agent.cancel()
        for receipt in queued:
            with pytest.raises(InputDropped):
                await receipt.turn
        await desk.agent.send("afresh")
        assert agents.said(desk.model.requests[1])[-1:] == ["afresh"]
        assert await desk.timeline("user") == ["user go", "user afresh"]


async def test_a_cancel_that_keeps_the_inbox_parks_what_is_queued(agents, gated):
    script = [say("", call(gated.wait, of="it")), say("1"), say("2")]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = await desk.agent.follow_up("one")
        await desk.agent.cancel(keep_inbox=True)
        with pytest.raises(InputParked):
            await queued.turn
        await desk.agent.send("two")
        assert await desk.timeline("user") == [
            "user go",
            "user one",
            "user two",
        ]


async def test_input_parked_behind_a_failed_turn_has_its_failure_as_the_cause(agents, gated):
    script = [say("", call(gated.wait, of="it")), fail(ValueError("no more"))]
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        failing = await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = await desk.agent.follow_up("one")
        gated.gate.set()
        with pytest.raises(TurnFailed) as failed:
            await failing.turn
        with pytest.raises(InputParked) as parked:
            await queued.turn
        assert parked.value.__cause__ is failed.value


async def test_input_that_comes_while_a_cancel_still_drops_the_queue_is_the_next_waking_input(agents, gated):
    store = agents.SteppedStore()
    script = [say("", call(gated.wait, of="it")), say("hello")]
    async with agents.at_work(script, store=store, tools=[gated.wait]) as desk, trio.open_nursery() as nursery:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        await desk.agent.follow_up("old")
        store.holding = True
        nursery.start_soon(desk.agent.cancel)
        await store.hold_at("queue next-turn -")
        turns = []

        async def send():
            turns.append(await desk.agent.send("new"))

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        store.let_go()
        await desk.agent.wait()
        await wait_all_tasks_blocked()
        assert [turn.text for turn in turns] == ["hello"]


async def test_a_queue_that_cannot_be_dropped_is_parked(agents, gated):
    store = agents.SteppedStore()
    script = [say("", call(gated.wait, of="it")), say("1"), say("2")]
    async with agents.at_work(script, store=store, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = await desk.agent.follow_up("one")
        store.refuse = lambda words: StoreFull("no room") if words == ["queue next-turn -"] else None
        await desk.agent.cancel()
        with pytest.raises(InputParked):
            await queued.turn
        assert (await desk.agent.send("two")).number == 3


async def test_a_cancel_that_comes_too_late_for_the_turn_still_holds_for_what_is_queued(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello"), say("unwanted")], store=store) as desk:
        first = await desk.agent.follow_up("go")
        queued = await desk.agent.follow_up("one")
        await store.hold_at("end step 1.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert str((await first.turn).reason) == "completed"
        with pytest.raises(InputDropped):
            await queued.turn
        assert len(desk.model.requests) == 1


async def test_a_cancel_while_the_last_result_is_stored_opens_no_further_step(agents):
    store = agents.SteppedStore()
    async with agents.at_work([asked("c1"), say("unwanted")], store=store, tools=[work]) as desk:
        await desk.agent.follow_up("go")
        await store.hold_at("result c1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert (await desk.timeline())[-3:] == ["result c1 did c1", "end step 1.1", "end turn 1 aborted"]


async def test_a_cancel_before_the_model_is_asked_asks_it_nothing(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("unwanted")], store=store) as desk:
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.send, "go")
            await store.hold_at("turn 1")
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert desk.model.requests == []
        assert (await desk.timeline())[2:] == ["user go", "end step 1.1", "end turn 1 aborted"]


async def test_a_cancel_while_the_answer_is_stored_starts_none_of_its_calls(agents):
    store = agents.SteppedStore()
    async with agents.at_work([asked("c1", "c2"), say("unwanted")], store=store, tools=[work]) as desk:
        await desk.agent.follow_up("go")
        await store.hold_at("answer")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert await desk.timeline("result") == [
            "result c1 ABORTED_BEFORE_DISPATCH",
            "result c2 ABORTED_BEFORE_DISPATCH",
        ]


async def test_a_cancel_that_finds_every_call_answered_opens_no_further_step(agents):
    class CancelsWhenTheBatchIsOver(Counter):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            desk.agent._driver.ask(Cancel())

    async with agents.at_work([asked("c1"), say("unwanted")], tools=[work]) as desk:
        desk.agent._scheduler._cell.actor._counts = CancelsWhenTheBatchIsOver()
        assert str((await desk.agent.send("go")).reason) == "aborted"
        assert (await desk.timeline())[-3:] == ["result c1 did c1", "end step 1.1", "end turn 1 aborted"]


async def test_a_cancel_while_the_answer_is_streamed_keeps_its_text(agents):
    model = agents.StallingModel([asked("c1", text="I begin"), say("hello")])
    async with agents.at_work([], model=model, tools=[work]) as desk:
        await desk.agent.follow_up("go")
        await model.stalled.wait()
        turn = await desk.agent.cancel()
        assert (str(turn.reason), turn.text) == ("aborted", "I begin")
        assert (await desk.timeline())[3:] == ["interrupted I begin", "end step 1.1", "end turn 1 aborted"]


async def test_a_cancel_before_anything_was_streamed_is_kept_as_an_attempt(agents):
    async with agents.at_work([say("late").after(1000)]) as desk:
        await desk.agent.follow_up("go")
        await wait_all_tasks_blocked()
        await desk.agent.cancel()
        assert (await desk.timeline())[3:] == ["attempt", "end step 1.1", "end turn 1 aborted"]


async def test_a_model_that_fails_while_it_is_cancelled_does_not_make_the_turn_an_error(agents):
    class Clumsy(ScriptedModel):
        async def respond(self, request, emit):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                try:
                    await trio.sleep_forever()
                finally:
                    raise ConnectionError("closed in a hurry")

    async with agents.at_work([], model=Clumsy([])) as desk:
        await desk.agent.follow_up("go")
        await wait_all_tasks_blocked()
        assert str((await desk.agent.cancel()).reason) == "aborted"


async def test_a_cancel_while_tools_run_answers_every_call(agents, gated):
    script = [asked("c1"), say("hello")]
    script[0] = evolve(script[0], deltas=say("", *(call(gated.wait, call_id=f"c{n}", of="it") for n in "12")).deltas)
    async with agents.at_work(script, tools=[gated.wait]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        await desk.agent.cancel()
        assert (await desk.timeline())[3:] == [
            "answer",
            "call c1",
            "result c1 ABORTED",
            "call c2",
            "result c2 ABORTED_BEFORE_DISPATCH",
            "end step 1.1",
            "end turn 1 aborted",
        ]
        assert (await desk.agent.send("next")).text == "hello"


@pytest.mark.parametrize("appends", range(10))
async def test_a_cancel_during_any_append_of_a_turn_leaves_a_log_that_goes_on(agents, appends):
    """G1, G9: the turn has 10 appends after its input, and each is on its way once when the cancel comes."""
    store = agents.SteppedStore()
    async with agents.at_work([asked("c1", "c2"), say("done")], store=store, tools=[work], max_parallel=1) as desk:
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.follow_up, "go")
            while len(store.submitted) <= appends + 1:
                await wait_all_tasks_blocked()
                store.let_go(holding=True)
            nursery.start_soon(desk.agent.cancel)
            await wait_all_tasks_blocked()
            store.let_go()
        assert (await desk.timeline())[-1] in ("end turn 1 aborted", "end turn 1 completed")
    async with agents.at_work([say("hello")], store=store) as desk:
        assert (await desk.agent.send("next")).text == "hello"


# --- failure, and what is parked ---------------------------------------------------------------------------------


def explode(*_):
    raise ValueError("boom")


def blocks(_, outcome):
    return evolve(outcome, blocks_turn="no further")


@pytest.mark.parametrize(
    ("hook", "keep_inbox"),
    [(Finalize(explode), False), (Finalize(blocks), False), (Hooks(), True)],
    ids=["failed", "blocked", "aborted"],
)
async def test_after_a_turn_that_did_not_complete_what_is_queued_is_parked_until_the_next_waking_input(
    agents, gated, hook, keep_inbox
):
    script = [say("", call(gated.wait, of="it")), say("1"), say("2"), say("3")]
    async with agents.at_work(script, tools=[gated.wait], hooks=[hook]) as desk:
        await desk.agent.follow_up("go")
        await gated.running.wait()
        queued = [
            await desk.agent.follow_up("one"),
            await desk.agent.inject("two"),
            await desk.agent.follow_up("three"),
        ]
        if keep_inbox:
            await desk.agent.cancel(keep_inbox=True)
        gated.gate.set()
        for receipt in queued:
            with pytest.raises(InputParked):
                await receipt.turn
        await wait_all_tasks_blocked()
        assert len(desk.model.requests) == 1
        await desk.agent.inject("wakes nobody")
        await wait_all_tasks_blocked()
        assert len(desk.model.requests) == 1
        assert (await desk.agent.send("wakes")).text == "3"
        told = await desk.timeline("turn", "user")
        assert told[2:] == [
            "turn 2",
            "user two",
            "user wakes nobody",
            "user one",
            "turn 3",
            "user three",
            "turn 4",
            "user wakes",
        ]


async def test_steering_takes_parked_follow_ups_along(agents):
    async with agents.at_work([fail(), say("1"), say("2")]) as desk:
        await desk.agent.follow_up("fails")
        await desk.agent.follow_up("one")
        await desk.agent.follow_up("two")
        await desk.agent.wait()
        await (await desk.agent.steer("now")).turn
        await desk.agent.wait()
        told = await desk.timeline("turn", "user")
        assert told[2:] == ["turn 2", "user now", "user one", "turn 3", "user two"]


async def test_g5_a_failed_turn_is_closed_with_the_failure_and_raises_it(agents):
    failure = ModelError("no key", code="UNAUTHORIZED")
    async with agents.at_work([failure, say("hello")]) as desk:
        with pytest.raises(TurnFailed) as caught:
            await desk.agent.send("hi")
        assert caught.value.__cause__ is failure
        assert caught.value.turn == await desk.agent.wait()
        reason = (await desk.log())[-1].body.reason
        assert (reason.kind, reason.code, reason.message) == ("error", "UNAUTHORIZED", "no key")
        assert (await desk.agent.send("again")).text == "hello"


@pytest.mark.parametrize("delivered", [(), (TextDelta("I begin"),)], ids=["nothing", "text"])
@pytest.mark.parametrize("transient", [False, True])
async def test_g5_a_failed_attempt_that_the_log_refuses_is_still_the_failure_of_the_turn(agents, delivered, transient):
    store, failure = agents.SteppedStore(), fail("no answer", transient=transient)
    script = [ScriptedReply(delivered).then_fail(failure), say("hello")]
    async with agents.at_work(script, store=store, retry=quickly()) as desk:
        refusals = iter([StoreFull("no room")])
        attempts = ("attempt", "interrupted")
        store.refuse = lambda words: next(refusals, None) if words[0].startswith(attempts) else None
        with pytest.raises(TurnFailed) as caught:
            await desk.agent.send("hi")
        assert caught.value.__cause__ is failure
        assert str(failure.__cause__) == "no room"
        assert (await desk.timeline())[-2:] == ["end step 1.1", "end turn 1 error"]
        assert (await desk.agent.send("again")).text == "hello"


async def test_g3_what_a_tool_returned_behind_a_failed_call_is_what_the_log_holds(agents):
    def explode_at_first(call, _):
        if call.call_id == "c1":
            raise ValueError("boom")

    hooks = [Finalize(explode_at_first)]
    async with agents.at_work([asked("c1", "c2", "c3"), say("hello")], tools=[work], hooks=hooks) as desk:
        with pytest.raises(TurnFailed, match="boom"):
            await desk.agent.send("go")
        results = await desk.timeline("result")
        assert results == ["result c1 TOOL_OUTCOME_UNKNOWN", "result c2 did c2", "result c3 did c3"]
        assert (await desk.agent.send("again")).text == "hello"


async def test_g5_a_refused_recovery_is_attached_to_the_failure_and_resume_closes_the_turn(agents):
    store = agents.SteppedStore()
    script = [asked("c1", "c2")]
    async with agents.at_work(script, store=store, tools=[work], hooks=[Finalize(explode)]) as desk:
        store.refuse = lambda words: StoreFull("no room") if any(word.startswith("result") for word in words) else None
        with pytest.raises(RecoveryFailed) as caught:
            await desk.agent.send("go")
        first, refusal = caught.value.exceptions
        assert caught.value.__cause__ is first
        assert (str(first), str(refusal)) == ("boom", "no room")
        assert (await desk.timeline())[-1] == "call c2"
        await wait_all_tasks_blocked()
        assert not desk.agent.is_alive()
    store.refuse = lambda _: None
    async with agents.at_work([say("hello")], store=store, tools=[work]) as desk:
        assert (await desk.timeline())[-4:] == [
            "result c1 TOOL_OUTCOME_UNKNOWN",
            "result c2 TOOL_OUTCOME_UNKNOWN",
            "end step 1.1",
            "end turn 1 interrupted",
        ]
        assert (await desk.agent.send("again")).text == "hello"


async def test_a_refused_start_of_a_turn_leaves_the_input_queued_and_the_agent_alive(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello"), say("again")], store=store) as desk:
        store.refuse = lambda words: StoreFull("no room") if "turn 1" in words else None
        with pytest.raises(TurnFailed, match="no room"):
            await desk.agent.send("hi")
        assert await desk.timeline() == []
        store.refuse = lambda _: None
        await desk.agent.send("more")
        assert [agents.said(request)[-1] for request in desk.model.requests] == ["hi", "more"]


@pytest.mark.parametrize("appends", range(11))
@pytest.mark.parametrize("error", [StoreFull("no room"), LeaseLost("fenced")], ids=lambda error: type(error).__name__)
async def test_a_refused_append_anywhere_in_a_turn_is_repaired_at_the_latest_on_resume(agents, appends, error):
    """G1, G5, G9: the store refuses one append and, if it is about the lease, all that follow."""
    store = agents.SteppedStore()
    seen = itertools.count()

    def refuse(_):
        at = next(seen)
        return error if at == appends or (at > appends and isinstance(error, LeaseLost)) else None

    async with agents.at_work([asked("c1", "c2"), say("done")], store=store, tools=[work]) as desk:
        store.refuse = refuse
        with pytest.raises((TurnFailed, StoreFull, LeaseLost)) as caught:
            await desk.agent.send("go")
        if isinstance(caught.value, TurnFailed):
            assert caught.value.__cause__ is error
    store.refuse = lambda _: None
    async with agents.at_work([say("hello"), say("hello")], store=store, tools=[work]) as desk:
        assert (await desk.agent.send("next")).text == "hello"


async def test_a_scheduler_that_dies_interrupts_the_turn_which_is_closed_behind_what_was_on_its_way(agents, gated):
    store = agents.SteppedStore()
    script = [say("", call(work, call_id="c1", of="c1"), call(gated.wait, call_id="c2", of="it"))]
    async with agents.at_work(script, store=store, tools=[work, gated.wait]) as desk:
        receipt = await desk.agent.follow_up("go")
        await store.hold_at("result c1")
        desk.agent._scheduler.stop(block=False, now=True)
        await wait_all_tasks_blocked()
        store.let_go()
        with pytest.raises(ActorDeadError):
            await receipt.turn
        await desk.agent.wait()
        assert (await desk.timeline())[4:] == [
            "call c1",
            "result c1 did c1",
            "result c2 TOOL_NOT_STARTED",
            "end step 1.1",
            "end turn 1 interrupted",
        ]


async def test_a_turn_that_the_driver_did_not_finish_is_answered_when_it_stops(agents):
    async with agents.at_work([say("late").after(1000)]) as desk:
        receipt = await desk.agent.follow_up("go")
        await wait_all_tasks_blocked()
        desk.agent._driver.stop(block=False, now=True)
        with pytest.raises(Exception, match="stopped before the turn ended"):
            await receipt.turn


async def test_a_cancel_says_whether_a_turn_was_running(agents):
    async with agents.at_work([say("late").after(1000)]) as desk:
        assert await desk.agent._driver.ask(Cancel()) is False
        await desk.agent.follow_up("go")
        assert await desk.agent._driver.ask(Cancel()) is True


@pytest.mark.parametrize("cause", ["a\0b", "\ud800", 5, None])
async def test_a_cause_that_cannot_be_stored_is_refused_and_cancels_nothing(agents, gated, cause):
    async with agents.at_work([say("", call(gated.wait, of="it")), say("done")], tools=[gated.wait]) as desk:
        receipt = await desk.agent.follow_up("go")
        await gated.running.wait()
        with pytest.raises(InvalidInput, match="cause"):
            await desk.agent.cancel(cause)
        gated.gate.set()
        assert (await receipt.turn).text == "done"


async def test_the_history_shows_what_the_next_request_will_have(agents):
    async with agents.at_work([asked("c1"), say("done"), say("ok")], tools=[work]) as desk:
        await desk.agent.send("go")
        shown = await desk.agent.history()
        await desk.agent.send("next")
        assert desk.model.requests[2].messages[:-1] == shown
        assert [text_of(message.content) for message in shown] == ["go", "on it", "did c1", "done"]


async def test_the_request_names_the_session_the_place_the_tools_and_the_system_prompt(agents):
    async with agents.at_work([say("ok")], tools=[work], system="Be brief.", session_id="mine") as desk:
        await desk.agent.send("go")
        request = desk.model.requests[0]
        assert (request.session_id, request.turn, request.step) == ("mine", 1, 1)
        assert (request.tools, request.system) == ((work.spec,), "Be brief.")


async def test_a_runtime_of_its_own_needs_nothing_but_a_store_and_a_model():
    async with Runtime.open(MemoryStore()) as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
        assert (await agent.send("hi")).text == "hello"
