"""Streams of server-sent events, byte by byte: what a reader is given of them."""

from __future__ import annotations

import httpx2
import pytest

from quiesce.actors.models.reading import read_reply


class Reader:
    """Keeps the data of each event."""

    def __init__(self):
        self.taken = []

    def take(self, data):
        self.taken.append(data)
        return False

    def end(self):
        self.taken.append("end")


async def read(*pieces, kind="text/event-stream"):
    """The data of the events in a body that arrives in these pieces."""

    async def body():
        for piece in pieces:
            yield piece

    request, reader = httpx2.Request("POST", "https://x/"), Reader()
    response = httpx2.Response(200, headers={"content-type": kind}, content=body(), request=request)
    await read_reply(response, reader)
    assert response.is_closed
    return reader.taken


BOM = "\ufeff".encode()
EVENTS = "data: é\n\ndata: \ufeffb\n\n".encode()


@pytest.mark.parametrize(
    "pieces",
    [
        (BOM + EVENTS,),
        (BOM, EVENTS),
        (BOM[:1], BOM[1:] + EVENTS),
        tuple(bytes([byte]) for byte in BOM + EVENTS),
        (BOM + b"event: x\n" + EVENTS,),
        (BOM + b": a comment\n\n" + EVENTS,),
    ],
)
async def test_a_byte_order_mark_at_the_beginning_is_no_part_of_the_first_event(pieces):
    assert await read(*pieces) == ["é", "\ufeffb", "end"]


async def test_a_stream_without_one_is_the_same():
    assert await read(EVENTS) == ["é", "\ufeffb", "end"]


@pytest.mark.parametrize("kind", ["text/event-stream; charset=latin-1", "Text/Event-Stream ;charset=utf-8"])
async def test_a_stream_is_utf_8_whatever_its_header_says(kind):
    assert await read(EVENTS, kind=kind) == ["é", "\ufeffb", "end"]
