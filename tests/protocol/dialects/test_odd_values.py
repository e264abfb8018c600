"""Whatever stands in any place of a request, it is checked, read and rendered, and nothing raises."""

from __future__ import annotations

import copy

import pytest

from quiesce.protocol.dialects import PROFILES, dialect_of

ODD = [None, "", "x", 5, -1.5, True, [], ["x"], [[]], {}, {"type": ["x"]}, {"x": {}}]
SAMPLES = {
    "chat": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {
            "role": "assistant",
            "content": "b",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "s"}]},
    ],
    "responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "s"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "r"}],
                    "is_error": True,
                }
            ],
        },
    ],
}


KINDS = {
    "chat": {
        "role": ["user", "assistant", "system", "developer", "tool", "function"],
        "type": ["text", "refusal", "image_url", "input_audio", "file", "function", "custom"],
    },
    "responses": {
        "role": ["user", "assistant", "system", "developer"],
        "type": [
            "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
            "custom_tool_call_output", "computer_call", "computer_call_output", "web_search_call", "item_reference",
            "input_text", "output_text", "refusal", "input_image", "input_file", "summary_text", "reasoning_text",
        ],
    },
    "anthropic": {
        "role": ["user", "assistant", "system"],
        "type": [
            "text", "image", "document", "search_result", "tool_use", "tool_result", "thinking", "redacted_thinking",
            "server_tool_use", "mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "container_upload",
        ],
    },
}  # fmt: skip
"""Dialect -> what there is of each of these keys."""
FIELDS = {
    "chat": {
        "content": "x",
        "tool_calls": [{"id": "c9", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        "tool_call_id": "c1",
        "function_call": {"name": "f", "arguments": "{}"},
        "reasoning_content": "t",
        "refusal": "no",
        "audio": {"id": "a1"},
        "name": "bob",
        "text": "x",
    },
    "responses": {
        "content": "x",
        "output": "x",
        "summary": [],
        "call_id": "c1",
        "name": "f",
        "arguments": "{}",
        "input": "x",
        "id": "i1",
        "text": "x",
        "refusal": "no",
    },
    "anthropic": {
        "content": "x",
        "text": "x",
        "id": "c9",
        "name": "f",
        "input": {},
        "tool_use_id": "c1",
        "thinking": "t",
        "signature": "s",
        "data": "d",
        "source": "x",
        "title": "x",
        "is_error": True,
    },
}
"""Dialect -> keys of its objects, with a value that each may have in some of them."""


def paths(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def replaced(messages, path, odd):
    changed = copy.deepcopy(messages)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = odd
    return changed


def altered(dialect):
    """The sample of a dialect with every odd value in every place of it."""
    return [replaced(SAMPLES[dialect], path, odd) for path in paths(SAMPLES[dialect]) for odd in ODD]


def confused(dialect):
    """The sample of a dialect, where an object has a key of another kind of object, or says that it is of that kind."""
    kinds, sample = KINDS[dialect], SAMPLES[dialect]
    entries = [(key, value) for key, values in kinds.items() for value in values]
    for path in paths(sample):
        if path[-1] in kinds:
            yield from (replaced(sample, path, value) for value in kinds[path[-1]])
        found = sample
        for step in path:
            found = found[step]
        if isinstance(found, dict):
            new = [(key, value) for key, value in [*entries, *FIELDS[dialect].items()] if key not in found]
            yield from (replaced(sample, (*path, key), value) for key, value in new)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_no_value_in_any_place_is_too_odd_to_be_checked(profile):
    dialect = dialect_of(profile)
    for messages in altered(profile.dialect):
        assert isinstance(dialect.problems(messages, profile), list)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_g9_whatever_value_stands_in_any_place_what_is_rendered_is_taken_and_stays_as_it_is(profile):
    dialect = dialect_of(profile)
    for messages in [*altered(profile.dialect), *confused(profile.dialect)]:
        if not all(isinstance(message, dict) for message in messages):
            continue  # that is refused with its place
        sent = dialect.render(dialect.read(messages, profile), profile)
        assert dialect.problems(sent, profile) == [], messages
        assert dialect.render(dialect.read(sent, profile), profile) == sent, messages


@pytest.mark.parametrize("aside", [{"refusal": "no"}, {"audio": {"id": "a1"}}])
@pytest.mark.parametrize("content", ["b", [{"type": "text", "text": "b"}]])
def test_what_an_answer_says_is_kept_whatever_stands_beside_it(content, aside):
    profile = PROFILES["openai"]
    said = {"role": "assistant", "content": content, **aside}
    messages = [{"role": "user", "content": "a"}, said]
    assert dialect_of(profile).render(dialect_of(profile).read(messages, profile), profile) == messages
