"""Anthropic Messages replies, streamed and whole, as deltas and blocks."""

from __future__ import annotations

import pytest

from quiesce.protocol.dialects.anthropic.parse import Stream, parse
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock
from quiesce.protocol.model import CallDelta, Finished, ReasoningDelta, ReplyAssembler, Sealed, TextDelta


def deltas_of(*events):
    stream = Stream()
    return [delta for event in events for delta in stream.take(event)] + list(stream.end())


def assembled(*events):
    answer = ReplyAssembler()
    for delta in deltas_of(*events):
        answer.add(delta)
    return answer


def complete(*events):
    return assembled(*events).complete()


BEGIN = {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 9}}}
STOP = {"type": "message_stop"}


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index, kind, **delta):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


def end(reason="end_turn", **usage):
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, STOP]


def tool_use(index, label, name, *pieces, **more):
    arguments = [piece(index, "input_json_delta", partial_json=text) for text in pieces]
    return [start(index, type="tool_use", id=label, name=name, input={}, **more), *arguments, stop(index)]


# --- blocks ------------------------------------------------------------------------------------------------------


def test_text_comes_as_it_is_said_and_usage_is_completed_at_the_end():
    events = [
        BEGIN,
        {"type": "ping"},
        start(0, type="text", text=""),
        piece(0, "text_delta", text="Hel"),
        piece(0, "text_delta", text="lo"),
        stop(0),
        *end(output_tokens=3, input_tokens=None),
    ]
    assert deltas_of(*events) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop", {"input_tokens": 9, "output_tokens": 3}, {"replyId": "msg_1", "servedModel": "m-1"}),
    ]


def test_an_empty_reply_is_finished_and_has_nothing_in_it():
    answer = assembled(BEGIN, *end())
    assert (answer.complete(), answer.finished.reason) == ((), "stop")


def test_thinking_is_live_and_then_sealed_with_the_whole_block():
    events = [
        start(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="H"),
        piece(0, "thinking_delta", thinking="m"),
        piece(0, "signature_delta", signature="sig"),
        piece(0, "signature_delta", signature="nature"),
        stop(0),
    ]
    assert deltas_of(*events) == [
        ReasoningDelta("H"),
        ReasoningDelta("m"),
        Sealed({"type": "thinking", "thinking": "Hm", "signature": "signature"}),
    ]


def test_thinking_that_is_not_shown_is_sealed_as_it_came():
    events = [start(0, type="thinking", thinking="", signature=""), piece(0, "signature_delta", signature="s"), stop(0)]
    assert complete(*events, *end()) == (
        ReasoningBlock("", replay={"type": "thinking", "thinking": "", "signature": "s"}),
    )


def test_thinking_without_a_signature_is_text_for_people():
    events = [start(0, type="thinking", thinking=""), piece(0, "thinking_delta", thinking="Hm"), stop(0)]
    assert complete(*events, *end()) == (ReasoningBlock("Hm"),)


def test_redacted_thinking_is_sealed_whole():
    block = {"type": "redacted_thinking", "data": "opaque", "unknown": [1]}
    assert deltas_of(start(0, **block), stop(0)) == [Sealed(block)]


def test_the_parts_of_a_call_are_passed_on_as_they_come():
    assert deltas_of(*tool_use(1, "toolu_1", "f", "", '{"x"', ":1}")) == [
        CallDelta(0, "toolu_1", "f"),
        CallDelta(0, arguments='{"x"'),
        CallDelta(0, arguments=":1}"),
    ]


def test_parallel_calls_may_be_interleaved():
    (a, a_piece, a_end), (b, b_piece, b_end) = tool_use(0, "a", "f", '{"x":1}'), tool_use(1, "b", "f", '{"x":2}')
    answer = assembled(a, b, b_piece, a_piece, a_end, b_end, *end("tool_use"))
    assert answer.finished.reason == "tool-calls"
    assert answer.complete() == (ToolCallBlock("a", "f", '{"x":1}'), ToolCallBlock("b", "f", '{"x":2}'))


@pytest.mark.parametrize("ids", [("a", "b"), ("", "")])
def test_calls_that_share_an_index_stay_apart(ids):
    events = [event for label, at in zip(ids, "12", strict=True) for event in tool_use(0, label, "f", f'{{"x":{at}}}')]
    assert complete(*events, *end("tool_use")) == (
        ToolCallBlock(ids[0], "f", '{"x":1}'),
        ToolCallBlock(ids[1], "f", '{"x":2}'),
    )


