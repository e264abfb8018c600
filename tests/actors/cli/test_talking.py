"""`quiesce run` and `quiesce chat`, against a provider on a real socket."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys

import pytest
from rich.console import Console

from quiesce.actors.cli.narration import Narrator
from quiesce.actors.cli.screens import JsonScreen, LiveScreen
from quiesce.actors.cli.timeline import Call
from quiesce.protocol.events import AssistantMessage, Event, ModelMessage, OpaqueBlock, UserMessage, text_of

# -- run --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("reply", [(), ("\n ",)], ids=["none", "blank"])
def test_of_an_empty_reply_it_is_said_that_it_is_empty(run, serve, fake_provider, dialect, reply):
    _, options = serve([[fake_provider.Text(text) for text in reply]], dialect)
    result = run("run", *options, "--session", "s", "Hi")
    assert (result.exit_code, result.stdout.strip()) == (0, "")
    assert result.stderr.splitlines() == ["the model said nothing", f"to go on: --db {options[-1]} --session s"]


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_reply_that_was_only_thought_is_empty_too(run, serve, fake_provider, dialect):
    _, options = serve([[fake_provider.Thinking("Hm.")]], dialect)
    assert run("run", *options, "Hi").stderr.splitlines()[0] == "the model said nothing"


def test_a_reply_of_calls_alone_is_not_empty(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Call("look", {})], [fp.Text("Seen.")]])
    assert "said nothing" not in run("run", *options, "Hi").stderr


def test_in_a_chat_an_empty_reply_is_told_too(run, serve):
    _, options = serve([[]])
    assert run("chat", *options, stdin="Hi\n").stderr.splitlines()[0] == "the model said nothing"


def test_with_json_an_empty_reply_is_told_by_its_event_alone(run, serve):
    _, options = serve([[]])
    result = run("run", *options, "--json", "Hi")
    answers = [event for event in map(json.loads, result.stdout.splitlines()) if event["type"] == "assistant/message"]
    assert [event["data"]["message"]["content"] for event in answers] == [[]]
    assert "said nothing" not in result.stderr


def test_what_a_reply_holds_that_cannot_be_shown_is_named():
    notes = []

    class Notes(JsonScreen):
        def note(self, words, style="dim"):
            notes.append(words)

    message = ModelMessage("assistant", (OpaqueBlock({"type": "image"}),), {"kind": "model"}, "m")
    Narrator(Notes()).hear(Event(AssistantMessage(1, 1, message), seq=0, time=0))
    assert notes == ["the model said nothing but [image]"]


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_in_a_pipe_the_answer_is_all_of_standard_output(run, serve, fake_provider, dialect):
    _, options = serve([[fake_provider.Text("The answer\nis 42.", pieces=4)]], dialect)
    result = run("run", *options, "--session", "s", "What", "is it?")
    assert (result.exit_code, result.stdout) == (0, "The answer\nis 42.\n")
    assert result.stderr.splitlines() == [f"to go on: --db {options[-1]} --session s"]


def test_each_call_has_a_line_when_it_starts_and_one_when_it_has_ended(run, serve, fake_provider, echo_server):
    fp = fake_provider
    calls = [fp.Call("misbehaving_server__echo", {"text": "hi"}), fp.Call("look", {"at": "it"})]
    _, options = serve([[fp.Text("Looking."), *calls], [fp.Text("Seen.")]])
    result = run("run", *options, *echo_server, "Look")
    assert result.stdout == "Looking.\nSeen.\n"
    started, ended, unknown, _ = result.stderr.splitlines()
    assert started == '… misbehaving_server__echo text="hi"'
    assert ended.startswith('✓ misbehaving_server__echo text="hi"')
    assert unknown.startswith('✗ look at="it"')  # which never started, and is not said to have
    assert "UNKNOWN_TOOL" in unknown


def test_a_session_is_gone_on_with_by_its_id_also_in_another_dialect(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Text("One.")]])
    assert run("run", *options, "--session", "s", "First").exit_code == 0
    provider, options = serve([[fp.Text("Two.")]], "anthropic")
    assert run("run", *options, "--session", "s", "Second").stdout == "Two.\n"
    assert provider.refused == []
    sent = json.dumps(provider.requests[0].body["messages"])
    assert all(words in sent for words in ("First", "One.", "Second"))


def test_without_a_session_id_a_new_session_is_made_and_named(run, serve, fake_provider, events_of):
    _, options = serve([[fake_provider.Text("Hello.")]])
    named = run("run", *options, "Hi").stderr.split("--session ")[1].strip()
    assert any(isinstance(event.body, AssistantMessage) for event in events_of(options[-1], named))


def test_with_json_the_committed_events_of_the_turn_are_the_output(run, serve, fake_provider, events_of):
    _, options = serve([[fake_provider.Text("Hello.")]])
    result = run("run", *options, "--session", "s", "--json", "Hi")
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in printed] == [event.type for event in events_of(options[-1], "s")]
    assert printed[-1]["type"] == "turn/end"


def test_a_dash_in_the_prompt_stands_for_standard_input(run, serve, fake_provider, events_of):
    _, options = serve([[fake_provider.Text("Fine.")]])
    run("run", *options, "--session", "s", "Review this", "-", stdin="the change")
    asked = [
        text_of(event.body.content) for event in events_of(options[-1], "s") if isinstance(event.body, UserMessage)
    ]
    assert asked == ["Review this\n\nthe change"]


def test_a_turn_that_fails_is_exit_code_1_and_told_once(run, serve, fake_provider):
    _, options = serve([[fake_provider.refuse(401)]])
    result = run("run", *options, "--session", "s", "Hi")
    assert result.exit_code == 1
    again, failed = result.stderr.splitlines()
    assert again.startswith("to go on: ")
    assert failed.startswith("quiesce: turn 1 failed: ModelError: HTTP 401")


def test_what_was_said_before_a_reply_was_cut_is_printed_once(run, serve, fake_provider):
    _, options = serve(lambda request: [fake_provider.Text("half of it", pieces=3), fake_provider.Cut()])
    result = run("run", *options, "Hi")
    assert result.exit_code == 1
    attempts = result.stderr.count("attempt ") + 1
    assert result.stdout.split() == ["half", "of", "it"] * attempts


def test_an_attempt_that_is_repeated_is_told_in_brief(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.refuse(503)], [fp.Text("Now.")]])
    result = run("run", *options, "Hi")
    assert (result.exit_code, result.stdout) == (0, "Now.\n")
    attempt, _ = result.stderr.splitlines()
    assert re.fullmatch(r"attempt 1 failed: 503 \w+; trying again in \d.*s", attempt)


def test_a_turn_that_takes_too_many_steps_is_exit_code_1(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Call("look", {})]] * 3)
    result = run("run", *options, "--max-steps", "2", "Hi")
    assert result.exit_code == 1
    assert "max_steps" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hello"], "--model"),
        (["--model", "openai", "hello"], "KIND:NAME|openai:NAME"),
        (["--model", "gemini:x", "hello"], "openai:NAME"),
        (["--model", "openai:m", "--profile", "anthropic", "hello"], "; fitting are openai, deepseek, mistral, "),
        (["--model", "openai:m", "--base-url", "nonsense", "hello"], "base_url"),
        (["--model", "openai:m", "--mcp", "'", "hello"], "--mcp"),
        (["--model", "openai:m", "--mcp", "", "hello"], "--mcp"),
        (["--model", "openai:m", "--mcp", "name=", "hello"], "--mcp"),
        (["--model", "openai:m", "--mcp", f"{'n' * 65}=python3", "hello"], "--mcp: name"),
        (["--model", "openai:m", "--mcp", "no-such-server-program", "hello"], "no-such-server-program"),
        (["--model", "openai:m", "--max-steps", "0", "hello"], "max-steps"),
        (["--model", "openai:m", "  "], "empty"),
        (["--model", "openai:m"], "PROMPT"),
    ],
)
def test_a_mistake_in_the_request_is_told_in_one_line(fails, monkeypatch, tmp_path, arguments, words):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    told = fails("run", *arguments)
    assert any(word in told for word in words.split("|"))


def test_a_missing_key_is_named(fails, monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "OPENAI_API_KEY" in fails("run", "--model", "openai:m", "hello")


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://127.0.0.1:x/v1", "http://127.0.0.1:99999999/v1", "http://h/caf\udce9"]
)
def test_an_address_that_is_none_is_told_in_one_line(fails, monkeypatch, tmp_path, url):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    assert "base_url" in fails("run", "--model", "openai:m", "--base-url", url, "hello")


@pytest.mark.parametrize("key", ["sk-\u00e4-secret", "sk-secret\n"])
@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_a_key_that_no_header_can_hold_is_told_before_anything_is_opened(
    fails, monkeypatch, tmp_path, kind, variable, key
):
    monkeypatch.setenv(variable, key)
    monkeypatch.chdir(tmp_path)
    told = fails("run", "--model", f"{kind}:m", "hello")
    assert variable in told
    assert "secret" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "chat"])
def test_bytes_that_are_no_text_are_replaced_visibly_and_told_in_a_line(serve, fake_provider, events_of, command):
    _, options = serve([[fake_provider.Text("Fine.")]])
    said = subprocess.run(
        [
            *(sys.executable, "-m", "quiesce.actors.cli", command, *map(str, options), "--session", "s"),
            *(["-"] if command == "run" else []),
        ],
        input=b"caf\xe9\n",
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, b"Fine.\n")
    told, again = said.stderr.decode().splitlines()
    assert told == "standard input is no utf-8 text at byte 3: what is none was replaced by U+FFFD"
    assert again.startswith("to go on")
    asked = [
        text_of(event.body.content) for event in events_of(options[-1], "s") if isinstance(event.body, UserMessage)
    ]
    assert [text.strip() for text in asked] == ["caf\ufffd"]


@pytest.mark.parametrize("session", ["", " ", "a\x1b[2J", "a\nb"])
@pytest.mark.parametrize("command", ["run", "chat"])
def test_what_cannot_be_the_id_of_a_session_is_told_in_one_line(fails, serve, command, session):
    _, options = serve([])
    told = fails(command, *options, "--session", session, *(["Hi"] if command == "run" else []))
    assert "--session" in told
    assert "no id" in told
    assert not options[-1].exists()


# -- servers ----------------------------------------------------------------------------------------------------------


def test_two_servers_of_one_command_are_told_apart_by_the_names_they_are_given(run, serve, fake_provider, echo_server):
    option, command = echo_server
    provider, options = serve([[fake_provider.Text("Hello.")]])
    result = run("run", *options, option, f"one={command}", option, f"two={command}", "Hi")
    assert result.exit_code == 0
    offered = {tool["function"]["name"] for tool in provider.requests[0].body["tools"]}
    assert {"one__echo", "two__echo"} <= offered


def test_two_servers_of_one_name_are_a_mistake_that_says_how_to_name_them(fails, serve, echo_server):
    _, options = serve([])
    told = fails("run", *options, *echo_server, *echo_server, "Hi")
    assert "2 servers are called 'misbehaving_server'" in told
    assert "NAME=COMMAND" in told
    assert not options[-1].exists()


@pytest.mark.parametrize(("command", "said"), [("run", ["Hi"]), ("chat", [])])
def test_a_server_may_be_an_address_with_a_name_and_its_failure_is_told_once(fails, serve, command, said):
    _, options = serve([])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    failed = fails(command, *options, "--mcp", f"web=http://127.0.0.1:{port}/mcp?key=a=b", *said)
    assert failed.startswith("MCP server 'web': ")


def test_who_waits_at_a_terminal_sees_what_for_and_no_more_of_it_once_it_is_there(run, serve, echo_server):
    _, options = serve([])
    result = run("chat", *options, *echo_server, FORCE_COLOR="1", TERM="xterm")
    assert result.exit_code == 0
    waiting, _, after = result.stderr.rpartition("connecting to misbehaving_server…")
    assert waiting
    assert "\x1b[2K" in after  # the line is erased


def test_the_last_words_of_a_server_are_a_sentence_of_their_own(run, serve, echo_server):
    _, options = serve([])
    result = run("run", *options, echo_server[0], f"{echo_server[1]} --start die", "Hi")
    assert result.exit_code == 2
    assert ". Its last words: Traceback: no module named weather" in result.stderr


# -- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_says_whose_rules_a_compatible_server_has(run, serve, fake_provider, events_of):
    _, options = serve([[fake_provider.Text("Hello.")]])
    assert run("run", *options, "--profile", "mistral", "--session", "s", "Hi").exit_code == 0
    sources = [e.body.message.source for e in events_of(options[-1], "s") if isinstance(e.body, AssistantMessage)]
    assert [source["provider"] for source in sources] == ["mistral"]


@pytest.mark.parametrize(("profile", "words"), [("anthropic", "anthropic dialect"), ("mistrall", "'mistral'")])
def test_a_profile_that_does_not_fit_is_a_mistake(fails, serve, profile, words):
    _, options = serve([])
    assert words in fails("run", *options, "--profile", profile, "Hi")
    assert not options[-1].exists()


def test_a_prompt_that_cannot_be_stored_is_told_as_the_prompt_and_makes_no_session(fails, serve):
    _, options = serve([])
    assert "the prompt" in fails("run", *options, "a\udce9b")
    assert not options[-1].exists()


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_a_standard_stream_that_is_closed_is_no_bug(serve, fake_provider, closed):
    _, options = serve([[fake_provider.Text("Hello.")]])
    words = " ".join(map(shlex.quote, map(str, [sys.executable, "-m", "quiesce.actors.cli", "run", *options, "Hi"])))
    said = subprocess.run(["/bin/sh", "-c", f"{words} {closed}>&-"], capture_output=True, check=False)
    assert said.returncode == 0
    assert b"Traceback" not in said.stderr
    assert said.stdout == (b"" if closed == "1" else b"Hello.\n")


def test_what_a_model_says_cannot_move_the_cursor(run, serve, fake_provider):
    _, options = serve([[fake_provider.Text("a\x1b[2Jb")]])
    assert run("run", *options, "Hi").stdout == "a\\x1b[2Jb\n"


# -- a terminal -------------------------------------------------------------------------------------------------------


def in_terminal(*arguments):
    """Run the command in a pseudo-terminal; what it wrote, and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "quiesce.actors.cli", *map(str, arguments)])
    written = b""
    try:
        while piece := os.read(terminal, 4096):
            written += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(terminal)
    return written.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_on_a_terminal_text_and_calls_scroll_by_in_their_order_and_the_cursor_comes_back(serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Text("Let me see.\nYes.", pieces=5), fp.Call("look", {"at": "it"})], [fp.Text("Seen.")]])
    written, code = in_terminal("run", *options, "Look")
    assert code == 0
    places = [written.rindex(words) for words in ("Let me see.", "Yes.", "UNKNOWN_TOOL", "Seen.", "to go on")]
    assert places == sorted(places)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_what_has_scrolled_by_is_not_drawn_below_again():
    written = io.StringIO()
    with LiveScreen(Console(file=written, width=60, height=6, force_terminal=True)) as screen:
        screen.busy("thinking")
        screen.text("The end.")
        screen._live.refresh()  # a frame, which shows both
        screen.busy("")
        screen.note("A note.")
        screen.note("Another.")
    after = written.getvalue()[written.getvalue().index("A note.") :]
    assert "The end." not in after
    assert "thinking" not in after


def test_of_a_paragraph_that_is_longer_than_the_screen_the_end_is_in_view():
    console = Console(file=io.StringIO(), width=20, height=6, force_terminal=True)
    screen = LiveScreen(console)
    screen.text(" ".join(f"word{number}" for number in range(100)))
    with console.capture() as shown:
        console.print(screen)
    lines = shown.get().splitlines()
    assert len(lines) < 6
    assert "word99" in lines[-1]


def test_calls_that_wait_stand_still_below_those_that_run():
    console = Console(file=io.StringIO(), width=60, height=6, force_terminal=True)
    screen = LiveScreen(console)
    calls = [Call(f"c{number}", f"tool{number}", "{}") for number in range(3)]
    for running, waiting, shown in ((calls[:1], calls[1:2], "tool1  waits"), (calls[:1], calls[1:], "2 calls wait")):
        screen.calls(running, waiting)
        with console.capture() as seen:
            console.print(screen)
        first, second = seen.get().splitlines()
        assert "tool0" in first
        assert shown in second
