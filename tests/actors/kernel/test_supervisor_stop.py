"""How a tree ends: order, shutdown times, cancellation, Ctrl-C."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, ExitKind, TrioActor
from quiesce.actors.kernel.administration import StartChild, TerminateChild
from quiesce.actors.kernel.supervision import AT_ONCE, INFINITE, Backoff, ChildSpec
from quiesce.actors.kernel.supervisor import DynamicSupervisor, Supervisor


def living():
    return trio.lowlevel.current_statistics().tasks_living


class Stubborn(TrioActor):
    """Shields its handler from cancellation for so many seconds."""

    async def on_receive(self, message):
        with trio.CancelScope(shield=True):
            await trio.sleep(message)


async def test_children_stop_in_reverse_order_each_waited_for_and_what_was_sent_before_is_handled(
    family, autojump_clock
):
    family.stops = {"b": 1.0}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("abc"))
        for name in "abc":
            family.refs[name].tell(0)
        await supervisor.stop()
        assert family.take_events() == "+a +b +c 0>a 0>b 0>c -c -b -a"


async def test_after_its_shutdown_time_a_child_is_cancelled_its_hook_too(family, autojump_clock):
    family.stops = {"b": 1_000.0}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [*family.specs("ab", shutdown=2), family.spec("c", shutdown=3)])
        await family.settle()
        asked = family.refs["c"].ask(1_000.0)
        await family.settle()
        since = trio.current_time()
        await supervisor.stop()
        assert trio.current_time() - since == pytest.approx(5, abs=0.1)
        assert family.take_events() == "cancelled ~c -c cancelled -b -a"
        with pytest.raises(ActorDeadError):
            await asked


async def test_infinite_waits_as_long_as_it_takes(family, autojump_clock):
    family.stops = {"a": 10_000.0}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a", shutdown=INFINITE))
        since = trio.current_time()
        await supervisor.stop()
        assert trio.current_time() - since == pytest.approx(10_000)
    assert family.take_events() == "+a -a"


async def test_at_once_cancels_at_once(family, autojump_clock):
    family.stops = {"a": 1.0}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("ab", shutdown=AT_ONCE))
        queued = family.refs["b"].ask("never")
        family.refs["b"].tell(1_000.0)
        since = trio.current_time()
        await family.settle()
        never = family.refs["b"].ask("never")
        await supervisor.stop()
        assert trio.current_time() == since
        assert await queued == ("b", "never")
        with pytest.raises(ActorDeadError):
            await never
        assert family.take_events() == "cancelled ~b -b cancelled -a"


async def test_a_child_that_shields_itself_is_waited_for_with_a_warning_that_names_it(autojump_clock, caplog):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [ChildSpec("rock", Stubborn, shutdown=1)])
        supervisor._cell.actor.child("rock").tell(17.0)
        await trio.testing.wait_all_tasks_blocked()
        with caplog.at_level(logging.WARNING, logger="quiesce.kernel"):
            await supervisor.stop()
        assert trio.current_time() == pytest.approx(17)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["child_does_not_end"] * 3
    assert caplog.records[0].child == "rock"
    assert [record.cancelled_for for record in caplog.records] == pytest.approx([5, 10, 15])


async def test_a_child_that_fails_while_stopping_keeps_nobody_else_from_being_stopped(family):
    family.stops = {"b": ValueError("on_stop")}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("abc"))
        ends = [family.refs[name].wait_stopped() for name in "abc"]
        await supervisor.stop()
        assert [end.get().kind for end in ends] == [ExitKind.SHUTDOWN, ExitKind.CRASHED, ExitKind.SHUTDOWN]
    assert family.take_events() == "+a +b +c -c -?b -a"


async def test_a_child_that_ends_by_itself_while_another_is_being_stopped_is_not_restarted(family, autojump_clock):
    family.stops = {"c": 2.0}
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("abc"))
        await family.settle()
        stopped = supervisor.stop()
        await family.settle()
        family.crash("a")
        await stopped
    assert family.take_events() == "!a -c -b"
    assert not family.refs["a"].is_alive()


async def test_a_crash_during_the_stop_of_its_own_child_is_still_a_stop(family, autojump_clock):
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, family.specs("a"))
        family.refs["a"].tell(1.0)
        await family.settle()
        terminated = supervisor.ask(TerminateChild("a"))
        family.crash("a")
        await terminated
        assert family.take_events() == "~a !a" or family.take_events() == ""
        assert not family.refs["a"].is_alive()


async def test_a_tree_stops_depth_first_and_the_system_leaves_it_to_the_supervisors(family):
    sub = ChildSpec("sub", partial(Supervisor, family.specs("xy")), kind="supervisor")
    async with ActorSystem() as system:
        await system.spawn(Supervisor, [family.spec("a"), sub, family.spec("b")])
        await family.settle()
    assert family.take_events() == "-b -y -x -a"


async def test_stopping_a_supervisor_now_lets_its_children_end_now(family, autojump_clock):
    async with ActorSystem() as system:
        await trio.testing.wait_all_tasks_blocked()
        before = living()
        supervisor = await system.spawn(Supervisor, family.specs("ab"))
        await family.settle()
        family.refs["a"].tell(1_000.0)
        await family.settle()
        queued = family.refs["a"].ask("never")
        await supervisor.stop(now=True)
        assert trio.current_time() == 0
        assert family.take_events() == "-b cancelled ~a -a"
        with pytest.raises(ActorDeadError):
            await queued
        assert living() == before


async def test_a_supervisor_whose_own_shutdown_time_is_over_cancels_what_it_has(family, autojump_clock):
    family.stops = dict.fromkeys("xyz", 100.0)
    sub = ChildSpec("sub", partial(Supervisor, family.specs("xyz", shutdown=1_000)), kind="supervisor", shutdown=3)
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [sub])
        await family.settle()
        await supervisor.stop()
        assert trio.current_time() == pytest.approx(3, abs=0.1)
    assert family.take_events() == "cancelled -z cancelled -y cancelled -x"


@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_cancelling_the_system_from_outside_leaves_nothing(family, kind):
    before = living()
    family.stops = {"b": 1_000.0}
    with trio.CancelScope() as scope:
        async with ActorSystem() as system:
            supervisor = await system.spawn(kind)
            for spec in family.specs("abc"):
                await supervisor.ask(StartChild(spec))
            replies = [family.refs["a"].ask(1_000.0), family.refs["a"].ask("queued")]
            await family.settle()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert living() == before
    assert len(system) == 0
    events = family.take_events()
    assert sorted(events.split()) == sorted(["cancelled", "~a", "-a", "cancelled", "-b", "-c"])
    if kind is Supervisor:
        assert events.index("-c") < events.index("-b")  # a was at work, and Trio cancels all work at the same moment
    for reply in replies:
        with pytest.raises(ActorDeadError):
            reply.get()


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_keyboard_interrupt_in_a_handler_reaches_the_host_and_the_tree_stops_in_order(family, strategy):
    async def main():
        async with ActorSystem() as system:
            await system.spawn(Supervisor, family.specs("abc"), strategy=strategy)
            await family.settle()
            family.crash("b", KeyboardInterrupt())
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert family.take_events() == "!b -c -a"


def test_ctrl_c_in_a_child_is_no_restart_and_leaves_no_group(family):
    class Interrupted(TrioActor):
        async def on_receive(self, message):
            await trio.lowlevel.checkpoint()
            signal.raise_signal(signal.SIGINT)

    async def main():
        async with ActorSystem() as system:
            supervisor = await system.spawn(
                Supervisor, [*family.specs("ab"), ChildSpec("c", Interrupted)], backoff=Backoff()
            )
            supervisor._cell.actor.child("c").tell(1)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert family.take_events() == "+a +b -b -a"


def test_what_is_no_exception_in_a_restart_reaches_the_host(family):
    async def main():
        async with ActorSystem() as system:
            await system.spawn(Supervisor, family.specs("ab"))
            await family.settle()
            family.starts = {"b": [SystemExit(3)]}
            family.crash("b")
            await trio.sleep_forever()

    with pytest.raises(SystemExit, match="3"):
        trio.run(main)
    assert family.take_events() == "!b ?b -a"


async def test_the_hosts_block_sees_nothing_of_a_crash(family):
    async with ActorSystem() as system:
        await system.spawn(Supervisor, family.specs("abc"))
        for name in "abc":
            family.crash(name, ExceptionGroup("several", [ValueError(), KeyError()]))
        await family.settle()


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when tasks have run for a number of steps."""

    def __init__(self, scope, steps):
        self.scope, self.left = scope, steps

    def before_task_step(self, task):
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_a_cancellation_at_each_step_of_a_tree_leaves_nothing(family, strategy):
    """Cancel at the first step, then at the second, and so on until the run is through."""

    async def run(replies):
        sub = ChildSpec("sub", partial(Supervisor, family.specs("xy"), strategy=strategy), kind="supervisor")
        async with ActorSystem() as system:
            supervisor = await system.spawn(Supervisor, [family.spec("a"), sub], strategy=strategy)
            dynamic = await system.spawn(DynamicSupervisor)
            await dynamic.ask(StartChild(family.spec("d")))
            for name in "axd":
                with suppress(ActorDeadError):  # where x goes with a, it comes back at another address
                    family.crash(name)
                    replies.append(family.refs[name].ask("after"))
                    await replies[-1]
            replies.append(supervisor.ask(TerminateChild("a")))
            await replies[-1]
            replies.append(supervisor.stop())

    before, step, cancelled = living(), 0, True
    while cancelled:
        step += 1
        replies = []
        family.starts = {"x": [0.0] * 3, "d": [0.0] * 3}
        family.stops = {"y": 0.0, "d": 0.0}
        with trio.CancelScope() as scope:
            instrument = CancelAt(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await run(replies)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert living() == before, step
        assert all(reply.done() for reply in replies), step
        cancelled = scope.cancel_called
    assert 50 < step < 2_000


async def test_stopping_a_supervisor_now_hurries_a_stop_that_is_under_way_down_the_tree(family, autojump_clock):
    sub = ChildSpec("sub", partial(Supervisor, family.specs("xy", shutdown=INFINITE)), kind="supervisor")
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor, [sub])
        await family.settle()
        family.refs["x"].tell(1_000.0)
        stopped = supervisor.stop()
        await family.settle()
        assert await supervisor.stop(now=True)
        assert await stopped
        assert trio.current_time() == 0
    assert not family.refs["x"].is_alive()


async def test_a_stop_in_child_order_goes_on_while_a_killed_child_shields_itself(autojump_clock, family):
    async with ActorSystem() as system:
        supervisor = await system.spawn(
            Supervisor, [family.spec("a"), ChildSpec("rock", Stubborn, shutdown=AT_ONCE), family.spec("b")]
        )
        supervisor._cell.actor.child("rock").tell(30.0)
        await family.settle()
        await supervisor.stop()
        assert trio.current_time() == pytest.approx(30)
    assert family.take_events() == "-b -a"
