"""What is special to `SqliteStore`: its file, its limits, its locks, its group commit."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pykka
import pytest
import trio
import trio.testing

from quiesce.actors.stores import SqliteStore
from quiesce.actors.stores import sqlite_file as file_module
from quiesce.actors.stores import tables as ops
from quiesce.actors.stores.group_commit import WAKE, CommitQueue, GroupCommitter
from quiesce.actors.stores.jobs import Job
from quiesce.actors.stores.sqlite_file import connect_reader, connect_writer
from quiesce.actors.stores.sqlite_tables import SqliteTables
from quiesce.protocol.errors import (
    InvalidInput,
    LeaseLost,
    SessionHeld,
    StoreError,
    StoreFull,
    StoreLocked,
    UnreadableLog,
)
from quiesce.protocol.events import TextBlock, UserMessage, draft


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def big(seq, size):
    return draft(UserMessage((TextBlock("x" * size),), {"kind": "user"}, "user", "m")).at(seq, 1)


@contextmanager
def raw(path):
    """Another program's connection to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def bytes_and_times(path):
    return path.read_bytes(), path.stat().st_mtime_ns, names(path.parent)


@contextmanager
def unprivileged_directory():
    """A directory of a user whom permissions bind: root becomes nobody for a while."""
    directory = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.chown(directory, 65534, 65534)
            os.seteuid(65534)
        yield directory
    finally:
        if is_root:
            os.seteuid(0)
        directory.chmod(0o700)
        shutil.rmtree(directory)


# --- the file ----------------------------------------------------------------------------------------------------


async def test_a_new_file_is_its_owners_only(path):
    async with SqliteStore(path) as store:
        await store.open("s")
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        assert len(modes) == 4
        assert set(modes.values()) == {0o600}


async def test_the_mode_of_an_existing_store_is_kept(path):
    async with SqliteStore(path):
        pass
    path.chmod(0o640)
    async with SqliteStore(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_closing_leaves_one_file(path, make, put):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 100))
        await store.read("s")
    assert names(path.parent) == ["store.db"]


async def test_every_commit_is_synced(path):
    with closing(connect_writer(str(path), busy_timeout=1, max_bytes=None)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (1000,)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


async def test_a_reading_connection_cannot_write(path):
    async with SqliteStore(path):
        connection = connect_reader(str(path), busy_timeout=1)
        with closing(connection), pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM sessions")


async def test_an_empty_file_becomes_a_store(path):
    path.touch()
    async with SqliteStore(path) as store:
        assert await store.list() == []


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0 but not really"])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    before = bytes_and_times(path)
    with pytest.raises(StoreError, match=r"store\.db: not a quiesce store"):
        async with SqliteStore(path):
            pass
    assert bytes_and_times(path) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_another_programs_database_is_refused_and_left_alone(path, mode):
    with raw(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE sessions (x)")
        connection.execute("INSERT INTO sessions VALUES (1)")
    before = bytes_and_times(path)
    with pytest.raises(StoreError, match="not a quiesce store"):
        async with SqliteStore(path):
            pass
    assert bytes_and_times(path) == before


async def test_another_programs_crashed_database_is_left_alone_with_its_log(path, tmp_path):
    with raw(path) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE t (x)")
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for name in ("store.db", "store.db-wal"):
            shutil.copy(path.parent / name, crashed / name)
    before = bytes_and_times(crashed / "store.db"), (crashed / "store.db-wal").read_bytes()
    with pytest.raises(StoreError, match="not a quiesce store"):
        async with SqliteStore(crashed / "store.db"):
            pass
    assert (bytes_and_times(crashed / "store.db"), (crashed / "store.db-wal").read_bytes()) == before


async def test_a_newer_schema_is_refused_with_the_way_out(path):
    async with SqliteStore(path):
        pass
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match=r"store\.db: written by a newer quiesce \(schema 7.*upgrade"):
        async with SqliteStore(path):
            pass


async def test_a_store_whose_creation_was_cut_before_wal_is_finished(path):
    with raw(path) as connection:
        for statement in file_module._SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {file_module._APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {file_module._VERSION}")
    async with SqliteStore(path) as store:
        await store.open("s")
        with raw(path) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_store_that_died_in_the_middle_of_a_checkpoint_is_whole(path, tmp_path, make, put):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 500))
        before, log = path.read_bytes(), (tmp_path / "store.db-wal").read_bytes()
    after = path.read_bytes()
    crashed = tmp_path / "crashed.db"
    crashed.write_bytes(after[:4096] + before[4096:])
    (tmp_path / "crashed.db-wal").write_bytes(log)
    async with SqliteStore(crashed) as store:
        assert await store.read("s") == make(0, 500)


