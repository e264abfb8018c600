"""A real MCP server over streamable HTTP, made with the SDK: `http_server.py [PORT] [json]`. It prints its port.

`POST /end-sessions` makes it forget every session, as a restart would.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import defaultdict

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import ToolAnnotations
from starlette.responses import PlainTextResponse

server = MCPServer("http")
STATE = defaultdict(anyio.Event)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str = "echo") -> str:
    """Give it back."""
    return text


@server.tool()
def header(key: str, ctx: Context) -> str:
    """A header of the request."""
    return ctx.headers.get(key, "") if ctx.headers else ""


@server.tool()
async def hang(key: str) -> str:
    """Never answer."""
    STATE[f"started {key}"].set()
    try:
        await anyio.sleep_forever()
    finally:
        STATE[f"withdrawn {key}"].set()


@server.tool()
async def wait_for(what: str) -> str:
    """Answer once the `hang` of that key was started, or withdrawn."""
    await STATE[what].wait()
    return what


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such city")


@server.tool(structured_output=False)
def picture() -> list:
    """Text and a picture."""
    return ["see:", Image(data=b"\x89PNG", format="png")]


@server.tool()
async def grow(ctx: Context) -> str:
    """Have one more tool, and say so."""
    server.add_tool(lambda: "more", name="one_more")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
def sessions() -> str:
    """How many there are."""
    return str(len(server.session_manager._server_instances))


@server.custom_route("/end-sessions", methods=["POST"])
async def end_sessions(_request):
    """Forget all sessions."""
    server.session_manager._server_instances.clear()  # there is no public way
    return PlainTextResponse("done")


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(100)
    app = server.streamable_http_app(json_response="json" in sys.argv)
    config = uvicorn.Config(app, log_level="error", lifespan="on")

    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    anyio.run(uvicorn.Server(config).serve, [listener])


if __name__ == "__main__":
    main()
