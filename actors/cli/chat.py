"""`quiesce chat`: turn after turn with an agent, in a terminal or over a pipe."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import trio
from attrs import define

from quiesce.actors.cli.conversation import Conversation, conversation_options
from quiesce.actors.cli.interrupts import Interrupts
from quiesce.actors.cli.narration import LineScreen, Narrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.narration import Screen

__all__ = ["chat"]

_HELP: Final = """\
  /cancel   cancel the running turn
  /status   what is running and what is queued
  /quit     end (so does Ctrl-D); a running turn is waited for
  //text    send /text
What you type while a turn runs joins it at its next step. Ctrl-C cancels the turn."""


@click.command()
@conversation_options
def chat(**options: Any) -> None:  # noqa: ANN401 - of each option its own
    """Talk to an agent; what you type while it works steers it.

    Each line is a message. What you type while the agent works steers it: it joins the running turn at its next step,
    while the tools that run go on. `/help` lists what else can be said.

    The session is kept: `--session` with its id goes on from there, also with another provider's model.

    \b
    Examples:
      quiesce chat --model openai:gpt-5
      quiesce chat --model anthropic:claude-sonnet-4-5 --mcp 'uvx mcp-server-git' --session work

    Exit codes: 0 ended, 2 the request is wrong, 130 quit by a second Ctrl-C.
    """  # noqa: D301 - the \b is a character that click looks for
    trio.run(_chat, Conversation.of(options))


async def _chat(conversation: Conversation) -> None:
    screen = LineScreen()
    async with conversation.open() as agent, agent.watch() as happenings, trio.open_nursery() as nursery:
        talk = _Talk(agent, screen, Narrator(screen))
        nursery.start_soon(Interrupts(agent, screen, talk.at_work, conversation.again).watch)
        nursery.start_soon(talk.narrator.listen, happenings)
        if sys.stdin.isatty():
            screen.note(f"session {conversation.session}; /help for help")
        async for line in _lines():
            if not await talk.say(line):
                break
        await agent.wait()
        nursery.cancel_scope.cancel()
        talk.narrator.hear_rest(happenings)
    click.echo(f"to go on: {conversation.again}", err=True)


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, until its end."""
    read = partial(trio.to_thread.run_sync, sys.stdin.readline, abandon_on_cancel=True)
    while line := await read():
        yield line.strip()


@define
class _Talk:
    """One conversation: what becomes of each line."""

    agent: Agent
    screen: Screen
    narrator: Narrator

    async def say(self, line: str) -> bool:
        """Do what a line says. False: end."""
        match line.split(maxsplit=1):
            case []:
                pass
            case ["/quit" | "/exit"]:
                return False
            case ["/help"]:
                self.screen.note(_HELP)
            case ["/cancel"]:
                await self.agent.cancel()
            case ["/status"]:
                self._tell_status()
            case [word, *_] if word.startswith("/") and not word.startswith("//"):
                self.screen.note(f"{word}: no such command; /help lists them", "yellow")
            case _:
                await self.agent.steer(line.removeprefix("/") if line.startswith("//") else line)
        return True

    def at_work(self) -> bool:
        """Whether a turn is running."""
        return self.narrator.timeline.is_open

    def _tell_status(self) -> None:
        self.screen.note(f"turn {self.narrator.timeline.state.turn} is running" if self.at_work() else "idle")
