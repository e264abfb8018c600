"""The transport to a server that runs as a process: JSON-RPC messages on its standard streams, one a line.

A transport of our own, for the session of the SDK. What it does that matters here:

- A line is kept to a limit, in linear time. Lines that are no messages are passed over; an answer that cannot be read
  is answered with an error, so that nobody waits for it. Notifications that nobody would read are dropped unseen: a
  flood of them costs a parse each.
- The end of the process is noticed even while a child of it holds its output open, and the end of its output even
  while it lives.
- Standard error is not the terminal's business: the last lines are kept, for the error that says why connecting failed.
- The end: standard input is closed; after a grace the process group is terminated; after another it is killed. This is
  shielded from cancellation, and bounded.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import trio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from quiesce.actors.mcp.errors import McpConnectError
from quiesce.actors.mcp.lines import Line, Lines
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from quiesce.actors.mcp.server import McpServer

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

__all__ = ["LastWords", "read_messages", "stdio_transport"]

_MAX_LINE: Final = 32 * 1024 * 1024
_MAX_WORDS: Final = 500
_LAST_WAIT: Final = 0.5
"""Seconds between the end of a process and that of its output, whichever comes first, before both count as ended."""
_REAP: Final = 2.0
"""Seconds in which the end of a killed process is seen; only one that cannot be killed takes longer."""


class LastWords:
    """What a process said last that was no message, and how it ended."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self.status: int | None = None

    def add(self, line: bytes) -> None:
        """Keep a line, and no more of it than anybody would read; one that is said again and again is kept once."""
        text = clean_text(line[:_MAX_WORDS].decode("utf-8", "replace")).rstrip()
        if text and not (self._lines and self._lines[-1] == text):
            self._lines.append(text)

    def ending(self) -> str:
        """How the process ended; nothing while it runs."""
        if self.status is None:
            return ""
        if self.status < 0:
            return f"its process was ended by signal {-self.status}"
        return f"its process ended with status {self.status}"

    def __str__(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)


@asynccontextmanager
async def stdio_transport(server: McpServer, last_words: LastWords) -> AsyncIterator[Streams]:
    """Start the process, and give the streams for a session; on leaving, end it.

    Cancelled, it ends the process all the same, which takes at most twice its grace and a moment. Raises
    `McpConnectError` if the process cannot be started; never because of what it does.
    """
    pipes = _Pipes(await _start(server), last_words, server.grace)
    async with trio.open_nursery() as nursery:  # nothing may wait between the start and here
        for task in (pipes.read, pipes.write, pipes.listen, pipes.watch):
            nursery.start_soon(task)
        try:
            yield pipes.incoming, pipes.outgoing
        finally:
            with trio.CancelScope(shield=True):
                await pipes.stop()
            nursery.cancel_scope.cancel()


