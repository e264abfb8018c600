"""OpenAI Responses replies, streamed and whole, as deltas and blocks."""

from __future__ import annotations

import pytest

from quiesce.protocol.dialects.responses.parse import Stream, parse
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


def event(kind, index=None, **data):
    where = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}", **where, **data}


def over(kind="completed", **response):
    return event(kind, response={"id": "resp_1", "model": "m-1", "status": kind, **response})


def message(*texts, **more):
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": parts, **more}


def call_item(label, name, arguments, **more):
    return {
        "type": "function_call",
        "id": f"fc_{label}",
        "call_id": label,
        "name": name,
        "arguments": arguments,
        **more,
    }


def call_events(index, label, name, *pieces, **more):
    deltas = [event("function_call_arguments.delta", index, delta=text) for text in pieces]
    return [
        event("output_item.added", index, item=call_item(label, name, "", status="in_progress")),
        *deltas,
        event("output_item.done", index, item=call_item(label, name, "".join(pieces), status="completed", **more)),
    ]


# --- items -------------------------------------------------------------------------------------------------------


def test_text_comes_as_it_is_said():
    events = [
        event("created", response={}),
        event("output_item.added", 0, item=message()),
        event("output_text.delta", 0, delta="Hel"),
        event("output_text.delta", 0, delta="lo"),
        event("output_item.done", 0, item=message("Hello")),
        over(usage={"input_tokens": 1}, output=[message("Hello")]),
    ]
    assert deltas_of(*events) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop", {"input_tokens": 1}, {"replyId": "resp_1", "servedModel": "m-1"}),
    ]


def test_an_empty_reply_is_finished_and_has_nothing_in_it():
    answer = assembled(over(output=[]))
    assert (answer.complete(), answer.finished.reason) == ((), "stop")


def test_a_refusal_is_text():
    assert complete(event("refusal.delta", 0, delta="I will not."), over()) == (TextBlock("I will not."),)


@pytest.mark.parametrize(
    "events",
    [
        [event("output_item.done", 0, item=message("Hel", "lo"))],
        [event("output_text.delta", 0, delta="Hel"), event("output_item.done", 0, item=message("Hello"))],
        [],
    ],
    ids=["only the item", "half of the deltas", "only the end"],
)
def test_what_the_deltas_did_not_bring_is_taken_from_the_item(events):
    assert complete(*events, over(output=[message("Hello")])) == (TextBlock("Hello"),)


def test_reasoning_is_live_and_then_sealed_with_the_whole_item():
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
        "encrypted_content": "opaque",
        "status": None,
    }
    events = [
        event("output_item.added", 0, item={"type": "reasoning", "encrypted_content": "not yet whole"}),
        event("reasoning_summary_part.added", 0),
        event("reasoning_summary_text.delta", 0, delta="One."),
        event("reasoning_summary_part.added", 0),
        event("reasoning_summary_text.delta", 0, delta="Two."),
        event("output_item.done", 0, item=item),
    ]
    assert deltas_of(*events) == [
        ReasoningDelta("One."),
        ReasoningDelta("\n\n"),
        ReasoningDelta("Two."),
        Sealed(item),
    ]


def test_reasoning_without_words_is_sealed_all_the_same():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
    assert complete(event("output_item.done", 0, item=item), over()) == (ReasoningBlock("", replay=item),)


def test_reasoning_that_is_not_encrypted_is_text_for_people():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    assert complete(event("reasoning_text.delta", 0, delta="H"), event("output_item.done", 0, item=item), over()) == (
        ReasoningBlock("Hm"),
    )


def test_reasoning_that_was_cut_is_not_sealed():
    item = {"type": "reasoning", "summary": [], "encrypted_content": "half", "status": "incomplete"}
    assert complete(event("reasoning_text.delta", 0, delta="Hm"), over("incomplete", output=[item])) == (
        ReasoningBlock("Hm"),
    )


def test_the_parts_of_a_call_are_passed_on_as_they_come():
    assert deltas_of(*call_events(1, "call_1", "f", '{"x"', ":1}")) == [
        CallDelta(1, "call_1", "f"),
        CallDelta(1, arguments='{"x"'),
        CallDelta(1, arguments=":1}"),
    ]


def test_parallel_calls_may_be_interleaved():
    (a, a_piece, a_done), (b, b_piece, b_done) = (
        call_events(0, "a", "f", '{"x":1}'),
        call_events(1, "b", "f", '{"x":2}'),
    )
    answer = assembled(a, b, b_piece, a_piece, a_done, b_done, over())
    assert answer.finished.reason == "tool-calls"
    assert answer.complete() == (ToolCallBlock("a", "f", '{"x":1}'), ToolCallBlock("b", "f", '{"x":2}'))


