"""The work grows as the messages do, whatever there is much of. It is counted in instructions: no clock decides."""

from __future__ import annotations

import json

import pytest

from quiesce.protocol.dialects import PROFILES, dialect_of
from quiesce.protocol.dialects.repair import check_transcript, lenient_profile, repair
from quiesce.protocol.dialects.transcript import load_transcript
from quiesce.protocol.events import ModelMessage, TextBlock, ToolCallBlock, ToolMessage, UserMessage

SMALL, FACTOR = 100, 4
SLACK = 1.5
"""Of what is linear, so much more may be done: tables grow in steps, and there is sorting."""


@pytest.fixture
def assert_linear(work):
    """`do(prepare(n))` takes no more than n times as long."""

    def check(prepare, do):
        small, large = (prepare(number) for number in (SMALL, SMALL * FACTOR))
        do(small)  # what is made once
        with work() as few:
            do(small)
        with work() as many:
            do(large)
        assert many.done <= few.done * FACTOR * SLACK

    return check


# --- message lists -----------------------------------------------------------------------------------------------

LABELS = {
    "of one label": lambda _: "same",
    "without a label": lambda _: "",
    "of their own": lambda number: f"call_{number}",
}
GO = {"role": "user", "content": "Go."}


def _chat_call(label):
    return {"id": label, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _chat_result(label):
    return {"role": "tool", "tool_call_id": label, "content": "seen"}


def _item_call(label):
    return {"type": "function_call", "call_id": label, "name": "look", "arguments": "{}"}


def _item_result(label):
    return {"type": "function_call_output", "call_id": label, "output": "seen"}


def _block_call(label):
    return {"type": "tool_use", "id": label, "name": "look", "input": {}}


def _block_result(label):
    return {"type": "tool_result", "tool_use_id": label, "content": "seen"}


def one_batch(dialect, labels):
    """All calls in one message, all results behind it, the last one first."""
    match dialect:
        case "chat":
            asks = {"role": "assistant", "content": None, "tool_calls": [_chat_call(label) for label in labels]}
            return [GO, asks, *map(_chat_result, reversed(labels))]
        case "responses":
            return [GO, *map(_item_call, labels), *map(_item_result, reversed(labels))]
        case "anthropic":
            results = [_block_result(label) for label in reversed(labels)]
            asks = {"role": "assistant", "content": [_block_call(label) for label in labels]}
            return [GO, asks, {"role": "user", "content": results}]


def many_batches(dialect, labels):
    """Each call in a message of its own, and all results at the end."""
    match dialect:
        case "chat":
            asks = [{"role": "assistant", "content": None, "tool_calls": [_chat_call(label)]} for label in labels]
            return [GO, *asks, *map(_chat_result, reversed(labels))]
        case "responses":
            asks = [item for label in labels for item in (_item_call(label), GO)]
            return [GO, *asks, *map(_item_result, reversed(labels))]
        case "anthropic":
            asks = [{"role": "assistant", "content": [_block_call(label)]} for label in labels]
            results = [{"role": "user", "content": [_block_result(label)]} for label in reversed(labels)]
            return [GO, *asks, *results]


def unanswered(dialect, labels):
    """All calls in one message, no results, and something else behind them."""
    results = 1 if dialect == "anthropic" else len(labels)
    return [*one_batch(dialect, labels)[:-results], *[GO for _ in labels]]


def orphans(dialect, labels):
    """Results without any call."""
    match dialect:
        case "chat":
            return [GO, *map(_chat_result, reversed(labels))]
        case "responses":
            return [GO, *map(_item_result, reversed(labels))]
        case "anthropic":
            return [GO, {"role": "user", "content": [_block_result(label) for label in reversed(labels)]}]


def words_between(dialect, labels):
    """One batch whose results have words of the user's between them."""
    messages = one_batch(dialect, labels)
    if dialect == "anthropic":
        text = {"type": "text", "text": "And?"}
        results = [block for result in messages[-1]["content"] for block in (text, result)]
        return [*messages[:-1], {"role": "user", "content": results}]
    asks = len(messages) - len(labels)
    return [*messages[:asks], *(item for result in messages[asks:] for item in (GO, result))]


def parted_calls(dialect, labels):
    """One batch whose calls have something between them that is neither said nor asked."""
    messages = one_batch(dialect, labels)
    if dialect != "responses":
        return messages
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    return [item for message in messages for item in (message, search)]


SHAPES = [one_batch, many_batches, unanswered, orphans, words_between, parted_calls]


def _transcript(dialect, messages):
    name = "input" if dialect == "responses" else "messages"
    return load_transcript(json.dumps({name: messages}), dialect)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("do", [check_transcript, repair])
def test_a_transcript_is_checked_and_repaired_in_linear_time(assert_linear, do, dialect, shape, labels):
    def prepare(number):
        return _transcript(dialect, shape(dialect, [LABELS[labels](index) for index in range(number)]))

    assert_linear(prepare, do)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_message_list_is_read_in_linear_time(assert_linear, dialect, shape, labels):
    used = lenient_profile(dialect)

    def prepare(number):
        return shape(dialect, [LABELS[labels](index) for index in range(number)])

    assert_linear(prepare, lambda messages: dialect_of(used).read(messages, used))


# --- histories ---------------------------------------------------------------------------------------------------

MODEL = {"kind": "model", "provider": "elsewhere"}


def _said(*blocks):
    return ModelMessage("assistant", blocks, MODEL, "m")


def _asked(words):
    return UserMessage((TextBlock(words),), {"kind": "user"}, "user", "u")


def _results(labels):
    return [ToolMessage("tool", label, (TextBlock("seen"),), is_error=False, id="t") for label in labels]


HISTORIES = {
    "calls in one message": lambda labels: [
        _said(*(ToolCallBlock(label, "look", "{}") for label in labels)),
        *_results(labels),
    ],
    "a message for each call": lambda labels: [
        message for label in labels for message in (_said(ToolCallBlock(label, "look", "{}")), *_results([label]))
    ],
    "results that came late": lambda labels: [
        *(_said(ToolCallBlock(label, "look", "{}")) for label in labels),
        *_results(labels),
    ],
    "results of other labels": lambda labels: [
        _said(*(ToolCallBlock(label, "look", "{}") for label in labels)),
        *_results([f"other {number}" for number, _ in enumerate(labels)]),
    ],
    "names of their own": lambda labels: [
        _said(*(ToolCallBlock(label, f"look {number}", "{}") for number, label in enumerate(labels))),
        *_results(labels),
    ],
    "messages of one role": lambda labels: [_asked(label) for label in labels],
    "blocks in one message": lambda labels: [_said(*map(TextBlock, labels))],
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize(
    "profile", ["openai", "strict-chat", "openai-responses", "strict-responses", "anthropic", "strict-anthropic"]
)
def test_a_history_is_rendered_in_linear_time(assert_linear, profile, history, labels):
    used = PROFILES[profile]

    def prepare(number):
        return [_asked("Go."), *HISTORIES[history]([LABELS[labels](index) for index in range(number)])]

    assert_linear(prepare, lambda messages: dialect_of(used).render(messages, used))
