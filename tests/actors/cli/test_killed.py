"""`quiesce run` with real servers, killed while their tools run: the session goes on, and nothing runs twice."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

from quiesce.actors.stores import SqliteStore
from quiesce.protocol.events import ToolResult, TurnEnd, text_of
from quiesce.protocol.rules import check


@pytest.fixture
def installed():
    """A command that stands beside this Python: quiesce itself, and servers from the test extra."""

    def installed(name):
        command = shutil.which(name, path=str(Path(sys.executable).parent))
        if command is None:
            pytest.skip(f"{name} is not installed; it is in the test extra")
        return command

    return installed


@pytest.fixture
def silent_page():
    """A web page that is never served: connections to it are counted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def has_ended(process):
    """Whether a process has ended; whoever inherited it may not have asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def events_of(path):
    async with SqliteStore(path) as store:
        return await store.read("s")


async def first_result(path):
    """Wait until the log has one."""
    with trio.fail_after(60):
        async with SqliteStore(path) as store:
            while not any(isinstance(event.body, ToolResult) for event in await store.read("s")):
                await trio.lowlevel.checkpoint()


def test_killed_while_the_tools_of_two_servers_run_a_session_is_resumed_and_finished(
    fake_provider, installed, silent_page, tmp_path
):
    fp, url = fake_provider, f"http://127.0.0.1:{silent_page.getsockname()[1]}/"
    script = fp.by_depth(
        [
            [
                fp.Text("Looking it up."),
                fp.Call("mcp-server-time__get_current_time", {"timezone": "UTC"}),
                fp.Call("mcp-server-fetch__fetch", {"url": url, "raw": True}),
                fp.Call("mcp-server-time__get_current_time", {"timezone": "Asia/Tokyo"}),
            ],
            [fp.Call("mcp-server-time__get_current_time", {"timezone": "Europe/Oslo"})],
            [fp.Text("All is known now.")],
        ]
    )
    with fp.in_thread(script) as provider:
        command = [
            *(installed("quiesce"), "run", "--model", "openai:m", "--base-url", provider.base_url),
            *("--mcp", f"{installed('mcp-server-time')} --local-timezone UTC"),
            *("--mcp", f"{installed('mcp-server-fetch')} --ignore-robots-txt --allow-private-ips"),
            *("--db", str(tmp_path / "t.db"), "--session", "s"),
        ]
        options = {"env": os.environ | {"OPENAI_API_KEY": provider.key}, "text": True, "stdout": subprocess.PIPE}
        with subprocess.Popen([*command, "What time is it?"], stderr=subprocess.PIPE, **options) as killed:
            connection, _ = silent_page.accept()  # the page is being fetched: the tool runs
            trio.run(first_result, tmp_path / "t.db")
            servers = psutil.Process(killed.pid).children()
            killed.send_signal(signal.SIGKILL)
            killed.communicate()
        connection.close()
        assert len(servers) == 2
        resumed = subprocess.run([*command, "Go on."], stderr=subprocess.PIPE, check=False, timeout=120, **options)
        assert (resumed.returncode, resumed.stdout) == (0, "All is known now.\n"), resumed.stderr
        assert provider.refused == []
    events = trio.run(events_of, tmp_path / "t.db")
    results = [event.body for event in events if isinstance(event.body, ToolResult)]
    assert [result.error.code if result.error else "ok" for result in results] == [
        *("ok", "TOOL_OUTCOME_UNKNOWN", "TOOL_OUTCOME_UNKNOWN"),
        "ok",
    ]
    assert "UTC" in text_of(results[0].message.content)
    assert [event.body.reason.kind for event in events if isinstance(event.body, TurnEnd)] == [
        "interrupted",
        "completed",
    ]
    assert list(check(events)) == []
    silent_page.settimeout(0)
    with pytest.raises(BlockingIOError):
        silent_page.accept()  # the page was asked for once
    _, left = psutil.wait_procs(servers, timeout=20)
    assert all(map(has_ended, left))
