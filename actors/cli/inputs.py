"""Where the commands read from, log files, transcripts and standard input, and what is no place for a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from quiesce.actors.cli.faults import Fault
from quiesce.protocol.errors import InvalidInput, UnreadableLog
from quiesce.protocol.logfile import is_log, read_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.dialects.transcript import Transcript
    from quiesce.protocol.logfile import LogFile

__all__ = [
    "STDIN",
    "check_store",
    "decoded",
    "nature_of",
    "read_bytes",
    "read_file",
    "read_log_file",
    "read_text",
    "shown_name",
]

STDIN: Final = "-"
_SQLITE: Final = b"SQLite format 3\0"


def read_bytes(name: str) -> bytes:
    """The bytes of the file `name`, or of standard input for `-`. Raises `Fault` if there are none to be had."""
    if name == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        raise Fault(f"{click.format_filename(name)}: there is no such file") from error


def read_text() -> str:
    """Standard input as text, its lines ended as Python's are."""
    text = decoded(read_bytes(STDIN), lambda words: click.echo(words, err=True))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes, tell: Callable[[str], object]) -> str:
    """`data` from standard input as text. What is no text is replaced visibly, by U+FFFD, and `tell` is told so."""
    encoding = sys.stdin.encoding or "utf-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        tell(f"standard input is no {encoding} text at byte {error.start:,}: what is none was replaced by U+FFFD")
        return data.decode(encoding, "replace")


def shown_name(name: str) -> str:
    """The file `name` as messages call it."""
    return "standard input" if name == STDIN else click.format_filename(name)


def read_log_file(name: str) -> tuple[bytes, LogFile]:
    """The log in the file `name`, and its bytes. Raises `Fault`, naming the file, if it is not a log."""
    data = read_bytes(name)
    return data, _as_log(data, shown_name(name))


def read_file(name: str, kind: DialectName | Literal["log"] | None = None) -> tuple[bytes, LogFile | Transcript]:
    """The log or transcript in the file `name`, and its bytes; `kind` says which it is, or that is found out.

    Raises `Fault`, naming the file, if it is neither.
    """
    data, shown = read_bytes(name), shown_name(name)
    if kind == "log" or (kind is None and (is_log(data) or data.startswith(_SQLITE))):
        return data, _as_log(data, shown)
    try:
        return data, _as_transcript(data, kind)
    except InvalidInput as error:
        what = "neither a log nor a transcript: " if kind is None else ""
        raise Fault(f"{shown}: {what}{error}") from error


def _as_log(data: bytes, shown: str) -> LogFile:
    if data.startswith(_SQLITE):
        raise Fault(
            f"{shown}: a database, not a log file; `quiesce sessions {shown}` lists its sessions, "
            f"`quiesce show {shown} SESSION` shows one, `quiesce export {shown} SESSION` makes a log file of one"
        )
    try:
        return read_log(data)
    except UnreadableLog as error:
        words = _transcript_words(shown) if _is_transcript(data) else str(error)
        raise Fault(f"{shown}: {words}") from error


def _as_transcript(data: bytes, kind: DialectName | None = None) -> Transcript:
    from quiesce.protocol.dialects.transcript import load_transcript  # noqa: PLC0415 - few commands need the dialects

    return load_transcript(data, kind)


def _is_transcript(data: bytes) -> bool:
    try:
        _as_transcript(data)
    except InvalidInput:
        return False
    return True


def _transcript_words(shown: str) -> str:
    """What can be done with a transcript that stands where a session must."""
    return f"a transcript, and no session; `quiesce import {shown}` makes one of it, `quiesce check {shown}` judges it"


# --- stores ------------------------------------------------------------------------------------------------------


def nature_of(name: str) -> Literal["database", "log", "transcript", "other", "none"]:
    """What the file `name` is, as far as that can be seen; none, if there is no such file or nothing in it."""
    path = Path(name)
    if not path.is_file() or not path.stat().st_size:
        return "none"
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return "database"
    data = path.read_bytes()
    return "log" if is_log(data) else "transcript" if _is_transcript(data) else "other"


def check_store(name: str) -> None:
    """Raise `Fault` if the file `name` can be no store, be it there already or not."""
    if name == STDIN:
        raise Fault("a store cannot be standard input")
    shown, folder = click.format_filename(name), Path(name).parent
    if not folder.is_dir():
        raise Fault(f"{click.format_filename(folder)}: there is no such folder")
    match nature_of(name):
        case "log":
            raise Fault(
                f"{shown}: a log, and no store; `quiesce show {shown}` draws it, `quiesce import {shown}` stores it"
            )
        case "transcript":
            raise Fault(f"{shown}: {_transcript_words(shown)}")
