"""What a provider says went wrong, as one error with the facts."""

from __future__ import annotations

import pytest

from quiesce.protocol.dialects.faults import (
    Circumstances,
    model_error,
    position_in,
    retry_after,
    standing_at,
    with_facts,
)
from quiesce.protocol.errors import ModelError


def told(error, status=None, headers=None, **more):
    secrets = more.pop("secrets", ())
    return model_error(error, Circumstances(status, headers or {}, 0.0, secrets), **more)


# --- the error object --------------------------------------------------------------------------------------------

FORMS = {
    "openai": {"error": {"message": "Words.", "type": "invalid_request_error", "param": None, "code": "bad_thing"}},
    "openai unwrapped": {"message": "Words.", "type": "invalid_request_error", "code": "bad_thing"},
    "no code": {"error": {"message": "Words.", "type": "bad_thing", "code": None}},
    "anthropic": {"type": "error", "error": {"type": "bad_thing", "message": "Words."}},
    "mistral": {"object": "error", "message": "Words.", "type": "bad_thing", "code": "bad_thing"},
    "number as code": {"error": {"message": "Words.", "type": "bad_thing", "code": 400}},
    "text in error": {"error": "Words.", "type": "bad_thing"},
}


@pytest.mark.parametrize("error", FORMS.values(), ids=FORMS.keys())
def test_code_and_words_are_found_wherever_a_provider_puts_them(error):
    found = told(error, 400)
    assert (found.code, found.status, found.transient) == ("bad_thing", 400, False)
    assert str(found) == "HTTP 400 bad_thing: Words."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("<html>Bad\n Gateway</html>", "HTTP 502: <html>Bad Gateway</html>"),
        (None, "HTTP 502"),
        ({}, "HTTP 502"),
        ([1], "HTTP 502: 1"),
        ({"error": 5}, "HTTP 502: 5"),
    ],
)
def test_what_is_no_error_object_is_told_as_it_is(error, words):
    found = told(error, 502)
    assert (str(found), found.code, found.transient) == (words, "HTTP_502", True)


def test_long_words_are_shortened():
    assert len(str(told("x" * 100_000, 500))) < 700


# --- whether another try may help --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_these_statuses_are_transient(status):
    assert told("Words.", status).transient


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
def test_these_statuses_are_not(status):
    assert not told("Words.", status).transient


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        ("overloaded_error", True),
        ("rate_limit_exceeded", True),
        ("server_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
        ("anything", False),
    ],
)
def test_without_a_status_the_code_decides(code, transient):
    assert told({"code": code, "message": "Words."}).transient is transient


def test_a_spent_quota_is_not_transient_though_it_is_a_429():
    assert not told({"code": "insufficient_quota", "type": "insufficient_quota"}, 429).transient


@pytest.mark.parametrize(("word", "transient"), [("true", True), ("false", False), ("True", True), ("x", None)])
def test_the_provider_has_the_last_word(word, transient):
    spent = {"code": "insufficient_quota", "message": "Words."}
    assert told("Words.", 500, {"x-should-retry": word}).transient is (transient is not False)
    assert told(spent, 429, {"x-should-retry": word}).transient is (transient is True)
    assert told("Words.", None, {"x-should-retry": word}).transient is (transient is True)


@pytest.mark.parametrize("status", [status for status in range(400, 500) if status not in (408, 409, 429)])
def test_a_request_that_is_wrong_is_not_tried_again_whatever_the_provider_says(status):
    assert not told("Words.", status, {"x-should-retry": "true"}).transient


# --- when --------------------------------------------------------------------------------------------------------

NOON = 1_445_412_480.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:27:00 GMT"}, None),
    ],
)
def test_the_wait_comes_in_seconds_milliseconds_or_as_a_date(headers, seconds):
    assert retry_after(headers, NOON) == seconds


def test_request_id_and_wait_are_facts_of_the_error_and_stand_in_its_text():
    found = told("Busy.", 429, {"x-request-id": "req_1", "retry-after": "2"})
    assert (found.request_id, found.retry_after) == ("req_1", 2.0)
    assert str(found) == "HTTP 429: Busy. (request id req_1, retry after 2 s)"


# --- where -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("messages.3.content.0.text: text content blocks must be non-empty", "messages[3].content[0].text"),
        ("messages.1: `tool_use` ids were found without `tool_result` blocks", "messages[1]"),
        ("Invalid type for 'messages[3].content'", "messages[3].content"),
        ("Invalid 'messages.[2].tool_calls[0].id': too long", "messages[2].tool_calls[0].id"),
        ("Invalid 'input[2].call_id': empty", "input[2].call_id"),
        ("tools.0.custom.name: String should match pattern", "tools[0].custom.name"),
        ("the messages are too long", None),
        ("", None),
    ],
)
def test_the_place_is_written_in_one_way(text, position):
    assert position_in(text) == position


