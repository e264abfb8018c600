"""What the store tests share: stores to test, events to put into them, and a way to wait for an append."""

from __future__ import annotations

import pytest
import trio

from quiesce.actors.stores import MemoryStore, SqliteStore
from quiesce.protocol.events import ForeignBody, Reason, TextBlock, TurnEnd, TurnStart, UserMessage, draft

CREATED = 1_700_000_000_000


@pytest.fixture(params=["memory", "sqlite"])
def closed_store(request, tmp_path):
    """A store that nobody has entered yet."""
    if request.param == "memory":
        return MemoryStore(clock=lambda: CREATED)
    return SqliteStore(tmp_path / "store.db", clock=lambda: CREATED)


@pytest.fixture
async def store(closed_store):
    """An open store, of each kind."""
    async with closed_store:
        yield closed_store


@pytest.fixture
def make():
    """Makes events: `make(first, count)` gives `count` of them from `first` on, each with its number as its text."""

    def make_events(first, count):
        return [
            draft(UserMessage((TextBlock(str(seq)),), {"kind": "user"}, "user", f"m{seq}")).at(seq, CREATED + seq)
            for seq in range(first, first + count)
        ]

    return make_events


@pytest.fixture
def turn():
    """Makes turns: `turn(first, number)` gives the start and the end of a turn."""

    def make_turn(first, number):
        start = draft(TurnStart(number)).at(first, CREATED + first)
        return [start, draft(TurnEnd(number, Reason("completed"))).at(first + 1, CREATED + first + 1)]

    return make_turn


@pytest.fixture
def unwritable():
    """Makes an event that is not JSON."""
    return lambda seq: draft(ForeignBody("x", {"bad": float("nan")})).at(seq, CREATED)


@pytest.fixture
def put():
    """Appends, waits until that is settled, and raises the error if it was refused."""

    async def put_and_wait(writer, events):
        ended = trio.Event()
        errors = []

        def on_done(error):
            errors.append(error)
            ended.set()

        writer.append(events, on_done)
        await ended.wait()
        if errors[0] is not None:
            raise errors[0]

    return put_and_wait
