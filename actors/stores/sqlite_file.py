"""The file of a `SqliteStore`: how it is opened, made or refused, and what SQLite's errors mean.

A file is ours if its header has our application id, which the first transaction writes, before the file is switched to
WAL: so it can be told from the bytes of the file alone, and nobody else's file is touched. (Never by opening the file
with other means than SQLite: closing it would drop the locks that SQLite has on it in this process.)
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from quiesce.protocol.errors import StoreError, StoreFull, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["connect_reader", "connect_writer", "typed"]

T = TypeVar("T")

_APPLICATION_ID: Final = 0x71756965  # "quie"
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    held_by TEXT,
    next_seq INTEGER NOT NULL DEFAULT 0,
    last_time INTEGER,
    turns INTEGER NOT NULL DEFAULT 0,
    turn_open INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE headers (
    session INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    header TEXT NOT NULL
);
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    UNIQUE (session, seq)
);
"""
# `events` has a rowid on purpose. Clustered by (session, seq), a group commit of a thousand sessions would write a page
# for each of them; like this their lines share pages, which measures four times as fast, and reading is no slower.

_ERRORS: Final[dict[int, type[StoreError]]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_BUSY: StoreLocked,
    sqlite3.SQLITE_LOCKED: StoreLocked,
}
_PAUSE: Final = 0.005


def typed(error: Exception, path: str) -> StoreError:
    """The error of a store at `path` for one of SQLite or of the operating system."""
    code = getattr(error, "sqlite_errorcode", 0)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    typed_error = _ERRORS.get(code & 0xFF, StoreError)(f"{path}: {error} ({name})")
    typed_error.__cause__ = error
    return typed_error


def connect_writer(path: str, *, busy_timeout: float, max_bytes: int | None) -> sqlite3.Connection:
    """The connection that writes, on a file that is made if it is not there.

    Raises `StoreError`, naming `path`, if the file is not a store, is of a newer version, or cannot be used.
    """
    try:
        _refuse_foreign(path)
        connection = _connect(path, "rwc", busy_timeout)
        try:
            _retried(lambda: _prepare(connection, path), busy_timeout)
            if max_bytes is not None:
                page_size = _pragma(connection, "page_size")
                connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_size)}")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise typed(error, path) from error
    return connection


def connect_reader(path: str, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that reads, beside the one that writes. Raises `sqlite3.Error`."""
    connection = _connect(path, "rw", busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: str, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """Connect with the busy time-out set before anything else is done; transactions are begun by hand."""
    return sqlite3.connect(
        f"{Path(path).as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
    )


def _refuse_foreign(path: str) -> None:
    """Refuse what can be told from the file alone, with no lock and no side file: `immutable` reads just its bytes.

    Those may be halfway through a checkpoint or a rollback, of our own file too. Whatever does not make sense for
    that reason is left to an ordinary connection, which repairs it first.
    """
    file = Path(path)
    if not file.exists() or (file.is_file() and file.stat().st_size == 0):
        return
    if not file.is_file():
        raise StoreError(f"{path}: not a file")
    try:
        with closing(_connect(path, "ro&immutable=1", 0)) as connection:
            application_id = _pragma(connection, "application_id")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB and not _is_unfinished(path):
            raise _foreign(path) from error
        return
    if application_id != _APPLICATION_ID:
        raise _foreign(path)


def _is_unfinished(path: str) -> bool:
    return any(Path(path + side).exists() for side in ("-wal", "-journal"))


def _foreign(path: str) -> StoreError:
    return StoreError(f"{path}: not a quiesce store; the file was left as it is")


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Set the connection up, and the file if it is new."""
    for setting in ("foreign_keys = ON", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
        connection.execute(f"PRAGMA {setting}")
    if _is_empty(connection):
        _create(connection, path)
    if _pragma(connection, "application_id") != _APPLICATION_ID:
        raise _foreign(path)
    version = _pragma(connection, "user_version")
    if version > _VERSION:
        raise StoreError(
            f"{path}: written by a newer quiesce (schema {version}, this one knows {_VERSION}): upgrade it"
        )
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(f"{path}: the file system does not support write-ahead logging (journal mode {mode})")


def _pragma(connection: sqlite3.Connection, pragma: str) -> int:
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables, unless another process has just done so. The file is its owner's: logs hold what tools read."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_empty(connection):
            Path(path).chmod(0o600)
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _retried(attempt: Callable[[], T], timeout: float) -> T:
    """Switching to WAL can find the file locked without waiting for the busy time-out: then wait here."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if _ERRORS.get(error.sqlite_errorcode & 0xFF) is not StoreLocked or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)
