"""What holds for every history in every dialect and profile: what is rendered is taken by the server it is for."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol.codec import dumps, loads
from quiesce.protocol.dialects import DIALECTS, PROFILES, dialect_of
from quiesce.protocol.dialects.profile import MediaLimits
from quiesce.protocol.events import (
    AssistantMessage,
    ErrorInfo,
    ModelMessage,
    ToolCallBlock,
    ToolMessage,
    ToolResult,
    UserMessage,
    draft,
)
from quiesce.protocol.history import History, history_of, sendable

EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
SMALL = {
    name: evolve(
        profile, max_text=60 if profile.text_parts else None, max_media=MediaLimits(image=30, document=40, audio=8)
    )
    for name, profile in PROFILES.items()
}
"""The profiles with limits that the lists which are tried here exceed."""
FEW = settings(max_examples=25)  # for each of the profiles
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


def refused(sent, profile):
    return [str(problem) for problem in dialect_of(profile).problems(sent, profile)]


def render(messages, profile):
    return dialect_of(profile).render(messages, profile)


def permissive(dialect):
    return PROFILES[f"any-{dialect}"]


# --- no problems -------------------------------------------------------------------------------------------------


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_g9_any_list_of_messages_is_rendered_so_that_it_is_taken(data, profile, histories):
    messages = data.draw(histories.messages)
    assert refused(render(messages, profile), profile) == []


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_g9_any_list_is_rendered_so_that_it_can_be_written_as_json(data, profile, histories):
    json.dumps(render(data.draw(histories.messages), profile), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("profile", SMALL.values(), ids=SMALL.keys())
@FEW
@given(data=st.data())
def test_g9_what_exceeds_the_limits_of_a_server_is_rendered_so_that_it_is_taken(data, profile, histories):
    own = data.draw(histories.foreign[profile.dialect].map(lambda given: dialect_of(profile).read(given, profile)))
    for messages in (own, data.draw(histories.messages)):
        assert refused(render(messages, profile), profile) == []


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_g9_any_log_that_the_rules_admit_is_rendered_so_that_it_is_taken(data, profile, logs):
    messages = sendable(history_of(data.draw(logs.admitted())).entries())
    assert refused(render(messages, profile), profile) == []


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_g9_any_foreign_list_is_read_and_rendered_so_that_it_is_taken(data, profile, histories):
    """Read as that server's own half of the time: then more is given back as it was."""
    others = [other for other in PROFILES.values() if other.dialect == profile.dialect]
    source = data.draw(st.just(profile) | st.sampled_from(others))
    messages = dialect_of(source).read(data.draw(histories.foreign[source.dialect]), source)
    assert refused(render(messages, profile), profile) == []


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_g9_what_another_dialect_sent_is_taken_in_this_one(data, profile, histories):
    source = data.draw(st.sampled_from(list(PROFILES.values())))
    messages = dialect_of(source).read(data.draw(histories.foreign[source.dialect]), source)
    assert refused(render(messages, profile), profile) == []


# --- nothing changes ---------------------------------------------------------------------------------------------


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_what_was_rendered_is_rendered_the_same_when_it_is_read(data, profile, histories):
    sent = render(data.draw(histories.messages), profile)
    again = render(dialect_of(profile).read(sent, profile), profile)
    assert json.dumps(again) == json.dumps(sent)


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_what_was_made_of_a_foreign_list_stays_as_it_is(data, profile, histories):
    dialect = dialect_of(profile)
    sent = render(dialect.read(data.draw(histories.foreign[profile.dialect]), profile), profile)
    assert json.dumps(render(dialect.read(sent, profile), profile)) == json.dumps(sent)


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_a_history_is_rendered_the_same_each_time(data, profile, histories):
    messages = data.draw(histories.messages)
    assert json.dumps(render(messages, profile)) == json.dumps(render(messages, profile))


@EVERY_DIALECT
@given(data=st.data())
def test_a_valid_list_comes_back_byte_for_byte(data, dialect, histories):
    given_list, profile = data.draw(histories.valid[dialect]), permissive(dialect)
    assert refused(given_list, profile) == []
    assert json.dumps(render(DIALECTS[dialect].read(given_list, profile), profile)) == json.dumps(given_list)


