"""The log of the kernel: which events there are, what they carry, and that nobody hears them who has not asked."""

from __future__ import annotations

import logging

import pytest
import structlog

from quiesce.actors.kernel import ActorDeadError, ActorSystem, TrioActor
from quiesce.actors.log import Log


class Plain(TrioActor):
    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        return message


@pytest.fixture
def entries():
    with structlog.testing.capture_logs() as captured:
        structlog.configure(processors=structlog.get_config()["processors"])
        yield captured
    structlog.reset_defaults()


async def test_a_life_is_logged_with_actor_name_and_incarnation(entries):
    async with ActorSystem() as system:
        ref = await system.options(name="clerk").spawn(Plain)
        await ref.stop()
    who = {"actor": str(ref), "actor_name": "clerk", "incarnation": 1, "log_level": "debug"}
    assert entries == [
        {"event": "actor_started", **who},
        {"event": "actor_stopped", "exit": "normal", **who},
    ]


async def test_a_crash_is_logged_once_as_an_error(entries):
    error = ValueError("boom")
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        ref.tell(error)
        await ref.wait_stopped()
    assert [entry["event"] for entry in entries] == ["actor_started", "actor_crashed"]
    assert entries[1] == {
        "event": "actor_crashed",
        "actor": str(ref),
        "actor_name": None,
        "incarnation": 1,
        "exc_info": error,
        "log_level": "error",
    }


async def test_what_one_actor_leaves_behind_is_one_entry(entries):
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        ref.tell(ValueError("boom"))
        for number in range(1000):
            ref.tell(number)
        await ref.wait_stopped()
        with pytest.raises(ActorDeadError):
            ref.tell("late")
    letters = [entry for entry in entries if entry["event"] == "dead_letters"]
    assert [(entry["count"], entry["actor"], entry["log_level"]) for entry in letters] == [
        (1000, str(ref), "info"),
        (1, str(ref), "info"),
    ]


async def test_the_standard_log_gets_the_same_at_the_level_that_it_asks_for(caplog):
    with caplog.at_level(logging.DEBUG, logger="quiesce.kernel"):
        async with ActorSystem() as system:
            ref = await system.options(name="clerk").spawn(Plain)
            await ref.stop()
    assert [(record.getMessage().split()[0], record.levelno, record.actor_name) for record in caplog.records] == [
        ("actor_started", logging.DEBUG, "clerk"),
        ("actor_stopped", logging.DEBUG, "clerk"),
    ]
    assert all(record.name == "quiesce.kernel" for record in caplog.records)


async def test_without_a_listener_no_event_is_made(monkeypatch):
    monkeypatch.setattr(Log, "write", lambda *_: pytest.fail("an event was made"))
    standard = logging.getLogger("quiesce.kernel")
    monkeypatch.setattr(standard, "level", logging.ERROR)
    standard._cache.clear()
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        await ref.ask(1)
        await ref.stop()
        with pytest.raises(ActorDeadError):
            ref.tell("late")


async def test_nothing_is_printed_unless_the_host_configures_a_log(capfd):
    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        ref.tell(ValueError("boom"))
        ref.tell("lost")
        await ref.wait_stopped()
    assert capfd.readouterr() == ("", "")
