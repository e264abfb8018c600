"""Many agents on one store, and one agent with a long log: time, memory, and what a step costs.

Each figure is checked against what the logs say before it is shown: a run that is fast and wrong fails.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import statistics
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
import trio
from attrs import frozen
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from quiesce.actors import Agent, Runtime, SqliteStore, tool
from quiesce.actors.stores import OnDone, Store, Writer
from quiesce.actors.stores.whole import store_events
from quiesce.protocol.events import (
    AssistantMessage,
    Draft,
    Event,
    ModelMessage,
    Reason,
    StepEnd,
    StepStart,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    TurnEnd,
    TurnStart,
    UserMessage,
    draft,
)
from quiesce.protocol.inbox import insert, remove
from quiesce.protocol.model import CallDelta, Finished, TextDelta
from quiesce.protocol.outcome import result_body, success
from quiesce.protocol.rules import LogState, check

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from quiesce.protocol.model import Delta, ModelRequest

T = TypeVar("T")

CALLS = 8
"""Parallel calls of each turn."""
FEW = 10
"""Turns at a time when memory is measured."""
STEP_TURNS = 40
"""Turns over which the cost of a step is measured."""
_TURNS_PER_APPEND = 40
_EVENTS_PER_TURN = 11 + 2 * CALLS

Advance = Callable[[], object]
"""Told whenever a piece of the work is done."""


def _no_progress() -> None:
    """Nobody looks."""


# --- the work ----------------------------------------------------------------------------------------------------


@tool(parallel=True)
async def look(place: str) -> str:
    """Look at a place."""
    await trio.lowlevel.checkpoint()
    return f"There is nothing at {place}."


class Caller:
    """A model that asks for `CALLS` calls and, when they are answered, says that it is done. It keeps nothing."""

    name = "caller"
    provider = "bench"

    async def respond(self, request: ModelRequest, emit: Callable[[Delta], None]) -> None:
        """Answer by what came last."""
        await trio.lowlevel.checkpoint()
        if isinstance(request.messages[-1], UserMessage):
            for index in range(CALLS):
                emit(CallDelta(index, f"call{index:05d}", look.name, f'{{"place": "place {index}"}}'))
            emit(Finished("tool-calls"))
        else:
            emit(TextDelta("Done."))
            emit(Finished())


async def _one_turn(agent: Agent) -> None:
    turn = await agent.send("Look around.")
    assert (str(turn.reason), turn.text, turn.steps) == ("completed", "Done.", 2)


async def _check_turn(store: Store, session_id: str) -> None:
    events = await store.read(session_id)
    assert not list(check(events))
    counts = Counter(event.type for event in events)
    assert counts["tool/call"] == counts["tool/result"] == CALLS
    assert counts["turn/end"] == 1


# --- many agents -------------------------------------------------------------------------------------------------


@frozen
class Crowd:
    """How long it took, in seconds, and the memory of an idle agent, in bytes (None if it was not measured)."""

    agents: int
    opening: float
    turns: float
    resident: float
    allocated: float | None


async def crowd(
    path: Path, agents: int, advance: Advance = _no_progress, *, at_once: int | None = None, traced: bool = False
) -> Crowd:
    """Open `agents` agents on the store `path`, run one turn in each, `at_once` of them at a time (by default all).

    The memory is what is left when all are idle again. What is resident never shrinks below the peak, so it says what
    an idle agent takes only if few turns ran at a time. When `traced`, Python's own count is taken as well, and nothing
    else is of use.
    """
    if traced:
        tracemalloc.start()
    names = [f"agent-{number}" for number in range(agents)]
    async with Runtime.open(path) as runtime:
        await _warm_up(runtime)
        before = _memory()
        opened: list[Agent] = []
        started = time.perf_counter()
        await _together([partial(_open, runtime, name, opened) for name in names], advance)
        opening = time.perf_counter() - started
        started = time.perf_counter()
        await _together([partial(_one_turn, agent) for agent in opened], advance, at_once=at_once)
        turns = time.perf_counter() - started
        after = _memory()
        for name in names:
            await _check_turn(runtime.store, name)
    tracemalloc.stop()
    resident, allocated = ((end - start) / agents for start, end in zip(before, after, strict=True))
    return Crowd(agents, opening, turns, resident, allocated if traced else None)


async def _open(runtime: Runtime, name: str, opened: list[Agent]) -> None:
    opened.append(await runtime.agent(name, model=Caller(), tools=[look]))


async def _warm_up(runtime: Runtime) -> None:
    """Import and cache what the first agent needs, so that it is not counted as an agent's own."""
    agent = await runtime.agent("warm-up", model=Caller(), tools=[look])
    await _one_turn(agent)
    await agent.close()


