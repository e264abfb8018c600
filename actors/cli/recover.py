"""`quiesce recover`: a copy of a log or transcript in which every call is answered, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click
from attrs import frozen
from rich import box
from rich.table import Table
from rich.text import Text

from quiesce.actors.cli.faults import Fault
from quiesce.actors.cli.inputs import STDIN, read_file, shown_name
from quiesce.actors.cli.parameters import FileName
from quiesce.actors.cli.terminal import open_console, write_bytes
from quiesce.actors.cli.transcripts import fitted, format_option, profile_option, read_as, size_of
from quiesce.actors.cli.words import count, one_line
from quiesce.protocol.codec import dumps
from quiesce.protocol.dialects.repair import Repaired, repair
from quiesce.protocol.dialects.transcript import Transcript
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import StepEnd, ToolResult, TurnEnd
from quiesce.protocol.logfile import extend_log
from quiesce.protocol.recovery import closing_events
from quiesce.protocol.rules import LogState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quiesce.protocol.dialects.profile import DialectName, Profile
    from quiesce.protocol.dialects.repair_notes import Change, ChangeKind
    from quiesce.protocol.events import Event
    from quiesce.protocol.logfile import LogFile

__all__ = ["recover"]


@click.command()
@click.argument("file", metavar="FILE", type=FileName())
@click.option("-o", "--out", metavar="FILE", required=True, type=FileName(), help="Where to write the copy.")
@click.option("--force", is_flag=True, help="Replace the file that is there already.")
@format_option
@profile_option
@click.option("--json", "as_json", is_flag=True, help="Print what was done: one JSON object per line.")
def recover(
    file: str,
    out: str,
    kind: DialectName | Literal["log"] | None,
    profile_name: str | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Write a copy of a log or transcript in which every call is answered.

    In a log, the open turn is closed. Each call without a result is answered: UNKNOWN if it was recorded as started (it
    may have had effects), NOT STARTED otherwise. Then the step and the turn are closed. Nothing is run, retried or
    removed, apart from a torn tail (an incomplete last line or frame). The copy has the format and compression of FILE.
    If no turn is open, the copy is written all the same, with nothing added.

    In a transcript (a list of messages, or a whole request, of OpenAI Chat Completions, OpenAI Responses or Anthropic
    Messages), a call without a result gets one that says its outcome is unknown; a result that stands elsewhere moves
    behind its call; one that answers nothing, or came after the first, is quoted in a note of the user. All else stays,
    to the last byte, also a malformed call. What a provider would still refuse is told.

    FILE is never touched. `-` is standard input or output.

    \b
    Examples:
      quiesce recover cut.jsonl --out whole.jsonl
      quiesce recover session.jsonl.zstd --out recovered.jsonl.zstd --json
      quiesce recover refused-request.json -o request.json --profile anthropic
      quiesce recover - --out - < cut.jsonl | quiesce check -

    Exit codes: 0 the copy is written, 2 FILE is not readable or the copy cannot be written.
    """  # noqa: D301 - the \b is a character that click looks for
    if as_json and out == STDIN:
        raise click.UsageError("--json and --out - both want standard output.")
    if out != STDIN:
        _check_target(file, out, force=force)
    data, found = read_file(file, kind)
    if isinstance(found, Transcript):
        try:
            recovered: _Recovered = _RecoveredTranscript.of(found, profile_name)
        except InvalidInput as error:
            raise Fault(f"{shown_name(file)}: {error}") from error
    elif profile_name is not None:
        raise Fault(f"{shown_name(file)}: a log, and --profile is for transcripts")
    else:
        recovered = _RecoveredLog.of(found, data)
    if out == STDIN:
        write_bytes(recovered.copy)
    else:
        try:
            _write_whole(Path(out), recovered.copy, like=None if file == STDIN else Path(file))
        except OSError as error:  # which names the file that would have become it
            raise Fault(f"{click.format_filename(out)}: cannot be written: {error.strerror}") from error
    if as_json:
        write_bytes(b"".join(line.encode() + b"\n" for line in recovered.json_lines()))
    else:
        recovered.tell(out)


def _check_target(file: str, out: str, *, force: bool) -> None:
    target = Path(out)
    shown = click.format_filename(out)
    if file != STDIN and target.exists() and Path(file).exists() and target.samefile(file):
        raise Fault(f"{shown}: --out is the file itself, which is never touched; name another")
    if target.is_dir():
        raise Fault(f"{shown}: --out is a folder; name a file")
    if target.exists() and not target.is_file():  # a device, a pipe: it would be replaced, and not written to
        raise Fault(f"{shown}: --out is no file; name one, or - for standard output")
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


