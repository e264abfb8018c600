"""What stands in an inbox gives back what was put there, whatever the message."""

from __future__ import annotations

import queue
from typing import NamedTuple

import pytest

from quiesce.actors.kernel import ActorSystem, Reply, TrioActor
from quiesce.actors.kernel.entries import NO_INBOX, opened, packed


class Pair(NamedTuple):
    first: object
    second: object


MESSAGES = ["text", None, (), (1,), ("message", None), ((1, 2), None), Pair("message", None), [1, 2], 0]


class Recorder(TrioActor):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_receive(self, message):
        self.seen.append(message)
        return message


@pytest.mark.parametrize("reply", [None, Reply()])
@pytest.mark.parametrize("message", MESSAGES)
def test_an_entry_gives_back_its_message_and_its_reply(message, reply):
    assert opened(packed(message, reply)) == (message, reply)


@pytest.mark.parametrize("message", MESSAGES)
async def test_any_object_can_be_told_and_asked_also_one_that_looks_like_an_entry(message):
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder)
        ref.tell(message)
        assert await ref.ask(message, block=False) == message
        assert ref._cell.actor.seen == [message, message]
        assert [type(seen) for seen in ref._cell.actor.seen] == [type(message)] * 2


@pytest.mark.parametrize("message", MESSAGES)
async def test_pykkas_view_of_the_inbox_gives_messages_as_they_were_told(message):
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder)
        ref.tell(message)
        envelope = ref.actor_inbox.get()
        assert (envelope.message, envelope.reply_to) == (message, None)
        with pytest.raises(queue.Empty):
            ref.actor_inbox.get()


async def test_an_actor_for_which_nothing_ever_waited_has_no_inbox_and_the_shared_one_stays_empty():
    async with ActorSystem() as system:
        refs = [await system.spawn(Recorder) for _ in range(2)]
        await refs[0].ask("asked", block=False)
        assert refs[0]._cell.inbox is NO_INBOX
        refs[1].tell("told")
        assert [len(ref._cell.inbox) for ref in refs] == [0, 1]
    assert len(NO_INBOX) == 0
