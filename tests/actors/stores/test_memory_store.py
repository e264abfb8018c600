"""What is special to `MemoryStore`: no threads, so that a mocked clock replays it exactly."""

from __future__ import annotations

import threading

import trio

from quiesce.actors.stores import MemoryStore


async def test_answers_come_before_a_mocked_clock_jumps(autojump_clock, make, put):
    async with MemoryStore() as store:
        writer = await store.open("s")
        with trio.fail_after(0.001):
            await put(writer, make(0, 5))
            await store.read("s")
        assert trio.current_time() == 0
        await writer.release()
    assert trio.current_time() == 0


async def test_no_thread_is_used(make, put):
    before = threading.active_count()
    async with MemoryStore() as store:
        await put(await store.open("s"), make(0, 5))
        assert threading.active_count() == before


async def test_the_header_that_a_caller_holds_is_not_the_stored_one():
    header = {"tags": ["a"]}
    async with MemoryStore() as store:
        writer = await store.open("s", header=header)
        header["tags"].append("b")
        writer.header["tags"].append("c")
        assert (await store.info("s")).header["tags"] == ["a"]


async def test_two_stores_share_nothing():
    async with MemoryStore() as one, MemoryStore() as two:
        await one.open("s")
        assert await two.list() == []
