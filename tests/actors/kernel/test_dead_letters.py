"""Dead letters: what no actor handled is counted, and shown to whoever subscribes."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, DeadLetter, InboxFullError, TrioActor, receive


class Target(TrioActor):
    async def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        await trio.sleep_forever()


class Undertaker(TrioActor):
    def __init__(self):
        super().__init__()
        self.letters = []

    def on_receive(self, message):
        return self.letters

    @receive(DeadLetter)
    def letter(self, message: DeadLetter) -> None:
        self.letters.append((message.message, message.ref))


async def test_messages_that_waited_when_their_actor_stopped_are_dead_letters():
    async with ActorSystem() as system:
        letters = []
        system.dead_letters.subscribe(letters.append)
        ref = await system.spawn(Target)
        for message in ("under way", "told", "told too"):
            ref.tell(message)
        asked = ref.ask("asked")
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(now=True)
        assert letters == [DeadLetter(message, ref) for message in ("told", "told too", "asked")]
        assert system.dead_letters.count == 3
        with pytest.raises(ActorDeadError):
            await asked


async def test_messages_that_waited_when_their_actor_crashed_are_dead_letters():
    async with ActorSystem() as system:
        letters = []
        system.dead_letters.subscribe(letters.append)
        ref = await system.spawn(Target)
        ref.tell(ValueError("boom"))
        ref.tell("behind")
        await ref.wait_stopped()
        assert letters == [DeadLetter("behind", ref)]


async def test_a_message_to_a_dead_actor_is_a_dead_letter_and_its_sender_is_told():
    async with ActorSystem() as system:
        letters = []
        system.dead_letters.subscribe(letters.append)
        ref = await system.spawn(Target)
        await ref.stop()
        with pytest.raises(ActorDeadError):
            ref.tell("told")
        with pytest.raises(ActorDeadError):
            await ref.ask("asked")
        assert letters == [DeadLetter("told", ref), DeadLetter("asked", ref)]


async def test_an_actor_may_subscribe():
    async with ActorSystem() as system:
        undertaker, ref = await system.spawn(Undertaker), await system.spawn(Target)
        system.dead_letters.subscribe(undertaker)
        await ref.stop()
        with pytest.raises(ActorDeadError):
            ref.tell("lost")
        assert await undertaker.ask("letters") == [("lost", ref)]


async def test_stops_timers_and_monitors_are_no_dead_letters(autojump_clock):
    async with ActorSystem() as system:
        ref, other = await system.spawn(Target), await system.spawn(Target)
        actor = ref._cell.actor
        actor.timers.once("a", 1, "tick")
        actor.monitor(other)
        ref.tell("under way")
        await trio.testing.wait_all_tasks_blocked()
        await other.stop()
        await trio.sleep(2)
        stopping = ref.stop()
        await ref.stop(now=True)
        await stopping
        assert await ref.stop() is False
        assert system.dead_letters.count == 0


async def test_a_message_that_a_full_inbox_refuses_is_no_dead_letter():
    async with ActorSystem() as system:
        ref = await system.options(inbox_limit=1).spawn(Target)
        ref.tell("under way")
        await trio.testing.wait_all_tasks_blocked()
        ref.tell("in")
        with pytest.raises(InboxFullError):
            ref.tell("out")
        await ref.stop(now=True)
        assert system.dead_letters.count == 1


async def test_a_message_whose_sender_still_waited_for_room_is_a_dead_letter():
    async with ActorSystem() as system, trio.open_nursery() as nursery:
        letters = []
        system.dead_letters.subscribe(letters.append)
        ref = await system.options(inbox_limit=1, inbox_policy="wait").spawn(Target)
        ref.tell("under way")
        await trio.testing.wait_all_tasks_blocked()
        ref.tell("in")

        async def sender():
            with pytest.raises(ActorDeadError):
                await ref.send("waits")

        nursery.start_soon(sender)
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(now=True)
        assert [letter.message for letter in letters] == ["in", "waits"]


async def test_whoever_unsubscribes_is_told_no_more():
    async with ActorSystem() as system:
        letters = []
        ref = await system.spawn(Target)
        await ref.stop()
        system.dead_letters.subscribe(letters.append)
        system.dead_letters.unsubscribe(letters.append)
        system.dead_letters.unsubscribe(print)
        with pytest.raises(ActorDeadError):
            ref.tell("lost")
        assert letters == []


async def test_a_subscriber_that_is_dead_is_dropped_and_makes_no_letters_itself():
    async with ActorSystem() as system:
        undertaker, ref = await system.spawn(Undertaker), await system.spawn(Target)
        system.dead_letters.subscribe(undertaker)
        await undertaker.stop()
        await ref.stop()
        for _ in range(2):
            with pytest.raises(ActorDeadError):
                ref.tell("lost")
        assert system.dead_letters._subscribers == {}
        assert system.dead_letters.count == 3  # its own letter, once, among them


async def test_a_subscriber_that_raises_harms_nobody():
    async with ActorSystem() as system:
        letters = []
        system.dead_letters.subscribe(lambda letter: 1 / 0)
        system.dead_letters.subscribe(letters.append)
        ref = await system.spawn(Target)
        await ref.stop()
        with pytest.raises(ActorDeadError):
            ref.tell("lost")
        assert letters == [DeadLetter("lost", ref)]


async def test_letters_that_a_subscriber_makes_are_counted_and_go_round_no_further():
    async with ActorSystem() as system:
        ref = await system.spawn(Target)
        await ref.stop()
        system.dead_letters.subscribe(ref.tell)
        with pytest.raises(ActorDeadError):
            ref.tell("lost")
        assert system.dead_letters.count == 2


def test_a_message_from_a_thread_is_a_dead_letter_too():
    letters = []
    told = threading.Event()

    def subscriber(letter):
        letters.append((letter.message, threading.get_ident()))
        told.set()

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Target).get()
        ref.stop()
        system.dead_letters.subscribe(subscriber)
        with pytest.raises(ActorDeadError):
            ref.tell("lost")
        assert told.wait(60)
        assert letters == [("lost", system.thread)]


async def test_what_a_restarted_actor_will_still_handle_is_no_dead_letter():
    async with ActorSystem() as system:
        ref = await system.spawn(Target)
        cell = ref._cell

        class KeepOnce:
            def keeps(self, exit_):
                return True

            def stops(self):
                return False

            def heeds_stop(self):
                return False

            def ended(self, exit_, *, heeding):
                cell.owner = None
                cell.revive(Undertaker)

        cell.owner = KeepOnce()
        ref.tell(ValueError("boom"))
        ref.tell("waits")
        await ref.ask("handled")
        assert system.dead_letters.count == 0
