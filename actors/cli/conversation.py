"""The agent that `quiesce run` and `quiesce chat` talk to: what its options are, and how it is opened."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from quiesce.actors.cli.inputs import check_store
from quiesce.actors.cli.parameters import AtLeast, checked_id, db_option
from quiesce.actors.cli.stored import existing_store, read_session
from quiesce.actors.mcp import McpServer
from quiesce.actors.models.specs import KINDS, model_from
from quiesce.actors.runtime import Runtime
from quiesce.actors.sources import Sources
from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.screens import Screen
    from quiesce.actors.hooks import Hooks
    from quiesce.protocol.events import Event

__all__ = ["Conversation", "conversation_options"]

_OPTIONS: Final = (
    click.option(
        "--model",
        metavar="KIND:NAME",
        envvar="QUIESCE_MODEL",
        required=True,
        show_envvar=True,
        help=f"Who answers. KIND: {', '.join(KINDS)}.",
    ),
    click.option("--base-url", metavar="URL", help="Of a compatible server. Default: the provider's own."),
    click.option(
        "--profile",
        metavar="NAME",
        type=click.Choice(list(PROFILES)),
        help=f"What a compatible server accepts: {', '.join(PROFILES)}. Default: told by its address; 'compatible' for "
        "one of kind openai that is not known.",
    ),
    click.option(
        "--mcp",
        metavar="[NAME=]COMMAND",
        multiple=True,
        help="An MCP server: a command, or a URL. NAME begins the names of its tools. Default: made from the command "
        "or the host. Repeatable.",
    ),
    db_option,
    click.option(
        "--session", metavar="ID", callback=checked_id, help="Create it, or go on with it. Default: a new one."
    ),
    click.option("--system", metavar="TEXT", help="The system prompt. It is not part of the session."),
    click.option(
        "--max-steps",
        metavar="N",
        type=AtLeast(1),
        default=100,
        show_default=True,
        help="Model requests that a turn may take.",
    ),
)


@frozen
class Conversation:
    """Which agent it is, as the options say."""

    model: str
    base_url: str | None
    profile: str | None
    mcp: tuple[McpServer, ...]
    db: str
    session: str
    system: str | None
    max_steps: int

    @classmethod
    def of(cls, options: dict[str, Any]) -> Conversation:
        """From the options of a command; a session that is not named is a new one.

        Raises `click.UsageError` for what is no server, and for servers that cannot be told apart; `Fault` for a file
        that is no store but can be made a session of one.
        """
        check_store(options["db"])
        session = options["session"] or Sources().mint()
        return cls(**options | {"session": session, "mcp": _mcp_servers(options["mcp"])})

    @asynccontextmanager
    async def open(self, screen: Screen, hooks: Iterable[Hooks] = ()) -> AsyncIterator[Agent]:
        """Open the agent; close it, its servers and its store on leaving. `screen` shows what is waited for.

        Raises what `Runtime.agent` raises; `InvalidInput` before anything is opened, if an option is wrong.
        """
        profile = None if self.profile is None else PROFILES[self.profile]
        async with model_from(self.model, self.base_url, profile) as model, Runtime.open(Path(self.db)) as runtime:
            with screen:
                screen.connecting([server.name for server in self.mcp])
                agent = await runtime.agent(
                    self.session, model=model, mcp=self.mcp, hooks=hooks, system=self.system, max_steps=self.max_steps
                )
            yield agent

    async def past(self) -> Sequence[Event]:
        """What is in the log of the session. It may be open meanwhile."""
        async with existing_store(self.db) as store:
            return (await read_session(store, self.session)).events

    @property
    def again(self) -> str:
        """The options that lead to this session again."""
        return f"--db {shlex.quote(self.db)} --session {shlex.quote(self.session)}"


def _mcp_servers(said: Sequence[str]) -> tuple[McpServer, ...]:
    servers = tuple(map(_mcp_server, said))
    for name, number in Counter(server.name for server in servers).items():
        if number > 1:
            raise click.UsageError(f"--mcp: {number} servers are called {name!r}; give them names: NAME=COMMAND")
    return servers


def _mcp_server(said: str) -> McpServer:
    named = _NAMED.match(said)
    name, way = (named[1], said[named.end() :]) if named else (None, said)
    try:
        if way.startswith(("http://", "https://")):
            return McpServer(url=way, name=name)
        words = shlex.split(way)
        if not words:
            raise click.UsageError("--mcp: a command or a URL is missing")
        if shutil.which(words[0]) is None:
            raise click.UsageError(f"--mcp: there is no program {words[0]!r}")
        return McpServer(*words, name=name)
    except InvalidInput as error:
        raise click.UsageError(f"--mcp: {error}") from error
    except ValueError as error:  # a quotation without an end
        raise click.UsageError(f"--mcp {said!r}: {error}") from error


_NAMED: Final = re.compile(r"([\w.-]+)=")
"""How an option begins that names its server. No command on a path, and no URL, begins so."""


def conversation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `Conversation.of` reads."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
