"""What belongs to one incarnation of a supervised actor, and what to its address."""

from __future__ import annotations

from functools import partial

import pytest
import structlog
import trio
import trio.testing

from quiesce.actors.kernel import (
    ActorSystem,
    ChildSpec,
    ExitKind,
    InboxFullError,
    Intensity,
    Observer,
    Supervisor,
    SupervisorGaveUpError,
    Terminated,
    TrioActor,
    receive,
)
from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.states import EXITING


class Child(TrioActor):
    def __init__(self, born):
        super().__init__()
        self.seen = []
        born.append(self)

    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        if callable(message):
            return message(self)
        self.seen.append(message)
        return list(self.seen)

    @receive(Terminated)
    def terminated(self, message: Terminated) -> None:
        self.seen.append(message)


async def supervised(system, cls=Child, **fields):
    """Put one child under a supervisor; return the supervisor's ref, the child's, and the list of its incarnations."""
    born = []
    supervisor = await system.spawn(Supervisor, [ChildSpec("child", partial(cls, born))], **fields)
    return supervisor, born[0].actor_ref, born


async def test_a_monitor_tells_nothing_of_a_restart_and_once_of_the_end_for_good(autojump_clock):
    async with ActorSystem() as system:
        supervisor, ref, born = await supervised(system)
        watcher = await system.spawn(Child, [])
        await watcher.ask(lambda self: self.monitor(ref))
        ref.tell(ValueError("boom"))
        assert await ref.ask("alive") == ["alive"]
        assert len(born) == 2
        assert await watcher.ask("look") == ["look"]
        await supervisor.stop()
        _, told, _ = await watcher.ask("look again")
        assert told.ref is ref
        assert told.exit.kind is ExitKind.SHUTDOWN


async def test_a_monitor_tells_when_the_supervisor_gives_up():
    async with ActorSystem() as system:
        supervisor, ref, _ = await supervised(system, intensity=Intensity(0, 1.0))
        watcher = await system.spawn(Child, [])
        await watcher.ask(lambda self: [self.monitor(ref), self.monitor(supervisor)])
        error = ValueError("boom")
        ref.tell(error)
        await supervisor.wait_stopped()
        child, above, _ = await watcher.ask("look")
        assert (child.ref, child.exit.error) == (ref, error)
        assert above.ref is supervisor
        assert isinstance(above.exit.error, SupervisorGaveUpError)


async def test_timers_and_monitors_end_with_the_incarnation_that_made_them(autojump_clock):
    async with ActorSystem() as system:
        _, ref, _ = await supervised(system)
        target = await system.spawn(Child, [])

        async def prepare(self):
            self.timers.every("a", 1, "tick")
            self.timers.once("b", 0.5, "tick")
            self.monitor(target)
            await trio.sleep(0.75)  # one of the ticks waits in the inbox
            await target.stop()
            self.actor_ref.tell("kept")
            raise ValueError("boom")

        ref.tell(prepare)
        await trio.sleep(5)
        assert await ref.ask("look") == ["kept", "look"]
        assert system.statistics().timers == 0
        assert ref.statistics().timers == 0


async def test_an_incarnation_may_set_the_timers_of_its_own(autojump_clock):
    class Ticking(Child):
        def on_start(self):
            self.timers.every("a", 1, "tick")

    async with ActorSystem() as system:
        _, ref, _ = await supervised(system, Ticking)
        ref.tell(ValueError("boom"))
        await trio.sleep(2.5)
        assert await ref.ask("look") == ["tick", "tick", "look"]


async def test_a_bounded_inbox_and_its_senders_outlive_a_restart():
    class Bounded(Child):
        inbox_limit = 2
        inbox_policy = "wait"

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        _, ref, born = await supervised(system, Bounded)
        gate = trio.Event()

        async def crash(self):
            await gate.wait()
            raise ValueError("boom")

        ref.tell(crash)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(4):
            nursery.start_soon(ref.send, number)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InboxFullError):
            ref.tell("too much")
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [incarnation.seen for incarnation in born] == [[], [0, 1, 2, 3]]
        assert ref.statistics().inbox_limit == 2
        assert system.dead_letters.count == 0


