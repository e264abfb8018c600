"""The rules of scheduling a batch, one by one: what starts when, what is recorded in which order, how a call ends."""

from __future__ import annotations

import logging
import threading
from collections import Counter

import pytest
import trio
from attrs import evolve
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import Hooks, Result, Runtime, ScriptedModel, Tool, ToolDenied, call, say, tool
from quiesce.actors.invoke import Slots, _shared_slots
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import LateResult, TextBlock, ToolCall, ToolMessage, text_of
from quiesce.protocol.messages import (
    CallsAborted,
    CallsCompleted,
    CallsRejected,
    Quiesce,
    Quiescent,
    ReadStatistics,
    RunCalls,
    SchedulerStatistics,
)
from quiesce.protocol.rules import check


def before(tape, first, then):
    """Whether both lines are on the tape, in this order."""
    return tape.index(first) < tape.index(then)


class Prepare(Hooks):
    """A hook whose `prepare` is the function given."""

    def __init__(self, function):
        self.function = function

    async def prepare(self, call):
        return await self.function(call)


class Finalize(Hooks):
    """A hook whose `finalize` is the function given."""

    def __init__(self, function):
        self.function = function

    async def finalize(self, call, outcome):
        return await self.function(call, outcome)


async def leave(*_):
    """A hook's part that looks and leaves everything as it is, at its leisure."""
    await trio.lowlevel.checkpoint()


# --- when scheduling starts --------------------------------------------------------------------------------------


async def test_no_call_starts_before_the_assistant_message_is_durable(bodies, taped_store):
    def answer(_):
        taped_store.held = True
        return say("", bodies.share("c1"))

    async with Runtime.open(taped_store) as runtime, trio.open_nursery() as nursery:
        agent = await runtime.agent("s", model=ScriptedModel([answer, say("done")]), tools=bodies.tools)
        nursery.start_soon(agent.send, "go")
        await wait_all_tasks_blocked()
        assert bodies.tape[-1] == "submit assistant/message"
        taped_store.let_go()
        await agent.wait()
    assert before(bodies.tape, "durable assistant/message", "submit call c1")
    assert before(bodies.tape, "submit call c1", "body c1")


async def test_a_message_cut_by_the_token_limit_has_its_calls_dropped_and_none_is_run(bodies, taped_store):
    model = ScriptedModel([say("half", bodies.share("c1"), stop="max-tokens")])
    async with Runtime.open(taped_store) as runtime:
        agent = await runtime.agent("s", model=model, tools=bodies.tools)
        turn = await agent.send("go")
        log = await taped_store.read("s")
    assert turn.reason.kind == "max-tokens"
    assert bodies.ran() == []
    assert [event.body.message.calls for event in log if event.type == "assistant/message"] == [()]
    assert not [event for event in log if isinstance(event.body, ToolCall)]


# --- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["", "  \n"])
async def test_empty_arguments_mean_an_empty_object(bench, plain_tool, raw):
    async def look(arguments):
        return f"got {arguments!r}"

    async with bench(plain_tool(look)) as it:
        await it.run(call("look", call_id="c1", raw=raw))
        assert await it.answers() == ["got {}"]


@pytest.mark.parametrize(
    ("raw", "words"), [("{", "not valid JSON"), ("[1]", "must be a JSON object"), ('{"n": NaN}', "not valid JSON")]
)
async def test_arguments_that_are_no_json_object_are_answered_with_what_is_wrong(bench, bodies, raw, words):
    async with bench() as it:
        await it.run(call("share", call_id="c1", raw=raw), bodies.share("c2"))
        assert await it.answers() == ["INVALID_ARGS", "did c2"]
        assert words in text_of((await it.results())[0].message.content)
    assert bodies.ran() == ["c2"]


async def test_arguments_are_parsed_once_however_often_the_call_is_classified(bench, bodies):
    parsed = Counter()

    class Counting(Tool):
        def parse(self, arguments):
            parsed[arguments] += 1
            return super().parse(arguments)

    async def body(of):
        return of

    counted = Counting(
        name="counted",
        description="",
        parameters={"type": "object"},
        function=body,
        runs="task",
        parallel=lambda _: False,
        read=lambda _, raw: raw,
    )
    async with bench(counted) as it:
        await it.run(bodies.share("c1"), call(counted, call_id="c2", of="x"))
        assert await it.answers() == ["did c1", "x"]
    assert list(parsed.values()) == [1]


# --- classes and barriers ----------------------------------------------------------------------------------------


async def test_consecutive_parallel_calls_run_at_the_same_time(bench, bodies):
    async with bench() as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(3)))
        await wait_all_tasks_blocked()
        assert bodies.live == 3
        bodies.finish("c0", "c1", "c2")
        assert await reply == CallsCompleted()


def _raises(_):
    raise ValueError("no idea")


