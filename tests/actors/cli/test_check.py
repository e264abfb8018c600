"""`quiesce check`: what it says of sound, open, torn, broken and unreadable logs, and its exit codes."""

from __future__ import annotations

import json

SOUND = "turn step user ask:a call:a result:a end-step end-turn"
BROKEN = "turn step user ask:a,b call:a result:b end-step end-turn"
OPEN = "turn step user ask:a,b call:a"


def test_a_sound_log(run, write):
    path = write(SOUND)
    done = run("check", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}: sound, 8 events\n")


def test_logs_of_the_deepseek_harness_are_sound(run, data):
    done = run("check", data / "completed.v4.jsonl.zstd", data / "killed-mid-tool.v4.jsonl.zstd")
    assert done.exit_code == 0


def test_each_break_is_a_line_with_file_seq_rule_and_words(run, write):
    path = write(BROKEN)
    done = run("check", path)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"{path}: seq 5: call-order: the result of call 'b' stands before that of 'a': results stand in call order",
        f"{path}: seq 5: recorded-before: call 'b' has a result but no tool/call, and is not labelled TOOL_NOT_STARTED",
        f"{path}: seq 6: all-answered: step/end while there are unanswered calls: 'a'",
        f"{path}: 3 breaks, 8 events",
    ]


def test_an_open_turn_is_told_and_is_no_break(run, write):
    path = write(OPEN)
    done = run("check", path)
    assert done.exit_code == 0
    assert done.stdout == (
        f"{path}: sound, 5 events; turn 1, step 1 is open with 2 calls unanswered: `quiesce recover` closes it\n"
    )


def test_a_torn_tail_is_told_and_is_no_break(run, write):
    path = write(SOUND)
    path.write_bytes(path.read_bytes()[:-10])
    done = run("check", path)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{path}: torn tail: line 9, ")
    assert f"{path}: sound, 7 events; turn 1 is open" in done.stdout


def test_an_unreadable_log_outweighs_a_broken_one(run, write, tmp_path):
    (tmp_path / "x").write_bytes(b"no log\n")
    done = run("check", write(BROKEN), tmp_path / "x", write(SOUND, "sound.jsonl"))
    assert done.exit_code == 2
    assert done.stdout.endswith("sound.jsonl: sound, 8 events\n")
    assert done.stderr.startswith(f"quiesce: {tmp_path / 'x'}: neither a log nor a transcript: line 1: ")


def test_a_broken_log_among_sound_ones_is_enough(run, write):
    assert run("check", write(BROKEN), write(SOUND, "sound.jsonl")).exit_code == 1


def test_json_is_an_object_per_file(run, write, tmp_path):
    broken, cut = write(BROKEN), write(OPEN, "open.jsonl")
    cut.write_bytes(cut.read_bytes()[:-10])
    done = run("check", "--json", broken, cut, tmp_path / "gone")
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert done.exit_code == 2
    assert done.stderr == ""
    assert first == {
        "file": str(broken),
        "sound": False,
        "error": None,
        "format": "quiesce",
        "events": 8,
        "open": False,
        "unanswered": 0,
        "torn": None,
        "breaks": [
            {
                "seq": 5,
                "rule": "call-order",
                "words": "the result of call 'b' stands before that of 'a': results stand in call order",
            },
            {
                "seq": 5,
                "rule": "recorded-before",
                "words": "call 'b' has a result but no tool/call, and is not labelled TOOL_NOT_STARTED",
            },
            {"seq": 6, "rule": "all-answered", "words": "step/end while there are unanswered calls: 'a'"},
        ],
    }
    assert (second["sound"], second["open"], second["unanswered"], second["torn"]["line"]) == (True, True, 2, 6)
    assert (third["sound"], third["error"]) == (False, f"{tmp_path / 'gone'}: there is no such file")


def test_standard_input(run, db):
    exported = run("export", db, "reviewer").stdout_bytes
    assert run("check", "-", stdin=exported).stdout == "standard input: sound, 36 events\n"


def test_without_files_it_is_a_mistake(run):
    assert run("check").exit_code == 2