def test_a_whole_input_at_the_start_counts_if_no_piece_comes():
    events = [start(0, type="tool_use", id="a", name="f", input={"x": 1}), stop(0)]
    assert complete(*events, *end("tool_use")) == (ToolCallBlock("a", "f", '{"x": 1}'),)


def test_what_a_provider_attached_to_a_call_is_kept_with_it():
    events = tool_use(0, "a", "f", "{}", caller={"type": "direct"})
    assert complete(*events, *end("tool_use")) == (
        ToolCallBlock("a", "f", "{}", replay={"caller": {"type": "direct"}}),
    )


def test_blocks_of_the_providers_own_tools_are_kept_as_they_are():
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    search = start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={})
    events = [search, piece(0, "input_json_delta", partial_json='{"query":"x"}'), stop(0), start(1, **result), stop(1)]
    assert complete(*events, *end()) == (
        OpaqueBlock({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}),
        OpaqueBlock(result),
    )


def test_what_is_not_known_is_passed_over():
    events = [{"type": "new_event"}, start(0, type="text", text="Hi"), piece(0, "new_delta", x=1), stop(0), *end()]
    assert complete(*events) == (TextBlock("Hi"),)


# --- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [[], [end("tool_use")[0]]], ids=["nothing", "a stop reason"])
def test_without_a_message_stop_nothing_is_finished(last):
    answer = assembled(*tool_use(0, "a", "f", "{}"), *last)
    assert (answer.finished, answer.interrupted()) == (None, ())


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_the_token_limit_drops_calls(reason):
    answer = assembled(*tool_use(0, "a", "f", "{}"), *end(reason))
    assert (answer.finished.reason, answer.complete()) == ("max-tokens", ())


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "pause_turn", None])
def test_other_reasons_are_a_stop(reason):
    assert assembled(*end(reason)).finished.reason == "stop"


def test_blocks_that_are_open_at_the_end_are_closed_there():
    events = [start(0, type="thinking", thinking="Hm", signature="s"), *end()]
    assert complete(*events) == (ReasoningBlock("Hm", replay={"type": "thinking", "thinking": "Hm", "signature": "s"}),)


def test_a_refusal_by_the_provider_is_an_error():
    with pytest.raises(ModelError) as caught:
        deltas_of(start(0, type="text", text="So"), *end("refusal"))
    assert (caught.value.code, caught.value.transient) == ("REFUSAL", False)


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "transient"),
    [("overloaded_error", True), ("rate_limit_error", True), ("api_error", True), ("invalid_request_error", False)],
)
def test_an_error_event_is_the_providers(kind, transient):
    event = {"type": "error", "error": {"type": kind, "message": "Words."}, "request_id": "req_1"}
    with pytest.raises(ModelError, match=rf"{kind}: Words\. \(request id req_1\)") as caught:
        Stream().take(event)
    assert (caught.value.code, caught.value.transient, caught.value.request_id) == (kind, transient, "req_1")


@pytest.mark.parametrize(
    "broken",
    [
        "no",
        {},
        start("0", type="text"),
        {"type": "content_block_start", "index": 0},
        piece(0, "text_delta", text="to nobody"),
        {"type": "message_start", "message": 5},
        {"type": "message_delta", "delta": 5},
    ],
)
def test_what_is_no_event_is_an_error_that_another_try_may_cure(broken):
    with pytest.raises(ModelError, match="malformed reply") as caught:
        Stream().take(broken)
    assert (caught.value.code, caught.value.transient) == ("MALFORMED_REPLY", True)


# --- whole replies -----------------------------------------------------------------------------------------------


def test_a_whole_reply_has_the_same_blocks():
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    content = [
        thinking,
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "So"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]
    assert parse({"type": "message", "content": content, "stop_reason": "tool_use"}) == (
        ReasoningBlock("Hm", replay=thinking),
        ReasoningBlock("", replay={"type": "redacted_thinking", "data": "d"}),
        TextBlock("So"),
        ToolCallBlock("a", "f", '{"x": 1}'),
        ToolCallBlock("b", "g", ""),
    )


def test_a_whole_reply_that_was_cut_by_the_limit_has_no_calls():
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assert parse({"content": [call], "stop_reason": "max_tokens"}) == ()


def test_an_error_in_place_of_a_reply_is_the_providers():
    with pytest.raises(ModelError, match="overloaded_error"):
        parse({"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}})
