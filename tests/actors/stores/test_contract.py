"""The contract of a store (`quiesce.actors.stores.base`), rule by rule, for every kind of store."""

from __future__ import annotations

import logging
import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.protocol.errors import (
    InvalidInput,
    LeaseLost,
    SessionExists,
    SessionHeld,
    SessionNotFound,
    StoreError,
    UnreadableLog,
)
from quiesce.protocol.events import ForeignBody, LateResult, TextBlock, draft

CREATED = 1_700_000_000_000


# --- appending and reading ---------------------------------------------------------------------------------------


async def test_what_was_appended_is_read_back_equal(store, make, put):
    writer = await store.open("s")
    await put(writer, make(0, 3))
    await put(writer, make(3, 2))
    assert await store.read("s") == make(0, 5)


async def test_every_character_of_a_text_survives(store, put):
    text = "".join(map(chr, range(32, 0x3000))) + "\u2028\x85\U0001f600 \\u0000"
    event = draft(LateResult(1, 1, "c", (TextBlock(text),))).at(0, 5)
    writer = await store.open("s")
    await put(writer, [event])
    assert await store.read("s") == [event]


async def test_a_range_is_half_open_and_cut_to_what_exists(store, make, put):
    writer = await store.open("s")
    await put(writer, make(0, 6))
    assert await store.read("s", 2) == make(2, 4)
    assert await store.read("s", 2, 4) == make(2, 2)
    assert await store.read("s", 4, 100) == make(4, 2)
    assert await store.read("s", 6) == []
    assert await store.read("s", 4, 2) == []


@pytest.mark.parametrize("bad", [{"from_seq": -1}, {"to_seq": -1}, {"from_seq": 2**63}])
async def test_a_range_that_cannot_be_is_refused(store, bad):
    await store.open("s")
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        await store.read("s", **bad)


async def test_a_new_session_is_empty(store):
    writer = await store.open("s")
    assert writer.next_seq == 0
    assert await store.read("s") == []


async def test_on_done_is_called_once_later_and_on_the_loops_thread(store, make):
    writer = await store.open("s")
    calls = []
    ended = trio.Event()

    def on_done(error):
        calls.append((error, threading.current_thread() is threading.main_thread()))
        ended.set()

    writer.append(make(0, 1), on_done)
    assert calls == []
    await ended.wait()
    await wait_all_tasks_blocked()
    assert calls == [(None, True)]


async def test_pipelined_appends_are_answered_in_order(store, make):
    writer = await store.open("s")
    answered = []
    for seq in range(50):
        writer.append(make(seq, 1), lambda error, seq=seq: answered.append((seq, error)))
    await writer.release()
    assert answered == [(seq, None) for seq in range(50)]
    assert await store.read("s") == make(0, 50)


async def test_an_append_may_be_submitted_from_on_done(store, make):
    writer = await store.open("s")
    ended = trio.Event()

    def first(error):
        writer.append(make(1, 1), second)

    def second(error):
        ended.set()

    writer.append(make(0, 1), first)
    await ended.wait()
    assert await store.read("s") == make(0, 2)


async def test_a_callback_that_raises_harms_nobody_else(store, make, put, caplog):
    writer = await store.open("s")
    with caplog.at_level(logging.ERROR, "quiesce.stores"):
        writer.append(make(0, 1), lambda error: 1 / 0)
        await put(writer, make(1, 1))
    assert "ZeroDivisionError" in caplog.text
    assert await store.read("s") == make(0, 2)


@pytest.mark.parametrize("first", [0, 1, 3, 7])
async def test_an_append_that_does_not_continue_the_log_is_refused(store, make, put, first):
    writer = await store.open("s")
    await put(writer, make(0, 2))
    with pytest.raises(StoreError, match=f"event 2 is next, the append starts with event {first}"):
        await put(writer, make(first, 2))
    assert await store.read("s") == make(0, 2)


async def test_an_append_with_a_gap_inside_is_refused_whole(store, make, put):
    writer = await store.open("s")
    with pytest.raises(StoreError, match="event 2 stands where 1 belongs"):
        await put(writer, [*make(0, 1), *make(2, 1)])
    assert await store.read("s") == []


async def test_an_event_that_is_not_json_is_refused_with_its_whole_append(store, make, put, unwritable):
    writer = await store.open("s")
    with pytest.raises(InvalidInput):
        await put(writer, [*make(0, 2), unwritable(2)])
    assert await store.read("s") == []
    await put(writer, make(0, 1))


async def test_what_is_no_event_at_all_is_refused_by_on_done(store, put):
    writer = await store.open("s")
    with pytest.raises(InvalidInput, match="cannot be written"):
        await put(writer, ["no event"])


