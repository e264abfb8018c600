"""Where the commands read from: log files, standard input, and stores that are there already.

Reading never makes a store: a name that is wrong is an error, not a new file. No lease is taken, so a session can be
read while it is running.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from attrs import frozen

from quiesce.actors.cli.faults import Fault
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.errors import SessionNotFound, UnreadableLog
from quiesce.protocol.logfile import read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from quiesce.actors.stores import SessionInfo, Store
    from quiesce.protocol.events import Event
    from quiesce.protocol.logfile import LogFile

__all__ = ["STDIN", "SessionLog", "existing_store", "read_bytes", "read_log_file", "read_session"]

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


def read_log_file(name: str) -> tuple[bytes, LogFile]:
    """The log in the file `name`, and its bytes. Raises `Fault`, naming the file, if it is not a log."""
    data = read_bytes(name)
    shown = "standard input" if name == STDIN else click.format_filename(name)
    if data.startswith(_SQLITE):
        raise Fault(
            f"{shown}: a database, not a log file; `quiesce sessions {shown}` lists its sessions, "
            f"`quiesce show {shown} SESSION` shows one, `quiesce export {shown} SESSION` makes a log file of one"
        )
    try:
        return data, read_log(data)
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
