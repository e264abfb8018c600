"""What is rendered, judged by the fake provider's validator, which shares no code with the package and its checkers."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES, dialect_of
from quiesce.protocol.model import ModelRequest, ToolSpec

VARIANTS = {
    **{name: name for name in ("openai", "anthropic", "deepseek", "mistral", "compatible")},
    "openai-responses": "openai",
    **{f"strict-{dialect}": "strict" for dialect in ("chat", "responses", "anthropic")},
}
"""Profile -> the variant of the fake provider that plays such a server."""
TOOLS = (ToolSpec("calendar.read", "Read.", {"type": "object"}), ToolSpec("read", "Read.", {"type": "object"}))


def judged(fake_provider, profile, asked, **more):
    body = {"model": "m", "max_tokens": 9} if profile.dialect == "anthropic" else {"model": "m"}
    body |= dialect_of(profile).request(asked, profile) | more
    rules = fake_provider.VARIANTS[VARIANTS[profile.name]]
    return [str(problem) for problem in fake_provider.problems(profile.dialect, body, rules)]


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=25)
@given(data=st.data())
def test_g9_any_list_of_messages_from_elsewhere_is_taken_by_the_fake_provider(data, name, histories, fake_provider):
    """What a server attached to its own answers is not among them: the fake provider knows its own seals alone."""
    profile = evolve(PROFILES[name], provider="somebody else")
    system, tools = (
        data.draw(st.sampled_from([None, "Be brief.", " ", "a\0\ud800"])),
        data.draw(st.sampled_from([(), TOOLS])),
    )
    asked = ModelRequest("s", 1, 1, data.draw(histories.messages), tools, system)
    assert judged(fake_provider, profile, asked) == []


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=25)
@given(data=st.data())
def test_g9_any_foreign_list_is_taken_by_the_fake_provider(data, name, histories, fake_provider):
    profile = evolve(PROFILES[name], provider="somebody else")
    source = data.draw(st.sampled_from(list(PROFILES.values())))
    messages = dialect_of(source).read(data.draw(histories.foreign[source.dialect]), source)
    assert judged(fake_provider, profile, ModelRequest("s", 1, 1, messages)) == []