async def test_a_time_that_no_store_can_hold_is_refused(store, put, make):
    writer = await store.open("s")
    with pytest.raises(InvalidInput, match="its time"):
        await put(writer, [make(0, 1)[0].__class__(make(0, 1)[0].body, seq=0, time=2**63)])


async def test_appends_behind_a_refused_one_are_refused_too_in_order(store, make, unwritable):
    writer = await store.open("s")
    answered = []
    for events in (make(0, 2), [unwritable(2)], make(3, 1), make(4, 1)):
        writer.append(events, lambda error: answered.append(type(error)))
    await writer.release()
    assert answered == [type(None), InvalidInput, StoreError, StoreError]
    assert await store.read("s") == make(0, 2)


async def test_a_writer_goes_on_after_a_refused_append(store, make, put, unwritable):
    writer = await store.open("s")
    with pytest.raises(InvalidInput):
        await put(writer, [unwritable(0)])
    await put(writer, make(0, 2))
    assert await store.read("s") == make(0, 2)


async def test_an_empty_append_is_answered_in_its_turn(store, make):
    writer = await store.open("s")
    answered = []
    writer.append(make(0, 1), lambda error: answered.append("first"))
    writer.append([], answered.append)
    await writer.release()
    assert answered == ["first", None]


async def test_sessions_do_not_see_each_other(store, make, put):
    one, two = await store.open("one"), await store.open("two")
    await put(one, make(0, 3))
    await put(two, make(0, 1))
    assert await store.read("one") == make(0, 3)
    assert await store.read("two") == make(0, 1)


async def test_reading_a_session_that_is_not_there_is_refused(store):
    with pytest.raises(SessionNotFound, match="'nobody'"):
        await store.read("nobody")


async def test_an_unknown_event_is_read_only_from_a_foreign_log(store, put):
    event = draft(ForeignBody("their/event", {"a": 1})).at(0, 5)
    writer = await store.open("s")
    await put(writer, [event])
    with pytest.raises(UnreadableLog, match=r"session 's', event 0: .*their/event"):
        await store.read("s")
    assert await store.read("s", foreign=True) == [event]


# --- leases ------------------------------------------------------------------------------------------------------


async def test_a_held_session_is_not_opened_again_and_the_refusal_names_the_holder(store):
    await store.open("s", holder="the first one")
    with pytest.raises(SessionHeld, match=r"'s' is held by the first one \(process \d+ on .+\)"):
        await store.open("s")


async def test_a_released_session_can_be_opened_again_in_its_next_epoch(store, make, put):
    first = await store.open("s")
    await put(first, make(0, 2))
    await first.release()
    second = await store.open("s")
    assert (first.epoch, second.epoch, second.next_seq) == (1, 2, 2)
    await put(second, make(2, 1))
    assert await store.read("s") == make(0, 3)


async def test_releasing_twice_does_nothing(store):
    first = await store.open("s")
    await first.release()
    second = await store.open("s")
    await first.release()
    with pytest.raises(SessionHeld):
        await store.open("s")
    await second.release()


async def test_release_waits_for_the_appends_before_it(store, make):
    writer = await store.open("s")
    order = []
    writer.append(make(0, 1), lambda error: order.append("stored"))
    await writer.release()
    order.append("released")
    assert order == ["stored", "released"]


async def test_a_released_writer_can_append_no_more(store, make, put):
    writer = await store.open("s")
    await writer.release()
    with pytest.raises(LeaseLost, match="released"):
        await put(writer, make(0, 1))
    assert await store.read("s") == []


async def test_takeover_fences_the_old_writer(store, make, put):
    old = await store.open("s")
    await put(old, make(0, 1))
    new = await store.open("s", holder="usurper", takeover=True)
    with pytest.raises(LeaseLost, match="epoch 1 is over, epoch 2 has begun, held by usurper"):
        await put(old, make(1, 1))
    assert (new.epoch, new.next_seq) == (2, 1)
    await put(new, make(1, 2))
    assert await store.read("s") == make(0, 3)


async def test_a_fenced_writer_changes_nothing_even_if_its_append_would_fit(store, make, put):
    old = await store.open("s")
    await store.open("s", takeover=True)
    with pytest.raises(LeaseLost):
        await put(old, make(0, 1))
    assert await store.read("s") == []
    assert (await store.info("s")).last_seq is None


async def test_appends_submitted_before_a_takeover_are_kept(store, make):
    old = await store.open("s")
    answered = []
    old.append(make(0, 1), answered.append)
    new = await store.open("s", takeover=True)
    assert answered == [None]
    assert new.next_seq == 1


