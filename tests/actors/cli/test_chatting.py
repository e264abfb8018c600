"""`quiesce chat`, against a provider on a real socket: lines, steering, and who decides about calls."""

from __future__ import annotations

import signal

import pytest

from quiesce.protocol.events import ToolResult, TurnEnd, UserMessage, text_of

# -- chat -------------------------------------------------------------------------------------------------------------


def test_each_line_is_a_message_and_the_end_of_input_ends_the_chat(serve, fake_provider, start, events_of):
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


def test_what_is_typed_while_a_turn_runs_joins_it(serve, fake_provider, start, events_of):
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
def test_a_command_is_no_message(serve, line, told, start):
    provider, options = serve([])
    with start("chat", *options) as process:
        _, words = process.communicate(f"{line}\n/quit\nnot sent\n")
    assert process.returncode == 0
    assert told in words
    assert provider.requests == []


# -- approvals --------------------------------------------------------------------------------------------------------


def test_a_chat_asks_before_a_call_that_is_not_declared_harmless_and_one_answer_decides_one_call(
    serve, fake_provider, echo_server, start, events_of, talking, outcomes
):
    fp = fake_provider
    name = "misbehaving_server__environment"
    calls = [fp.Call(name, {"text": "a"}), fp.Call(name, {"text": "b"})]
    _, options = serve([[fp.Text("May I?"), *calls], [fp.Text("Done.")]])
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
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


def test_a_question_is_there_again_after_the_chat_was_left_and_run_does_not_pass_it(
    serve, fake_provider, echo_server, start, talking, outcomes
):
    fp = fake_provider
    call = fp.Call("misbehaving_server__environment", {"text": "a"})
    _, options = serve(fp.by_depth([[call], [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        process.communicate()
    assert outcomes(options[-1]) == []
    with start("run", *options, *echo_server, "--session", "s", "Hi") as process:
        _, told = process.communicate()
    assert process.returncode == 2
    assert "quiesce chat" in told
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.asked()
        chat.say("yes")
        out, _ = process.communicate()
    assert "Done." in out
    assert outcomes(options[-1]) == ["ok"]


def test_an_answer_with_a_condition_approves_nothing_and_what_is_no_answer_is_told(
    serve, fake_provider, echo_server, start, talking, outcomes
):
    fp = fake_provider
    _, options = serve(fp.by_depth([[fp.Call("misbehaving_server__environment", {"text": "a"})], [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        chat.say("yes, but only in /tmp")
        assert process.stderr.readline().startswith("y alone")
        chat.say("hm")
        assert "still open" in process.stderr.readline()
        chat.say("No, not that.")
        process.communicate()
    assert outcomes(options[-1]) == ["TOOL_DENIED"]


def test_a_chat_that_goes_on_with_a_question_knows_that_its_turn_runs(
    serve, fake_provider, echo_server, start, talking, outcomes
):
    fp = fake_provider
    name = "misbehaving_server__environment"
    calls = [fp.Call(name, {"text": "a"}), fp.Call(name, {"text": "b"})]
    _, options = serve(fp.by_depth([calls, [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        process.communicate()
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
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


def test_a_line_that_cannot_be_stored_ends_no_chat(serve, fake_provider, start):
    _, options = serve([[fake_provider.Text("Hello.")]])
    with start("chat", *options) as process:
        out, told = process.communicate("a\0b\nHi\n")
    assert (process.returncode, out) == (0, "Hello.\n")
    assert "NUL" in told


def test_with_yes_nobody_is_asked(serve, fake_provider, echo_server, start):
    fp = fake_provider
    _, options = serve([[fp.Call("misbehaving_server__environment", {"text": "a"})], [fp.Text("Done.")]])
    with start("chat", "--yes", *options, *echo_server, "--session", "s") as process:
        out, told = process.communicate("go\n")
    assert out == "Done.\n"
    assert "reason" not in told


def test_an_answer_typed_ahead_of_the_next_question_does_not_decide_it(
    serve, fake_provider, echo_server, start, talking, outcomes
):
    fp = fake_provider
    name = "misbehaving_server__environment"
    _, options = serve([[fp.Call(name, {"text": "a"}), fp.Call(name, {"text": "b"})], [fp.Text("Done.")]])
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        chat.say("y\ny")
        chat.hear(f'? {name} text="b"', "not taken")  # the second one may also come before the question
        chat.say("n")
        process.communicate()
    assert outcomes(options[-1]) == ["ok", "TOOL_DENIED"]


def test_a_call_that_is_denied_is_not_said_to_start(serve, fake_provider, echo_server, start, talking):
    fp = fake_provider
    calls = [fp.Call("misbehaving_server__environment", {"text": text}) for text in "ab"]
    _, options = serve([calls, [fp.Text("Done.")]])
    with start("chat", *options, *echo_server) as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        chat.say("n")
        chat.asked()
        chat.say("y")
        _, told = process.communicate()
    assert [line for line in told.splitlines() if line.startswith("…")] == [
        '… misbehaving_server__environment text="b"'
    ]


def test_yes_also_decides_a_question_that_was_left_open_and_says_so(
    serve, fake_provider, echo_server, start, talking, outcomes
):
    fp = fake_provider
    _, options = serve(fp.by_depth([[fp.Call("misbehaving_server__environment", {"text": "a"})], [fp.Text("Done.")]]))
    with start("chat", *options, *echo_server, "--session", "s") as process:
        chat = talking(process)
        chat.say("go")
        chat.asked()
        process.communicate()
    with start("chat", *options, *echo_server, "--session", "s", "--yes") as process:
        out, told = process.communicate()
    assert "Done." in out
    assert 'approved, as --yes wants: misbehaving_server__environment text="a"' in told
    assert outcomes(options[-1]) == ["ok"]


def test_a_turn_that_fails_is_told_once(serve, fake_provider, start):
    _, options = serve([[fake_provider.refuse(401)]])
    with start("chat", *options) as process:
        _, told = process.communicate("Hi\n")
    failed, again = told.splitlines()
    assert failed.startswith("turn 1: error: HTTP 401")
    assert again.startswith("to go on: ")
