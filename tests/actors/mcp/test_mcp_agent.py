"""Agents whose tools are on MCP servers."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from quiesce.actors import Agent, MemoryStore, Runtime, ScriptedModel, agent_spec, call, say, tool
from quiesce.actors.kernel import ActorSystem, Supervisor
from quiesce.actors.mcp import McpConnectError, McpServer, mcp_tools
from quiesce.protocol.errors import InvalidInput

UNKNOWN = "TOOL_OUTCOME_UNKNOWN"


async def test_a_turn_calls_tools_of_two_servers_at_the_same_time(agents, watched):
    servers = [watched.server(name="one"), watched.server(name="two")]
    script = [say("", call("one__held"), call("two__held")), say("both")]
    async with agents.at_work(script, mcp=servers) as desk:
        receipt = await desk.agent.follow_up("go")
        await watched.until(lambda _: watched.methods().count("tools/call") == 2)
        for at in (1, 0):
            watched.release(at)
        assert (await receipt.turn).text == "both"
        assert await desk.timeline("result") == ["result call00001 released", "result call00002 released"]


async def test_a_model_is_told_of_the_tools_of_all_servers_in_order(agents, watched):
    @tool
    def own() -> None:
        """One of ours."""

    servers = [watched.server(name="one"), watched.server(name="two")]
    async with agents.at_work([say("hi")], tools=[own], mcp=servers) as desk:
        await desk.agent.send("go")
        told = [spec.name for spec in desk.model.requests[0].tools]
    assert told[0] == "own"
    assert [name.partition("__")[0] for name in told[1:]] == ["one"] * 26 + ["two"] * 26


async def test_a_server_that_is_killed_in_a_call_costs_that_call_and_no_turn(agents, watched):
    script = [
        say("", call("bad__hang"), call("bad__held")),
        say("lost both"),
        say("", call("bad__echo", text="again")),
        say("done"),
    ]
    async with agents.at_work(script, mcp=[watched.server()]) as desk:
        receipt = await desk.agent.follow_up("go")
        await watched.called("held")
        os.kill(watched.pids[0], signal.SIGKILL)
        assert (await receipt.turn).reason.kind == "completed"
        assert (await desk.agent.send("once more")).text == "done"
        assert await desk.timeline("result") == [
            f"result call00001 {UNKNOWN}",
            f"result call00002 {UNKNOWN}",
            "result call00003 again",
        ]
    assert len(watched.pids) == 2


async def test_a_server_that_hangs_costs_its_call_the_time_out(agents, watched):
    script = [say("", call("bad__hang"), call("bad__echo")), say("done")]
    async with agents.at_work(script, mcp=[watched.server(timeout=0.2)]) as desk:
        assert (await desk.agent.send("go")).text == "done"
        assert await desk.timeline("result") == ["result call00001 TOOL_TIMEOUT", "result call00002 echo"]


async def test_cancelling_a_turn_withdraws_its_calls(agents, watched):
    async with agents.at_work([say("", call("bad__hang"))], mcp=[watched.server()]) as desk:
        await desk.agent.follow_up("go")
        called = await watched.called("hang")
        turn = await desk.agent.cancel()
        assert turn.reason.kind == "aborted"
        assert await desk.timeline("result") == ["result call00001 ABORTED"]
        assert (await watched.cancelled())["params"]["requestId"] == called["id"]


async def test_closing_an_agent_ends_its_servers_and_those_of_no_other(agents, watched):
    async with agents.at_work([], mcp=[watched.server()]) as desk:
        other = await desk.runtime.agent("other", model=ScriptedModel([]), mcp=[watched.server()])
        await desk.agent.close()
        assert [watched.is_alive(pid) for pid in watched.pids] == [False, True]
        await other.close()
        assert watched.alive() == []


async def test_closing_an_agent_in_the_middle_of_a_call_ends_its_servers(agents, watched):
    async with agents.at_work([say("", call("bad__hang"))], mcp=[watched.server()]) as desk:
        await desk.agent.follow_up("go")
        await watched.called("hang")
        await desk.agent.close()
        assert watched.alive() == []


async def test_an_agent_with_a_server_that_cannot_be_reached_is_not_opened(watched):
    async with Runtime.open(MemoryStore()) as runtime:
        servers = [watched.server(), watched.server("--start", "die", name="dead")]
        with pytest.raises(McpConnectError, match="no module named weather"):
            await runtime.agent("s", model=ScriptedModel([]), mcp=servers)
        assert watched.alive() == []
        again = await runtime.agent("s", model=ScriptedModel([]), mcp=servers[:1])
        await again.close()


async def test_opening_that_is_cancelled_leaves_no_server(watched):
    async with Runtime.open(MemoryStore()) as runtime, trio.open_nursery() as nursery:

        async def opening():
            await runtime.agent("s", model=ScriptedModel([]), mcp=[watched.server("--start", "hang")])

        nursery.start_soon(opening)
        await watched.started(1)
        nursery.cancel_scope.cancel()
    assert watched.alive() == []


async def test_tools_that_have_changed_are_in_the_next_request(agents, watched):
    script = [say("", call("bad__change")), say("now"), say("", call("bad__one_more")), say("done")]
    async with agents.at_work(script, mcp=[watched.server()]) as desk:
        await desk.agent.send("go")
        await watched.until(lambda _: watched.methods().count("tools/list") > 1)
        await desk.agent.send("use it")
        first, last = desk.model.requests[0], desk.model.requests[-1]
        assert {spec.name for spec in last.tools} - {spec.name for spec in first.tools} == {"bad__one_more"}


async def test_a_crash_of_the_session_does_not_restart_the_servers(agents, watched):
    script = [say("", call("bad__pid")), say("before"), say("", call("bad__pid")), say("after")]
    async with agents.at_work(script, mcp=[watched.server()]) as desk:
        await desk.agent.send("go")
        desk.agent._session._cell.crash(RuntimeError("on purpose"))
        await desk.agent.history()
        await desk.agent.send("go on")
        before, after = await desk.timeline("result")
        assert before.split()[-1] == after.split()[-1] == str(watched.pids[0])


async def test_a_crash_of_a_servers_actor_starts_it_again_and_the_agent_goes_on(agents, watched):
    async with agents.at_work([say("", call("bad__echo")), say("done")], mcp=[watched.server()]) as desk:
        servers = desk.agent._tree._cell.actor._children["mcp"].cell.actor
        servers._children["bad"].cell.crash(RuntimeError("on purpose"))
        await watched.started(2)
        assert (await desk.agent.send("go")).text == "done"
        assert await desk.timeline("result") == ["result call00001 echo"]


async def test_an_agent_in_a_tree_of_ones_own_has_its_servers(watched):
    async with MemoryStore() as store, ActorSystem() as system:
        model = ScriptedModel([say("", call("bad__echo")), say("done")])
        spec = agent_spec("s", store=store, model=model, mcp=[watched.server()])
        tree = await system.spawn(Supervisor, [spec])
        assert (await (await Agent.of(tree, "s")).send("go")).text == "done"


async def test_agents_may_share_servers(agents, watched):
    async with mcp_tools(watched.server()) as tools, Runtime.open(MemoryStore()) as runtime:
        for name in ("a", "b"):
            model = ScriptedModel([say("", call("bad__pid")), say("done")])
            await (await runtime.agent(name, model=model, tools=tools)).send("go")
            await agents.check_session(runtime.store, name)
    assert len(watched.pids) == 1


async def test_a_name_that_a_tool_of_ours_has_is_refused(watched):
    @tool
    def echo() -> None:
        """Ours."""

    async with Runtime.open(MemoryStore()) as runtime:
        with pytest.raises(InvalidInput, match="there is a tool 'echo' already"):
            await runtime.agent("s", model=ScriptedModel([]), tools=[echo], mcp=[watched.server(prefix="")])


@pytest.mark.parametrize("servers", [["mcp-server-time"], [McpServer("x"), McpServer("x")]])
async def test_what_are_no_servers_is_refused_before_anything_is_opened(servers):
    async with Runtime.open(MemoryStore()) as runtime:
        with pytest.raises(InvalidInput, match="mcp"):
            await runtime.agent("s", model=ScriptedModel([]), mcp=servers)
        assert await runtime.store.list() == []
