"""`quiesce recover`: what it adds, that it touches nothing else, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from quiesce.protocol.logfile import read_log

OPEN = "turn step user ask:a,b,c call:a result:a call:b"
CLOSED = "turn step user ask:a call:a result:a end-step end-turn"


@pytest.fixture
def killed(data):
    return data / "killed-mid-tool.v4.jsonl.zstd"


def essence(event):
    """What another harness prescribes of a recovery event."""
    body = event["data"]
    message = body.get("message", {})
    found = {
        "seq": event["seq"],
        "time": event["time"],
        "type": event["type"],
        "callId": message.get("toolCallId"),
        "messageId": message.get("id"),
        "error": body.get("error"),
        "isError": message.get("isError"),
        "sourceEventSeqs": event.get("sourceEventSeqs"),
        "reason": body.get("reason"),
    }
    return {key: value for key, value in found.items() if value is not None}


# --- what it adds ------------------------------------------------------------------------------------------------


def test_it_adds_exactly_what_the_deepseek_harness_expects(run, data, killed, tmp_path):
    done = run("recover", killed, "--out", tmp_path / "copy", "--json")
    expected = json.loads((data / "killed-mid-tool.expected.json").read_text())
    assert [essence(json.loads(line)) for line in done.stdout.splitlines()] == expected


def test_the_copy_is_the_original_and_then_what_was_added(run, killed, tmp_path):
    run("recover", killed, "--out", tmp_path / "copy")
    copy = (tmp_path / "copy").read_bytes()
    assert copy.startswith(killed.read_bytes())
    log = read_log(copy)
    assert (log.format, log.compressed, len(log.events)) == ("dsh", True, 28)


def test_it_says_what_it_added(run, killed, tmp_path):
    done = run("recover", killed, "--out", tmp_path / "copy")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "added: seq 24: tool/result: call 'call_b2' TOOL_OUTCOME_UNKNOWN",
        "added: seq 25: tool/result: call 'call_b3' TOOL_NOT_STARTED",
        "added: seq 26: step/end: turn 1, step 1",
        "added: seq 27: turn/end: turn 1, interrupted",
        f"wrote {tmp_path / 'copy'}: 28 events, 4 of them new",
    ]


def test_the_copy_of_a_plain_log_is_sound_and_closed(run, write, tmp_path):
    run("recover", write(OPEN), "--out", tmp_path / "copy")
    assert run("check", tmp_path / "copy").stdout == f"{tmp_path / 'copy'}: sound, 11 events\n"


def test_recovering_a_recovered_log_adds_nothing(run, write, tmp_path):
    run("recover", write(OPEN), "--out", tmp_path / "copy")
    done = run("recover", tmp_path / "copy", "--out", tmp_path / "again")
    assert done.stdout.startswith("nothing to close: no turn is open\n")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "copy").read_bytes()


def test_json_of_a_closed_log_is_empty_and_the_copy_is_written(run, write, tmp_path):
    path = write(CLOSED)
    assert run("recover", path, "--out", tmp_path / "copy", "--json").stdout == ""
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_a_torn_tail_is_left_out_and_told(run, write, tmp_path):
    path = write(OPEN)
    path.write_bytes(path.read_bytes()[:-10])
    done = run("recover", path, "--out", tmp_path / "copy")
    assert done.stdout.startswith("left out: a torn tail of ")
    assert "added: seq 6: tool/result: call 'b' TOOL_NOT_STARTED" in done.stdout


def test_breaks_of_the_rules_are_left_and_told(run, write, tmp_path):
    done = run("recover", write("turn step user ask:a,b call:a result:b"), "--out", tmp_path / "copy")
    assert "left as it is: 2 breaks of the rules, which `quiesce check` lists\n" in done.stdout


def test_from_standard_input_to_standard_output(run, write):
    done = run("recover", "-", "--out", "-", stdin=write(OPEN).read_bytes())
    assert len(read_log(done.stdout_bytes).events) == 11
    assert "added: seq 10: turn/end: turn 1, interrupted\n" in done.stderr


# --- what it refuses and leaves alone ----------------------------------------------------------------------------


def test_the_file_itself_is_never_touched(run, write, tmp_path):
    path = write(OPEN)
    before = path.read_bytes(), path.stat().st_mtime_ns
    run("recover", path, "--out", tmp_path / "copy")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def links(path):
    """Other names of one file."""
    symbolic, hard = path.with_name("symbolic"), path.with_name("hard")
    symbolic.symlink_to(path)
    hard.hardlink_to(path)
    return [path, symbolic, hard, path.parent / "." / path.name]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_file_is_recognized_under_any_name(fails, write, which, force):
    path = write(OPEN)
    before = path.read_bytes()
    assert "is the file itself" in fails("recover", path, "--out", links(path)[which], *force)
    assert path.read_bytes() == before


def test_a_file_that_is_there_is_refused(fails, write, tmp_path):
    (tmp_path / "copy").write_text("mine")
    assert "--force replaces it" in fails("recover", write(OPEN), "--out", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_it_is_replaced_by_force(run, write, tmp_path):
    (tmp_path / "copy").write_text("mine")
    assert run("recover", write(OPEN), "--out", tmp_path / "copy", "--force").exit_code == 0
    assert len(read_log((tmp_path / "copy").read_bytes()).events) == 11


def test_a_file_that_is_there_stays_if_the_log_is_not_readable(fails, tmp_path):
    (tmp_path / "copy").write_text("mine")
    (tmp_path / "x").write_text("no log")
    fails("recover", tmp_path / "x", "--out", tmp_path / "copy", "--force")
    assert (tmp_path / "copy").read_text() == "mine"


def test_the_folder_of_the_copy_must_be_there(fails, write, tmp_path):
    assert fails("recover", write(OPEN), "--out", tmp_path / "a" / "b") == f"{tmp_path / 'a'}: there is no such folder"


def test_the_copy_cannot_be_a_folder(fails, write, tmp_path):
    assert fails("recover", write(OPEN), "--out", tmp_path) == f"{tmp_path}: --out is a folder; name a file"


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_the_copy_cannot_be_a_pipe_which_would_be_replaced_by_it(fails, write, tmp_path, options):
    os.mkfifo(tmp_path / "pipe")
    said = fails("recover", write(OPEN), "--out", tmp_path / "pipe", *options)
    assert said == f"{tmp_path / 'pipe'}: --out is no file; name one, or - for standard output"
    assert (tmp_path / "pipe").is_fifo()


def test_events_and_copy_do_not_share_standard_output(run, write):
    done = run("recover", write(OPEN), "--out", "-", "--json")
    assert (done.exit_code, done.stdout) == (2, "")


def test_the_copy_appears_whole_or_not_at_all(fails, write, tmp_path, monkeypatch):
    path = write(OPEN)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    told = fails("recover", path, "--out", tmp_path / "copy")
    assert told == f"{tmp_path / 'copy'}: cannot be written: No space left on device"
    assert list(tmp_path.iterdir()) == [path]


def test_a_target_that_cannot_be_written_is_named_as_it_was_given(fails, write, tmp_path, monkeypatch):
    def refused(**_):
        raise PermissionError(13, "Permission denied", str(tmp_path / ".copy-x1"))

    monkeypatch.setattr("tempfile.mkstemp", refused)
    told = fails("recover", write(OPEN), "--out", tmp_path / "copy")
    assert told == f"{tmp_path / 'copy'}: cannot be written: Permission denied"


def test_the_copy_is_durable_before_it_has_its_name(write, tmp_path, monkeypatch, run):
    done = []
    synced, replaced = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), synced(file)))
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append("name"), replaced(self, to)))
    run("recover", write(OPEN), "--out", tmp_path / "copy")
    assert done == ["sync", "name", "sync"]


def test_the_rights_of_the_copy_are_those_of_the_file(run, write, tmp_path):
    path = write(OPEN)
    path.chmod(0o640)
    run("recover", path, "--out", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(run, write, tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    run("recover", write(OPEN), "--out", tmp_path / "link", "--force")
    assert (tmp_path / "link").is_symlink()
    assert len(read_log((tmp_path / "target").read_bytes()).events) == 11
