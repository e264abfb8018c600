"""A user's mistake is one line and exit code 2; a closed pipe is quiet; Ctrl-C is a line and 130; a bug is a bug."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from quiesce.actors.cli.faults import in_plain_words
from quiesce.protocol.errors import StoreFull

READING = (["show"], ["check"], ["recover", "--out", "copy.jsonl"])
OF_A_STORE = (["show"], ["export"], ["fork"])


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READING)
def test_a_missing_file(fails, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert fails(*command, "gone.jsonl") == "gone.jsonl: there is no such file"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", READING)
def test_a_folder_in_place_of_a_file(fails, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert fails(*command, tmp_path) == f"{tmp_path}: Is a directory"


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b'{"type":"session","version":99,"id":"x"}\n',
            "line 1: DeepSeek Harness log of version 99; version 4 is read",
        ),
        (b'{"type":"session","format":"quiesce","version":1,"id":"x"}\nnonsense\n{}\n', "line 2: not JSON"),
    ],
    ids=["version", "damage"],
)
def test_a_file_that_is_no_log(fails, tmp_path, monkeypatch, command, content, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_bytes(content)
    assert fails(*command, "x.log").startswith(f"x.log: {words}")
    assert [path.name for path in tmp_path.iterdir()] == ["x.log"]


@pytest.mark.parametrize(
    ("content", "of_show", "of_others"),
    [
        (b"", "line 1: there is no header", "neither a log nor a transcript: there is nothing in it"),
        (
            b"hello\n",
            "line 1: the header is incomplete or damaged",
            "neither a log nor a transcript: line 1: not JSON: Expecting value, column 1",
        ),
    ],
    ids=["empty", "text"],
)
@pytest.mark.parametrize("command", READING)
def test_a_file_that_is_nothing(fails, tmp_path, monkeypatch, command, content, of_show, of_others):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.log").write_bytes(content)
    assert fails(*command, "x.log").startswith(f"x.log: {of_show if command[0] == 'show' else of_others}")
    assert [path.name for path in tmp_path.iterdir()] == ["x.log"]


@pytest.mark.parametrize("command", READING)
def test_a_store_in_place_of_a_file_is_told_how_to_get_at_its_sessions(fails, db, command):
    said = fails(*command, db)
    assert said.startswith(f"{db}: a database, not a log file")
    assert f"`quiesce show {db} SESSION`" in said


def test_what_a_name_holds_cannot_move_the_cursor(fails):
    assert fails("show", "a\x1b[2J\nb") == r"a\x1b[2J b: there is no such file"


# --- stores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", OF_A_STORE)
def test_a_missing_store_is_not_made_by_reading_it(fails, tmp_path, command):
    assert fails(*command, tmp_path / "gone.db", "reviewer").endswith("gone.db: there is no such store")
    assert not list(tmp_path.iterdir())


def test_sessions_of_a_missing_store(fails, tmp_path):
    assert fails("sessions", tmp_path / "gone.db").endswith("gone.db: there is no such store")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", OF_A_STORE)
@pytest.mark.parametrize("content", [b"", b"not a database, though long enough to have been one"])
def test_a_file_that_is_no_store_is_left_as_it_is(fails, tmp_path, command, content):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    assert "not a quiesce store" in fails(*command, path, "reviewer")
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", OF_A_STORE)
def test_a_session_that_is_not_there_names_those_that_are(fails, db, command):
    assert fails(*command, db, "reviewr") == "there is no session 'reviewr'; there are 'reviewer', 'cut-off'"


@pytest.mark.parametrize("command", OF_A_STORE)
def test_a_session_id_that_cannot_be(fails, db, command):
    assert fails(*command, db, "").startswith("session_id: ")


@pytest.mark.parametrize(
    "command",
    [
        ["show", "-", "reviewer"],
        ["sessions", "-"],
        ["import", "t.json", "--db", "-"],
        ["demo", "--db", "-"],
        ["run", "--model", "openai:m", "--db", "-", "Hi"],
    ],
    ids=" ".join,
)
def test_a_store_cannot_be_standard_input(fails, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    assert fails(*command) == "a store cannot be standard input"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", [["import", "t.json"], ["demo"], ["run", "--model", "openai:m", "Hi"], ["chat", "--model", "openai:m"]]
)
def test_a_new_store_needs_a_folder_that_is_there(fails, monkeypatch, tmp_path, command):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text('[{"role": "user", "content": "hi"}]')
    assert fails(*command, "--db", "gone/x.db") == "gone: there is no such folder"
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


# --- other ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--json"], []])
def test_a_reader_that_stops_reading_is_no_error(write, options):
    path = write(" ".join(["turn step user ask:a call:a result:a end-step end-turn"] * 2_000))
    command = [sys.executable, "-m", "quiesce.actors.cli", "show", path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.fixture
def ended():
    """How the command ends that raises `error` inside."""

    def ended(error):
        with pytest.raises(BaseException) as caught, in_plain_words(click.Context(click.Command("x"))):  # noqa: PT011
            raise error
        return caught.value

    return ended


def test_ctrl_c_ends_in_a_line_and_130(ended):
    fault = ended(KeyboardInterrupt())
    assert (fault.message, fault.exit_code) == ("interrupted", 130)


def test_ctrl_c_counts_among_whatever_else_a_nursery_raised(ended):
    fault = ended(BaseExceptionGroup("", [OSError("x"), BaseExceptionGroup("", [KeyboardInterrupt()])]))
    assert (fault.message, fault.exit_code) == ("interrupted", 130)


def test_an_error_of_a_store_that_a_nursery_wrapped_is_told_in_its_words(ended):
    fault = ended(ExceptionGroup("", [StoreFull("the disk is full")]))
    assert (fault.message, fault.exit_code) == ("the disk is full", 2)


def test_an_error_of_the_system_names_its_file(ended):
    assert ended(PermissionError(13, "Permission denied", "a.txt")).message == "a.txt: Permission denied"


def test_a_bug_stays_a_bug(ended):
    assert isinstance(ended(ZeroDivisionError()), ZeroDivisionError)


def test_a_bug_beside_an_expected_error_stays_a_bug(ended):
    assert isinstance(ended(ExceptionGroup("", [StoreFull("x"), ZeroDivisionError()])), ExceptionGroup)
