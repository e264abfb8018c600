"""Whatever a server sends, its reply is deltas or a `ModelError`, and what was not finished has no calls."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.codec import check_draft
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import AssistantMessage, ModelMessage, ToolCallBlock, draft
from quiesce.protocol.model import ReplyAssembler

KEYS = [
    "type index output_index id call_id name arguments function delta choices message tool_calls content text thinking",
    "signature input content_block item response output status error code usage finish_reason stop_reason summary",
    "encrypted_content reasoning_content refusal partial_json data model incomplete_details reason extra_content",
]
WORDS = [
    "text thinking redacted_thinking tool_use text_delta thinking_delta signature_delta input_json_delta message_start",
    "content_block_start content_block_delta content_block_stop message_delta message_stop error ping function_call",
    "message reasoning response.output_item.added response.output_item.done response.output_text.delta completed stop",
    "response.function_call_arguments.delta response.completed response.incomplete response.failed tool_calls length",
]
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.just(0.5)
    | st.sampled_from(" ".join(WORDS).split())
    | st.sampled_from(["", "{}", '{"x"', ":1}", "\ud800", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(" ".join(KEYS).split()), inner, max_size=5)
    ),
    max_leaves=12,
)


def parser(dialect):
    """The module that parses a dialect."""
    return import_module(f"quiesce.protocol.dialects.{dialect}.parse")


def _event(kind, **parts):
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=parts)


INDEX = st.integers(0, 1) | ANY
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"])},
    optional={"id": ANY, "name": ANY, "input": ANY, "text": ANY, "thinking": ANY, "signature": ANY},
)
PIECE = st.fixed_dictionaries(
    {"type": st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta"])},
    optional={"text": ANY, "thinking": ANY, "signature": ANY, "partial_json": ANY},
)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "web_search_call"])},
    optional=dict.fromkeys(("call_id", "name", "arguments", "content", "summary", "encrypted_content", "status"), ANY),
)
EVENTS = {
    "anthropic": _event("content_block_start", index=INDEX, content_block=BLOCK)
    | _event("content_block_delta", index=INDEX, delta=PIECE)
    | _event("content_block_stop", index=INDEX)
    | _event("message_delta", delta=ANY, usage=ANY)
    | _event("message_stop"),
    "responses": _event("response.output_item.added", output_index=INDEX, item=ITEM)
    | _event("response.output_item.done", output_index=INDEX, item=ITEM)
    | _event("response.output_text.delta", output_index=INDEX, delta=ANY)
    | _event("response.function_call_arguments.delta", output_index=INDEX, delta=ANY)
    | _event("response.completed", response=ANY | st.fixed_dictionaries({"output": st.lists(ITEM, max_size=2)})),
    "chat": st.fixed_dictionaries(
        {
            "choices": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "delta": st.dictionaries(
                            st.sampled_from(["content", "refusal", "reasoning_content", "tool_calls"]), ANY, max_size=2
                        ),
                        "finish_reason": ANY,
                    },
                ),
                max_size=2,
            )
        }
    ),
}


@pytest.mark.parametrize("dialect", EVENTS)
@given(data=st.data())
def test_a_stream_is_deltas_or_a_model_error_and_can_be_stored(dialect, data):
    events = data.draw(st.lists(EVENTS[dialect] | ANY, max_size=6))
    stream, answer = parser(dialect).Stream(), ReplyAssembler()
    with suppress(ModelError):
        for event in events:
            for delta in stream.take(event):
                answer.add(delta)
        for delta in stream.end():
            answer.add(delta)
    for content in (answer.complete(), answer.interrupted()):
        check_draft(draft(AssistantMessage(1, 1, ModelMessage("assistant", content, {}, "id"))))
    assert not any(isinstance(block, ToolCallBlock) for block in answer.interrupted())


@pytest.mark.parametrize("dialect", EVENTS)
@given(reply=ANY)
def test_a_whole_reply_is_blocks_or_a_model_error(dialect, reply):
    with suppress(ModelError):
        parser(dialect).parse(reply)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30), st.data())
def test_it_does_not_matter_where_a_stream_is_cut_into_pieces(said, data):
    marks = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=5)))
    pieces = [said[start:stop] for start, stop in zip([0, *marks], [*marks, len(said)], strict=True)]
    arguments = json.dumps({"said": said})
    streams = {
        "chat": [
            *({"choices": [{"delta": {"content": piece}}]} for piece in pieces),
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]},
            *(
                {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}}]}
                for piece in (arguments[:3], arguments[3:])
            ),
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        ],
        "anthropic": [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                for piece in pieces
            ),
            {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "a", "name": "f"}},
            *(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
                for piece in (arguments[:3], arguments[3:])
            ),
            {"type": "message_stop"},
        ],
    }
    for dialect, events in streams.items():
        stream, answer = parser(dialect).Stream(), ReplyAssembler()
        for delta in (*(delta for event in events for delta in stream.take(event)), *stream.end()):
            answer.add(delta)
        *text, call = answer.complete()
        assert "".join(block.text for block in text) == said
        assert (call.name, json.loads(call.arguments)) == ("f", {"said": said})
