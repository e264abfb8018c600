"""Ctrl-C, once and twice, in whatever the command is doing."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from quiesce.actors.cli.interrupts import Interrupts
from quiesce.actors.cli.narration import Narrator
from quiesce.actors.cli.screens import JsonScreen
from quiesce.protocol.events import TurnEnd


def test_ctrl_c_cancels_the_turn_and_says_how_to_go_on(serve, fake_provider, start, events_of):
    provider, options = serve([[fake_provider.Text("A moment", pieces=2), fake_provider.Hang()]])
    with start("run", *options, "--session", "s", "Hi") as process:
        provider.call(provider.received, 1)
        assert process.stdout.read(8) == "A moment"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert f"--db {options[-1]} --session s" in told
    assert "Traceback" not in told
    ends = [event.body.reason.kind for event in events_of(options[-1], "s") if isinstance(event.body, TurnEnd)]
    assert ends == ["aborted"]


def test_ctrl_c_before_there_is_a_turn_ends_the_command(serve, fake_provider, tmp_path, start):
    slow = tmp_path / "slow.py"
    slow.write_text("import sys; sys.stderr.write('up'); sys.stderr.flush(); sys.stdin.read()")
    _, options = serve([])
    with start("run", *options, "--mcp", f"{sys.executable} {slow}", "Hi") as process:
        while not (tmp_path / "t.db").exists():
            select.select([], [], [], 0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in told


def test_ctrl_c_in_a_chat_that_is_idle_says_how_to_go_on(serve, fake_provider, start, talking):
    _, options = serve([[fake_provider.Text("One.")]])
    with start("chat", *options, "--session", "s") as process:
        chat = talking(process)
        chat.say("first")
        assert process.stdout.readline() == "One.\n"
        told = ""
        while told != "idle\n":
            chat.say("/status")
            told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "--session s" in told


# -- twice ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quiesce():
    """The installed command."""
    return shutil.which("quiesce", path=str(Path(sys.executable).parent)) or pytest.skip("quiesce is not installed")


@pytest.fixture
def stubborn(echo_server, process_of_server):
    """The option for a server that does not end when it is told to; and its process, which ends with the test."""
    found = []

    def wait():
        found.append(process_of_server())

    yield (echo_server[0], f"{echo_server[1]} --ignore-sigterm --stay"), wait
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def piped(*arguments):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(list(map(str, arguments)), text=True, **pipes)


def test_a_second_ctrl_c_while_all_is_closed_quits_at_once_and_the_session_goes_on(
    quiesce, serve, fake_provider, stubborn, talking, events_of
):
    fp, (server, wait) = fake_provider, stubborn
    _, options = serve([[fp.Text("A moment", pieces=2), fp.Hang()], [fp.Text("Back.")]])
    command = [quiesce, "run", *options, "--session", "s"]
    with piped(*command, *server, "Hi") as process:
        wait()
        assert process.stdout.read(8) == "A moment"
        process.send_signal(signal.SIGINT)
        talking(process).hear("turn 1: aborted", "to go on")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert told.splitlines()[-1] == f"quit; to go on: --db {options[-1]} --session s"
    with piped(*command, "And now?") as process:
        said, told = process.communicate()
    assert (process.returncode, said) == (0, "Back.\n"), told
    ends = [event.body.reason.kind for event in events_of(options[-1], "s") if isinstance(event.body, TurnEnd)]
    assert ends == ["aborted", "completed"]


def test_where_no_turn_is_left_to_cancel_the_first_ctrl_c_is_told_and_the_second_quits(
    quiesce, serve, fake_provider, stubborn, talking
):
    server, wait = stubborn
    _, options = serve([[fake_provider.Text("Done.")]])
    with piped(quiesce, "run", *options, *server, "Hi") as process:
        wait()
        talking(process).hear("to go on")
        process.send_signal(signal.SIGINT)
        talking(process).hear("closing; Ctrl-C once more quits at once")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert told.startswith("quit; to go on: ")


def test_two_ctrl_c_end_a_command_that_is_still_connecting(quiesce, serve, stubborn, talking):
    (option, server), wait = stubborn
    _, options = serve([])
    with piped(quiesce, "run", *options, option, f"{server} --start hang", "Hi") as process:
        wait()
        process.send_signal(signal.SIGINT)
        talking(process).hear("closing; Ctrl-C once more quits at once")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert told.startswith("quit; to go on: ")


def test_in_a_chat_that_goes_on_after_a_cancel_the_next_ctrl_c_is_a_first_one(serve, fake_provider, start, talking):
    fp = fake_provider
    _, options = serve([[fp.Text("A moment\n"), fp.Hang()]] * 2)
    with start("chat", *options, "--session", "s") as process:
        chat = talking(process)
        for turn in (1, 2):
            chat.say("go")
            assert process.stdout.readline() == "A moment\n"
            process.send_signal(signal.SIGINT)
            chat.hear(f"turn {turn}: aborted")
        process.communicate("/quit\n")
    assert process.returncode == 0


async def test_the_second_ctrl_c_waits_for_no_loop(monkeypatch):
    class Quit(BaseException):
        pass

    def leave(code):
        raise Quit(code)

    monkeypatch.setattr(os, "_exit", leave)

    async def press_twice():
        async with Interrupts(Narrator(JsonScreen()), "--session s").taken():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(Quit, match="130"):  # nothing has been awaited in between
                signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        await press_twice()
    assert signal.getsignal(signal.SIGINT) is before
