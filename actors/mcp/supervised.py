"""The servers of one agent as a supervised subtree, and the same subtree on its own: `mcp_tools`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from quiesce.actors.kernel import ActorSystem, ChildSpec, ChildStartError, Decline, Supervisor, TrioActor
from quiesce.actors.mcp.actor import ReadTools, mcp_spec
from quiesce.actors.mcp.server import McpServer
from quiesce.actors.options import check_instance, listed
from quiesce.actors.tools import Toolbox
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from quiesce.actors.kernel import ActorRef
    from quiesce.actors.tools import AnyTool

__all__ = ["McpSupervisor", "check_servers", "mcp_tools"]


def check_servers(option: str, servers: Iterable[McpServer]) -> tuple[McpServer, ...]:
    """The servers, each with a name of its own. Raises `InvalidInput`, which names the option."""
    found = listed(option, servers, "a list of McpServer")
    names = set()
    for at, server in enumerate(found):
        check_instance(f"{option}[{at}]", server, McpServer)
        if server.name in names:
            raise InvalidInput(f"{option}[{at}]: there is a server {server.name!r} already; give one a name=...")
        names.add(server.name)
    return found


class McpSupervisor(Supervisor):
    """Runs the servers of one agent, which connect at the same time. It is up when all of them are.

    Their tools go into `toolbox`, now and whenever they change. A server that cannot be reached when it is started
    keeps it from starting, with `McpConnectError`; one that is lost later is connected to again.
    """

    def __init__(self, servers: Iterable[McpServer], toolbox: Toolbox) -> None:
        self._servers = check_servers("servers", servers)
        for server in self._servers:  # in this order from now on, whoever is connected first
            toolbox.shelve(server.name, ())
        specs = [mcp_spec(server, partial(toolbox.shelve, server.name)) for server in self._servers]
        super().__init__([*specs, ChildSpec("all of them", self._gate, restart="temporary")])

    def _gate(self) -> _AllConnected:
        return _AllConnected([self.child(server.name) for server in self._servers])


class _AllConnected(TrioActor):
    """Starts when every server is connected; then there is nothing for it to do, and it is gone."""

    def __init__(self, servers: list[ActorRef[Any]]) -> None:
        super().__init__()
        self._servers = servers

    async def on_start(self) -> None:
        """Wait for all, and raise what kept one from connecting: the first, in their order."""
        failures: dict[int, Exception] = {}
        async with trio.open_nursery() as nursery:
            for at, server in enumerate(self._servers):
                nursery.start_soon(self._try, at, server, failures)
        if failures:
            raise failures[min(failures)]
        raise Decline

    async def _try(self, at: int, server: ActorRef[Any], failures: dict[int, Exception]) -> None:
        try:
            await server.ask(ReadTools())
        except Exception as error:  # noqa: BLE001 - raised when all are through, so that one is reported and not a group
            failures[at] = error


@asynccontextmanager
async def mcp_tools(*servers: McpServer) -> AsyncIterator[tuple[AnyTool, ...]]:
    """Connect to servers of your own accord, and give their tools, for as many agents as you like.

        async with mcp_tools(McpServer("mcp-server-time")) as tools:
            agent = await runtime.agent("s", model=model, tools=tools)

    Unlike those of `runtime.agent(..., mcp=...)` the tools are those of the beginning; and the agents have to be closed
    first. Raises `InvalidInput`, and `McpConnectError` if a server cannot be reached. Cancelled, it ends the servers
    before it passes the cancellation on.
    """
    toolbox = Toolbox()
    found = check_servers("servers", servers)
    async with ActorSystem(name="quiesce mcp") as system:
        try:
            await system.spawn(McpSupervisor, found, toolbox)
        except ChildStartError as error:
            raise error.__cause__ or error from None
        yield tuple(toolbox)