async def test_statistics_count_restarts_as_starts_and_messages_over_all_incarnations(autojump_clock):
    async with ActorSystem() as system:
        _, ref, _ = await supervised(system)
        await ref.ask(1)
        await trio.sleep(10)
        ref.tell(ValueError("boom"))
        await ref.ask(2)
        await trio.sleep(3)
        seen = ref.statistics()
        assert (seen.incarnation, seen.handled, seen.age) == (2, 3, 3)
        assert (system.statistics().started, system.statistics().crashed) == (
            3,
            1,
        )  # the supervisor is one of the three


async def test_an_observer_is_told_of_each_incarnation():
    class Recorder(Observer):
        def __init__(self):
            self.events = []

        def on_start(self, ref):
            self.events.append(("start", ref.actor_class.__name__, ref.incarnation))

        def on_exit(self, ref, exit_):
            self.events.append((exit_.kind.value, ref.actor_class.__name__, ref.incarnation))

    observer = Recorder()
    async with ActorSystem(observer=observer) as system:
        _, ref, _ = await supervised(system)
        ref.tell(ValueError("boom"))
        await ref.ask("alive")
    assert observer.events == [
        ("start", "Child", 1),
        ("start", "Supervisor", 1),
        ("crashed", "Child", 1),
        ("start", "Child", 2),
        ("shutdown", "Child", 2),
        ("shutdown", "Supervisor", 1),
    ]


async def test_restarts_and_giving_up_are_logged():
    with structlog.testing.capture_logs() as entries:
        structlog.configure(processors=structlog.get_config()["processors"])
        async with ActorSystem() as system:
            supervisor, ref, _ = await supervised(system, intensity=Intensity(1, 60.0))
            ref.tell(ValueError("boom"))
            await ref.ask("alive")
            ref.tell(ValueError("again"))
            await supervisor.wait_stopped()
    structlog.reset_defaults()
    assert [(entry["event"], entry["actor"].split()[0], entry["incarnation"]) for entry in entries] == [
        ("actor_started", "Child", 1),
        ("actor_started", "Supervisor", 1),
        ("actor_crashed", "Child", 1),
        ("actor_restarted", "Child", 2),
        ("actor_crashed", "Child", 2),
        ("supervisor_gave_up", "Supervisor", 1),
        ("actor_crashed", "Supervisor", 1),
    ]


class Watched(ActorCell):
    """Writes down every change of what other threads look at to learn whether the actor is alive."""

    __slots__ = ("changes",)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "incarnation" and value == 1:
            super().__setattr__("changes", [])
        elif name in {"state", "kept"} and hasattr(self, "changes"):
            self.changes.append((self.state, self.kept))


def reads_as_dead(changes):
    """Return the moments at which a thread that reads the state, and later `kept`, takes the actor for dead."""
    return [
        (earlier, later)
        for later, (_, kept) in enumerate(changes)
        for earlier, (state, _) in enumerate(changes[: later + 1])
        if state >= EXITING and not kept
    ]


@pytest.mark.parametrize("end", [ValueError("boom"), lambda self: self.stop()], ids=["crash", "stop"])
async def test_no_thread_ever_takes_a_child_that_is_restarted_for_dead(end, autojump_clock):
    async with ActorSystem() as system:
        system._cell_class = Watched
        _, ref, _ = await supervised(system, intensity=Intensity(10))
        for _ in range(3):
            ref.tell(end)
            assert await ref.ask("alive") == ["alive"]
        await trio.testing.wait_all_tasks_blocked()
        changes = list(ref._cell.changes)
        assert ref.incarnation == 4
        assert not ref.actor_stopped.is_set()
    assert reads_as_dead(changes) == []
    assert reads_as_dead(ref._cell.changes)


async def test_the_event_of_a_child_that_is_being_restarted_is_not_set():
    class Asked(Child):
        async def on_stop(self):
            events.append(self.actor_ref.actor_stopped)
            await trio.lowlevel.checkpoint()

    events = []
    async with ActorSystem() as system:
        _, ref, _ = await supervised(system, Asked)
        ref.tell(lambda self: self.stop())
        await trio.testing.wait_all_tasks_blocked()
        assert ref.incarnation == 2
        assert not events[0].is_set()
    assert events[0].is_set()