async def test_a_fenced_writer_releases_nothing(store):
    old = await store.open("s")
    await store.open("s", takeover=True)
    await old.release()
    with pytest.raises(SessionHeld):
        await store.open("s")


async def test_takeover_of_a_free_session_is_an_ordinary_opening(store):
    writer = await store.open("s", takeover=True)
    assert writer.epoch == 1


# --- sessions ----------------------------------------------------------------------------------------------------


async def test_a_session_is_not_created_unless_wanted(store):
    with pytest.raises(SessionNotFound):
        await store.open("s", create=False)
    assert await store.list() == []


async def test_a_new_session_must_not_be_there_yet(store):
    first = await store.open("s", new=True)
    await first.release()
    with pytest.raises(SessionExists, match="'s'"):
        await store.open("s", new=True)


async def test_the_header_is_stored_once_and_comes_back(store):
    header = {"createdAt": 5, "title": "ä\u2028", "nested": {"a": [1, None]}}
    first = await store.open("s", header=header)
    assert first.header == header
    await first.release()
    assert (await store.open("s", header={"title": "other"})).header == header
    assert (await store.info("s")).header == header


async def test_a_header_without_a_time_gets_the_stores(store):
    writer = await store.open("s", header={"title": "t"})
    assert writer.header == {"createdAt": CREATED, "title": "t"}
    assert (await store.info("s")).created_at == CREATED


@pytest.mark.parametrize(
    "header", [{"x": float("nan")}, {"x": "\ud800"}, {"x": "\0"}, {"x": {1}}, {"createdAt": "now"}, {"createdAt": -1}]
)
async def test_a_header_that_cannot_be_stored_is_refused(store, header):
    with pytest.raises(InvalidInput, match="header"):
        await store.open("s", header=header)
    assert await store.list() == []


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\0b", "\ud800"])
async def test_an_impossible_session_id_is_refused(store, bad):
    for call in (store.open, store.read, store.info, store.delete):
        with pytest.raises(InvalidInput, match="session_id"):
            await call(bad)


@pytest.mark.parametrize("strange", ["x" * 200, " ", "../../etc", "' OR 1=1 --", "%", "日本語 😀", "a\nb"])
async def test_any_other_text_is_a_session_id(store, make, put, strange):
    writer = await store.open(strange)
    await put(writer, make(0, 1))
    assert [info.id for info in await store.list()] == [strange]
    assert await store.read(strange) == make(0, 1)


async def test_the_list_is_in_the_order_of_creation(store):
    for name in ("b", "c", "a"):
        await store.open(name)
    assert [info.id for info in await store.list()] == ["b", "c", "a"]


async def test_info_of_an_empty_session(store):
    await store.open("s", holder="me")
    info = await store.info("s")
    assert (info.last_time, info.last_seq, info.turns, info.open, info.epoch) == (None, None, 0, False, 1)
    assert info.holder.startswith("me (process ")


async def test_info_follows_the_turns(store, make, put, turn):
    writer = await store.open("s")
    await put(writer, turn(0, 1))
    info = await store.info("s")
    assert (info.last_time, info.last_seq, info.turns, info.open) == (CREATED + 1, 1, 1, False)
    await put(writer, turn(2, 2)[:1])
    info = await store.info("s")
    assert (info.last_seq, info.turns, info.open) == (2, 2, True)
    await put(writer, make(3, 1))
    assert (await store.info("s")).open
    await put(writer, turn(3, 2)[1:])
    assert not (await store.info("s")).open
    assert [await store.info("s")] == await store.list()


async def test_a_refused_append_does_not_move_the_info(store, put, turn, unwritable):
    writer = await store.open("s")
    before = await store.info("s")
    with pytest.raises(InvalidInput):
        await put(writer, [*turn(0, 1), unwritable(2)])
    with pytest.raises(StoreError):
        await put(writer, turn(1, 1))
    assert await store.info("s") == before


async def test_the_info_names_no_holder_after_release(store):
    writer = await store.open("s")
    await writer.release()
    assert (await store.info("s")).holder is None


async def test_info_of_a_session_that_is_not_there_is_refused(store):
    with pytest.raises(SessionNotFound):
        await store.info("s")


async def test_a_deleted_session_is_gone(store, make, put):
    writer = await store.open("s")
    await put(writer, make(0, 3))
    await writer.release()
    await store.delete("s")
    assert await store.list() == []
    with pytest.raises(SessionNotFound):
        await store.read("s")


