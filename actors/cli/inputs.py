"""Where the commands read from: log files and transcripts, standard input, and stores that are there already.

Reading never makes a store: a name that is wrong is an error, not a new file. No lease is taken, so a session can be
read while it is running.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
from attrs import frozen

from quiesce.actors.cli.faults import Fault
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.dialects.transcript import load_transcript
from quiesce.protocol.errors import InvalidInput, SessionNotFound, UnreadableLog
from quiesce.protocol.logfile import is_log, read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from quiesce.actors.stores import SessionInfo, Store
    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.dialects.transcript import Transcript
    from quiesce.protocol.events import Event
    from quiesce.protocol.logfile import LogFile

__all__ = [
    "STDIN",
    "SessionLog",
    "check_store",
    "checked_id",
    "decoded",
    "existing_store",
    "read_bytes",
    "read_file",
    "read_log_file",
    "read_session",
    "read_text",
    "shown_name",
]

STDIN: Final = "-"
_SQLITE: Final = b"SQLite format 3\0"
_SHOWN: Final = 5


@frozen
class SessionLog:
    """A session as its store has it."""

    info: SessionInfo
    events: Sequence[Event]


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


def checked_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that takes the id of a session. Raises `click.BadParameter` for what is none."""
    if value is not None and not (value.strip() and value.isprintable()):
        raise click.BadParameter(f"{value!a} is no id: it must have printable characters, and at least one")
    return value


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
        return data, load_transcript(data, kind)
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
        raise Fault(f"{shown}: {_transcript_hint(data, shown) or error}") from error


def _transcript_hint(data: bytes, shown: str) -> str:
    """What can be done with a transcript that stands where a session must; empty if it is none."""
    try:
        load_transcript(data)
    except InvalidInput:
        return ""
    return f"a transcript, and no session; `quiesce import {shown}` makes one of it, `quiesce check {shown}` judges it"


def check_store(name: str) -> None:
    """Raise `Fault` if the file `name`, which shall be a store, is a log or a transcript instead."""
    path, shown = Path(name), click.format_filename(name)
    if not path.is_file():
        return
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return
    data = path.read_bytes()
    if is_log(data):
        raise Fault(
            f"{shown}: a log, and no store; `quiesce show {shown}` draws it, `quiesce import {shown}` stores it"
        )
    if hint := _transcript_hint(data, shown):
        raise Fault(f"{shown}: {hint}")


@asynccontextmanager
async def existing_store(name: str) -> AsyncIterator[Store]:
    """The store in the file `name`, which must be there."""
    async with SqliteStore(_existing(name)) as store:
        yield store


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise Fault(f"{click.format_filename(name)}: there is no such store")
    if path.is_file() and not path.stat().st_size:  # which a store would make its own
        raise Fault(f"{click.format_filename(name)}: not a quiesce store, the file is empty")
    check_store(name)
    return path


async def read_session(store: Store, session_id: str) -> SessionLog:
    """One session of `store`. Raises `Fault` with the names that there are, if there is none of that name."""
    try:
        info = await store.info(session_id)
        return SessionLog(info, await store.read(session_id, foreign=True))
    except SessionNotFound as error:
        known = [repr(item.id) for item in await store.list()]
        more = f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
        there = f"there are {', '.join(known[:_SHOWN])}{more}" if known else "the store is empty"
        raise Fault(f"there is no session {session_id!r}; {there}") from error
