"""Group commit: one thread commits what all sessions submitted meanwhile, in one transaction.

While a commit waits for the disk, jobs pile up in the queue; the next transaction takes them all, so that a thousand
busy sessions share the cost of one sync. Each job runs in its own savepoint: one that is refused leaves no trace and
takes nobody along. If the transaction itself fails, every job in it fails, and the file is as it was; except that when
there was no room for all of them, each is tried alone, so that one session's large append does not stop the others.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import closing, suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

import pykka

from quiesce.actors.stores.jobs import Job, NotOpen, Settled, deliver, refuse
from quiesce.actors.stores.sqlite_file import typed
from quiesce.actors.stores.sqlite_tables import SqliteTables
from quiesce.protocol.errors import QuiesceError, StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["WAKE", "CommitQueue", "GroupCommitter"]

WAKE: Final = "wake"
"""The one message to a `GroupCommitter`: something waits in the queue."""


class CommitQueue:
    """What waits for the committer. Shared by the loops that submit and the thread that commits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: deque[Job] = deque()
        self._closed: Exception | None = None

    def put(self, job: Job) -> bool:
        """Queue `job`; a closed queue refuses it. True if the committer has to be woken."""
        with self._lock:
            if self._closed is not None:
                deliver(refuse([job], self._closed))
                return False
            self._jobs.append(job)
            return len(self._jobs) == 1

    def take(self) -> Sequence[Job]:
        """All jobs that wait."""
        with self._lock:
            jobs = list(self._jobs)
            self._jobs.clear()
        return jobs

    def close(self, error: Exception) -> None:
        """Refuse, from now on and those that still wait, with `error`."""
        with self._lock:  # held while delivering, so that no later refusal gets ahead of these
            self._closed = error
            deliver(refuse(self._jobs, error))
            self._jobs.clear()


class GroupCommitter(pykka.ThreadingActor):
    """Owns the writing connection. Stopping it commits what was submitted before, and closes the connection."""

    use_daemon_thread = True  # a program that dies without closing its store must not hang; acknowledged is durable

    def __init__(self, connection: sqlite3.Connection, path: str, queue: CommitQueue) -> None:
        super().__init__()
        self._connection = connection
        self._tables = SqliteTables(connection)
        self._path = path
        self._queue = queue

    def on_receive(self, message: object) -> None:  # noqa: ARG002 - the only message is to wake up
        """Commit what waits."""
        jobs = self._queue.take()
        if jobs:
            deliver(self._commit(jobs))

    def on_stop(self) -> None:
        """Nothing waits any more, unless Pykka was told to stop all actors."""
        self._queue.close(NotOpen(f"{self._path}: the store is closed"))
        with closing(self._connection), suppress(sqlite3.Error):  # all of it is durable in the write-ahead log, too
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def on_failure(
        self,
        exception_type: type[BaseException] | None,  # noqa: ARG002 - Pykka's signature
        exception_value: BaseException | None,
        traceback: TracebackType | None,  # noqa: ARG002 - Pykka's signature
    ) -> None:
        """A fault in this file: whoever waits is told."""
        self._queue.close(StoreError(f"{self._path}: the store's writer crashed: {exception_value!r}"))
        self._connection.close()

    def _commit(self, jobs: Sequence[Job]) -> Sequence[Settled]:
        connection = self._connection
        settled: list[Settled] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                settled.append(self._settle(job))  # noqa: PERF401 - what was settled before a failure counts
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            failure = typed(error, self._path)
            if isinstance(failure, StoreFull) and len(jobs) > 1:
                return [self._commit([job])[0] for job in jobs]
            return self._failed(jobs, settled, failure)
        return settled

    def _settle(self, job: Job) -> Settled:
        """Run `job`. Raises `sqlite3.Error` only if the transaction is lost with it."""
        connection = self._connection
        connection.execute("SAVEPOINT job")
        try:
            value = job.work(self._tables)
        except sqlite3.Error as error:
            if not connection.in_transaction:
                raise
            return self._undone(job, typed(error, self._path))
        except QuiesceError as error:
            return self._undone(job, error)
        except Exception as error:  # noqa: BLE001 - a fault in a job must reach who waits for it, and not the whole group
            return self._undone(job, StoreError(f"{self._path}: {error!r}"))
        connection.execute("RELEASE job")
        return Settled(job, value)

    def _undone(self, job: Job, error: Exception) -> Settled:
        self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")
        return Settled(job, error=error)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                self._connection.execute("ROLLBACK")

    @staticmethod
    def _failed(jobs: Sequence[Job], settled: Sequence[Settled], error: Exception) -> Sequence[Settled]:
        """All jobs failed with `error`, except for those that had failed before and alone."""
        done = [item if item.error is not None else Settled(item.job, error=error) for item in settled]
        return [*done, *refuse(jobs[len(done) :], error)]
