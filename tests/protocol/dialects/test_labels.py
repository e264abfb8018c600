"""Labels on the wire: ids of calls and names of tools."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from quiesce.protocol.dialects.labels import CallIds, mint, wire_name, wire_names
from quiesce.protocol.dialects.profile import PROFILES, LabelRule
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import ToolCallBlock

OPENAI, MISTRAL = PROFILES["openai"], PROFILES["mistral"]
EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
TEXT = st.text(max_size=90) | st.text("ab_", max_size=5)


def calls(*labels):
    return [ToolCallBlock(label, "t", "{}") for label in labels]


def test_what_is_minted_is_nine_letters_and_digits_and_the_same_each_time():
    assert mint(1, 2, "x") == mint(1, 2, "x") != mint(1, 2, "y")
    assert LabelRule("a-zA-Z0-9", 9, 9).allows(mint("anything"))


def test_an_id_that_fits_is_sent_as_it_is():
    assert CallIds(OPENAI).batch(calls("call_1", "shell:0")) == ["call_1", "shell:0"]


def test_an_id_is_used_once_in_a_request():
    ids = CallIds(OPENAI)
    first, second = ids.batch(calls("a", "a"))
    (third,) = ids.batch(calls("a"))
    assert first == "a"
    assert len({first, second, third}) == 3


def test_an_id_may_come_back_in_another_message_where_the_profile_lets_it():
    ids = CallIds(PROFILES["any-chat"])
    assert ids.batch(calls("a", "a"))[0] == "a"
    assert ids.batch(calls("a")) == ["a"]


def test_an_id_that_was_minted_before_is_not_given_again():
    minted = CallIds(MISTRAL).batch(calls("long label"))[0]
    ids = CallIds(MISTRAL)
    assert ids.batch(calls("long label")) == [minted]
    assert ids.batch(calls(minted)) != [minted]


@EVERY_PROFILE
@given(rounds=st.lists(st.lists(TEXT, max_size=4), max_size=5))
def test_ids_fit_and_are_distinct_and_what_comes_later_changes_none(profile, rounds):
    given_ids, ids = [], CallIds(profile)
    for labels in rounds:
        batch = ids.batch(calls(*labels))
        assert len(set(batch)) == len(labels)
        given_ids += batch
    assert all(map(profile.call_id.allows, given_ids))
    assert len(set(given_ids)) == len(given_ids) or not profile.unique_call_ids
    again = CallIds(profile)
    assert [label for labels in rounds[:2] for label in again.batch(calls(*labels))] == given_ids[
        : sum(map(len, rounds[:2]))
    ]


def test_a_valid_name_is_sent_as_it_is():
    assert wire_name("read_file-2", OPENAI) == "read_file-2"


def test_a_foreign_name_stays_readable_and_fits():
    name = wire_name("calendar/read", OPENAI)
    assert name.startswith("calendar_read_")
    assert OPENAI.tool_name.allows(name)


@EVERY_PROFILE
@given(first=TEXT, second=TEXT)
def test_names_fit_and_two_names_stay_two(profile, first, second):
    assume(first.strip() and second.strip() and first != second)
    assert profile.tool_name.allows(wire_name(first, profile))
    assert wire_name(first, profile) != wire_name(second, profile)
    assert wire_name(wire_name(first, profile), profile) == wire_name(first, profile)


def test_names_are_read_back_from_the_tools_on_offer():
    names = wire_names(["read", "calendar.read"], OPENAI)
    assert names == {"read": "read", wire_name("calendar.read", OPENAI): "calendar.read"}


@pytest.mark.parametrize("names", [["a", "a"], ["a.b", wire_name("a.b", OPENAI)], ["", " "]])
def test_two_tools_of_one_name_are_refused(names):
    with pytest.raises(InvalidInput, match="are both called"):
        wire_names(names, OPENAI)


def test_a_rule_of_another_server_is_a_value():
    short = evolve(OPENAI, tool_name=LabelRule("a-z", 12))
    assert len(wire_name("a_long_name_with_more", short)) <= 12
