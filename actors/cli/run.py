"""`quiesce run`: one turn of an agent, shown as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import trio

from quiesce.actors.cli.conversation import Conversation, conversation_options
from quiesce.actors.cli.faults import DONE, INTERRUPTED, NO, Fault
from quiesce.actors.cli.inputs import read_text
from quiesce.actors.cli.interrupts import Interrupts
from quiesce.actors.cli.narration import Narrator
from quiesce.actors.cli.screens import open_screen
from quiesce.actors.options import check_text
from quiesce.protocol.errors import TurnFailed

if TYPE_CHECKING:
    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.screens import Screen
    from quiesce.protocol.messages import Receipt, Turn

__all__ = ["run"]


@click.command()
@click.argument("prompt", nargs=-1, required=True)
@conversation_options
@click.option("--json", "as_json", is_flag=True, help="Print the committed events, one JSON object per line.")
@click.pass_context
def run(ctx: click.Context, /, prompt: tuple[str, ...], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - of each option its own
    """Have an agent take one turn, and watch it.

    The model is asked, the tools that it calls are run, until it has answered. On a terminal, text and calls are shown
    as they come; in a pipe the model's text goes to standard output and everything else to standard error. A PROMPT
    of `-` is read from standard input. All of it is kept in the session, so that a later `run` or `chat` goes on from
    there, also with another provider's model.

    Ctrl-C cancels the turn: tools that run are cancelled and waited for, every call is answered. A second one quits at
    once; the session can be resumed all the same.

    \b
    The tools of MCP servers have the names of their servers in front:
      --mcp 'uvx mcp-server-git'        mcp-server-git__git_log, ...
      --mcp 'git=uvx mcp-server-git'    git__git_log, ...
      --mcp https://tools.example/mcp   tools.example__..., and with NAME= as above

    Keys are read from the environment, where the providers' own libraries look for them: OPENAI_API_KEY,
    ANTHROPIC_API_KEY.

    \b
    Examples:
      quiesce run --model openai:gpt-5 "What is new in Python 3.13?"
      quiesce run --model anthropic:claude-sonnet-4-5 --mcp 'git=uvx mcp-server-git' "Summarise the last ten commits"
      quiesce run --model openai:qwen3 --base-url http://localhost:11434/v1 --session notes "And in one sentence?"
      git diff | quiesce run --model responses:gpt-5 "Review this change" -
      quiesce run --model openai:gpt-5 --json "Hello" | jq -r .type

    Exit codes: 0 the turn completed, 1 it failed or ended early, 2 the request is wrong, 130 interrupted.
    """  # noqa: D301 - the \b is a character that click looks for
    conversation = Conversation.of(options)
    ctx.exit(trio.run(_run, conversation, _said(prompt), open_screen(as_json=as_json)))


def _said(prompt: tuple[str, ...]) -> str:
    words = [read_text() if word == "-" else word for word in prompt]
    for word in words:
        check_text("the prompt", word)
    if not "".join(words).strip():
        raise click.UsageError("the prompt is empty")
    return " ".join(words) if "-" not in prompt else "\n\n".join(words)


async def _run(conversation: Conversation, prompt: str, screen: Screen) -> int:
    narrator = Narrator(screen, tells_failure=False)
    interrupts = Interrupts(narrator, conversation.again)
    async with interrupts.taken(), conversation.open(screen, (narrator.hook,)) as agent:
        if await agent.questions():
            raise Fault(f"a call waits for a person to decide; answer it first: quiesce chat {conversation.again}")
        try:
            with interrupts.cancelling(agent):
                turn = await _watched(agent, prompt, narrator)
        finally:
            click.echo(f"to go on: {conversation.again}", err=True)
    if isinstance(turn, TurnFailed):
        raise _Failed(str(turn)) from turn
    return {"completed": DONE, "aborted": INTERRUPTED}.get(turn.reason.kind, NO)


class _Failed(Fault):
    """The turn failed."""

    exit_code = NO


async def _watched(agent: Agent, prompt: str, narrator: Narrator) -> Turn | TurnFailed:
    """Take the turn, telling what happens. What it failed with is given back, not raised."""
    async with agent.watch() as happenings:
        with narrator.screen:
            async with trio.open_nursery() as nursery:
                receipt = await agent.follow_up(prompt)
                nursery.start_soon(narrator.listen, happenings)
                nursery.start_soon(narrator.listen_for_starts)
                turn = await _ended(receipt)
                nursery.cancel_scope.cancel()
            narrator.hear_rest(happenings)
    return turn


async def _ended(receipt: Receipt) -> Turn | TurnFailed:
    try:
        return await receipt.turn
    except TurnFailed as failed:
        return failed
