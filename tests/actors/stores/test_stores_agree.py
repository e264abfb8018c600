"""Every kind of store answers alike: the same requests, at random, with the same results and the same errors."""

from __future__ import annotations

import random

import pytest
import trio
from attrs import evolve

from quiesce.actors.stores import MemoryStore, SqliteStore
from quiesce.protocol.errors import QuiesceError

IDS = ("a", "b", "c")


class Client:
    """Makes one request after the other of a store, drawn from a seed, and keeps a record of the answers."""

    def __init__(self, store, seed, make):
        self.store = store
        self.random = random.Random(seed)
        self.make = make
        self.writers = []
        self.record = []

    async def run(self, steps):
        for _ in range(steps):
            request = self.random.choice([self.open, self.append, self.append, self.release, self.read, self.delete])
            try:
                answer = await request()
            except QuiesceError as error:
                answer = type(error), str(error)
            self.record.append((request.__name__, answer))
        self.record += [evolve(info, holder=info.holder and "held") for info in await self.store.list()]

    async def open(self):
        options = {name: self.random.random() < 0.3 for name in ("new", "takeover")}
        writer = await self.store.open(
            self.random.choice(IDS), holder=str(len(self.writers)), create=self.random.random() < 0.7, **options
        )
        self.writers.append(writer)
        return writer.session_id, writer.epoch, writer.next_seq, writer.header

    async def append(self):
        if not self.writers:
            return None
        writer = self.random.choice(self.writers[-4:])
        answers, ended = [], trio.Event()
        first = writer.next_seq
        for _ in range(self.random.randrange(1, 4)):
            size = self.random.randrange(3)
            writer.append(self.make(first, size), answers.append)
            first += size
        if self.random.random() < 0.9:
            writer.next_seq = first
        writer.append([], lambda error: (answers.append(error), ended.set()))
        await ended.wait()
        return [(type(error), str(error)) for error in answers]

    async def release(self):
        if self.writers:
            await self.random.choice(self.writers).release()

    async def read(self):
        return await self.store.read(self.random.choice(IDS), self.random.randrange(4))

    async def delete(self):
        await self.store.delete(self.random.choice(IDS))


@pytest.mark.parametrize("seed", range(20))
async def test_memory_and_sqlite_answer_alike(seed, tmp_path, make):
    async with MemoryStore(clock=lambda: 1) as memory, SqliteStore(tmp_path / "store.db", clock=lambda: 1) as sqlite:
        clients = [Client(store, seed, make) for store in (memory, sqlite)]
        for client in clients:
            await client.run(150)
        assert clients[0].record == clients[1].record
