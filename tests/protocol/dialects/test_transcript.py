"""Transcripts: what is read, which dialect it is taken for, what is refused, and how it is written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects.transcript import load_transcript
from quiesce.protocol.errors import InvalidInput

CASES = Path(__file__).parents[2] / "cases"
FILES = sorted(path for kind in ("chat", "responses", "anthropic") for path in CASES.glob(f"*.{kind}.json"))

GO = {"role": "user", "content": "go"}
OK = {"role": "assistant", "content": "ok"}


def dialect(*messages, **body):
    return load_transcript(json.dumps({"messages": messages, **body} if body else messages)).dialect


def refusal(text, **options):
    with pytest.raises(InvalidInput) as caught:
        load_transcript(text, **options)
    return str(caught.value)


# --- which dialect -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_dialect_of_each_case_is_detected(path):
    assert load_transcript(path.read_bytes()).dialect == path.name.split(".")[-2]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "chat"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "chat"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "chat"),
        ({"role": "system", "content": "x"}, "chat"),
        ({"role": "developer", "content": "x"}, "chat"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "responses"),
        ({"type": "message", "role": "user", "content": "x"}, "responses"),
        ({"type": "reasoning", "summary": []}, "responses"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": ""}]}, "anthropic"),
    ],
)
def test_one_feature_is_enough(message, expected):
    assert dialect(GO, message) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"system": "You are."}, "anthropic"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "anthropic"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "chat"),
        ({"response_format": {}}, "chat"),
        ({"model": "m"}, "chat"),
    ],
)
def test_what_stands_around_the_list_tells_as_well(body, expected):
    assert dialect(GO, **body) == expected


def test_a_request_with_input_is_responses():
    transcript = load_transcript('{"model": "m", "input": [{"role": "user", "content": "go"}]}')
    assert (transcript.dialect, transcript.list_name, transcript.messages) == ("responses", "input", [GO])


def test_input_that_is_a_text_is_one_message():
    text = '{"input": "go"}'
    transcript = load_transcript(text)
    assert transcript.messages == [GO]
    assert transcript.dump() == text
    assert json.loads(transcript.with_messages([*transcript.messages, OK]).dump()) == {"input": [GO, OK]}


def test_it_says_why():
    assert load_transcript(json.dumps([GO, {**OK, "tool_calls": []}])).reason == "messages[1] has 'tool_calls'"
    assert load_transcript('{"system": "s", "messages": []}', None).reason == "the request has 'system'"


def test_plain_messages_are_chat_and_it_says_so():
    transcript = load_transcript(json.dumps([GO, OK]))
    assert transcript.dialect == "chat"
    assert transcript.reason == "nothing tells Chat from Anthropic here, and plain messages are the same in both"


def test_mixed_features_go_with_the_most():
    tool = {"role": "tool", "tool_call_id": "c", "content": "x"}
    transcript = load_transcript(json.dumps([{"role": "user", "content": [{"type": "document"}]}, tool]))
    assert transcript.dialect == "chat"
    assert "not all" in transcript.reason


def test_who_is_told_does_not_guess():
    transcript = load_transcript(json.dumps([GO, OK]), "anthropic")
    assert (transcript.dialect, transcript.reason) == ("anthropic", "as was said")


# --- forms -------------------------------------------------------------------------------------------------------


def test_json_lines_end_at_lf_only():
    lines = ['{"role":"user","content":"a\u2028b\u0085c"}', '{"role":"assistant","content":"ok"}']
    transcript = load_transcript("\n".join(lines).encode())
    assert [message["content"] for message in transcript.messages] == ["a\u2028b\u0085c", "ok"]


def test_blank_lines_are_passed_over():
    assert len(load_transcript('{"role":"user","content":"a"}\n\n \n{"role":"user","content":"b"}\n').messages) == 2


def test_one_line_is_a_transcript_too():
    assert load_transcript('{"role":"user","content":"a"}\n').messages == [{"role": "user", "content": "a"}]


def test_the_body_is_given_back():
    transcript = load_transcript(json.dumps({"model": "m", "messages": [GO], "x": 1}))
    assert transcript.body == {"model": "m", "messages": [GO], "x": 1}
    assert load_transcript(json.dumps([GO])).body is None


@pytest.mark.parametrize(
    ("body", "continues"), [({"previous_response_id": "r"}, True), ({"previous_response_id": None}, False)]
)
def test_it_knows_whether_the_server_holds_what_came_before(body, continues):
    assert load_transcript(json.dumps({"input": [GO], **body})).continues is continues


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "there is nothing in it"),
        (b" \n", "there is nothing in it"),
        (b"no json", "line 1: not JSON: Expecting value, column 1"),
        (b'[\n {"role": "user"},\n {"role" "user"}\n]', "line 3: not JSON: Expecting ':' delimiter, column 10"),
        (b'{"role":"user","content":"a"}\n{"role":"user"', "line 2: not JSON: Expecting ',' delimiter, column 15"),
        (b'{\n "messages": [\n  {"role" "user"}\n ]\n}', "line 3: not JSON: Expecting ':' delimiter, column 11"),
        (b'{"role":"user","content":NaN}', "NaN is not JSON"),
        (b'{"role":"user","content":"a"}\n\n{"x":1e999}', "line 3: the number 1e999 is out of range"),
        (b'{"role":"user","content":' + b"9" * 5000 + b"}", "conversion: value has 5000 digits"),
        (b'[\n{"role":"user","content":"\xff"}]', "line 2: not UTF-8: invalid start byte at byte 28"),
        (b"\xef\xbb\xbf[]", "it starts with a byte order mark; a transcript is UTF-8 without one"),
        (b"3", "a number, and neither a list of messages nor a request"),
        (b'{"model": "m"}', "an object without messages or input is no request"),
        (b'{"messages": {}}', "messages: this must be a list"),
        (b'{"messages": [1]}', "messages[0]: a message is an object, not 1"),
        (b'{"role":"user","content":"a"}\n"x"\n', 'line 2: a message is an object, not "x"'),
        (b'{"messages":[]}\n{"messages":[]}\n', "line 1: a request among messages; give one transcript at a time"),
        (
            b'[{"role":"user","content":[{"toolUse":{}}]}]',
            "messages[0]: has 'toolUse', as in Bedrock Converse, which is not read",
        ),
        (
            b'{"role":"user","parts":[]}\n',
            "line 1: has 'parts', as in Gemini's generateContent, which is not read",
        ),
        (b"[]", "there is no message in it, of OpenAI Chat Completions or OpenAI Responses or Anthropic Messages"),
        (b'[{"type":"image"}]', "there is no message in it, of OpenAI Chat Completions or OpenAI Responses or "),
        (b'{"type":"session","id":"s"}\n{"type":"x"}\n', "line 1: the header of a session log, which is no transcript"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_transcript_is_refused_with_its_place(data, words):
    assert words in refusal(data)


def test_an_unknown_format_is_refused():
    assert refusal("[]", format="gemini") == "format: 'gemini' is none of chat, responses, anthropic"


def test_a_format_that_is_told_admits_an_empty_list():
    assert load_transcript("[]", "chat").messages == []


# --- writing it again --------------------------------------------------------------------------------------------

TEXTS = [
    '[{"role":"user","content":"a"}]',
    ' [ {"role": "user", "content": "a", "x": 1.00, "x": 1e2} ,\n {"role": "user", "content": "\\u00e4"} ] \n',
    json.dumps([GO, OK], indent=2) + "\n",
    json.dumps({"model": "m", "messages": [GO, OK], "stop": None}, indent="\t"),
    '{"messages": 1, "input": [], "messages": [{"role": "user", "content": "a"}]}',
    '{"role":"user","content":"a"}\r\n\r\n{"role":"user","content":"b"}',
    '{"input": "go"}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_not_changed_is_written_as_it_was_read(text):
    transcript = load_transcript(text)
    assert transcript.dump() == text
    assert transcript.with_messages(list(transcript.messages)).dump() == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_new_message_is_written_in_the_style_of_the_file(path):
    transcript = load_transcript(path.read_bytes())
    copies = [json.loads(json.dumps(message)) for message in transcript.messages]
    assert transcript.with_messages(copies).dump() == path.read_text()


@pytest.mark.parametrize("text", TEXTS[:5])
def test_messages_that_stay_keep_their_text(text):
    transcript = load_transcript(text)
    written = transcript.with_messages([*transcript.messages, OK]).dump()
    kept = text[: text.rindex("}", 0, text.rindex("]")) + 1]
    assert written.startswith(kept)
    again = load_transcript(written)
    assert again.messages == [*transcript.messages, OK]


def test_new_lines_follow_the_others():
    text = '{"role":"user","content":"\u00e4"}\n'
    transcript = load_transcript(text)
    added = {"role": "user", "content": "\u00f6\n"}
    assert transcript.with_messages([*transcript.messages, added]).dump() == (
        text + '{"role":"user","content":"\u00f6\\n"}\n'
    )


def test_the_whole_body_stays_around_the_list():
    transcript = load_transcript('{"model": "m", "messages": [{"role": "user", "content": "a"}], "n": 1.50}')
    assert transcript.with_messages([]).dump() == '{"model": "m", "messages": [], "n": 1.50}'


def test_text_that_cannot_be_encoded_is_escaped():
    transcript = load_transcript('{"role":"user","content":"\u00e4"}')
    written = transcript.with_messages([{"role": "user", "content": "\ud800\u00e4"}]).dump()
    assert written.encode() == '{"role":"user","content":"\\ud800\u00e4"}'.encode()


def test_what_is_no_json_is_refused_when_it_is_written():
    with pytest.raises(InvalidInput, match="a message is no JSON"):
        load_transcript("[]", "chat").with_messages([{"x": float("nan")}]).dump()


MESSAGES = st.lists(
    st.dictionaries(
        st.text(st.characters(), max_size=3), st.text(st.characters()) | st.integers() | st.none(), max_size=3
    ),
    max_size=4,
)


@given(MESSAGES, MESSAGES, st.sampled_from([None, 1, 4, "\t"]), st.booleans())
def test_any_list_is_written_so_that_it_is_read_again(messages, more, indent, ascii_only):
    text = json.dumps({"a": 1, "messages": messages}, indent=indent, ensure_ascii=ascii_only)
    transcript = load_transcript(text.encode("utf-8", "replace") if ascii_only else text, "chat")
    written = transcript.with_messages([*more, *transcript.messages]).dump()
    assert json.loads(written) == {"a": 1, "messages": [*more, *messages]}
