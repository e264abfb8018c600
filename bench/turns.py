"""One turn of 8 parallel calls: in memory, on SQLite, and as a bare nursery that runs the same bodies.

The three take turns in one process, so that whatever else the machine does is shared alike, and medians are compared.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.agents import CALLS, Caller, look
from quiesce.actors import MemoryStore, Runtime, SqliteStore
from quiesce.protocol.rules import check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quiesce.actors import Agent, Store

__all__ = ["main"]


async def _bare() -> None:
    """The same bodies, with nothing around them: no log, no order, no recovery."""
    async with trio.open_nursery() as nursery:
        for index in range(CALLS):
            nursery.start_soon(look, f"place {index}")


def _turn_of(agent: Agent) -> Callable[[], Awaitable[None]]:
    async def turn() -> None:
        ended = await agent.send("Look around.")
        assert ended.reason.kind == "completed"

    return turn


async def _measure(folder: Path, rounds: int) -> dict[str, float]:
    """Median seconds of each way to run the eight bodies."""
    stores: dict[str, Store] = {"memory store": MemoryStore(), "SQLite store": SqliteStore(folder / "turns.db")}
    async with AsyncExitStack() as stack:
        ways: dict[str, Callable[[], Awaitable[None]]] = {"bare nursery": _bare}
        for name, store in stores.items():
            runtime = await stack.enter_async_context(Runtime.open(store))
            ways[name] = _turn_of(await runtime.agent("turns", model=Caller(), tools=[look]))
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in track(range(rounds), "turns", transient=True):
            for name, run in ways.items():
                started = time.perf_counter()
                await run()
                times[name].append(time.perf_counter() - started)
        for store in stores.values():
            assert not list(check(await store.read("turns")))
    return {name: statistics.median(measured) for name, measured in times.items()}


@click.command(help="One turn of 8 parallel calls, beside a bare nursery with the same bodies.")
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(1), help="How often each is run.")
def main(rounds: int) -> None:
    """Measure, in a folder that is removed afterwards, and show a table."""
    with tempfile.TemporaryDirectory() as name:
        medians = trio.run(_measure, Path(name), rounds)
    table = Table("a turn of 8 parallel calls", "median", "beside the bare nursery")
    for way, seconds in medians.items():
        table.add_row(way, f"{seconds * 1000:.3f} ms", f"{seconds / medians['bare nursery']:.0f}x")
    Console().print(table)
