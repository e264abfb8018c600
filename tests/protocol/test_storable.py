"""What can be stored is taken as it is, everything else is refused with its path, or replaced visibly."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import types
import unittest.mock
import uuid
from typing import Any

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import MAX_DEPTH, check_json, clean_json, clean_text, make_storable

SOUND = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number or 0.0)
STORABLE = st.recursive(
    st.none() | st.booleans() | NUMBERS | SOUND,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SOUND, inner, max_size=4),
    max_leaves=20,
)
ANY_TEXT = st.text(st.characters())  # lone surrogates and NUL among it


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, math.nan)


class Level(enum.IntEnum):
    HIGH = 3


class Name(enum.StrEnum):
    ANN = "ann"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Liar:
    @property
    def __class__(self):
        raise RuntimeError("no")


class BrokenMapping(collections.UserDict):
    def __getitem__(self, key: Any) -> Any:
        raise OSError("gone")


class NumpyLike:
    def tolist(self) -> list[Any]:
        return [1, (2, math.inf)]


@attrs.define
class Node:
    name: str
    next: Any = None


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


class Model(pydantic.BaseModel):
    at: dt.date
    tags: set[str]


HASHABLE = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary() | st.sampled_from(Colour)
ANYTHING = st.recursive(
    HASHABLE
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.fractions()
    | st.complex_numbers()
    | st.builds(Unshowable)
    | st.builds(Liar)
    | st.builds(BrokenMapping, st.just({"a": 1}))
    | st.sampled_from([NumpyLike(), object, Level.HIGH, range(3), len, ...]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE | st.tuples(HASHABLE, HASHABLE), inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(Node, ANY_TEXT, inner)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=12,
)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# --- refusing ----------------------------------------------------------------------------------------------------


@given(STORABLE)
def test_storable_json_is_accepted_and_survives_utf8(value):
    check_json(value)
    assert json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [0, {"b": math.nan}]}, "data.a[1].b: nan is no JSON number"),
        ([math.inf], "data[0]: inf is no JSON number"),
        ([-math.inf], "data[0]: -inf is no JSON number"),
        ({"x": -0.0}, "data.x: -0.0 is no JSON number"),
        ({"x y": "\ud800"}, "data['x y']: holds a lone surrogate"),
        ({"\ud800": 1}, r"data['\ud800']: holds a lone surrogate"),
        ("a\0b", "data: holds NUL (U+0000)"),
        ({"a\0": 1}, r"data['a\x00']: holds NUL (U+0000)"),
        ({"a": {1: 2}}, "data.a[a int]: only strings can be keys"),
        ({"a": (1,)}, "data.a: tuple is not JSON"),
        ([{1}], "data[0]: set is not JSON"),
        ([b"x"], "data[0]: bytes is not JSON"),
        ([Level.HIGH], "data[0]: Level is not JSON"),
        ([Name.ANN], "data[0]: Name is not JSON"),
        ({"a": Unshowable()}, "data.a: Unshowable is not JSON"),
        ([10**4300], "data[0]: a whole number of more than 4300 digits"),
    ],
)
def test_what_is_not_storable_is_refused_with_its_path(value, words):
    with pytest.raises(InvalidInput) as caught:
        check_json(value)
    assert str(caught.value) == words


def test_the_path_starts_where_the_caller_says():
    with pytest.raises(InvalidInput, match=r"^arguments\.x: tuple"):
        check_json({"x": ()}, "arguments")


def test_the_deepest_nesting_is_accepted_and_one_more_level_is_refused():
    check_json(deep(MAX_DEPTH))
    with pytest.raises(InvalidInput, match="nested too deeply"):
        check_json(deep(MAX_DEPTH + 1))


def test_a_cycle_is_refused_without_a_recursion_error():
    cycle: dict[str, Any] = {}
    cycle["self"] = [cycle]
    with pytest.raises(InvalidInput, match=r"data\.self\[0\]\.self.*nested too deeply"):
        check_json(cycle)


def test_large_whole_numbers_are_kept():
    assert make_storable([2**63, -(10**4000)]) == [2**63, -(10**4000)]
    check_json(10**4299)


# --- replacing ---------------------------------------------------------------------------------------------------


@given(ANYTHING)
def test_anything_can_be_made_storable(value):
    check_json(make_storable(value))


@given(STORABLE)
def test_what_is_storable_stays_as_it_is(value):
    made = make_storable(value)
    assert json.dumps(made) == json.dumps(value)


def test_the_answer_is_a_copy_that_later_changes_do_not_reach():
    rows = [{"a": [1]}]
    made = make_storable(rows)
    rows[0]["a"].append(2)
    assert made == [{"a": [1]}]


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ("a\0b\ud800", "a\u2400b\ufffd"),
        ((1, (2,)), [1, [2]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset([10, 9]), [10, 9]),
        (collections.deque([1]), [1]),
        ({"b": 1, "a": 2}.keys(), ["b", "a"]),
        ({1: "x", None: "y", False: "z"}, {"1": "x", "null": "y", "false": "z"}),
        ({(1, "a"): 1, 2.5: 2, Colour.RED: 3, "k\0": 4}, {'[1,"a"]': 1, "2.5": 2, "red": 3, "k\u2400": 4}),
        ({1: "a", "1": "b", "1 (2)": "c"}, {"1": "a", "1 (2)": "b", "1 (2) (2)": "c"}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (b"\xff", "b'\\xff'"),
        (bytearray(b"a"), "b'a'"),
        (memoryview(b"a"), "b'a'"),
        (range(10**12), "range(0, 1000000000000)"),
        (Colour.PAIR, [1, "NaN"]),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.timedelta(minutes=1), "0:01:00"),
        (pathlib.PurePosixPath("/a/\udcff"), "/a/\ufffd"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (1 + 2j, "(1+2j)"),
        (Node("n"), {"name": "n", "next": None}),
        (Point(1, {2}), {"x": 1, "y": [2]}),
        (Model(at="2026-01-02", tags={"t"}), {"at": "2026-01-02", "tags": ["t"]}),
        (NumpyLike(), [1, [2, "Infinity"]]),
        (dict, "<class 'dict'>"),
        (Unshowable(), "<Unshowable that cannot be shown>"),
        ([1, BrokenMapping(a=1), 2], [1, "<BrokenMapping that cannot be shown>", 2]),
        ([10**4300], ["<whole number of 14285 bits>"]),
    ],
)
def test_what_is_not_storable_is_replaced_visibly(value, made):
    assert make_storable(value) == made


def test_negative_zero_becomes_zero():
    assert math.copysign(1, make_storable(-0.0)) == 1


@pytest.mark.parametrize(("value", "kind"), [(Level.HIGH, int), (Name.ANN, str), (True, bool)])
def test_subclasses_of_plain_types_become_exactly_those_types(value, kind):
    assert type(make_storable(value)) is kind


def test_a_cycle_is_cut_where_it_closes():
    node = Node("a")
    node.next = [node]
    assert make_storable(node) == {"name": "a", "next": ["<Node that contains itself>"]}


def test_the_same_object_twice_is_no_cycle():
    shared = {"a": 1}
    assert make_storable([shared, shared]) == [{"a": 1}, {"a": 1}]


def test_the_deepest_nesting_is_kept_and_one_more_level_is_cut_with_a_mark():
    assert make_storable(deep(MAX_DEPTH)) == deep(MAX_DEPTH)
    assert "<list nested too deeply>" in json.dumps(make_storable(deep(MAX_DEPTH + 1)))


def test_objects_that_all_refer_to_each_other_end_with_a_mark():
    nodes = [Node(str(number)) for number in range(30)]
    for node in nodes:
        node.next = list(nodes)
    made = make_storable(nodes)
    assert "left out: the whole is too large" in json.dumps(made)


def test_an_object_that_claims_every_attribute_is_shown_by_its_repr():
    assert make_storable(unittest.mock.MagicMock(name="tool")).startswith("<MagicMock name='tool'")


# --- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("", ""),
        ("plain \x7f\x01\u2028", "plain \x7f\x01\u2028"),
        ("a\0\0", "a\u2400\u2400"),
        ("\ud800a\udfff", "\ufffda\ufffd"),
        ("\ud83d" + "\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_text_keeps_every_character_but_nul_and_lone_surrogates(text, clean):
    assert clean_text(text) == clean


@given(ANY_TEXT)
def test_clean_text_is_storable_and_cleaning_it_again_changes_nothing(text):
    clean = clean_text(text)
    check_json(clean)
    assert clean_text(clean) == clean


# --- what can be written as JSON stays, the rest is replaced -----------------------------------------------------

SENDABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SOUND,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SOUND, inner, max_size=4),
    max_leaves=20,
)
UNSENDABLE = st.recursive(
    SENDABLE | st.floats() | ANY_TEXT | st.builds(object) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(ANY_TEXT | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(SENDABLE)
def test_what_can_be_written_as_json_is_the_same_object(value):
    assert clean_json(value) is value


@given(UNSENDABLE)
def test_what_cannot_can_be_afterwards(value):
    clean = clean_json(value)
    json.dumps(clean, ensure_ascii=False, allow_nan=False).encode()
    assert clean_json(clean) is clean


@given(st.dictionaries(ANY_TEXT, st.integers(), max_size=6))
def test_no_entry_is_lost_when_keys_become_alike(value):
    assert list(clean_json(value).values()) == list(value.values())


def test_parts_that_need_nothing_stay_the_same_objects_beside_one_that_does():
    fine = {"zero": -0.0, "list": [1.0]}
    clean = clean_json({"bad": math.nan, "fine": fine})
    assert (clean["bad"], list(clean)) == ("NaN", ["bad", "fine"])
    assert clean["fine"] is fine


def test_a_number_of_more_digits_than_python_writes_is_named():
    assert clean_json([10**5000]) == make_storable([10**5000])


def test_what_contains_itself_or_is_nested_too_deeply_is_replaced():
    loop = [1]
    loop.append(loop)
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    for value in (loop, deep):
        json.dumps(clean_json(value))
