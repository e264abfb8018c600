"""The demo's child process: it resumes the session, starts a turn, and is killed in the middle of a tool.

`run_child` is the parent's side, `main` the child's. The child says on standard output when it is inside the tool, with
the seq of the last event that was acknowledged to it. It ends with its parent, however that ends: its standard input is
a pipe that the parent holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from quiesce.actors.cli.demo_tools import Stopwatch, make_tools
from quiesce.actors.models import ScriptedModel, call, say
from quiesce.actors.runtime import Runtime
from quiesce.protocol.events import ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from quiesce.actors.agent import Agent
    from quiesce.actors.attempts import Model

__all__ = ["Child", "ChildFailed", "main", "running_child"]

_PATIENCE: Final = 60.0
_FOREVER: Final = 3600


class ChildFailed(Exception):  # noqa: N818 - named for what happened
    """The child process ended, or said nothing, before it was inside the tool."""


# --- the parent's side -------------------------------------------------------------------------------------------


class Child:
    """A child process that is inside a tool. `acknowledged` is the seq of the last event that it knows to be stored."""

    def __init__(self, process: trio.Process, acknowledged: int) -> None:
        self._process = process
        self.acknowledged = acknowledged
        self.pid = process.pid

    async def kill(self) -> int:
        """End it by SIGKILL, which it cannot notice. Its exit status, negative for a signal."""
        self._process.kill()
        return await self._process.wait()


@asynccontextmanager
async def running_child(workshop: Path, *arguments: str) -> AsyncIterator[Child]:
    """Start a child and wait until it is inside the tool; on leaving, it is dead. Raises `ChildFailed`.

    `arguments` are those of `main`. What the child writes to standard error goes to a file in `workshop`.
    """
    errors = workshop / "child.err"
    with errors.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            # -P: a module of the user's in the current folder is not one of ours.
            [sys.executable, "-P", "-m", "quiesce.actors.cli.demo_child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # however this one was installed
            start_new_session=True,  # Ctrl-C is for the parent, which ends its child
        )
    assert process.stdin is not None
    assert process.stdout is not None
    async with process.stdin, process.stdout:
        try:
            yield Child(process, await _acknowledged(process.stdout, errors))
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _acknowledged(output: trio.abc.ReceiveStream, errors: Path) -> int:
    said = b""
    with trio.move_on_after(_PATIENCE):
        async for part in output:
            said += part
            if said.endswith(b"\n"):
                break
    if not said.endswith(b"\n"):
        raise ChildFailed(f"the child process did not come to its tool: {_last_line(errors)}")
    return int(said)


def _last_line(errors: Path) -> str:
    lines = errors.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


# --- the child's side --------------------------------------------------------------------------------------------


def main(db: str, session_id: str, folder: str, path: str, workshop: str, next_seq: str) -> None:
    """Run a turn that never ends by itself: a quick call, one that takes an hour, and one that waits for it.

    `next_seq` is the number of the first event that this process will add.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    script = [
        say(
            "I read it once more, look around for long, and then take a note.",
            call("read_file", path=path),
            call("survey", seconds=_FOREVER),
            call("take_note", text="the folder was looked at"),
        )
    ]
    trio.run(_work, db, session_id, Path(folder), Path(workshop), ScriptedModel(script), int(next_seq))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


async def _work(db: str, session_id: str, folder: Path, workshop: Path, model: Model, next_seq: int) -> None:
    stopwatch = Stopwatch(workshop / "ledger.txt")
    tools = make_tools(folder, workshop / "notes.txt")
    async with Runtime.open(db) as runtime, trio.open_nursery() as nursery:
        agent = await runtime.agent(session_id, model=model, tools=tools, hooks=[stopwatch])
        nursery.start_soon(_report, agent, stopwatch, next_seq)
        await agent.send("Take your time, and leave a note.")


async def _report(agent: Agent, stopwatch: Stopwatch, next_seq: int) -> None:
    """Once the first result is acknowledged and the slow body is running, say so."""
    async for event in agent.events(next_seq):
        if isinstance(event.body, ToolResult):
            await stopwatch.until(lambda: "survey" in stopwatch.live.values())
            sys.stdout.write(f"{event.seq}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
