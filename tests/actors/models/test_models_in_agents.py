"""Agents whose models are real SDKs at a strict fake provider: retries, cuts, cancels, and what the log says."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import pytest
import trio

from quiesce.actors import AttemptFailed, MemoryStore, ModelDelta, RetryPolicy, Runtime, TurnFailed, tool
from quiesce.protocol.codec import dumps
from quiesce.protocol.events import AssistantAttempt, AssistantMessage
from quiesce.protocol.model import TextDelta
from quiesce.protocol.rules import check


@tool(parallel=True)
async def read(path: str) -> str:
    """Read a file."""
    return f"inside {path}"


NOW = RetryPolicy(base_delay=0)


@asynccontextmanager
async def an_agent(bench, script, *, retry=NOW, **options):
    """An agent at a bench; its log is checked in the end."""
    async with bench(script, **options) as it, Runtime.open(MemoryStore()) as runtime:
        it.agent = await runtime.agent("s", model=it.model, tools=[read], system="Be brief.", retry=retry)
        it.log = lambda: runtime.store.read("s")
        yield it
        assert list(check(await it.log())) == []


async def bodies(it, kind):
    return [event.body for event in await it.log() if isinstance(event.body, kind)]


async def test_a_turn_with_parallel_calls_and_reasoning_is_taken_by_the_provider(bench, fake_provider):
    fp = fake_provider
    calls = fp.Calls([fp.Call("read", {"path": "a"}, pieces=3), fp.Call("read", {"path": "b"}, pieces=3)])
    script = [[fp.Thinking("Hm."), fp.Text("Let me look."), calls], [fp.Text("Both are fine."), fp.Usage(20, 4)]]
    async with an_agent(bench, script) as it:
        turn = await it.agent.send("Look")
        assert (turn.reason.kind, turn.text, turn.steps) == ("completed", "Both are fine.", 2)
        assert all(name in str(it.provider.requests[1].body) for name in ("inside a", "inside b"))
        last = (await bodies(it, AssistantMessage))[-1]
        assert 20 in last.usage.values()
        assert (last.message.source["provider"], last.message.source["model"]) == (it.model.provider, "test-model")


async def test_a_rate_limit_is_retried_and_its_facts_stand_in_the_log(bench, fake_provider):
    fp = fake_provider
    async with an_agent(bench, [[fp.refuse(429, retry_after=0)], [fp.Text("Hello")]]) as it:
        assert (await it.agent.send("Hi")).text == "Hello"
        (attempt,) = await bodies(it, AssistantAttempt)
        assert attempt.error.name == "ModelError"
        assert "HTTP 429" in attempt.error.reason
        assert f"request id {it.provider.requests[0].request_id}, retry after 0 s" in attempt.error.reason
        assert len(it.provider.requests) == 2


@pytest.mark.parametrize("fault", ["refuse", "Reset", "Malformed", "ErrorEvent"])
async def test_what_may_be_cured_is_tried_again(bench, fake_provider, fault):
    fp = fake_provider
    broken = fp.refuse(500) if fault == "refuse" else getattr(fp, fault)()
    async with an_agent(bench, [[broken], [fp.Text("Hello")]]) as it:
        assert (await it.agent.send("Hi")).text == "Hello"
        assert len(await bodies(it, AssistantAttempt)) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_may_not_is_not(bench, fake_provider, status):
    async with an_agent(bench, [[fake_provider.refuse(status)]]) as it:
        with pytest.raises(TurnFailed) as caught:
            await it.agent.send("Hi")
        assert caught.value.__cause__.status == status
        assert len(it.provider.requests) == 1


async def test_a_long_wait_that_the_provider_wants_ends_the_turn(bench, fake_provider):
    async with an_agent(bench, [[fake_provider.refuse(429, retry_after=9999)]]) as it:
        with pytest.raises(TurnFailed, match="retry after 9999 s"):
            await it.agent.send("Hi")


@pytest.mark.parametrize("fault", ["Cut", "Reset", "End"])
async def test_a_cut_in_the_arguments_of_a_call_keeps_the_text_and_runs_nothing(bench, fake_provider, fault):
    fp = fake_provider
    script = [[fp.Text("Let me"), fp.Call("read", {"path": "a"}, cut=6), getattr(fp, fault)()], [fp.Text("Well.")]]
    async with an_agent(bench, script) as it:
        with pytest.raises(TurnFailed):
            await it.agent.send("Look")
        (message,) = await bodies(it, AssistantMessage)
        assert (message.interrupted, message.message.calls) == (True, ())
        assert not any(event.type.startswith("tool/") for event in await it.log())
        assert (await it.agent.send("And?")).text == "Well."


async def test_an_empty_reply_is_recorded_and_harms_no_later_request(bench, fake_provider):
    async with an_agent(bench, [[], [fake_provider.Text("Hello")]]) as it:
        assert (await it.agent.send("Hi")).text == ""
        assert (await it.agent.send("Hi?")).text == "Hello"


async def test_a_cancel_while_the_answer_trickles_keeps_what_came_and_closes_the_connection(bench, fake_provider):
    fp = fake_provider
    reply = [fp.Text("abc", pieces=3, gate="go"), fp.Call("read", {"path": "a"})]
    async with an_agent(bench, [reply, [fp.Text("Well.")]]) as it, it.agent.watch() as happenings:
        receipt = await it.agent.follow_up("Look")
        await it.provider.waiting("go")
        it.provider.let("go")
        async for what in happenings:
            if isinstance(what, ModelDelta) and what.delta == TextDelta("a"):
                break
        turn = await it.agent.cancel()
        await it.provider.disconnected()
        await it.provider.closed()
        assert (turn.reason.kind, (await receipt.turn).text) == ("aborted", "a")
        (message,) = await bodies(it, AssistantMessage)
        assert message.interrupted
        assert (await it.agent.send("And?")).text == "Well."


async def test_attempts_and_deltas_are_observed_in_order(bench, fake_provider):
    fp = fake_provider
    async with an_agent(bench, [[fp.refuse(503)], [fp.Text("Hi", pieces=2)]]) as it, it.agent.watch() as happenings:
        await it.agent.send("Hi")
        seen = []
        async for what in happenings:
            if isinstance(what, AttemptFailed):
                seen.append((what.attempt, what.error.status))
            elif isinstance(what, ModelDelta) and isinstance(what.delta, TextDelta):
                seen.append((what.attempt, what.delta.text))
            elif not isinstance(what, ModelDelta) and what.type == "turn/end":
                break
        assert seen == [(1, 503), (2, "H"), (2, "i")]


async def test_the_key_reaches_no_log_no_event_and_no_error(bench, fake_provider, caplog):
    """The server repeats the key in each of its errors."""
    fp = fake_provider
    key = fp.FakeProvider([]).key
    script = [
        [fp.refuse(401, f"The key {key} is not known.", code=key)],
        [fp.ErrorEvent(f"The key {key} was withdrawn.")],
        [fp.Text("Half"), fp.Event(f"Your key is {key}.")],
        [fp.Reset()],
        [fp.Text("Hello")],
    ]
    with caplog.at_level(logging.DEBUG):
        async with an_agent(bench, script, retry=RetryPolicy(max_attempts=1)) as it:
            for _ in script[:-1]:
                with pytest.raises(TurnFailed) as caught:
                    await it.agent.send("Hi")
                assert key not in everything_of(caught.value)
            await it.agent.send("Hi")
            assert key not in "".join(map(dumps, await it.log()))
            assert key not in repr(it.agent) + repr(it.model)
    assert caplog.records
    assert key not in caplog.text
    assert key not in "".join(str(record.__dict__) for record in caplog.records)


def everything_of(error):
    """An error and all that hangs on it, in text."""
    seen = []
    while error is not None:
        seen.append(f"{error!r} {error} {vars(error)}")
        error = error.__cause__ or error.__context__
    return " ".join(seen)


async def test_a_client_that_is_cancelled_from_outside_leaves_nothing_open(bench, fake_provider):
    fp = fake_provider
    async with bench([[fp.Text("ab", pieces=2, gate="go")]]) as it:
        with trio.CancelScope() as scope:
            async with Runtime.open(MemoryStore()) as runtime:
                agent = await runtime.agent("s", model=it.model)
                await agent.follow_up("Hi")
                await it.provider.waiting("go")
                scope.cancel()
                await trio.sleep_forever()
        await it.provider.disconnected()
        await it.provider.closed()


async def test_a_limit_that_leaves_nothing_but_thinking_harms_no_later_request(bench, fake_provider, dialect):
    fp = fake_provider
    cut = [fp.Call("read", {"path": "a"}, cut=6), fp.Finish("length")]
    thinking = [] if dialect == "chat" else [fp.Thinking("Hm.")]
    async with an_agent(bench, [[*thinking, *cut], [fp.Text("Hello")]]) as it:
        assert (await it.agent.send("Look")).reason.kind == "max-tokens"
        assert (await it.agent.send("And?")).text == "Hello"
