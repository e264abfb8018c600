"""`McpActor`: one server as an actor. It keeps the connection, offers the tools, and answers every call.

    connecting --> up --> lost --> (back-off) --> connecting
        |                  ^
        +---- failed ------+

The actor does not crash for what a server does: it goes round, for as long as it is not stopped. Each call is child
work of the actor; whoever asked waits for a reply and for nothing else.
"""

from __future__ import annotations

import math
import random
from contextlib import suppress
from functools import partial
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.kernel import ChildSpec, TrioActor, receive
from quiesce.actors.log import Log
from quiesce.actors.mcp.content import result_of
from quiesce.actors.mcp.errors import LinkLost, McpConnectError, reason_of
from quiesce.actors.mcp.listing import offered
from quiesce.actors.mcp.server import MISSING_EXTRA
from quiesce.actors.results import Result
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.message import Message
from quiesce.protocol.outcome import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.kernel import ActorRef, Reply
    from quiesce.actors.mcp.link import Link
    from quiesce.actors.mcp.server import McpServer
    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.outcome import ToolOutcome

    Offer = Callable[[tuple[AnyTool, ...]], tuple[str, ...]]

__all__ = ["CallTool", "CancelCall", "McpActor", "ReadTools", "mcp_spec"]

_log: Final = Log("quiesce.mcp")
_chance: Final = random.Random()  # noqa: S311 - spreads reconnects over time


# --- messages ----------------------------------------------------------------------------------------------------


@frozen
class ReadTools(Message["tuple[AnyTool, ...]"]):
    """Ask for the tools that the server has. The answer waits for the end of the first attempt to connect.

    Raises (as the answer):
        McpConnectError: it failed; the actor goes on trying.
        InvalidInput: one of the tools has the name of a tool that is on offer already.
    """


@frozen(eq=False)
class CallTool(Message["Result | ToolOutcome"]):
    """Call a tool by the server's own name for it. The answer is a result, whatever happens; it is never an exception,
    unless the actor is stopped.
    """

    name: str
    arguments: JsonObject


@frozen(eq=False)
class CancelCall(Message[None]):
    """Withdraw a call that nobody waits for any more. Does nothing to one that has ended."""

    call: CallTool


# --- the actor ---------------------------------------------------------------------------------------------------


