"""`create_session`: a session with a log from the beginning, made whole or not at all; and giving a lease back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.actors.stores.base import Store, Writer
    from quiesce.protocol.events import Event, JsonObject

__all__ = ["create_session", "release", "store_events"]


async def create_session(store: Store, session_id: str, events: Sequence[Event], header: JsonObject) -> None:
    """Make a session that has the log `events`, and let go of it.

    Raises:
        SessionExists: there is one of that name already.
        StoreError: the store failed; then there is no such session.

    Cancelled, it has made the session or it has not: nothing half is left.

    """
    writer = await store.open(session_id, new=True, header=header)
    try:
        await store_events(writer, events)
    except BaseException:
        await release(writer)
        with trio.CancelScope(shield=True):
            await store.delete(session_id)
        raise
    await release(writer)


async def store_events(writer: Writer, events: Sequence[Event]) -> None:
    """Append, and wait until it is durable: not cancellable, since the store answers soon. Raises its `StoreError`."""
    answers: list[Exception | None] = []
    answered = trio.Event()

    def on_done(error: Exception | None) -> None:
        answers.append(error)
        answered.set()

    writer.append(events, on_done)
    with trio.CancelScope(shield=True):
        await answered.wait()
    if answers[0] is not None:
        raise answers[0]


async def release(writer: Writer) -> None:
    """Give a lease back, whether or not the caller is cancelled: it would outlive whoever was."""
    with trio.CancelScope(shield=True):
        await writer.release()
