"""`quiesce recover`: a copy of a log whose open turn is closed, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quiesce.actors.cli.faults import Fault
from quiesce.actors.cli.inputs import STDIN, read_log_file
from quiesce.actors.cli.terminal import write_bytes
from quiesce.actors.cli.words import count, one_line
from quiesce.protocol.codec import dumps
from quiesce.protocol.events import StepEnd, ToolResult, TurnEnd
from quiesce.protocol.logfile import extend_log
from quiesce.protocol.recovery import closing_events
from quiesce.protocol.rules import LogState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.events import Event
    from quiesce.protocol.logfile import LogFile

__all__ = ["recover"]


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--out", metavar="FILE", required=True, type=click.Path(), help="Where to write the copy.")
@click.option("--force", is_flag=True, help="Replace the file that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the added events, one JSON object per line.")
def recover(file: str, out: str, *, force: bool, as_json: bool) -> None:
    """Write a copy of a log whose open turn is closed.

    Each call without a result is answered: UNKNOWN if it was recorded as started (it may have had effects), NOT STARTED
    otherwise. Then the step and the turn are closed. Nothing is run, retried or removed, apart from a torn tail (an
    incomplete last line or frame). FILE is never touched; the copy has its format and compression. If no turn is open,
    the copy is written all the same, with nothing added. `-` is standard input or output.

    \b
    Examples:
      quiesce recover cut.jsonl --out whole.jsonl
      quiesce recover session.jsonl.zstd --out recovered.jsonl.zstd --json
      quiesce recover - --out - < cut.jsonl | quiesce check -

    Exit codes: 0 the copy is written, 2 FILE is not readable or the copy cannot be written.
    """  # noqa: D301 - the \b is a character that click looks for
    if as_json and out == STDIN:
        raise click.UsageError("--json and --out - both want standard output.")
    if out != STDIN:
        _check_target(file, out, force=force)
    data, log = read_log_file(file)
    state, breaks = LogState(), 0
    for event in log.events:
        breaks += len(state.breaks(event))
        state.watch(event)
    added = closing_events(state, "interrupted")
    copy = extend_log(data, log, added)
    if out == STDIN:
        write_bytes(copy)
    else:
        _write_whole(Path(out), copy, like=None if file == STDIN else Path(file))
    if as_json:
        write_bytes(b"".join(dumps(event).encode() + b"\n" for event in added))
    else:
        _tell(log, added, out, breaks)


def _check_target(file: str, out: str, *, force: bool) -> None:
    target = Path(out)
    shown = click.format_filename(out)
    if file != STDIN and target.exists() and Path(file).exists() and target.samefile(file):
        raise Fault(f"{shown}: --out is the file itself, which is never touched; name another")
    if target.is_dir():
        raise Fault(f"{shown}: --out is a folder; name a file")
    if not target.parent.is_dir():
        raise Fault(f"{click.format_filename(target.parent)}: there is no such folder")
    if target.exists() and not force:
        raise Fault(f"{shown}: there is a file of that name already; --force replaces it")


def _write_whole(target: Path, data: bytes, *, like: Path | None) -> None:
    """Write a file beside `target`, make it durable, then give it the name. Its rights are those of `like`."""
    target = target.resolve()  # a link stays a link
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if like is not None:
            with suppress(OSError):  # the rights are a courtesy; without them the copy is its owner's alone
                shutil.copymode(like, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system lets a folder be opened; the file itself is durable
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _tell(log: LogFile, added: Sequence[Event], out: str, breaks: int) -> None:
    def say(line: str) -> None:
        click.echo(line, err=out == STDIN)

    if log.torn is not None:
        say(f"left out: a torn tail of {log.torn.size:,} bytes at line {log.torn.line}: {one_line(log.torn.words)}")
    for event in added:
        say(f"added: seq {event.seq}: {event.type}: {_what(event)}")
    if not added:
        say("nothing to close: no turn is open")
    if breaks:
        say(f"left as it is: {count(breaks, 'break')} of the rules, which `quiesce check` lists")
    if out != STDIN:
        size = count(len(log.events) + len(added), "event")
        say(f"wrote {click.format_filename(out)}: {size}, {len(added)} of them new")


def _what(event: Event) -> str:
    match event.body:
        case ToolResult(message=message, error=error):
            return f"call {message.tool_call_id!r} {'' if error is None else error.code}"
        case StepEnd(turn=turn, step=step):
            return f"turn {turn}, step {step}"
        case TurnEnd(turn=turn, reason=reason):
            return f"turn {turn}, {reason}"
        case _:
            return ""
