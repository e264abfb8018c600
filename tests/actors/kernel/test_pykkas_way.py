"""Actors started Pykka's way: `Cls.start()` from plain threads, with no system given."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pykka
import pytest
import trio

from quiesce.actors.kernel import ActorDeadError, ActorSystem, Exit, ExitKind, TrioActor


@pytest.fixture(autouse=True)
def _stop_all():
    yield
    pykka.ActorRegistry.stop_all()


class Counter(TrioActor):
    def __init__(self, start=0, *, step=1):
        super().__init__()
        self.count = start
        self.step = step
        self.made_in = threading.get_ident()

    def add(self):
        self.count += self.step
        return self.count

    async def add_later(self):
        await trio.lowlevel.checkpoint()
        return self.add()

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        return message

    def where(self):
        return threading.get_ident()

    def start_another(self):
        return Counter.start(100)


class Collector(TrioActor):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_receive(self, message):
        self.seen.append(message)
        return message

    async def take(self, message):
        await trio.lowlevel.checkpoint()
        return self.on_receive(message)


# -- what Pykka's users do --------------------------------------------------------------------------------------------


def test_start_gives_a_ref_that_works_as_pykkas():
    ref = Counter.start(5, step=2)
    assert ref.ask("hello") == "hello"
    proxy = ref.proxy()
    assert proxy.add().get() == 7
    proxy.add.defer()
    proxy.step = 10
    assert pykka.get_all([proxy.add(), proxy.count]) == [19, 19]
    assert ref.stop() is True
    assert not ref.is_alive()
    assert ref.stop() is False


def test_async_handlers_work_through_pykkas_api():
    proxy = Counter.start().proxy()
    assert proxy.add_later().get() == 1
    assert pykka.get_all([proxy.add_later(), proxy.add(), proxy.add_later()]) == [2, 3, 4]
    assert proxy.add_later().map(str).get() == "5"


async def test_actors_started_so_can_be_awaited_from_trio():
    ref = Counter.start()
    assert await ref.ask("hello") == "hello"
    assert await ref.proxy().add_later() == 1
    await ref.aclose()
    assert await ref.wait_stopped() == Exit(ExitKind.NORMAL)


def test_init_runs_in_the_thread_that_starts_and_everything_else_on_one_other_thread():
    one, two = Counter.start().proxy(), Counter.start().proxy()
    assert one.made_in.get() == threading.get_ident()
    assert one.where().get() == two.where().get() != threading.get_ident()


def test_an_actor_may_start_another():
    ref = Counter.start()
    other = ref.proxy().start_another().get()
    assert other.proxy().add().get() == 101
    assert pykka.ActorRegistry.get_all() == [ref, other]


def test_an_actor_may_send_to_itself_before_it_is_started():
    class Eager(Counter):
        def __init__(self):
            super().__init__()
            self._later = self.actor_ref.proxy()
            self._later.add.defer()
            self.seen = []

        def on_start(self):
            self.seen.append(self.count)

        def add(self):
            self.seen.append("add")

    assert Eager.start().proxy().seen.get() == [0, "add"]


def test_an_actor_that_is_only_made_is_not_started():
    actor = Counter(3)
    assert actor.add() == 4
    assert actor.actor_ref not in pykka.ActorRegistry.get_all()


def test_what_init_raises_reaches_the_starter_and_nothing_is_registered():
    with pytest.raises(TypeError):
        Counter.start(1, 2, 3)
    assert pykka.ActorRegistry.get_all() == []


def test_an_actor_of_a_system_may_start_one_before_it_calls_super():
    class Spawned(TrioActor):
        def __init__(self):
            self.other = Counter.start(7)
            super().__init__()

    with ActorSystem.on_thread() as system:
        proxy = system.spawn(Spawned).get().proxy()
        assert proxy.other.get().proxy().add().get() == 8
        assert len(system) == 1


def test_ten_threads_that_start_tell_and_ask_at_once_lose_and_reorder_nothing():
    def send(sender):
        own = Collector.start()
        proxy = ref.proxy()
        messages = [(sender, number) for number in range(200)]
        replies = []
        for number, message in enumerate(messages):
            own.tell(message)
            if number % 4 == 0:
                ref.tell(message)
                replies.append(None)
            elif number % 4 == 3:
                assert ref.ask(message, timeout=60) == message
                replies.append(None)
            else:
                replies.append(proxy.take(message) if number % 2 else ref.ask(message, block=False))
        for message, reply in zip(messages, replies, strict=True):
            assert reply is None or reply.get(timeout=60) == message
        return own.proxy().seen.get(timeout=60)

    ref = Collector.start()
    with ThreadPoolExecutor(10) as pool:
        for sender, seen in enumerate(pool.map(send, range(10))):
            assert seen == [(sender, number) for number in range(200)]
    seen = ref.proxy().seen.get(timeout=60)
    assert len(seen) == 2000
    for sender in range(10):
        assert [number for who, number in seen if who == sender] == list(range(200))


# -- the registry -----------------------------------------------------------------------------------------------------


def test_the_registry_holds_started_actors_and_no_spawned_ones():
    with ActorSystem.on_thread() as system:
        spawned = system.spawn(Counter).get()
        started = Counter.start()
        assert pykka.ActorRegistry.get_all() == [started]
        assert pykka.ActorRegistry.get_by_class(TrioActor) == [started]
        assert pykka.ActorRegistry.get_by_urn(started.actor_urn) is started
        assert all(pykka.ActorRegistry.stop_all())
        assert not started.is_alive()
        assert spawned.is_alive()


def test_pykkas_own_actors_and_ours_live_side_by_side():
    class Threaded(pykka.ThreadingActor):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def relay(self, message):
            return self.other.ask(message)

    ours = Counter.start()
    theirs = Threaded.start(ours)
    assert theirs.proxy().relay("hello").get() == "hello"
    assert pykka.ActorRegistry.stop_all() == [True, True]


def test_stop_all_inside_a_handler_is_refused_and_stops_nobody():
    class Stopping(TrioActor):
        def on_receive(self, message):
            pykka.ActorRegistry.stop_all()

    ref = Stopping.start()
    with pytest.raises(RuntimeError, match="await the reply"):
        ref.ask("stop all")
    assert ref.is_alive()


# -- failures ---------------------------------------------------------------------------------------------------------


def test_using_an_actor_whose_on_start_failed_raises_with_that_failure_as_the_cause(caplog):
    class Failing(Counter):
        def on_start(self):
            raise ValueError("no start")

    ref = Failing.start()
    assert ref.actor_stopped.wait(60)
    for use in (lambda: ref.tell(1), lambda: ref.ask(1)):
        with pytest.raises(ActorDeadError) as caught:
            use()
        assert isinstance(caught.value.__cause__, ValueError)
    assert pykka.ActorRegistry.get_all() == []
    with ActorSystem.on_thread() as system, pytest.raises(ValueError, match="no start"):
        system.spawn(Failing).get()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, BaseException])
def test_what_is_no_exception_stops_all_started_actors_and_none_of_a_system(kind):
    with ActorSystem.on_thread() as system:
        spawned = system.spawn(Counter).get()
        one, failing, two = [Counter.start() for _ in range(3)]
        error = kind("from a handler")
        failing.tell(error)
        assert failing.wait_stopped().get(timeout=60) == Exit(ExitKind.CRASHED, error)
        if kind is ValueError:
            assert pykka.ActorRegistry.get_all() == [one, two]
        else:
            for ref in (one, two):
                assert ref.wait_stopped().get(timeout=60) == Exit(ExitKind.NORMAL)
        assert spawned.ask("still there") == "still there"
    assert Counter.start().ask("and new ones can be started") == "and new ones can be started"


def test_the_asker_of_a_handler_that_raises_no_exception_is_told():
    with pytest.raises(ActorDeadError):
        Counter.start().ask(KeyboardInterrupt(), timeout=60)


def test_what_is_no_exception_in_a_system_stops_no_started_actor():
    started = Counter.start()
    with pytest.raises(KeyboardInterrupt), ActorSystem.on_thread() as system:  # noqa: PT012  # raised when it is left
        ref = system.spawn(Counter).get()
        ref.tell(KeyboardInterrupt())
        ref.wait_stopped().get(timeout=60)
    assert started.ask("still there") == "still there"


def test_their_life_is_logged_once_in_pykkas_words(caplog):
    with caplog.at_level(logging.DEBUG):
        ref = Counter.start()
        with pytest.raises(ValueError, match="asked"):
            ref.ask(ValueError("asked"))
        ref.tell(ValueError("told"))
        ref.wait_stopped().get(timeout=60)
        Counter.start().stop()
    assert {record.name for record in caplog.records} == {"pykka"}
    texts = [record.getMessage().partition(" Counter")[0] for record in caplog.records]
    assert texts == [
        "Registered",
        "Starting",
        "Exception returned from",
        "Unhandled exception in",
        "Unregistered",
        "Registered",
        "Starting",
        "Unregistered",
        "Stopped",
    ]


# -- the end of the program -------------------------------------------------------------------------------------------

PROGRAM = """
import atexit, os, threading, time
import pykka
from quiesce.actors.kernel import TrioActor

