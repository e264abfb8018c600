"""`Lease`: opens one session, and opens it again after a crash, with the state after its stored log.

A writer that is gone without having given its lease back is released, or else fenced, before the next one is opened:
nothing of it can be stored any more. Nothing is taken from anybody else, unless the user asked for that at first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from quiesce.actors.session import SessionState
from quiesce.actors.stores.whole import release
from quiesce.protocol.errors import StoreError

if TYPE_CHECKING:
    from quiesce.actors.sources import Sources
    from quiesce.actors.stores import Store, Writer

__all__ = ["Lease"]

_PIECE: Final = 1000
"""How many events are read and replayed at a time: a few milliseconds of work."""


class Lease:
    """The lease of one session in `store`, held by one incarnation after the other."""

    def __init__(self, store: Store, session_id: str, sources: Sources, *, takeover: bool = False) -> None:
        self.store = store
        self.session_id = session_id
        self._sources = sources
        self._takeover = takeover
        self._last: Writer | None = None

    async def resume(self) -> tuple[Writer, SessionState]:
        """Take the lease, and read the log.

        Raises:
            SessionHeld: another writer holds the session, or took it over meanwhile.
            UnreadableLog: its log cannot be read.
            StoreError: the store failed.

        Cancelled, or raising, it holds no lease.

        """
        takeover = await self._is_stale() if self._last else self._takeover
        header = {"createdAt": self._sources.now()}
        writer = await self.store.open(self.session_id, takeover=takeover, header=header)
        try:
            state = await self._replayed(writer)
        except BaseException:
            await release(writer)
            raise
        self._last = writer
        return writer, state

    async def _is_stale(self) -> bool:
        """Give the last writer's lease back. Whether the store could not, and still takes that writer for alive."""
        assert self._last is not None
        with suppress(StoreError):  # what keeps the store from it keeps it from what follows, or else does not matter
            await release(self._last)
        info = await self.store.info(self.session_id)
        return info.holder is not None and info.epoch == self._last.epoch

    async def _replayed(self, writer: Writer) -> SessionState:
        """The state after the stored log, read piece by piece: other tasks have their turn, and no piece is kept."""
        state = SessionState()
        for start in range(0, writer.next_seq, _PIECE):
            for event in await self.store.read(writer.session_id, start, start + _PIECE):
                state.watch(event)
        return state
