"""`SqliteTables`: the SQL of a store. Transactions are its caller's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from quiesce.actors.stores.tables import Row, Tables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from quiesce.protocol.events import JsonObject

__all__ = ["SqliteTables"]

_COLUMNS: Final = "number, id, created_at, epoch, holder, held_by, next_seq, last_time, turns, turn_open"
_FIND: Final = f"SELECT {_COLUMNS} FROM sessions WHERE id = ?"  # noqa: S608 - a constant
_ROW: Final = f"SELECT {_COLUMNS} FROM sessions WHERE number = ?"  # noqa: S608 - a constant
_ROWS: Final = f"SELECT {_COLUMNS}, header FROM sessions JOIN headers ON session = number ORDER BY number"  # noqa: S608 - a constant
_SAVE: Final = (
    "UPDATE sessions SET epoch = ?, holder = ?, held_by = ?, next_seq = ?, last_time = ?, turns = ?, turn_open = ?"
    " WHERE number = ?"
)
_LINES: Final = "SELECT seq, line FROM events WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq"


class SqliteTables(Tables):
    """`Tables` on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, session_id: str) -> Row | None:
        return _row(self._connection.execute(_FIND, (session_id,)).fetchone())

    def row(self, number: int) -> Row | None:
        return _row(self._connection.execute(_ROW, (number,)).fetchone())

    def rows(self) -> Sequence[tuple[Row, JsonObject]]:
        return [(_as_row(columns), json.loads(header)) for *columns, header in self._connection.execute(_ROWS)]

    def header(self, number: int) -> JsonObject:
        (text,) = self._connection.execute("SELECT header FROM headers WHERE session = ?", (number,)).fetchone()
        header: JsonObject = json.loads(text)
        return header

    def create(self, session_id: str, header: JsonObject) -> Row:
        created_at = header["createdAt"]
        execute = self._connection.execute
        number = execute("INSERT INTO sessions (id, created_at) VALUES (?, ?)", (session_id, created_at)).lastrowid
        assert number is not None  # an INSERT has a rowid
        execute("INSERT INTO headers VALUES (?, ?)", (number, json.dumps(header)))
        return Row(number=number, id=session_id, created_at=created_at)

    def save(self, row: Row) -> None:
        self._connection.execute(
            _SAVE,
            (row.epoch, row.holder, row.held_by, row.next_seq, row.last_time, row.turns, row.turn_open, row.number),
        )

    def add(self, number: int, first_seq: int, lines: Sequence[str]) -> None:
        self._connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?)", [(number, seq, line) for seq, line in enumerate(lines, first_seq)]
        )

    def lines(self, number: int, from_seq: int, to_seq: int) -> Sequence[tuple[int, str]]:
        return self._connection.execute(_LINES, (number, from_seq, to_seq)).fetchall()

    def remove(self, number: int) -> None:
        # The header and the log go with it, by their foreign keys.
        self._connection.execute("DELETE FROM sessions WHERE number = ?", (number,))


def _row(columns: Sequence[Any] | None) -> Row | None:
    return None if columns is None else _as_row(columns)


def _as_row(columns: Sequence[Any]) -> Row:
    number, session_id, created_at, epoch, holder, held_by, next_seq, last_time, turns, turn_open = columns
    return Row(
        number=number,
        id=session_id,
        created_at=created_at,
        epoch=epoch,
        holder=holder,
        held_by=held_by,
        next_seq=next_seq,
        last_time=last_time,
        turns=turns,
        turn_open=bool(turn_open),
    )