class Ours(TrioActor):
    use_daemon_thread = {daemon}
    def on_stop(self):
        print("stopped", flush=True)
    def finish(self):
        time.sleep(0.05)
        print("worked", flush=True)
        self.stop()
    def hang(self):
        time.sleep(3600)

ref = Ours.start()
{then}
print("main ends", flush=True)
"""


def run(then, *, daemon=False):
    program = PROGRAM.format(daemon=daemon, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


def test_a_program_lives_until_its_last_actor_has_ended():
    assert run("ref.proxy().finish.defer()") == ["main ends", "worked", "stopped"]


def test_a_program_whose_actors_have_ended_ends():
    assert run("ref.stop()") == ["stopped", "main ends"]


def test_a_program_does_not_wait_for_daemon_actors_but_stops_them():
    assert run("", daemon=True) == ["main ends", "stopped"]


def test_a_daemon_actor_that_hangs_does_not_hold_a_program():
    assert run("ref.proxy().hang.defer()", daemon=True) == ["main ends"]


def test_an_exit_handler_of_the_program_may_stop_its_actors():
    assert run("atexit.register(pykka.ActorRegistry.stop_all)") == ["main ends", "stopped"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_process_has_no_actors_but_may_start_its_own():
    child = """
import sys, warnings
warnings.simplefilter("ignore")  # what is tested is what newer Pythons warn about
if os.fork() == 0:
    pykka.ActorRegistry._actor_refs.clear()
    Ours.start().stop()
    sys.exit()
os.wait()
ref.stop()
"""
    assert run(child) == ["stopped", "stopped", "main ends"]