@pytest.mark.parametrize(
    "made",
    [
        lambda _: call("nowhere", call_id="x"),
        lambda _: call("share", call_id="x", raw="nonsense"),
        lambda bodies: bodies.alone("x"),
        lambda _: call("guarded", call_id="x", raises=True),
        lambda _: call("guarded", call_id="x", parallel=False),
        lambda _: call("guarded", call_id="x", parallel=1),
    ],
    ids=["unknown tool", "bad arguments", "no predicate", "it raises", "it says no", "it says not quite yes"],
)
async def test_a_call_that_is_not_surely_parallel_is_a_barrier(bench, bodies, plain_tool, made):
    async def guarded(arguments):
        return "ran"

    def predicate(arguments):
        return arguments["parallel"] if "parallel" in arguments else _raises(arguments)

    async with bench(plain_tool(guarded, parallel=predicate)) as it:
        reply = await it.start(bodies.share("c1", wait=True), made(bodies), bodies.share("c3"))
        await wait_all_tasks_blocked()
        assert "submit call x" not in it.tape
        bodies.finish("c1")
        await reply
        assert before(it.tape, "durable result c1", "submit call x")
        assert before(it.tape, "submit result x", "submit call c3")


async def test_a_predicate_that_says_yes_for_these_arguments_makes_a_call_parallel(bench, bodies, plain_tool):
    async def guarded(arguments):
        return "ran"

    async with bench(plain_tool(guarded, parallel=lambda arguments: arguments["safe"])) as it:
        reply = await it.start(bodies.share("c1", wait=True), call("guarded", call_id="x", safe=True))
        await wait_all_tasks_blocked()
        assert before(it.tape, "submit call c1", "submit call x")
        bodies.finish("c1")
        await reply


async def test_an_exclusive_call_runs_alone_after_everything_before_it_is_committed(bench, bodies):
    calls = bodies.share("c1", wait=True), bodies.share("c2"), bodies.alone("x", wait=True), bodies.share("c4")
    async with bench() as it:
        reply = await it.start(*calls)
        await wait_all_tasks_blocked()
        assert bodies.ran() == ["c1", "c2"]
        bodies.finish("c1")
        await wait_all_tasks_blocked()
        assert bodies.ran() == ["c1", "c2", "x"]
        assert before(it.tape, "durable result c2", "submit call x")
        bodies.finish("x")
        await reply
        assert before(it.tape, "end x", "submit call c4")
        assert await it.order() == [
            *("call c1", "call c2", "result c1", "result c2"),
            *("call x", "result x", "call c4", "result c4"),
        ]


async def test_exclusive_calls_run_one_after_the_other(bench, bodies):
    async with bench() as it:
        await it.run(*(bodies.alone(f"c{n}") for n in range(4)))
        assert await it.order() == [f"{kind} c{n}" for n in range(4) for kind in ("call", "result")]
    assert bodies.most_live == 1


async def test_the_pool_rolls_a_call_starts_as_soon_as_one_ends(bench, bodies):
    async with bench(max_parallel=2) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(4)))
        await wait_all_tasks_blocked()
        assert bodies.ran() == ["c0", "c1"]
        bodies.finish("c1")
        await wait_all_tasks_blocked()
        assert bodies.ran() == ["c0", "c1", "c2"]
        bodies.finish("c0", "c2", "c3")
        await reply
    assert bodies.most_live == 2


async def test_ten_bodies_share_the_pool_if_nobody_says_otherwise(bodies, taped_store):
    calls = [bodies.share(f"c{n}", wait=True) for n in range(15)]
    async with Runtime.open(taped_store) as runtime, trio.open_nursery() as nursery:
        agent = await runtime.agent("s", model=ScriptedModel([say("", *calls), say("done")]), tools=bodies.tools)
        nursery.start_soon(agent.send, "go")
        await wait_all_tasks_blocked()
        assert bodies.live == 10
        bodies.finish(*(made.id for made in calls))
    assert bodies.most_live == 10


async def test_a_call_that_became_exclusive_before_its_start_waits_for_the_pool_to_drain(bench, bodies, plain_tool):
    alone = False

    async def moody(arguments):
        return "ran"

    async with bench(plain_tool(moody, parallel=lambda _: not alone), max_parallel=2) as it:
        reply = await it.start(bodies.share("c1", wait=True), bodies.share("c2", wait=True), call("moody", call_id="x"))
        await wait_all_tasks_blocked()
        alone = True
        bodies.finish("c2")
        await wait_all_tasks_blocked()
        assert "submit call x" not in it.tape
        bodies.finish("c1")
        await reply
        assert before(it.tape, "durable result c2", "submit call x")


async def test_a_call_that_became_parallel_before_its_start_no_longer_waits(bench, bodies, plain_tool):
    alone = True

    async def moody(arguments):
        return "ran"

    async with bench(plain_tool(moody, parallel=lambda _: not alone)) as it:
        reply = await it.start(bodies.share("c1", wait=True), bodies.share("c2", wait=True), call("moody", call_id="x"))
        await wait_all_tasks_blocked()
        assert "submit call x" not in it.tape
        alone = False
        bodies.finish("c2")
        await wait_all_tasks_blocked()
        assert "submit call x" in it.tape
        bodies.finish("c1")
        await reply


# --- the start of a call -----------------------------------------------------------------------------------------


