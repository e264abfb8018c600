"""The agent that `quiesce run` and `quiesce chat` talk to: what its options are, and how it is opened."""

from __future__ import annotations

import shlex
from contextlib import asynccontextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from quiesce.actors.cli.inputs import existing_store, read_session
from quiesce.actors.mcp import McpServer
from quiesce.actors.models.specs import KINDS, model_from
from quiesce.actors.runtime import Runtime
from quiesce.actors.sources import Sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from quiesce.actors.agent import Agent
    from quiesce.actors.hooks import Hooks
    from quiesce.protocol.events import Event

__all__ = ["Conversation", "conversation_options", "db_option", "mcp_server"]

db_option: Final = click.option(
    "--db",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    envvar="QUIESCE_DB",
    default="quiesce.db",
    show_default=True,
    show_envvar=True,
    help="The store; made if it is not there.",
)
"""The option that names the store of a session."""

_OPTIONS: Final = (
    click.option(
        "--model",
        metavar="KIND:NAME",
        envvar="QUIESCE_MODEL",
        required=True,
        show_envvar=True,
        help=f"Who answers. KIND: {', '.join(KINDS)}.",
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help="Of a compatible server (for openai: the profile 'compatible' is kept to). Default: the provider's own.",
    ),
    click.option("--mcp", metavar="COMMAND", multiple=True, help="An MCP server: a command, or a URL. Repeatable."),
    db_option,
    click.option("--session", metavar="ID", help="Create it, or go on with it. Default: a new one."),
    click.option("--system", metavar="TEXT", help="The system prompt. It is not part of the session."),
    click.option(
        "--max-steps",
        metavar="N",
        type=click.IntRange(min=1),
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
    mcp: tuple[str, ...]
    db: str
    session: str
    system: str | None
    max_steps: int

    @classmethod
    def of(cls, options: dict[str, Any]) -> Conversation:
        """From the options of a command; a session that is not named is a new one."""
        return cls(**options | {"session": options["session"] or Sources().mint()})

    @asynccontextmanager
    async def open(self, hooks: Iterable[Hooks] = ()) -> AsyncIterator[Agent]:
        """Open the agent; close it, its servers and its store on leaving.

        Raises what `Runtime.agent` raises; `InvalidInput` before anything is opened, if an option is wrong.
        """
        servers = [mcp_server(command) for command in self.mcp]
        async with model_from(self.model, self.base_url) as model, Runtime.open(Path(self.db)) as runtime:
            yield await runtime.agent(
                self.session, model=model, mcp=servers, hooks=hooks, system=self.system, max_steps=self.max_steps
            )

    async def past(self) -> Sequence[Event]:
        """What is in the log of the session. It may be open meanwhile."""
        async with existing_store(self.db) as store:
            return (await read_session(store, self.session)).events

    @property
    def again(self) -> str:
        """The options that lead to this session again."""
        return f"--db {shlex.quote(self.db)} --session {shlex.quote(self.session)}"


def mcp_server(said: str) -> McpServer:
    """The server that a command line or a URL means. Raises `click.UsageError` for what is neither."""
    if said.startswith(("http://", "https://")):
        return McpServer(url=said)
    try:
        words = shlex.split(said)
    except ValueError as error:
        raise click.UsageError(f"--mcp {said!r}: {error}") from error
    if not words:
        raise click.UsageError("--mcp: a command or a URL is missing")
    return McpServer(*words)


def conversation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `Conversation.of` reads."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
