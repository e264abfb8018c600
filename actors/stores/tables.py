"""What a store decides: who gets a lease, which append is accepted, what is read. Written once, for all stores.

The operations below are plain functions over `Tables`, the little that a store must be able to look up and write. An
operation decides before it writes; one that raises is to leave no trace, which its caller sees to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from attrs import evolve, frozen

from quiesce.actors.stores.base import SessionInfo
from quiesce.actors.stores.garbage import uncollected
from quiesce.protocol.codec import dumps, loads
from quiesce.protocol.errors import (
    InvalidInput,
    LeaseLost,
    SessionExists,
    SessionHeld,
    SessionNotFound,
    StoreError,
    UnreadableLog,
)
from quiesce.protocol.events import Event, JsonObject, TurnEnd, TurnStart

__all__ = [
    "Batch",
    "Claim",
    "IsAlive",
    "Lease",
    "Row",
    "Tables",
    "acquire",
    "append",
    "delete",
    "describe",
    "describe_all",
    "read",
    "release",
]

IsAlive: TypeAlias = Callable[[str], bool]
"""Says whether the store that took a lease (`Row.held_by`) is still open somewhere."""

_MAX_TIME: Final = 2**63 - 1


# --- values ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Row:
    """A session as the store keeps it. No `number` is used twice, so that a deleted session's writer stays fenced."""

    number: int
    id: str
    created_at: int
    epoch: int = 0
    holder: str | None = None
    held_by: str | None = None
    next_seq: int = 0
    last_time: int | None = None
    turns: int = 0
    turn_open: bool = False


@frozen
class Lease:
    """What a writer presents with each append."""

    number: int
    session_id: str
    epoch: int


@frozen(kw_only=True)
class Claim:
    """A request for a lease. `header` is for a session that is created."""

    session_id: str
    holder: str
    held_by: str
    create: bool
    new: bool
    takeover: bool
    header: JsonObject


@frozen
class Batch:
    """The events of one append, ready to be stored, and what they change in the session's row."""

    first_seq: int
    lines: tuple[str, ...]
    last_time: int | None
    turns: int
    turn_open: bool | None

    @classmethod
    def of(cls, events: Sequence[Event]) -> Batch:
        """Encode `events`. Raises `InvalidInput` for one that cannot be stored, `StoreError` for a gap among them."""
        first = events[0].seq if events else 0
        for place, event in enumerate(events):
            if event.seq != first + place:
                raise StoreError(f"the append has a gap: event {event.seq} stands where {first + place} belongs")
            if not 0 <= event.time <= _MAX_TIME:
                raise InvalidInput(f"event {event.seq}: its time {event.time} is out of range")
        turns = [event.body for event in events if isinstance(event.body, TurnStart | TurnEnd)]
        return cls(
            first,
            tuple(map(dumps, events)),
            events[-1].time if events else None,
            sum(isinstance(body, TurnStart) for body in turns),
            isinstance(turns[-1], TurnStart) if turns else None,
        )

    def onto(self, row: Row) -> Row:
        """`row` after this append."""
        return evolve(
            row,
            next_seq=row.next_seq + len(self.lines),
            last_time=row.last_time if self.last_time is None else self.last_time,
            turns=row.turns + self.turns,
            turn_open=row.turn_open if self.turn_open is None else self.turn_open,
        )


class Tables(Protocol):
    """What a store looks up and writes, inside one transaction."""

    def find(self, session_id: str) -> Row | None:
        """The session with this id."""

    def row(self, number: int) -> Row | None:
        """The session with this number."""

    def rows(self) -> Sequence[tuple[Row, JsonObject]]:
        """All sessions and their headers, in the order of their creation."""

    def header(self, number: int) -> JsonObject:
        """The header of a session that is there."""

    def create(self, session_id: str, header: JsonObject) -> Row:
        """A new session, under a number that was never used before."""

    def save(self, row: Row) -> None:
        """Replace what is kept of a session that is there."""

    def add(self, number: int, first_seq: int, lines: Sequence[str]) -> None:
        """Add to a session's log."""

    def lines(self, number: int, from_seq: int, to_seq: int) -> Sequence[tuple[int, str]]:
        """The stored lines with `from_seq <= seq < to_seq`, each with its seq, in order."""

    def remove(self, number: int) -> None:
        """Remove a session, its header and its log."""


# --- writing -----------------------------------------------------------------------------------------------------


