"""Reading a streamed reply: server-sent events in, deltas out.

The SDKs' own iterators are left half read at the end of a stream, which Trio warns of, so the events are read here. A
stream is always left in one of three ways: at its end, by an error of the socket, or by cancelling its reader where it
waits for more. Each of them closes or frees the connection at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import trio
from attrs import evolve, frozen

from quiesce.protocol.dialects.faults import malformed, model_error
from quiesce.protocol.model import CallDelta, Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quiesce.actors.models.clients import Response
    from quiesce.protocol.dialects.replies import ReplyStream
    from quiesce.protocol.errors import ModelError
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.model import Delta

__all__ = ["ReplyReader", "read_reply"]

_DRAIN: Final = 0.1
"""Seconds that the end of a body may take after the last event, so that its connection can be used again."""
_EVENTS_ENCODING: Final = "utf-8-sig"
"""Event streams are UTF-8 whatever their header says, and one byte order mark at the beginning is no part of the first
event (HTML Living Standard, 9.2.6)."""
_LONGEST_ERROR: Final = 1_000_000
"""Bytes of a body that are looked through for an error."""


@frozen
class ReplyReader:
    """Takes the data of a reply's events, and emits its deltas, with tools called as the agent calls them.

    `names` is the table from names on the wire to those.
    """

    stream: ReplyStream
    names: Mapping[str, str]
    emit: Callable[[Delta], None]

    def take(self, data: str) -> bool:
        """Take one event; whether the reply is over with it. Raises `ModelError`."""
        if data.startswith("[DONE]"):
            self.end()
            return True
        return data.strip() != "" and self._pass_on(self.stream.take(_event(data)))

    def end(self) -> None:
        """No event will follow."""
        self._pass_on(self.stream.end())

    def _pass_on(self, deltas: tuple[Delta, ...]) -> bool:
        for delta in deltas:
            self.emit(self._named(delta))
        return any(isinstance(delta, Finished) for delta in deltas)

    def _named(self, delta: Delta) -> Delta:
        if isinstance(delta, CallDelta) and delta.name in self.names:
            return evolve(delta, name=self.names[delta.name])
        return delta


def _event(data: str) -> JsonObject:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise malformed("an event is no JSON") from None
    if not isinstance(event, dict):
        raise malformed("an event is no object")
    return event


async def read_reply(response: Response, reader: ReplyReader) -> None:
    """Give the reader every event of `response`, and close it.

    Raises what the reader raises, the errors of the HTTP client, and `ModelError` for a response that is no stream of
    events: the provider's own error, if it is one. Cancelled, it closes the connection at once.
    """
    try:
        failure = await (_read_events(response, reader) if _is_stream(response) else _read_other(response))
    finally:
        with trio.CancelScope(shield=True):
            await response.aclose()
    if failure is not None:
        raise failure


async def _read_events(response: Response, reader: ReplyReader) -> Exception | None:
    """Give the reader every event; what it raises is given back when the stream has been left properly."""
    import httpx2  # noqa: PLC0415 - comes with the extras

    response.encoding = _EVENTS_ENCODING
    failure: Exception | None = None
    over = False
    with trio.CancelScope() as scope:
        async for event in httpx2.EventSource(response, max_event_size=None):
            if failure is not None or over:
                continue  # what is left until the reader waits for more
            try:
                over = reader.take(event.data)
            except Exception as error:  # noqa: BLE001 - raised by the caller
                failure = error
                scope.cancel()
            if over:
                scope.deadline = trio.current_time() + _DRAIN
    if failure is None and not over:
        reader.end()
    return failure


async def _read_other(response: Response) -> ModelError:
    """What a response says that is no stream of events. Some servers tell an error with status 200, as JSON."""
    said = bytearray()
    with trio.CancelScope() as scope:
        async for piece in response.aiter_bytes():
            said += piece
            if len(said) > _LONGEST_ERROR:
                scope.cancel()
    try:
        told = json.loads(said)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict) and (told.get("error") or "error" in (told.get("type"), told.get("object"))):
        return model_error(told)
    return malformed(f"it is no stream of events, but {_media_type(response) or 'of no type'}")


def _is_stream(response: Response) -> bool:
    return _media_type(response) == "text/event-stream"


def _media_type(response: Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()
