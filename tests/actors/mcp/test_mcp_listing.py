"""The tools that a server lists, as tools of an agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.actors import Toolbox
from quiesce.actors.mcp import McpServer
from quiesce.actors.mcp.listing import offered, offered_name
from quiesce.actors.tools import Tool

SERVER = McpServer("weather", timeout=7)


async def nobody(name, arguments):
    return (name, arguments)


def listed(*items, server=SERVER):
    return offered(server, items, nobody)


def item(name="now", **more):
    return {"name": name, "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}, **more}


def test_a_tool_has_the_name_of_its_server_before_its_own():
    (tool,), problems = listed(item(description="The weather."))
    assert (tool.name, tool.description, tool.parameters) == ("weather__now", "The weather.", item()["inputSchema"])
    assert tool.timeout == 7
    assert problems == ()


async def test_it_calls_the_server_by_the_servers_own_name():
    (tool,), _ = listed(item("strange name"))
    assert await tool.function(city="Oslo") == ("strange name", {"city": "Oslo"})


@pytest.mark.parametrize(
    ("annotations", "parallel"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": False}, False),
        ({"idempotentHint": True}, False),
        ({"readOnlyHint": "true"}, False),
        ({}, False),
        (None, False),
        ("read only", False),
    ],
)
def test_only_a_tool_that_says_it_only_reads_is_parallel(annotations, parallel):
    (tool,), _ = listed(item(annotations=annotations))
    assert tool.parallel is parallel


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("text", "without a name"),
        ({}, "without a name"),
        ({"name": 3, "inputSchema": {}}, "without a name"),
        ({"name": "x"}, "no schema"),
        ({"name": "x", "inputSchema": None}, "no schema"),
        ({"name": "x", "inputSchema": {"type": "string"}}, "schema of an object"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_left_out_and_the_others_stay(bad, says):
    tools, (problem,) = listed(item("a"), bad, item("b"))
    assert [tool.name for tool in tools] == ["weather__a", "weather__b"]
    assert says in problem


def test_of_two_tools_of_one_name_the_first_stays():
    (tool,), (problem,) = listed(item(description="first"), item(description="second"))
    assert tool.description == "first"
    assert "twice" in problem


def test_a_description_that_cannot_be_stored_is_made_storable():
    (tool,), _ = listed(item(description="a\0b\ud800"))
    assert "\0" not in tool.description
    assert tool.description.encode()


def test_the_title_stands_in_for_a_description():
    (tool,), _ = listed(item(title="Weather", description=" "))
    assert tool.description == "Weather"


NAMES = st.text(min_size=1, max_size=200)


@given(NAMES)
def test_any_name_that_a_server_gives_can_be_offered(name):
    (tool,), problems = listed(item(name))
    assert problems == ()
    assert len(tool.name) <= 128


@given(NAMES, NAMES)
def test_different_names_stay_different(one, other):
    if one != other:
        assert offered_name("p__", one) != offered_name("p__", other)


def test_a_name_that_fits_is_kept():
    assert offered_name("p__", "read.file-1") == "p__read.file-1"


# --- shelves -----------------------------------------------------------------------------------------------------


def made(name):
    return Tool.from_schema(name, "", {}, nobody_else)


async def nobody_else(arguments):
    return None


def names(box):
    return [tool.name for tool in box]


def test_a_shelf_stands_behind_the_tools_of_the_agent_itself():
    box = Toolbox([made("own")])
    assert box.shelve("s", [made("a"), made("b")]) == ()
    assert names(box) == ["own", "a", "b"]
    assert [spec.name for spec in box.specs()] == ["own", "a", "b"]


def test_a_shelf_that_is_filled_anew_has_nothing_left_of_what_it_had():
    box = Toolbox([made("own")])
    box.shelve("s", [made("a"), made("b")])
    box.shelve("other", [made("c")])
    box.shelve("s", [made("b"), made("d")])
    assert sorted(names(box)) == ["b", "c", "d", "own"]
    assert box.get("a") is None


def test_a_name_that_is_taken_stays_with_who_has_it():
    own = made("own")
    box = Toolbox([own])
    box.shelve("s", [made("a")])
    assert box.shelve("other", [made("own"), made("a"), made("b")]) == ("own", "a")
    assert box.get("own") is own
    box.shelve("other", [])
    assert names(box) == ["own", "a"]


def test_shelves_keep_their_order_whoever_is_filled_first():
    box = Toolbox()
    for shelf in ("one", "two"):
        box.shelve(shelf, [])
    box.shelve("two", [made("b")])
    box.shelve("one", [made("a")])
    assert names(box) == ["a", "b"]
