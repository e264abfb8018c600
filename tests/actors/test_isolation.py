from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import trio

from quiesce.actors.hooks import HookChain, ToolInvocation
from quiesce.actors.invoke import Body, BodyEnd, outcome_of, run_body
from quiesce.protocol.events import text_of

SOURCE = """
    import os, pathlib, signal, subprocess, sys, time
    from quiesce.actors.tools import tool

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    @tool(isolation="process")
    def act(what: str) -> object:
        match what:
            case "pid": return os.getpid()
            case "lookup": raise LookupError("no such thing")
            case "odd": raise Odd(1, 2)
            case "exit": sys.exit(3)
            case "die": os._exit(3)
            case "unpicklable": return lambda: None
            case "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
                return "went on"
            case "speak":
                subprocess.run([sys.executable, "-c", "print('hello'); input()"])
                print("hello")
                os.write(1, b"hello")
                return "spoke"

    @tool(isolation="process", timeout=5)
    def hang(path: str) -> None:
        pathlib.Path(path).write_text(str(os.getpid()))
        time.sleep(1000)

    @tool(isolation="process")
    def take(x: object) -> None: ...

    def plain(n: int) -> int:
        return n + 1

    wrapped = tool(isolation="process", name="wrapped")(plain)
"""

SCRIPT = """
    import dataclasses, trio
    from quiesce.actors.hooks import HookChain, ToolInvocation
    from quiesce.actors.invoke import run_body
    from quiesce.actors.tools import tool

    @dataclasses.dataclass
    class Point:
        x: int

    @tool(isolation="process")
    def double(p: Point) -> tuple:
        return Point(2 * p.x), __name__

    async def main():
        call = ToolInvocation("s", 1, 1, 0, "c", "double", {"p": {"x": 1}}, double)
        end = await run_body(call, chain=HookChain())
        print(end.how, end.value[0], end.value[1:])

    if __name__ == "__main__":
        trio.run(main)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("isolated")
    (folder / "isolated_tools.py").write_text(textwrap.dedent(SOURCE))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("isolated_tools")
    sys.path.remove(str(folder))
    del sys.modules["isolated_tools"]


async def run(made: Any, **arguments: Any) -> BodyEnd:
    call = ToolInvocation("s", 1, 1, 0, "c", made.name, {}, made, values=arguments)
    return await run_body(call, chain=HookChain())


async def act(tools: Any, what: str) -> BodyEnd:
    return await run(tools.act, what=what)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_what_happens_in_a_worker_process_comes_back(tools):
    """One test for many behaviours, since each Trio run starts a worker of its own."""
    first = await act(tools, "pid")
    assert first.how == "returned"
    assert first.value != os.getpid()

    error = (await act(tools, "lookup")).error
    assert isinstance(error, LookupError)
    assert str(error) == "no such thing"

    assert "Odd: 1 and 2" in str((await act(tools, "odd")).error)
    assert "SystemExit: 3" in str((await act(tools, "exit")).error)
    assert "cannot be sent from its worker process" in str((await act(tools, "unpicklable")).error)
    assert "arguments cannot be sent" in str((await run(tools.take, x=lambda: None)).error)
    assert (await act(tools, "speak")).value == "spoke"
    assert (await act(tools, "interrupt")).value == "went on"
    assert (await run(tools.wrapped, n=1)).value == 2
    os.kill(first.value, signal.SIGINT)
    assert await act(tools, "pid") == first


async def test_a_worker_that_dies_is_an_error_of_the_tool_and_the_next_call_gets_another(tools):
    end = await act(tools, "die")
    assert end.how == "raised"
    assert "died before the tool returned" in text_of(outcome_of(end, tools.act).content)
    assert (await act(tools, "pid")).how == "returned"


async def test_a_body_that_times_out_is_killed(tools, tmp_path, mock_clock):
    body, ends = body_of(tools.hang, tmp_path), list[BodyEnd]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, body, ends)
        pid = await pid_in_worker(tmp_path)
        mock_clock.jump(5)
    assert ends == [BodyEnd("timed-out")]
    assert not is_alive(pid)


async def test_a_body_that_is_cancelled_is_killed(tools, tmp_path):
    body, ends = body_of(tools.hang, tmp_path), list[BodyEnd]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, body, ends)
        pid = await pid_in_worker(tmp_path)
        body.cancel()
    assert ends == [BodyEnd("cancelled")]
    assert not is_alive(pid)


def test_a_tool_of_the_hosts_main_module_is_found(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert run.stdout == "returned Point(x=2) ('__mp_main__',)\n"


def body_of(made: Any, folder: Any) -> Body:
    os.mkfifo(folder / "pid")
    values = {"path": str(folder / "pid")}
    return Body(ToolInvocation("s", 1, 1, 0, "c", made.name, {}, made, values=values), chain=HookChain())


async def keep(body: Body, ends: list[BodyEnd]) -> None:
    ends.append(await body.run())


async def pid_in_worker(folder: Any) -> int:
    """Wait until the body runs: it says in which process."""
    return int(await trio.to_thread.run_sync((folder / "pid").read_text))
