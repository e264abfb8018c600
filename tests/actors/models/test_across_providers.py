"""One session, continued with one provider after the other: whatever happened in it, each request is taken (G9)."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from quiesce.actors import Hooks, MemoryStore, Runtime, TurnFailed, tool
from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.rules import check


@tool(parallel=True)
async def read(path: str) -> str:
    """Read a file."""
    return f"inside {path}"


class BreaksDown(Hooks):
    """Its `finalize` fails at the result of the file `b`: a failure of the scheduler."""

    async def finalize(self, call, result):
        if call.arguments["path"] == "b":
            raise RuntimeError("the scheduler broke down")
        return result


async def test_a_session_goes_on_with_any_provider_after_a_failure_and_a_cancel(fake_provider, at_provider):
    fp = fake_provider

    def look(number):
        """Reasoning, text and two calls. Each provider counts its ids from one, so they are given here."""
        calls = [fp.Call("read", {"path": path}, id=f"call{number}000{path}") for path in "ab"]
        return [fp.Thinking(f"Hm, {number}."), fp.Text(f"Let me look, {number}."), fp.Calls(calls)]

    turns = [
        ("chat", "openai", "openai", [look(1), [fp.Text("Both are fine.")]], "completed"),
        ("anthropic", "anthropic", "anthropic", [look(2)], "error"),
        ("responses", "openai", "openai-responses", [look(3), [fp.Wait("never")]], "aborted"),
        ("chat", "deepseek", "deepseek", [look(4), [fp.Text("Fine.")]], "completed"),
        ("chat", "mistral", "mistral", [[fp.Text("Fine.")]], "completed"),
        ("anthropic", "strict", "strict-anthropic", [look(5), [fp.Text("Fine.")]], "completed"),
        ("responses", "strict", "strict-responses", [[fp.Text("Fine.")]], "completed"),
    ]
    async with Runtime.open(MemoryStore()) as runtime, AsyncExitStack() as stack:
        for dialect, variant, profile, replies, ending in turns:
            provider = await stack.enter_async_context(fp.FakeProvider(replies, variant=variant))
            model = await stack.enter_async_context(at_provider(provider, dialect, profile=PROFILES[profile]))
            hooks = [BreaksDown()] if ending == "error" else []
            agent = await runtime.agent("s", model=model, tools=[read], hooks=hooks)
            await _take_turn(agent, provider, ending)
            assert provider.refused == []
            await agent.close()
        assert list(check(await runtime.store.read("s"))) == []


async def _take_turn(agent, provider, ending):
    receipt = await agent.follow_up("Look")
    if ending == "aborted":
        await provider.waiting("never")
        assert (await agent.cancel()).reason.kind == "aborted"
        await provider.closed()
    elif ending == "error":
        with pytest.raises(TurnFailed, match="broke down"):
            await receipt.turn
    else:
        assert (await receipt.turn).reason.kind == ending
