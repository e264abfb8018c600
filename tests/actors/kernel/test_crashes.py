"""A crash ends one actor; what is no `Exception` reaches the host; everybody who asked is answered."""

from __future__ import annotations

import logging
import signal
import sys

import pytest
import structlog
import trio
import trio.testing

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, TrioActor

events: list[object] = []


@pytest.fixture(autouse=True)
def _fresh_events():
    events.clear()


class Fragile(TrioActor):
    """Raises the exception that it is sent; inside an `async def` when that comes in a list."""

    def __init__(self, name="fragile"):
        super().__init__()
        self.name = name

    def on_receive(self, message):
        if isinstance(message, list):
            return self._raise_later(message[0])
        if isinstance(message, BaseException):
            raise message
        return message

    async def _raise_later(self, error):
        await trio.lowlevel.checkpoint()
        raise error

    def on_stop(self):
        events.append(f"{self.name} on_stop")

    def on_failure(self, kind, error, traceback):
        assert kind is type(error)
        assert traceback is error.__traceback__
        events.append((f"{self.name} on_failure", error))


def wrap(error, kind):
    return [error] if kind == "async" else error


KINDS = pytest.mark.parametrize("kind", ["def", "async"])


@KINDS
async def test_an_exception_while_handling_an_ask_goes_to_the_asker_and_the_actor_lives(kind):
    async with ActorSystem() as system:
        ref = await system.spawn(Fragile)
        with pytest.raises(ValueError, match="to the asker"):
            await ref.ask(wrap(ValueError("to the asker"), kind))
        assert await ref.ask("still there") == "still there"
    assert events == ["fragile on_stop"]


@KINDS
async def test_an_exception_while_handling_a_tell_ends_that_actor_and_no_other(kind):
    error = ValueError("boom")
    async with ActorSystem() as system:
        ref, sibling = await system.spawn(Fragile), await system.spawn(Fragile, "sibling")
        ref.tell(wrap(error, kind))
        queued = ref.ask("queued behind")
        assert await ref.wait_stopped() == Exit(ExitKind.CRASHED, error)
        with pytest.raises(ActorDeadError):
            await queued
        with pytest.raises(ActorDeadError):
            ref.tell("more")
        assert await sibling.ask("hello") == "hello"
    assert events == [("fragile on_failure", error), "sibling on_stop"]


@pytest.mark.parametrize("kind", ["def", "async"])
async def test_a_failing_on_failure_changes_nothing_about_the_end(kind):
    class Worse(Fragile):
        def on_failure(self, *exc_info):
            return self._later() if kind == "async" else 1 / 0

        async def _later(self):
            await trio.lowlevel.checkpoint()
            return 1 / 0

    error = ValueError("first")
    async with ActorSystem() as system:
        ref = await system.spawn(Worse)
        ref.tell(error)
        assert await ref.wait_stopped() == Exit(ExitKind.CRASHED, error)