async def test_a_held_session_is_not_deleted(store, make, put):
    writer = await store.open("s")
    await put(writer, make(0, 1))
    with pytest.raises(SessionHeld):
        await store.delete("s")
    assert await store.read("s") == make(0, 1)


async def test_deleting_what_is_not_there_is_refused(store):
    with pytest.raises(SessionNotFound):
        await store.delete("s")


async def test_the_writer_of_a_deleted_session_cannot_append_to_its_successor(store, make, put):
    old = await store.open("s")
    await old.release()
    await store.delete("s")
    new = await store.open("s")
    assert new.epoch == old.epoch
    with pytest.raises(LeaseLost, match="was deleted"):
        await put(old, make(0, 1))
    await old.release()
    assert await store.read("s") == []
    await put(new, make(0, 1))


# --- opening and closing -----------------------------------------------------------------------------------------


async def test_closing_waits_for_what_was_submitted(closed_store, make):
    answered = []
    async with closed_store:
        writer = await closed_store.open("s")
        for seq in range(20):
            writer.append(make(seq, 1), answered.append)
    async with closed_store:
        assert answered == [None] * 20
        assert await closed_store.read("s") == make(0, 20)


async def test_after_closing_appends_are_refused_in_order(closed_store, make, put):
    answered = []
    async with closed_store:
        writer = await closed_store.open("s")
        writer.append(make(0, 1), answered.append)
    with pytest.raises(StoreError, match="not open"):
        await put(writer, make(1, 1))
    assert answered == [None]


async def test_a_store_that_is_not_open_refuses_everything(closed_store):
    for call in (closed_store.open, closed_store.read, closed_store.info, closed_store.delete):
        with pytest.raises(StoreError, match="not open"):
            await call("s")
    with pytest.raises(StoreError, match="not open"):
        await closed_store.list()


async def test_releasing_after_closing_does_nothing(closed_store):
    async with closed_store:
        writer = await closed_store.open("s")
    await writer.release()


async def test_leases_end_with_their_store(closed_store, make, put):
    async with closed_store:
        await put(await closed_store.open("s"), make(0, 1))
    async with closed_store:
        assert (await closed_store.info("s")).holder is None
        writer = await closed_store.open("s")
        assert (writer.epoch, writer.next_seq) == (2, 1)


async def test_a_store_stays_open_until_its_last_user_leaves(closed_store, make, put):
    async with closed_store:
        async with closed_store:
            writer = await closed_store.open("s")
        await put(writer, make(0, 1))
    with pytest.raises(StoreError, match="not open"):
        await put(writer, make(1, 1))


async def test_a_store_is_closed_in_order_even_when_cancelled(closed_store, make):
    answered = []
    with trio.CancelScope() as scope:
        async with closed_store:
            writer = await closed_store.open("s")
            writer.append(make(0, 1), answered.append)
            scope.cancel()
    await trio.lowlevel.checkpoint()
    async with closed_store:
        assert answered == [None]
        assert await closed_store.read("s") == make(0, 1)


async def test_a_cancelled_opening_takes_no_lease(store):
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.open("s")
    assert scope.cancelled_caught
    assert await store.list() == []


async def test_an_opening_that_has_begun_ends_in_spite_of_cancellation(store):
    with trio.CancelScope() as scope:

        async def cancel_soon():
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_soon)
            writer = await store.open("s")
            assert writer.epoch == 1
    assert (await store.info("s")).holder is not None


def test_a_later_run_can_take_over_what_a_crashed_one_left(closed_store, make):
    crashed = []

    async def first():
        store = await closed_store.__aenter__()
        writer = await store.open("s")
        writer.append(make(0, 1), lambda error: None)
        await store.read("s")
        crashed.append(writer)

    async def second():
        async with closed_store:
            with pytest.raises(SessionHeld):
                await closed_store.open("s")
            writer = await closed_store.open("s", takeover=True)
            assert (writer.epoch, writer.next_seq) == (2, 1)
            ended = trio.Event()
            writer.append(make(1, 1), lambda error: ended.set())
            await ended.wait()
            assert await closed_store.read("s") == make(0, 2)
        await closed_store.__aexit__(None, None, None)

    trio.run(first)
    trio.run(second)


def test_an_append_whose_loop_has_ended_is_stored_all_the_same(closed_store, make):
    told = []

    async def first():
        store = await closed_store.__aenter__()
        writer = await store.open("s")
        for seq in range(10):
            writer.append(make(seq, 1), told.append)

    async def second():
        async with closed_store:
            await closed_store.open("s", takeover=True)
            assert await closed_store.read("s") == make(0, 10)
        await closed_store.__aexit__(None, None, None)

    trio.run(first)
    trio.run(second)
