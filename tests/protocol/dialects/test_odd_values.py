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


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_no_value_in_any_place_is_too_odd_to_be_checked(profile):
    dialect = dialect_of(profile)
    for messages in altered(profile.dialect):
        assert isinstance(dialect.problems(messages, profile), list)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_g9_whatever_value_stands_in_any_place_what_is_rendered_is_taken_and_stays_as_it_is(profile):
    dialect = dialect_of(profile)
    for messages in altered(profile.dialect):
        if not all(isinstance(message, dict) for message in messages):
            continue  # that is refused with its place
        sent = dialect.render(dialect.read(messages, profile), profile)
        assert dialect.problems(sent, profile) == [], messages
        assert dialect.render(dialect.read(sent, profile), profile) == sent, messages
