"""`quiesce chat`: turn after turn with an agent, in a terminal or over a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click
import trio
from attrs import define

from quiesce.actors.cli.asking import AskFirst, Decisions
from quiesce.actors.cli.conversation import Conversation, conversation_options
from quiesce.actors.cli.interrupts import Interrupts
from quiesce.actors.cli.narration import Narrator
from quiesce.actors.cli.screens import LineScreen
from quiesce.actors.options import check_text
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import ApprovalDecided, ApprovalRequested, Event, TurnEnd

if TYPE_CHECKING:
    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.screens import Screen
    from quiesce.actors.cli.typed import Line
    from quiesce.actors.feed import Happenings

__all__ = ["chat"]

_HELP: Final = """\
  /cancel   cancel the running turn
  /status   what is running and what is queued
  /quit     end (so does Ctrl-D); a running turn is waited for
  //text    send /text
A question about a call is answered by y, or by n and a reason.
Anything else that you type while a turn runs joins it at its next step. Ctrl-C cancels the turn."""

_QUESTIONS: Final = (ApprovalRequested, ApprovalDecided, TurnEnd)
"""After these events, other questions may be open."""


@click.command()
@conversation_options
@click.option("--yes", is_flag=True, help="Ask about no call: run them all, also one that waits.")
def chat(*, yes: bool, **options: Any) -> None:  # noqa: ANN401 - of each option its own
    """Talk to an agent; what you type while it works steers it.

    Each line is a message. What you type while the agent works steers it: it joins the running turn at its next step,
    while the tools that run go on. `/help` lists what else can be said.

    Before a call runs that its tool does not declare to be harmless (to read only), you are asked: `y`, or `n` and a
    reason for the model. The question is kept: if you leave, it is there when you come back. What you typed before a
    question was shown is no answer to it.

    The tools of an MCP server have its name in front: `--mcp 'git=uvx ...'` gives `git__git_log`.

    The session is kept: `--session` with its id goes on from there, also with another provider's model.

    \b
    Examples:
      quiesce chat --model openai:gpt-5
      quiesce chat --model anthropic:claude-sonnet-4-5 --mcp 'git=uvx mcp-server-git' --session work

    Exit codes: 0 ended, 2 the request is wrong, 130 quit by a second Ctrl-C.
    """  # noqa: D301 - the \b is a character that click looks for
    trio.run(_chat, Conversation.of(options), yes)


async def _chat(conversation: Conversation, yes: bool) -> None:  # noqa: FBT001 - as trio.run passes it on
    narrator = Narrator(LineScreen())
    interrupts = Interrupts(narrator, conversation.again)
    hooks = (narrator.hook,) if yes else (narrator.hook, AskFirst())
    async with interrupts.taken(), conversation.open(narrator.screen, hooks) as agent:
        try:
            with interrupts.cancelling(agent):
                await _talk(_Talk(agent, narrator, Decisions(agent, narrator.screen, yes)), conversation, interrupts)
        finally:
            click.echo(f"to go on: {conversation.again}", err=True)


async def _talk(talk: _Talk, conversation: Conversation, interrupts: Interrupts) -> None:
    narrator = talk.narrator
    async with talk.agent.watch() as happenings, trio.open_nursery() as nursery:
        if await talk.agent.questions():  # a turn was left open, and goes on
            narrator.recall(await conversation.past())
        nursery.start_soon(narrator.listen_for_starts)
        if sys.stdin.isatty():
            narrator.screen.note(f"session {conversation.session}; /help for help")
        await talk.decisions.show_next()  # of a session that was left with a question
        nursery.start_soon(talk.listen, happenings)
        interrupts.goes_on = True
        async for line in talk.decisions.typed:
            if not await talk.say(line):
                break
        interrupts.goes_on = False
        await talk.end()
        nursery.cancel_scope.cancel()
        narrator.hear_rest(happenings)


@define
class _Talk:
    """One conversation: what becomes of each line."""

    agent: Agent
    narrator: Narrator
    decisions: Decisions

    @property
    def screen(self) -> Screen:
        """Where what is said goes."""
        return self.narrator.screen

    async def listen(self, happenings: Happenings) -> None:
        """Tell what happens, and ask what there is to ask."""
        async for what in happenings:
            self.narrator.hear(what)
            if isinstance(what, Event) and isinstance(what.body, _QUESTIONS):
                await self.decisions.show_next()

    async def end(self) -> None:
        """Wait for the turn that runs, unless it waits for a person: its questions are kept."""
        if not await self.agent.questions():
            await self.agent.wait()

    async def say(self, line: Line) -> bool:
        """Do what a line says. False: end."""
        match line.text.split(maxsplit=1):
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
            case _ if await self.decisions.take(line):
                pass
            case _:
                await self._steer(line.text.removeprefix("/") if line.text.startswith("//") else line.text)
        return True

    async def _steer(self, line: str) -> None:
        try:
            check_text("not sent", line)
        except InvalidInput as error:
            self.screen.note(str(error), "yellow")
        else:
            await self.agent.steer(line)

    def _tell_status(self) -> None:
        turn = self.narrator.timeline.state.turn
        self.screen.note(f"turn {turn} is running" if self.narrator.at_work else "idle")