async def test_g4_a_body_sees_its_record_in_the_store(bench, plain_tool):
    async def look(arguments):
        stored = [event.body.call_id for event in await it.log() if isinstance(event.body, ToolCall)]
        return " ".join(stored)

    async with bench(plain_tool(look, parallel=True)) as it:
        await it.run(call("look", call_id="c1"), call("look", call_id="c2"))
        assert await it.answers() == ["c1 c2", "c1 c2"]


async def test_g4_no_body_runs_while_its_record_is_on_its_way(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c1"), held=True)
        await wait_all_tasks_blocked()
        assert it.tape == ["submit call c1"]
        it.store.let_go()
        await reply
        assert before(it.tape, "durable call c1", "body c1")


async def test_g4_a_body_whose_record_arrives_after_the_scheduler_failed_does_not_run(bench, bodies):
    async def prepare(call):
        if call.call_id == "c1":
            raise OSError("sandbox")

    async with bench(hooks=[Prepare(prepare)]) as it:
        reply = await it.start(bodies.share("c0"), bodies.share("c1"), held=True)
        await wait_all_tasks_blocked()
        assert it.tape == ["submit call c0", "submit call c1"]
        it.store.let_go()
        assert isinstance(await reply, CallsRejected)
    assert bodies.ran() == []


async def test_a_call_is_recorded_then_prepared_then_run(bench, bodies):
    async def prepare(call):
        it.tape.append(f"prepare {call.call_id}")

    async with bench(hooks=[Prepare(prepare)]) as it:
        await it.run(bodies.share("c1"))
        assert before(it.tape, "submit call c1", "prepare c1")
        assert before(it.tape, "prepare c1", "body c1")


async def test_prepare_runs_in_call_order_one_at_a_time_and_only_bodies_overlap_with_it(bench, bodies):
    gate = trio.Event()

    async def prepare(call):
        it.tape.append(f"prepare {call.call_id}")
        if call.call_id == "c1":
            await gate.wait()
        await trio.lowlevel.checkpoint()
        it.tape.append(f"prepared {call.call_id}")

    async with bench(hooks=[Prepare(prepare)]) as it:
        reply = await it.start(*(bodies.share(f"c{n}") for n in range(3)))
        await wait_all_tasks_blocked()
        assert "end c0" in it.tape
        assert "submit call c2" not in it.tape
        gate.set()
        await reply
        asked = [line for line in it.tape if line.startswith("prepare")]
        assert asked == [f"{part} c{n}" for n in range(3) for part in ("prepare", "prepared")]


async def test_a_call_that_was_never_reached_has_no_record(bench, bodies):
    async def prepare(call):
        if call.call_id == "c1":
            raise OSError("sandbox")

    async with bench(hooks=[Prepare(prepare)]) as it:
        outcome = await it.run(*(bodies.alone(f"c{n}") for n in range(3)))
        assert isinstance(outcome, CallsRejected)
        assert await it.order() == ["call c0", "result c0", "call c1"]


async def test_a_denied_call_is_answered_with_the_reason_and_its_siblings_go_on(bench, bodies):
    async def prepare(call):
        if call.call_id == "c1":
            raise ToolDenied("not today")

    async with bench(hooks=[Prepare(prepare)]) as it:
        assert await it.run(*(bodies.share(f"c{n}") for n in range(3))) == CallsCompleted()
        assert await it.answers() == ["did c0", "TOOL_DENIED", "did c2"]
        denied = (await it.results())[1]
        assert denied.error.reason == "not today"
        assert "not today" in text_of(denied.message.content)
    assert bodies.ran() == ["c0", "c2"]


async def test_a_denied_call_takes_no_place_in_the_pool(bench, bodies):
    async def prepare(call):
        if call.call_id.startswith("denied"):
            raise ToolDenied("no")

    async with bench(hooks=[Prepare(prepare)], max_parallel=2) as it:
        ids = "c0", "denied1", "denied2", "c3", "c4"
        reply = await it.start(*(bodies.share(name, wait=True) for name in ids))
        await wait_all_tasks_blocked()
        assert bodies.ran() == ["c0", "c3"]
        bodies.finish("c0", "c3", "c4")
        await reply


async def test_a_denied_call_does_not_hold_up_the_record_of_the_next(bench, bodies):
    async def prepare(call):
        if call.call_id == "c0":
            raise ToolDenied("no")

    async with bench(hooks=[Prepare(prepare)]) as it:
        reply = await it.start(bodies.share("c0"), bodies.share("c1"), held=True)
        await wait_all_tasks_blocked()
        assert it.tape == ["submit call c0", "submit call c1"]
        it.store.let_go()
        await reply


async def test_a_call_rewritten_by_prepare_runs_so_and_is_recorded_as_the_model_wrote_it(bench, bodies):
    async def prepare(call):
        return evolve(call, arguments={"of": "something else"})

    asked = bodies.share("c1")
    async with bench(hooks=[Prepare(prepare)]) as it:
        await it.run(asked)
        assert await it.answers() == ["did something else"]
        records = [event.body.arguments for event in await it.log() if isinstance(event.body, ToolCall)]
        assert records == [asked.arguments]


async def test_arguments_that_were_rewritten_to_what_does_not_fit_are_answered_and_not_run(bench):
    ran = []

    @tool
    async def count(to: int):
        ran.append(to)

    async def prepare(call):
        return evolve(call, arguments={"to": "the moon"})

    async with bench(count, hooks=[Prepare(prepare)]) as it:
        await it.run(call(count, call_id="c1", to=3))
        assert await it.answers() == ["INVALID_ARGS"]
    assert ran == []


async def test_around_wraps_the_body_and_is_entered_by_several_calls_at_once(bench, bodies):
    class Around(Hooks):
        inside = 0
        most = 0

        async def around(self, call, run):
            self.inside += 1
            self.most = max(self.most, self.inside)
            found = await run()
            self.inside -= 1
            return f"<{found}>"

    hook = Around()
    async with bench(hooks=[hook]) as it:
        reply = await it.start(bodies.share("c1", wait=True), bodies.share("c2", wait=True))
        await wait_all_tasks_blocked()
        bodies.finish("c1", "c2")
        await reply
        assert await it.answers() == ["<did c1>", "<did c2>"]
    assert hook.most == 2


# --- results, in call order --------------------------------------------------------------------------------------


async def test_finalize_runs_in_call_order_one_at_a_time_however_the_bodies_end(bench, bodies):
    async def finalize(call, outcome):
        it.tape.append(f"finalize {call.call_id}")
        await trio.lowlevel.checkpoint()
        it.tape.append(f"finalized {call.call_id}")

    async with bench(hooks=[Finalize(finalize)]) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(3)))
        for name in ("c2", "c0", "c1"):
            await wait_all_tasks_blocked()
            bodies.finish(name)
        await reply
        looked = [line for line in it.tape if line.startswith("finalize")]
        assert looked == [f"{part} c{n}" for n in range(3) for part in ("finalize", "finalized")]
        assert before(it.tape, "submit result c0", "end c1")