async def _together(
    jobs: Sequence[Callable[[], Awaitable[None]]], advance: Advance, *, at_once: int | None = None
) -> None:
    """Do all jobs, `at_once` of them at a time (by default all)."""
    places = trio.CapacityLimiter(at_once or len(jobs))

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await job()
        advance()

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)


def _memory() -> tuple[int, int]:
    """Bytes that are resident (0 where there is no /proc), and bytes that Python has allocated, without garbage."""
    for _ in range(3):
        gc.collect()
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) if statm.exists() else 0
    return pages * resource.getpagesize(), tracemalloc.get_traced_memory()[0]


# --- a long log --------------------------------------------------------------------------------------------------


@frozen
class LongLog:
    """Seconds until an agent with so long a log is ready, and what a step costs on it and on an empty one."""

    events: int
    opening: float
    step: float
    step_when_empty: float
    request: float


async def long_log(folder: Path, events: int, advance: Advance = _no_progress, *, turns: int = STEP_TURNS) -> LongLog:
    """Write a log of at least `events` events, open it, and take `turns` turns on it and on an empty one."""
    async with SqliteStore(folder / "long.db") as store:
        written = await _write_log(store, "long", events, advance)
        timed = _TimedStore(store)
        async with Runtime.open(timed) as runtime:
            started = time.perf_counter()
            agent = await runtime.agent("long", model=timed.model, tools=[look])
            opening = time.perf_counter() - started
            empty = await runtime.agent("empty", model=timed.model, tools=[look])
            costs, costs_when_empty = [], []
            for _ in range(turns):  # by turns, so that whatever else the machine does is shared alike
                costs.append(await _costs_of_a_step(agent, timed))
                costs_when_empty.append(await _costs_of_a_step(empty, timed))
                advance()
        for session_id in ("long", "empty"):
            assert not list(check(await store.read(session_id)))
        assert (await store.info("long")).last_seq == written - 1 + turns * _EVENTS_PER_TURN
    step, request = map(statistics.median, zip(*costs, strict=True))
    step_when_empty, _ = map(statistics.median, zip(*costs_when_empty, strict=True))
    return LongLog(written, opening, step, step_when_empty, request)


def _turn_drafts(turn: int) -> Iterator[Draft]:
    """A turn of an agent as it stands in a log: one step with `CALLS` calls, and one that says that it is done."""
    message = UserMessage((TextBlock(f"Look around, for the {turn}th time."),), {"kind": "user"}, "user", f"u{turn}")
    source = {"kind": "model", "provider": "bench", "model": "caller"}
    calls = tuple(
        ToolCallBlock(f"t{turn}c{index}", look.name, f'{{"place": "place {index}"}}') for index in range(CALLS)
    )
    yield insert("next-turn", 0, message)
    yield draft(TurnStart(turn))
    yield from remove("next-turn", 1)
    yield draft(StepStart(turn, 1))
    yield draft(message)
    yield draft(AssistantMessage(turn, 1, ModelMessage("assistant", calls, source, f"a{turn}")))
    for call in calls:
        yield draft(ToolCall(turn, 1, call.id, call.name, call.arguments))
    for call in calls:
        outcome = success(f"There is nothing at {call.arguments}.")
        yield draft(result_body(outcome, turn=turn, step=1, call_id=call.id, message_id=f"r{call.id}"))
    yield draft(StepEnd(turn, 1))
    yield draft(StepStart(turn, 2))
    yield draft(AssistantMessage(turn, 2, ModelMessage("assistant", (TextBlock("Done."),), source, f"b{turn}")))
    yield draft(StepEnd(turn, 2))
    yield draft(TurnEnd(turn, Reason("completed")))


async def _write_log(store: Store, session_id: str, events: int, advance: Advance) -> int:
    """Write whole turns until there are `events` events; how many there are."""
    writer = await store.open(session_id)
    state, turn = LogState(), 0
    while state.next_seq < events:
        numbers = range(turn + 1, turn + 1 + _TURNS_PER_APPEND)
        drafts = [item for number in numbers for item in _turn_drafts(number)]
        turn = numbers[-1]
        numbered = state.admit(drafts, turn)
        await store_events(writer, numbered)
        advance()
    await writer.release()
    return state.next_seq


# --- what a step costs -------------------------------------------------------------------------------------------


