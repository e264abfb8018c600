"""What a tool, a hook or a model may do with its own agent: use it, but not wait for the turn that it is part of."""

from __future__ import annotations

import pytest
import trio

from quiesce.actors import Hooks, MemoryStore, Runtime, ScriptedModel, TurnFailed, call, say, tool
from quiesce.actors.kernel import SelfWaitError

WAITS = ["send", "cancel", "wait", "close"]
ARGUMENTS = {"send": ("more",)}


async def _wait_for(agent, method):
    return await getattr(agent, method)(*ARGUMENTS.get(method, ()))


@pytest.fixture
def box():
    return {}


async def _run(box, *, tools=(), hooks=(), script=None):
    async with Runtime.open(MemoryStore()) as runtime:
        model = ScriptedModel(script or [say("", call(tools[0])), say("done")])
        box["agent"] = agent = await runtime.agent("s", model=model, tools=tools, hooks=hooks)
        return await agent.send("go"), await agent.history()


@pytest.mark.parametrize("method", WAITS)
async def test_a_tool_that_waits_for_its_own_turn_gets_an_error_result(box, method):
    @tool
    async def waits() -> str:
        await _wait_for(box["agent"], method)
        return "never"

    turn, history = await _run(box, tools=[waits])
    assert turn.text == "done"
    assert "SelfWaitError" in history[2].content[0].text


@pytest.mark.parametrize("method", WAITS)
async def test_so_does_a_tool_in_a_thread(box, method):
    @tool
    def waits() -> str:
        trio.from_thread.run(_wait_for, box["agent"], method)
        return "never"

    _, history = await _run(box, tools=[waits])
    assert "SelfWaitError" in history[2].content[0].text


@pytest.mark.parametrize("method", WAITS)
@pytest.mark.parametrize("hook", ["prepare", "finalize"])
async def test_a_hook_that_waits_for_its_own_turn_fails_it(box, method, hook):
    @tool
    async def plain() -> str:
        return "plain"

    async def waits(self, *_):
        await _wait_for(box["agent"], method)

    hooks = [type("Waiting", (Hooks,), {hook: waits})()]
    with pytest.raises(TurnFailed) as caught:
        await _run(box, tools=[plain], hooks=hooks)
    assert isinstance(caught.value.__cause__, SelfWaitError)


@pytest.mark.parametrize("method", WAITS)
async def test_a_model_that_waits_for_its_own_turn_fails_it(box, method):
    class Waiting(ScriptedModel):
        async def respond(self, request, emit):
            await _wait_for(box["agent"], method)

    async with Runtime.open(MemoryStore()) as runtime:
        box["agent"] = agent = await runtime.agent("s", model=Waiting([]))
        with pytest.raises(TurnFailed) as caught:
            await agent.send("go")
    assert isinstance(caught.value.__cause__, SelfWaitError)


@pytest.mark.parametrize("method", ["follow_up", "steer", "inject"])
async def test_input_for_later_may_come_from_inside(box, method):
    @tool
    async def asks() -> str:
        await getattr(box["agent"], method)("and then?")
        return "asked"

    turn, _ = await _run(box, tools=[asks], script=[say("", call("asks")), say("done"), say("more")])
    assert turn.text in {"done", "more"}


async def test_a_tool_may_wait_for_another_agent(box):
    async with Runtime.open(MemoryStore()) as runtime:
        other = await runtime.agent("other", model=ScriptedModel([say("helped")]))

        @tool
        async def delegates() -> str:
            return (await other.send("help")).text

        model = ScriptedModel([say("", call(delegates)), say("done")])
        agent = await runtime.agent("s", model=model, tools=[delegates])
        await agent.send("go")
        assert (await agent.history())[2].content[0].text == "helped"


async def test_what_a_tool_starts_outside_of_the_turn_may_wait_for_it(box):
    closed = trio.Event()

    async def close() -> None:
        await box["agent"].close()
        closed.set()

    async with trio.open_nursery() as outside, Runtime.open(MemoryStore()) as runtime:

        @tool
        async def ends_it() -> str:
            outside.start_soon(close)
            return "closing"

        model = ScriptedModel([say("", call(ends_it)), say("done")])
        box["agent"] = agent = await runtime.agent("s", model=model, tools=[ends_it])
        await agent.follow_up("go")
        await closed.wait()
        assert not agent.is_alive()