@EVERY_DIALECT
@given(data=st.data())
def test_what_was_read_goes_through_the_log_and_comes_back_as_it_was(data, dialect, histories):
    profile = permissive(dialect)
    messages = DIALECTS[dialect].read(data.draw(histories.foreign[dialect] | histories.valid[dialect]), profile)
    events = [draft(body(message)).at(seq, 0) for seq, message in enumerate(messages)]
    assert [loads(dumps(event)) for event in events] == events


def body(message):
    match message:
        case UserMessage():
            return message
        case ModelMessage():
            return AssistantMessage(1, 1, message)
        case ToolMessage():
            return ToolResult(1, 1, message, ErrorInfo("Error", "TOOL_ERROR") if message.is_error else None)


# --- append-only -------------------------------------------------------------------------------------------------


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_what_was_sent_is_a_prefix_of_what_is_sent_next(data, profile, logs, histories):
    """At each point at which a request can be made: no call is open, and input or results are last."""
    renderer, history, before = dialect_of(profile).Renderer(profile), History(), []
    for event in logs.read(data.draw(logs.walks())):
        history.observe(event)
        messages = sendable(history.entries(), in_order=history.in_order)
        if not messages or isinstance(messages[-1], ModelMessage) or not history.in_order:
            continue
        sent = renderer.render(messages)
        assert sent == render(messages, profile)
        assert is_prefix(before, histories.flat(sent))
        before = histories.flat(sent)


def is_prefix(before, after):
    return after[: len(before)] == before


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_rendering_what_is_new_equals_rendering_all(data, profile, histories):
    messages = data.draw(histories.messages)
    renderer = dialect_of(profile).Renderer(profile)
    for end in sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=4))):
        assert renderer.render(messages[:end]) == render(messages[:end], profile)
    assert renderer.render(messages) == render(messages, profile)


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_what_was_handed_out_is_never_changed(data, profile, histories):
    messages = data.draw(histories.messages)
    renderer = dialect_of(profile).Renderer(profile)
    first = renderer.render(messages[: len(messages) // 2])
    before = json.dumps(first)
    renderer.render(messages)
    assert json.dumps(first) == before


# --- labels ------------------------------------------------------------------------------------------------------


@EVERY_PROFILE
@FEW
@given(data=st.data())
def test_each_result_goes_to_its_own_call_whatever_the_labels_are(data, profile, histories):
    """Every call has a result with a text of its own, right behind it. Only the labels are anything."""
    rounds = data.draw(st.lists(st.lists(histories.word(histories.LABELS), min_size=1, max_size=4), max_size=4))
    messages = [UserMessage((), {}, "user", "u")]
    for number, labels in enumerate(rounds):
        calls = [ToolCallBlock(label, f"tool_{number}_{index}", "{}") for index, label in enumerate(labels)]
        messages.append(ModelMessage("assistant", tuple(calls), {}, "m"))
        for index, label in enumerate(labels):
            content = (histories.TextBlock(f"result_{number}_{index}"),)
            messages.append(ToolMessage("tool", label, content, is_error=False, id="t"))
    read = dialect_of(profile).read(render(messages, profile), profile)
    names = {call.id: call.name for message in read if isinstance(message, ModelMessage) for call in message.calls}
    got = [(names[item.tool_call_id], item.content[0].text) for item in read if isinstance(item, ToolMessage)]
    wanted = [(number, index) for number, labels in enumerate(rounds) for index in range(len(labels))]
    assert got == [(f"tool_{number}_{index}", f"result_{number}_{index}") for number, index in wanted] or (
        not profile.unique_call_ids
    )


@EVERY_PROFILE
def test_what_a_model_attached_goes_to_that_model_alone(profile, histories):
    seal = {
        "chat": None,
        "anthropic": {"type": "thinking", "thinking": "t", "signature": "SEAL"},
        "responses": {"type": "reasoning", "id": "SEAL", "summary": []},
    }[profile.dialect]
    asked = evolve(profile, model="m1")
    source = {"kind": "model", "provider": profile.provider, "model": "m1"}
    call = ToolCallBlock("aaaaaaaaa", "read", "{}", replay={"signature": "SEAL"})
    blocks = (*([histories.ReasoningBlock("t", replay=seal)] if seal else []), call)
    messages = [histories.UserMessage((), {}, "user", "u"), ModelMessage("assistant", blocks, source, "m")]
    assert json.dumps(render(messages, asked)).count("SEAL") == (2 if seal else 1)
    for other in (evolve(asked, model="m2"), evolve(asked, provider="other"), profile):
        assert "SEAL" not in json.dumps(render(messages, other))
