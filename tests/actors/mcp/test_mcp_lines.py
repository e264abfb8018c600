"""Lines out of chunks, and messages out of lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mcp")

from quiesce.actors.mcp.lines import Line, Lines
from quiesce.actors.mcp.stdio import read_messages

CHUNKS = st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\x85"]), max_size=6).map(b"".join), max_size=6)


def lines_of(chunks, limit=1000):
    reader = Lines(limit)
    return [line for chunk in chunks for line in reader.feed(chunk)] + list(reader.end())


@given(CHUNKS)
def test_lines_do_not_depend_on_how_the_bytes_were_cut(chunks):
    data = b"".join(chunks)
    expected = data.split(b"\n")
    assert lines_of(chunks) == [Line(line) for line in (expected if expected[-1] else expected[:-1])]


@given(CHUNKS, st.integers(1, 4))
def test_of_a_line_over_the_limit_the_beginning_is_kept_and_it_says_so(chunks, limit):
    whole = [line.data for line in lines_of(chunks)]
    assert lines_of(chunks, limit) == [Line(line[:limit], len(line) > limit) for line in whole]


def said(*messages):
    return [json.loads(one.message.model_dump_json(exclude_unset=True)) for one in messages]


def read(text, *, cut=False):
    found = read_messages(Line(text.encode() if isinstance(text, str) else text, cut))
    return None if found is None else said(*found)


@pytest.mark.parametrize("line", ["Starting...", "{half", b"\xff\xfe", "17", '"text"', "null", "[" * 5000, "NaN"])
def test_a_line_that_is_no_message_is_told_from_one_that_is(line):
    assert read(line) is None


@pytest.mark.parametrize(
    "line", ["", "  ", "[]", "{}", '{"jsonrpc": "1.0"}', '{"method": 3}', '{"id": true, "result": 3}']
)
def test_what_could_be_a_message_and_is_none_that_anybody_waits_for_is_passed_over(line):
    assert read(line) == []


def test_an_answer_is_read():
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"x": [1, None]}}
    assert read(json.dumps(answer)) == [answer]


def test_a_batch_is_read_in_order():
    answers = [{"jsonrpc": "2.0", "id": number, "result": {}} for number in (2, 1)]
    assert read(json.dumps(answers)) == answers


@pytest.mark.parametrize("result", ["a text", None, 3, []])
def test_an_answer_that_is_none_answers_with_an_error(result):
    (answer,) = read(json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}))
    assert answer["id"] == 7
    assert "not a JSON-RPC response" in answer["error"]["message"]


def test_an_answer_over_the_limit_answers_with_an_error():
    (answer,) = read('{"jsonrpc": "2.0", "id": 7, "result": {"content": [', cut=True)
    assert answer["id"] == 7
    assert "longer than 32 MiB" in answer["error"]["message"]


def test_an_over_long_line_whose_id_is_not_at_its_beginning_is_passed_over():
    assert read('{"jsonrpc": "2.0", "result": {"id": 7, "content": [', cut=True) == []


def test_notifications_that_change_nothing_are_passed_over():
    assert read('{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}') == []
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert read(json.dumps(changed)) == [changed]


def test_requests_of_the_server_are_read():
    ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
    assert read(json.dumps(ping)) == [ping]