async def test_a_store_whose_first_page_was_torn_is_whole_again_by_its_log(path, tmp_path, make, put):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 500))
        before, log = path.read_bytes(), (tmp_path / "store.db-wal").read_bytes()
    crashed = tmp_path / "crashed.db"
    crashed.write_bytes(b"\0" * 4096 + before[4096:])
    (tmp_path / "crashed.db-wal").write_bytes(log)
    async with SqliteStore(crashed) as store:
        assert await store.read("s") == make(0, 500)


async def test_a_database_without_tables_is_not_ours(path):
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    before = bytes_and_times(path)
    with pytest.raises(StoreError, match="not a quiesce store"):
        async with SqliteStore(path):
            pass
    assert bytes_and_times(path) == before


async def test_a_damaged_store_is_a_store_error(path, make, put):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 2000))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    async with SqliteStore(path) as store:
        with pytest.raises(StoreError, match=r"store\.db: .*malformed"):
            await store.list()


@pytest.mark.parametrize("seq", [0, 3, 9])
async def test_a_log_that_lost_an_event_is_unreadable(path, make, put, seq):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 10))
        with raw(path) as connection:
            connection.execute("DELETE FROM events WHERE seq = ?", (seq,))
        with pytest.raises(UnreadableLog, match=f"session 's': event {seq} is missing"):
            await store.read("s")


async def test_a_log_whose_event_was_exchanged_is_unreadable(path, make, put):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 3))
        with raw(path) as connection:
            connection.execute("UPDATE events SET line = (SELECT line FROM events WHERE seq = 0) WHERE seq = 1")
        with pytest.raises(UnreadableLog, match="event 0 is stored as event 1"):
            await store.read("s")


async def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere/store\.db: .*unable to open"):
        async with SqliteStore(tmp_path / "nowhere" / "store.db"):
            pass
    assert names(tmp_path) == []


async def test_a_directory_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="not a file"):
        async with SqliteStore(tmp_path):
            pass


@pytest.mark.parametrize("name", ["", ":memory:", "a\0b"])
def test_a_path_that_names_no_file_is_refused(name):
    with pytest.raises(InvalidInput, match="path"):
        SqliteStore(name)


@pytest.mark.parametrize("option", [{"busy_timeout": -1}, {"busy_timeout": float("nan")}, {"max_bytes": 0}])
def test_an_option_out_of_range_is_refused(path, option):
    with pytest.raises(InvalidInput, match=next(iter(option))):
        SqliteStore(path, **option)


async def test_a_path_with_characters_of_urls_is_a_path(tmp_path):
    name = tmp_path / "a?mode=memory#%41 ü.db"
    async with SqliteStore(name) as store:
        await store.open("s")
    assert names(tmp_path) == [name.name]


async def test_a_directory_that_is_not_writable_is_named():
    with unprivileged_directory() as directory:
        directory.chmod(0o500)
        with pytest.raises(StoreError, match=r"store\.db: "):
            async with SqliteStore(directory / "store.db"):
                pass


async def test_a_file_that_is_read_only_is_named():
    with unprivileged_directory() as directory:
        path = directory / "store.db"
        async with SqliteStore(path):
            pass
        path.chmod(0o400)
        with pytest.raises(StoreError, match=r"store\.db: .*readonly"):
            async with SqliteStore(path) as store:
                await store.open("s")


async def test_a_file_that_may_not_be_read_is_named():
    with unprivileged_directory() as directory:
        path = directory / "store.db"
        path.touch()
        path.chmod(0)
        with pytest.raises(StoreError, match=r"store\.db: "):
            async with SqliteStore(path):
                pass


async def test_a_store_that_failed_to_open_can_be_opened_later(tmp_path):
    store = SqliteStore(tmp_path / "later" / "store.db")
    with pytest.raises(StoreError):
        async with store:
            pass
    (tmp_path / "later").mkdir()
    async with store:
        assert await store.list() == []


async def test_no_actor_is_left_when_a_store_is_closed(path):
    async with SqliteStore(path):
        assert len(pykka.ActorRegistry.get_by_class(GroupCommitter)) == 1
    assert pykka.ActorRegistry.get_by_class(GroupCommitter) == []


