"""What no request can carry is replaced in what is sent as it is, and nothing else of it changes."""

from __future__ import annotations

import json
import math

import pytest
from attrs import evolve

from quiesce.protocol.dialects import DIALECTS, PROFILES, dialect_of
from quiesce.protocol.dialects.cleaning import cleaned
from quiesce.protocol.events import (
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
)

GO = UserMessage((TextBlock("go"),), {"kind": "user"}, "user", "u")
RESPONSES, ANTHROPIC = PROFILES["openai-responses"], PROFILES["anthropic"]
ODD = {"z": -0.0, "a": [1.0, 1e300, {"": None}], "\u2028": "\x01\x7f", "deep": [[[[[{}]]]]], "n": 10**40}
"""Strange, but JSON: it is no affair of ours."""


def answer(*blocks, profile):
    return ModelMessage("assistant", blocks, {"kind": "model", "provider": profile.provider}, "m")


def seal(**more):
    return {"type": "thinking", "thinking": "hm", "signature": "s", **more}


def test_what_can_be_sent_is_the_same_object():
    message = answer(
        *(ReasoningBlock("t", replay=ODD), ToolCallBlock("c", "f", "{}", replay=ODD), OpaqueBlock(ODD)),
        TextBlock("x", shape=Shape(("type", "text", "wire"), {"wire": ODD})),
        profile=ANTHROPIC,
    )
    result = ToolMessage("tool", "c", (OpaqueBlock(ODD),), is_error=False, id="t")
    given = [GO, message, result]
    assert all(kept is one for kept, one in zip(cleaned(given), given, strict=True))


def test_of_what_cannot_only_that_is_replaced():
    replay = seal(**ODD, bad="a\ud800", worse=[math.nan, -0.0], nul="\0")
    sent = DIALECTS["anthropic"].render(
        (GO, answer(ReasoningBlock("t", replay=replay), TextBlock("x"), profile=ANTHROPIC)), ANTHROPIC
    )
    wanted = seal(**ODD, bad="a\ufffd", worse=["NaN", -0.0], nul="\u2400")
    assert json.dumps(sent[1]["content"][0]) == json.dumps(wanted)
    assert sent[1]["content"][0]["a"] is replay["a"]


DIRT = {"\ud800": "\udfff", "number": math.inf, "bytes": b"x"}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.parametrize(
    "block",
    [
        OpaqueBlock({"type": "image", "mediaType": "image/png", "data": "AAAA", "name": "\ud800"}),
        OpaqueBlock({"type": "document", "mediaType": "application/pdf", "data": "AAAA", "name": "a\ud800\0.pdf"}),
        OpaqueBlock({"type": "image", "url": "https://x/\ud800"}),
        OpaqueBlock({"type": "\ud800", "uri": "\udfff", **DIRT}),
        OpaqueBlock({"type": "web_search_call", "id": "ws_1", **DIRT}),
        OpaqueBlock({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": DIRT}),
        ReasoningBlock("t", replay=seal(**DIRT)),
        ReasoningBlock("t", replay={"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "\ud800"}),
        ToolCallBlock("aaaaaaaaa", "read", "{}", replay={"extra_content": DIRT}),
    ],
    ids=str,
)
def test_every_block_can_be_sent_in_an_answer_and_where_it_may_stand_in_input_and_results(profile, block):
    own = evolve(profile, model="m")
    source = {"kind": "model", "provider": profile.provider, "model": "m"}
    call = ToolCallBlock("bbbbbbbbb", "read", "{}")
    messages = (
        UserMessage((block,), {}, "user", "u"),
        ModelMessage("assistant", (block, TextBlock("so"), call), source, "m"),
        ToolMessage("tool", call.id, (block,), is_error=False, id="t"),
    )
    sent = dialect_of(own).render(messages, own)
    assert dialect_of(own).problems(sent, own) == []
    json.dumps(sent, allow_nan=False, ensure_ascii=False).encode()


def test_what_a_log_from_elsewhere_remembers_of_a_message_is_no_exception():
    wire = {"provider": "openai", "object": {"role": None, "content": None, "name": "\ud800"}}
    message = evolve(GO, shape=Shape(("role", "wire"), {"wire": wire}))
    sent = DIALECTS["chat"].render((message,), PROFILES["openai"])
    assert sent == [{"role": "user", "content": "go", "name": "\ufffd"}]