async def test_finalize_may_replace_what_is_recorded(bench, bodies):
    async def finalize(call, outcome):
        return evolve(outcome, content=(TextBlock("removed"),))

    async with bench(hooks=[Finalize(finalize)]) as it:
        await it.run(bodies.share("c1"))
        assert await it.answers() == ["removed"]


async def test_finalize_may_end_the_turn_as_blocked(bodies, taped_store):
    async def finalize(call, outcome):
        return evolve(outcome, blocks_turn="it says too much")

    async with Runtime.open(taped_store) as runtime:
        model = ScriptedModel([say("", bodies.share("c1"))])
        agent = await runtime.agent("s", model=model, tools=bodies.tools, hooks=[Finalize(finalize)])
        turn = await agent.send("go")
    assert (turn.reason.kind, turn.reason.message) == ("blocked", "it says too much")


@pytest.mark.parametrize(
    "hooks", [(), (Prepare(leave),), (Finalize(leave),)], ids=["without hooks", "with prepare", "with finalize"]
)
async def test_with_a_pool_of_two_the_log_reads_call_call_result_call(bench, bodies, hooks):
    async with bench(max_parallel=2, hooks=hooks) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in (1, 2, 3)))
        for name in ("c1", "c2", "c3"):
            await wait_all_tasks_blocked()
            bodies.finish(name)
        await reply
        assert await it.order() == ["call c1", "call c2", "result c1", "call c3", "result c2", "result c3"]


async def test_a_fast_later_call_waits_for_a_slow_earlier_one(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("slow", wait=True), bodies.share("fast"))
        await wait_all_tasks_blocked()
        assert "end fast" in it.tape
        assert await it.order() == ["call slow", "call fast"]
        bodies.finish("slow")
        await reply
        assert await it.order() == ["call slow", "call fast", "result slow", "result fast"]


@pytest.mark.parametrize("hooks", [(), (Prepare(leave),)], ids=["without hooks", "with prepare"])
async def test_calls_that_start_together_are_submitted_together(bench, bodies, hooks):
    async with bench(hooks=hooks) as it:
        reply = await it.start(*(bodies.share(f"c{n}") for n in range(4)), held=True)
        await wait_all_tasks_blocked()
        assert it.tape == [f"submit call c{n}" for n in range(4)]
        it.store.let_go()
        await reply


async def test_calls_that_start_together_are_submitted_before_the_first_is_durable(bench, bodies):
    async with bench() as it:
        await it.run(*(bodies.share(f"c{n}") for n in range(4)))
        assert before(it.tape, "submit call c3", "durable call c0")


