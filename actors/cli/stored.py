"""What is in stores that are there already.

Reading never makes a store: a name that is wrong is an error, not a new file. No lease is taken, so a session can be
read while it is running.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import trio
from attrs import frozen

from quiesce.actors.cli.faults import Fault
from quiesce.actors.cli.inputs import STDIN, check_store
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.errors import SessionNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from quiesce.actors.stores import SessionInfo, Store
    from quiesce.protocol.events import Event

__all__ = ["SessionLog", "existing_store", "read_session", "session_log"]

_SHOWN: Final = 5


@frozen
class SessionLog:
    """A session as its store has it."""

    info: SessionInfo
    events: Sequence[Event]


@asynccontextmanager
async def existing_store(name: str) -> AsyncIterator[Store]:
    """The store in the file `name`, which must be there."""
    async with SqliteStore(_existing(name)) as store:
        yield store


def _existing(name: str) -> Path:
    path = Path(name)
    if name != STDIN and not path.exists():
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


def session_log(name: str, session_id: str) -> SessionLog:
    """One session of the store in the file `name`, for those who have no event loop."""
    return trio.run(_session_log, name, session_id)


async def _session_log(name: str, session_id: str) -> SessionLog:
    async with existing_store(name) as store:
        return await read_session(store, session_id)
