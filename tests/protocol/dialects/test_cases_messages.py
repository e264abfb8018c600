"""Cases from public bug reports that are message lists: what each becomes when it is read and rendered.

The lists are given in short notation where the whole would only repeat the input: `shown` says a message in a line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from quiesce.protocol.dialects import DIALECTS, PROFILES
from quiesce.protocol.dialects.labels import CallIds, wire_name
from quiesce.protocol.dialects.profile import BEDROCK_CALL_ID
from quiesce.protocol.events import ToolCallBlock
from quiesce.protocol.model import ToolSpec

CASES = Path(__file__).parents[2] / "cases"
USUAL = {"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic"}
UNKNOWN = (
    "No result of this call was recorded. Its outcome is unknown: it may have taken effect. Check before repeating it."
)


def load(name):
    return json.loads((CASES / f"{name}.json").read_text())


def repaired(name, profile=None):
    """The list of the case as it is sent after it was read; the checker has nothing to say about it."""
    dialect = name.rpartition(".")[2]
    server = PROFILES[profile or USUAL[dialect]]
    sent = DIALECTS[dialect].render(DIALECTS[dialect].read(load(name), server), server)
    assert DIALECTS[dialect].problems(sent, server) == []
    return sent


def shown(sent):
    return [line for message in sent for line in _lines(message)]


def _lines(message):
    kind, content = message.get("type"), message.get("content")
    if kind == "function_call":
        return [f"call {message['call_id']}"]
    if kind == "function_call_output":
        return [f"result {message['call_id']}: {message['output']}"]
    if message["role"] == "tool":
        return [f"result {message['tool_call_id']}: {content}"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    calls = [f"call {call['id']}" for call in message.get("tool_calls", [])]
    return [message["role"], *map(_block, blocks), *calls]


def _block(block):
    match block["type"]:
        case "tool_use":
            return f"call {block['id']}"
        case "tool_result":
            failed = " failed" if block.get("is_error") else ""
            return f"result {block['tool_use_id']}{failed}: {block['content']}"
        case "thinking":
            return f"thinking {block['signature']}"
        case _:
            return block["text"]


def problems(name):
    dialect = name.rpartition(".")[2]
    return DIALECTS[dialect].problems(load(name), PROFILES[USUAL[dialect]])


INDEX = [entry for entry in json.loads((CASES / "index.json").read_text()) if entry["format"] in DIALECTS]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_every_case_can_be_sent_to_every_server_of_every_dialect(entry, profile):
    source = PROFILES[USUAL[entry["format"]]]
    messages = DIALECTS[entry["format"]].read(load(entry["file"].removesuffix(".json")), source)
    dialect = DIALECTS[profile.dialect]
    assert dialect.problems(dialect.render(messages, profile), profile) == []


# --- calls without results ---------------------------------------------------------------------------------------


def test_b02_a_call_without_output_gets_one_before_the_next_input():
    assert shown(repaired("B02-no-output.responses")) == [
        *("user", "list open items", "call call_c1", f"result call_c1: {UNKNOWN}", "user", "no, try again read-only"),
    ]


def test_b04_a_call_at_the_end_gets_a_result():
    assert shown(repaired("B04-tail.anthropic")) == [
        *("user", "weather?", "assistant", "call t1", "user", f"result t1 failed: {UNKNOWN}"),
    ]


def test_b04_a_call_in_the_middle_gets_its_result_first_in_the_next_user_message():
    assert shown(repaired("B04-middle.anthropic")) == [
        *("user", "weather?", "assistant", "call t1", "user", f"result t1 failed: {UNKNOWN}", "weather please"),
        *("assistant", "Sorry, I was cut off.", "user", "again"),
    ]


def test_b04_a_result_of_no_call_is_left_out_and_the_call_gets_its_own():
    assert shown(repaired("B04-disjoint.anthropic")) == [
        *("user", "go", "assistant", "call tA", "user", f"result tA failed: {UNKNOWN}"),
        *("assistant", "ok", "user", "next"),
    ]


def test_b12_what_was_sent_without_results_gets_them_in_call_order():
    assert shown(repaired("B12-as-sent-by-bug.anthropic")) == [
        *("user", "read both", "assistant", "call r1", "call r2", "user"),
        *(f"result r1 failed: {UNKNOWN}", f"result r2 failed: {UNKNOWN}", "what happened?"),
    ]


def test_b64_a_call_that_runs_while_input_comes_is_answered_first():
    assert shown(repaired("B64-overlap.responses")) == [
        *("user", "a", "call c1", f"result c1: {UNKNOWN}", "user", "b"),
    ]


# --- results out of place ----------------------------------------------------------------------------------------


def test_b10_two_user_messages_become_one_with_the_result_first():
    assert shown(repaired("B10-two-user-messages.anthropic")) == [
        *("user", "go", "assistant", "call t9", "user", "result t9 failed: interrupted", "stop, do something else"),
    ]


def test_b16_results_in_two_messages_become_one_message_in_call_order():
    sent = repaired("B16-split.anthropic")
    assert len(sent) == 3
    assert shown(sent)[-3:] == ["user", "result tA: one", "result tB: two"]


def test_b18_input_between_a_call_and_its_result_comes_behind():
    assert shown(repaired("B18-interleaved-user.chat")) == [
        *("user", "go", "assistant", "call c1", "result c1: done", "user", "also do X", "assistant", "ok"),
    ]


def test_b20_text_between_results_comes_behind_them():
    assert shown(repaired("B20-text-between.anthropic"))[-4:] == ["user", "result tA: 1", "result tB: 2", "snapshot"]


def test_b20_a_call_in_a_user_message_is_the_assistants():
    assert shown(repaired("B20-tool-use-in-user.anthropic")) == [
        *("user", "go", "assistant", "call tA", "user", "result tA: 1"),
    ]


def test_b68_a_result_far_from_its_call_is_moved_to_it_once():
    assert shown(repaired("B68-far-repair.anthropic", "any-anthropic")) == [
        *("user", "go", "assistant", "call t1", "user", "result t1 failed: interrupted", "note", "assistant", "ok"),
    ]


def test_b68_a_server_that_wants_input_last_gets_some():
    assert shown(repaired("B68-far-repair.anthropic"))[-4:] == ["assistant", "ok", "user", "Continue."]


# --- results too many --------------------------------------------------------------------------------------------


def test_b26_the_first_outcome_counts_and_the_other_call_is_unknown():
    assert shown(repaired("B26-tombstones.chat")) == [
        *("user", "go", "assistant", "call c1", "call c2", "result c1: [Cancelled]", f"result c2: {UNKNOWN}"),
        *("user", "next"),
    ]


def test_b28_a_result_whose_call_is_gone_is_left_out():
    assert repaired("B28-orphan-after-filter.anthropic") == [{"role": "user", "content": "go"}]


def test_b30_of_two_outcomes_the_first_is_sent():
    assert shown(repaired("B30-two-outcomes.chat")) == [
        *("user", "search", "assistant", "call w1", 'result w1: {"error":"invalid_input"}'),
    ]


def test_b38_an_output_without_a_call_is_left_out_and_the_user_speaks_once():
    texts = [{"type": "input_text", "text": "read"}, {"type": "input_text", "text": "well?"}]
    assert repaired("B38-orphan-output.responses") == [{"role": "user", "content": texts}]


# --- labels ------------------------------------------------------------------------------------------------------


def test_b32_one_id_for_all_calls_becomes_four_and_each_keeps_its_result():
    sent = repaired("B32-constant-id.chat")
    ids = [call["id"] for message in sent for call in message.get("tool_calls", [])]
    results = {message["tool_call_id"]: message["content"] for message in sent if message["role"] == "tool"}
    assert ids[0] == "X"
    assert [results[label] for label in ids] == ["r0", "r1", "r2", "r3"]


def test_b32_an_id_that_comes_back_is_replaced_the_second_time_at_call_and_output():
    sent = repaired("B32-recurring.responses")
    first, second = (item["call_id"] for item in sent if item.get("type") == "function_call")
    assert (first, len(second)) == ("shell:0", 9)
    outputs = {item["call_id"]: item["output"] for item in sent if item.get("type") == "function_call_output"}
    assert outputs == {"shell:0": "r1", second: "r2"}


def test_b44_an_id_in_a_foreign_alphabet_is_replaced_at_call_and_result():
    sent = repaired("B44-kimi-id.anthropic")
    label = sent[1]["content"][0]["id"]
    assert PROFILES["anthropic"].call_id.allows(label)
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": label, "content": "ok"}]


def test_b44_two_ids_that_differ_in_one_sign_stay_two():
    lines = shown(repaired("B44-collide.anthropic"))
    calls = [line.removeprefix("call ") for line in lines if line.startswith("call ")]
    assert len(set(calls)) == 2
    assert lines[-2:] == [f"result {calls[0]}: 1", f"result {calls[1]}: 2"]


def test_b46_an_id_that_is_too_long_for_bedrock_is_replaced_by_one_that_fits():
    call_id = load("B46-long.bedrock")[1]["content"][0]["toolUse"]["toolUseId"]
    bedrock = evolve(PROFILES["anthropic"], call_id=BEDROCK_CALL_ID)
    (label,) = CallIds(bedrock).batch([ToolCallBlock(call_id, "f", "{}")])
    assert len(call_id) > 64
    assert len(label) == 9
    assert BEDROCK_CALL_ID.allows(label)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_b50_three_names_become_three_valid_ones_and_calls_use_the_same(profile):
    tools = [ToolSpec(tool["function"]["name"], "", {"type": "object"}) for tool in load("B50-names.tools")]
    dialect = DIALECTS[profile.dialect]
    sent = dialect.render_tools(tools, profile)
    assert dialect.tool_problems(sent, profile) == []
    names = [tool.get("function", tool)["name"] for tool in sent]
    assert len(set(names)) == 3
    assert names == [wire_name(tool.name, profile) for tool in tools]


# --- calls and answers with something wrong in them --------------------------------------------------------------


def test_b34_no_arguments_are_an_empty_object():
    call = repaired("B34-empty.chat")[1]["tool_calls"][0]
    assert call["function"] == {"name": "set_value", "arguments": "{}"}


def test_b38_a_call_without_a_name_gets_one_and_keeps_its_result():
    sent = repaired("B38-blank-name.chat")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "unnamed_tool", "arguments": '{"f":"a.txt"}'},
    }
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "unknown tool"}


def test_b42_an_empty_list_of_calls_is_left_out():
    assert repaired("B42-empty-array.chat") == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "bye"},
    ]


def test_b48_signed_thinking_between_calls_comes_back_byte_for_byte():
    sent = repaired("B48-interleaved.anthropic")
    assert sent[1:] == load("B48-interleaved.anthropic")[1:]
    assert json.dumps(repaired("B48-interleaved.anthropic", "any-anthropic")) == json.dumps(
        load("B48-interleaved.anthropic")
    )
    assert problems("B48-interleaved.anthropic") == []


def test_b48_unsigned_thinking_goes_then_the_blank_text_then_the_answer():
    assert shown(repaired("B48-unsigned.anthropic")) == ["user", "x", "go on"]


def test_b52_an_error_result_without_text_says_so():
    assert shown(repaired("B52-empty-error.anthropic"))[-1] == (
        "result t1 failed: The tool reported an error and said nothing about it."
    )