async def test_results_that_are_due_together_are_submitted_together(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0", wait=True), *(bodies.share(f"c{n}") for n in range(1, 4)))
        await wait_all_tasks_blocked()
        bodies.finish("c0")
        await reply
        assert before(it.tape, "submit result c3", "durable result c0")


async def test_a_result_names_the_record_that_it_comes_from(bench, bodies):
    async with bench() as it:
        await it.run(bodies.share("c0"), bodies.share("c1"))
        log = await it.log()
        sources = [event.source_event_seqs for event in log if event.type == "tool/result"]
        assert sources == [(event.seq,) for event in log if event.type == "tool/call"]


# --- what results bring along ------------------------------------------------------------------------------------


async def test_context_messages_enter_the_next_step_in_call_order_after_the_last_result(
    bodies, taped_store, plain_tool
):
    second = trio.Event()

    async def brings(arguments):
        if arguments["n"] == 1:
            await second.wait()
        second.set()
        return Result(content="ok", context=[f"about {arguments['n']}"])

    model = ScriptedModel([say("", *(call("brings", n=n) for n in (1, 2))), say("done")])
    async with Runtime.open(taped_store) as runtime:
        agent = await runtime.agent("s", model=model, tools=[plain_tool(brings, parallel=True)])
        await agent.send("go")
    *_, last_result, first, then = model.requests[1].messages
    assert isinstance(last_result, ToolMessage)
    assert [text_of(message.content) for message in (first, then)] == ["about 1", "about 2"]
    assert len({first.id, then.id} - {""}) == 2


async def test_a_success_that_concludes_the_turn_ends_it_after_this_step(taped_store, plain_tool):
    async def finish(arguments):
        return Result(content="ok", concludes_turn=True)

    async with Runtime.open(taped_store) as runtime:
        model = ScriptedModel([say("", call("finish"))])
        turn = await (await runtime.agent("s", model=model, tools=[plain_tool(finish)])).send("go")
    assert (turn.reason.kind, turn.steps) == ("completed", 1)


async def test_an_error_does_not_conclude_the_turn(taped_store, plain_tool):
    async def finish(arguments):
        return Result(content="failed", concludes_turn=True, is_error=True)

    async with Runtime.open(taped_store) as runtime:
        model = ScriptedModel([say("", call("finish")), say("sorry")])
        turn = await (await runtime.agent("s", model=model, tools=[plain_tool(finish)])).send("go")
    assert (turn.text, turn.steps) == ("sorry", 2)


async def test_a_turn_is_not_concluded_while_input_for_the_next_step_waits(taped_store, plain_tool):
    async def finish(arguments):
        await agent.steer("one more thing")
        return Result(content="ok", concludes_turn=True)

    async with Runtime.open(taped_store) as runtime:
        model = ScriptedModel([say("", call("finish")), say("that too")])
        agent = await runtime.agent("s", model=model, tools=[plain_tool(finish)])
        turn = await agent.send("go")
    assert (turn.text, turn.steps) == ("that too", 2)


# --- outcomes of one call ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "code", "name", "words"),
    [
        (call("share", call_id="x", of="x", error="boom"), "TOOL_ERROR", "ValueError", "ValueError: boom"),
        (call("share", call_id="x", of="x", error=""), "TOOL_ERROR", "ValueError", "ValueError"),
        (call("nowhere", call_id="x"), "UNKNOWN_TOOL", "ToolNotFoundError", "no tool 'nowhere'"),
        (call("share", call_id="x", raw="{"), "INVALID_ARGS", "InvalidArgumentsError", "not valid JSON"),
        (call("share", call_id="deny", of="x"), "TOOL_DENIED", "ToolDeniedError", "because"),
        (call("slow", call_id="x"), "TOOL_TIMEOUT", "ToolTimeoutError", "within 5 s"),
    ],
)
async def test_an_error_result_has_its_label_and_text_and_harms_no_sibling(
    bench, bodies, plain_tool, autojump_clock, made, code, name, words
):
    async def prepare(call):
        if call.call_id == "deny":
            raise ToolDenied("because")

    async def slow(arguments):
        await trio.sleep_forever()

    async with bench(plain_tool(slow, parallel=True, timeout=5), hooks=[Prepare(prepare)]) as it:
        assert await it.run(bodies.share("c1"), made, bodies.share("c3")) == CallsCompleted()
        assert await it.answers() == ["did c1", code, "did c3"]
        result = (await it.results())[1]
        assert (result.error.name, result.error.code, result.message.is_error) == (name, code, True)
        assert words in text_of(result.message.content)


async def test_a_success_has_no_label(bench, bodies):
    async with bench() as it:
        await it.run(bodies.share("c1"))
        (result,) = await it.results()
        assert (result.error, result.message.is_error) == (None, False)


# --- time-outs ---------------------------------------------------------------------------------------------------


async def test_a_body_that_overruns_its_time_is_cancelled_and_answered_timeout(bench, plain_tool, autojump_clock):
    async def slow(arguments):
        await trio.sleep_forever()

    async with bench(plain_tool(slow, timeout=5)) as it:
        began = trio.current_time()
        assert await it.run(call("slow", call_id="c1")) == CallsCompleted()
        assert trio.current_time() - began == pytest.approx(5)
        assert await it.answers() == ["TOOL_TIMEOUT"]


async def test_a_body_that_shields_itself_is_waited_for_and_answered_timeout_whatever_it_returns(
    bench, plain_tool, autojump_clock
):
    async def stubborn(arguments):
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return "done after all"

    async with bench(plain_tool(stubborn, timeout=5)) as it:
        began = trio.current_time()
        await it.run(call("stubborn", call_id="c1"))
        assert trio.current_time() - began == pytest.approx(60)
        assert await it.answers() == ["TOOL_TIMEOUT"]