# --- limits and locks --------------------------------------------------------------------------------------------


async def test_what_does_not_fit_is_refused_and_what_was_there_stays(path, put, make):
    async with SqliteStore(path, max_bytes=200_000) as store:
        writer = await store.open("s")
        await put(writer, make(0, 10))
        with pytest.raises(StoreFull, match=r"store\.db: .*full"):
            await put(writer, [*make(10, 5), big(15, 300_000)])
        assert await store.read("s") == make(0, 10)
        assert (await store.info("s")).last_seq == 9
        await put(writer, make(10, 1))
        assert await store.read("s") == make(0, 11)


async def test_deleting_makes_room(path, put, make):
    async with SqliteStore(path, max_bytes=200_000) as store:
        writer = await store.open("large")
        await put(writer, [big(0, 120_000)])
        await writer.release()
        small = await store.open("small")
        with pytest.raises(StoreFull):
            await put(small, [big(0, 120_000)])
        await store.delete("large")
        await put(small, [big(0, 120_000)])
    assert path.stat().st_size <= 200_000


async def test_appends_behind_a_full_store_are_not_stored_out_of_order(path, make):
    answered = []
    async with SqliteStore(path, max_bytes=200_000) as store:
        writer = await store.open("s")
        for events in (make(0, 1), [big(1, 300_000)], make(2, 1)):
            writer.append(events, lambda error: answered.append(type(error)))
        await writer.release()
        assert answered == [type(None), StoreFull, StoreError]
        assert await store.read("s") == make(0, 1)


async def test_a_lock_held_beyond_the_time_out_fails_the_append_and_changes_nothing(path, put, make):
    async with SqliteStore(path, busy_timeout=0.05) as store:
        writer = await store.open("s")
        await put(writer, make(0, 1))
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLocked, match=r"store\.db: .*locked"):
                await put(writer, make(1, 1))
            with pytest.raises(StoreLocked):
                await store.open("t")
            assert await store.read("s") == make(0, 1)
            other.execute("ROLLBACK")
        await put(writer, make(1, 1))
        assert await store.read("s") == make(0, 2)


async def test_a_lock_that_is_given_back_in_time_is_waited_for(path, put, make):
    async with SqliteStore(path, busy_timeout=60) as store:
        writer = await store.open("s")
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            answered = []
            writer.append(make(0, 1), answered.append)
            assert await store.read("s") == []
            other.execute("ROLLBACK")
        await writer.release()
        assert answered == [None]


async def test_readers_see_the_last_commit_while_another_writes(path, put, make):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 3))
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("DELETE FROM events")
            assert await store.read("s") == make(0, 3)
            other.execute("ROLLBACK")


async def test_a_locked_new_file_is_refused_after_the_time_out(path):
    path.touch()
    with raw(path) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked):
            async with SqliteStore(path, busy_timeout=0.05):
                pass


async def test_switching_to_wal_waits_for_a_reader_that_sqlite_would_not_wait_for(path):
    with raw(path) as connection:
        for statement in file_module._SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {file_module._APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {file_module._VERSION}")
    with raw(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sessions").fetchall()
        with pytest.raises(StoreLocked):
            async with SqliteStore(path, busy_timeout=0.05):
                pass
        async with trio.open_nursery() as nursery:
            store = SqliteStore(path, busy_timeout=60)
            nursery.start_soon(store.__aenter__)
            await trio.testing.wait_all_tasks_blocked()
            reader.execute("ROLLBACK")
        await store.__aexit__(None, None, None)


async def test_a_failed_read_leaves_readers_that_work(path, put, make):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 3))
        with raw(path) as connection:
            connection.execute("ALTER TABLE events RENAME TO gone")
            for _ in range(5):
                with pytest.raises(StoreError, match="no such table"):
                    await store.read("s")
            connection.execute("ALTER TABLE gone RENAME TO events")
        assert await store.read("s") == make(0, 3)


async def test_a_reader_that_is_at_work_when_the_store_closes_ends_well(path, put, make):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 3))
        readers = store._now_open.readers

        def close_meanwhile(tables):
            readers.close()
            return tables.find("s").next_seq

        assert readers.look(close_meanwhile) == 3
        assert readers._idle == []


