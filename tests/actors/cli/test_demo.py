"""`quiesce demo`: the story holds, in any folder, and says so loudly when it does not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile

import pytest
import trio

from quiesce.actors.cli import demo as module
from quiesce.actors.cli import demo_story
from quiesce.actors.cli.demo_child import ChildFailed, running_child
from quiesce.actors.stores import SqliteStore

COMMAND = [sys.executable, "-m", "quiesce.actors.cli", "demo"]
COUNT = 26


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """A slow tool that is not slow, and temporary folders that can be looked at."""
    monkeypatch.setattr(module, "_SECONDS", 0.01)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "readme.md").write_text("Some words.\n")
    return tmp_path / "folder"


def test_the_story_holds_and_is_told(run, folder, tmp_path):
    done = run("demo", "--dir", folder)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line[:2] for line in lines if line.endswith("──")] == ["1.", "2.", "3.", "4."]
    assert [line.split(" · ")[:2] for line in lines if line.startswith("●")] == [
        ["● turn 1", "completed"],
        ["● turn 2", "error"],
        ["● turn 3", "completed"],
        ["● turn 4", "OPEN"],
        ["● turn 4", "interrupted"],
        ["● turn 5", "completed"],
    ]
    assert sum("  ✓  " in line for line in lines) == COUNT
    assert f"All {COUNT} expectations hold." in lines
    assert not list((tmp_path / "temporary").iterdir())
    assert [path.name for path in folder.iterdir()] == ["readme.md"]


def test_an_empty_folder_that_hides_modules_of_the_same_names(tmp_path):
    """The child process must not take a `random.py` of the user's for the one it needs."""
    folder = tmp_path / "odd"
    folder.mkdir()
    for name in ("random.py", "trio.py", "protocol.py"):
        (folder / name).write_text("raise SystemExit('not this one')\n")
    command = [sys.executable, "-P", "-W", "error", "-m", "quiesce.actors.cli", "demo"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Text file: protocol.py. Large file: made for the demo" in " ".join(done.stdout.split())


def test_a_store_keeps_the_sessions_of_one_demo_after_another(run, folder, tmp_path):
    db = tmp_path / "demo.db"
    for number in (1, 2):
        done = run("demo", "--dir", folder, "--db", db)
        assert done.exit_code == 0
        sessions = [json.loads(line) for line in run("sessions", "--json", db).stdout.splitlines()]
        assert len(sessions) == number
        assert done.stdout.splitlines()[-1] == f"The session is kept: quiesce show {db} {sessions[-1]['id']}"
    assert {session["open"] for session in sessions} == {False}
    exported = run("export", db, sessions[0]["id"]).stdout_bytes
    assert run("check", "-", stdin=exported).exit_code == 0


def test_an_expectation_that_does_not_hold_is_named_and_the_exit_code_is_1(run, folder, monkeypatch):
    monkeypatch.setattr(demo_story, "sendable_problems", lambda _: ["call 'x' is not answered"])
    done = run("demo", "--dir", folder)
    assert done.exit_code == 1
    assert "✗  every request is one that a provider accepts: NO, call 'x' is not answered" in done.stdout
    assert done.stderr.startswith(f"quiesce: demo: 2 expectations of {COUNT} did not hold: every request is one that")
    assert "expectations hold." not in done.stdout


def test_a_story_that_breaks_off_has_failed(run, folder, monkeypatch):
    def failing(*_):
        raise ChildFailed("it could not start")

    monkeypatch.setattr(demo_story, "running_child", failing)
    done = run("demo", "--dir", folder)
    assert done.exit_code == 1
    assert "the story is told to its end (ChildFailed: it could not start)" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the broken interpreter is a shell script")
def test_a_child_that_cannot_start_says_why(run, folder, tmp_path, monkeypatch):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    done = run("demo", "--dir", folder)
    assert done.exit_code == 1
    assert "ChildFailed: the child process did not come to its tool: no such module" in done.stderr


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there(run, tmp_path):
    done = run("demo", "--dir", tmp_path / "gone")
    assert done.exit_code == 2
    assert "Invalid value for '--dir'" in done.stderr


def test_a_store_in_a_folder_that_is_not_there(fails, tmp_path):
    assert fails("demo", "--db", tmp_path / "gone" / "demo.db") == f"{tmp_path / 'gone'}: there is no such folder"


def test_a_file_that_is_no_store_is_left_as_it_is(run, folder, tmp_path):
    (tmp_path / "x.db").write_text("mine")
    done = run("demo", "--dir", folder, "--db", tmp_path / "x.db")
    assert done.exit_code == 2
    assert done.stderr == f"quiesce: {tmp_path / 'x.db'}: not a quiesce store; the file was left as it is\n"
    assert (tmp_path / "x.db").read_text() == "mine"


# --- the end of it -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
@pytest.mark.parametrize("line", [b"1. Four tools", b"4. kill -9"])
def test_ctrl_c_ends_it_in_a_line_and_leaves_nothing(folder, tmp_path, line):
    temporary = tmp_path / "temporary"
    environment = {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*COMMAND, "--dir", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        while line not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == b"quiesce: interrupted\n"
    assert process.returncode == 130
    assert not list(temporary.iterdir())


@pytest.fixture
def child_arguments(folder, tmp_path):
    """What a child is started with: a new session, a folder, a file of it, a folder to write to, the first seq."""

    async def make():
        async with SqliteStore(tmp_path / "child.db") as store:
            await (await store.open("s")).release()

    trio.run(make)
    return [str(tmp_path / "child.db"), "s", str(folder), "readme.md", str(tmp_path), "0"]


def test_a_child_is_ended_with_the_scope_that_runs_it(child_arguments, tmp_path):
    async def main():
        with trio.CancelScope() as scope:
            async with running_child(tmp_path, *child_arguments) as child:
                scope.cancel()
                await trio.lowlevel.checkpoint()
        return child

    child = trio.run(main)
    assert child._process.returncode == -signal.SIGKILL
    assert child.acknowledged == 8


def test_a_child_ends_with_its_parent(child_arguments):
    command = [sys.executable, "-m", "quiesce.actors.cli.demo_child", *child_arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"8\n"
        child.stdin.close()  # as the end of the process that holds it does
        assert child.wait() == 1