class McpActor(TrioActor):
    """Keeps the connection to one server. `offer` is told its tools each time they are listed.

    `offer` gives the names that others have already; the tools of these names are not on offer.
    """

    def __init__(self, server: McpServer, offer: Offer = lambda _: ()) -> None:
        super().__init__()
        self._server = server
        self._offer = offer
        self._link: Link | None = None  # while it is up
        self._came_up = trio.Event()  # a new one each time the connection is lost
        self._up_since: float | None = None  # of the last connection, if it came up
        self._tried = trio.Event()
        self._tools: tuple[AnyTool, ...] = ()
        self._failure: Exception | None = None  # why there are no tools, or not all
        self._stale = self._listing = False
        self._calls: dict[CallTool, trio.CancelScope] = {}

    def on_start(self) -> None:
        """Begin to connect; `ReadTools` tells how that went."""
        self.start_soon(self._stay_connected)

    # --- the connection ----------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        backoff, wait = self._server.backoff, None
        while True:
            self._up_since = None
            failure = await self._connection()
            wait = backoff.next_wait(wait, self._uptime())
            pause = backoff.shortened(wait, _chance.random())
            self._failed(failure, pause)
            await trio.sleep(pause)

    def _uptime(self) -> float:
        return 0.0 if self._up_since is None else trio.current_time() - self._up_since

    async def _connection(self) -> McpConnectError:
        """One connection, from its start to its end; why it ended. Cancelled, it is left in order."""
        try:
            from quiesce.actors.mcp.link import Link  # noqa: PLC0415 - imports the SDK, when it is used
        except ImportError:
            return McpConnectError(MISSING_EXTRA)
        link = Link(self._server, self._list_again)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold, link, nursery.cancel_scope)
                try:
                    await trio.sleep(math.inf)
                finally:
                    link.close()
        except Exception as error:  # noqa: BLE001 - whatever a server does ends its connection, and not the actor
            return self._why(link, reason_of(error))
        except BaseExceptionGroup as group:
            raise _without_errors(group) from None
        return self._why(link, link.why or link.last_words.ending() or "it closed the connection")

    async def _hold(self, link: Link, around: trio.CancelScope) -> None:
        """The one task that enters and leaves what the SDK opens."""
        try:
            await link.hold(partial(self._up, link), self._down)
        finally:
            self._down()
            around.cancel()

    def _why(self, link: Link, reason: str) -> McpConnectError:
        ending, said = link.last_words.ending(), str(link.last_words)
        parts = [reason, *([ending] if ending and ending not in reason else [])]
        text = f"MCP server {self._server.name!r}: {'; '.join(parts)}"
        return McpConnectError(f"{text}.\nIts last words:\n{said}" if said else text)

    def _up(self, link: Link, listed: tuple[JsonObject, ...]) -> None:
        self._link, self._up_since = link, trio.current_time()
        _log.write(INFO, "mcp_connected", server=self._server.name, tools=len(listed))
        self._take(listed)
        self._came_up.set()
        self._tried.set()

    def _down(self) -> None:
        """Calls wait from now on; the connection may take a while to be left."""
        if self._link is not None:
            self._link, self._came_up = None, trio.Event()

    def _failed(self, failure: McpConnectError, pause: float) -> None:
        event = "mcp_connect_failed" if self._up_since is None else "mcp_connection_lost"
        why = str(failure).partition("\n")[0]  # its last words may be anything
        _log.write(WARNING, event, server=self._server.name, reason=why, retry_in=round(pause, 3))
        if not self._tools:
            self._failure = failure
        self._tried.set()

    # --- the tools ---------------------------------------------------------------------------------------------

    @receive(ReadTools)
    def tools(self, message: ReadTools) -> None:
        """See `ReadTools`."""
        self.start_soon(self._tell_tools, self.take_reply(message))

    async def _tell_tools(self, reply: Reply[tuple[AnyTool, ...]]) -> None:
        await self._tried.wait()
        if self._failure is not None:
            reply.set_exception(self._failure)
        else:
            reply.set(self._tools)

    def _take(self, listed: tuple[JsonObject, ...]) -> None:
        """Offer what the server has, and say what cannot be offered."""
        self._tools, problems = offered(self._server, listed, partial(_call, self.actor_ref))
        taken = [f"there is a tool {name!r} already" for name in self._offer(self._tools)]
        for problem in (*problems, *taken):
            _log.write(WARNING, "mcp_tool_left_out", server=self._server.name, problem=problem)
        self._failure = InvalidInput(f"MCP server {self._server.name!r}: {taken[0]}") if taken else None

    def _list_again(self) -> None:
        """The server says that its tools have changed. However often it says so, one listing is under way."""
        self._stale = True
        if not self._listing:
            self._listing = True
            self.start_soon(self._keep_listed)

    async def _keep_listed(self) -> None:
        try:
            while self._stale and self._link is not None:
                self._stale = False
                await self._listed_again(self._link)
        finally:
            self._listing = False

    async def _listed_again(self, link: Link) -> None:
        try:
            with trio.fail_after(self._server.connect_timeout):
                listed = await link.list_tools()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the old tools stay on offer
            _log.write(WARNING, "mcp_listing_failed", server=self._server.name, reason=reason_of(error))
            return
        if link is self._link:
            _log.write(INFO, "mcp_tools_changed", server=self._server.name, tools=len(listed))
            self._take(listed)

    # --- calls -------------------------------------------------------------------------------------------------

    @receive(CallTool)
    def call_tool(self, message: CallTool) -> None:
        """See `CallTool`."""
        scope = self._calls[message] = trio.CancelScope()
        self.start_soon(self._answer, message, scope, self.take_reply(message))

    @receive(CancelCall)
    def cancel_call(self, message: CancelCall) -> None:
        """See `CancelCall`."""
        scope = self._calls.get(message.call)
        if scope is not None:
            scope.cancel()

    async def _answer(self, call: CallTool, scope: trio.CancelScope, reply: Reply[Any]) -> None:
        answer: Result | ToolOutcome = failure("ABORTED", "The call was withdrawn.")  # which nobody waits for
        try:
            with scope:
                answer = await self._outcome(call)
        finally:
            del self._calls[call]
        reply.set(answer)

    async def _outcome(self, call: CallTool) -> Result | ToolOutcome:
        """Send the call, once, as soon as there is a connection; what came of it."""
        deadline = trio.current_time() + self._server.patience
        while (link := await self._connected(deadline)) is not None:
            try:
                return result_of(await link.call(call.name, call.arguments))
            except LinkLost as lost:
                if lost.sent:
                    return failure("TOOL_OUTCOME_UNKNOWN", _UNKNOWN.format(self._server.name, lost))
            except Exception as error:  # noqa: BLE001 - what a server answered, or why it cannot be read, is the result
                return Result(content=_refusal(error), is_error=True)
            await trio.lowlevel.checkpoint()  # whoever holds the connection has yet to see that it is over
        return Result(content=_NOT_SENT.format(self._server.name, self._server.patience), is_error=True)

    async def _connected(self, deadline: float) -> Link | None:
        with trio.CancelScope(deadline=deadline):
            while True:
                await trio.lowlevel.checkpoint()
                if self._link is not None:
                    return self._link
                await self._came_up.wait()
        return None


# --- words -------------------------------------------------------------------------------------------------------

_NOT_SENT: Final = (
    "The tool's server {!r} is not connected, and was not within {:g} s. The call was not sent, so it had no effect."
)
_UNKNOWN: Final = (
    "The tool's server {!r} was lost while the call was under way: {}. The outcome is unknown: it may have taken "
    "effect. Repeat the call only if it only reads or is idempotent; otherwise check for its effects first, or ask the "
    "user."
)
_CLOSING: Final = "The call was under way when the connection to the tool's server was closed. It may have had effects."


def _refusal(error: Exception) -> str:
    code = getattr(error, "code", None)
    if code is None:
        return f"The call failed: {reason_of(error)}"
    return f"{str(error).strip() or 'The server refused the call.'} (MCP error {code})"


# --- tools -------------------------------------------------------------------------------------------------------


async def _call(actor: ActorRef[McpActor], name: str, arguments: JsonObject) -> object:
    """The body of a tool: ask the actor, and withdraw the call when it is not wanted any more."""
    call = CallTool(name, arguments)
    answer = actor.ask(call)
    try:
        return await answer
    except ActorDeadError:
        return failure("TOOL_OUTCOME_UNKNOWN", _CLOSING)
    except trio.Cancelled:
        with suppress(ActorDeadError):
            actor.tell(CancelCall(call))
        raise


def _without_errors(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A group with cancellation from outside in it: only that goes on, since nobody is left to take the errors."""
    cancelled, rest = group.split(trio.Cancelled)
    return group if cancelled is None or not (rest is None or isinstance(rest, Exception)) else cancelled


def mcp_spec(server: McpServer, offer: Offer = lambda _: ()) -> ChildSpec:
    """The spec of a server's actor, for a supervisor; its id is the server's name.

    It starts at once and connects meanwhile: ask it `ReadTools` for the tools, which fit any agent in the same system.
    """
    return ChildSpec(server.name, partial(McpActor, server, offer), shutdown=server.shutdown)
