"""`quiesce run` and `quiesce chat`, against a provider on a real socket."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from rich.console import Console

from quiesce.actors.cli.narration import LiveScreen
from quiesce.actors.stores import SqliteStore
from quiesce.protocol.events import AssistantMessage, ToolResult, TurnEnd, UserMessage, text_of

KIND = {"chat": "openai:m", "responses": "responses:m", "anthropic": "anthropic:m"}


@pytest.fixture
def serve(fake_provider, tmp_path, monkeypatch):
    """Have a provider answer by this script; the options that lead to it, and a store to talk in."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with ExitStack() as stack:

        def serve(replies, dialect="chat"):
            provider = stack.enter_context(fake_provider.in_thread(replies))
            url = provider.root_url if dialect == "anthropic" else provider.base_url
            return provider, ("--model", KIND[dialect], "--base-url", url, "--db", tmp_path / "t.db")

        yield serve


def events_of(path, session):
    async def read():
        async with SqliteStore(path) as store:
            return await store.read(session)

    return trio.run(read)


# -- run --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", KIND)
def test_in_a_pipe_the_answer_is_all_of_standard_output(run, serve, fake_provider, dialect):
    _, options = serve([[fake_provider.Text("The answer\nis 42.", pieces=4)]], dialect)
    result = run("run", *options, "--session", "s", "What", "is it?")
    assert (result.exit_code, result.stdout) == (0, "The answer\nis 42.\n")
    assert result.stderr.splitlines() == [f"to go on: --db {options[-1]} --session s"]


def test_each_call_has_a_line_on_standard_error(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Text("Looking."), fp.Call("look", {"at": "it"})], [fp.Text("Seen.")]])
    result = run("run", *options, "Look")
    assert result.stdout == "Looking.\nSeen.\n"
    started, ended, *_ = result.stderr.splitlines()
    assert started == '… look at="it"'
    assert ended.startswith('✗ look at="it"')
    assert "UNKNOWN_TOOL" in ended


def test_a_session_is_gone_on_with_by_its_id_also_in_another_dialect(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.Text("One.")]])
    assert run("run", *options, "--session", "s", "First").exit_code == 0
    provider, options = serve([[fp.Text("Two.")]], "anthropic")
    assert run("run", *options, "--session", "s", "Second").stdout == "Two.\n"
    assert provider.refused == []
    sent = json.dumps(provider.requests[0].body["messages"])
    assert all(words in sent for words in ("First", "One.", "Second"))


def test_without_a_session_id_a_new_session_is_made_and_named(run, serve, fake_provider):
    _, options = serve([[fake_provider.Text("Hello.")]])
    named = run("run", *options, "Hi").stderr.split("--session ")[1].strip()
    assert any(isinstance(event.body, AssistantMessage) for event in events_of(options[-1], named))


def test_with_json_the_committed_events_of_the_turn_are_the_output(run, serve, fake_provider):
    _, options = serve([[fake_provider.Text("Hello.")]])
    result = run("run", *options, "--session", "s", "--json", "Hi")
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in printed] == [event.type for event in events_of(options[-1], "s")]
    assert printed[-1]["type"] == "turn/end"


def test_a_dash_in_the_prompt_stands_for_standard_input(run, serve, fake_provider):
    _, options = serve([[fake_provider.Text("Fine.")]])
    run("run", *options, "--session", "s", "Review this", "-", stdin="the change")
    asked = [
        text_of(event.body.content) for event in events_of(options[-1], "s") if isinstance(event.body, UserMessage)
    ]
    assert asked == ["Review this\n\nthe change"]