# --- logs --------------------------------------------------------------------------------------------------------


@frozen
class _RecoveredLog:
    """A log whose open turn is closed."""

    log: LogFile
    added: Sequence[Event]
    copy: bytes
    breaks: int

    @classmethod
    def of(cls, log: LogFile, data: bytes) -> _RecoveredLog:
        """Close the open turn of `log`, which was read from `data`."""
        state, breaks = LogState(), 0
        for event in log.events:
            breaks += len(state.breaks(event))
            state.watch(event)
        added = closing_events(state, "interrupted")
        return cls(log, added, extend_log(data, log, added), breaks)

    def json_lines(self) -> list[str]:
        """The added events."""
        return [dumps(event) for event in self.added]

    def tell(self, out: str) -> None:
        """Print what was done."""
        say = _teller(out)
        if (torn := self.log.torn) is not None:
            say(f"left out: a torn tail of {torn.size:,} bytes at line {torn.line}: {one_line(torn.words)}")
        for event in self.added:
            say(f"added: seq {event.seq}: {event.type}: {_what(event)}")
        if not self.added:
            say("nothing to close: no turn is open")
        if self.breaks:
            say(f"left as it is: {count(self.breaks, 'break')} of the rules, which `quiesce check` lists")
        if out != STDIN:
            size = count(len(self.log.events) + len(self.added), "event")
            say(f"wrote {click.format_filename(out)}: {size}, {len(self.added)} of them new")


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


# --- transcripts -------------------------------------------------------------------------------------------------


@frozen
class _RecoveredTranscript:
    """A transcript in which every call is answered."""

    original: Transcript
    profile: Profile
    repaired: Repaired
    copy: bytes

    @classmethod
    def of(cls, transcript: Transcript, profile_name: str | None) -> _RecoveredTranscript:
        """Repair `transcript`. Raises `InvalidInput` if the profile is for another dialect."""
        original, profile = fitted(transcript, profile_name)
        repaired = repair(original, profile)
        return cls(original, profile, repaired, repaired.transcript.dump().encode())

    def json_lines(self) -> list[str]:
        """The changes, and then what a provider would still refuse."""
        lines = [
            {"change": item.kind, "position": item.position, "call": item.label, "words": item.words}
            for item in self.repaired.changes
        ] + [{"problem": item.rule, "position": item.position, "words": item.words} for item in self.repaired.problems]
        return [json.dumps(line, ensure_ascii=False) for line in lines]

    def tell(self, out: str) -> None:
        """Print what was done: a table on a terminal, lines elsewhere."""
        say = _teller(out)
        console = open_console(stderr=out == STDIN)
        say(one_line(read_as(self.original)))
        if not self.repaired.changes:
            say(_nothing_done(len(self.repaired.problems)))
        elif console.is_terminal:
            console.print(_changes(self.repaired.changes))
        else:
            for change in self.repaired.changes:
                say(f"{change.kind}: {one_line(str(change))}")
        for problem in self.repaired.problems:
            say(f"left as it is, though {self.profile.name} refuses it: {one_line(str(problem))}")
        if out != STDIN:
            size = size_of(self.repaired.transcript)
            say(f"wrote {click.format_filename(out)}: {size}, {count(len(self.repaired.changes), 'change')}")


def _nothing_done(problems: int) -> str:
    """Why nothing was changed. What is malformed answers nothing and is answered by nothing, but is not sound."""
    if not problems:
        return "nothing to repair: every call has its result in its place"
    rest = f"what else is wrong ({count(problems, 'problem')}) is left as it is"
    return f"nothing is repaired: every well-formed call has its result in its place; {rest}"


def _changes(changes: Sequence[Change]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("where it stood", overflow="fold")
    table.add_column("done", no_wrap=True, style="bold")
    table.add_column("what", overflow="fold")
    for change in changes:
        table.add_row(Text(change.position), Text(change.kind, _STYLES[change.kind]), Text(one_line(change.words)))
    return table


_STYLES: Final[dict[ChangeKind, str]] = {
    "answered": "bold magenta",
    "moved": "green",
    "quoted": "yellow",
    "call-moved": "green",
    "joined": "",
}

_Recovered: TypeAlias = _RecoveredLog | _RecoveredTranscript


def _teller(out: str) -> Callable[[str], None]:
    """Prints lines where they are not in the way of the copy."""
    return partial(click.echo, err=out == STDIN)