@pytest.mark.parametrize("skipped", [{"added"}, {"delta"}, {"done"}, {"added", "delta"}, {"added", "delta", "done"}])
def test_a_call_is_whole_whichever_of_its_events_a_server_leaves_out(skipped):
    events = [it for it in call_events(0, "a", "f", '{"x"', ":1}") if it["type"].rpartition(".")[2] not in skipped]
    assert complete(*events, over(output=[call_item("a", "f", '{"x":1}')])) == (ToolCallBlock("a", "f", '{"x":1}'),)


def test_what_a_provider_attached_to_a_call_is_kept_with_it():
    assert complete(*call_events(0, "a", "f", "{}", namespace="n"), over()) == (
        ToolCallBlock("a", "f", "{}", replay={"namespace": "n"}),
    )


def test_a_call_whose_arguments_are_not_those_that_were_streamed_is_malformed():
    added, piece, _ = call_events(0, "a", "f", '{"x":1}')
    with pytest.raises(ModelError, match="not those that were streamed"):
        deltas_of(added, piece, event("output_item.done", 0, item=call_item("a", "f", '{"x":2}')))


def test_items_of_the_providers_own_tools_are_kept_as_they_are():
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert complete(event("output_item.done", 0, item=item), over(output=[item])) == (OpaqueBlock(item),)


def test_what_is_not_known_is_passed_over():
    assert deltas_of(event("something.new", 0, delta="x")) == []


# --- the end -----------------------------------------------------------------------------------------------------


def test_without_the_last_event_nothing_is_finished():
    answer = assembled(*call_events(0, "a", "f", "{}"))
    assert (answer.finished, answer.interrupted()) == (None, ())


@pytest.mark.parametrize("reason", ["max_output_tokens", "something_new"])
def test_an_incomplete_response_drops_calls(reason):
    answer = assembled(*call_events(0, "a", "f", "{}"), over("incomplete", incomplete_details={"reason": reason}))
    assert (answer.finished.reason, answer.complete()) == ("max-tokens", ())


def test_an_incomplete_call_in_a_complete_response_is_not_run_either():
    item = call_item("a", "f", '{"x"', status="incomplete")
    answer = assembled(event("output_item.done", 0, item=item), over())
    assert (answer.finished.reason, answer.complete()) == ("max-tokens", ())


def test_the_content_filter_is_an_error():
    with pytest.raises(ModelError) as caught:
        deltas_of(over("incomplete", incomplete_details={"reason": "content_filter"}))
    assert (caught.value.code, caught.value.transient) == ("CONTENT_FILTER", False)


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        over("failed", error={"code": "server_error", "message": "Words."}),
        {"type": "error", "code": "server_error", "message": "Words.", "param": None},
        {"type": "error", "error": {"code": "server_error", "message": "Words."}},
    ],
)
def test_a_failure_is_the_providers(broken):
    with pytest.raises(ModelError, match=r"server_error: Words\.") as caught:
        Stream().take(broken)
    assert (caught.value.code, caught.value.transient) == ("server_error", True)


def test_a_response_that_somebody_cancelled_is_an_error():
    with pytest.raises(ModelError, match="cancelled"):
        Stream().take(over("cancelled"))


@pytest.mark.parametrize(
    "broken",
    [
        "no",
        {},
        event("output_text.delta", None, delta="x"),
        event("output_text.delta", 0, delta=5),
        event("output_item.done", 0, item="no"),
        event("output_item.done", 0, item={"type": "message", "content": "no"}),
        event("completed"),
        over(usage=5),
    ],
)
def test_what_is_no_event_is_an_error_that_another_try_may_cure(broken):
    with pytest.raises(ModelError, match="malformed reply") as caught:
        Stream().take(broken)
    assert (caught.value.code, caught.value.transient) == ("MALFORMED_REPLY", True)


# --- whole replies -----------------------------------------------------------------------------------------------


def test_a_whole_reply_has_the_same_blocks():
    reasoning = {"type": "reasoning", "summary": [{"text": "Hm"}], "encrypted_content": "opaque"}
    output = [reasoning, message("So"), call_item("a", "f", "{}"), call_item("b", "g", "{}")]
    assert parse({"object": "response", "status": "completed", "output": output}) == (
        ReasoningBlock("Hm", replay=reasoning),
        TextBlock("So"),
        ToolCallBlock("a", "f", "{}"),
        ToolCallBlock("b", "g", "{}"),
    )


def test_a_whole_reply_that_was_cut_by_the_limit_keeps_its_text_and_no_calls():
    output = [message("So"), call_item("a", "f", '{"x"')]
    reply = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": output}
    assert parse(reply) == (TextBlock("So"),)
