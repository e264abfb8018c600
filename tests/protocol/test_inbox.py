"""The inbox: queues that follow what the log says and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.events import InboxSpliced, UserMessage, text_of
from quiesce.protocol.inbox import Inbox, insert, remove


@pytest.fixture
def inbox(logs):
    """An inbox that followed these drafts."""

    def of(*drafts):
        inbox = Inbox()
        for event in logs.numbered(drafts):
            inbox.observe(event)
        return inbox

    return of


def texts(messages: tuple[UserMessage, ...]) -> str:
    return " ".join(text_of(message.content) for message in messages)


def test_a_new_inbox_is_empty():
    assert (len(Inbox()), Inbox().queued("next-turn"), Inbox().queued("next-step")) == (0, (), ())


def test_messages_queue_up_in_order(logs, inbox):
    queued = inbox(insert("next-turn", 0, logs.user("1")), insert("next-turn", 1, logs.user("2"), logs.user("3")))
    assert texts(queued.queued("next-turn")) == "1 2 3"


def test_each_target_has_a_queue_of_its_own(logs, inbox):
    queued = inbox(insert("next-turn", 0, logs.user("turn")), insert("next-step", 0, logs.user("step")))
    assert (texts(queued.queued("next-turn")), texts(queued.queued("next-step"))) == ("turn", "step")
    assert len(queued) == 2


def test_the_oldest_are_removed_first(logs, inbox):
    queued = inbox(insert("next-step", 0, logs.user("1"), logs.user("2"), logs.user("3")), *remove("next-step", 2))
    assert texts(queued.queued("next-step")) == "3"


def test_removing_nothing_needs_no_event():
    assert remove("next-turn", 0) == ()


def test_removing_says_why_the_input_was_not_used():
    (item,) = remove("next-turn", 1, "dropped")
    assert item.body == InboxSpliced("next-turn", 0, (), removed_count=1, outcome="dropped")


@pytest.mark.parametrize(
    ("start", "removed", "left"),
    [
        pytest.param(1, None, "1 x 2 3", id="without a count nothing is removed"),
        pytest.param(1, 1, "1 x 3", id="what is removed makes place for what is inserted"),
        pytest.param(3, None, "1 2 3 x", id="at the end"),
        pytest.param(9, 2, "1 2 3 x", id="a start beyond the end means the end"),
        pytest.param(1, 9, "1 x", id="a count beyond the end means the rest"),
    ],
)
def test_a_splice_is_read_as_in_javascript(logs, inbox, start, removed, left):
    before = insert("next-turn", 0, logs.user("1"), logs.user("2"), logs.user("3"))
    splice = InboxSpliced("next-turn", start, (logs.user("x"),), removed_count=removed)
    assert texts(inbox(before, logs.draft(splice)).queued("next-turn")) == left


def test_the_queue_of_a_foreign_target_is_nobodys_input(logs, inbox):
    queued = inbox(logs.draft(InboxSpliced("somewhere-else", 0, (logs.user("x"),))))
    assert len(queued) == 0


def test_other_events_change_nothing(logs):
    inbox = Inbox()
    for event in logs.read("turn step user ask:a late:a seed foreign"):
        inbox.observe(event)
    assert len(inbox) == 0


def test_a_copy_follows_the_log_independently(logs, inbox):
    queued = inbox(insert("next-turn", 0, logs.user("1")))
    other = queued.copy()
    other.observe(remove("next-turn", 1)[0].at(1, 0))
    assert (len(queued), len(other)) == (1, 0)


def test_what_was_handed_out_does_not_change(logs, inbox):
    queued = inbox(insert("next-turn", 0, logs.user("1")))
    before = queued.queued("next-turn")
    queued.observe(remove("next-turn", 1)[0].at(1, 0))
    assert texts(before) == "1"


@given(moves=st.lists(st.integers(0, 3), max_size=20))
def test_first_in_first_out_whatever_comes_and_goes(moves, logs):
    inbox, queue = Inbox(), []
    for seq, move in enumerate(moves):
        if move:
            drafts = remove("next-turn", min(move, len(queue)))
            del queue[:move]
        else:
            drafts = (insert("next-turn", len(queue), logs.user(str(seq))),)
            queue.append(str(seq))
        for item in drafts:
            inbox.observe(item.at(seq, 0))
    assert texts(inbox.queued("next-turn")) == " ".join(queue)