class _TimedStore(SqliteStore):
    """Another way to the same file, that notes the time of each append's start and end."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store.path)
        self.times: list[tuple[str, float]] = []
        self.model = _TimedCaller(self.times)

    async def open(self, session_id: str, **options: object) -> Writer:
        return _TimedWriter(await super().open(session_id, **options), self.times)


class _TimedWriter(Writer):
    def __init__(self, inner: Writer, times: list[tuple[str, float]]) -> None:
        self.session_id, self.epoch = inner.session_id, inner.epoch
        self.next_seq, self.header = inner.next_seq, inner.header
        self._inner = inner
        self._times = times

    def append(self, events: Sequence[Event], on_done: OnDone) -> None:
        self._times.append(("submit", time.perf_counter()))

        def done(error: Exception | None) -> None:
            self._times.append(("done", time.perf_counter()))
            on_done(error)

        self._inner.append(events, done)

    async def release(self) -> None:
        await self._inner.release()


class _TimedCaller(Caller):
    """Notes when it is asked: the time since the append before is what building the request took."""

    def __init__(self, times: list[tuple[str, float]]) -> None:
        self._times = times

    async def respond(self, request: ModelRequest, emit: Callable[[Delta], None]) -> None:
        self._times.append(("asked", time.perf_counter()))
        await super().respond(request, emit)


async def _costs_of_a_step(agent: Agent, store: _TimedStore) -> tuple[float, float]:
    """Take a turn of two steps: the seconds of one step apart from building its request, and of building it."""
    store.times.clear()
    await _one_turn(agent)
    times = store.times
    requests = [now - before for (_, before), (what, now) in pairwise(times) if what == "asked"]
    assert len(requests) == 2
    whole = times[-1][1] - times[0][1]
    return (whole - sum(requests)) / 2, sum(requests) / 2


# --- the command -------------------------------------------------------------------------------------------------

_MEMORY_GOAL = 25_000
_OPENING_GOAL = 2


@click.command(help="Many agents on one store, and one agent with a long log.")
@click.option("--agents", default=1000, show_default=True, type=click.IntRange(1), help="Agents in one process.")
@click.option("--events", default=100_000, show_default=True, type=click.IntRange(1), help="Events in the long log.")
def main(agents: int, events: int) -> None:
    """Run it all, in a folder that is removed afterwards, and show a table."""
    console = Console()
    appends = -(-events // (_TURNS_PER_APPEND * _EVENTS_PER_TURN))
    with tempfile.TemporaryDirectory() as name, Progress(console=console, transient=True) as progress:
        folder = Path(name)
        run = partial(_run, progress)
        timed = run(f"{agents} agents at once", 2 * agents, partial(crowd, folder / "timed.db", agents))
        few = partial(crowd, agents=agents, at_once=FEW)
        calm = run(f"{agents} agents", 2 * agents, partial(few, folder / "calm.db"))
        traced = run(f"{agents} agents, traced", 2 * agents, partial(few, folder / "traced.db", traced=True))
        long = run(f"a log of {events} events", appends + STEP_TURNS, partial(long_log, folder, events))
    console.print(_table(calm, timed, traced, long))


def _run(progress: Progress, words: str, total: int, job: Callable[..., Awaitable[T]]) -> T:
    """Run `job` in a process of its own, so that nothing that ran before it counts, and show how far it is."""
    task = progress.add_task(words, total=total)
    ours, theirs = _SPAWN.Pipe(duplex=False)
    child = _SPAWN.Process(target=_in_child, args=(job, theirs))
    child.start()
    theirs.close()
    try:
        with ours:
            while (message := ours.recv()) is None:
                progress.advance(task)
    except EOFError:
        raise SystemExit(f"{words}: failed, see above") from None
    child.join()
    result: T = message
    return result


def _in_child(job: Callable[..., Awaitable[object]], pipe: Connection) -> None:
    async def run() -> object:
        return await job(advance=partial(pipe.send, None))

    pipe.send(trio.run(run))


_SPAWN: Final = multiprocessing.get_context("spawn")


def _table(calm: Crowd, timed: Crowd, traced: Crowd, long: LongLog) -> Table:
    rate = timed.agents * CALLS / timed.turns
    table = Table("what", "measured", "goal")
    table.add_row(f"{timed.agents} agents opened", f"{timed.opening:.2f} s", "")
    table.add_row(
        f"a turn of {CALLS} parallel calls in each, all at once", f"{timed.turns:.2f} s ({rate:.0f} calls/s)", ""
    )
    table.add_row("memory of an idle agent, allocated", _kb(traced.allocated or 0), f"under {_kb(_MEMORY_GOAL)}")
    table.add_row("memory of an idle agent, resident", _kb(calm.resident), "")
    table.add_row(f"a log of {long.events} events opened", f"{long.opening:.2f} s", f"under {_OPENING_GOAL:.0f} s")
    table.add_row("a step on it, without its request", _ms(long.step), "as on an empty log")
    table.add_row("a step on an empty log, without its request", _ms(long.step_when_empty), "")
    table.add_row("building the request of a step on it", _ms(long.request), "")
    return table


def _kb(size: float) -> str:
    return f"{size / 1000:.1f} kB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
