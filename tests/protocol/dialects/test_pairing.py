"""Pairing: which result answers which call, whatever the labels are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.dialects.pairing import Asked, Given, pair


def read(text):
    """`ab` asks for two calls, `+a` is a result; places are numbers of items, and of calls in them."""
    items = []
    for at, word in enumerate(text.split()):
        if word.startswith("+"):
            items.append(Given((at, 0), word[1:]))
        else:
            items.append(Asked(tuple(((at, index), label) for index, label in enumerate(word))))
    return pair(items)


def answers(text):
    return [None if result is None else result[0] for _, result in read(text).answers]


def leftovers(text):
    return [(item.place[0], item.why) for item in read(text).leftovers]


def test_each_call_gets_the_result_of_its_label():
    assert answers("ab +b +a") == [2, 1]


def test_a_call_without_a_result_has_none():
    assert answers("ab +b") == [None, 1]


def test_the_first_answer_wins_and_the_second_is_told():
    assert answers("a +a +a") == [1]
    assert leftovers("a +a +a") == [(2, "duplicate")]


def test_a_result_never_answers_a_call_behind_it():
    assert answers("+a a") == [None]
    assert leftovers("+a a") == [(0, "orphan")]


def test_a_late_result_finds_its_call():
    assert answers("a b +b +a") == [3, 2]


def test_a_label_that_comes_back_crosses_nothing():
    assert answers("x +x x +x x +x") == [1, 3, 5]


def test_a_result_is_of_the_latest_round_that_uses_its_label():
    assert answers("x x +x") == [None, 2]
    assert answers("x x +x +x") == [None, 2]
    assert leftovers("x x +x +x") == [(3, "duplicate")]


def test_calls_of_one_label_in_one_message_are_answered_in_order():
    assert answers("xx +x +x") == [1, 2]


def test_empty_labels_are_labels():
    items = [Asked(((0, ""), (1, ""))), Given(2, ""), Given(3, "")]
    assert pair(items).answers == ((0, 2), (1, 3))


ITEMS = st.lists(st.text("ab", min_size=1, max_size=3) | st.sampled_from(["+a", "+b", "+c"]), max_size=12)


@given(ITEMS)
def test_every_call_and_every_result_stands_in_the_answer_once(words):
    found = read(" ".join(words))
    used = [result for _, result in found.answers if result is not None] + [item.place for item in found.leftovers]
    assert sorted(used) == [(at, 0) for at, word in enumerate(words) if word.startswith("+")]
    calls = [(at, index) for at, word in enumerate(words) if word[0] != "+" for index in range(len(word))]
    assert [call for call, _ in found.answers] == calls


@given(ITEMS)
def test_a_result_stands_behind_its_call_and_has_its_label(words):
    for call, result in read(" ".join(words)).answers:
        if result is not None:
            assert call < result
            assert words[call[0]][call[1]] == words[result[0]][1]