def test_a_turn_that_fails_is_exit_code_1_and_told_in_one_line(run, serve, fake_provider):
    _, options = serve([[fake_provider.refuse(401)]])
    result = run("run", *options, "Hi")
    assert result.exit_code == 1
    assert [line for line in result.stderr.splitlines() if line.startswith("quiesce: ")] == [
        result.stderr.splitlines()[-1]
    ]
    assert "401" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_attempt_that_is_repeated_is_told(run, serve, fake_provider):
    fp = fake_provider
    _, options = serve([[fp.refuse(503)], [fp.Text("Now.")]])
    result = run("run", *options, "Hi")
    assert (result.exit_code, result.stdout) == (0, "Now.\n")
    assert "attempt 1 failed" in result.stderr
    assert "trying again in" in result.stderr


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
        (["--model", "openai:m", "--base-url", "nonsense", "hello"], "base_url"),
        (["--model", "openai:m", "--mcp", "'", "hello"], "--mcp"),
        (["--model", "openai:m", "--mcp", "", "hello"], "--mcp"),
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
def test_standard_input_that_is_no_text_is_told_in_one_line(serve, command):
    _, options = serve([])
    said = subprocess.run(
        [sys.executable, "-m", "quiesce.actors.cli", command, *map(str, options), *(["-"] if command == "run" else [])],
        input=b"caf\xe9\n",
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        check=False,
    )
    assert said.returncode == 2
    assert b"utf-8" in said.stderr
    assert b"Traceback" not in said.stderr


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


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "quiesce.actors.cli", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_cancels_the_turn_and_says_how_to_go_on(serve, fake_provider):
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


def test_ctrl_c_before_there_is_a_turn_ends_the_command(serve, fake_provider, tmp_path):
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


# -- chat -------------------------------------------------------------------------------------------------------------


def test_each_line_is_a_message_and_the_end_of_input_ends_the_chat(serve, fake_provider):
    fp = fake_provider
    provider, options = serve([[fp.Text("One.")], [fp.Text("Two.")]])
    with start("chat", *options, "--session", "s") as process:
        for line, answer in (("first", "One.\n"), ("second", "Two.\n")):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == answer
        out, told = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "--session s" in told
    assert provider.refused == []
    asked = [
        text_of(event.body.content) for event in events_of(options[-1], "s") if isinstance(event.body, UserMessage)
    ]
    assert asked == ["first", "second"]


def test_what_is_typed_while_a_turn_runs_joins_it(serve, fake_provider):
    fp = fake_provider
    provider, options = serve([[fp.Text("Wait"), fp.Wait("there"), fp.Call("x", {})], [fp.Text("Both.")]])
    with start("chat", *options, "--session", "s") as process:
        process.stdin.write("first\n")
        process.stdin.flush()
        provider.call(provider.waiting, "there", 1)
        process.stdin.write("second\n/status\n")
        process.stdin.flush()
        while "turn 1 is running" not in process.stderr.readline():
            pass
        provider.open("there")
        out, _ = process.communicate()
    assert "Both." in out
    assert [event.body.turn for event in events_of(options[-1], "s") if isinstance(event.body, TurnEnd)] == [1]


@pytest.mark.parametrize(
    ("line", "told"),
    [("/help", "/cancel"), ("/nonsense", "/nonsense: no such command"), ("/status", "idle"), ("", ""), ("/cancel", "")],
)
def test_a_command_is_no_message(serve, line, told):
    provider, options = serve([])
    with start("chat", *options) as process:
        _, words = process.communicate(f"{line}\n/quit\nnot sent\n")
    assert process.returncode == 0
    assert told in words
    assert provider.requests == []


# -- approvals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def echo_server():
    """The option for an MCP server whose tools are not declared to be harmless."""
    script = Path(__file__).parents[1] / "mcp" / "misbehaving_server.py"
    with socket.create_server(("127.0.0.1", 0)) as report:
        yield "--mcp", f"{sys.executable} {script} --report {report.getsockname()[1]}"


class Chat:
    """A chat that runs, line by line."""

    def __init__(self, process):
        self.process = process

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def asked(self):
        """Wait for a question."""
        while "y, or n and a reason" not in self.process.stderr.readline():
            pass


def outcomes(path):
    results = [event.body for event in events_of(path, "s") if isinstance(event.body, ToolResult)]
    return [result.error.code if result.error else "ok" for result in results]


def test_a_chat_asks_before_a_call_that_is_not_declared_harmless_and_one_answer_decides_one_call(
    serve, fake_provider, echo_server
):
    fp = fake_provider
    name = "misbehaving_server__environment"
    calls = [fp.Call(name, {"text": "a"}), fp.Call(name, {"text": "b"})]
    _, options = serve([[fp.Text("May I?"), *calls], [fp.Text("Done.")]])
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.say("go")
        chat.asked()
        chat.say("y")
        chat.asked()
        chat.say("n not that one")
        out, _ = process.communicate()
    assert "Done." in out
    assert outcomes(options[-1]) == ["ok", "TOOL_DENIED"]
    results = [event.body for event in events_of(options[-1], "s") if isinstance(event.body, ToolResult)]
    assert "not that one" in text_of(results[1].message.content)