@pytest.mark.parametrize("error_type", [KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
@pytest.mark.parametrize("how", ["ask", "tell"])
@KINDS
def test_what_is_no_exception_reaches_the_host_and_the_others_are_stopped_in_order(kind, how, error_type):
    error = error_type("for the host")
    replies = []

    async def main():
        async with ActorSystem() as system:
            one = await system.spawn(Fragile, "one")
            ref = await system.spawn(Fragile)
            await system.spawn(Fragile, "two")
            if how == "ask":
                replies.append(ref.ask(wrap(error, kind)))
            else:
                ref.tell(wrap(error, kind))
            replies.append(ref.ask("queued"))
            try:
                await trio.sleep_forever()
            finally:
                events.append("host cancelled")
                assert one.is_alive()

    with pytest.raises(error_type) as caught:
        trio.run(main)
    assert caught.value is error
    for reply in replies:
        with pytest.raises(ActorDeadError):
            reply.get()
    assert sorted(map(str, events)) == sorted(
        map(str, [("fragile on_failure", error), "host cancelled", "two on_stop", "one on_stop"])
    )
    assert events.index("host cancelled") < events.index("two on_stop") < events.index("one on_stop")


def test_system_exit_in_child_work_and_in_hooks_reaches_the_host():
    class Child(Fragile):
        def on_receive(self, message):
            self.start_soon(self._raise_later, SystemExit(3))

    class Hook(Fragile):
        def on_stop(self):
            raise SystemExit(4)

    class Callback(Fragile):
        def on_start(self):
            self.actor_ref.ask("x").on_done(lambda reply: sys.exit(6))

    class Start(Fragile):
        def on_start(self):
            raise SystemExit(5)

    async def main(cls):
        async with ActorSystem() as system:
            ref = await system.spawn(cls)
            ref.tell("go")
            if cls is Hook:
                ref.tell("and stop")
                ref.stop()
            await trio.sleep_forever()

    for cls, code in ((Child, 3), (Hook, 4), (Start, 5), (Callback, 6)):
        with pytest.raises(SystemExit) as caught:
            trio.run(main, cls)
        assert caught.value.code == code


def test_the_host_of_a_thread_gets_it_when_it_leaves_the_block():
    with pytest.raises(SystemExit, match="7"), ActorSystem.on_thread() as system:  # noqa: PT012
        ref = system.spawn(Fragile).get()
        with pytest.raises(ActorDeadError):
            ref.ask(SystemExit(7))
        with pytest.raises(ActorDeadError):
            ref.ask("anything")
    assert len(system) == 0


@KINDS
async def test_an_exception_group_from_a_handler_stays_one_crash(kind):
    error = ExceptionGroup("several", [ValueError(1), ValueError(2)])
    async with ActorSystem() as system:
        ref = await system.spawn(Fragile)
        ref.tell(wrap(error, kind))
        assert await ref.wait_stopped() == Exit(ExitKind.CRASHED, error)


async def test_a_failure_that_comes_together_with_cancellation_is_logged_and_the_stop_goes_on(caplog):
    class Untidy(Fragile):
        async def on_receive(self, message):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("while cancelled")

    async with ActorSystem() as system:
        ref = await system.spawn(Untidy)
        reply = ref.ask(1)
        await trio.testing.wait_all_tasks_blocked()
        assert await ref.stop(now=True) is True
        with pytest.raises((ActorDeadError, ExceptionGroup)):
            await reply
    assert events == ["fragile on_stop"]


async def test_a_crash_leaves_no_exception_group_in_the_host():
    async with ActorSystem() as system:
        ref = await system.spawn(Fragile)
        ref.tell(ValueError("boom"))
        ref2 = await system.spawn(Fragile)
        ref2.tell([ValueError("boom")])
        await ref.wait_stopped()
        await ref2.wait_stopped()


async def test_the_hosts_own_exception_is_not_wrapped():
    with pytest.raises(KeyError):
        async with ActorSystem():
            raise KeyError("the host's own")


# -- the log ----------------------------------------------------------------------------------------------------------


async def crash_one():
    async with ActorSystem() as system:
        ref = await system.spawn(Fragile)
        ref.tell(ValueError("boom"))
        await ref.wait_stopped()


async def test_a_crash_is_silent_unless_the_host_configures_logging(capfd):
    await crash_one()
    assert capfd.readouterr() == ("", "")


async def test_a_crash_reaches_the_standard_log(caplog):
    with caplog.at_level(logging.ERROR, logger="quiesce.kernel"):
        await crash_one()
    (record,) = caplog.records
    assert record.name == "quiesce.kernel"
    assert record.getMessage() == f"actor_crashed actor={record.actor!r} incarnation=1"
    assert record.actor.startswith("Fragile (")
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_crash_reaches_structlog_once_it_is_configured():
    with structlog.testing.capture_logs() as entries:
        structlog.configure(processors=structlog.get_config()["processors"])
        try:
            await crash_one()
        finally:
            structlog.reset_defaults()
    entry = next(entry for entry in entries if entry["event"] == "actor_crashed")
    assert entry["log_level"] == "error"


async def test_a_broken_log_takes_nobody_down():
    def broken(logger, name, event):
        raise RuntimeError("the log itself")

    structlog.configure(processors=[broken])
    try:
        await crash_one()
    finally:
        structlog.reset_defaults()


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


@KINDS
def test_ctrl_c_interrupts_a_handler_and_nothing_of_the_kernel(kind):
    class Interrupted(Fragile):
        def on_receive(self, message):
            return self._later() if kind == "async" else self._now()

        async def _later(self):
            self._now()

        def _now(self):
            signal.raise_signal(signal.SIGINT)
            events.append("not reached")

    async def main():
        async with ActorSystem() as system:
            ref = await system.spawn(Interrupted)
            ref.tell(1)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert [event[0] for event in events] == ["fragile on_failure"]
