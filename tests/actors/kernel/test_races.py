"""An ask that races the end of its actor, or of its system, always ends: at every point where they can meet."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pykka
import pytest
import trio

from quiesce.actors.kernel import ActorDeadError, ActorSystem, TrioActor


class Echo(TrioActor):
    def on_receive(self, message):
        return self._later(message) if message == "later" else message

    async def _later(self, message):
        await trio.lowlevel.checkpoint()
        return message


@pytest.fixture
def _switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
    pykka.ActorRegistry.stop_all()


def between(monkeypatch, ref, happens):
    """Let something happen after a sender has found the actor alive, and before its message is on its way."""
    system = ref._cell.system
    send = system.call_soon

    def call_soon(call, *args):
        monkeypatch.setattr(system, "call_soon", send)
        assert ref.is_alive()
        happens()
        return send(call, *args)

    monkeypatch.setattr(system, "call_soon", call_soon)


@pytest.mark.parametrize("message", ["now", "later"])
@pytest.mark.parametrize("now", [False, True])
def test_an_actor_that_stops_between_the_check_and_the_delivery_fails_the_ask(monkeypatch, message, now):
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Echo).get()
        between(monkeypatch, ref, lambda: ref.stop(now=now))
        with pytest.raises(ActorDeadError, match="not found"):
            ref.ask(message, timeout=60)


def test_an_actor_that_begins_to_stop_between_the_check_and_the_delivery_fails_the_ask(monkeypatch):
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Echo).get()
        between(monkeypatch, ref, lambda: ref.stop(block=False))
        with pytest.raises(ActorDeadError):
            ref.ask("now", timeout=60)


def test_an_actor_that_crashes_between_the_check_and_the_delivery_fails_the_ask_with_the_crash_as_cause(monkeypatch):
    class Crashing(Echo):
        def on_receive(self, message):
            raise ValueError("boom")

    def crash():
        ref.tell("crash")
        ref.wait_stopped().get(timeout=60)

    with ActorSystem.on_thread() as system:
        ref = system.spawn(Crashing).get()
        between(monkeypatch, ref, crash)
        with pytest.raises(ActorDeadError) as caught:
            ref.ask("now", timeout=60)
        assert isinstance(caught.value.__cause__, ValueError)


def test_a_stop_that_races_a_stop_answers_both(monkeypatch):
    with ActorSystem.on_thread() as system:
        ref = system.spawn(Echo).get()
        between(monkeypatch, ref, ref.stop)
        assert ref.stop(timeout=60) is False


def test_a_system_that_ends_between_the_check_and_the_delivery_fails_the_ask_and_drops_the_tell(monkeypatch):
    for send in ("ask", "tell"):
        lifetime = ActorSystem.on_thread()
        ref = lifetime.__enter__().spawn(Echo).get()
        between(monkeypatch, ref, lambda lifetime=lifetime: lifetime.__exit__(None, None, None))
        if send == "tell":
            ref.tell("now")
        else:
            with pytest.raises(ActorDeadError):
                ref.ask("now", timeout=60)


@pytest.mark.usefixtures("_switch_often")
@pytest.mark.parametrize("start", ["spawned", "started"])
def test_under_many_thread_switches_every_ask_and_every_stop_ends(start):
    def ask(ref, barrier):
        barrier.wait()
        return [ref.ask("later" if number % 3 else "now", block=False) for number in range(30)]

    def stop(ref, barrier, now):
        barrier.wait()
        return ref.stop(now=now, timeout=60)

    answered = dead = 0
    with ActorSystem.on_thread() as system, ThreadPoolExecutor(8) as pool:
        for attempt in range(150):
            ref = system.spawn(Echo).get() if start == "spawned" else Echo.start()
            barrier = threading.Barrier(8)
            asking = [pool.submit(ask, ref, barrier) for _ in range(6)]
            stopping = [pool.submit(stop, ref, barrier, now) for now in (False, attempt % 2 == 0)]
            assert any(future.result(60) for future in stopping)
            for reply in (reply for future in asking for reply in future.result(60)):
                try:
                    assert reply.get(timeout=60) in {"now", "later"}
                    answered += 1
                except ActorDeadError:
                    dead += 1
    assert answered + dead == 150 * 6 * 30
