"""`quiesce check` and `quiesce recover` on transcripts: message lists and requests of the providers' dialects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "cases"
SPLIT = CASES / "B16-split.anthropic.json"
VALID = CASES / "B48-interleaved.anthropic.json"
EMPTY = CASES / "B34-empty.chat.json"

GO = {"role": "user", "content": "go"}
OK = {"role": "assistant", "content": "ok"}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}
UNKNOWN = {
    "role": "tool",
    "tool_call_id": "c1",
    "content": "No result of this call was recorded. Its outcome is unknown: it may have taken effect. Check before "
    "repeating it.",
}


@pytest.fixture
def save(tmp_path):
    """Write a transcript: messages as JSON lines, or a text as it is."""

    def save(*messages, name="transcript.jsonl"):
        path = tmp_path / name
        lines = [message if isinstance(message, str) else json.dumps(message) for message in messages]
        path.write_text("\n".join(lines) + "\n")
        return path

    return save


# --- check -------------------------------------------------------------------------------------------------------


def test_each_problem_is_a_line_with_file_place_rule_and_words(run, save):
    path = save(GO, ASKS, GO, RESULT)
    done = run("check", path)
    assert done.exit_code == 1
    assert done.stdout == (
        f"{path}: messages[1].tool_calls[0]: unanswered: this call has no result where one must stand; "
        "each call has a result\n"
        f"{path}: messages[3].tool_call_id: misplaced: the result of call 'c1' stands apart from it; "
        "results stand right after the message that asked\n"
        f"{path}: 2 problems for any-chat, 4 messages, read as Chat Completions (line 2 has 'tool_calls'); "
        "`quiesce recover` repairs them\n"
    )


def test_a_sound_transcript(run):
    done = run("check", VALID)
    assert done.exit_code == 0
    assert done.stdout == (
        f"{VALID}: sound for any-anthropic, 3 messages, read as Anthropic Messages "
        "(messages[1] holds a part of type 'thinking')\n"
    )


def test_it_says_what_a_repair_would_leave(run, save):
    assert run("check", save(GO, {**OK, "tool_calls": []})).stdout.endswith(
        "; `quiesce recover` repairs none of them\n"
    )
    assert run("check", save(GO, ASKS, {**OK, "tool_calls": []})).stdout.endswith(
        "`quiesce recover` repairs the pairing of calls and results; 1 problem stays in its copy: "
        "messages[3].tool_calls\n"
    )


def test_a_profile_tells_what_that_provider_would_refuse(run):
    assert run("check", EMPTY).exit_code == 0
    done = run("check", EMPTY, "--profile", "deepseek")
    assert done.exit_code == 1
    assert "messages[1].tool_calls[0].function.arguments: arguments-object: the arguments are ''" in done.stdout
    assert f"{EMPTY}: 1 problem for deepseek, 4 messages" in done.stdout


def test_a_profile_of_another_dialect_is_a_mistake(fails):
    said = fails("check", EMPTY, "--profile", "anthropic")
    assert said == (
        f"{EMPTY}: a chat transcript (messages[1] has 'tool_calls'), and --profile anthropic is for anthropic; "
        "fitting are openai, deepseek, mistral, compatible, strict-chat, any-chat"
    )


def test_plain_messages_are_of_whatever_dialect_the_profile_speaks(run, save):
    path = save(GO, OK, GO)
    assert "read as Chat Completions (nothing tells Chat from Anthropic here" in run("check", path).stdout
    done = run("check", path, "--profile", "anthropic")
    assert done.stdout.endswith("3 messages, read as Anthropic Messages (plain messages, for anthropic)\n")


def test_who_says_the_format_is_not_guessed_for(run, save):
    path = save(GO, GO)
    assert run("check", path).exit_code == 0
    done = run("check", path, "--format", "anthropic")
    assert done.exit_code == 1
    assert "messages[1]: same-role: " in done.stdout


def test_a_transcript_told_to_be_a_log_is_none(fails, save):
    assert "`quiesce import" in fails("check", save(GO), "--format", "log")


def test_a_profile_is_not_for_logs(fails, write):
    path = write("turn")
    assert fails("check", path, "--profile", "openai") == f"{path}: a log, and --profile is for transcripts"


def test_an_unknown_profile_is_a_mistake(run, save):
    assert run("check", save(GO), "--profile", "gemini").exit_code == 2


def test_logs_and_transcripts_go_together(run, write, save):
    log, transcript = write("turn step user ask:a call:a result:a end-step end-turn"), save(GO, ASKS)
    done = run("check", log, transcript)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{log}: sound, 8 events\n{transcript}: messages[1]")


def test_names_of_tools_in_a_request_are_checked(run, save):
    tools = [{"type": "function", "function": {"name": "a b"}}]
    path = save({"model": "m", "messages": [GO], "tools": tools}, name="request.json")
    done = run("check", path, "--profile", "openai")
    assert f"{path}: tools[0].function.name: tool-name: it is 'a b'" in done.stdout


def test_json_is_an_object_per_transcript(run):
    done = run("check", "--json", EMPTY, "--profile", "deepseek")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "file": str(EMPTY),
        "sound": False,
        "error": None,
        "format": "chat",
        "reason": "messages[1] has 'tool_calls'",
        "profile": "deepseek",
        "messages": 4,
        "problems": [
            {
                "position": "messages[1].tool_calls[0].function.arguments",
                "rule": "arguments-object",
                "words": "the arguments are ''; the text of an object is needed",
                "pairing": False,
            }
        ],
    }


def test_a_transcript_from_standard_input(run):
    assert run("check", "-", stdin=VALID.read_bytes()).stdout.startswith("standard input: sound for any-anthropic")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"role": "user", "content": "a"}\n{"role": "user"', "line 2: not JSON: Expecting ',' delimiter, column 16"),
        ('[{"role": "user", "parts": []}]', "messages[0]: has 'parts', as in Gemini's generateContent"),
    ],
)
def test_what_is_no_transcript_is_a_mistake_with_its_place(fails, save, text, words):
    path = save(text)
    assert fails("check", path).startswith(f"{path}: neither a log nor a transcript: {words}")
    assert fails("check", path, "--format", "chat").startswith(f"{path}: {words}")


# --- recover -----------------------------------------------------------------------------------------------------


def test_a_repaired_copy_is_written_in_the_form_of_the_file(run, save, tmp_path):
    path = save(GO, json.dumps(ASKS, separators=(",", ":")), GO)
    done = run("recover", path, "-o", tmp_path / "copy")
    assert done.exit_code == 0
    lines = (tmp_path / "copy").read_text().split("\n")
    original = path.read_text().split("\n")
    assert [*lines[:2], *lines[3:]] == original
    assert json.loads(lines[2]) == UNKNOWN


def test_it_says_what_it_did(run, tmp_path):
    done = run("recover", CASES / "B04-disjoint.anthropic.json", "-o", tmp_path / "copy")
    assert done.stdout.splitlines() == [
        "5 messages, read as Anthropic Messages (messages[1] holds a part of type 'tool_use')",
        "answered: messages[1].content[0]: call 'tA' had no result and got one that says its outcome is unknown",
        "quoted: messages[2].content[0]: the result of call 'tB', which is not before it, became a note",
        f"wrote {tmp_path / 'copy'}: 5 messages, 2 changes",
    ]


def test_the_copy_is_sound(run, tmp_path):
    run("recover", SPLIT, "-o", tmp_path / "copy")
    assert run("check", tmp_path / "copy", "--profile", "anthropic").exit_code == 0


def test_a_sound_transcript_is_copied_to_the_last_byte(run, save, tmp_path):
    path = save('[ {"role": "user",  "content": "a", "x": 1.00} ]')
    done = run("recover", path, "-o", tmp_path / "copy")
    assert "nothing to repair: every call has its result in its place\n" in done.stdout
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


MALFORMED = {
    "chat": [
        GO,
        {"role": "assistant", "content": None, "tool_calls": [None, 5, {"id": None}, ASKS["tool_calls"][0]]},
        RESULT,
    ],
    "anthropic": [
        GO,
        {"role": "assistant", "content": [None, {"type": "tool_use"}, {"type": "tool_use", "id": 5, "name": "a"}]},
        GO,
    ],
    "responses": [
        GO,
        {"type": "function_call", "name": "a"},
        {"type": "function_call", "call_id": None},
        {"type": "function_call", "call_id": 5},
        GO,
    ],
}


@pytest.mark.parametrize("dialect", MALFORMED)
def test_malformed_calls_are_left_and_never_said_to_be_fine(run, save, tmp_path, dialect):
    path = save(MALFORMED[dialect])
    done = run("recover", path, "-o", tmp_path / "copy", "--format", dialect)
    found = run("check", path, "--format", dialect).stdout.splitlines()[:-1]
    assert done.stdout.splitlines()[1] == (
        "nothing is repaired: every well-formed call has its result in its place; "
        f"what else is wrong ({len(found)} problems) is left as it is"
    )
    left = [line.partition(" refuses it: ")[2] for line in done.stdout.splitlines()[2:-1]]
    assert [f"{path}: {words}" for words in left] == found
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_one_problem_that_is_left_is_one(run, save, tmp_path):
    done = run("recover", save([{"role": "user", "content": 5}]), "-o", tmp_path / "copy", "--format", "anthropic")
    assert "(1 problem)" in done.stdout


def test_a_request_keeps_what_stands_around_its_messages(run, save, tmp_path):
    path = save({"model": "m", "messages": [GO, ASKS], "temperature": 0.5}, name="request.json")
    run("recover", path, "-o", tmp_path / "copy")
    written = json.loads((tmp_path / "copy").read_text())
    assert written == {"model": "m", "messages": [GO, ASKS, UNKNOWN], "temperature": 0.5}


def test_on_a_terminal_it_is_a_table(run, tmp_path):
    done = run("recover", SPLIT, "-o", tmp_path / "copy", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if "messages[3].content[0]" in line]
    assert "moved" in row
    assert "the result of call 'tB' moved to it" in row


def test_json_lists_the_changes_and_what_is_left(run, save, tmp_path):
    done = run("recover", save(GO, ASKS, GO), "-o", tmp_path / "copy", "--profile", "mistral", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {
        "change": "answered",
        "position": "messages[1].tool_calls[0]",
        "call": "c1",
        "words": "call 'c1' had no result and got one that says its outcome is unknown",
    }
    assert [(line["problem"], line["position"]) for line in lines[1:]] == [
        ("call-id", "messages[1].tool_calls[0].id"),
        ("call-id", "messages[2].tool_call_id"),
    ]


def test_what_the_provider_still_refuses_is_told(run, tmp_path):
    done = run("recover", EMPTY, "-o", tmp_path / "copy", "--profile", "deepseek")
    assert done.exit_code == 0
    assert (
        "left as it is, though deepseek refuses it: messages[1].tool_calls[0].function.arguments: arguments-object: "
        in done.stdout
    )


def test_the_copy_goes_to_standard_output_alone(run, save):
    done = run("recover", "-", "-o", "-", stdin=save(GO, ASKS).read_bytes())
    assert [json.loads(line) for line in done.stdout.splitlines()] == [GO, ASKS, UNKNOWN]
    assert done.stderr.startswith("2 messages, read as Chat Completions")
    assert "wrote" not in done.stderr


def test_the_transcript_itself_is_never_touched(run, fails, save, tmp_path):
    path = save(GO, ASKS)
    before = path.read_bytes(), path.stat().st_mtime_ns
    run("recover", path, "-o", tmp_path / "copy")
    assert "is the file itself" in fails("recover", path, "-o", path, "--force")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("make", ["write", "save"])
def test_a_profile_that_does_not_fit_is_a_mistake_and_writes_nothing(fails, request, make, tmp_path):
    content = "turn" if make == "write" else ASKS
    path = request.getfixturevalue(make)(content)
    said = fails("recover", path, "-o", tmp_path / "copy", "--profile", "anthropic")
    assert said.startswith(f"{path}: a ")
    assert not (tmp_path / "copy").exists()


def test_what_a_provider_calls_its_parts_they_are_called_everywhere(run, save, tmp_path):
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    path = save({"model": "m", "input": [GO, call]}, name="request.json")
    assert "1 problem for any-responses, 2 items, read as Responses" in run("check", path).stdout
    done = run("recover", path, "-o", tmp_path / "copy")
    assert done.stdout.splitlines()[0].startswith("2 items, read as Responses")
    assert done.stdout.splitlines()[-1] == f"wrote {tmp_path / 'copy'}: 3 items, 1 change"


@pytest.mark.parametrize("command", [["show"], ["export"], ["fork"], ["sessions"], ["chat"], ["run"], ["show", None]])
def test_where_a_session_must_stand_a_transcript_is_told_how_to_become_one(fails, save, monkeypatch, command):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    path = save(GO, ASKS, RESULT)
    talking = {"chat": ["--model", "openai:m", "--db", path], "run": ["--model", "openai:m", "Hi", "--db", path]}
    session = ["s"] if command[0] in {"export", "fork"} or None in command else []
    told = fails(command[0], *talking.get(command[0], [path, *session]))
    assert told.startswith(f"{path}: a transcript, and no session; `quiesce import {path}` makes one of it")
