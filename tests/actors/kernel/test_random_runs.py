"""Runs made at random: whatever happens in which order, the guarantees hold."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, TrioActor


class BoomError(Exception):
    """What actors raise here on purpose."""


class Wild(TrioActor):
    """Checks the order of each sender and that it is alone, and otherwise does what chance says."""

    def __init__(self, chance, peers, broken):
        super().__init__()
        self.chance = chance
        self.peers = peers
        self.broken = broken
        self.busy = False
        self.last = {}
        self.sent = dict.fromkeys(range(6), 0)

    def on_start(self):
        return self._pause(0.1) if self.chance.random() < 0.5 else None

    def on_stop(self):
        return self._pause(0.1) if self.chance.random() < 0.5 else None

    def on_failure(self, *exc_info):
        return self._pause(0.1) if self.chance.random() < 0.5 else None

    def on_receive(self, message):
        self._check(message)
        self._act()
        fate = self.chance.random()
        if fate < 0.1:
            raise BoomError
        if fate < 0.15:
            self.actor_ref.stop(now=fate < 0.13)
        if fate > 0.6:
            return self._slow()
        return message

    def _check(self, message):
        sender, number = message
        if self.busy or self.last.get(sender, -1) >= number:
            self.broken.append((sender, number, self.busy, dict(self.last)))
        self.last[sender] = number

    async def _slow(self):
        self.busy = True
        try:
            for _ in range(self.chance.randrange(4)):
                self._act()
                await self._pause(0.1)
        finally:
            self.busy = False

    async def _pause(self, risk):
        await trio.lowlevel.checkpoint()
        if self.chance.random() < risk:
            raise BoomError

    def _act(self):
        which = self.chance.randrange(len(self.peers) * 3)
        with suppress(ActorDeadError):
            if which < len(self.peers):
                self.sent[which] += 1
                send = self.peers[which].tell if self.chance.random() < 0.5 else self.peers[which].ask
                send((id(self), self.sent[which]))
            elif which < 2 * len(self.peers):
                self.start_soon(self._pause, 0.1)


@pytest.mark.parametrize("first", range(0, 200, 20))
async def test_the_order_holds_every_ask_ends_and_no_task_is_left(first):
    for seed in range(first, first + 20):
        await one_run(random.Random(seed))


async def one_run(chance):
    replies, broken = [], []
    before = trio.lowlevel.current_statistics().tasks_living

    async def send(sender):
        for number in range(30):
            peer = chance.choice(peers)
            with suppress(ActorDeadError):
                if chance.random() < 0.5:
                    peer.tell((sender, number))
                else:
                    replies.append(peer.ask((sender, number)))
            if chance.random() < 0.02:
                replies.append(peer.stop())
            if chance.random() < 0.3:
                await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            peers = []
            for _ in range(6):
                replies.append(system.spawn(Wild, chance, peers, broken))
                with suppress(BoomError):
                    peers.append(await replies[-1])
            replies.extend(peer.wait_stopped() for peer in peers)
            if peers:
                async with trio.open_nursery() as nursery:
                    for sender in range(3):
                        nursery.start_soon(send, sender)
            if chance.random() < 0.3:
                scope.cancel()
    assert broken == []
    assert len(system) == 0
    assert all(reply.done() for reply in replies)
    assert trio.lowlevel.current_statistics().tasks_living == before