async def test_reads_at_once_do_not_wait_for_each_other(path, put, make):
    async with SqliteStore(path) as store:
        await put(await store.open("s"), make(0, 10))
        results = []

        async def read():
            results.append(await store.read("s"))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read)
        assert results == [make(0, 10)] * 20


# --- two stores on one file --------------------------------------------------------------------------------------


async def test_two_stores_on_one_file_see_each_others_sessions_and_leases(path, put, make):
    async with SqliteStore(path) as one, SqliteStore(path.parent / "." / path.name) as two:
        writer = await one.open("s", holder="one")
        await put(writer, make(0, 2))
        assert await two.read("s") == make(0, 2)
        assert (await two.info("s")).holder.startswith("one (process")
        with pytest.raises(SessionHeld, match="held by one"):
            await two.open("s")
        taken = await two.open("s", takeover=True)
        with pytest.raises(LeaseLost):
            await put(writer, make(2, 1))
        await put(taken, make(2, 1))


async def test_a_lease_of_a_closed_store_is_free_for_another_store(path):
    async with SqliteStore(path) as one:
        async with SqliteStore(path) as two:
            await two.open("s")
            with pytest.raises(SessionHeld):
                await one.open("s")
        assert (await one.info("s")).holder is None
        assert (await one.open("s")).epoch == 2


async def test_a_link_to_the_file_is_the_same_store(path, tmp_path):
    link = tmp_path / "elsewhere"
    link.mkdir()
    (link / "link.db").symlink_to(path)
    async with SqliteStore(path) as one, SqliteStore(link / "link.db") as two:
        await one.open("s")
        with pytest.raises(SessionHeld):
            await two.open("s")


# --- group commit ------------------------------------------------------------------------------------------------


class Committing:
    """A committer whose first transaction takes all jobs that are queued before it starts."""

    def __init__(self, path, **options):
        self.connection = connect_writer(str(path), busy_timeout=0.05, max_bytes=options.get("max_bytes"))
        self.statements = []
        self.queue = CommitQueue()
        self.results = []
        self.committer = None

    def submit(self, name, work):
        def done(value, error):
            self.results.append((name, value if error is None else type(error)))

        self.queue.put(Job(work, done, trio.lowlevel.current_trio_token()))

    async def run(self):
        self.connection.set_trace_callback(self.statements.append)
        self.committer = GroupCommitter.start(self.connection, "store.db", self.queue)
        self.committer.tell(WAKE)
        await trio.to_thread.run_sync(self.committer.stop)
        await trio.testing.wait_all_tasks_blocked()
        return self.results

    def count(self, statement):
        return self.statements.count(statement)


@pytest.fixture
def leases(path):
    """Leases of the sessions a, b and c in a new store."""
    with closing(connect_writer(str(path), busy_timeout=1, max_bytes=None)) as connection:
        made = []
        for name in "abc":
            row = ops.acquire(
                SqliteTables(connection),
                ops.Claim(
                    session_id=name,
                    holder=name,
                    held_by="t",
                    create=True,
                    new=False,
                    takeover=False,
                    header={"createdAt": 1},
                ),
                lambda token: True,
            )[0]
            made.append(ops.Lease(row.number, row.id, row.epoch))
        return made


def storing(lease, events):
    return partial(ops.append, lease=lease, batch=ops.Batch.of(events))


async def test_what_queued_up_meanwhile_is_committed_in_one_transaction(path, make, leases):
    group = Committing(path)
    for lease in leases:
        group.submit(lease.session_id, storing(lease, make(0, 2)))
        group.submit(lease.session_id, storing(lease, make(2, 2)))
    assert await group.run() == [(name, None) for name in "aabbcc"]
    assert group.count("BEGIN IMMEDIATE") == group.count("COMMIT") == 1
    async with SqliteStore(path) as store:
        assert [await store.read(name) for name in "abc"] == [make(0, 4)] * 3


async def test_a_refused_append_fails_alone_in_its_group(path, make, leases):
    a, b, c = leases
    fenced = ops.Lease(b.number, "b", b.epoch - 1)
    group = Committing(path)
    group.submit("good", storing(a, make(0, 1)))
    group.submit("fenced", storing(fenced, make(0, 1)))
    group.submit("gap", storing(b, make(5, 1)))
    group.submit("good too", storing(c, make(0, 1)))
    assert await group.run() == [("good", None), ("fenced", LeaseLost), ("gap", StoreError), ("good too", None)]
    assert group.count("COMMIT") == 1


