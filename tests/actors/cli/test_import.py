"""`quiesce import`: sessions of transcripts and logs."""

from __future__ import annotations

import json

import pytest
import trio

from quiesce.actors import Runtime, ScriptedModel, say
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.events import AssistantMessage, ReasoningBlock, ToolResult, UserMessage, text_of

CHAT = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "assistant", "content": "I saw it."},
]


@pytest.fixture
def imported(run, tmp_path):
    """Import a file, or this JSON; the events of the session."""

    def imported(source, *options, name="t.json"):
        path = source
        if not hasattr(source, "read_bytes"):
            path = tmp_path / name
            path.write_text(json.dumps(source))
        result = run("import", path, "--db", tmp_path / "i.db", "--session", "s", *options)
        assert (result.exit_code, result.stdout) == (0, "s\n"), result.stderr
        return events_of(tmp_path / "i.db", "s")

    return imported


def events_of(path, session):
    async def read():
        async with SqliteStore(path) as store:
            return await store.read(session)

    return trio.run(read)


def said(events):
    bodies = [event.body for event in events]
    return [
        text_of(body.content if isinstance(body, UserMessage) else body.message.content)
        for body in bodies
        if isinstance(body, UserMessage | AssistantMessage | ToolResult)
    ]


def test_a_transcript_becomes_a_session_that_an_agent_goes_on_with(imported, tmp_path):
    assert said(imported(CHAT)) == ["hi", "", "seen", "I saw it."]
    model = ScriptedModel([say("Yes.")])

    async def go_on():
        async with Runtime.open(tmp_path / "i.db") as runtime:
            agent = await runtime.agent("s", model=model)
            return (await agent.send("still there?")).text

    assert trio.run(go_on) == "Yes."
    assert [text_of(message.content) for message in model.requests[0].messages] == [
        *["hi", "", "seen", "I saw it.", "still there?"]
    ]


def test_a_request_body_tells_whose_reasoning_it_holds(imported):
    signed = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    body = {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [signed, {"type": "text", "text": "so"}]},
        ],
    }
    answer = next(event.body for event in imported(body) if isinstance(event.body, AssistantMessage))
    assert answer.message.source["model"] == "claude-x"
    assert [block.replay for block in answer.message.content if isinstance(block, ReasoningBlock)] == [signed]


def test_json_lines_and_standard_input_are_transcripts_too(run, tmp_path):
    lines = "".join(json.dumps(message) + "\n" for message in CHAT)
    result = run("import", "-", "--db", tmp_path / "i.db", stdin=lines)
    assert result.exit_code == 0
    assert said(events_of(tmp_path / "i.db", result.stdout.strip())) == ["hi", "", "seen", "I saw it."]


def test_a_call_without_a_result_is_told(run, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(CHAT[:2]))
    result = run("import", path, "--db", tmp_path / "i.db")
    assert "answered 1 call without a result: outcome unknown" in result.stderr


def test_a_result_that_answers_no_call_is_left_out_and_told(run, tmp_path):
    path = tmp_path / "t.json"
    orphan = {"role": "tool", "tool_call_id": "zz", "content": "stray"}
    path.write_text(json.dumps([*CHAT, orphan, *CHAT[:2]]))
    result = run("import", path, "--db", tmp_path / "i.db")
    assert "stray" not in said(events_of(tmp_path / "i.db", result.stdout.strip()))
    assert result.stderr.splitlines()[1:] == [
        "answered 1 call without a result: outcome unknown",
        "left out 1 result that answers no call",
    ]


def test_what_had_to_be_replaced_to_be_stored_is_told_in_a_line(run, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"role": "user", "content": "a\ud800b"}, *CHAT]))
    result = run("import", path, "--db", tmp_path / "i.db")
    assert said(events_of(tmp_path / "i.db", result.stdout.strip()))[0].startswith("a\ufffdb")
    assert result.stderr.splitlines()[0] == (
        "replaced visibly in 1 message what cannot be stored (lone surrogates, NUL and their like)"
    )


def test_of_what_can_be_stored_nothing_is_said_to_be_replaced(run, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(CHAT))
    assert "replaced" not in run("import", path, "--db", tmp_path / "i.db").stderr


@pytest.mark.parametrize("session", ["", "a\x00b", "a\nb"])
def test_what_cannot_be_the_id_of_a_session_is_told_in_one_line(fails, tmp_path, session):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(CHAT))
    assert "--session" in fails("import", path, "--db", tmp_path / "i.db", "--session", session)
    assert not (tmp_path / "i.db").exists()


