"""The kernel beside Pykka: messages, asks, life and memory of actors; and what Trio and asyncio allow at most.

Each side runs in a process of its own, several times in turn with the others, and measures everything in some rounds,
each long enough for the processor's caches to be warm in most of it. A figure is the median of all rounds of all runs:
the best round of threads, which by chance waited for nothing, says little about them. A row of the table that has a
target says how many times faster than Pykka the kernel has to be.
"""

# ruff: noqa: ANN401  # messages and their answers may be anything

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click
import pykka
import trio
from attrs import frozen
from rich.console import Console
from rich.table import Table

from quiesce.actors.kernel import (
    ActorRef,
    ActorSystem,
    ChildSpec,
    DynamicSupervisor,
    StartChild,
    TerminateChild,
    TrioActor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Times = dict[str, list[float]]
"""The same for `Figures`, of each round."""
Figures = dict[str, float]
"""What was measured -> seconds for one of it; bytes in rows of memory, seconds late in rows of fairness."""


@frozen
class Size:
    """How much of each thing is done."""

    messages: int
    lives: int
    crowd: int
    flood: int
    rounds: int

    @property
    def threaded(self) -> Size:
        """As much as Pykka's threads get done in about the same time."""
        return Size(self.messages // 5, self.lives // 10, self.crowd // 50, 0, self.rounds)


FULL = Size(messages=25_000, lives=2_000, crowd=20_000, flood=1_000_000, rounds=5)
QUICK = Size(messages=5_000, lives=300, crowd=5_000, flood=200_000, rounds=3)
RING = 100
THREADS = 10
TICK = 0.001
CONSTANT = 1 / 1.5
"""The ratio that two figures of an operation have at least whose time does not grow with how many there are."""


@frozen
class Row:
    """A line of the table: the kernel's figure, the one it is compared with, and the ratio to reach."""

    title: str
    figure: str
    beside: str
    target: float | None = None
    unit: str = "us"


ROWS = [
    Row("tell", "def tell", "pykka tell", 7),
    Row("ask", "def ask", "pykka ask", 50),
    Row("pipelined asks", "def pipelined", "pykka pipelined", 10),
    Row("start + first reply + stop", "def life", "pykka life", 25),
    Row("ring of 100, a hop", "def ring", "pykka ring", 40),
    Row("ten threads asking", "def threads", "pykka threads"),
    Row("memory of an idle actor", "def memory", "pykka memory", 16, "KB"),
    Row("tell, async def", "async tell", "pykka tell"),
    Row("ask, async def, beside a channel round trip", "async ask", "limit channel round trip", 1),
    Row("pipelined asks, async def", "async pipelined", "pykka pipelined"),
    Row("start + first reply + stop, async def", "async life", "pykka life"),
    Row("ring of 100, a hop, async def", "async ring", "pykka ring"),
    Row("ten threads asking, async def", "async threads", "pykka threads"),
    Row("memory of an idle actor with a task", "async memory", "pykka memory", unit="KB"),
    Row("start, tell, ask, stop of 100 000 actors, beside 1 000", "100000 actors", "1000 actors", CONSTANT),
    Row("the same without Python's garbage collector", "100000 actors, no gc", "1000 actors"),
    Row("start and end of 10 000 dynamic children, beside 1 000", "10000 children", "1000 children", CONSTANT),
]
LATENESS_TARGET = 0.005


# --- measuring ---------------------------------------------------------------------------------------------------


class Watch:
    """The time of `count` operations in a block, as seconds for one of them: of one round."""

    def __init__(self, times: Times, name: str, count: int) -> None:
        self._times, self._name, self._count = times, name, count

    def __enter__(self) -> None:
        gc.collect()
        self._began = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            seconds = (time.perf_counter() - self._began) / self._count
            self._times.setdefault(self._name, []).append(seconds)


def _resident() -> int:
    """Bytes of this process that are in memory."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- the kernel --------------------------------------------------------------------------------------------------


class Echo(TrioActor):
    """Answers what it is asked."""

    def on_receive(self, message: Any) -> Any:
        """Answer."""
        return message


class AsyncEcho(TrioActor):
    """The same with an `async def` handler, which awaits nothing."""

    async def on_receive(self, message: Any) -> Any:
        """Answer."""
        return message


class Link(TrioActor):
    """Passes a token on in a ring, until it has gone far enough."""

    after: ActorRef[Any]
    arrived: trio.Event

    def on_receive(self, left: int) -> Any:
        """Pass the token on."""
        if left:
            self.after.tell(left - 1)
        else:
            self.arrived.set()


class AsyncLink(Link):
    """The same with an `async def` handler, which awaits nothing."""

    async def on_receive(self, left: int) -> None:
        """Pass the token on."""
        if left:
            self.after.tell(left - 1)
        else:
            self.arrived.set()


KINDS = {"def": (Echo, Link), "async": (AsyncEcho, AsyncLink)}


async def _measure_messages(times: Times, kind: str, cls: type[TrioActor], size: Size) -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(cls)
        await ref.ask(0)
        with Watch(times, f"{kind} tell", size.messages):
            for _ in range(size.messages):
                ref.tell(1)
            await ref.ask(2)
        with Watch(times, f"{kind} ask", size.messages):
            for _ in range(size.messages):
                await ref.ask(1)
        with Watch(times, f"{kind} pipelined", size.messages):
            for _ in range(size.messages // 1000):
                for reply in [ref.ask(number) for number in range(1000)]:
                    await reply
        with Watch(times, f"{kind} life", size.lives):
            for _ in range(size.lives):
                one = await system.spawn(cls)
                await one.ask(1)
                await one.stop()


async def _measure_ring(times: Times, kind: str, cls: type[Link], size: Size) -> None:
    async with ActorSystem() as system:
        refs = [await system.spawn(cls) for _ in range(RING)]
        for ref, after in zip(refs, [*refs[1:], refs[0]], strict=True):
            ref._cell.actor.after, ref._cell.actor.arrived = after, trio.Event()  # noqa: SLF001  # not measured
            await ref.ask(0)
        arrived = trio.Event()
        for ref in refs:
            ref._cell.actor.arrived = arrived  # noqa: SLF001  # as above
        with Watch(times, f"{kind} ring", size.messages):
            refs[0].tell(size.messages)
            await arrived.wait()


async def _measure_memory(times: Times, kind: str, cls: type[TrioActor], size: Size) -> None:
    async with ActorSystem() as system:
        await (await system.spawn(cls)).ask(0)
        gc.collect()
        before = _resident()
        refs = [await system.spawn(cls) for _ in range(size.crowd)]
        if cls is AsyncEcho:
            for ref in refs:
                await ref.ask(0)
        gc.collect()
        times.setdefault(f"{kind} memory", []).append((_resident() - before) / size.crowd)


async def _measure_actors(times: Times, name: str, count: int) -> None:
    """Start so many, tell and ask each, and stop each, the oldest first."""
    async with ActorSystem() as system:
        with Watch(times, name, count):
            refs = [await system.spawn(Echo) for _ in range(count)]
            for number, ref in enumerate(refs):
                ref.tell(number)
                await ref.ask(number)
            for ref in refs:
                await ref.stop(block=False)
        assert len(system) == 0


async def _measure_children(times: Times, count: int) -> None:
    """Add so many to a dynamic supervisor, and take them away again, the oldest first."""
    spec = ChildSpec("echo", Echo, restart="temporary")
    async with ActorSystem() as system:
        supervisor = await system.spawn(DynamicSupervisor)
        with Watch(times, f"{count} children", count):
            for ref in [await supervisor.ask(StartChild(spec)) for _ in range(count)]:
                await supervisor.ask(TerminateChild(ref))
        assert len(system) == 1


def _measure_threads(times: Times, name: str, ask: Callable[[int], object], each: int) -> None:
    def run() -> None:
        for number in range(each):
            ask(number)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    with Watch(times, name, each * THREADS):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def _measure_fairness(times: Times, size: Size) -> None:
    """How late a timer is on a loop whose one actor has been told a flood of messages, and how late by itself."""
    async with ActorSystem() as system:
        ref = await system.spawn(Echo)
        for number in range(size.flood):
            ref.tell(number)
        drained = ref.ask("last")
        beside = await _lateness(drained.done)
    ticks = iter(beside)
    alone = await _lateness(lambda: next(ticks, None) is None)
    times.setdefault("fairness p99", []).append(sorted(beside)[int(len(beside) * 0.99)])
    times.setdefault("fairness alone", []).append(sorted(alone)[int(len(alone) * 0.99)])


async def _lateness(enough: Callable[[], bool]) -> list[float]:
    late = []
    while not enough():
        due = trio.current_time() + TICK
        await trio.sleep_until(due)
        late.append(trio.current_time() - due)
    return late


def measure_kernel(size: Size) -> Times:
    """All that is measured of the kernel."""
    times: Times = {}
    for kind, (echo, link) in KINDS.items():
        trio.run(_measure_memory, times, kind, echo, size)
        for _ in range(size.rounds):
            trio.run(_measure_messages, times, kind, echo, size)
            trio.run(_measure_ring, times, kind, link, size)
            with ActorSystem.on_thread() as system:
                _measure_threads(times, f"{kind} threads", system.spawn(echo).get().ask, size.messages // 100)
    for count, rounds in ((1_000, size.rounds), (10_000, 2)):
        for _ in range(rounds):
            trio.run(_measure_children, times, count)
    for count, rounds in ((1_000, size.rounds), (100_000, 1)):
        for _ in range(rounds):
            trio.run(_measure_actors, times, f"{count} actors", count)
    gc.disable()  # it looks at all that are alive, now and then
    trio.run(_measure_actors, times, "100000 actors, no gc", 100_000)
    gc.enable()
    trio.run(_measure_fairness, times, size)
    return times


# --- Pykka -------------------------------------------------------------------------------------------------------


class ThreadEcho(pykka.ThreadingActor):
    """Answers what it is asked."""

    def on_receive(self, message: Any) -> Any:
        """Answer."""
        return message


class ThreadLink(pykka.ThreadingActor):
    """Passes a token on in a ring, until it has gone far enough."""

    after: pykka.ActorRef[Any]

    def __init__(self, arrived: threading.Event) -> None:
        super().__init__()
        self.arrived = arrived

    def on_receive(self, left: int) -> None:
        """Pass the token on."""
        if left:
            self.after.tell(left - 1)
        else:
            self.arrived.set()


def measure_pykka(size: Size) -> Times:
    """The same of Pykka's actors on threads."""
    times: Times = {}
    try:
        _measure_pykka_memory(times, size)
        for _ in range(size.rounds):
            _measure_pykka_messages(times, size)
            _measure_pykka_ring(times, size)
            pykka.ActorRegistry.stop_all()
    finally:
        pykka.ActorRegistry.stop_all()
    return times


def _measure_pykka_memory(times: Times, size: Size) -> None:
    ThreadEcho.start().ask(0)
    gc.collect()
    before = _resident()
    for _ in range(size.crowd):
        ThreadEcho.start()
    times.setdefault("pykka memory", []).append((_resident() - before) / size.crowd)
    pykka.ActorRegistry.stop_all()


def _measure_pykka_messages(times: Times, size: Size) -> None:
    ref = ThreadEcho.start()
    with Watch(times, "pykka tell", size.messages):
        for _ in range(size.messages):
            ref.tell(1)
        ref.ask(2)
    with Watch(times, "pykka ask", size.messages):
        for _ in range(size.messages):
            ref.ask(1)
    with Watch(times, "pykka pipelined", size.messages):
        for _ in range(size.messages // 1000):
            pykka.get_all([ref.ask(number, block=False) for number in range(1000)])
    with Watch(times, "pykka life", size.lives):
        for _ in range(size.lives):
            one = ThreadEcho.start()
            one.ask(1)
            one.stop()
    _measure_threads(times, "pykka threads", ref.ask, size.messages // 10)


def _measure_pykka_ring(times: Times, size: Size) -> None:
    arrived = threading.Event()
    refs = [ThreadLink.start(arrived) for _ in range(RING)]
    for ref, after in zip(refs, [*refs[1:], refs[0]], strict=True):
        ref.proxy().after = after
    with Watch(times, "pykka ring", size.messages):
        refs[0].tell(size.messages)
        arrived.wait()


# --- limits ------------------------------------------------------------------------------------------------------


def measure_limits(size: Size) -> Times:
    """What the parts cost of which any actor runtime here has to be made."""
    times: Times = {}
    for _ in range(size.rounds):
        _measure_deque(times, size.messages)
        _measure_hand_over(times, size.messages // 5)
        asyncio.run(_measure_asyncio_queue(times, size.messages))
        trio.run(_measure_bare_ask, times, size.messages)
        trio.run(_measure_trio, times, size.messages)
    return times


def _measure_deque(times: Times, count: int) -> None:
    inbox: deque[int] = deque()
    with Watch(times, "limit deque and a call", count):
        for number in range(count):
            inbox.append(number)
            _handle(inbox.popleft())


def _handle(message: int) -> int:
    return message


def _measure_hand_over(times: Times, count: int) -> None:
    """What one thread gives another, which waits for it: so much of the time of actors on threads is no Python."""
    there: SimpleQueue[int] = SimpleQueue()
    back: SimpleQueue[int] = SimpleQueue()

    def serve() -> None:
        for _ in range(count):
            back.put(there.get())

    server = threading.Thread(target=serve)
    server.start()
    with Watch(times, "limit hand-over to another thread", 2 * count):
        for number in range(count):
            there.put(number)
            back.get()
    server.join()


class _Bare:
    """An answer that is there, and can be awaited."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __await__(self) -> Generator[None, None, int]:
        return self.value
        yield


async def _measure_bare_ask(times: Times, count: int) -> None:
    """A handler called and its answer awaited: an ask without an actor, a context, a cancellation or an error."""
    with Watch(times, "limit bare ask", count):
        for number in range(count):
            await _Bare(_handle(number))


async def _measure_asyncio_queue(times: Times, count: int) -> None:
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def serve() -> None:
        while True:
            await back.put(await there.get())

    server = asyncio.create_task(serve())
    with Watch(times, "limit asyncio.Queue round trip", count):
        for number in range(count):
            await there.put(number)
            await back.get()
    server.cancel()


async def _measure_trio(times: Times, count: int) -> None:
    with Watch(times, "limit Trio checkpoint", count):
        for _ in range(count):
            await trio.lowlevel.checkpoint()
    there, requests = trio.open_memory_channel[int](1)
    answers, back = trio.open_memory_channel[int](1)

    async def serve() -> None:
        async for number in requests:
            await answers.send(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with Watch(times, "limit channel round trip", count):
            for number in range(count):
                await there.send(number)
                await back.receive()
        nursery.cancel_scope.cancel()


# --- the runs and the table --------------------------------------------------------------------------------------

SIDES: dict[str, Callable[[Size], Times]] = {
    "kernel": measure_kernel,
    "pykka": lambda size: measure_pykka(size.threaded),
    "limits": measure_limits,
}


def _run(side: str, *, quick: bool) -> Times:
    """Measure one side once, in a process of its own."""
    command = [sys.executable, "-m", "bench", "actors", "--side", side, *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603  # this program itself
    return dict(json.loads(done.stdout))


def _medians(runs: int, *, quick: bool) -> Figures:
    """Run all sides in turn, several times; the median of all rounds."""
    found: Times = {}
    for _ in range(runs):
        for side in SIDES:
            for name, seconds in _run(side, quick=quick).items():
                found.setdefault(name, []).extend(seconds)
    return {name: statistics.median(values) for name, values in found.items()}


def _compared(figures: Figures) -> Iterator[tuple[Row, float, float, float]]:
    for row in ROWS:
        ours, theirs = figures[row.figure], figures[row.beside]
        yield row, ours, theirs, theirs / ours


def _show(figures: Figures, console: Console) -> None:
    table = Table(title="the kernel beside Pykka", caption="times per operation in microseconds, memory in KB")
    for heading in ("", "kernel", "beside", "ratio", "target"):
        table.add_column(heading, justify="left" if not heading else "right")
    for row, ours, theirs, ratio in _compared(figures):
        scale = 1 / 1024 if row.unit == "KB" else 1e6
        target = "" if row.target is None else f"{row.target:.2g}x {'reached' if ratio >= row.target else 'MISSED'}"
        table.add_row(row.title, f"{ours * scale:.2f}", f"{theirs * scale:.2f}", f"{ratio:.1f}x", target)
    console.print(table)
    limits = Table(title="limits, microseconds")
    for name, value in figures.items():
        if name.startswith("limit "):
            limits.add_row(name.removeprefix("limit "), f"{value * 1e6:.2f}")
    console.print(limits)
    late, alone = figures["fairness p99"], figures["fairness alone"]
    console.print(
        f"a timer beside a flood is late by {late * 1e3:.2f} ms at p99 (by itself {alone * 1e3:.2f}); "
        f"target {LATENESS_TARGET * 1e3:g} ms: {'reached' if late <= LATENESS_TARGET else 'MISSED'}"
    )


def _missed(figures: Figures) -> list[str]:
    missed = [row.title for row, _, _, ratio in _compared(figures) if row.target is not None and ratio < row.target]
    return missed + (["fairness"] if figures["fairness p99"] > LATENESS_TARGET else [])


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small sizes, one run: shows that it works; its figures mean little.")
@click.option("--runs", default=5, show_default=True, help="Processes for each side.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, in seconds and bytes.")
@click.option("--side", type=click.Choice(list(SIDES)), hidden=True, help="Measure one side in this process.")
def main(*, quick: bool, runs: int, check: bool, as_json: bool, side: str | None) -> None:
    """Measure, and show the table."""
    if side is not None:
        print(json.dumps(SIDES[side](QUICK if quick else FULL)))
        return
    figures = _medians(1 if quick else runs, quick=quick)
    if as_json:
        print(json.dumps(figures))
    else:
        _show(figures, Console())
    if check and (missed := _missed(figures)):
        raise click.ClickException(f"missed: {', '.join(missed)}")
