"""What an agent does, watched as it does it."""

from __future__ import annotations

import pytest
import trio

from quiesce.actors import AttemptFailed, ModelDelta, ModelError, RetryPolicy, TurnFailed, call, fail, say, tool
from quiesce.protocol.events import Event
from quiesce.protocol.model import CallDelta, Finished, ReasoningDelta, TextDelta


@tool
async def peek() -> str:
    """Look."""
    return "seen"


def words(what):
    """A happening in short."""
    match what:
        case ModelDelta(turn, step, attempt, TextDelta(text) | ReasoningDelta(text)):
            return f"{turn}.{step}.{attempt} {text}"
        case ModelDelta(turn, step, attempt, CallDelta(name=name)):
            return f"{turn}.{step}.{attempt} call {name}"
        case ModelDelta(turn, step, attempt, Finished()):
            return f"{turn}.{step}.{attempt} end"
        case AttemptFailed(turn, step, attempt, error, retry_in):
            return f"{turn}.{step}.{attempt} failed: {error}, again in {retry_in}"
        case Event():
            return what.type


async def watched(happenings):
    """Everything up to the end of the turn, in short, without what happens to the queues."""
    seen = []
    async for what in happenings:
        seen.append(words(what))
        if seen[-1] == "turn/end":
            return [word for word in seen if word != "agent/inbox/spliced"]
    raise AssertionError("the turn did not end")


async def test_the_pieces_of_an_answer_come_between_the_events_that_they_belong_to(agents):
    script = [say("Let me look", call(peek), reasoning="hm"), say("Done")]
    async with agents.at_work(script, tools=[peek]) as desk, desk.agent.watch() as happenings:
        await desk.agent.send("look")
        assert await watched(happenings) == [
            "turn/start",
            "step/start",
            "user/message",
            "1.1.1 hm",
            "1.1.1 Let me look",
            "1.1.1 call peek",
            "1.1.1 end",
            "assistant/message",
            "tool/call",
            "tool/result",
            "step/end",
            "step/start",
            "1.2.1 Done",
            "1.2.1 end",
            "assistant/message",
            "step/end",
            "turn/end",
        ]


async def test_an_attempt_that_fails_is_told_before_the_next_one_begins(agents):
    script = [fail("busy", transient=True, retry_after=0), say("Hello")]
    async with (
        agents.at_work(script, retry=RetryPolicy(base_delay=0)) as desk,
        desk.agent.watch() as happenings,
    ):
        await desk.agent.send("hi")
        assert (await watched(happenings))[3:-1] == [
            "1.1.1 failed: busy, again in 0.0",
            "assistant/attempt",
            "1.1.2 Hello",
            "1.1.2 end",
            "assistant/message",
            "step/end",
        ]


async def test_the_last_attempt_that_fails_says_that_there_is_no_other(agents):
    script = [say("Half a").then_fail(ModelError("cut", transient=True))]
    async with agents.at_work(script) as desk, desk.agent.watch() as happenings:
        with pytest.raises(TurnFailed):
            await desk.agent.send("hi")
        assert (await watched(happenings))[3:-1] == [
            "1.1.1 Half a",
            "1.1.1 failed: cut, again in None",
            "assistant/message",
            "step/end",
        ]


async def test_a_watcher_that_raises_hears_nothing_more_and_harms_nobody(agents):
    heard = []

    def broken(what):
        heard.append(what)
        raise RuntimeError("no terminal")

    async with agents.at_work([say("one"), say("two")]) as desk:
        desk.agent._watchers.add(broken)
        async with desk.agent.watch() as happenings:
            assert (await desk.agent.send("hi")).text == "one"
            assert "1.1.1 one" in await watched(happenings)
        assert (await desk.agent.send("hi")).text == "two"
    assert [words(what) for what in heard] == ["1.1.1 one"]


async def test_whoever_has_stopped_watching_is_not_in_the_way(agents):
    async with agents.at_work([say("one"), say("two")]) as desk:
        async with desk.agent.watch() as happenings:
            pass
        assert (await desk.agent.send("hi")).text == "one"
        assert [what async for what in happenings] == []
        async with desk.agent.watch() as first, desk.agent.watch() as second:
            assert (await desk.agent.send("hi")).text == "two"
            assert await watched(first) == await watched(second)


async def test_watching_ends_when_the_agent_is_closed(agents):
    async with agents.at_work([]) as desk, desk.agent.watch() as happenings:
        await desk.agent.close()
        assert [words(what) async for what in happenings] == []


async def test_a_watch_that_is_cancelled_before_it_begins_leaves_no_observer_behind(agents):
    async with agents.at_work([say("fine")]) as desk:
        session = desk.agent._session._cell.actor
        before = len(session._observers)
        with trio.CancelScope() as scope:
            scope.cancel()
            async with desk.agent.watch():
                raise AssertionError("it began")
        await desk.agent.send("hi")  # whoever has closed is dropped when there is something to tell
        assert len(session._observers) == before
