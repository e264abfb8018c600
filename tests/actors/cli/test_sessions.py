"""The commands on a store: the list of its sessions, export, fork."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from quiesce.actors import Runtime, ScriptedModel, say
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.logfile import read_log

# --- sessions ----------------------------------------------------------------------------------------------------


def cells(result, name):
    """The columns of the session's line."""
    (line,) = [line for line in result.stdout.splitlines() if line.startswith(name)]
    return line.split()


def test_a_closed_session_and_one_that_a_crash_cut_off(run, db):
    done = run("sessions", db)
    assert done.exit_code == 0
    assert done.stdout.split("\n")[0].split() == [
        "session",
        "turns",
        "events",
        "last",
        "activity",
        "state",
        "held",
        "by",
    ]
    reviewer, cut = cells(done, "reviewer"), cells(done, "cut-off")
    assert (reviewer[1:3], reviewer[5:]) == (["3", "36"], ["closed"])
    assert (cut[1:3], cut[5:]) == (["1", "8"], ["cut", "off"])


async def test_a_session_that_is_running_names_its_holder(run, tmp_path):
    path, started, over = tmp_path / "agents.db", trio.Event(), trio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request, emit):
            started.set()
            await over.wait()
            await super().respond(request, emit)

    async with Runtime.open(path) as runtime:
        agent = await runtime.agent("busy", model=Slow([say("Hello.")]))
        receipt = await agent.follow_up("Hi.")
        await started.wait()
        done = await trio.to_thread.run_sync(partial(run, "sessions", path))
        over.set()
        await receipt.turn
    assert cells(done, "busy")[5:8] == ["running", "process", cells(done, "busy")[7]]


def test_json_is_an_object_per_session(run, db):
    reviewer, cut = map(json.loads, run("sessions", db, "--json").stdout.splitlines())
    assert list(reviewer) == ["id", "turns", "events", "open", "holder", "createdAt", "lastTime", "epoch", "header"]
    assert (reviewer["id"], reviewer["turns"], reviewer["events"], reviewer["open"]) == ("reviewer", 3, 36, False)
    assert (cut["id"], cut["open"], cut["holder"]) == ("cut-off", True, None)


def test_a_store_without_sessions(run, tmp_path):
    async def make():
        async with SqliteStore(tmp_path / "empty.db"):
            pass

    trio.run(make)
    done = run("sessions", tmp_path / "empty.db")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no sessions\n")
    assert run("sessions", tmp_path / "empty.db", "--json").stdout == ""


def test_an_id_is_never_cut_so_that_it_can_be_copied(run, db):
    name = "x" * 120
    run("fork", db, "reviewer", "--id", name)
    column = [line.split()[0] for line in run("sessions", db).stdout.splitlines() if line.startswith("x")]
    assert "".join(column) == name


# --- export ------------------------------------------------------------------------------------------------------


def test_an_export_is_a_log_file_with_the_sessions_id(run, db):
    done = run("export", db, "reviewer")
    log = read_log(done.stdout_bytes)
    assert (log.format, log.header["id"], len(log.events), log.torn) == ("quiesce", "reviewer", 36, None)
    assert b"\r" not in done.stdout_bytes


def test_the_header_of_an_export_tells_the_parent(run, db):
    run("fork", db, "reviewer", "--at", "14", "--id", "child")
    head = read_log(run("export", db, "child").stdout_bytes).header
    assert (head["id"], head["parent"], head["parentSeq"]) == ("child", "reviewer", 14)


def test_the_header_of_a_host_cannot_get_in_the_way(run, db):
    async def make():
        async with SqliteStore(db) as store:
            await (await store.open("odd", header={"id": "x", "format": "y", "session_id": "z"})).release()

    trio.run(make)
    head = read_log(run("export", db, "odd").stdout_bytes).header
    assert (head["id"], head["format"], head["session_id"]) == ("odd", "quiesce", "z")


# --- fork --------------------------------------------------------------------------------------------------------


def test_a_fork_prints_the_new_id_alone(run, db):
    done = run("fork", db, "reviewer")
    assert done.stderr == ""
    assert done.stdout.startswith("reviewer-")
    assert cells(run("sessions", db), done.stdout.strip())[1:3] == ["3", "37"]


def test_a_fork_inside_a_turn_closes_it_in_the_child(run, db):
    child = run("fork", db, "reviewer", "--at", "7").stdout.strip()
    log = read_log(run("export", db, child).stdout_bytes)
    assert str(log.events[-1].body.reason) == "forked"
    assert run("check", "-", stdin=run("export", db, child).stdout_bytes).exit_code == 0


def test_the_parent_is_not_touched(run, db):
    before = run("export", db, "cut-off").stdout_bytes
    run("fork", db, "cut-off")
    assert run("export", db, "cut-off").stdout_bytes == before


def test_the_new_id_can_be_chosen(run, db):
    assert run("fork", db, "reviewer", "--id", "second").stdout == "second\n"


def test_an_id_that_is_taken_is_refused(fails, db):
    assert fails("fork", db, "reviewer", "--id", "cut-off") == "session 'cut-off' exists already"


def test_an_event_that_is_not_there_is_refused(fails, db):
    assert (
        fails("fork", db, "reviewer", "--at", "36") == "at: session 'reviewer' has no event 36, its log has 36 events"
    )


@pytest.mark.parametrize("at", ["-1", "soon"])
def test_what_is_no_event_number_is_refused(run, db, at):
    done = run("fork", db, "reviewer", "--at", at)
    assert done.exit_code == 2
    assert "Invalid value for '--at'" in done.stderr
