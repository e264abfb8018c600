"""How a model on an official SDK is made, and what is refused; and that its key stays where it is."""

from __future__ import annotations

import sys

import anthropic
import openai
import pytest
from attrs import evolve

from quiesce.actors.models.anthropic import AnthropicModel
from quiesce.actors.models.openai_chat import OpenAIChatModel
from quiesce.actors.models.openai_responses import OpenAIResponsesModel
from quiesce.actors.models.specs import model_from
from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.errors import InvalidInput

KEY = "test-key-0123456789"
MODELS = [OpenAIChatModel, OpenAIResponsesModel, AnthropicModel]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """No key and no address of this machine's own."""
    for name in ("API_KEY", "ADMIN_KEY", "BASE_URL", "AUTH_TOKEN"):
        monkeypatch.delenv(f"OPENAI_{name}", raising=False)
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))


@pytest.mark.parametrize(("make", "provider"), [*zip(MODELS, ["openai", "openai-responses", "anthropic"], strict=True)])
async def test_a_model_has_the_profile_of_its_provider_with_its_own_name(make, provider):
    async with make("m-1", api_key=KEY) as model:
        assert (model.name, model.provider, model.profile.identity) == ("m-1", provider, (provider, "m-1"))


@pytest.mark.parametrize(
    ("address", "provider"),
    [
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "openai"),
        ("https://example.org/api.mistral.ai", "compatible"),
        ("https://api.openai.com.example.org", "compatible"),
        ("https://myapi.openai.com.example", "compatible"),
        ("https://notapi.mistral.ai", "compatible"),
        ("http://localhost:11434/v1", "compatible"),
        ("http://127.0.0.1:8000/v1", "compatible"),
        ("http://[::1]:8000/v1", "compatible"),
    ],
)
async def test_the_address_of_a_known_server_brings_its_profile_and_another_that_of_any_compatible_one(
    address, provider
):
    async with OpenAIChatModel("m", api_key=KEY, base_url=address) as model:
        assert model.provider == provider


async def test_the_address_may_come_from_the_variable_of_the_sdk_or_from_a_client(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.deepseek.com")
    async with OpenAIChatModel("m", api_key=KEY) as model, openai.AsyncOpenAI(api_key=KEY) as mine:
        assert (model.provider, OpenAIChatModel("m", client=mine).provider) == ("deepseek", "deepseek")


async def test_a_profile_that_is_given_counts():
    mine = evolve(PROFILES["strict-chat"], provider="mine")
    async with OpenAIChatModel("m", api_key=KEY, base_url="https://api.deepseek.com", profile=mine) as model:
        assert model.profile == evolve(mine, model="m")


# --- what is refused ---------------------------------------------------------------------------------------------

REFUSED = {
    "model": [{"name": ""}, {"name": " "}, {"name": 5}, {"name": "a\0"}],
    "base_url": [{"base_url": "localhost:80"}, {"base_url": 5}],
    "api_key": [{"api_key": ""}, {"api_key": 5}, {"api_key": "a\nb"}, {"api_key": "schlüssel"}],
    "timeout": [{"timeout": 0}, {"timeout": -1}, {"timeout": "5"}, {"timeout": float("inf")}, {"timeout": True}],
    "max_tokens": [{"max_tokens": 0}, {"max_tokens": 1.5}],
    "temperature": [{"temperature": -1}, {"temperature": "hot"}, {"temperature": float("nan")}],
    "extra_body": [{"extra_body": 5}, {"extra_body": {"x": object()}}, {"extra_body": {"messages": []}}],
    "profile": [{"profile": "openai"}, {"profile": evolve(PROFILES["openai"], dialect="other")}],
    "client": [{"client": object(), "api_key": None}],
}


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("field", "options"),
    [
        pytest.param(field, options, id=f"{field}-{number}")
        for field, all_of in REFUSED.items()
        for number, options in enumerate(all_of, 1)
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(make, field, options):
    given = {"name": "m", "api_key": KEY, **options}
    with pytest.raises(InvalidInput, match=f"^{field}") as caught:
        make(given.pop("name"), **given)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("make", MODELS)
def test_without_a_key_it_says_which_variable_to_set(make):
    with pytest.raises(InvalidInput, match=r"^api_key: there is none; set (OPENAI|ANTHROPIC)_API_KEY") as caught:
        make("m")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", MODELS)
async def test_the_key_may_come_from_the_variable_of_the_sdk(make, monkeypatch):
    monkeypatch.setenv(make.sdk.key_variable, KEY)
    async with make("m") as model:
        assert model._api.around().secrets == (KEY,)


@pytest.mark.parametrize("make", MODELS)
def test_without_the_sdk_it_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, make.sdk.name, None)
    with pytest.raises(InvalidInput, match=rf"pip install 'quiesce\[{make.sdk.name}\]'"):
        make("m", api_key=KEY)


@pytest.mark.parametrize("make", MODELS)
async def test_the_key_is_not_shown(make):
    async with make("m", api_key=KEY) as model:
        assert KEY not in f"{model!r} {model} {model._api!r} {model.profile!r}"


# --- a client of one's own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "client"),
    [
        (OpenAIChatModel, openai.AsyncOpenAI),
        (OpenAIResponsesModel, openai.AsyncOpenAI),
        (AnthropicModel, anthropic.AsyncAnthropic),
    ],
)
async def test_a_client_of_the_users_is_not_closed_and_does_not_retry(make, client):
    async with client(api_key=KEY, max_retries=5) as mine:
        async with make("m", client=mine) as model:
            assert model._api.client.max_retries == 0
            assert mine.max_retries == 5
        assert not mine.is_closed()


async def test_what_belongs_to_a_client_is_not_given_beside_it():
    async with openai.AsyncOpenAI(api_key=KEY) as mine:
        with pytest.raises(InvalidInput, match=r"^api_key: belongs to the client"):
            OpenAIChatModel("m", client=mine, api_key=KEY)


# --- specs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("openai:gpt-x", OpenAIChatModel),
        ("responses:gpt-x", OpenAIResponsesModel),
        ("anthropic:gpt-x", AnthropicModel),
        ("openai:a/b:latest", OpenAIChatModel),
    ],
)
async def test_a_spec_names_a_model(spec, kind, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with model_from(spec, base_url="http://127.0.0.1:1/v1") as model:
        assert (type(model), model.name) == (kind, spec.partition(":")[2])


@pytest.mark.parametrize("spec", ["", "gpt-x", "openai", "openai:", "openai: ", "other:gpt-x", ":gpt-x"])
def test_any_other_spec_is_refused(spec):
    with pytest.raises(InvalidInput, match=r"^model: must be one of openai:NAME, responses:NAME, anthropic:NAME, not"):
        model_from(spec)
