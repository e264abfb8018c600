"""What the tests of MCP servers share: a server of ours that misbehaves, and what it reports."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from quiesce.actors.hooks import HookChain, ToolInvocation
from quiesce.actors.invoke import outcome_of, run_body
from quiesce.actors.kernel import ActorSystem, Backoff
from quiesce.actors.mcp import McpActor, McpServer, ReadTools
from quiesce.protocol.events import text_of

SCRIPT = Path(__file__).with_name("misbehaving_server.py")
QUICK = Backoff(initial=0.01, cap=0.05)

pytest.importorskip("mcp")


class Watched:
    """What servers of ours report: their processes, and every message that reached them."""

    def __init__(self, port):
        self.port = port
        self.pids = []
        self.heard = []
        self._came = trio.Event()

    async def listen(self, stream):
        buffer = b""
        with suppress(trio.BrokenResourceError):
            async for chunk in stream:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))

    def _take(self, message):
        if "pid" in message:
            self.pids.append(message["pid"])
        else:
            self.heard.append(message)
        self._came.set()
        self._came = trio.Event()

    async def until(self, fits):
        """The first message that fits, once it has come."""
        while not (found := [message for message in self.heard if fits(message)]):
            await self._came.wait()
        return found[0]

    async def called(self, name):
        """The call of a tool, once the server has it."""
        return await self.until(lambda it: it.get("method") == "tools/call" and it["params"]["name"] == name)

    async def cancelled(self):
        """The first withdrawal, once the server has it."""
        return await self.until(lambda it: it.get("method") == "notifications/cancelled")

    def release(self, at=0):
        """Have a process answer the calls of `held`."""
        os.kill(self.pids[at], signal.SIGUSR1)

    async def started(self, count):
        """As many processes as that."""
        while len(self.pids) < count:
            await self._came.wait()

    def methods(self):
        return [message.get("method") for message in self.heard]

    def server(self, *options, **more):
        """A server of ours, whose waits are short."""
        made = {"name": "bad", "timeout": 20.0, "grace": 5.0, "backoff": QUICK, **more}
        return McpServer(sys.executable, SCRIPT, "--report", str(self.port), *options, **made)

    @staticmethod
    def connected(server):
        """A server's actor, alone in a system."""
        return _connected(server)

    @staticmethod
    def is_alive(pid):
        """Whether a process is there, be it as a zombie."""
        return _is_alive(pid)

    def alive(self):
        """The processes that are still there."""
        return [pid for pid in self.pids if _is_alive(pid)]


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
async def watched():
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            watched = Watched(listeners[0].socket.getsockname()[1])
            await nursery.start(trio.serve_listeners, watched.listen, listeners)
            yield watched
            nursery.cancel_scope.cancel()
        assert watched.alive() == []


class Hands:
    """One connected server, and its tools by their own names."""

    def __init__(self, server, ref):
        self.server = server
        self.ref = ref

    async def tools(self):
        return {tool.name.removeprefix(self.server.prefix): tool for tool in await self.ref.ask(ReadTools())}

    async def call(self, name, **arguments):
        """What the model is told: `ok` or the code of the error, and the text."""
        outcome = await self.outcome(name, **arguments)
        return outcome.error.code if outcome.error else "ok", text_of(outcome.content)

    async def outcome(self, name, **arguments):
        """The outcome of a call that runs as an agent would run it, with its time-out."""
        tool = (await self.tools())[name]
        call = ToolInvocation("s", 1, 1, 0, "c1", tool.name, arguments, tool)
        return outcome_of(await run_body(call, chain=HookChain()), tool)


@asynccontextmanager
async def _connected(server):
    async with ActorSystem() as system:
        yield Hands(server, await system.spawn(McpActor, server))


class Told(logging.Handler):
    """What is logged of servers, as it comes."""

    def __init__(self):
        super().__init__()
        self.events = []
        self._came = trio.Event()

    def emit(self, record):
        self.events.append(record.getMessage().split()[0])
        self._came.set()
        self._came = trio.Event()

    async def until(self, event):
        """Return when that has been logged."""
        while event not in self.events:
            await self._came.wait()


@pytest.fixture
def told():
    handler, logger = Told(), logging.getLogger("quiesce.mcp")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def hands():
    """A context manager that connects to a server and gives its tools to call; see `Hands`."""
    return _connected