@pytest.mark.parametrize("name", ["completed", "killed-mid-tool"])
def test_the_log_of_another_harness_becomes_a_session_that_can_be_opened(imported, data, tmp_path, name):
    events = imported(data / f"{name}.v4.jsonl.zstd")
    assert events[-1].type == "session/end-seed"

    async def open_it():
        async with Runtime.open(tmp_path / "i.db") as runtime:
            agent = await runtime.agent("s", model=ScriptedModel([say("ok")]))
            return (await agent.send("go on")).text

    assert trio.run(open_it) == "ok"


def test_what_was_exported_can_be_imported(run, db, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(run("export", db, "reviewer").stdout_bytes)
    assert run("import", path, "--db", db, "--session", "copy").exit_code == 0
    assert said(events_of(db, "copy")) == said(events_of(db, "reviewer"))


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("", [], ""),
        ("[]", [], "no message"),
        ("{", [], ""),
        ('{"a": 1}', [], ""),
        ("[1]", [], "[0]"),
        (json.dumps(CHAT), ["--profile", "anthropic"], "chat"),
        ('[{"role": "user", "content": "x"}]', ["--format", "log"], ""),
    ],
)
def test_what_cannot_be_imported_is_told_in_a_line_and_makes_no_session(fails, tmp_path, content, options, words):
    path = tmp_path / "t.json"
    path.write_text(content)
    told = fails("import", path, "--db", tmp_path / "i.db", *options)
    assert "t.json" in told
    assert words in told
    assert not (tmp_path / "i.db").exists()


def test_a_session_that_is_there_is_not_touched(run, fails, db, tmp_path):
    before = events_of(db, "reviewer")
    path = tmp_path / "t.json"
    path.write_text(json.dumps(CHAT))
    assert "reviewer" in fails("import", path, "--db", db, "--session", "reviewer")
    assert events_of(db, "reviewer") == before


# --- FILE and --db ------------------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path, monkeypatch, db, write):
    """A folder with one of everything that may be named; nothing in it may change."""
    monkeypatch.chdir(tmp_path)
    write("turn step user ask end-step end-turn")
    (tmp_path / "t.json").write_text(json.dumps(CHAT))
    (tmp_path / "other.json").write_text(json.dumps(CHAT[:1]))
    (tmp_path / "text.txt").write_text("no transcript, and no store either")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    before = _contents(tmp_path)
    yield
    assert _contents(tmp_path) == before


def _contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


IS_WRITTEN = "FILE is what is read, --db names the store that is written"


@pytest.mark.parametrize(
    ("file", "store", "told"),
    [
        ("t.json", "t.json", f"t.json: a transcript, and no store; {IS_WRITTEN}"),
        ("t.json", "other.json", f"other.json: a transcript, and no store; {IS_WRITTEN}"),
        ("t.json", "log.jsonl", f"log.jsonl: a log, and no store; {IS_WRITTEN}"),
        ("t.json", "text.txt", f"text.txt: no store; {IS_WRITTEN}"),
        ("-", "t.json", f"t.json: a transcript, and no store; {IS_WRITTEN}"),
        ("gone.json", "t.json", f"t.json: a transcript, and no store; {IS_WRITTEN}"),
        *[
            (
                "agents.db",
                store,
                f"{store}: {what}, and --db names the store; did you mean `quiesce import {store} --db agents.db`?",
            )
            for store, what in [
                ("t.json", "a transcript, and no store"),
                ("log.jsonl", "a log, and no store"),
                ("text.txt", "no store"),
            ]
        ],
        ("agents.db", "agents.db", "agents.db: a database, not a log file; `quiesce sessions agents.db` lists"),
        ("agents.db", "new.db", "agents.db: a database, not a log file; `quiesce sessions agents.db` lists"),
        ("gone.json", "new.db", "gone.json: there is no such file"),
        ("empty", "new.db", "empty: neither a log nor a transcript: there is nothing in it"),
        ("folder", "new.db", "folder: Is a directory"),
        ("t.json", "folder", "Invalid value for '--db' (env var: 'QUIESCE_DB'): File 'folder' is a directory"),
        ("text.txt", "new.db", "text.txt: neither a log nor a transcript: line 1: not JSON"),
    ],
)
def test_whatever_was_taken_for_another_is_named_and_nothing_is_written(fails, places, file, store, told):
    assert fails("import", file, "--db", store).startswith(told)
