"""From the tools that a server lists to tools of an agent. One that cannot be offered is left out, and said why."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, cast

from quiesce.actors.tools import Tool
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import clean_text, make_storable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from quiesce.actors.mcp.server import McpServer
    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.events import JsonObject

    Call = Callable[[str, JsonObject], Awaitable[object]]

__all__ = ["offered", "offered_name"]

_MAX_NAME: Final = 128
_MARK: Final = 9
"""Characters that tell changed names apart: an underscore and part of a hash."""


def offered(server: McpServer, items: Iterable[object], call: Call) -> tuple[tuple[AnyTool, ...], tuple[str, ...]]:
    """The tools for what `server` listed, and why others are left out. `call` gets a tool's own name and arguments."""
    made: dict[str, AnyTool] = {}
    problems = []
    for item in items:
        try:
            tool = _tool(server, item, call)
        except InvalidInput as error:
            problems.append(str(error))
            continue
        if tool.name in made:
            problems.append(f"tool {tool.name!r}: it is listed twice")
        else:
            made[tool.name] = tool
    return tuple(made.values()), tuple(problems)


def _tool(server: McpServer, item: object, call: Call) -> AnyTool:
    if not isinstance(item, dict) or not isinstance(name := item.get("name"), str) or not name:
        raise InvalidInput("a tool without a name")
    if not isinstance(schema := item.get("inputSchema"), dict):
        raise InvalidInput(f"tool {name!r}: it has no schema of its arguments")

    async def function(arguments: JsonObject) -> object:
        return await call(name, arguments)

    return Tool.from_schema(
        offered_name(server.prefix, name),
        _description(item),
        cast("JsonObject", make_storable(schema)),
        function,
        parallel=_only_reads(item),
        timeout=server.timeout,
    )


def offered_name(prefix: str, name: str) -> str:
    """The name under which a tool is offered: `prefix` and its own, if that can be a tool's name here.

    Otherwise what cannot be is replaced, and part of a hash makes it unique: a pure function of the two.
    """
    full = prefix + name
    plain = "".join(char if char.isprintable() and char != " " else "_" for char in clean_text(full))
    if plain == full and len(full) <= _MAX_NAME:
        return full
    mark = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[: _MARK - 1]
    return f"{plain[: _MAX_NAME - _MARK]}_{mark}"


def _description(item: dict[str, Any]) -> str:
    texts = (item.get("description"), item.get("title"))
    said = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return clean_text(re.sub(r"\r\n?", "\n", said))


def _only_reads(item: dict[str, Any]) -> bool:
    """Whether it says so. A hint, not a promise: it decides what may run at the same time, and nothing else."""
    hints = item.get("annotations")
    return isinstance(hints, dict) and hints.get("readOnlyHint") is True
