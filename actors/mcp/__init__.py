"""Tools from MCP servers, on the official SDK (extra `mcp`).

    async with Runtime.open("agents.db") as runtime:
        git = McpServer("uvx", "mcp-server-git", name="git")
        web = McpServer(url="https://tools.example/mcp", headers={"authorization": f"Bearer {token}"})
        agent = await runtime.agent("s", model=model, mcp=[git, web])

or, for several agents or a tree of your own: `async with mcp_tools(git, web) as tools: ...`.

What holds:

1. A server is an actor, `McpActor`, under the agent's supervisor. It owns the connection: the transport and the SDK's
   session are entered and left in one task, in reverse order. Nothing of the SDK runs in the task of a call, so no end
   of a server cancels, crashes or holds up whoever called.
2. Every call ends: with the server's answer, with an error result, or at its time-out (`TOOL_TIMEOUT`). A call that is
   cancelled or times out is withdrawn by `notifications/cancelled`; a late answer is ignored. `initialize` is never
   cancelled, as the protocol demands.
3. A server that dies answers its calls at once, `TOOL_OUTCOME_UNKNOWN`: they may have run. It is started again, or
   connected to again, with a back-off; calls that come meanwhile wait for it for a bounded time and then get an error
   that says they were not sent. Nothing is sent twice.
4. What a server says is read with suspicion: lines that are no messages are ignored, over-long ones are cut and
   answered, a tool with a bad schema is left out, a block of a kind that nobody knows is named.
5. Closing takes bounded time: standard input is closed, then the process group is terminated, then killed. Over HTTP
   the session is ended.

A tool is called `{server}__{tool}` unless the server has another `prefix`. `readOnlyHint` makes its calls parallel;
anything else is exclusive. Tools are listed when the connection stands (all pages), and again when the server says that
they have changed: the next request to the model has the new ones.
"""

from quiesce.actors.mcp.actor import CallTool, CancelCall, McpActor, ReadTools, mcp_spec
from quiesce.actors.mcp.errors import McpConnectError
from quiesce.actors.mcp.server import McpServer
from quiesce.actors.mcp.supervised import McpSupervisor, mcp_tools

__all__ = [
    "CallTool",
    "CancelCall",
    "McpActor",
    "McpConnectError",
    "McpServer",
    "McpSupervisor",
    "ReadTools",
    "mcp_spec",
    "mcp_tools",
]