async def test_a_body_in_a_thread_that_overruns_its_time_is_waited_for(bench, mock_clock):
    began, release = threading.Event(), threading.Event()

    @tool(timeout=5)
    def blocking() -> str:
        began.set()
        release.wait()
        return "done after all"

    async with bench(blocking) as it:
        reply = await it.start(call(blocking, call_id="c1"))
        await trio.to_thread.run_sync(began.wait)
        mock_clock.jump(6)
        await wait_all_tasks_blocked()
        assert not reply.done()
        release.set()
        await reply
        assert await it.answers() == ["TOOL_TIMEOUT"]


async def test_a_body_that_does_not_end_after_its_time_is_named_in_warnings(bench, plain_tool, autojump_clock, caplog):
    async def stubborn(arguments):
        with trio.CancelScope(shield=True):
            await trio.sleep(30)

    async with bench(plain_tool(stubborn, timeout=5)) as it:
        await it.run(call("stubborn", call_id="c1"))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert all("stubborn" in warning and "c1" in warning for warning in warnings)


# --- bodies that may be abandoned --------------------------------------------------------------------------------


def stubborn_tool(plain_tool, end, **options):
    """A tool whose body does not let itself be cancelled for 20 seconds, and then does what `end` does."""

    async def stubborn(arguments):
        with trio.CancelScope(shield=True):
            await trio.sleep(20)
        return await end()

    return plain_tool(stubborn, **options)


async def late_news():
    return "late news"


async def test_a_body_that_may_be_abandoned_is_answered_unknown_when_its_patience_is_over(
    bench, plain_tool, autojump_clock
):
    async with bench(stubborn_tool(plain_tool, late_news, timeout=5, abandon_after=3)) as it:
        began = trio.current_time()
        assert await it.run(call("stubborn", call_id="c1")) == CallsCompleted()
        assert trio.current_time() - began == pytest.approx(8)
        assert await it.answers() == ["TOOL_OUTCOME_UNKNOWN"]


async def test_what_an_abandoned_body_returns_becomes_a_late_result(bench, plain_tool, autojump_clock):
    async with bench(stubborn_tool(plain_tool, late_news, timeout=5, abandon_after=3)) as it:
        await it.run(call("stubborn", call_id="c1"))
        await trio.sleep(30)
        log = await it.log()
        assert list(check(log)) == []
        assert await it.answers() == ["TOOL_OUTCOME_UNKNOWN"]
        assert log[-1].body == LateResult(1, 1, "c1", (TextBlock("late news"),))
        assert log[-1].ignorable


async def test_what_an_abandoned_body_raises_becomes_a_late_error(bench, plain_tool, autojump_clock):
    async def fails():
        raise ValueError("too late")

    async with bench(stubborn_tool(plain_tool, fails, timeout=5, abandon_after=3)) as it:
        await it.run(call("stubborn", call_id="c1"))
        await trio.sleep(30)
        late = (await it.log())[-1].body
        assert isinstance(late, LateResult)
        assert (late.is_error, late.error.code) == (True, "TOOL_ERROR")
        assert "too late" in text_of(late.content)


async def test_an_abandoned_body_that_gives_in_at_last_leaves_nothing(bench, plain_tool, autojump_clock):
    async with bench(stubborn_tool(plain_tool, trio.sleep_forever, timeout=5, abandon_after=3)) as it:
        await it.run(call("stubborn", call_id="c1"))
        await trio.sleep(30)
        assert (await it.log())[-1].type == "tool/result"
        assert await it.scheduler.ask(ReadStatistics()) == SchedulerStatistics(batches=1, abandoned=1)


async def test_a_late_result_passes_finalize_and_is_not_recorded_if_that_raises(bench, plain_tool, autojump_clock):
    async def finalize(call, outcome):
        raise PermissionError("not even late")

    tools = [stubborn_tool(plain_tool, late_news, timeout=5, abandon_after=3)]
    async with bench(*tools, hooks=[Finalize(finalize)]) as it:
        assert await it.run(call("stubborn", call_id="c1")) == CallsCompleted()
        await trio.sleep(30)
        assert (await it.log())[-1].type == "tool/result"
        assert it.scheduler.is_alive()


async def test_abandoned_bodies_are_counted_while_they_live(bench, plain_tool, autojump_clock):
    async with bench(stubborn_tool(plain_tool, late_news, timeout=5, abandon_after=3)) as it:
        await it.run(call("stubborn", call_id="c1"))
        counted = await it.scheduler.ask(ReadStatistics())
        assert counted == SchedulerStatistics(batches=1, abandoned=1, abandoned_live=1)
        await trio.sleep(30)
        assert await it.scheduler.ask(ReadStatistics()) == SchedulerStatistics(batches=1, abandoned=1)


