"""Servers that others wrote: three in Python, from the test extra, and one in JavaScript, which is installed once."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from quiesce.actors import call, say
from quiesce.actors.mcp import McpServer

FILESYSTEM = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(autouse=True)
async def in_time():
    with trio.fail_after(120):
        yield


@pytest.fixture(scope="session")
def installed():
    """The command of a server that stands beside this Python."""

    def of(name):
        command = shutil.which(name, path=str(Path(sys.executable).parent))
        if command is None:
            pytest.skip(f"{name} is not installed; it is in the test extra")
        return command

    return of


@pytest.fixture(scope="session")
def filesystem_server(request):
    """The command of the server from npm, installed into pytest's cache the first time."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here")
    folder = request.config.cache.mkdir("mcp-servers")
    command = folder / "node_modules" / ".bin" / "mcp-server-filesystem"
    if not command.exists():
        install = [npm, "install", "--no-audit", "--no-fund", "--fetch-retries=0", "--prefix", folder, FILESYSTEM]
        try:
            subprocess.run(install, capture_output=True, text=True, timeout=120, check=True)
        except subprocess.CalledProcessError as failed:
            pytest.skip(f"npm cannot install {FILESYSTEM}: {failed.stderr.strip()[-300:]}")
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm takes too long to install {FILESYSTEM}")
    return command


def git(folder, *words):
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "notes.txt").write_text("buy milk\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "The notes")
    return folder


async def test_the_time_server_tells_the_time_and_refuses_a_zone_that_is_none(installed, hands):
    async with hands(McpServer(installed("mcp-server-time"), "--local-timezone", "UTC")) as tools:
        code, text = await tools.call("get_current_time", timezone="Europe/Oslo")
        assert code == "ok"
        assert json.loads(text)["timezone"] == "Europe/Oslo"
        code, text = await tools.call("get_current_time", timezone="Nowhere/At_all")
        assert code == "TOOL_ERROR"
        assert "Nowhere" in text


async def test_the_git_server_reads_a_repository(installed, repository, hands):
    async with hands(McpServer(installed("mcp-server-git"), "--repository", repository)) as tools:
        code, text = await tools.call("git_log", repo_path=str(repository))
        assert code == "ok"
        assert "The notes" in text
        assert (await tools.tools())["git_log"].parallel is True
        assert (await tools.tools())["git_commit"].parallel is False


async def test_the_fetch_server_reads_a_page_on_loopback(installed, hands):
    async def page(stream):
        async with stream:
            await stream.receive_some()
            body = b"<html><body><h1>Weather</h1><p>It rains in Bergen.</p></body></html>"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            await stream.send_all(head % len(body) + body)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, page, listeners)
        async with hands(
            McpServer(installed("mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips")
        ) as tools:
            code, text = await tools.call("fetch", url=f"http://127.0.0.1:{port}/", raw=True)
        nursery.cancel_scope.cancel()
    assert code == "ok"
    assert "It rains in Bergen." in text


async def test_the_filesystem_server_writes_and_reads(filesystem_server, tmp_path, hands):
    async with hands(McpServer(filesystem_server, tmp_path)) as tools:
        assert (await tools.call("write_file", path=str(tmp_path / "a.txt"), content="hello"))[0] == "ok"
        assert (tmp_path / "a.txt").read_text() == "hello"
        code, text = await tools.call("read_text_file", path=str(tmp_path / "a.txt"))
        assert (code, "hello" in text) == ("ok", True)
        code, text = await tools.call("read_text_file", path="/etc/hostname")
        assert code == "TOOL_ERROR"
        assert "outside" in text


async def test_a_turn_with_two_real_servers(agents, installed, repository):
    clock = McpServer(installed("mcp-server-time"), name="clock")
    notes = McpServer(installed("mcp-server-git"), "--repository", repository, name="notes")
    script = [
        say(
            "",
            call("clock__get_current_time", timezone="UTC"),
            call("notes__git_status", repo_path=str(repository)),
        ),
        say("done"),
    ]
    async with agents.at_work(script, mcp=[clock, notes]) as desk:
        assert (await desk.agent.send("go")).text == "done"
        first, second = await desk.timeline("result")
        assert re.search(r'"timezone": ?"UTC"', first)
        assert "working tree clean" in second
