"""`Link`: one connection to a server, on the SDK, from its start to its end.

All scopes of the SDK (the transport's, the session's) are entered and left in one task, in reverse order: whoever
leaves them elsewhere corrupts the stack of cancel scopes. Calls come from other tasks and only send and wait.

What the SDK (2.3) does by itself, and is relied on: a request that is cancelled is withdrawn by
`notifications/cancelled`, `initialize` excepted; an answer that nobody waits for is dropped; when the connection ends,
every request gets an error. What it does not: hand over an answer in which it does not know one block. See `_Frank`.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import httpx2
import trio
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from quiesce.actors.mcp.errors import LinkLost, McpConnectError
from quiesce.actors.mcp.stdio import LastWords, stdio_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest

    from quiesce.actors.mcp.server import McpServer
    from quiesce.protocol.events import JsonObject

__all__ = ["Link"]

for _name in ("mcp", "client"):  # the SDK's loggers: without a handler the standard library prints what they say
    logging.getLogger(_name).addHandler(logging.NullHandler())

_MAX_PAGES: Final = 1000
_LEAVING: Final = 2.0
"""Seconds in which an HTTP session is ended; what takes longer is left to the server."""
_HTTP_TIMEOUT: Final = 30.0
_MAX_EVENT: Final = 32 * 1024 * 1024
_US: Final = Implementation(name="quiesce", version="0")


class Link:
    """One connection. `hold` it in a task of its own; `call` and `list_tools` from any, once it is ready."""

    def __init__(self, server: McpServer, on_tools_changed: Callable[[], object]) -> None:
        self._server = server
        self._on_tools_changed = on_tools_changed
        self._over = trio.Event()
        self._session: ClientSession | None = None
        self._session_gone = False  # over HTTP: the server does not know it any more
        self.why = ""  # it was given up from here, where that is known
        self.last_words = LastWords()

    async def hold(self, ready: Callable[[tuple[JsonObject, ...]], object], lost: Callable[[], object]) -> None:
        """Connect, say that it is `ready` and with what tools, and stay until `close`, or until the other side leaves.

        Then it says `lost`, before it leaves, which may take a while; not if it raises at once. Cancelling it while it
        connects ends it at once; later it is shielded, and ended by `close` alone, in order and within bounded time.
        Raises whatever went wrong, often in groups; `McpConnectError` if the time was over.
        """
        is_up = False
        with trio.CancelScope(deadline=trio.current_time() + self._server.connect_timeout) as scope:
            async with self._transport() as (read, write):
                frank = _Frank(JSONRPCDispatcher(read, write), self._over)
                async with ClientSession(dispatcher=frank, client_info=_US, message_handler=self._hear) as session:
                    self._session = session
                    await self._shake_hands(session)
                    tools = await self.list_tools()
                    is_up, scope.deadline, scope.shield = True, float("inf"), True
                    ready(tools)
                    await self._over.wait()
                    lost()
                    scope.deadline = trio.current_time() + _LEAVING
        if not is_up:
            raise McpConnectError(f"it did not answer within {self._server.connect_timeout:g} s")

    def close(self) -> None:
        """Have `hold` leave."""
        self._over.set()

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """Call a tool; the answer as it came.

        Raises:
            LinkLost: the connection ended first.
            MCPError: the server answered with an error, or the SDK could not read its answer.

        Cancelled, the call is withdrawn.

        """
        params = CallToolRequestParams(name=name, arguments=arguments)
        session = self._session
        if session is None or self._over.is_set():
            raise LinkLost("the connection is closed", sent=False)
        try:
            return await _as_it_came(session.send_request(CallToolRequest(params=params), CallToolResult))
        except MCPError as error:
            raise self._judged(error) from None

    async def list_tools(self) -> tuple[JsonObject, ...]:
        """All tools that the server has, as it lists them, from all pages. Bounded in time by whoever asks."""
        try:
            return await self._list_pages()
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            return ()  # a server may have no tools

    async def _list_pages(self) -> tuple[JsonObject, ...]:
        assert self._session is not None
        listed: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            page: dict[str, Any] = await _as_it_came(self._session.list_tools(params=params))
            items = page.get("tools")
            if not isinstance(items, list):
                raise McpConnectError("its list of tools is not a list")
            listed += items
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return tuple(listed)
        raise McpConnectError(f"its list of tools has more than {_MAX_PAGES} pages")

    # --- connecting --------------------------------------------------------------------------------------------

    def _transport(self) -> Any:  # noqa: ANN401 - a context manager of streams; the SDK has no public name for it
        if self._server.url is None:
            return stdio_transport(self._server, self.last_words)
        return _http_transport(self._server, self._server.url, self._look)

    async def _look(self, response: httpx2.Response) -> None:
        """Notice what the SDK does not tell: why a request was refused, and that the server has ended the session."""
        status = response.status_code
        self._session_gone |= status == httpx2.codes.NOT_FOUND and _SESSION in response.request.headers
        if response.is_error and response.request.method == "POST":
            self.last_words.add(f"HTTP {status} {response.reason_phrase}".encode())

    async def _shake_hands(self, session: ClientSession) -> None:
        """Agree on a version: by `initialize`, which nearly all servers know, else as the revisions since 2026 do."""
        try:
            await session.initialize()
        except MCPError as error:
            if error.code not in _KNOWS_NO_INITIALIZE:
                raise
            await session.discover()

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._on_tools_changed()

    # --- errors ------------------------------------------------------------------------------------------------

    def _judged(self, error: MCPError) -> MCPError | LinkLost:
        """What an error of the SDK means: an answer of the server, or that there will be none."""
        gone = self._session_gone and "session" in error.message.lower()  # refused before anything was done
        if gone or error.message.startswith(_CANNOT_CONNECT):
            self.why = self.why or error.message
            self.close()  # what is needed is a new connection
            return LinkLost(error.message, sent=False)
        if error.code == CONNECTION_CLOSED and (self._over.is_set() or error.message.startswith(_NO_ANSWER)):
            return LinkLost(self.last_words.ending() or "the connection ended")
        return error


_KNOWS_NO_INITIALIZE: Final = frozenset({UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND})
_NO_ANSWER: Final = ("Connection closed", "SSE stream")
"""How the SDK begins an error of its own: its code alone is one that servers use as well."""
_SESSION: Final = "mcp-session-id"


@asynccontextmanager
async def _http_transport(
    server: McpServer, url: str, look: Callable[[httpx2.Response], Awaitable[None]]
) -> AsyncIterator[TransportStreams]:
    timeout = httpx2.Timeout(_HTTP_TIMEOUT, read=None)  # how long an answer may take is the call's time-out
    async with (
        _Client(headers=dict(server.headers), timeout=timeout, event_hooks={"response": [look]}) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=_MAX_EVENT) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """Answers a request that could not be sent, since there was no connection, with an error of its own.

    The SDK would break down over the exception, and take all other calls along; and nobody could tell any more that
    this one cannot have run.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - as they are
        try:
            return await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            said = {"code": CONNECTION_CLOSED, "message": f"{_CANNOT_CONNECT} {str(error) or type(error).__name__}"}
            answer = {"jsonrpc": "2.0", "id": None, "error": said}
            return httpx2.Response(httpx2.codes.SERVICE_UNAVAILABLE, json=answer, request=request)


_CANNOT_CONNECT: Final = "cannot connect:"


# --- answers as they come ----------------------------------------------------------------------------------------

_answers: ContextVar[list[dict[str, Any]]] = ContextVar("answers of an MCP server")


class _Frank(Dispatcher[TransportContext]):
    """The SDK's dispatcher, with two additions: the raw answer is kept for who asked, and its end is told."""

    def __init__(self, inner: JSONRPCDispatcher, over: trio.Event) -> None:
        self._inner = inner
        self._over = over

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        answer = await self._inner.send_raw_request(method, params, opts)
        _answers.get([]).append(answer)
        return answer

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **options: Any,  # noqa: ANN401 - the task status
    ) -> None:
        try:
            await self._inner.run(on_request, on_notify, on_notify_intercept, **options)
        finally:
            self._over.set()


async def _as_it_came(asking: Awaitable[object]) -> JsonObject:
    """The raw answer to what `asking` asks. The SDK refuses one whole if it does not know a part; here it is read."""
    answers: list[dict[str, Any]] = []
    token = _answers.set(answers)
    try:
        await asking
    except ValidationError:
        if not answers:
            raise
    finally:
        _answers.reset(token)
    return answers[0]
