"""`MemoryStore`: a store that lives as long as its object. For tests and for sessions that nobody needs tomorrow."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import trio

from quiesce.actors.stores.jobs import NotOpen, Settled, deliver
from quiesce.actors.stores.table_store import TableStore, wall_clock
from quiesce.actors.stores.tables import Row, Tables
from quiesce.protocol.errors import QuiesceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quiesce.actors.stores.jobs import Job
    from quiesce.protocol.events import JsonObject

__all__ = ["MemoryStore"]

T = TypeVar("T")


class MemoryStore(TableStore):
    """Keeps sessions in memory, in the same encoded form as on disk, so that it refuses what a disk would refuse.

    It uses no threads: jobs are done when they are submitted, and only their answers come later. What is in it stays
    after closing, so a runtime that crashed can be followed by another on the same object; the lease of one that never
    left the store has to be taken over.
    """

    def __init__(self, *, clock: Callable[[], int] = wall_clock) -> None:
        super().__init__(clock)
        self._tables = _MemoryTables()
        self._tokens = map(str, count(1))
        self._present: str | None = None

    async def _start(self) -> None:
        self._present = next(self._tokens)

    async def _stop(self) -> None:
        self._present = None

    def _submit(self, job: Job) -> None:
        deliver([self._settle(job)])

    async def _look(self, query: Callable[[Tables], T]) -> T:
        await trio.lowlevel.checkpoint()
        self._token()
        return query(self._tables)

    def _token(self) -> str:
        if self._present is None:
            raise NotOpen("the store is not open")
        return self._present

    def _is_alive(self, token: str) -> bool:
        return token == self._present

    def _settle(self, job: Job) -> Settled:
        try:
            self._token()
            return Settled(job, job.work(self._tables))
        except QuiesceError as error:
            return Settled(job, error=error)


class _MemoryTables(Tables):
    """`Tables` in dictionaries. Headers are kept as text, so that nobody shares what is stored."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._rows: dict[int, Row] = {}
        self._ids: dict[str, int] = {}
        self._headers: dict[int, str] = {}
        self._logs: dict[int, list[str]] = {}

    def find(self, session_id: str) -> Row | None:
        return self._rows.get(self._ids.get(session_id, 0))

    def row(self, number: int) -> Row | None:
        return self._rows.get(number)

    def rows(self) -> Sequence[tuple[Row, JsonObject]]:
        return [(row, self.header(number)) for number, row in self._rows.items()]

    def header(self, number: int) -> JsonObject:
        header: JsonObject = json.loads(self._headers[number])
        return header

    def create(self, session_id: str, header: JsonObject) -> Row:
        number = next(self._numbers)
        self._rows[number] = row = Row(number=number, id=session_id, created_at=header["createdAt"])
        self._ids[session_id] = number
        self._headers[number] = json.dumps(header)
        self._logs[number] = []
        return row

    def save(self, row: Row) -> None:
        self._rows[row.number] = row

    def add(self, number: int, first_seq: int, lines: Sequence[str]) -> None:  # noqa: ARG002 - the list counts itself
        self._logs[number].extend(lines)

    def lines(self, number: int, from_seq: int, to_seq: int) -> Sequence[tuple[int, str]]:
        return list(enumerate(self._logs[number][from_seq:to_seq], from_seq))

    def remove(self, number: int) -> None:
        row = self._rows.pop(number)
        for table in (self._headers, self._logs):
            del table[number]
        del self._ids[row.id]
