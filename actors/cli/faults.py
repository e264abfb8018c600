"""What a user is told when something goes wrong: one line on standard error, and an exit code. Never a traceback.

| what happened | line | exit code |
|---|---|---|
| a mistake in the request, a file or a store that cannot be used | `quiesce: ...` | 2 |
| Ctrl-C | `quiesce: interrupted` | 130 |
| whoever reads the output has stopped reading (`head`) | | 141, as for any program that SIGPIPE ends |
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from quiesce.actors.cli.words import one_line
from quiesce.protocol.errors import QuiesceError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DONE", "INTERRUPTED", "NO", "WRONG", "Fault", "Interrupted", "in_plain_words"]

DONE: Final = 0
NO: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130
"""The exit codes: done, the answer is no, the request or its files are wrong, Ctrl-C."""

_EXPECTED: Final = (QuiesceError, OSError, click.ClickException)
_PIPE_CLOSED: Final = 141


class Fault(click.ClickException):
    """Ends the command with one line on standard error."""

    exit_code = WRONG

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"quiesce: {one_line(self.message)}", file=file or sys.stderr)


class Interrupted(Fault):
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted")


@contextmanager
def in_plain_words(ctx: click.Context) -> Iterator[None]:
    """Turn what a command raises because of its user, files or stores into a `Fault`. Anything else passes: a bug."""
    _open_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BaseException as error:
        match _first_of_interest(error):
            case BrokenPipeError():
                _drop_output()
                ctx.exit(_PIPE_CLOSED)
            case KeyboardInterrupt():
                raise Interrupted from error
            case QuiesceError() as ours:
                raise Fault(str(ours)) from error
            case OSError() as system:
                raise Fault(_system_words(system)) from error
            case click.UsageError() as usage if not _shows_help(usage):
                raise Fault(f"{usage.format_message().rstrip('.')}; see `{_path(usage, ctx)} --help`") from error
            case click.ClickException() as fault if fault is not error:
                raise fault from error
            case _:
                raise


def _open_streams() -> None:
    """Python has None for a standard stream that was closed (`>&-`): read nothing there, and write to nobody."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for good


def _path(usage: click.UsageError, ctx: click.Context) -> str:
    """What was called. An option without its value is told by a parser that does not know."""
    if usage.ctx is not None:
        return usage.ctx.command_path
    return " ".join(filter(None, (ctx.command_path, ctx.invoked_subcommand)))


def _shows_help(usage: click.UsageError) -> bool:
    """Whether it is no mistake: a group that is called without a command explains itself."""
    return isinstance(usage, getattr(click.exceptions, "NoArgsIsHelpError", ()))


def _first_of_interest(error: BaseException) -> BaseException | None:
    """`error`, or the member that counts of a group that a nursery made of it; None if any of it is a bug."""
    if isinstance(error, QuiesceError) or not isinstance(error, BaseExceptionGroup):
        return error
    members = [_first_of_interest(member) for member in error.exceptions]
    for kind in (KeyboardInterrupt, BrokenPipeError):
        if (found := next((member for member in members if isinstance(member, kind)), None)) is not None:
            return found
    return members[0] if all(isinstance(member, _EXPECTED) for member in members) else None


def _system_words(error: OSError) -> str:
    words = error.strerror or str(error) or type(error).__name__
    return words if error.filename is None else f"{click.format_filename(error.filename)}: {words}"


def _drop_output() -> None:
    """Nobody reads any more: what is still in the buffer must not raise again when the program ends."""
    with suppress(OSError, ValueError):  # not a real file: then there is nothing to redirect
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
