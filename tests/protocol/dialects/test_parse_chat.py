"""Chat Completions replies, streamed and whole, as deltas and blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.protocol.dialects.chat.parse import Stream, parse
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import ReasoningBlock, TextBlock, ToolCallBlock
from quiesce.protocol.model import CallDelta, Finished, ReasoningDelta, ReplyAssembler, TextDelta

CASES = Path(__file__).parents[2] / "cases"


def deltas_of(*chunks):
    stream = Stream()
    return [delta for chunk in chunks for delta in stream.take(chunk)] + list(stream.end())


def assembled(*chunks):
    answer = ReplyAssembler()
    for delta in deltas_of(*chunks):
        answer.add(delta)
    return answer


def complete(*chunks):
    return assembled(*chunks).complete()


def chunk(finish=None, **delta):
    return {"id": "r1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calls(*items, finish=None):
    return chunk(finish, tool_calls=list(items))


def fragment(index=None, call_id=None, name=None, arguments=None, **extra):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {"index": index, "id": call_id, "function": function, **extra}
    return {key: value for key, value in given.items() if value is not None}


def each(*fragments):
    """A chunk for each of the fragments."""
    return [calls(item) for item in fragments]


END = chunk("tool_calls")


# --- the cases ---------------------------------------------------------------------------------------------------


def case(name):
    """The chunks of a case, up to the mark of its end."""
    return [item for item in json.loads((CASES / name).read_text()) if "_eof" not in item]


def test_a_stream_that_is_cut_in_the_arguments_of_a_call_leaves_no_call():
    answer = assembled(*case("B36-cut.stream.json"))
    assert answer.finished is None
    assert answer.interrupted() == ()


def test_two_calls_on_one_index_are_two_calls():
    assert complete(*case("B40-same-index.stream.json")) == (
        ToolCallBlock("a", "read", '{"p":"1"}'),
        ToolCallBlock("b", "read", '{"p":"2"}'),
    )


def test_interleaved_fragments_without_an_id_go_to_the_call_of_their_index():
    assert complete(*case("B40-interleaved.stream.json")) == (
        ToolCallBlock("A", "ta", '{"x":"A"}'),
        ToolCallBlock("B", "tb", '{"x":"B"}'),
    )


# --- text and reasoning ------------------------------------------------------------------------------------------


def test_text_comes_as_it_is_said():
    usage = {"prompt_tokens": 1}
    chunks = [chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), chunk("stop")]
    assert deltas_of(*chunks, {"choices": [], "usage": usage}) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished("stop", usage, {"replyId": "r1", "servedModel": "m"}),
    ]


def test_the_last_text_may_come_with_the_end():
    assert complete(chunk("stop", content="Hi")) == (TextBlock("Hi"),)


def test_an_empty_reply_is_finished_and_has_nothing_in_it():
    answer = assembled(chunk("stop"))
    assert (answer.complete(), answer.finished.reason) == ((), "stop")


def test_a_refusal_is_text():
    assert complete(chunk(refusal="I will "), chunk(refusal="not."), chunk("stop")) == (TextBlock("I will not."),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_comes_before_the_text(field):
    chunks = [chunk(**{field: "Hm"}), chunk(**{field: "."}), chunk(content="Yes"), chunk("stop")]
    assert complete(*chunks) == (ReasoningBlock("Hm."), TextBlock("Yes"))


def test_reasoning_that_is_sent_under_two_names_is_taken_once():
    assert deltas_of(chunk(reasoning_content="Hm", reasoning="Hm")) == [ReasoningDelta("Hm")]


def test_content_may_be_a_list_of_thoughts_and_texts():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    assert complete(chunk("stop", content=[thinking, {"type": "text", "text": "Yes"}])) == (
        ReasoningBlock("Hm"),
        TextBlock("Yes"),
    )


def test_only_the_first_choice_counts():
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    assert complete(chunk(content="one"), other, chunk("stop")) == (TextBlock("one"),)


# --- calls -------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_call_are_passed_on_as_they_come():
    chunks = [
        calls(fragment(0, "c", "f", "")),
        calls(fragment(0, arguments='{"x"')),
        calls(fragment(0, arguments=":1}")),
    ]
    assert deltas_of(*chunks) == [
        CallDelta(0, "c", "f"),
        CallDelta(0, arguments='{"x"'),
        CallDelta(0, arguments=":1}"),
    ]


@pytest.mark.parametrize("indices", [(0, 1), (0, 0), (None, None)], ids=["numbered", "all 0", "none"])
@pytest.mark.parametrize("ids", [("a", "b"), ("", ""), (None, None)], ids=["labelled", "empty ids", "no ids"])
@pytest.mark.parametrize("names", [("f", "g"), ("f", "f")], ids=["two tools", "one tool"])
def test_two_whole_calls_stay_two_however_they_are_labelled(indices, ids, names):
    first, second = (
        fragment(index, label, name, f'{{"n":{at}}}')
        for at, (index, label, name) in enumerate(zip(indices, ids, names, strict=True))
    )
    for chunks in ([calls(first, second), END], [calls(first), calls(second), END]):
        assert [(call.name, call.arguments) for call in complete(*chunks)] == [
            (names[0], '{"n":0}'),
            (names[1], '{"n":1}'),
        ]


def test_fragments_without_an_index_go_on_with_the_last_call():
    chunks = [
        calls(fragment(0, "a", "f", "{}")),
        calls(fragment(1, "b", "g", "")),
        calls(fragment(arguments="{}")),
        END,
    ]
    assert complete(*chunks) == (ToolCallBlock("a", "f", "{}"), ToolCallBlock("b", "g", "{}"))


def test_a_name_that_is_sent_again_with_each_piece_is_one_call():
    chunks = [
        calls(fragment(0, "", "f", '{"a":')),
        calls(fragment(0, "", "f", '"}"')),
        calls(fragment(0, "", "f", "}")),
    ]
    assert complete(*chunks, END) == (ToolCallBlock("", "f", '{"a":"}"}'),)


def test_what_a_provider_attached_to_a_call_is_kept_with_it():
    extra = {"google": {"thought_signature": "sig"}}
    chunks = [calls(fragment(0, "a", "f", "{}", type="function", extra_content=extra)), END]
    assert complete(*chunks) == (ToolCallBlock("a", "f", "{}", replay={"extra_content": extra}),)


def test_arguments_that_are_no_text_are_written_as_json():
    assert complete(calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": "ü"}}}), END) == (
        ToolCallBlock("a", "f", '{"x": "ü"}'),
    )


def test_calls_count_even_if_the_server_says_stop():
    answer = assembled(calls(fragment(0, "a", "f", "{}")), chunk("stop"))
    assert (answer.finished.reason, len(answer.complete())) == ("tool-calls", 1)


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length", "LENGTH"])
def test_the_token_limit_drops_calls_even_if_they_look_whole(reason):
    answer = assembled(chunk(content="So"), calls(fragment(0, "a", "f", "{}")), chunk(reason))
    assert (answer.finished.reason, answer.complete()) == ("max-tokens", (TextBlock("So"),))


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code", "transient"),
    [
        ("content_filter", "CONTENT_FILTER", False),
        ("error", "server_error", True),
        ("insufficient_system_resource", "server_error", True),
    ],
)
def test_an_end_that_is_a_failure_is_an_error(reason, code, transient):
    with pytest.raises(ModelError) as caught:
        deltas_of(chunk(content="So"), chunk(reason))
    assert (caught.value.code, caught.value.transient) == (code, transient)


def test_an_unknown_end_is_one_for_text_and_an_error_for_calls():
    assert complete(chunk(content="So"), chunk("whatever")) == (TextBlock("So"),)
    with pytest.raises(ModelError, match="whatever"):
        deltas_of(calls(fragment(0, "a", "f", "{}")), chunk("whatever"))


def test_an_error_in_a_chunk_is_the_providers():
    error = {"error": {"message": "Busy.", "type": "server_error", "code": "overloaded"}}
    with pytest.raises(ModelError, match="overloaded: Busy") as caught:
        Stream().take(error)
    assert caught.value.transient


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {"choices": "no"},
        {"choices": ["no"]},
        {"choices": [{"delta": "no"}]},
        chunk(content=5),
        chunk(tool_calls={}),
        calls("no"),
        calls({"index": "0"}),
        calls(fragment(0, 5)),
        {"choices": [], "usage": 5},
    ],
)
def test_what_is_no_chunk_is_an_error_that_another_try_may_cure(broken):
    with pytest.raises(ModelError, match="malformed reply") as caught:
        Stream().take(broken)
    assert (caught.value.code, caught.value.transient) == ("MALFORMED_REPLY", True)


# --- whole replies -----------------------------------------------------------------------------------------------


def whole(finish="stop", **message):
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}]}


def test_a_whole_reply_has_the_same_blocks():
    function = {"name": "f", "arguments": "{}"}
    items = [
        {"id": "a", "type": "function", "function": function},
        {"id": "", "type": "function", "function": function},
    ]
    reply = whole("tool_calls", content="So", reasoning_content="Hm", tool_calls=items)
    assert parse(reply) == (
        ReasoningBlock("Hm"),
        TextBlock("So"),
        ToolCallBlock("a", "f", "{}"),
        ToolCallBlock("", "f", "{}"),
    )


@pytest.mark.parametrize("finish", ["length", None])
def test_a_whole_reply_that_is_not_complete_has_no_calls(finish):
    item = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert parse(whole(finish, content="So", tool_calls=[item])) == (TextBlock("So"),)


def test_a_whole_reply_without_content_is_empty():
    assert parse(whole(content=None)) == ()
