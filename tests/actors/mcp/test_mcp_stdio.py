"""A server of ours on its standard streams, which does everything wrong that can be done wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from quiesce.actors.kernel import ActorSystem, Backoff, Supervisor, WhichChildren
from quiesce.actors.mcp import (
    CallTool,
    CancelCall,
    McpActor,
    McpConnectError,
    McpServer,
    ReadTools,
    mcp_spec,
    mcp_tools,
)
from quiesce.protocol.errors import InvalidInput

SCRIPT = Path(__file__).with_name("misbehaving_server.py")
HOLOGRAM = "see:[content of type 'hologram' is not shown: it is of an unknown kind]"
UNKNOWN = "TOOL_OUTCOME_UNKNOWN"


# --- answers -----------------------------------------------------------------------------------------------------


async def test_a_call_gets_the_servers_answer(watched):
    async with watched.connected(watched.server()) as bad:
        assert await bad.call("echo", text="Grüße") == ("ok", "Grüße")


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("twice", {}, "first"),
        ("for_others", {}, "mine"),
        ("garbage_first", {}, "after the garbage"),
        ("flood", {"lines": 50_000}, "still here"),
        ("chatter", {"lines": 20_000}, "still here"),
        ("surrogates", {}, "a\ufffdb"),
        ("not_a_number", {}, '{"x":"NaN"}'),
        ("hologram", {}, HOLOGRAM),
        ("asks_back", {}, '{"code": -32600, "message": "Sampling not supported"}'),
    ],
)
async def test_whatever_else_a_server_says_the_answer_counts(watched, tool, arguments, answer):
    async with watched.connected(watched.server()) as bad:
        assert await bad.call(tool, **arguments) == ("ok", answer)
        assert await bad.call("echo") == ("ok", "echo")
    assert len(watched.pids) == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("tool_error", {}, "no such file"),
        ("rpc_error", {}, "the quota is used up (MCP error -32000)"),
        ("no_response", {}, "the server's answer is not a JSON-RPC response (MCP error -32700)"),
        ("no_content", {}, 'It has no content. It was: {"answer":42}'),
        ("content_is_text", {}, 'Its content is not a list. It was: {"content":"just a text"}'),
        ("huge", {"mib": 33}, "the server's answer is longer than 32 MiB (MCP error -32700)"),
    ],
)
async def test_an_answer_that_is_an_error_or_none_is_an_error_result(watched, tool, arguments, says):
    async with watched.connected(watched.server()) as bad:
        code, text = await bad.call(tool, **arguments)
        assert code == "TOOL_ERROR"
        assert text.endswith(says)
        assert await bad.call("echo") == ("ok", "echo")
    assert len(watched.pids) == 1


async def test_a_long_answer_arrives_whole(watched):
    async with watched.connected(watched.server()) as bad:
        _, text = await bad.call("huge", mib=4)
        assert len(text) == 4 * 1024 * 1024


# --- time and withdrawal -----------------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_withdrawn(watched):
    async with watched.connected(watched.server(timeout=0.2)) as bad:
        code, text = await bad.call("hang")
        assert code == "TOOL_TIMEOUT"
        assert "It may have had effects" in text
        called, cancelled = await watched.called("hang"), await watched.cancelled()
        assert cancelled["params"]["requestId"] == called["id"]


async def test_a_call_that_is_cancelled_is_withdrawn_and_its_late_answer_ignored(watched):
    async with watched.connected(watched.server()) as bad:
        tool = (await bad.tools())["answer_when_cancelled"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tool.function)
            called = await watched.called("answer_when_cancelled")
            nursery.cancel_scope.cancel()
        cancelled = await watched.cancelled()
        assert cancelled["params"]["requestId"] == called["id"]
        assert await bad.call("echo") == ("ok", "echo")


async def test_withdrawing_a_call_ends_no_other(watched):
    async with watched.connected(watched.server()) as bad, trio.open_nursery() as nursery:
        hang = (await bad.tools())["hang"]
        nursery.start_soon(hang.function)
        await watched.called("hang")
        assert await bad.call("echo") == ("ok", "echo")
        nursery.cancel_scope.cancel()


async def test_a_call_that_has_ended_is_not_withdrawn(watched):
    async with watched.connected(watched.server()) as bad:
        call = CallTool("echo", {})
        await bad.ref.ask(call)
        bad.ref.tell(CancelCall(call))
        await bad.call("pid")
        assert "notifications/cancelled" not in watched.methods()


# --- the end of a server -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["die", "leave_a_child", "close_output"])
async def test_a_server_that_is_lost_answers_its_calls_as_unknown_and_is_started_again(watched, tool):
    async with watched.connected(watched.server()) as bad:
        code, text = await bad.call(tool)
        assert code == UNKNOWN
        assert "it may have taken effect" in text
        assert await bad.call("echo") == ("ok", "echo")
    assert len(watched.pids) == 2


async def test_how_a_server_ended_is_said(watched):
    async with watched.connected(watched.server()) as bad:
        assert "its process ended with status 3" in (await bad.call("die"))[1]


async def test_a_server_that_is_killed_in_a_call_answers_all_of_its_calls(watched):
    async with watched.connected(watched.server()) as bad:
        answers = []

        async def ask(name):
            answers.append((await bad.call(name))[0])

        async with trio.open_nursery() as nursery:
            for name in ("hang", "answer_when_cancelled"):
                nursery.start_soon(ask, name)
                await watched.called(name)
            os.kill(watched.pids[0], signal.SIGKILL)
        assert answers == [UNKNOWN, UNKNOWN]
        assert await bad.call("echo") == ("ok", "echo")


async def test_a_server_that_reads_no_more_is_started_again(watched):
    async with watched.connected(watched.server(timeout=0.3, grace=0.1)) as bad:
        await bad.call("close_input")  # times out; its withdrawal cannot be written
        await watched.started(2)
        assert await bad.call("echo") == ("ok", "echo")


async def test_a_call_is_sent_once_whatever_happens(watched):
    async with watched.connected(watched.server()) as bad:
        await bad.call("die")
        await bad.call("echo")
    assert [it["params"]["name"] for it in watched.heard if it.get("method") == "tools/call"] == ["die", "echo"]


async def test_calls_wait_for_a_server_that_does_not_come_back_for_a_bounded_time_only(watched, tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SCRIPT.read_text())
    server = McpServer(sys.executable, script, name="gone", reconnect_wait=0.2, backoff=Backoff(initial=0.01))
    async with watched.connected(server) as gone:
        await gone.tools()
        script.unlink()
        assert (await gone.call("die"))[0] == UNKNOWN
        code, text = await gone.call("echo")
        assert code == "TOOL_ERROR"
        assert "was not within 0.2 s. The call was not sent, so it had no effect" in text


async def test_the_end_of_a_server_cancels_nobody_and_raises_nothing(watched):
    async with watched.connected(watched.server()) as bad:
        with trio.CancelScope() as scope:
            await bad.call("die")
            await trio.lowlevel.checkpoint()
        assert not scope.cancelled_caught
        assert bad.ref.is_alive()


async def test_what_happens_to_a_server_is_logged(watched, told):
    async with watched.connected(watched.server()) as bad:
        await bad.call("die")
        await bad.call("echo")
    assert told.events == ["mcp_connected", "mcp_connection_lost", "mcp_connected"]


# --- connecting --------------------------------------------------------------------------------------------------


async def refused(server):
    """Why the tools of a server cannot be had."""
    async with ActorSystem() as system:
        ref = await system.spawn(McpActor, server)
        with pytest.raises(McpConnectError) as raised:
            await ref.ask(ReadTools())
        return str(raised.value)


async def test_a_command_that_is_not_there_is_said():
    assert await refused(McpServer("/no/such/program")) == (
        "MCP server 'program': '/no/such/program' cannot be started: No such file or directory"
    )


async def test_a_server_that_dies_at_once_is_quoted(watched):
    text = await refused(watched.server("--start", "die"))
    assert text.startswith("MCP server 'bad': ")
    assert "its process ended with status 5" in text
    assert text.endswith("Its last words:\nTraceback: no module named weather")


async def test_a_server_that_does_not_answer_is_given_up_and_its_initialize_is_not_cancelled(watched):
    text = await refused(watched.server("--start", "hang", connect_timeout=0.5, backoff=None))
    assert text == "MCP server 'bad': it did not answer within 0.5 s"
    assert watched.methods() == ["initialize"]


async def test_a_server_whose_listing_never_ends_is_given_up(watched):
    text = await refused(watched.server("--tools", "endless"))
    assert "its list of tools has more than 1000 pages" in text


async def test_a_server_whose_listing_is_no_list_is_given_up(watched):
    assert "its list of tools is not a list" in await refused(watched.server("--tools", "no-list"))


async def test_a_server_that_knows_no_initialize_any_more_is_asked_to_discover(watched):
    async with watched.connected(watched.server("--era", "modern")) as bad:
        assert await bad.call("echo") == ("ok", "echo")
        assert await bad.call("hologram") == ("ok", HOLOGRAM)
    assert watched.methods()[:3] == ["initialize", "server/discover", "tools/list"]


async def test_a_server_that_greets_is_connected_to_all_the_same(watched):
    async with watched.connected(watched.server("--start", "garbage")) as bad:
        assert await bad.call("echo") == ("ok", "echo")


async def test_closing_while_it_connects_takes_no_longer_than_the_process_does(watched):
    async with watched.connected(watched.server("--start", "hang", connect_timeout=1000)):
        await watched.until(lambda it: it["method"] == "initialize")
    assert watched.methods() == ["initialize"]


async def test_nothing_of_a_server_is_on_the_terminal(watched, capfd):
    async with watched.connected(watched.server()) as bad:
        await bad.call("chatter", lines=100)
        await bad.call("garbage_first")
        await bad.call("die")
    assert capfd.readouterr() == ("", "")


async def test_a_process_gets_its_own_variables_and_folder_and_no_secret_of_ours(watched, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with watched.connected(watched.server(env={"CITY": "Oslo"}, cwd=tmp_path)) as bad:
        seen = json.loads((await bad.call("environment"))[1])
    assert (seen["CITY"], seen["CWD"]) == ("Oslo", str(tmp_path))
    assert "PATH" in seen
    assert "OPENAI_API_KEY" not in seen


# --- tools -------------------------------------------------------------------------------------------------------


async def test_a_server_may_have_no_tools(watched):
    async with watched.connected(watched.server("--tools", "none")) as bad:
        assert await bad.tools() == {}


async def test_all_pages_of_the_tools_are_read(watched):
    async with watched.connected(watched.server("--tools", "pages")) as bad:
        assert len(await bad.tools()) == 26


async def test_bad_tools_are_left_out_and_logged(watched, told):
    async with watched.connected(watched.server("--tools", "bad")) as bad:
        assert list(await bad.tools()) == ["echo", "annotated"]
        assert await bad.call("echo") == ("ok", "echo")
    assert told.events.count("mcp_tool_left_out") == 6


async def test_tools_that_have_changed_are_listed_again(watched):
    offers = trio.open_memory_channel(10)
    async with ActorSystem() as system:
        ref = await system.spawn(McpActor, watched.server(), lambda tools: offers[0].send_nowait(tools) or ())
        before = await offers[1].receive()
        await ref.ask(CallTool("change", {}))
        after = await offers[1].receive()
        assert {tool.name for tool in after} - {tool.name for tool in before} == {"bad__one_more"}
        assert await ref.ask(ReadTools()) == after


async def test_however_often_they_change_few_listings_are_made(watched):
    async with watched.connected(watched.server()) as bad:
        await bad.call("change", times=200)
        await watched.until(lambda it: watched.methods().count("tools/list") > 1)
        await bad.call("echo")
    assert watched.methods().count("tools/list") < 50


async def test_a_name_that_is_taken_is_an_error_at_first(watched):
    async with ActorSystem() as system:
        ref = await system.spawn(McpActor, watched.server(), lambda tools: ("bad__echo",))
        with pytest.raises(InvalidInput, match="there is a tool 'bad__echo' already"):
            await ref.ask(ReadTools())


# --- closing -----------------------------------------------------------------------------------------------------


async def test_closing_ends_the_process(watched):
    async with watched.connected(watched.server()) as bad:
        pid = int((await bad.call("pid"))[1])
        assert watched.is_alive(pid)
    assert not watched.is_alive(pid)


@pytest.mark.parametrize("options", [("--stay",), ("--stay", "--ignore-sigterm")])
async def test_a_process_that_does_not_end_is_ended(watched, options):
    async with watched.connected(watched.server(*options, grace=0.1)) as bad:
        await bad.call("echo")
    assert watched.alive() == []


async def test_a_process_that_is_frozen_costs_its_calls_their_time_and_is_ended(watched):
    async with watched.connected(watched.server(timeout=0.2, grace=0.1)) as bad:
        await bad.call("echo")
        os.kill(watched.pids[0], signal.SIGSTOP)
        assert (await bad.call("echo", text="x" * 1_000_000))[0] == "TOOL_TIMEOUT"  # more than a pipe takes
    assert watched.alive() == []


async def test_closing_with_calls_under_way_ends_them(watched):
    answers = []
    async with trio.open_nursery() as nursery, watched.connected(watched.server()) as bad:

        async def ask():
            answers.append(await bad.call("hang"))

        nursery.start_soon(ask)
        await watched.called("hang")
    ((code, text),) = answers
    assert code == UNKNOWN
    assert "It may have had effects" in text


async def test_cancelling_everything_leaves_no_process(watched):
    with trio.CancelScope() as scope:
        async with watched.connected(watched.server("--stay", "--ignore-sigterm", grace=0.1)) as bad:
            await bad.call("echo")
            scope.cancel()
            await trio.sleep_forever()
    assert watched.alive() == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of what is open")
async def test_nothing_is_left_open(watched):
    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    async with watched.connected(watched.server()) as bad:
        await bad.call("echo")
    before = descriptors()
    for _ in range(3):
        async with watched.connected(watched.server()) as bad:
            await bad.call("die")
            await bad.call("echo")
    assert descriptors() == before


# --- supervision -------------------------------------------------------------------------------------------------


async def test_a_server_can_be_a_child_in_any_tree(watched):
    async with ActorSystem() as system:
        tree = await system.spawn(Supervisor, [mcp_spec(watched.server())])
        (child,) = await tree.ask(WhichChildren())
        tools = {tool.name: tool for tool in await child.ref.ask(ReadTools())}
        assert (await tools["bad__echo"].function(text="hi")).content[0].text == "hi"


async def test_tools_of_several_servers_at_once(watched):
    one, other = watched.server(name="one"), watched.server(name="other")
    async with mcp_tools(one, other) as tools:
        assert [tool.name for tool in tools if tool.name.endswith("__echo")] == ["one__echo", "other__echo"]
    assert len(watched.pids) == 2


async def test_one_server_that_cannot_be_reached_keeps_the_others_from_staying(watched):
    with pytest.raises(McpConnectError, match="'gone'"):
        async with mcp_tools(watched.server(), McpServer("/no/such/program", name="gone")):
            pass


async def test_servers_connect_at_the_same_time(watched):
    async def connect():
        async with mcp_tools(*(watched.server("--start", "hang", name=name) for name in "abc")):
            pytest.fail("they are not connected")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await watched.started(3)
        nursery.cancel_scope.cancel()
