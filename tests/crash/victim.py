"""Processes that run agents and are killed, or fight for a session. For `test_kill9.py` and `test_contention.py`.

This program is a warm parent: it has imported everything and started nothing. For each line of JSON on its standard
input, `{"run": name, ...}`, it forks a child that runs the function of that name in this module, and answers with a
line that says how the child ended (its exit code, or minus the signal that killed it).

A child can be told to kill itself at a point, by name and count: `told 7` is the seventh time that the store has told
it that an append is durable. It is then gone at once, by SIGKILL, in whatever its other threads are doing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from threading import Lock

import trio

from quiesce.actors import Ask, Hooks, Runtime, ScriptedModel, SqliteStore, TurnFailed, call, say, tool
from quiesce.actors.stores import Writer, group_commit, sqlite_tables
from quiesce.protocol.codec import dumps
from quiesce.protocol.errors import SessionHeld, StoreLocked

# --- points ------------------------------------------------------------------------------------------------------


class Points:
    """Counts how often each point is passed, and kills the process at the one that was asked for."""

    def __init__(self, fatal=None):
        self.fatal = fatal
        self.passed = []
        self._counts = Counter()
        self._lock = Lock()

    def reach(self, name):
        with self._lock:
            self._counts[name] += 1
            point = f"{name} {self._counts[name]}"
            self.passed.append(point)
            if point == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def append_line(path, line, *, sync=False):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, f"{line}\n".encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WatchedStore(SqliteStore):
    """Passes points on the way of each append, and writes down each event that it acknowledged, when it did."""

    def __init__(self, folder, points):
        super().__init__(folder / "agents.db")
        self.acknowledged = folder / "acknowledged"
        self.points = points

    async def open(self, session_id, **options):
        return WatchedWriter(await super().open(session_id, **options), self)


class WatchedWriter(Writer):
    def __init__(self, inner, store):
        self.session_id, self.epoch = inner.session_id, inner.epoch
        self.next_seq, self.header = inner.next_seq, inner.header
        self._inner = inner
        self._store = store

    def append(self, events, on_done):
        lines = [dumps(event) for event in events]

        def told(error):
            if error is None:
                append_line(self._store.acknowledged, "\n".join(lines))
            self._store.points.reach("told")
            on_done(error)
            self._store.points.reach("replied")

        self._store.points.reach("submit")
        self._inner.append(events, told)
        self._store.points.reach("submitted")

    async def release(self):
        await self._inner.release()


def watch_the_writing_thread(points):
    """Pass `written` when an append is in the open transaction, `committed` when it is durable and nobody knows."""
    add, deliver = sqlite_tables.SqliteTables.add, group_commit.deliver

    def watched_add(*arguments):
        add(*arguments)
        points.reach("written")

    def watched_deliver(settled):
        settled = list(settled)
        for _ in settled:
            points.reach("committed")
        deliver(settled)

    sqlite_tables.SqliteTables.add = watched_add
    group_commit.deliver = watched_deliver


# --- the story ---------------------------------------------------------------------------------------------------


class Workshop:
    """Tools whose bodies leave a line in the file `effects`, so that one that ran twice, or unrecorded, is seen."""

    def __init__(self, folder, points):
        self.effects = folder / "effects"
        self.points = points
        self.quick_ran = trio.Event()
        self.second_ran = trio.Event()
        self.waiting = trio.Event()
        shared = tool(parallel=True)
        self.tools = [*map(shared, (self.late, self.quick, self.threaded)), *map(tool, (self.alone, self.forever))]

    async def late(self, of: str) -> str:
        """Ends after another call that was asked for later."""
        self._effect(of)
        await self.quick_ran.wait()
        return self._returning(of)

    async def quick(self, of: str) -> str:
        """Is done at once."""
        self._effect(of)
        await trio.lowlevel.checkpoint()
        (self.second_ran if of == "2b" else self.quick_ran).set()
        return self._returning(of)

    def threaded(self, of: str) -> str:
        """Runs in a thread."""
        self._effect(of)
        return self._returning(of)

    async def alone(self, of: str) -> str:
        """Shares the pool with nobody."""
        self._effect(of)
        return self._returning(of)

    async def forever(self, of: str) -> str:
        """Waits to be cancelled."""
        self._effect(of)
        self.waiting.set()
        await trio.sleep_forever()
        return of

    def _effect(self, of):
        self.points.reach("begin")
        append_line(self.effects, of, sync=True)
        self.points.reach("ran")

    def _returning(self, of):
        self.points.reach("end")
        return f"did {of}"


class WatchedHooks(Hooks):
    """Passes points, and fails the scheduler at the call of "refused", when the call before it has run."""

    def __init__(self, points, workshop):
        self.points = points
        self.workshop = workshop

    async def prepare(self, invocation):
        self.points.reach("prepare")
        if invocation.arguments["of"] == "refused":
            await self.workshop.second_ran.wait()
            raise PermissionError("no")

    async def finalize(self, invocation, outcome):
        self.points.reach("finalize")


def script():
    """What the model says in the story."""
    return [
        say(
            "all at once",
            call("late", of="1a"),
            call("quick", of="1b"),
            call("threaded", of="1c"),
            call("quick", of="1d"),
        ),
        say("one by one", call("alone", of="1e"), call("quick", of="1f"), call("alone", of="1g")),
        say("done"),
        say("this fails", *(call("quick", of=of) for of in ("2a", "2b", "refused", "2c", "2d"))),
        say("this is cancelled", call("forever", of="3a"), call("quick", of="3b")),
        say("good bye"),
    ]


def story(folder, fatal=None):
    """A turn with calls of every kind, one that fails, one that is cancelled, and a last one; killed at `fatal`."""
    folder, points = Path(folder), Points(fatal)
    watch_the_writing_thread(points)

    async def main():
        workshop = Workshop(folder, points)
        async with Runtime.open(WatchedStore(folder, points)) as runtime:
            hooks = [WatchedHooks(points, workshop)]
            agent = await runtime.agent("s", model=ScriptedModel(script()), tools=workshop.tools, hooks=hooks)
            await agent.send("one")
            await agent.inject("by the way")
            try:
                await agent.send("two")
            except TurnFailed:
                points.reach("failed")
            await agent.follow_up("three")
            await workshop.waiting.wait()
            await agent.follow_up("dropped")
            await agent.cancel()
            await agent.send("four")

    trio.run(main)
    (folder / "points").write_text("\n".join(points.passed))


# --- fighting for a session --------------------------------------------------------------------------------------


def contend(folder, name, turns):
    """Open the session `s`, take a turn in it and close it, `turns` times; wait while another process has it."""

    async def main():
        workshop = Workshop(Path(folder), Points())
        for turn in range(turns):
            await take_a_turn(workshop, f"{name}{turn}")

    async def take_a_turn(workshop, of):
        model = ScriptedModel([say("", call("quick", of=of)), say("done")])
        while True:
            try:
                async with Runtime.open(Path(folder) / "agents.db") as runtime:
                    await (await runtime.agent("s", model=model, tools=workshop.tools)).send(of)
                    return
            except (SessionHeld, StoreLocked):
                await trio.sleep(0.001)

    trio.run(main)


def hold(folder, fatal=None):
    """Hold the session `s`, and say so in the file `held`; then be killed, or wait for the file `go` and go on."""

    async def main():
        workshop = Workshop(Path(folder), Points())
        calls = say("", *(call("patient", of=of) for of in ("h1", "h2", "h3")))

        @tool
        async def patient(of: str) -> str:
            """Waits for the file `go`."""
            workshop._effect(of)
            (Path(folder) / "held").touch()
            if fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            while not (Path(folder) / "go").exists():  # noqa: ASYNC110 - another process makes it
                await trio.sleep(0.001)
            return of

        async with Runtime.open(Path(folder) / "agents.db") as runtime:
            agent = await runtime.agent("s", model=ScriptedModel([calls, say("unwanted")]), tools=[patient])
            try:
                await agent.send("go")
            except TurnFailed as failed:
                append_line(Path(folder) / "failed", type(failed.__cause__).__name__)

    trio.run(main)


# --- waiting for a person ----------------------------------------------------------------------------------------


def ask(folder, fatal=None):
    """A turn with calls that wait for a person, one of which is approved and runs for ever; killed at `fatal`."""
    folder, points = Path(folder), Points(fatal)
    watch_the_writing_thread(points)

    async def main():
        workshop = Workshop(folder, points)
        calls = [call("quick", of="before"), call("alone", of="asked"), call("alone", of="behind")]
        async with Runtime.open(WatchedStore(folder, points)) as runtime:
            model = ScriptedModel([say("may I?", *calls), say("done")])
            agent = await runtime.agent("s", model=model, tools=workshop.tools, hooks=[AskAboutAsked(points)])
            receipt = await agent.follow_up("go")
            while not await agent.questions():  # noqa: ASYNC110 - the question comes when it comes
                await trio.sleep(0.001)
            points.reach("waiting")
            await agent.approve((1, 1, 1))
            points.reach("approved")
            await receipt.turn

    trio.run(main)
    (folder / "points").write_text("\n".join(points.passed))


class AskAboutAsked(Hooks):
    """Has a person decide about the call of "asked"."""

    def __init__(self, points):
        self.points = points

    async def prepare(self, call):
        self.points.reach("prepare")
        return Ask("Shall it?") if call.arguments["of"] == "asked" else None


# --- the warm parent ---------------------------------------------------------------------------------------------

_RUNS = {"story": story, "contend": contend, "hold": hold, "ask": ask}


def serve():
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_the_child(_RUNS[order.pop("run")], order)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be_the_child(run, order):
    code = 1
    try:
        run(**order)
        code = 0
    except BaseException:  # noqa: BLE001 - the child ends here, with its traceback on standard error
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
