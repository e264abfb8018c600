"""The `quiesce` command: `main` is its click group. What each command does stands in the module that `COMMANDS` names.

A command's module is imported when the command is used, and the list of commands in `quiesce --help` is made of the
table alone, so that a command costs only what it needs itself.
"""

from __future__ import annotations

import importlib
from keyword import iskeyword
from typing import Final

import click

from quiesce.actors.cli.faults import in_plain_words

__all__ = ["COMMANDS", "main"]

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run", "Have an agent take one turn, and watch it."),
    "chat": ("chat", "Talk to an agent; what you type while it works steers it."),
    "demo": ("demo", "Watch an agent fail, recover, be killed and go on, on real files."),
    "sessions": ("sessions", "List the sessions of a store."),
    "show": ("show", "Draw a log as a readable timeline."),
    "check": ("check", "Check logs against the rules, and transcripts against a provider's."),
    "recover": ("recover", "Write a copy of a log or transcript in which every call is answered."),
    "import": ("importing", "Make a session of a transcript or a log."),
    "export": ("sessions", "Write a session to standard output, as JSON lines."),
    "fork": ("sessions", "Make a new session of the beginning of another."),
}
"""Name of a command -> the module it stands in, and what it does, in a line."""


class _Commands(click.Group):
    """The group: it finds commands by the table, and says in plain words what went wrong."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"quiesce.actors.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with in_plain_words(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with in_plain_words(ctx):
            found: object = super().invoke(ctx)
        return found


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(package_name="quiesce", message="%(prog)s %(version)s")
def main() -> None:
    """Run LLM agents whose sessions survive, talk to them, and look at, check and repair what they logged.

    A session lives in a store (an SQLite file). `run` and `chat` make or continue one, with any provider's model and
    the tools of MCP servers; `import` makes one of a transcript from elsewhere. Log files are JSON lines that `export`
    wrote, or session logs of the DeepSeek Harness (format 4), plain or compressed with zstd.

    \b
    Examples:
      quiesce demo                              see what quiesce is for, in a few seconds
      quiesce run --model openai:gpt-5 "Hello"  one turn with a model (see `quiesce run --help`)
      quiesce chat --model openai:gpt-5 --mcp 'uvx mcp-server-git' --session work
      quiesce sessions quiesce.db               what is in the store
      quiesce show quiesce.db work              the timeline of one session
      quiesce show session.jsonl.zstd           the timeline of a file
      quiesce check *.jsonl                     are these logs sound?
      quiesce recover cut.jsonl --out ok.jsonl  close the turn that a crash left open
      quiesce check request.json                would a provider take these messages?
      quiesce recover request.json -o ok.json   answer their calls, so that it does
      quiesce import request.json               go on with them, with `quiesce chat --session ID`

    `quiesce COMMAND --help` has examples of each. Exit codes: 0 done, 1 the answer is no (see the command), 2 something
    in the request or the files is wrong, 130 interrupted.
    """  # noqa: D301 - the \b is a character that click looks for