async def test_when_not_all_fits_each_job_of_the_group_is_tried_alone(path, make, leases):
    a, b, _ = leases
    group = Committing(path, max_bytes=200_000)
    group.submit("good", storing(a, make(0, 1)))
    group.submit("too big", storing(b, [*make(0, 1), big(1, 500_000)]))
    group.submit("good too", storing(a, make(1, 1)))
    assert await group.run() == [("good", None), ("too big", StoreFull), ("good too", None)]
    async with SqliteStore(path) as store:
        assert await store.read("a") == make(0, 2)
        assert await store.read("b") == []


async def test_when_nothing_fits_every_append_fails_and_nothing_is_stored(path, leases):
    group = Committing(path, max_bytes=200_000)
    for lease in leases:
        group.submit(lease.session_id, storing(lease, [big(0, 500_000)]))
    assert await group.run() == [(name, StoreFull) for name in "abc"]
    async with SqliteStore(path) as store:
        assert [await store.read(name) for name in "abc"] == [[]] * 3


async def test_a_job_with_a_fault_fails_alone_in_its_group(path, make, leases):
    def faulty(tables):
        tables.add(leases[1].number, 0, ["half done"])
        raise ZeroDivisionError

    group = Committing(path)
    group.submit("faulty", faulty)
    group.submit("good", storing(leases[0], make(0, 1)))
    assert await group.run() == [("faulty", StoreError), ("good", None)]
    async with SqliteStore(path) as store:
        assert await store.read("b") == []


async def test_a_key_that_is_there_already_is_never_overwritten(path, make, leases):
    with raw(path) as connection:
        connection.execute("INSERT INTO events VALUES (?, 1, 'in the way')", (leases[0].number,))
    group = Committing(path)
    group.submit("a", storing(leases[0], make(0, 2)))
    group.submit("b", storing(leases[1], make(0, 2)))
    assert await group.run() == [("a", StoreError), ("b", None)]
    with raw(path) as connection:
        assert connection.execute("SELECT line FROM events WHERE session = ?", (leases[0].number,)).fetchall() == [
            ("in the way",)
        ]


async def test_when_the_transaction_is_lost_every_job_in_it_fails(path, make, leases):
    def losing(tables):
        tables._connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    group = Committing(path)
    group.submit("refused before", storing(leases[0], make(7, 1)))
    group.submit("good", storing(leases[0], make(0, 1)))
    group.submit("losing", losing)
    group.submit("after", storing(leases[1], make(0, 1)))
    assert [kind for _, kind in await group.run()] == [StoreError] * 4
    async with SqliteStore(path) as store:
        assert await store.read("a") == await store.read("b") == []


async def test_when_the_commit_is_locked_out_every_job_in_it_fails(path, make, leases):
    group = Committing(path)
    for lease in leases:
        group.submit(lease.session_id, storing(lease, make(0, 1)))
    with raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await group.run() == [(name, StoreLocked) for name in "abc"]


async def test_a_group_is_told_in_one_hop_per_loop(path, make, leases):
    hops = []

    class Counting:
        def run_sync_soon(self, call):
            hops.append(call)

    token = Counting()
    group = Committing(path)
    told = []
    for lease in leases:
        group.queue.put(Job(storing(lease, make(0, 1)), lambda value, error: told.append(error), token))
    await group.run()
    assert len(hops) == 1
    hops[0]()
    assert told == [None] * 3


async def test_stopping_all_pykka_actors_refuses_later_appends_instead_of_losing_them(path, make, put):
    async with SqliteStore(path) as store:
        writer = await store.open("s")
        await put(writer, make(0, 1))
        await trio.to_thread.run_sync(pykka.ActorRegistry.stop_all)
        with pytest.raises(StoreError, match="closed"):
            await put(writer, make(1, 1))
        assert await store.read("s") == make(0, 1)


async def test_a_crash_of_the_committer_is_told_to_those_who_wait(path, make, put, monkeypatch):
    def crash(*_):
        raise ZeroDivisionError

    async with SqliteStore(path) as store:
        writer = await store.open("s")
        monkeypatch.setattr(CommitQueue, "take", crash)
        with pytest.raises(StoreError, match="writer crashed: ZeroDivisionError"):
            await put(writer, make(0, 1))
        monkeypatch.undo()
        with pytest.raises(StoreError, match="writer crashed"):
            await put(writer, make(0, 1))
