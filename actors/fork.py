"""Forking: a new session made of the beginning of another. The parent is only read, so it may be running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.actors.options import check_count, check_text
from quiesce.actors.stores.whole import create_session
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.recovery import forked

if TYPE_CHECKING:
    from quiesce.actors.sources import Sources
    from quiesce.actors.stores import Store

__all__ = ["fork_session"]


async def fork_session(
    store: Store, session_id: str, new_id: str | None = None, *, at: int | None = None, sources: Sources
) -> str:
    """Make a new session of the log of `session_id` up to event `at`, included (by default the last); return its id.

    The parent is not touched and may be running. A turn that is open at that point is closed in the child, its calls
    answered as forked.

    Raises:
        InvalidInput: there is no event `at`, or a name that cannot be one.
        SessionNotFound: there is no such session.
        SessionExists: there is a session `new_id` already.
        StoreError: the store failed; then there is no new session.

    """
    check_text("session_id", session_id)
    if new_id is not None:
        check_text("new_id", new_id)
    if at is not None:
        check_count("at", at, least=0)
    prefix = await store.read(session_id, 0, None if at is None else at + 1)
    boundary = len(prefix) - 1 if at is None else at
    if not 0 <= boundary < len(prefix):
        wanted = "event to fork at" if at is None else f"event {at}"
        raise InvalidInput(f"at: session {session_id!r} has no {wanted}, its log has {len(prefix)} events")
    child = f"{session_id}-{sources.mint()}" if new_id is None else new_id
    header = {"createdAt": sources.now(), "parent": session_id, "parentSeq": boundary}
    await create_session(store, child, forked(prefix), header)
    return child
