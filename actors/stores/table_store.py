"""`TableStore`: the part of a store that is the same whatever holds its tables.

It checks what callers hand in, turns each request into a job on the tables, and waits for the job's result. A subclass
says where jobs run (`_submit`), where readers look (`_look`), and what opening and closing mean.
"""

from __future__ import annotations

import os
import socket
import time
from abc import abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import trio

from quiesce.actors.stores import tables as ops
from quiesce.actors.stores.base import OnDone, SessionInfo, Store, Writer
from quiesce.actors.stores.jobs import Job, NotOpen
from quiesce.protocol.errors import InvalidInput, QuiesceError
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from quiesce.actors.stores.tables import Row, Tables
    from quiesce.protocol.events import Event, JsonObject

__all__ = ["TableStore", "wall_clock"]

T = TypeVar("T")

_MAX_ID: Final = 200
_MAX_INT: Final = 2**63 - 1


def wall_clock() -> int:
    """The time of this machine, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class TableStore(Store):
    """A store over `Tables`. `clock` gives the `createdAt` of headers that have none."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._users = 0
        self._door = trio.Lock()

    # What a subclass provides.

    @abstractmethod
    async def _start(self) -> None:
        """Open. Called when the first user enters."""

    @abstractmethod
    async def _stop(self) -> None:
        """Settle what was submitted, and close. Called when the last user has left, shielded from cancellation."""

    @abstractmethod
    def _submit(self, job: Job) -> None:
        """Run `job` in a transaction, after all that were submitted before it, and deliver its result later."""

    @abstractmethod
    async def _look(self, query: Callable[[Tables], T]) -> T:
        """Run `query`, which only reads, where it holds up neither writers nor the loop."""

    @abstractmethod
    def _token(self) -> str:
        """What the leases of this store are marked with while it is open."""

    @abstractmethod
    def _is_alive(self, token: str) -> bool:
        """Whether the store with that token is open."""

    # The face.

    async def __aenter__(self) -> Self:
        async with self._door:
            if self._users == 0:
                await self._start()
            self._users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with trio.CancelScope(shield=True):
            async with self._door:
                self._users -= 1
                if self._users == 0:
                    await self._stop()

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
        claim = ops.Claim(
            session_id=_checked_id(session_id),
            holder=_in_words(holder),
            held_by=self._token(),
            create=create,
            new=new,
            takeover=takeover,
            header=self._checked_header(header or {}),
        )
        row, stored = await self.run(partial(ops.acquire, claim=claim, is_alive=self._is_alive))
        return TableWriter(self, row, stored)

    async def read(
        self, session_id: str, from_seq: int = 0, to_seq: int | None = None, *, foreign: bool = False
    ) -> Sequence[Event]:
        for name, seq in (("from_seq", from_seq), ("to_seq", to_seq)):
            if seq is not None and not 0 <= seq <= _MAX_INT:
                raise InvalidInput(f"{name}: {seq} is not the number of an event")
        session_id = _checked_id(session_id)
        return await self._look(
            partial(ops.read, session_id=session_id, from_seq=from_seq, to_seq=to_seq, foreign=foreign)
        )

    async def list(self) -> Sequence[SessionInfo]:
        return await self._look(partial(ops.describe_all, is_alive=self._is_alive))

    async def info(self, session_id: str) -> SessionInfo:
        return await self._look(partial(ops.describe, session_id=_checked_id(session_id), is_alive=self._is_alive))

    async def delete(self, session_id: str) -> None:
        await self.run(partial(ops.delete, session_id=_checked_id(session_id), is_alive=self._is_alive))

    # For the writers.

    def submit(self, work: Callable[[Tables], object], done: Callable[[Any, Exception | None], None]) -> None:
        """Have `work` done in its turn; `done` is told on this loop."""
        self._submit(Job(work, done, trio.lowlevel.current_trio_token()))

    async def run(self, work: Callable[[Tables], T]) -> T:
        """Have `work` done in its turn, and wait for it. Cancellation is noticed only before."""
        await trio.lowlevel.checkpoint_if_cancelled()
        ended = trio.Event()
        result: Any = None
        failure: Exception | None = None

        def done(value: object, error: Exception | None) -> None:
            nonlocal result, failure
            result, failure = value, error
            ended.set()

        self.submit(work, done)
        with trio.CancelScope(shield=True):
            await ended.wait()
        if failure is not None:
            raise failure
        return result  # type: ignore[no-any-return] # what `work` returned

    def _checked_header(self, header: JsonObject) -> JsonObject:
        check_json(header, "header")
        header = {"createdAt": self._clock(), **header}
        created_at = header["createdAt"]
        if type(created_at) is not int or not 0 <= created_at <= _MAX_INT:
            raise InvalidInput(f"header.createdAt: {created_at!r} is not a time in milliseconds")
        return header


class TableWriter(Writer):
    """The writer of a `TableStore`."""

    def __init__(self, store: TableStore, row: Row, header: JsonObject) -> None:
        self.session_id = row.id
        self.epoch = row.epoch
        self.next_seq = row.next_seq
        self.header = header
        self._store = store
        self._lease = ops.Lease(row.number, row.id, row.epoch)

    def append(self, events: Sequence[Event], on_done: OnDone) -> None:
        # Encoding is done here and now: so it overlaps with the commit of the appends before this one.
        self._store.submit(self._prepare(events), lambda _, error: on_done(error))

    async def release(self) -> None:
        with suppress(NotOpen):  # the lease has ended with the store
            await self._store.run(partial(ops.release, lease=self._lease))

    def _prepare(self, events: Sequence[Event]) -> Callable[[Tables], None]:
        """The append, or its refusal, which has to wait for its turn like any other answer."""
        try:
            return partial(ops.append, lease=self._lease, batch=ops.Batch.of(events))
        except QuiesceError as error:
            return partial(_raise, error)
        except Exception as error:  # noqa: BLE001 - whatever an ill-made event raises, `on_done` is told of it
            return partial(_raise, InvalidInput(f"an event cannot be written: {error!r}"))


def _raise(error: Exception, _: Tables) -> NoReturn:
    raise error


def _checked_id(session_id: str) -> str:
    if not 1 <= len(session_id) <= _MAX_ID:
        raise InvalidInput(f"session_id: a text of 1 to {_MAX_ID} characters is wanted, not {session_id!r:.80}")
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in session_id):
        raise InvalidInput("session_id: it holds a NUL or a lone surrogate")
    return session_id


def _in_words(holder: str | None) -> str:
    place = f"process {os.getpid()} on {socket.gethostname()}"
    return place if holder is None else f"{holder} ({place})"
