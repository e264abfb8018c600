"""`SqliteStore`: the embedded default. One file, safe against `kill -9` and power loss, shared by several processes.

Writing is one thread's work, which commits for all sessions together (`group_commit`); readers have connections and
threads of their own (`readers`). Two processes on one file take turns by SQLite's lock, for whole transactions.

Leases. A session's row says in which epoch it is, who holds it, and by the token of which open store (`presence`).
Opening a session whose holder's store is still open somewhere is refused. A store that is closed, or whose process has
died of whatever cause, is present no more, and its leases are free without anybody having to wait or to clean up.
`takeover` needs no such proof: it counts the epoch up, and every append is checked against the epoch in the transaction
that stores it, so the old writer can change nothing from then on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.stores.group_commit import WAKE, CommitQueue, GroupCommitter
from quiesce.actors.stores.jobs import NotOpen, deliver, refuse
from quiesce.actors.stores.presence import Presence
from quiesce.actors.stores.readers import Readers
from quiesce.actors.stores.sqlite_file import connect_writer, typed
from quiesce.actors.stores.table_store import TableStore, wall_clock
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    import pykka

    from quiesce.actors.stores.jobs import Job
    from quiesce.actors.stores.tables import Tables

__all__ = ["SqliteStore"]

T = TypeVar("T")

_READERS: Final = 4
_MAX_TIMEOUT: Final = 1_000_000


@frozen
class _Open:
    """All that an open store has."""

    presence: Presence
    queue: CommitQueue
    committer: pykka.ActorRef[GroupCommitter]
    readers: Readers


class SqliteStore(TableStore):
    """The store in the file `path`, which is made, for its owner's eyes only, if it is not there.

    `busy_timeout`, in seconds, is how long to wait while another process writes; then what was to be written fails with
    `StoreLocked`. `max_bytes` limits the size of the file; what does not fit fails with `StoreFull`. `clock` gives the
    `createdAt` of headers that have none, in milliseconds.

    Opening raises `StoreError`, naming the path, for a file that is not a quiesce store (it is left as it is), one of a
    newer version, or one that cannot be used. Beside the file, and while the store is open, there are SQLite's `-wal`
    and `-shm` and one `-holder-...` for each open store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout: float = 5.0,
        max_bytes: int | None = None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        super().__init__(clock)
        if not 0 <= busy_timeout <= _MAX_TIMEOUT:
            raise InvalidInput(f"busy_timeout: seconds from 0 to {_MAX_TIMEOUT:,} are wanted, not {busy_timeout}")
        if max_bytes is not None and max_bytes <= 0:
            raise InvalidInput(f"max_bytes: a positive number is wanted, not {max_bytes}")
        self.path = _real(path)
        self._busy_timeout = busy_timeout
        self._max_bytes = max_bytes
        self._limiter = trio.CapacityLimiter(_READERS)  # of its own: tools may block all of Trio's common threads
        self._now_open: _Open | None = None

    async def _start(self) -> None:
        self._now_open = await trio.to_thread.run_sync(self._open_file, limiter=self._limiter)

    async def _stop(self) -> None:
        # Still open meanwhile: what is submitted now gets its answer in its turn, from the queue.
        await trio.to_thread.run_sync(_close_file, self._require_open(), limiter=self._limiter)
        self._now_open = None

    def _submit(self, job: Job) -> None:
        if self._now_open is None:
            deliver(refuse([job], self._not_open()))
        elif self._now_open.queue.put(job):
            with suppress(ActorDeadError):  # then the queue is being closed, and refuses the job
                self._now_open.committer.tell(WAKE)

    async def _look(self, query: Callable[[Tables], T]) -> T:
        readers = self._require_open().readers
        return await trio.to_thread.run_sync(readers.look, query, limiter=self._limiter)

    def _token(self) -> str:
        return self._require_open().presence.token

    def _is_alive(self, token: str) -> bool:
        return self._require_open().presence.is_alive(token)

    def _require_open(self) -> _Open:
        if self._now_open is None:
            raise self._not_open()
        return self._now_open

    def _not_open(self) -> NotOpen:
        return NotOpen(f"{self.path}: the store is not open")

    def _open_file(self) -> _Open:
        connection = connect_writer(self.path, busy_timeout=self._busy_timeout, max_bytes=self._max_bytes)
        try:
            presence = Presence.announce(self.path)
        except OSError as error:
            connection.close()
            raise typed(error, self.path) from error
        queue = CommitQueue()
        committer = GroupCommitter.start(connection, self.path, queue)
        return _Open(presence, queue, committer, Readers(self.path, self._busy_timeout))


def _close_file(now_open: _Open) -> None:
    """Readers first: the last connection to leave puts the write-ahead log into the file."""
    now_open.readers.close()
    now_open.committer.stop()
    now_open.presence.leave()


def _real(path: str | os.PathLike[str]) -> str:
    """The one absolute path of the file, so that all who open it look for each other in the same place."""
    text = os.fspath(path)
    if text in {"", ":memory:"} or "\0" in text:
        raise InvalidInput(f"path: the name of a file is wanted, not {text!r}")
    return os.path.realpath(text)