def test_a_question_is_there_again_after_the_chat_was_left_and_run_does_not_pass_it(serve, fake_provider, echo_server):
    fp = fake_provider
    call = fp.Call("misbehaving_server__environment", {"text": "a"})
    _, options = serve(fp.by_depth([[call], [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.say("go")
        chat.asked()
        process.communicate()
    assert outcomes(options[-1]) == []
    with start("run", *options, *echo_server, "--session", "s", "Hi") as process:
        _, told = process.communicate()
    assert process.returncode == 2
    assert "quiesce chat" in told
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.asked()
        chat.say("yes")
        out, _ = process.communicate()
    assert "Done." in out
    assert outcomes(options[-1]) == ["ok"]


def test_an_answer_with_a_condition_approves_nothing_and_what_is_no_answer_is_told(serve, fake_provider, echo_server):
    fp = fake_provider
    _, options = serve(fp.by_depth([[fp.Call("misbehaving_server__environment", {"text": "a"})], [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.say("go")
        chat.asked()
        chat.say("yes, but only in /tmp")
        assert process.stderr.readline().startswith("y alone")
        chat.say("hm")
        assert "still open" in process.stderr.readline()
        chat.say("No, not that.")
        process.communicate()
    assert outcomes(options[-1]) == ["TOOL_DENIED"]


def test_ctrl_c_in_a_chat_that_is_idle_says_how_to_go_on(serve, fake_provider):
    _, options = serve([[fake_provider.Text("One.")]])
    with start("chat", *options, "--session", "s") as process:
        process.stdin.write("first\n")
        process.stdin.flush()
        assert process.stdout.readline() == "One.\n"
        while not any(isinstance(event.body, TurnEnd) for event in events_of(options[-1], "s")):
            select.select([], [], [], 0.05)
        select.select([], [], [], 0.2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "--session s" in told


def test_a_chat_that_goes_on_with_a_question_knows_that_its_turn_runs(serve, fake_provider, echo_server):
    fp = fake_provider
    name = "misbehaving_server__environment"
    calls = [fp.Call(name, {"text": "a"}), fp.Call(name, {"text": "b"})]
    _, options = serve(fp.by_depth([calls, [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.say("go")
        chat.asked()
        process.communicate()
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = Chat(process)
        chat.asked()
        chat.say("/status")
        assert process.stderr.readline() == "turn 1 is running\n"
        chat.say("y")
        assert any("\u2713" in process.stderr.readline() for _ in range(3))  # what became of the call
        chat.asked()
        process.send_signal(signal.SIGINT)  # cancels the turn, and ends no chat
        while "turn 1: aborted" not in process.stderr.readline():
            assert process.poll() is None
        process.communicate()
    assert process.returncode == 0
    assert outcomes(options[-1]) == ["ok", "TOOL_NOT_STARTED"]


def test_a_line_that_cannot_be_stored_ends_no_chat(serve, fake_provider):
    _, options = serve([[fake_provider.Text("Hello.")]])
    with start("chat", *options) as process:
        out, told = process.communicate("a\0b\nHi\n")
    assert (process.returncode, out) == (0, "Hello.\n")
    assert "NUL" in told


def test_with_yes_nobody_is_asked(serve, fake_provider, echo_server):
    fp = fake_provider
    _, options = serve([[fp.Call("misbehaving_server__environment", {"text": "a"})], [fp.Text("Done.")]])
    with start("chat", "--yes", *options, *echo_server, "--session", "s") as process:
        out, told = process.communicate("go\n")
    assert out == "Done.\n"
    assert "reason" not in told


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


def test_of_a_paragraph_that_is_longer_than_the_screen_the_end_is_in_view():
    console = Console(file=io.StringIO(), width=20, height=6, force_terminal=True)
    screen = LiveScreen(console)
    screen.text(" ".join(f"word{number}" for number in range(100)))
    with console.capture() as shown:
        console.print(screen._below())
    lines = shown.get().splitlines()
    assert len(lines) < 6
    assert "word99" in lines[-1]