@pytest.mark.parametrize(
    ("error", "position"),
    [
        ({"message": "Invalid.", "param": "messages.[3].content"}, "messages[3].content"),
        ({"message": "Invalid.", "param": "temperature"}, "temperature"),
        ({"detail": [{"loc": ["body", "messages", 3, "content"], "msg": "field required"}]}, "messages[3].content"),
        ({"message": {"detail": [{"loc": ["body", "tools", 0], "msg": "Extra"}]}}, "tools[0]"),
        ({"type": "error", "error": {"type": "x", "message": "messages.0: no"}}, "messages[0]"),
        ({"message": "no place"}, None),
    ],
)
def test_the_place_is_found_in_the_error(error, position):
    assert told(error, 400).position == position


BODY = {
    "messages": [
        {"role": "user", "content": "my password is hunter2"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "hunter2"}]},
    ]
}


@pytest.mark.parametrize(
    ("position", "words"),
    [
        ("messages[0].content", "role user"),
        ("messages[1].tool_calls[0].function.name", "role assistant; type function, id c1; name read"),
        ("messages[2].content[0].tool_result.content", "role user; type tool_result, tool_use_id c1"),
        ("messages[9]", ""),
        ("nothing.there", ""),
    ],
)
def test_what_stands_there_is_told_by_its_labels_and_never_quoted(position, words):
    assert standing_at(BODY, position) == words


def test_a_refused_place_is_named_in_the_text():
    found = told({"message": "messages.2.content.0: bad"}, 400, body=BODY)
    assert str(found) == (
        "HTTP 400 at messages[2].content[0] (role user; type tool_result, tool_use_id c1): messages.2.content.0: bad"
    )


# --- secrets -----------------------------------------------------------------------------------------------------


def test_a_key_is_blotted_out_wherever_it_stands():
    error = {"message": "Incorrect key my-own-key-1.", "code": "my-own-key-1"}
    found = told(error, 401, {"x-request-id": "my-own-key-1"}, secrets=("my-own-key-1",))
    assert "my-own-key-1" not in f"{found} {found.code} {found.request_id}"


KEYS = [
    *("sk-abcdefgh12345678", "sk-ant-api03-abcdefgh", "sk-proj-abc***xyz0", "gsk_abcdefghijkl", "xai-abcdefghijkl"),
    *("AIzaSyA-1234567890abcdefghijklmnopqrstu", "AIza-12345678", "ya29.a0AfH6SMBabcdefgh"),
    *("hf_abcdefghijklmnopqrstuvwxyzABCDEF", "r8_abcdefghijklmno", "nvapi-abcdefghijkl", "pplx-abcdefghijkl"),
    *("AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"),
    *("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "github_pat_11ABCDEFG_abcdefgh", "glpat-abcdefghijkl"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
]
BEARERS = ["Bearer ", "bearer ", "BEARER ", "authorization: bearer ", "bearer=", "Authorization=Bearer%20"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "'{}'", "key={}", '{{"key":"{}"}}', "({})", "{}.", "https://x/?key={}&a=b"])
def test_what_looks_like_a_key_is_blotted_out_too(key, around):
    found = told({"message": f"Incorrect: {around.format(key)} Get one.", "code": key, "param": f"x.{key}"}, 401)
    for text in (str(found), found.code, found.position):
        assert key not in text
        assert key[-6:] not in text
    assert "Get one." in str(found)


@pytest.mark.parametrize("before", BEARERS)
@pytest.mark.parametrize("token", ["abc.def", "abcdefghijkl", "YWJj+/=="])
def test_what_a_bearer_has_is_blotted_out_in_any_spelling(before, token):
    assert token not in str(told(f"The header '{before}{token}' is wrong.", 401))


@pytest.mark.parametrize("words", ["task-force", "a_sk_b", "risk-based", "hf_x", "AKIA", "eyJ", "forbearer", "Bearer."])
def test_other_words_stay(words):
    assert str(told(f"It is {words} here.", 400)) == f"HTTP 400: It is {words} here."


def test_an_error_from_inside_a_reply_gets_the_facts_of_its_response():
    inside = ModelError("It broke: key-12345678.", code="X", transient=True, position="input[1]")
    found = with_facts(inside, Circumstances(None, {"request-id": "req_1"}, secrets=("key-12345678",)))
    assert str(found) == "It broke: ***. (request id req_1)"
    assert (found.code, found.transient, found.position, found.request_id) == ("X", True, "input[1]", "req_1")
    assert str(with_facts(found, Circumstances(None, {"request-id": "req_2"}))) == str(found)


KEY = "secret-of-mine-0123456789"


def test_a_key_is_blotted_before_a_long_message_is_cut():
    error = told({"message": "x" * 590 + KEY}, 401, secrets=(KEY,))
    assert KEY[:8] not in str(error)


def test_no_key_is_in_the_position():
    error = told({"message": "x", "param": f"messages.0.{KEY}"}, 400, secrets=(KEY,))
    assert error.position == "messages[0].***"


def test_no_key_is_in_any_fact_of_an_error_inside_a_reply():
    inside = ModelError("x", code=KEY, request_id=KEY, position=KEY)
    error = with_facts(inside, Circumstances(secrets=(KEY,)))
    assert KEY not in str(vars(error))
