"""Media that are longer than a server takes are named by a line of text: they would refuse every later request, too."""

from __future__ import annotations

import pytest
from attrs import evolve

from quiesce.protocol.dialects import DIALECTS, PROFILES, dialect_of
from quiesce.protocol.dialects.profile import MediaLimits
from quiesce.protocol.events import ModelMessage, OpaqueBlock, ToolCallBlock, ToolMessage, UserMessage

GO = UserMessage((), {"kind": "user"}, "user", "u")
TYPES = {"image": "image/png", "document": "application/pdf", "audio": "audio/wav"}


def block(kind, length, name=None):
    data = {"type": kind, "mediaType": TYPES[kind], "data": "A" * length}
    return OpaqueBlock(data if name is None else {**data, "name": name})


def shown(profile, *blocks):
    """The content of a user's message that holds these."""
    return dialect_of(profile).render((UserMessage(blocks, {}, "user", "u"),), profile)[0]["content"]


@pytest.mark.parametrize(
    ("name", "kind", "most"),
    [
        ("openai-responses", "image", 20_971_496),
        ("openai-responses", "document", 73_400_292),
        ("anthropic", "image", 5_242_880),
    ],
)
def test_the_limits_of_the_vendors_are_kept(name, kind, most):
    profile = PROFILES[name]
    for length, fits in ((most, True), (most + 4, False)):
        content = shown(profile, block(kind, length))
        is_shown = type(content) is list
        assert is_shown is fits
        assert dialect_of(profile).problems([{"role": "user", "content": content}], profile) == []


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [(dialect, kind) for dialect in DIALECTS for kind in TYPES if kind != "audio" or dialect == "chat"],
)
def test_a_limit_holds_for_its_kind_of_media_alone(dialect, kind):
    profile = evolve(PROFILES[f"any-{dialect}"], max_media=MediaLimits(**{kind: 100}))
    content = shown(profile, *(block(each, 200) for each in TYPES))
    assert [str(part.get("text")).startswith(f"[{kind}") and "too large" in part["text"] for part in content] == [
        each == kind for each in TYPES
    ]


@pytest.mark.parametrize("name", ["openai-responses", "anthropic"])
def test_the_line_says_what_it_was_and_how_large(name):
    profile = evolve(PROFILES[name], max_media=MediaLimits(image=1000))
    length = 2000 if name == "anthropic" else 2000 + len("data:image/png;base64,")
    words = f"[image image/png a.png: too large to be shown here, {length:,} characters where 1,000 go]"
    assert shown(profile, block("image", 2000, "a.png")) == words


@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic"])
def test_what_is_too_large_in_a_result_is_named_in_the_result(name):
    profile = evolve(PROFILES[name], max_media=MediaLimits(image=1000))
    asked = ModelMessage("assistant", (ToolCallBlock("c1", "shot", "{}"),), {}, "m")
    results = [ToolMessage("tool", "c1", (block("image", length),), is_error=False, id="t") for length in (2000, 400)]
    large, small = (dialect_of(profile).render((asked, result), profile) for result in results)
    assert "too large to be shown here" in str(large)
    assert "too large" not in str(small)
    for sent in (large, small):
        assert dialect_of(profile).problems(sent, profile) == []


ORIGINALS = {
    "openai": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2000, "detail": "low"}},
    "openai-responses": {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64," + "A" * 2000},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 2000},
        "cache_control": {"type": "ephemeral"},
    },
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_what_a_transcript_of_the_same_server_held_is_no_exception(name):
    profile, given = PROFILES[name], [{"role": "user", "content": [ORIGINALS[name]]}]
    messages = dialect_of(profile).read(given, profile)
    assert dialect_of(profile).render(messages, profile) == given
    limited = evolve(profile, max_media=MediaLimits(image=1000))
    assert "too large to be shown here" in dialect_of(profile).render(messages, limited)[0]["content"]


@pytest.mark.parametrize("name", [name for name in PROFILES if name.startswith("any-")])
def test_the_most_lenient_profiles_have_no_limit(name):
    assert PROFILES[name].max_media == MediaLimits()
