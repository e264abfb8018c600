"""`quiesce show`: what a log looks like, in pieces."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest
import trio
from attrs import evolve

from quiesce.actors import Runtime, ScriptedModel, say
from quiesce.actors.cli.words import moment
from quiesce.protocol.codec import dumps
from quiesce.protocol.events import OpaqueBlock, Reason, ToolMessage, TurnEnd, UserMessage


def lines_of(result):
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def line_with(result, text):
    (line,) = [line for line in lines_of(result) if text in line]
    return line


# --- a log of another harness, plain and compressed --------------------------------------------------------------


def test_a_completed_log_of_the_deepseek_harness(run, data):
    done = run("show", data / "completed.v4.jsonl.zstd")
    lines = lines_of(done)
    assert lines[0].endswith(f"· 1 turn · 46 events · began {moment(1_796_063_356_868)}")
    assert lines[2].startswith("● turn 1 · completed · 2.03 s ")
    assert lines[2].endswith(" events 4-45")
    assert lines[3:7] == [
        "  step 1",
        "    user       read the files",
        "    context    Working directory: /home/user/work",
        "    assistant  Reading.",
    ]
    assert "    4 ✗ nope x=1 " in done.stdout
    assert "UNKNOWN_TOOL: Error: unk" in done.stdout
    assert "  FS_NOT_FOUND: Error: cannot" in line_with(done, "    5 ✗")


def test_calls_one_after_another_have_bars_one_after_another(run, data):
    calls = [
        line for line in lines_of(run("show", data / "completed.v4.jsonl.zstd")) if " bash " in line or " nope " in line
    ]
    third, fourth = calls[0], calls[1]
    assert third.rindex("━") <= fourth.index("━")


def test_a_log_that_was_killed_inside_a_tool_shows_what_is_open(run, data):
    done = run("show", data / "killed-mid-tool.v4.jsonl.zstd")
    assert "● turn 1 · OPEN · 889 ms so far" in done.stdout
    assert "  step 1 · open\n" in done.stdout
    assert line_with(done, "    1 ✓").endswith("228 ms  one")
    assert line_with(done, "    2 …").endswith("open: started, no result yet")
    assert line_with(done, "    3 …").endswith("open: not started yet")
    assert "  … turn 1 is open, 2 calls unanswered\n" in done.stdout


def test_a_recovered_log_shows_what_nobody_knows(run, data, tmp_path):
    run("recover", data / "killed-mid-tool.v4.jsonl.zstd", "--out", tmp_path / "whole")
    done = run("show", tmp_path / "whole")
    assert "● turn 1 · interrupted" in done.stdout
    assert line_with(done, "    2 ?").endswith("UNKNOWN: may have had effects")
    assert line_with(done, "    3 ○").endswith("NOT STARTED: had no effect")
    assert "╍╍ outcome unknown" in done.stdout


def test_a_call_that_waits_for_a_person_is_shown_with_its_question_and_without_a_bar(run, write):
    path = write("turn step ask:a,b call:a call:b asks:b=1 result:a")
    line = line_with(run("show", path), "    2 ⧖")
    assert line.endswith("WAITING: may it?")
    assert not set(line) & set("━┄╍")


def test_an_approved_call_without_a_result_is_open(run, write):
    path = write("turn step ask:a call:a asks:a=0 approves:a=0")
    assert line_with(run("show", path), "    1 …").endswith("open: started, no result yet")


def test_in_full_the_question_and_the_decision_stand_below_the_call(run, write):
    shown = run("show", write("turn step ask:a call:a asks:a=0 denies:a=0 denied:a end-step end-turn"), "--full")
    assert line_with(shown, "question").endswith("question   may it?")
    assert line_with(shown, "decision").endswith("decision   denied: no")


def test_a_question_about_no_call_is_shown_as_a_stray(run, write):
    assert "a question about no call" in run("show", write("turn step ask:a call:a asks:a=7")).stdout


def test_foreign_events_are_counted(run, data):
    done = run("show", data / "killed-mid-tool.v4.jsonl.zstd")
    said = " ".join(done.stdout.split())
    assert "14 events of other types, listed with --all: approval/policy 1, job/registered 2," in said
    assert "workspace-write" not in done.stdout


def test_foreign_events_are_listed_where_they_stand_with_all(run, data):
    done = run("show", "--all", data / "killed-mid-tool.v4.jsonl.zstd")
    assert '  · 0 permission/preset {"preset": "workspace-write"}' in lines_of(done)
    assert "of other types" not in done.stdout


def test_a_torn_tail_is_told(run, data, tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes((data / "killed-mid-tool.v4.jsonl.zstd").read_bytes()[:-20])
    assert lines_of(run("show", torn))[1].startswith("a torn tail of ")


# --- a session of a store ----------------------------------------------------------------------------------------


def test_a_session_of_a_store(run, db):
    done = run("show", db, "reviewer")
    assert lines_of(done)[0].startswith("reviewer · 3 turns · 36 events · began ")
    assert "    user       Look at the files.\n    assistant  Looking.\n" in done.stdout
    assert "  OSError: no such policy\n" in done.stdout
    seen = [line for line in lines_of(done) if line.endswith("seen a.txt")]
    assert seen[0].startswith('    1 ✓ look path="a.txt" ')


def test_every_turn_has_its_reason(run, db):
    titles = [line.split(" · ")[:2] for line in lines_of(run("show", db, "reviewer")) if line.startswith("●")]
    assert titles == [["● turn 1", "completed"], ["● turn 2", "error"], ["● turn 3", "completed"]]


def test_recovery_results_of_a_failed_turn_stand_out_by_mark_and_word(run, db):
    done = run("show", db, "reviewer")
    assert line_with(done, "    3 ○").endswith("NOT STARTED: had no effect")
    assert "UNKNOWN: may have had effects" in line_with(done, "    2 ?")


def test_a_fork_says_where_it_comes_from(run, db):
    child = run("fork", db, "reviewer", "--at", 8).stdout.strip()
    done = run("show", db, child)
    assert lines_of(done)[1] == "forked from reviewer at event 8"
    assert "    forked     what stands above comes from the parent\n" in done.stdout
    assert "● turn 1 · forked" in done.stdout


async def test_a_session_can_be_looked_at_while_it_is_held(run, tmp_path):
    path = tmp_path / "agents.db"
    async with Runtime.open(path) as runtime:
        agent = await runtime.agent("held", model=ScriptedModel([say("Hello.")]))
        await agent.send("Hi.")
        done = await trio.to_thread.run_sync(partial(run, "show", path, "held"))
        assert agent.is_alive()
    assert "    assistant  Hello.\n" in done.stdout
    assert lines_of(done)[1].startswith("held by process ")


# --- pieces ------------------------------------------------------------------------------------------------------


def test_calls_that_overlap_have_bars_that_overlap(run, write):
    path = write("turn step user ask:a,b,c call:a call:b result:a result:b call:c result:c end-step end-turn")
    bars = [(line.index("━"), line.rindex("━")) for line in lines_of(run("show", path)) if " ✓ " in line]
    (a_start, a_end), (b_start, b_end), (c_start, _) = bars
    assert a_start < b_start < a_end < b_end
    assert c_start > b_start


def test_a_call_whose_step_was_closed_without_a_result(run, write):
    done = run("show", write("turn step user ask:a call:a end-step end-turn"))
    assert line_with(done, "    1 …").endswith("unanswered: its step is over")


def test_what_has_no_place_is_shown_where_it_stands(run, write):
    done = run("show", write("turn step user ask:a call:a result:a result:a end-step end-turn"))
    assert "    stray      event 6, a result of no call: done\n" in done.stdout


def test_the_other_ends_of_a_turn(run, write, logs):
    events = logs.read("turn end-turn:aborted turn end-turn:forked turn end-turn:max-tokens turn end-turn:blocked")
    events = (
        events[0],
        evolve(events[1], body=TurnEnd(1, Reason("aborted", cause="user"))),
        *events[2:7],
        evolve(events[7], body=TurnEnd(4, Reason("blocked", message="not on a Sunday"))),
    )
    done = run("show", write(events))
    assert "● turn 1 · aborted · 1 ms" in done.stdout
    assert "  cause: user\n" in done.stdout
    assert "  it was open where this session was forked off\n" in done.stdout
    assert "● turn 3 · max-tokens" in done.stdout
    assert "  not on a Sunday\n" in done.stdout


def test_attempts_late_results_and_compaction(run, write):
    done = run("show", write("turn step user attempt ask:a call:a result:a late:a end-step user:summary>2-5 end-turn"))
    assert "    attempt    failed: cancelled" in done.stdout
    assert "    late result" in done.stdout
    assert "  compacted  in place of the events 2 to 5: summary\n" in done.stdout


def test_input_that_waits_is_told(run, write):
    assert "  queued for the next-turn: later\n" in run("show", write("splice:later")).stdout


def test_what_is_not_text_is_named(run, write, logs):
    events = logs.read("turn step user ask:a call:a result:a")
    image = OpaqueBlock({"type": "image", "data": "..."})
    message = ToolMessage("tool", "a", (image,), False, "r")
    done = run("show", write((*events[:5], evolve(events[5], body=evolve(events[5].body, message=message)))))
    assert line_with(done, "    1 ✓").endswith("  [image]")


def test_what_a_text_says_cannot_reach_the_terminal(run, write, logs):
    (event,) = logs.read("user:x")
    text = evolve(event.body.content[0], text="red \x1b[31m \x07 right \u202e left")
    done = run("show", write([evolve(event, body=evolve(event.body, content=(text,)))]))
    assert "  user       red \\x1b[31m \\x07 right \\u202e left\n" in done.stdout


def long_text(write, logs):
    (event,) = logs.read("user:x")
    text = evolve(event.body.content[0], text="word " * 200 + "END")
    return write([evolve(event, body=evolve(event.body, content=(text,)))])


def test_a_long_text_is_shortened_and_its_length_told(run, write, logs):
    done = run("show", long_text(write, logs))
    assert "… (1,003 characters)" in done.stdout
    assert "END" not in done.stdout


def test_nothing_is_shortened_with_full(run, write, logs):
    done = run("show", "--full", long_text(write, logs))
    assert done.stdout.count("word") == 200
    assert lines_of(done)[-1].endswith("END")


def test_arguments_and_results_stand_below_each_call_with_full(run, write):
    done = run("show", "--full", write("turn step user ask:a call:a result:a=long-result"))
    assert "        arguments  {}\n        result     long-result\n" in done.stdout


@pytest.mark.parametrize("columns", [1, 60, 100, 200])
def test_no_line_is_wider_than_the_window(run, data, columns):
    done = run("show", data / "completed.v4.jsonl.zstd", columns=columns)
    assert max(map(len, lines_of(done))) <= max(columns, 60)


# --- plain and in colours ----------------------------------------------------------------------------------------


def test_a_pipe_gets_plain_text(run, data):
    assert "\x1b" not in run("show", data / "completed.v4.jsonl.zstd").stdout


def test_colours_can_be_had_in_a_pipe(run, data):
    assert "\x1b[" in run("show", data / "completed.v4.jsonl.zstd", FORCE_COLOR="1").stdout


def test_no_color_outweighs_it(run, data):
    assert "\x1b" not in run("show", data / "completed.v4.jsonl.zstd", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_where_only_ascii_can_be_shown_ascii_is_shown(data):
    done = subprocess.run(
        [sys.executable, "-m", "quiesce.actors.cli", "show", data / "killed-mid-tool.v4.jsonl.zstd"],
        env={"PYTHONIOENCODING": "ascii", "COLUMNS": "100"},
        capture_output=True,
        check=True,
    )
    shown = done.stdout.decode("ascii")
    assert "* turn 1 - OPEN" in shown
    assert "    1 + bash" in shown


# --- as JSON -----------------------------------------------------------------------------------------------------


def test_json_is_the_events_one_per_line(run, write, logs):
    line = "turn step user ask:a call:a result:a end-step end-turn"
    done = run("show", "--json", write(line))
    assert done.stdout == "".join(dumps(event) + "\n" for event in logs.read(line))


def test_json_of_a_session_and_of_its_export_are_the_same(run, db, tmp_path):
    (tmp_path / "exported").write_bytes(run("export", db, "reviewer").stdout_bytes)
    assert run("show", "--json", db, "reviewer").stdout == run("show", "--json", tmp_path / "exported").stdout


def test_json_keeps_foreign_events(run, data):
    done = run("show", "--json", data / "killed-mid-tool.v4.jsonl.zstd")
    assert json.loads(done.stdout.splitlines()[0])["type"] == "permission/preset"


def test_standard_input_is_read_for_a_dash(run, data):
    done = run("show", "-", stdin=(data / "completed.v4.jsonl.zstd").read_bytes())
    assert "● turn 1 · completed" in done.stdout


def test_a_log_without_turns(run, write):
    assert lines_of(run("show", write(""))) == ["a-session · 0 turns · 0 events"]


def test_a_message_from_a_host_is_context(run, write, logs):
    (event,) = logs.read("user:x")
    body = evolve(event.body, source={"kind": "reminder"})
    assert isinstance(body, UserMessage)
    assert "  context    x\n" in run("show", write([evolve(event, body=body)])).stdout
