"""What a server answers, as the result that a model reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.actors.mcp.content import result_of
from quiesce.actors.results import to_outcome
from quiesce.protocol.codec import check_draft
from quiesce.protocol.events import OpaqueBlock, TextBlock, draft
from quiesce.protocol.outcome import result_body

CASES = Path(__file__).parents[2] / "cases"
IMAGE = OpaqueBlock({"type": "image", "mediaType": "image/png", "data": "AAAA"})
SILENT_ERROR = TextBlock("The tool reported an error and said nothing about it.")


def read(answer):
    """Whether it is an error, and its blocks."""
    outcome = to_outcome(result_of(answer))
    return outcome.is_error, list(outcome.content)


def block(item):
    """The one block that an item becomes."""
    is_error, blocks = read({"content": [item]})
    assert not is_error
    (made,) = blocks
    return made


B60 = [
    (False, [TextBlock('{"id":1}')]),
    (True, [TextBlock('{"code":"BUSY"}')]),
    (True, [TextBlock("quota exceeded")]),
    (True, [IMAGE, SILENT_ERROR]),
    (False, [TextBlock("(no output)")]),
    (False, [TextBlock("[content of type 'hologram' is not shown: it is of an unknown kind]")]),
]


@pytest.mark.parametrize(("at", "expected"), list(enumerate(B60)))
def test_each_variant_of_case_b60_gives_what_is_expected(at, expected):
    (path,) = CASES.glob("B60-*.mcp.json")
    assert read(json.loads(path.read_text())[at]) == expected


def test_case_b60_has_no_other_variants():
    (path,) = CASES.glob("B60-*.mcp.json")
    assert len(json.loads(path.read_text())) == len(B60)


def test_blocks_keep_their_order():
    answer = {"content": [{"type": "text", "text": "a"}, {"type": "image", "mimeType": "image/png", "data": "AAAA"}]}
    assert read({"content": [*answer["content"], {"type": "text", "text": "b"}]}) == (
        False,
        [TextBlock("a"), IMAGE, TextBlock("b")],
    )


def test_audio_is_a_neutral_block():
    made = block({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"})
    assert made == OpaqueBlock({"type": "audio", "mediaType": "audio/wav", "data": "AAAA"})


def test_base64_that_was_broken_into_lines_is_joined():
    assert block({"type": "image", "mimeType": "image/png", "data": "AA\nAA\n"}) == IMAGE


@pytest.mark.parametrize("data", ["no base64!", "AAA", "", "A-_A", None, 3])
def test_an_image_that_is_none_is_named_since_a_provider_would_refuse_the_history_for_it(data):
    made = block({"type": "image", "mimeType": "image/png", "data": data})
    assert made == TextBlock("[content of type 'image' is not shown: it is not well-formed]")


def test_a_resource_with_text_is_its_uri_and_its_text():
    resource = {"uri": "file:///notes.txt", "mimeType": "text/plain", "text": "buy milk"}
    assert block({"type": "resource", "resource": resource}) == TextBlock("[resource file:///notes.txt]\nbuy milk")


@pytest.mark.parametrize(
    ("media_type", "kind"), [("image/png", "image"), ("audio/mpeg", "audio"), ("application/pdf", "document")]
)
def test_a_resource_with_bytes_that_providers_know_is_a_neutral_block(media_type, kind):
    resource = {"uri": "file:///x", "mimeType": media_type, "blob": "AAAA"}
    made = block({"type": "resource", "resource": resource})
    assert made == OpaqueBlock({"type": kind, "mediaType": media_type, "data": "AAAA"})


def test_a_resource_with_other_bytes_is_named_and_kept_beside():
    item = {"type": "resource", "resource": {"uri": "file:///x.zip", "mimeType": "application/zip", "blob": "AAAA"}}
    result = result_of({"content": [item]})
    assert result.content == [TextBlock("[resource file:///x.zip, application/zip, is not shown]")]
    assert result.meta == {"notShown": [item]}


def test_a_resource_link_is_its_description():
    link = {"type": "resource_link", "uri": "file:///a.md", "name": "a.md", "mimeType": "text/markdown"}
    assert block(link) == TextBlock("[resource link file:///a.md: a.md, text/markdown]")


def test_structured_content_beside_text_is_for_programs():
    result = result_of({"content": [{"type": "text", "text": "21 degrees"}], "structuredContent": {"t": 21}})
    assert result.content == [TextBlock("21 degrees")]
    assert result.meta == {"structuredContent": {"t": 21}}


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": " \n"}], None])
def test_structured_content_without_text_is_shown(content):
    answer = {"structuredContent": {"t": 21}, **({} if content is None else {"content": content})}
    assert TextBlock('{"t":21}') in read(answer)[1]


def test_what_stands_in_meta_is_kept_for_programs():
    assert result_of({"content": [], "_meta": {"cost": 3}}).meta == {"_meta": {"cost": 3}}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "It has no content."),
        ({"content": "text"}, "Its content is not a list."),
        ({"content": None}, "Its content is not a list."),
        ({"content": [], "isError": "yes"}, "It does not say whether it is an error."),
        ({"resultType": "input_required", "inputRequests": {}}, "It asks for input, which cannot be given here."),
    ],
)
def test_an_answer_that_is_no_result_is_an_error_that_shows_it(answer, says):
    is_error, (text,) = read(answer)
    assert is_error
    assert says in text.text
    assert json.dumps(answer, separators=(",", ":")) in text.text


@pytest.mark.parametrize("item", ["text", None, 3, [], {"type": ["text"]}, {}, {"type": "text"}, {"type": "resource"}])
def test_an_item_that_is_no_block_is_named(item):
    assert block(item).text.startswith("[content ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "hologram"])
KEYS = st.sampled_from(["text", "data", "mimeType", "uri", "resource", "blob", "name"])
ITEMS = st.builds(lambda kind, rest: {**rest, "type": kind}, TYPES, st.dictionaries(KEYS, JSON, max_size=4))
ANSWERS = st.fixed_dictionaries(
    {},
    optional={"content": st.lists(ITEMS | JSON, max_size=3), "structuredContent": JSON, "isError": JSON, "_meta": JSON},
)


@given(ANSWERS)
def test_any_answer_becomes_a_result_that_says_something_and_can_be_stored(answer):
    outcome = to_outcome(result_of(answer))
    assert outcome.content
    assert not outcome.is_error or any(isinstance(made, TextBlock) for made in outcome.content)
    check_draft(draft(result_body(outcome, turn=1, step=1, call_id="c", message_id="m")))


@given(st.lists(ITEMS, min_size=1, max_size=4))
def test_no_item_is_dropped(items):
    outcome = to_outcome(result_of({"content": items}))
    assert len(outcome.content) >= len(items)
