"""`McpServer` as a value: names, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quiesce.actors.kernel import Backoff
from quiesce.actors.mcp import McpServer
from quiesce.actors.mcp import server as server_module
from quiesce.actors.mcp.supervised import check_servers
from quiesce.protocol.errors import InvalidInput


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("mcp-server-time",), "mcp-server-time"),
        (("/usr/local/bin/weather", "--fast"), "weather"),
        (("npx", "-y", "@modelcontextprotocol/server-filesystem@1.2.3", "/tmp"), "server-filesystem"),
        (("uvx", "mcp-server-git"), "mcp-server-git"),
        (("python3.12", "-m", "mcp_server_git"), "mcp_server_git"),
        (("uv", "run", "server.py"), "server"),
        (("/opt/py/bin/python", "tools/weather.py"), "weather"),
        ((Path("/srv/my tool"),), "my_tool"),
        (("node",), "node"),
    ],
)
def test_a_server_is_named_by_its_command(command, name):
    server = McpServer(*command)
    assert (server.name, server.prefix) == (name, f"{name}__")


def test_a_server_is_named_by_the_host_of_its_url():
    assert McpServer(url="https://tools.example:8443/mcp").name == "tools.example"


def test_a_name_makes_the_prefix_and_a_prefix_may_be_empty():
    assert McpServer("x", name="git").prefix == "git__"
    assert McpServer("x", name="git", prefix="").prefix == ""


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        ((), {}, "a command or a url"),
        (("x",), {"url": "http://a/"}, "a command or a url"),
        (("",), {}, "command"),
        ((3,), {}, r"command\[0\]"),
        (("x", b"y"), {}, r"command\[1\]"),
        (("x", "a\0b"), {}, r"command\[1\]"),
        (("x",), {"headers": {}}, "headers"),
        ((), {"url": "http://a/", "env": {}}, "env"),
        ((), {"url": "http://a/", "cwd": "."}, "cwd"),
        ((), {"url": "ftp://a/"}, "url"),
        ((), {"url": "http://"}, "url"),
        ((), {"url": "http://a:99999/"}, "url"),
        ((), {"url": 3}, "url"),
        ((), {"url": "http://a/", "headers": {"a b": "c"}}, "headers"),
        ((), {"url": "http://a/", "headers": {"a": "b\r\nc: d"}}, "headers"),
        ((), {"url": "http://a/", "headers": [("a", "b")]}, "headers"),
        (("x",), {"env": {"A": 3}}, "env"),
        (("x",), {"env": {"A=B": "c"}}, "env"),
        (("x",), {"cwd": 3}, "cwd"),
        (("x",), {"name": ""}, "name"),
        (("x",), {"name": "a b"}, "name"),
        (("x",), {"prefix": "p" * 65}, "prefix"),
        (("x",), {"timeout": 0}, "timeout"),
        (("x",), {"timeout": "1"}, "timeout"),
        (("x",), {"connect_timeout": None}, "connect_timeout"),
        (("x",), {"connect_timeout": float("inf")}, "connect_timeout"),
        (("x",), {"reconnect_wait": -1}, "reconnect_wait"),
        (("x",), {"grace": float("inf")}, "grace"),
        (("x",), {"grace": float("nan")}, "grace"),
        (("x",), {"backoff": 3}, "backoff"),
    ],
)
def test_what_cannot_be_is_refused_by_name(command, options, says):
    with pytest.raises(InvalidInput, match=says):
        McpServer(*command, **options)


def test_no_secret_is_shown():
    shown = [
        McpServer("x", env={"TOKEN": "secret"}),
        McpServer(url="https://user:secret@host/secret?key=secret", headers={"authorization": "secret"}),
    ]
    assert all("secret" not in repr(server) for server in shown)


@pytest.mark.parametrize("option", [{"env": {"TOKEN": "secret\0"}}, {"env": {"A=": "secret"}}])
def test_no_secret_is_in_the_words_of_a_refusal(option):
    with pytest.raises(InvalidInput) as refused:
        McpServer("x", **option)
    assert "secret" not in str(refused.value)


def test_a_call_never_waits_for_a_reconnect_until_its_time_is_over():
    assert McpServer("x", timeout=4, reconnect_wait=10).patience == 2
    assert McpServer("x", timeout=None, reconnect_wait=10).patience == 10


def test_its_options_are_values():
    backoff = Backoff(initial=1.0)
    env = {"A": "b"}
    server = McpServer("x", env=env, backoff=backoff)
    env["A"] = "c"
    assert (server.env, server.backoff) == ({"A": "b"}, backoff)


def test_servers_of_one_agent_have_different_names():
    with pytest.raises(InvalidInput, match=r"mcp\[1\]: there is a server 'x' already; give one a name="):
        check_servers("mcp", [McpServer("x"), McpServer("/other/x")])


@pytest.mark.parametrize("servers", ["mcp-server-time", ["mcp-server-time"], 3, McpServer("x")])
def test_what_is_no_list_of_servers_is_refused(servers):
    with pytest.raises(InvalidInput, match="mcp"):
        check_servers("mcp", servers)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(server_module, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"^MCP servers need the package `mcp`: pip install 'quiesce\[mcp\]'$"):
        McpServer("x")


def test_the_sdk_is_not_imported_before_a_server_is_connected_to():
    script = (
        "import sys, quiesce.actors.mcp as m; m.McpServer('x'); print({'mcp', 'anyio', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
