"""The demo's tools and hooks: an agent that looks at the files of a folder, and what watches it doing so."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import Factory, define, evolve, frozen

from quiesce.actors.hooks import Hooks
from quiesce.actors.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quiesce.actors.hooks import RunBody, ToolInvocation
    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.outcome import ToolOutcome

__all__ = ["Place", "Refusal", "Run", "SlowestLast", "Stopwatch", "make_tools", "place_of", "read_ledger"]

Place: TypeAlias = tuple[int, int, int]
"""Which call it is: turn, step, index in its message."""

_MAX_LISTED: Final = 50
_MAX_READ: Final = 2_000
_CHUNK: Final = 1 << 20
_PATIENCE: Final = 30.0
"""Seconds after which what does not happen will not happen."""


# --- tools -------------------------------------------------------------------------------------------------------


def make_tools(folder: Path, notes: Path) -> tuple[AnyTool, ...]:
    """The tools, for paths in `folder`; notes are taken in the file `notes`."""

    @tool(parallel=True)
    async def list_folder(path: str = ".") -> str:
        """List what is in a folder."""
        names = sorted(entry.name for entry in await trio.Path(folder / path).iterdir())
        more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        return f"{len(names)} entries: {', '.join(names[:_MAX_LISTED])}{more}" if names else "an empty folder"

    @tool(parallel=True)
    async def read_file(path: str) -> str:
        """Read the beginning of a text file."""
        async with await trio.open_file(folder / path, encoding="utf-8", errors="replace") as file:
            return await file.read(_MAX_READ)

    @tool(parallel=True)
    def hash_file(path: str) -> str:
        """The SHA-256 of a file; a `def`, so it runs in a worker thread and holds nothing up."""
        digest, size = hashlib.sha256(), 0
        with (folder / path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return f"{size:,} bytes, sha256 {digest.hexdigest()[:16]}..."

    @tool(parallel=True)
    async def survey(seconds: float) -> str:
        """Look around for a while, as a build or a test run would."""
        await trio.sleep(seconds)
        return f"looked around for {seconds:g} seconds"

    @tool
    async def take_note(text: str) -> str:
        """Write a note. It is not marked parallel: it waits for the calls before it, and runs alone."""
        async with await trio.open_file(notes, "a", encoding="utf-8") as file:
            await file.write(text + "\n")
        return "noted"

    return list_folder, read_file, hash_file, survey, take_note


# --- hooks -------------------------------------------------------------------------------------------------------


@frozen
class Run:
    """One run of a body: when it started and ended, in milliseconds since the epoch."""

    started: int
    ended: int


@define(eq=False)
class Stopwatch(Hooks):
    """Measures every body, and writes each start into the file `ledger`, which outlives the process.

    `live` are the calls whose body is running, `runs` those that have ended, in the order of their ends. The times go
    into the result's `meta`, where `quiesce show` finds them. `on_change` is told of every start and end.
    """

    ledger: Path
    on_change: Callable[[Stopwatch], None] = lambda _: None
    live: dict[Place, str] = Factory(dict)
    runs: dict[Place, Run] = Factory(dict)
    _changed: trio.Event = Factory(trio.Event)

    async def around(self, call: ToolInvocation, run: RunBody) -> object:
        """Run the body between two looks at the clock."""
        place, started = place_of(call), _now()
        with self.ledger.open("a") as file:
            file.write(f"{place[0]} {place[1]} {place[2]}\n")
        self.live[place] = call.name
        self._tell()
        try:
            return await run()
        finally:
            del self.live[place]
            self.runs[place] = Run(started, _now())
            self._tell()

    async def finalize(self, call: ToolInvocation, outcome: ToolOutcome) -> ToolOutcome | None:
        """Put the times beside the result."""
        run = self.runs.get(place_of(call))
        if run is None:  # cancelled before it could start
            return None
        return evolve(outcome, meta={**(outcome.meta or {}), "startedAt": run.started, "endedAt": run.ended})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which is about `live` and `runs`, holds. Raises `trio.TooSlowError` after a while."""
        with trio.fail_after(_PATIENCE):
            while not condition():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
        self.on_change(self)


@define(eq=False)
class SlowestLast(Hooks):
    """Makes the call `last` the last of its message to end, on any machine: it waits for the calls `others`."""

    stopwatch: Stopwatch
    last: Place
    others: frozenset[Place]

    async def around(self, call: ToolInvocation, run: RunBody) -> object:
        """Run the body, and then wait."""
        result = await run()
        if place_of(call) == self.last:
            await self.stopwatch.until(lambda: self.stopwatch.runs.keys() >= self.others)
        return result


@define(eq=False)
class Refusal(Hooks):
    """A `prepare` hook that fails at the call `at`, while the bodies of the calls `running` are running.

    That holds on any machine: `prepare` waits for them to be live, and they do not return before it has failed.
    """

    stopwatch: Stopwatch
    at: Place
    running: frozenset[Place]
    failure: Exception
    _failed: trio.Event = Factory(trio.Event)

    async def prepare(self, call: ToolInvocation) -> ToolInvocation | None:
        """Let every other call pass."""
        if place_of(call) != self.at:
            return None
        await self.stopwatch.until(lambda: self.stopwatch.live.keys() >= self.running)
        self._failed.set()
        raise self.failure

    async def around(self, call: ToolInvocation, run: RunBody) -> object:
        """Run the body; one that is to be running meanwhile ends afterwards."""
        result = await run()
        if place_of(call) in self.running:
            with trio.fail_after(_PATIENCE):
                await self._failed.wait()
        return result


def place_of(call: ToolInvocation) -> Place:
    """Which call it is."""
    return call.turn, call.step, call.index


def read_ledger(ledger: Path) -> list[Place]:
    """The calls whose bodies were started, by whichever process, in order; one that ran twice is there twice."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [(int(turn), int(step), int(index)) for turn, step, index in map(str.split, lines)]


def _now() -> int:
    return time.time_ns() // 1_000_000
