"""Exchanges: any sequence of messages, paired. Messages are written in one line, as a word each.

user            input
ask:a,b         an answer with the calls a and b
a=1             the result 1 of a call labelled a
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects.exchanges import exchanges, exchanges_in_order
from quiesce.protocol.events import ModelMessage, TextBlock, ToolCallBlock, ToolMessage, UserMessage, text_of


def read(line):
    return tuple(map(message, line.split()))


def message(word):
    if word == "user":
        return UserMessage((TextBlock("hi"),), {}, "user", "u")
    if word.startswith("ask"):
        labels = word.partition(":")[2].split(",") if ":" in word else []
        return ModelMessage("assistant", tuple(ToolCallBlock(label, "t", "{}") for label in labels), {}, "m")
    label, _, text = word.partition("=")
    return ToolMessage("tool", label, (TextBlock(text),), is_error=False, id="t")


def show(found):
    return " ".join(word for exchange in found for word in _words(exchange))


def _words(exchange):
    if not isinstance(exchange.message, ModelMessage):
        return ["user"]
    texts = [
        "?" if "outcome is unknown" in text_of(item.content) else text_of(item.content) for item in exchange.answers
    ]
    return ["ask" if not texts else f"ask({','.join(texts)})"]


@pytest.mark.parametrize(
    ("line", "paired"),
    [
        ("user ask:a,b a=1 b=2 user", "user ask(1,2) user"),
        ("ask:a,b b=2 a=1", "ask(1,2)"),
        ("ask:a user a=1", "ask(1) user"),
        ("ask:a", "ask(?)"),
        ("ask:a user ask", "ask(?) user ask"),
        ("a=1 user", "user"),
        ("a=1 ask:a", "ask(?)"),
        ("ask:a b=1", "ask(?)"),
        ("ask:a a=1 a=2", "ask(1)"),
        ("ask:a ask:a a=1 a=2", "ask(?) ask(1)"),
        ("ask:a a=1 ask:a a=2 ask:a a=3", "ask(1) ask(2) ask(3)"),
        ("ask:a,a a=1 a=2", "ask(1,2)"),
        ("ask:, =1 =2", "ask(1,2)"),
        ("ask:, =1", "ask(1,?)"),
        ("ask:a,b =2 a=1", "ask(1,2)"),
        ("ask:,b x=1 b=2", "ask(1,2)"),
        ("ask:, user x=1", "ask(?,?) user"),
        ("ask:a user ask user a=1 a=2", "ask(1) user ask user"),
    ],
)
def test_results_find_their_calls_by_label_and_order(line, paired):
    assert show(exchanges(read(line))) == paired


WORDS = st.lists(st.sampled_from(["user", "ask", "ask:a", "ask:a,b", "ask:a,a", "ask:,a", "a=1", "b=2", "=3"]))


@given(WORDS)
def test_each_call_has_one_answer_with_its_own_place_and_nothing_else_is_lost(words):
    messages = read(" ".join(words))
    found = exchanges(messages)
    assert [item.message for item in found] == [item for item in messages if not isinstance(item, ToolMessage)]
    assert all(len(item.calls) == len(item.answers) for item in found)
    used = [id(answer) for item in found for answer in item.answers if answer in messages]
    assert len(used) == len(set(used))


@given(WORDS)
def test_what_is_in_order_is_paired_the_same_way_as_anything(words):
    messages = read(" ".join(words))
    in_order = exchanges_in_order(messages)
    tail = read("b=9")  # answers nothing, and puts all before it through the pairing
    assert in_order is None or exchanges((*messages, *tail)) == in_order


def test_an_error_without_words_gets_some():
    silent = ToolMessage("tool", "a", (), is_error=True, id="t")
    (exchange,) = exchanges((message("ask:a"), silent))
    assert text_of(exchange.answers[0].content).strip()
