"""Readers: connections that look at the last commit while the next one is being written."""

from __future__ import annotations

import sqlite3
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from quiesce.actors.stores.sqlite_file import connect_reader, typed
from quiesce.actors.stores.sqlite_tables import SqliteTables

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.stores.tables import Tables

__all__ = ["Readers"]

T = TypeVar("T")


class Readers:
    """Connections for reading, kept for the next reader. May be used by several threads at once."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def look(self, query: Callable[[Tables], T]) -> T:
        """The answer to `query`, all of it from the same commit. Raises `StoreError`, and what `query` raises."""
        try:
            connection = self._take()
            try:
                connection.execute("BEGIN")
                answer = query(SqliteTables(connection))
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise typed(error, self._path) from error
        self._give_back(connection)
        return answer

    def close(self) -> None:
        """Close what is idle now, and the others when they have been used."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return connect_reader(self._path, busy_timeout=self._busy_timeout)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
