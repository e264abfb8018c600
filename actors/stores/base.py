"""What a store is: durable, ordered storage of events per session, behind a lease for each writer.

The contract, which every store keeps and `tests/actors/stores/test_contract.py` checks:

1. A session's log is numbered from 0 without gaps. An append must continue it exactly, and is stored whole or not at
   all.
2. An append is *submitted* in order and without waiting. Its `on_done` is called exactly once, later, on the thread of
   the Trio loop that submitted it, in the order of that writer's appends: with None once the events are durable, or
   with the error for which nothing was stored. An append behind a refused one does not fit any more: refused too.
3. One writer per session. A session that a live writer holds is not opened again (`SessionHeld`), unless with
   `takeover`. Each opening counts the session's epoch up, and an append is checked against the epoch in the same
   transaction that stores it: a writer that was overtaken gets `LeaseLost` and changes nothing.
4. A lease ends with `Writer.release`, with the store that it was taken from, or with the process: nobody has to wait
   for the lease of a writer that is dead.
5. What a reader gets is what has been stored, decoded anew; it may be more than what has been acknowledged yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from quiesce.protocol.events import Event, JsonObject

__all__ = ["OnDone", "SessionInfo", "Store", "Writer"]

OnDone: TypeAlias = Callable[[Exception | None], None]
"""Told how an append ended. It must not raise: what it raises is logged, and nobody else hears of it."""


@frozen(kw_only=True)
class SessionInfo:
    """What a store knows of a session without reading its log."""

    id: str
    created_at: int
    """In milliseconds since the epoch."""
    last_time: int | None
    """The time of the last event, in milliseconds since the epoch; None while the log is empty."""
    last_seq: int | None
    """None while the log is empty."""
    turns: int
    """How many turns were started."""
    open: bool
    """Whether a turn is open: one runs now, or a crash cut one that the next resume will close."""
    holder: str | None
    """Who holds the lease, in words for people; None if nobody alive does."""
    epoch: int
    """How often the session was opened for writing."""
    header: JsonObject
    """What was stored with the session when it was created; `createdAt` is always there."""


class Writer(ABC):
    """The lease of one session: the right to append to its log. It comes from `Store.open`."""

    session_id: str
    epoch: int
    next_seq: int
    """The seq that the first append must have: as it was when the writer was opened, it does not move."""
    header: JsonObject

    @abstractmethod
    def append(self, events: Sequence[Event], on_done: OnDone) -> None:
        """Submit `events`, to be stored whole or not at all, and return at once.

        To be called on the thread of a Trio loop. It raises nothing: `on_done` is told later, never from inside this
        call, and not at all if the loop has ended by then. It is told `InvalidInput` for an event that cannot be
        written, `LeaseLost` if another writer took over or this one was released, `StoreFull`, `StoreLocked`, or
        another `StoreError`, as when the events do not continue the log or the store is closed.
        """

    @abstractmethod
    async def release(self) -> None:
        """Give the lease back, once all submitted appends are settled and their `on_done` has been told.

        Releasing twice, or after the lease was lost or the store closed, does nothing. Raises `StoreError` if the store
        fails; the lease then ends with the store. Cancellation: noticed only before it starts.
        """


class Store(ABC):
    """Durable storage of sessions: `async with store:` opens it, and closes it when the last user has left.

    A store may be entered more than once at a time, by several runtimes of one program; each holds its own leases.
    Every method raises `StoreError` if the store is not open or fails, and `InvalidInput` for a session id that is not
    1 to 200 characters without NUL and lone surrogates.

    Cancellation: what writes (`open`, `delete`) notices it only before it starts, so that nothing is left half done;
    what reads notices it before and after.
    """

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open the store. Raises `StoreError` if it cannot be used."""

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the store after everything submitted has been settled. Appends from now on get `StoreError`."""

    @abstractmethod
    async def open(
        self,
        session_id: str,
        *,
        holder: str | None = None,
        create: bool = True,
        new: bool = False,
        takeover: bool = False,
        header: JsonObject | None = None,
    ) -> Writer:
        """Take the lease of a session, to write to it.

        `holder` names the new holder to whoever is refused. A session that is not there is created, unless `create` is
        false (`SessionNotFound`); with `new` it must not be there yet (`SessionExists`). One that a live writer holds
        is refused (`SessionHeld`, naming it), unless `takeover` takes it away from there.

        `header` is stored with a session that is created, and otherwise ignored. Its `createdAt`, in milliseconds, is
        added if it is missing.
        """

    @abstractmethod
    async def read(
        self, session_id: str, from_seq: int = 0, to_seq: int | None = None, *, foreign: bool = False
    ) -> Sequence[Event]:
        """The events with `from_seq <= seq < to_seq`, as far as they exist.

        `foreign` reads a log that was imported from elsewhere (see `quiesce.protocol.codec`). Raises `SessionNotFound`,
        and `UnreadableLog` for a stored event that cannot be read or is missing.
        """

    @abstractmethod
    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, in the order of their creation."""

    @abstractmethod
    async def info(self, session_id: str) -> SessionInfo:
        """One session. Raises `SessionNotFound`."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Remove a session and its log. Raises `SessionNotFound`, and `SessionHeld` while a live writer holds it."""
