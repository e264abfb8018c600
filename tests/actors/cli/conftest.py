"""What the tests of the command share: running it, a store with sessions, log files in short notation."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from quiesce.actors import Hooks, Runtime, ScriptedModel, TurnFailed, call, say, tool
from quiesce.actors.cli import main
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.events import ToolResult
from quiesce.protocol.logfile import header, write_log

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def data():
    """The folder with session logs of another harness."""
    return DATA


@pytest.fixture
def run():
    """Run the command in this process, as in a pipe of 100 columns; standard output and error are kept apart."""

    def run(*arguments, stdin=None, columns=100, **env):
        quiet = {"COLUMNS": str(columns), "NO_COLOR": None, "FORCE_COLOR": None, "TZ": "UTC"}
        return CliRunner(env=quiet | env).invoke(
            main, [str(item) for item in arguments], input=stdin, prog_name="quiesce"
        )

    return run


@pytest.fixture
def fails(run):
    """Run the command, expect a user's mistake: exit code 2 and one line on standard error. The line is returned."""

    def fails(*arguments, **options):
        result = run(*arguments, **options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("quiesce: ")
        assert result.stderr.count("\n") == 1
        return result.stderr.removeprefix("quiesce: ").rstrip("\n")

    return fails


@pytest.fixture
def write(tmp_path, logs):
    """Write a log file: events in the short notation of `logs`, or events."""

    def write(events, name="log.jsonl"):
        path = tmp_path / name
        made = logs.read(events) if isinstance(events, str) else events
        path.write_bytes(write_log(header("a-session", 1), made))
        return path

    return write


# --- a store -----------------------------------------------------------------------------------------------------


@tool(parallel=True)
async def look(path: str) -> str:
    """Look at a file."""
    return f"seen {path}"


class Broken(Hooks):
    """A hook that fails in turn 2."""

    async def prepare(self, call):
        if (call.turn, call.index) == (2, 1):
            raise OSError("no such policy")


async def _make(path):
    script = [
        say("Looking.", call(look, path="a.txt"), call(look, path="b.txt")),
        say("Seen both."),
        say("Again.", call(look, path="a.txt"), call(look, path="b.txt"), call(look, path="c.txt")),
        say("It failed, and goes on."),
    ]
    async with Runtime.open(path) as runtime:
        agent = await runtime.agent("reviewer", model=ScriptedModel(script), tools=[look], hooks=[Broken()])
        await agent.send("Look at the files.")
        with pytest.raises(TurnFailed):
            await agent.send("Look again.")
        await agent.send("And now?")
    async with SqliteStore(path) as store:
        await _copy(store, await store.read("reviewer"), "cut-off", 8)


async def _copy(store, events, name, size):
    writer = await store.open(name, new=True)
    stored = trio.Event()
    writer.append(events[:size], lambda error: stored.set() if error is None else None)
    await stored.wait()
    await writer.release()


@pytest.fixture(scope="session")
def made_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "agents.db"
    trio.run(_make, path)
    return path


@pytest.fixture
def db(made_store, tmp_path):
    """A store with the sessions `reviewer` (completed, failed, completed) and `cut-off` (inside its first turn)."""
    return shutil.copy(made_store, tmp_path / "agents.db")


# --- talking -----------------------------------------------------------------------------------------------------

KIND = {"chat": "openai:m", "responses": "responses:m", "anthropic": "anthropic:m"}
MISBEHAVING = Path(__file__).parents[1] / "mcp" / "misbehaving_server.py"


@pytest.fixture
def serve(fake_provider, tmp_path, monkeypatch):
    """Have a provider answer by this script; the options that lead to it, and a store to talk in."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with ExitStack() as stack:

        def serve(replies, dialect="chat"):
            provider = stack.enter_context(fake_provider.in_thread(replies))
            url = provider.root_url if dialect == "anthropic" else provider.base_url
            return provider, ("--model", KIND[dialect], "--base-url", url, "--db", tmp_path / "t.db")

        yield serve


@pytest.fixture
def start():
    """Start the command as a process of its own, whose streams are pipes."""

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "quiesce.actors.cli", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def events_of():
    """The events of a session in this store."""

    def events_of(path, session):
        async def read():
            async with SqliteStore(path) as store:
                return await store.read(session)

        return trio.run(read)

    return events_of


@pytest.fixture
def outcomes(events_of):
    """How the calls of session `s` in this store ended."""

    def outcomes(path):
        results = [event.body for event in events_of(path, "s") if isinstance(event.body, ToolResult)]
        return [result.error.code if result.error else "ok" for result in results]

    return outcomes


@pytest.fixture
def report():
    """A port where misbehaving servers report what they read, and first their process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def echo_server(report):
    """The option for an MCP server most of whose tools are not declared to be harmless."""
    return "--mcp", f"{sys.executable} {MISBEHAVING} --report {report.getsockname()[1]}"


@pytest.fixture
def process_of_server(report):
    """Wait for a server to report, and give its process id."""
    with ExitStack() as stack:

        def process_of_server():
            connection = stack.enter_context(report.accept()[0])  # a server that cannot report any more would die
            return json.loads(stack.enter_context(connection.makefile()).readline())["pid"]

        yield process_of_server


@pytest.fixture
def talking():
    """A chat that runs, line by line."""
    return Talking


class Talking:
    """See the fixture."""

    def __init__(self, process):
        self.process = process

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, *wanted):
        """Wait until standard error has had a line with each of these words, in any order."""
        missing = set(wanted)
        while missing:
            line = self.process.stderr.readline()
            assert line, f"the chat ended without {missing}"
            missing -= {words for words in missing if words in line}

    def asked(self):
        """Wait for a question."""
        self.hear("y, or n and a reason")