async def test_an_aborted_body_that_may_be_abandoned_is_given_up_after_its_patience(bench, plain_tool, autojump_clock):
    async with bench(stubborn_tool(plain_tool, late_news, abandon_after=3)) as it:
        reply = await it.start(call("stubborn", call_id="c1"))
        await trio.sleep(1)
        it.abort()
        assert await reply == CallsAborted("user")
        assert trio.current_time() == pytest.approx(4)
        assert await it.answers() == ["TOOL_OUTCOME_UNKNOWN"]
        await trio.sleep(30)
        assert (await it.log())[-1].body == LateResult(1, 1, "c1", (TextBlock("late news"),))


async def test_an_abandoned_body_that_returns_nothing_after_an_abort_has_returned_all_the_same(
    bench, plain_tool, autojump_clock
):
    async def nothing():
        return None

    async with bench(stubborn_tool(plain_tool, nothing, abandon_after=3)) as it:
        reply = await it.start(call("stubborn", call_id="c1"))
        await trio.sleep(1)
        it.abort()
        await reply
        await trio.sleep(30)
        assert isinstance((await it.log())[-1].body, LateResult)


async def test_a_body_that_may_be_abandoned_and_ends_in_time_is_like_any_other(bench, plain_tool, autojump_clock):
    async def brisk(arguments):
        await trio.sleep(4)
        return "in time"

    async with bench(plain_tool(brisk, timeout=5, abandon_after=3)) as it:
        await it.run(call("brisk", call_id="c1"))
        assert await it.answers() == ["in time"]
        assert await it.scheduler.ask(ReadStatistics()) == SchedulerStatistics(batches=1)


async def test_a_body_that_is_given_up_while_it_waits_for_a_thread_never_runs(bench, mock_clock):
    ran, began, release, all_taken = [], threading.Event(), threading.Event(), trio.Event()

    @tool(parallel=True)
    def hogs() -> None:
        began.set()
        release.wait()

    @tool(parallel=True, timeout=5, abandon_after=3)
    def waits() -> None:
        ran.append("waits")

    async def prepare(call):
        if call.name == "waits":
            await all_taken.wait()

    _shared_slots.set(Slots(threads=trio.CapacityLimiter(1)))
    async with bench(hogs, waits, hooks=[Prepare(prepare)]) as it:
        reply = await it.start(call(hogs, call_id="c0"), call(waits, call_id="c1"))
        await trio.to_thread.run_sync(began.wait)
        all_taken.set()
        await wait_all_tasks_blocked()
        mock_clock.jump(9)
        await wait_all_tasks_blocked()
        release.set()
        await reply
        assert await it.answers() == ["(no output)", "TOOL_OUTCOME_UNKNOWN"]
    assert ran == []


async def test_a_late_result_may_arrive_in_the_middle_of_a_later_turn(bodies, taped_store, plain_tool, autojump_clock):
    model = ScriptedModel([say("", call("stubborn")), say("one"), say("", bodies.share("c2", wait=True)), say("two")])
    tools = [stubborn_tool(plain_tool, late_news, timeout=5, abandon_after=3), *bodies.tools]
    async with Runtime.open(taped_store) as runtime, trio.open_nursery() as nursery:
        agent = await runtime.agent("s", model=model, tools=tools)
        await agent.send("go")
        nursery.start_soon(agent.send, "go on")
        await trio.sleep(30)
        bodies.finish("c2")
        assert (await agent.wait()).text == "two"
        log = await taped_store.read("s")
        assert list(check(log)) == []
        types = [event.type for event in log]
        second_turn = types[types.index("turn/end") :]
        assert before(second_turn, "tool/call", "tool/late-result")
        assert before(second_turn, "tool/late-result", "tool/result")
        assert "late news" not in str(model.requests[-1].messages)


# --- abort -------------------------------------------------------------------------------------------------------


