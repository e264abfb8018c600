"""A server over streamable HTTP: a real one, made with the SDK, on loopback."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from quiesce.actors.kernel import ActorSystem, Backoff
from quiesce.actors.mcp import CallTool, McpActor, McpConnectError, McpServer, ReadTools

pytest.importorskip("uvicorn")
# The SDK leaves the generators of a stream of events to the garbage collector; Trio finishes them, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
SCRIPT = Path(__file__).with_name("http_server.py")
UNKNOWN = "TOOL_OUTCOME_UNKNOWN"


class Site:
    """The process of a server, which may be killed and started again at the same port."""

    def __init__(self, way="sse"):
        self._way = way
        self.port = 0
        self.start()

    def start(self):
        """Start it; it listens by the time it says its port."""
        command = [sys.executable, SCRIPT, str(self.port), self._way]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(self._process.stdout.readline())

    def kill(self):
        """End it, and return when it has ended."""
        self._process.kill()
        self._process.stdout.close()
        self._process.wait()

    def server(self, **more):
        """How to reach it."""
        options = {"name": "web", "timeout": 20.0, "backoff": Backoff(initial=0.01, cap=0.1), **more}
        return McpServer(url=f"http://127.0.0.1:{self.port}/mcp", **options)


@pytest.fixture(scope="module", params=["sse", "json"])
def web(request):
    """A server for many tests, which do it no harm; one that streams its answers and one that does not."""
    made = Site(request.param)
    yield made
    made.kill()


@pytest.fixture
def own():
    """A server for one test, to do with as it likes."""
    made = Site()
    yield made
    made.kill()


@pytest.fixture(autouse=True)
async def in_time():
    with trio.fail_after(60):
        yield


async def test_calls_get_answers(web, hands):
    async with hands(web.server()) as tools:
        assert await tools.call("echo", text="Grüße") == ("ok", "Grüße")
        assert await tools.call("fail") == ("TOOL_ERROR", "Error executing tool fail")
        outcome = await tools.outcome("picture")
        assert outcome.content[1].data == {"type": "image", "mediaType": "image/png", "data": "iVBORw=="}


async def test_what_only_reads_is_parallel(web, hands):
    async with hands(web.server()) as tools:
        assert {name: tool.parallel for name, tool in (await tools.tools()).items() if name in {"echo", "hang"}} == {
            "echo": True,
            "hang": False,
        }


async def test_headers_are_sent(web, hands):
    async with hands(web.server(headers={"authorization": "Bearer abc"})) as tools:
        assert await tools.call("header", key="authorization") == ("ok", "Bearer abc")


async def test_a_call_that_is_cancelled_is_withdrawn(web, hands):
    async with hands(web.server()) as tools:
        hang = (await tools.tools())["hang"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(hang.function, key="a"))
            await tools.call("wait_for", what="started a")
            nursery.cancel_scope.cancel()
        assert await tools.call("wait_for", what="withdrawn a") == ("ok", "withdrawn a")


async def test_tools_that_have_changed_are_listed_again(own):
    send, offers = trio.open_memory_channel(10)
    async with ActorSystem() as system:
        ref = await system.spawn(McpActor, own.server(), lambda tools: send.send_nowait(tools) or ())
        before = await offers.receive()
        await ref.ask(CallTool("grow", {}))
        after = await offers.receive()
        assert {tool.name for tool in after} - {tool.name for tool in before} == {"web__one_more"}


async def test_a_call_that_takes_too_long_is_withdrawn(web, hands):
    async with hands(web.server(timeout=0.3)) as tools:
        assert (await tools.call("hang", key="b"))[0] == "TOOL_TIMEOUT"
    async with hands(web.server()) as tools:
        assert await tools.call("wait_for", what="withdrawn b") == ("ok", "withdrawn b")


async def test_a_server_that_is_started_again_is_connected_to_again(own, hands):
    async with hands(own.server()) as tools:
        async with trio.open_nursery() as nursery:
            answers = []

            async def ask():
                answers.append(await tools.call("hang", key="c"))

            nursery.start_soon(ask)
            await tools.call("wait_for", what="started c")
            own.kill()
        assert answers[0][0] == UNKNOWN
        own.start()
        assert await tools.call("echo") == ("ok", "echo")


async def test_a_server_that_was_restarted_between_two_calls_is_no_loss_or_an_honest_one(own, hands):
    async with hands(own.server()) as tools:
        await tools.call("echo")
        own.kill()
        own.start()
        assert (await tools.call("echo"))[0] in {
            "ok",
            UNKNOWN,
        }  # unknown if the old socket was still thought to be open
        assert await tools.call("echo") == ("ok", "echo")


async def test_a_call_that_cannot_be_sent_waits_until_the_server_is_back(own, hands, told):
    async with hands(own.server()) as tools, trio.open_nursery() as nursery:
        await tools.tools()
        own.kill()
        answers = []

        async def ask():
            answers.append(await tools.call("echo"))

        nursery.start_soon(ask)
        await told.until("mcp_connect_failed")
        own.start()
    assert answers == [("ok", "echo")]


async def test_a_call_is_sent_again_in_a_new_session_when_the_server_has_ended_the_old_one(web, hands):
    async with hands(web.server()) as tools:
        await tools.call("echo")
        await end_sessions(web.port)
        assert await tools.call("echo") == ("ok", "echo")


async def end_sessions(port):
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"POST /end-sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n")
        assert b"200 OK" in await stream.receive_some()


async def test_calls_wait_for_a_server_that_is_gone_for_a_bounded_time_only(own, hands):
    async with hands(own.server(reconnect_wait=0.3)) as tools:
        await tools.tools()
        own.kill()
        code, text = await tools.call("echo")
        assert code == "TOOL_ERROR"
        assert "The call was not sent, so it had no effect" in text


async def refused(url, **options):
    async with ActorSystem() as system:
        ref = await system.spawn(McpActor, McpServer(url=url, name="web", **options))
        with pytest.raises(McpConnectError) as raised:
            await ref.ask(ReadTools())
        return str(raised.value)


async def test_a_port_where_nobody_listens_is_said(hands):
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    text = await refused(f"http://127.0.0.1:{port}/mcp?key=secret")
    assert text.startswith("MCP server 'web': MCPError: cannot connect: ")
    assert "secret" not in text


async def test_a_path_where_no_server_is_is_said(web):
    text = await refused(f"http://127.0.0.1:{web.port}/other")
    assert text == "MCP server 'web': MCPError: Not Found.\nIts last words:\nHTTP 404 Not Found"


async def _say_nothing(stream):
    await trio.sleep_forever()


async def test_a_server_that_accepts_and_says_nothing_is_given_up():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, _say_nothing, listeners)
        assert "it did not answer within 0.3 s" in await refused(url, connect_timeout=0.3)
        nursery.cancel_scope.cancel()


async def test_closing_ends_the_session_of_the_server(web, hands):
    async with hands(web.server()) as tools:
        await tools.call("echo")
        assert await tools.call("sessions") == ("ok", "1")
    async with hands(web.server()) as tools:
        assert await tools.call("sessions") == ("ok", "1")
