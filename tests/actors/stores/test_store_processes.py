"""Several processes on one file, and what `kill -9` leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from threading import Barrier

import pytest
import trio

from quiesce.actors.stores import SqliteStore
from quiesce.protocol.errors import LeaseLost, SessionHeld

CHILD = """
import os, sys, trio
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.events import TextBlock, UserMessage, draft

def event(seq):
    return draft(UserMessage((TextBlock(str(seq) * 50),), {"kind": "user"}, "user", "m")).at(seq, 1)

def say(*words):
    print(*words, flush=True)

async def put(writer, events):
    ended, errors = trio.Event(), []
    writer.append(events, lambda error: (errors.append(error), ended.set()))
    await ended.wait()
    return errors[0]
"""

APPEND_FOREVER = """
async def main(path):
    async with SqliteStore(path) as store:
        writer = await store.open("s")
        seq = writer.next_seq
        room = trio.Semaphore(8)
        def acknowledged(error, seq):
            if error is not None:
                os._exit(1)
            say(seq)
            room.release()
        while True:
            await room.acquire()
            size = 1 + seq % 3
            last = seq + size - 1
            writer.append([event(seq + k) for k in range(size)], lambda error, last=last: acknowledged(error, last))
            seq += size

trio.run(main, sys.argv[1])
"""

HOLD = """
async def main(path):
    async with SqliteStore(path) as store:
        writer = await store.open("s", holder="the child")
        seq = writer.next_seq
        say("open", writer.epoch)
        while await trio.to_thread.run_sync(sys.stdin.readline):
            error = await put(writer, [event(seq)])
            say("stored" if error is None else type(error).__name__)
            seq += error is None

trio.run(main, sys.argv[1])
"""

CREATE_AND_FILL = """
async def main(path, name):
    say("ready")
    sys.stdin.readline()
    async with SqliteStore(path, busy_timeout=60) as store:
        writer = await store.open(name)
        for seq in range(40):
            error = await put(writer, [event(seq)])
            assert error is None, error
        await writer.release()
    say("done")

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def child(body, *arguments):
    """A process that runs `body`; killed at the end, if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + body, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


async def killed(process):
    """Kill it and wait for its end."""
    process.kill()
    await trio.to_thread.run_sync(process.wait)


def ask(process):
    """Have a holding child append one event, and hear how it went."""
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


async def test_twenty_kills_lose_nothing_that_was_acknowledged(path):
    acknowledged = -1
    for kill in range(20):
        with child(APPEND_FOREVER, path) as process:
            for _ in range(1 + kill * 3):
                acknowledged = int(process.stdout.readline())
            process.kill()
            rest = process.stdout.read().split("\n")
            acknowledged = max([acknowledged, *map(int, rest[:-1])])
        async with SqliteStore(path) as store:
            assert (await store.info("s")).holder is None
            events = await store.read("s")
            assert [event.seq for event in events] == list(range(len(events)))
            assert len(events) > acknowledged
            writer = await store.open("s", create=False)
            assert writer.next_seq == len(events)
            assert writer.epoch == 2 * kill + 2
            await writer.release()


async def test_a_living_process_holds_its_session_and_a_killed_one_does_not(path):
    with child(HOLD, path) as process:
        assert process.stdout.readline() == "open 1\n"
        async with SqliteStore(path) as store:
            with pytest.raises(SessionHeld, match=rf"held by the child \(process {process.pid} on "):
                await store.open("s")
            assert ask(process) == "stored"
            await killed(process)
            assert (await store.open("s")).next_seq == 1


async def test_a_killed_process_that_nobody_has_reaped_holds_nothing(path):
    with child(HOLD, path) as process:
        process.stdout.readline()
        process.kill()
        await trio.to_thread.run_sync(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        async with SqliteStore(path) as store:
            assert (await store.open("s")).epoch == 2


async def test_a_suspended_process_still_holds_its_session(path):
    with child(HOLD, path) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        async with SqliteStore(path) as store:
            with pytest.raises(SessionHeld):
                await store.open("s")


async def test_a_forked_child_does_not_keep_its_dead_parent_present(path):
    fork = HOLD.replace('say("open"', 'os.fork() or os._exit(len(sys.stdin.read()))\n        say("open"')
    with child(fork, path) as process:
        process.stdout.readline()
        async with SqliteStore(path) as store:
            with pytest.raises(SessionHeld):
                await store.open("s")
            await killed(process)
            assert (await store.open("s")).epoch == 2


async def test_takeover_fences_a_writer_in_another_process(path, make, put):
    with child(HOLD, path) as process:
        process.stdout.readline()
        assert ask(process) == "stored"
        async with SqliteStore(path) as store:
            writer = await store.open("s", takeover=True)
            assert ask(process) == "LeaseLost"
            await put(writer, make(1, 1))
            assert ask(process) == "LeaseLost"
            assert len(await store.read("s")) == 2


async def test_a_child_that_took_over_fences_this_process(path, make, put):
    async with SqliteStore(path) as store:
        writer = await store.open("s")
        await put(writer, make(0, 1))
        with child(HOLD.replace("holder=", "takeover=True, holder="), path) as process:
            assert process.stdout.readline() == "open 2\n"
            with pytest.raises(LeaseLost, match="held by the child"):
                await put(writer, make(1, 1))


async def test_processes_that_make_the_same_file_at_once_all_succeed(path):
    names = [f"session {number}" for number in range(6)]
    ready = Barrier(len(names))

    def run(name):
        with child(CREATE_AND_FILL, path, name) as process:
            assert process.stdout.readline() == "ready\n"
            ready.wait()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            assert process.wait() == 0

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(trio.to_thread.run_sync, run, name)
    async with SqliteStore(path) as store:
        assert sorted(info.id for info in await store.list()) == names
        for name in names:
            assert [event.seq for event in await store.read(name)] == list(range(40))