async def test_an_abort_is_noticed_while_the_pool_is_full(bench, bodies):
    async with bench(max_parallel=2) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(4)))
        await wait_all_tasks_blocked()
        it.abort("enough")
        assert await reply == CallsAborted("enough")
        assert await it.answers() == ["ABORTED", "ABORTED", "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]
    assert bodies.ran() == ["c0", "c1"]


async def test_calls_that_never_started_are_answered_in_order_after_what_did(bench, bodies):
    async with bench(max_parallel=1) as it:
        reply = await it.start(*(bodies.share(f"c{n}", wait=True) for n in range(3)))
        await wait_all_tasks_blocked()
        it.abort()
        await reply
        assert await it.order() == [f"{kind} c{n}" for n in range(3) for kind in ("call", "result")]
        assert list(check(await it.log())) == []


async def test_a_body_that_finished_before_the_abort_keeps_its_result(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("c1"))
        await wait_all_tasks_blocked()
        it.abort()
        await reply
        assert await it.answers() == ["ABORTED", "did c1"]


async def test_g3_what_a_body_returns_while_it_is_being_cancelled_is_its_result(bench, plain_tool):
    async def thorough(arguments):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "saved what there was"

    async with bench(plain_tool(thorough)) as it:
        reply = await it.start(call("thorough", call_id="c1"))
        await wait_all_tasks_blocked()
        it.abort()
        await reply
        assert await it.answers() == ["saved what there was"]


async def test_a_body_that_raises_while_it_is_being_cancelled_is_aborted_and_says_what_it_raised(bench, plain_tool):
    async def clumsy(arguments):
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("tripped") from None

    async with bench(plain_tool(clumsy)) as it:
        reply = await it.start(call("clumsy", call_id="c1"))
        await wait_all_tasks_blocked()
        it.abort()
        assert await reply == CallsAborted("user")
        assert await it.answers() == ["ABORTED"]
        assert "tripped" in text_of((await it.results())[0].message.content)


async def test_an_abort_interrupts_prepare_and_the_call_is_not_dispatched(bench, bodies):
    async def prepare(call):
        await trio.sleep_forever()

    async with bench(hooks=[Prepare(prepare)]) as it:
        reply = await it.start(bodies.share("c0"), bodies.share("c1"))
        await wait_all_tasks_blocked()
        it.abort()
        assert await reply == CallsAborted("user")
        assert await it.answers() == ["ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]
    assert bodies.ran() == []


@pytest.mark.parametrize("attempt", range(10))
async def test_an_abort_interrupts_a_prepare_that_has_yet_to_begin(bench, plain_tool, attempt):
    """What Trio runs first, the task of `prepare` or the abort, is chance: one attempt in two is the one to test."""

    async def prepare(call):
        await trio.sleep_forever()

    async def never(arguments):
        raise AssertionError

    def aborts(_):
        it.abort()
        return True

    async with bench(plain_tool(never, parallel=aborts), hooks=[Prepare(prepare)]) as it:
        reply = await it.start(call("never", call_id="c0"))
        await wait_all_tasks_blocked()
        assert reply.done()


async def test_a_prepare_that_does_not_heed_the_abort_cannot_have_its_call_dispatched(bench, bodies):
    async def prepare(call):
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            it.abort()
            await wait_all_tasks_blocked()

    async with bench(hooks=[Prepare(prepare)]) as it:
        assert await it.run(bodies.share("c0")) == CallsAborted("user")
        assert await it.answers() == ["ABORTED_BEFORE_DISPATCH"]
    assert bodies.ran() == []


async def test_an_abort_while_a_record_is_on_its_way_keeps_the_body_from_running(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0"), held=True)
        await wait_all_tasks_blocked()
        it.abort()
        it.store.let_go()
        assert await reply == CallsAborted("user")
        assert await it.answers() == ["ABORTED_BEFORE_DISPATCH"]
    assert bodies.ran() == []


async def test_the_first_cause_of_an_abort_wins(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0", wait=True))
        await wait_all_tasks_blocked()
        it.abort("first")
        it.abort("second")
        assert await reply == CallsAborted("first")


async def test_an_abort_without_a_batch_does_nothing(bench, bodies):
    async with bench() as it:
        it.abort()
        assert await it.run(bodies.share("c0")) == CallsCompleted()


# --- the scheduler itself ----------------------------------------------------------------------------------------


async def test_quiesce_is_answered_at_once_when_nothing_runs(bench):
    async with bench() as it:
        assert await it.scheduler.ask(Quiesce()) == Quiescent()


async def test_quiesce_aborts_a_running_batch_and_is_answered_when_it_is_over(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0", wait=True), bodies.alone("c1"))
        await wait_all_tasks_blocked()
        await it.scheduler.ask(Quiesce())
        assert reply.done()
        assert await reply == CallsAborted("quiesce")
        assert await it.answers() == ["ABORTED", "ABORTED_BEFORE_DISPATCH"]


async def test_a_second_batch_is_refused_while_one_runs_and_the_first_goes_on(bench, bodies):
    async with bench() as it:
        reply = await it.start(bodies.share("c0", wait=True))
        with pytest.raises(InvalidInput, match="RunCalls"):
            await it.scheduler.ask(RunCalls(1, 1, (bodies.share("c9"),)))
        bodies.finish("c0")
        assert await reply == CallsCompleted()
    assert bodies.ran() == ["c0"]


async def test_a_batch_without_calls_is_complete(bench):
    async with bench() as it:
        assert await it.run() == CallsCompleted()


async def test_two_hundred_calls_in_one_batch_are_all_answered_in_order(bench, bodies):
    calls = [bodies.share(f"c{n}") if n % 7 else bodies.alone(f"c{n}") for n in range(200)]
    async with bench() as it:
        assert await it.run(*calls) == CallsCompleted()
        assert await it.answers() == [f"did c{n}" for n in range(200)]
        assert list(check(await it.log())) == []


@pytest.mark.parametrize("ids", [("", "", ""), ("same", "same", "same"), ("a", "", "a")])
async def test_calls_with_empty_or_repeated_ids_each_get_their_own_result(bench, bodies, ids):
    calls = [call("share", call_id=name, of=f"call {n}", wait=True) for n, name in enumerate(ids)]
    async with bench() as it:
        reply = await it.start(*calls)
        for n in (2, 1, 0):
            await wait_all_tasks_blocked()
            bodies.finish(f"call {n}")
        await reply
        assert await it.answers() == [f"did call {n}" for n in range(3)]
        assert [result.message.tool_call_id for result in await it.results()] == list(ids)
        assert list(check(await it.log())) == []
