from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from quiesce.actors.hooks import HookChain, Hooks, ToolInvocation
from quiesce.actors.invoke import Body, BodyEnd, Slots, outcome_of, run_body
from quiesce.actors.results import error_text
from quiesce.actors.tools import AnyTool, Tool, tool
from quiesce.protocol.events import text_of
from quiesce.protocol.outcome import failure, success

NO_HOOKS = HookChain()


def invocation(made: AnyTool, **arguments: Any) -> ToolInvocation:
    return ToolInvocation("session-1", 1, 1, 0, "call-1", made.name, arguments, made)


def body_of(made: AnyTool, hooks: HookChain = NO_HOOKS, slots: Slots | None = None) -> Body:
    return Body(invocation(made), chain=hooks, slots=slots)


async def run(made: AnyTool, **arguments: Any) -> BodyEnd:
    return await run_body(invocation(made, **arguments), chain=NO_HOOKS)


async def end_after_cancel(body: Body) -> BodyEnd:
    """Start the body, let it come to rest, cancel it, and wait for its end."""
    ends: list[BodyEnd] = []

    async def keep() -> None:
        ends.append(await body.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        await trio.testing.wait_all_tasks_blocked()
        body.cancel()
    return ends[0]


@tool
async def waits() -> None:
    """Waits for ever, and ends when it is cancelled."""
    await trio.sleep_forever()


@tool
async def shields() -> str:
    """Cannot be cancelled: returns after 25 s."""
    with trio.CancelScope(shield=True):
        await trio.sleep(25)
    return "late"


# --- how it ends


async def test_an_async_body_runs_in_the_task_of_its_call():
    @tool
    async def where() -> trio.lowlevel.Task:
        return trio.lowlevel.current_task()

    assert (await run(where)).value is trio.lowlevel.current_task()


async def test_a_def_body_runs_in_a_thread():
    @tool
    def where() -> int:
        return threading.get_ident()

    end = await run(where)
    assert end.how == "returned"
    assert end.value != threading.get_ident()


async def test_a_body_gets_the_values_of_its_arguments():
    @tool
    async def add(a: int, b: int = 2) -> int:
        return a + b

    assert await run(add, a=1) == BodyEnd("returned", 3)


async def test_a_tool_of_a_schema_gets_the_raw_arguments():
    async def search(arguments):
        return arguments

    assert (await run(Tool.from_schema("search", "", {}, search), q=1)).value == {"q": 1}


async def test_a_thread_sees_the_callers_context():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    @tool
    def read() -> str:
        return variable.get()

    variable.set("seen")
    assert (await run(read)).value == "seen"


@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_a_body_that_raises_ends_with_its_error(kind):
    error = LookupError("no")

    async def in_task():
        raise error

    def in_thread():
        raise error

    end = await run(tool({"task": in_task, "thread": in_thread}[kind]))
    assert (end.how, end.error, end.cancel_requested) == ("raised", error, False)


async def test_a_body_runs_once():
    body = body_of(tool(_nothing))
    await body.run()
    with pytest.raises(RuntimeError, match="once"):
        await body.run()


async def _nothing() -> None: ...


async def test_a_body_that_is_no_coroutine_after_all_is_an_error():
    @tool
    def forgotten():
        return _nothing()

    end = await run(forgotten)
    assert isinstance(end.error, TypeError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_is_not_an_exception_passes_out_of_an_async_body(error):
    @tool
    async def stops():
        raise error

    with pytest.raises(error):
        await run(stops)


async def test_sys_exit_in_a_thread_is_an_error_of_the_tool():
    @tool
    def leaves():
        raise SystemExit(3)

    end = await run(leaves)
    assert end.how == "raised"
    assert "SystemExit: 3" in str(end.error)


async def test_a_keyboard_interrupt_passes_out_with_the_errors_around_it():
    @tool
    async def stops():
        raise BaseExceptionGroup("both", [ValueError(), KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup) as caught:
        await run(stops)
    assert [type(error) for error in caught.value.exceptions] == [ValueError, KeyboardInterrupt]


# --- around


async def test_hooks_wrap_the_body():
    class Loud(Hooks):
        async def around(self, call, run):
            return f"{call.name}: {await run()}"

    @tool
    async def say():
        return "hi"

    assert await body_of(say, HookChain([Loud()])).run() == BodyEnd("returned", "say: hi")


async def test_what_around_raises_is_the_error_of_the_body():
    class Broken(Hooks):
        async def around(self, call, run):
            raise LookupError

    assert (await body_of(waits, HookChain([Broken()])).run()).how == "raised"


async def test_a_hook_may_run_a_body_several_times():
    class Retry(Hooks):
        async def around(self, call, run):
            try:
                return await run()
            except LookupError:
                return await run()

    tries: list[int] = []

    @tool
    def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise LookupError
        return len(tries)

    assert await body_of(flaky, HookChain([Retry()])).run() == BodyEnd("returned", 2)


# --- cancel


async def test_a_cancelled_body_is_waited_for():
    events: list[str] = []

    @tool
    async def tidies() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            events.append("tidied")

    assert await end_after_cancel(body_of(tidies)) == BodyEnd("cancelled")
    assert events == ["tidied"]


async def test_a_body_that_returns_although_it_was_cancelled_keeps_its_result(autojump_clock):
    assert await end_after_cancel(body_of(shields)) == BodyEnd("returned", "late", cancel_requested=True)
    assert trio.current_time() == 25


async def test_a_body_that_raises_while_it_is_cancelled_ends_with_its_error():
    @tool
    async def breaks() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("in the clean-up")

    end = await end_after_cancel(body_of(breaks))
    assert (end.how, type(end.error), end.cancel_requested) == ("raised", LookupError, True)


async def test_errors_are_kept_of_a_body_whose_nursery_was_cancelled_with_it():
    @tool
    async def family() -> None:
        async def breaks() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("in the clean-up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(breaks)
            nursery.start_soon(trio.sleep_forever)

    end = await end_after_cancel(body_of(family))
    assert end.how == "raised"
    assert end.cancel_requested
    assert end.error is not None
    assert "LookupError: in the clean-up" in error_text(end.error)


async def test_a_body_that_was_cancelled_before_its_start_does_not_run():
    events: list[str] = []

    @tool
    async def marks() -> None:
        events.append("ran")

    body = body_of(marks)
    body.cancel()
    assert await body.run() == BodyEnd("not-started")
    assert events == []


async def test_cancelling_a_body_that_has_ended_does_nothing():
    body = body_of(tool(_nothing))
    end = await body.run()
    body.cancel()
    assert end == BodyEnd("returned")


async def test_a_thread_that_is_cancelled_is_waited_for_and_keeps_its_result():
    go, started = threading.Event(), trio.Event()

    @tool
    def blocks() -> str:
        trio.from_thread.run_sync(started.set)
        go.wait()
        return "done"

    body, ends = body_of(blocks), list[BodyEnd]()

    async def keep() -> None:
        ends.append(await body.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        await started.wait()
        body.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
        go.set()
    assert ends == [BodyEnd("returned", "done", cancel_requested=True)]


async def test_a_thread_may_look_for_its_cancellation():
    @tool
    def looks() -> None:
        trio.from_thread.run(trio.sleep_forever)

    assert await end_after_cancel(body_of(looks)) == BodyEnd("cancelled")


async def test_cancellation_from_outside_passes_out_once_the_body_has_ended(autojump_clock):
    events: list[str] = []

    @tool
    async def tidies() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            events.append("tidied")

    with trio.move_on_after(2) as outer:
        await run(tidies)
        events.append("went on")
    assert outer.cancelled_caught
    assert events == ["tidied"]


async def test_a_body_does_not_start_in_a_cancelled_scope():
    events: list[str] = []

    @tool
    async def marks() -> None:
        events.append("ran")

    with trio.CancelScope() as outer:
        outer.cancel()
        await run(marks)
    assert outer.cancelled_caught
    assert events == []


async def test_errors_do_not_ride_on_cancellation_from_outside(autojump_clock):
    @tool
    async def family() -> None:
        async def breaks() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("in the clean-up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(breaks)
            nursery.start_soon(trio.sleep_forever)

    with trio.move_on_after(1) as outer:
        await run(family)
    assert outer.cancelled_caught


# --- time-outs


async def test_a_body_that_takes_too_long_is_cancelled_and_timed_out(autojump_clock):
    @tool(timeout=3)
    async def slow() -> None:
        await trio.sleep(10)

    assert await run(slow) == BodyEnd("timed-out")
    assert trio.current_time() == 3


async def test_a_body_that_ends_in_time_is_not_timed_out(autojump_clock):
    @tool(timeout=3)
    async def quick() -> str:
        await trio.sleep(2)
        return "in time"

    assert await run(quick) == BodyEnd("returned", "in time")
    await trio.sleep(10)


async def test_a_body_that_returns_after_its_time_out_is_timed_out_all_the_same(autojump_clock):
    end = await run(tool(timeout=3)(shields.function))
    assert (end.how, trio.current_time()) == ("timed-out", 25)


async def test_a_body_that_raises_after_its_time_out_is_timed_out_all_the_same(autojump_clock):
    @tool(timeout=3)
    async def breaks() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError

    assert (await run(breaks)).how == "timed-out"


async def test_a_thread_that_outlasts_its_time_out_is_waited_for_and_timed_out(mock_clock):
    go = threading.Event()

    @tool(timeout=3)
    def blocks() -> str:
        go.wait()
        return "done"

    async with trio.open_nursery() as nursery:
        ends: list[BodyEnd] = []

        async def keep() -> None:
            ends.append(await run(blocks))

        nursery.start_soon(keep)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(5)
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
        go.set()
    assert [end.how for end in ends] == ["timed-out"]


async def test_a_body_may_have_time_outs_of_its_own(autojump_clock):
    @tool(timeout=30)
    async def careful() -> str:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        return "gave up"

    assert await run(careful) == BodyEnd("returned", "gave up")


async def test_the_time_out_covers_the_hooks_around_the_body(autojump_clock):
    class Slow(Hooks):
        async def around(self, call, run):
            await trio.sleep(5)
            return await run()

    assert (await body_of(tool(timeout=3)(_nothing), HookChain([Slow()])).run()).how == "timed-out"


async def test_the_first_cause_wins(autojump_clock):
    late = tool(timeout=3)(shields.function)

    async def cancel_at(seconds: float) -> BodyEnd:
        body = body_of(late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_after, seconds, body.cancel)
            return await body.run()

    assert (await cancel_at(1)) == BodyEnd("returned", "late", cancel_requested=True)
    assert (await cancel_at(5)).how == "timed-out"


async def _after(seconds: float, do: Any) -> None:
    await trio.sleep(seconds)
    do()


async def test_each_of_many_bodies_is_timed_out_at_its_own_time(autojump_clock):
    times: dict[int, float] = {}

    async def time(seconds: int) -> None:
        assert (await run(tool(timeout=seconds)(waits.function))).how == "timed-out"
        times[seconds] = trio.current_time()

    async with trio.open_nursery() as nursery:
        for seconds in (5, 1, 3, 2, 4):
            nursery.start_soon(time, seconds)
    assert times == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}


async def test_a_body_that_ended_leaves_no_deadline_in_the_clock():
    await run(tool(timeout=3)(_nothing))
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf


# --- slots


async def test_more_bodies_than_trios_own_limit_may_be_in_threads_at_once():
    barrier = threading.Barrier(60)

    @tool
    def meets() -> None:
        barrier.wait(60)

    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(run, meets)


async def test_a_host_may_limit_threads_and_waiting_for_one_does_not_count_as_time(mock_clock):
    slots = Slots(threads=trio.CapacityLimiter(1))

    @tool(timeout=3)
    def quick() -> str:
        return "done"

    ends: list[BodyEnd] = []

    async def keep() -> None:
        ends.append(await body_of(quick, slots=slots).run())

    async with trio.open_nursery() as nursery, slots.threads:
        nursery.start_soon(keep)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(100)
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
    assert ends == [BodyEnd("returned", "done")]
    assert slots.threads.borrowed_tokens == 0


async def test_a_body_that_is_cancelled_while_it_waits_for_a_slot_has_not_started():
    slots = Slots(threads=trio.CapacityLimiter(1))

    @tool
    def quick() -> str:
        return "done"

    async with slots.threads:
        assert await end_after_cancel(body_of(quick, slots=slots)) == BodyEnd("not-started")
    assert slots.threads.borrowed_tokens == 0


# --- warnings


@pytest.fixture
def warned():
    with structlog.testing.capture_logs() as entries:
        yield entries
    structlog.reset_defaults()


@pytest.fixture
def no_structlog():
    structlog.reset_defaults()


async def test_a_warning_names_a_cancelled_body_every_ten_seconds_until_it_ends(autojump_clock, warned):
    await end_after_cancel(body_of(shields))
    await trio.sleep(100)
    entry = {
        "event": "tool body was stopped and has not ended",
        "log_level": "warning",
        "session": "session-1",
        "tool": "shields",
        "call": "call-1",
        "cause": "cancelled",
    }
    assert warned == [entry, entry]


async def test_a_warning_names_a_body_that_does_not_end_after_its_time_out(autojump_clock, warned):
    await run(tool(timeout=8)(shields.function))
    await trio.sleep(100)
    assert [entry["cause"] for entry in warned] == ["overdue"]


async def test_a_body_that_ends_in_time_is_not_warned_about(autojump_clock, warned):
    await end_after_cancel(body_of(waits))
    await run(tool(timeout=8)(_nothing))
    await trio.sleep(100)
    assert warned == []


async def test_without_any_configuration_a_warning_prints_nothing(autojump_clock, no_structlog, capsys):
    await end_after_cancel(body_of(shields))
    assert capsys.readouterr() == ("", "")


async def test_a_warning_reaches_the_standard_logging_of_a_host_without_structlog(autojump_clock, no_structlog, caplog):
    with caplog.at_level(logging.WARNING, "quiesce.tools"):
        await end_after_cancel(body_of(shields))
    assert "tool='shields'" in caplog.text


async def test_a_log_processor_that_raises_does_not_end_the_run(autojump_clock):
    def breaks(*_):
        raise LookupError

    structlog.configure(processors=[breaks])
    try:
        assert (await end_after_cancel(body_of(shields))).value == "late"
    finally:
        structlog.reset_defaults()


# --- outcomes


async def test_each_end_has_an_outcome():
    made = tool(timeout=3)(_nothing)
    assert outcome_of(BodyEnd("returned", "x"), made) == success("x")
    assert outcome_of(BodyEnd("returned", "x", cancel_requested=True), made) == success("x")
    raised = BodyEnd("raised", error=LookupError("no"))
    assert outcome_of(raised, made) == failure("TOOL_ERROR", "LookupError: no", name="LookupError")


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (BodyEnd("timed-out"), "TOOL_TIMEOUT", "within 3 s"),
        (BodyEnd("timed-out", "late"), "TOOL_TIMEOUT", "within 3 s"),
        (BodyEnd("cancelled"), "ABORTED", "may have had effects"),
        (BodyEnd("not-started"), "ABORTED_BEFORE_DISPATCH", "no effect"),
        (BodyEnd("raised", error=LookupError("no"), cancel_requested=True), "ABORTED", "LookupError: no"),
    ],
)
def test_an_end_without_a_result_is_labelled(end, code, said):
    outcome = outcome_of(end, tool(timeout=3)(_nothing))
    assert outcome.error is not None
    assert outcome.error.code == code
    assert said in text_of(outcome.content)


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, SystemExit, type("Own", (BaseException,), {})])
async def test_what_would_end_the_host_ends_only_the_body_when_a_thread_raises_it(kind):
    @tool
    def leaves() -> str:
        raise kind("away")

    end = await run_body(invocation(leaves), chain=HookChain())
    assert end.how == "raised"
    assert kind.__name__ in str(end.error)