async def _start(server: McpServer) -> trio.Process:
    options: dict[str, Any] = {"start_new_session": True} if os.name == "posix" else {}
    try:
        return await trio.lowlevel.open_process(
            list(server.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=server.cwd,
            env={**get_default_environment(), **server.env},
            **options,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise McpConnectError(f"{server.command[0]!r} cannot be started: {why}") from error


class _Pipes:
    """The streams of one process and the tasks that serve them. None of them raises for what the process does."""

    def __init__(self, process: trio.Process, last_words: LastWords, grace: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._last_words, self._grace = process, last_words, grace
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._all_read, self._all_heard = trio.Event(), trio.Event()
        self._stopping = False
        self._deliver, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(self) -> None:
        """Hand its messages to the session, in order; its end is the end of the session."""
        lines = Lines(_MAX_LINE)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in self._stdout:
                for line in lines.feed(chunk):
                    await self._hand_over(line)
            for line in lines.end():
                await self._hand_over(line)
        self._all_read.set()
        with trio.move_on_after(_LAST_WAIT):  # how it ended is worth saying
            await self._ended()
        self._deliver.close()

    async def _hand_over(self, line: Line) -> None:
        messages = read_messages(line)
        if messages is None:
            self._last_words.add(line.data)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more: go on draining,
            for message in messages or ():  # or a process that still writes could not come to its end
                await self._deliver.send(message)

    async def write(self) -> None:
        """Hand it what the session says; when either cannot go on, neither does the other."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), self._to_send:
            async for message in self._to_send:
                said = message.message.model_dump(by_alias=True, exclude_unset=True)
                await self._stdin.send_all(json.dumps(said).encode() + b"\n")
        await self._read_out()

    async def listen(self) -> None:
        """Keep the last of what it says on standard error."""
        lines = Lines(_MAX_WORDS)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in self._stderr:
                for line in lines.feed(chunk):
                    self._last_words.add(line.data)
        for line in lines.end():
            self._last_words.add(line.data)
        self._all_heard.set()

    async def watch(self) -> None:
        """Notice its end, also when its output is held open by a child of it."""
        await self._ended()
        await self._read_out()

    async def _read_out(self) -> None:
        """Whatever was said by now is still read; then it is over."""
        with trio.move_on_after(_LAST_WAIT):
            await self._all_read.wait()
        self._deliver.close()

    async def _ended(self) -> None:
        status = await self._process.wait()
        if not self._stopping:
            self._last_words.status = status

    # --- the end -----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End it, and let go of everything. Not to be cancelled; bounded."""
        ended_by_itself, self._stopping = self._all_read.is_set() or self._process.poll() is not None, True
        for stream in (self.outgoing, self.incoming, self._deliver):
            stream.close()
        await self._stdin.aclose()
        if await self._ends_within(self._grace):
            self._last_words.status = self._process.returncode if ended_by_itself else None
        else:
            self._signal(signal.SIGTERM)
            if not await self._ends_within(self._grace):
                self._signal(_KILL)
                await self._ends_within(_REAP)
        self._signal(_KILL)  # whoever it left behind
        with trio.move_on_after(_LAST_WAIT):
            await self._all_read.wait()
            await self._all_heard.wait()
        await self._stdout.aclose()
        await self._stderr.aclose()
        self._to_send.close()

    async def _ends_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self._process.wait()
        return self._process.returncode is not None

    def _signal(self, number: int) -> None:
        """Signal the whole group of the process: what it started is part of it."""
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


# --- messages ----------------------------------------------------------------------------------------------------


def read_messages(line: Line) -> list[SessionMessage] | None:
    """The messages on a line that concern a session, perhaps none; None if it is no message at all.

    An answer that does not keep to JSON-RPC, or is over the limit, becomes an error that answers the same request.
    """
    if line.cut:
        return _too_long(line.data)
    try:
        said = json.loads(line.data) if line.data.strip() else []
    except (ValueError, RecursionError):
        return None
    found = [message for item in (said if isinstance(said, list) else [said]) for message in _messages(item)]
    return found if found or isinstance(said, list | dict) else None


def _messages(item: object) -> Iterator[SessionMessage]:
    if not isinstance(item, dict) or _is_idle_talk(item):
        return
    try:
        yield SessionMessage(jsonrpc_message_adapter.validate_python(item, by_name=False))
    except ValidationError:
        asked = item.get("id")
        if "method" not in item and isinstance(asked, int | str) and not isinstance(asked, bool):
            yield _refusal(asked, "the server's answer is not a JSON-RPC response")


def _is_idle_talk(item: dict[str, Any]) -> bool:
    """Whether it is a notification that changes nothing here: progress, log messages and their like."""
    return "method" in item and "id" not in item and item["method"] != "notifications/tools/list_changed"


_ID: Final = re.compile(rb'\A\s*\{[^{}\[\]]*?"id"\s*:\s*(\d+)')


def _too_long(head: bytes) -> list[SessionMessage]:
    found = _ID.match(head[:_MAX_WORDS])
    if found is None:
        return []
    return [_refusal(int(found[1]), f"the server's answer is longer than {_MAX_LINE // 1024 // 1024} MiB")]


def _refusal(asked: int | str, why: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked, error=ErrorData(code=PARSE_ERROR, message=why)))