def acquire(tables: Tables, claim: Claim, is_alive: IsAlive) -> tuple[Row, JsonObject]:
    """Grant a lease, creating the session if need be: its row, in its new epoch, and its header."""
    row = tables.find(claim.session_id)
    if row is None:
        if not claim.create:
            raise _not_found(claim.session_id)
        row = tables.create(claim.session_id, claim.header)
    elif claim.new:
        raise SessionExists(f"session {claim.session_id!r} exists already")
    elif not claim.takeover:
        _refuse_if_held(row, is_alive)
    row = evolve(row, epoch=row.epoch + 1, holder=claim.holder, held_by=claim.held_by)
    tables.save(row)
    return row, tables.header(row.number)


def append(tables: Tables, lease: Lease, batch: Batch) -> None:
    """Store `batch`, if the lease still holds and the batch continues the log."""
    row = _held(tables, lease)
    if batch.lines:
        if batch.first_seq != row.next_seq:
            raise StoreError(
                f"session {row.id!r}: event {row.next_seq} is next, the append starts with event {batch.first_seq}"
            )
        tables.add(row.number, batch.first_seq, batch.lines)
        tables.save(batch.onto(row))


def release(tables: Tables, lease: Lease) -> None:
    """End the lease, if it has not ended already."""
    row = tables.row(lease.number)
    if row is not None and row.epoch == lease.epoch:
        tables.save(evolve(row, holder=None, held_by=None))


def delete(tables: Tables, session_id: str, is_alive: IsAlive) -> None:
    """Remove a session that nobody holds."""
    row = _existing(tables, session_id)
    _refuse_if_held(row, is_alive)
    tables.remove(row.number)


def _held(tables: Tables, lease: Lease) -> Row:
    """The row that `lease` gives the right to write to."""
    row = tables.row(lease.number)
    if row is None:
        raise LeaseLost(f"session {lease.session_id!r} was deleted")
    if row.epoch != lease.epoch:
        words = f"session {row.id!r}: the lease of epoch {lease.epoch} is over, epoch {row.epoch} has begun"
        raise LeaseLost(words if row.holder is None else f"{words}, held by {row.holder}")
    if row.held_by is None:
        raise LeaseLost(f"session {row.id!r}: the lease was released")
    return row


def _refuse_if_held(row: Row, is_alive: IsAlive) -> None:
    if row.held_by is not None and is_alive(row.held_by):
        raise SessionHeld(f"session {row.id!r} is held by {row.holder}")


# --- reading -----------------------------------------------------------------------------------------------------


def read(tables: Tables, session_id: str, from_seq: int, to_seq: int | None, *, foreign: bool) -> list[Event]:
    """Decode the events of a session in a range. Raises `UnreadableLog` for a damaged log."""
    row = _existing(tables, session_id)
    stop = row.next_seq if to_seq is None else min(to_seq, row.next_seq)
    lines = tables.lines(row.number, from_seq, stop)
    for (seq, _), wanted in zip(lines, range(from_seq, stop), strict=False):
        if seq != wanted:
            raise UnreadableLog(f"session {session_id!r}: event {wanted} is missing")
    if len(lines) < stop - from_seq:
        raise UnreadableLog(f"session {session_id!r}: event {from_seq + len(lines)} is missing")
    with uncollected():
        return [_decode(session_id, seq, line, foreign) for seq, line in lines]


def describe(tables: Tables, session_id: str, is_alive: IsAlive) -> SessionInfo:
    """What is known of one session."""
    row = _existing(tables, session_id)
    return _info(row, tables.header(row.number), alive=row.held_by is not None and is_alive(row.held_by))


def describe_all(tables: Tables, is_alive: IsAlive) -> list[SessionInfo]:
    """What is known of every session; each holder is asked after once."""
    rows = tables.rows()
    alive = {held_by for held_by in {row.held_by for row, _ in rows} if held_by is not None and is_alive(held_by)}
    return [_info(row, header, alive=row.held_by in alive) for row, header in rows]


def _decode(session_id: str, seq: int, line: str, foreign: bool) -> Event:  # noqa: FBT001 - once per event
    try:
        event = loads(line, foreign=foreign)
    except UnreadableLog as error:
        raise UnreadableLog(f"session {session_id!r}, event {seq}: {error}") from error
    if event.seq != seq:
        raise UnreadableLog(f"session {session_id!r}: event {event.seq} is stored as event {seq}")
    return event


def _info(row: Row, header: JsonObject, *, alive: bool) -> SessionInfo:
    return SessionInfo(
        id=row.id,
        created_at=row.created_at,
        last_time=row.last_time,
        last_seq=row.next_seq - 1 if row.next_seq else None,
        turns=row.turns,
        open=row.turn_open,
        holder=row.holder if alive else None,
        epoch=row.epoch,
        header=header,
    )


def _existing(tables: Tables, session_id: str) -> Row:
    row = tables.find(session_id)
    if row is None:
        raise _not_found(session_id)
    return row


def _not_found(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"there is no session {session_id!r}")
