"""One HTTP/1.1 connection of the server: h11 on a Trio socket, and all the ways in which it can end."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import asynccontextmanager

import h11
import trio
from attrs import define, field

__all__ = ["Connection", "DisconnectedError", "Incoming"]

_READ = 65_536
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class DisconnectedError(Exception):
    """The client closed or reset the connection."""


@define
class Incoming:
    """A whole request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@define
class Connection:
    """A connection that is served one request at a time.

    While a reply is on its way, `watching` notices at once that the client goes. Every method may be cancelled; the
    connection is then good for nothing but `close`.
    """

    stream: trio.SocketStream
    number: int
    max_body: int
    streaming: bool = False
    _http: h11.Connection = field(factory=lambda: h11.Connection(h11.SERVER))

    async def receive(self):
        """The next request, or None when the client sends no more.

        A body over `max_body` is read to its end, so that it can be answered, and returned one byte over the limit.
        """
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        parts, size = [], 0
        while isinstance(event := await self._event(), h11.Data):
            size += len(event.data)
            if size <= self.max_body + len(event.data):
                parts.append(event.data)
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in head.headers}
        return Incoming(head.method.decode(), head.target.decode(), headers, b"".join(parts)[: self.max_body + 1])

    @asynccontextmanager
    async def watching(self):
        """Run the block, and cancel it when the client goes away, raising DisconnectedError."""
        gone = False

        async def watch():
            nonlocal gone
            while data := await self._receive_some():
                self._http.receive_data(data)  # it sent its next request early; that is read later
            if self._http.our_state is not h11.DONE:  # it need not stay once it has been sent all
                gone = True
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                yield
            except DisconnectedError:
                gone = True
            nursery.cancel_scope.cancel()
        if gone:
            raise DisconnectedError

    async def start_stream(self, headers):
        """The head of a reply whose body is a stream of events."""
        head = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
        await self._send(h11.Response(status_code=200, headers=[*head, ("transfer-encoding", "chunked"), *headers]))
        self.streaming = True

    async def write(self, data):
        """A part of the body."""
        await self._send(h11.Data(data=data))

    async def end(self, data=b""):
        """The last part of the body, and its end, at once: a client that has read all of it may close."""
        await self._send(*([h11.Data(data=data)] if data else []), h11.EndOfMessage())
        self.streaming = False

    async def answer(self, status, headers, body):
        """A whole reply; `body` is text, or an object that is sent as JSON."""
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
        data = text.encode()
        head = [("content-type", kind), ("content-length", str(len(data))), *headers]
        await self._send(h11.Response(status_code=status, headers=head), h11.Data(data=data), h11.EndOfMessage())

    def recycle(self):
        """Whether the connection can take another request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self):
        """Close it as it is; the client sees the end of the bytes, or a reset."""
        self.stream.socket.close()

    def reset_at_close(self):
        """Have `close` reset the connection: the client's next read fails."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _event(self):
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._receive_some())
        return event

    async def _receive_some(self):
        try:
            return await self.stream.receive_some(_READ)
        except _BROKEN:
            return b""

    async def _send(self, *events):
        try:
            await self.stream.send_all(b"".join(self._http.send(event) for event in events))
        except _BROKEN:
            raise DisconnectedError from None
