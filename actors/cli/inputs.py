"""Where the commands read from: log files and transcripts, standard input, and stores that are there already.

Reading never makes a store: a name that is wrong is an error, not a new file. No lease is taken, so a session can be
read while it is running.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, contextmanager
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
    from collections.abc import AsyncIterator, Iterator, Sequence

    from quiesce.actors.stores import SessionInfo, Store
    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.dialects.transcript import Transcript
    from quiesce.protocol.events import Event
    from quiesce.protocol.logfile import LogFile

__all__ = [
    "STDIN",
    "SessionLog",
    "as_text",
    "existing_store",
    "read_bytes",
    "read_file",
    "read_log_file",
    "read_session",
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


@contextmanager
def as_text() -> Iterator[None]:
    """Standard input is read as text. Raises `Fault` if it is none."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Fault(f"standard input: no {error.encoding} text: {error.reason} at byte {error.start:,}") from error


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
        raise Fault(f"{shown}: {error}") from error


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
