"""Bounded inboxes: who is refused, who waits, in which order, and what a sender that gives up leaves behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorDeadError,
    ActorSystem,
    ChildSpec,
    Exit,
    ExitKind,
    InboxFullError,
    Intensity,
    SelfWaitError,
    Supervisor,
    Terminated,
    TrioActor,
    WhichChildren,
)


class Bounded(TrioActor):
    """Handles nothing until its gate is open; then records what it handles."""

    inbox_limit = 2

    def __init__(self):
        super().__init__()
        self.gate = trio.Event()
        self.seen = []

    async def on_receive(self, message):
        await self.gate.wait()
        if callable(message):
            return await message(self)
        self.seen.append(message)
        return message


class Free(Bounded):
    inbox_limit = None


class Waiting(Bounded):
    inbox_policy = "wait"


async def busy(system, cls=Bounded):
    """Spawn an actor with one message under way and an empty inbox."""
    ref = await system.spawn(cls)
    ref.tell("first")
    await trio.testing.wait_all_tasks_blocked()
    assert ref.statistics().inbox_length == 0
    return ref, ref._cell.actor


async def test_a_full_inbox_refuses_a_tell_and_takes_one_again_when_there_is_room():
    async with ActorSystem() as system:
        ref, actor = await busy(system)
        ref.tell(1)
        ref.tell(2)
        with pytest.raises(InboxFullError, match=r"Bounded .* holds 2 messages"):
            ref.tell(3)
        actor.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(4)
        await ref.stop()
        assert actor.seen == ["first", 1, 2, 4]


async def test_a_full_inbox_fails_an_ask():
    async with ActorSystem() as system:
        ref, actor = await busy(system)
        asked = [ref.ask(number) for number in range(3)]
        with pytest.raises(InboxFullError):
            await asked[2]
        actor.gate.set()
        assert [await reply for reply in asked[:2]] == [0, 1]


async def test_a_full_inbox_that_refuses_refuses_send_too():
    async with ActorSystem() as system:
        ref, actor = await busy(system)
        await ref.send(1)
        await ref.send(2)
        with pytest.raises(InboxFullError):
            await ref.send(3)
        actor.gate.set()


async def test_stop_in_turn_and_stop_now_are_never_refused():
    async with ActorSystem() as system:
        ref, actor = await busy(system)
        ref.tell(1)
        ref.tell(2)
        stopping = ref.stop()
        actor.gate.set()
        assert await stopping is True
        assert actor.seen == ["first", 1, 2]
        ref, actor = await busy(system)
        ref.tell(1)
        ref.tell(2)
        assert await ref.stop(now=True) is True


async def test_timers_and_monitors_are_never_refused(autojump_clock):
    seen = []

    class Watcher(Bounded):
        inbox_limit = 1

        def on_receive(self, message):
            if isinstance(message, (str, Terminated)):
                seen.append(message)
                return None
            return super().on_receive(message)

    async with ActorSystem() as system:
        ref = await system.spawn(Watcher)
        other = await system.spawn(Bounded)
        await ref.ask("watch")
        actor = ref._cell.actor
        actor.monitor(other)
        actor.timers.once("a", 1, "tick")
        ref.tell(0)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(1)
        with pytest.raises(InboxFullError):
            ref.tell("too much")
        await other.stop()
        await trio.sleep(2)
        actor.gate.set()
        await ref.stop()
    assert seen == ["watch", Terminated(other, Exit(ExitKind.NORMAL)), "tick"]


async def test_senders_wait_for_room_first_come_first_served():
    steps = []

    async def send(ref, number):
        await ref.send(number)
        steps.append(number)

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref, actor = await busy(system, Waiting)
        for number in range(6):
            nursery.start_soon(send, ref, number)
            await trio.testing.wait_all_tasks_blocked()
        assert steps == [0, 1]
        assert ref.statistics().senders_waiting == 4
        actor.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert steps == [0, 1, 2, 3, 4, 5]
        await ref.stop()
        assert actor.seen == ["first", 0, 1, 2, 3, 4, 5]


async def test_a_tell_is_refused_and_does_not_go_past_those_who_wait():
    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref, actor = await busy(system, Waiting)
        ref.tell(1)
        ref.tell(2)
        nursery.start_soon(ref.send, "waits")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InboxFullError):
            ref.tell("goes past")
        with pytest.raises(InboxFullError):
            await ref.ask("goes past")
        actor.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert actor.seen == ["first", 1, 2, "waits"]


async def test_a_sender_that_is_cancelled_while_it_waits_has_sent_nothing():
    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref, actor = await busy(system, Waiting)
        ref.tell(1)
        ref.tell(2)
        scope = trio.CancelScope()

        async def cancelled():
            with scope:
                await ref.send("cancelled while it waits")

        nursery.start_soon(cancelled)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ref.send, "stays")
        await trio.testing.wait_all_tasks_blocked()
        assert ref.statistics().senders_waiting == 2
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert ref.statistics().senders_waiting == 1
        with trio.CancelScope() as before:
            before.cancel()
            await ref.send("cancelled before it waits")
        assert ref.statistics().senders_waiting == 1
        actor.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert actor.seen == ["first", 1, 2, "stays"]


async def test_a_sender_whose_message_is_in_has_sent_it_even_if_it_is_cancelled_in_the_same_moment():
    async with ActorSystem() as system:
        ref, actor = await busy(system, Waiting)
        ref.tell(1)
        ref.tell(2)
        sent = []
        scope = trio.CancelScope()

        async def sender():
            with scope:
                await ref.send("sent")
                sent.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender)
            await trio.testing.wait_all_tasks_blocked()
            ref._cell.inbox.popleft()
            scope.cancel()
        assert sent == [True]
        actor.gate.set()
        await ref.stop()
        assert actor.seen == ["first", 2, "sent"]


async def test_those_who_wait_learn_that_the_actor_died():
    async with ActorSystem() as system, trio.open_nursery() as nursery:
        ref, _ = await busy(system, Waiting)
        ref.tell(1)
        ref.tell(2)

        async def sender():
            with pytest.raises(ActorDeadError):
                await ref.send(3)

        nursery.start_soon(sender)
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(now=True)
        with pytest.raises(ActorDeadError):
            await ref.send(4)


async def test_a_handler_that_would_wait_for_room_in_its_own_inbox_is_told_so():
    async with ActorSystem() as system:
        ref = await system.spawn(Waiting)
        ref._cell.actor.gate.set()

        async def flood(self):
            for number in range(3):
                await self.actor_ref.send(number)

        with pytest.raises(SelfWaitError):
            await ref.ask(flood)
        await ref.stop()
        assert ref.statistics().senders_waiting == 0


async def test_a_limit_given_at_the_spawn_has_the_say():
    async with ActorSystem() as system:
        ref = await system.options(inbox_limit=1, inbox_policy="wait").spawn(Bounded)
        assert ref.statistics().inbox_limit == 1
        assert ref._cell.inbox.waits
        assert (await system.spawn(Bounded)).statistics().inbox_limit == 2
        assert (await system.spawn(Free)).statistics().inbox_limit is None


async def test_send_to_an_actor_without_a_limit_is_a_tell_that_honours_cancellation():
    async with ActorSystem() as system:
        ref = await system.spawn(Free)
        await ref.send(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.send(2)
        ref._cell.actor.gate.set()
        await ref.stop()
        assert ref.statistics().handled == 2  # the message and the stop


async def test_a_sender_that_never_waits_gives_way_now_and_then():
    ticks = iter(range(10**9))
    system = ActorSystem(work_clock=lambda: next(ticks) * 1e-4)
    turns = []

    async def other():
        while True:
            turns.append(True)
            await trio.lowlevel.checkpoint()

    async with system, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        living = await system.spawn(Bounded)
        living._cell.actor.gate.set()
        for _ in range(100):
            await living.send("x") if living.statistics().inbox_length < 2 else await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(turns) > 5


@pytest.mark.parametrize("policy", ["refuse", "wait"])
def test_threads_never_get_more_in_than_the_limit_and_lose_nothing_that_was_taken(policy):
    class Slow(TrioActor):
        inbox_limit = 10
        inbox_policy = policy

        def __init__(self):
            super().__init__()
            self.seen = []
            self.longest = 0

        def on_receive(self, message):
            self.longest = max(self.longest, len(self.actor_inbox))
            self.seen.append(message)

    taken = []

    def sender(ref, name):
        for number in range(300):
            try:
                ref.tell((name, number))
            except InboxFullError:
                continue
            taken.append((name, number))

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Slow).get()
        actor = ref._cell.actor
        threads = [threading.Thread(target=sender, args=(ref, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ref.stop()
    assert sorted(actor.seen) == sorted(taken)
    assert actor.longest <= 10
    for name in range(4):
        assert [message for message in actor.seen if message[0] == name] == sorted(
            message for message in taken if message[0] == name
        )


def test_a_task_of_another_loop_waits_for_room():
    async def send_all(ref):
        for number in range(50):
            await ref.send(number)

    class Handles(TrioActor):
        inbox_limit = 2
        inbox_policy = "wait"

        def __init__(self):
            super().__init__()
            self.seen = []

        async def on_receive(self, message):
            await trio.lowlevel.checkpoint()
            self.seen.append(message)

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Handles).get()
        actor = ref._cell.actor
        trio.run(send_all, ref)
        ref.stop()
    assert actor.seen == list(range(50))


def test_a_blocking_ask_from_a_thread_is_refused_by_a_full_inbox():
    class Blocked(TrioActor):
        inbox_limit = 1

        def __init__(self):
            super().__init__()
            self.gate = trio.Event()

        async def on_receive(self, message):
            if message == "wait":
                entered.set()
                await self.gate.wait()
            return message

    entered = threading.Event()
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Blocked).get()
        ref.tell("wait")
        entered.wait()
        waiting = ref.ask("in", block=False)
        with pytest.raises(InboxFullError):
            ref.ask("out")
        system.call_soon(ref._cell.actor.gate.set)
        assert waiting.get() == "in"


@pytest.mark.parametrize(("name", "value"), [("inbox_limit", 0), ("inbox_limit", "2"), ("inbox_policy", "drop")])
def test_a_class_whose_bounds_make_no_sense_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        type("Wrong", (TrioActor,), {name: value})


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError), (2.0, TypeError), (True, TypeError)]
)
def test_a_limit_at_the_spawn_that_makes_no_sense_is_refused_by_name(limit, error):
    with pytest.raises(error, match=f"^inbox_limit must be .*, not {limit!r}$"):
        ActorSystem().options(inbox_limit=limit)


@pytest.mark.parametrize("limit", [True, False])
def test_a_bool_is_no_limit_of_a_class_either(limit):
    with pytest.raises(ValueError, match="inbox_limit"):
        type("Wrong", (TrioActor,), {"inbox_limit": limit})


class Restarted(TrioActor):
    """Under a supervisor: does what the message says when the gate opens; one place in the inbox."""

    inbox_limit = 1
    inbox_policy = "wait"

    def __init__(self, gate, seen):
        super().__init__()
        self.gate = gate
        self.seen = seen

    async def on_receive(self, message):
        self.seen.append(message)
        if message == "crash later":
            await self.gate.wait()
            raise ValueError
        if message == "stop itself":
            await self.gate.wait()
            self.stop()
        if message == "crash":
            raise ValueError


def _stops(ref, _sibling):
    ref.stop(block=False)


def _sibling_crashes(_ref, sibling):
    sibling.tell("crash")


def _nothing(_ref, _sibling):
    pass


@pytest.mark.parametrize("senders", [1, 3])
@pytest.mark.parametrize("meanwhile", [_stops, _sibling_crashes, _nothing])
@pytest.mark.parametrize("first", ["crash later", "stop itself"])
async def test_a_restart_that_makes_room_lets_those_in_who_wait(first, meanwhile, senders):
    gate, seen = trio.Event(), []
    spec = partial(Restarted, gate, seen)
    with trio.fail_after(20):
        async with ActorSystem() as system:
            supervisor = await system.spawn(
                Supervisor,
                [ChildSpec("sibling", partial(Restarted, gate, [])), ChildSpec("child", spec)],
                strategy="one_for_all",
                intensity=Intensity(100),
            )
            sibling, ref = (info.ref for info in await supervisor.ask(WhichChildren()))
            ref.tell(first)
            await trio.testing.wait_all_tasks_blocked()
            meanwhile(ref, sibling)
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as nursery:
                for number in range(senders):
                    nursery.start_soon(ref.send, number)
                    await trio.testing.wait_all_tasks_blocked()
                gate.set()
            await ref.send("last")
            await trio.testing.wait_all_tasks_blocked()
            assert ref.statistics().senders_waiting == 0
    assert seen == [first, *range(senders), "last"]


async def test_what_a_thread_told_before_the_inbox_became_bounded_and_full_is_a_dead_letter():
    class Unbounded(TrioActor):
        def on_receive(self, message):
            raise ValueError

    class Two(Bounded):
        inbox_limit = 2

    def start():
        return classes.pop(0)()

    def send_all(ref):
        for number in range(4):
            ref.tell(number)
        return ref.ask("asked", block=False)

    def send_and_start():
        replies.append(from_another_thread(send_all, ref))
        return Two()

    classes, replies, letters = [Unbounded, send_and_start], [], []
    async with ActorSystem() as system:
        system.dead_letters.subscribe(letters.append)
        supervisor = await system.spawn(Supervisor, [ChildSpec("child", start)])
        ref = (await supervisor.ask(WhichChildren()))[0].ref
        ref.tell("crash")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InboxFullError):
            replies[0].get()
        assert ref.incarnation == 2
        actor = ref._cell.actor
        actor.gate.set()
        await ref.ask("behind", block=False)
        await ref.stop(now=True)
    assert [letter.message for letter in letters] == [2, 3]


@pytest.mark.parametrize("policy", [None, "refuse", "wait"])
async def test_a_limit_given_at_the_spawn_holds_while_the_actor_is_made(policy):
    refused = []

    def send_all():
        for number in range(4):
            try:
                system.lookup("named").tell(number)
            except InboxFullError:
                refused.append(number)

    class Made(TrioActor):
        inbox_policy = "wait"

        def __init__(self):
            from_another_thread(send_all)
            super().__init__()

    async with ActorSystem() as system:
        ref = await system.options(name="named", inbox_limit=2, inbox_policy=policy).spawn(Made)
        await trio.testing.wait_all_tasks_blocked()
        assert ref._cell.inbox.waits == (policy != "refuse")
    assert refused == [2, 3]


def from_another_thread(call, *args):
    """Have a thread do something, while the loop's own thread is busy with waiting for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result()
