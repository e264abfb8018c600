"""What the tests of the models on real SDKs share: a model of each dialect at a fake provider, and what to ask it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest

from quiesce.actors.models.anthropic import AnthropicModel
from quiesce.actors.models.openai_chat import OpenAIChatModel
from quiesce.actors.models.openai_responses import OpenAIResponsesModel
from quiesce.protocol.events import TextBlock, UserMessage
from quiesce.protocol.model import ModelRequest, ReplyAssembler, ToolSpec

MODELS = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel, "anthropic": AnthropicModel}
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


class Bench:
    """A fake provider with a model at it, of one dialect."""

    def __init__(self, fp, provider, model, dialect):
        self.fp = fp
        self.provider = provider
        self.model = model
        self.dialect = dialect

    async def reply(self, *said, tools=(READ,), messages=None):
        """What the model answers to a user who says that: the finished assembly."""
        answer = ReplyAssembler()
        asked = messages or [
            UserMessage((TextBlock(text),), {"kind": "user"}, "user", f"u{at}")
            for at, text in enumerate(said or ["Hi"])
        ]
        await self.model.respond(ModelRequest("s", 1, 1, tuple(asked), tuple(tools), "Be brief."), answer.add)
        return answer


def model_at(provider, dialect, **options):
    """A model of that dialect whose requests go to the fake provider."""
    address = provider.root_url if dialect == "anthropic" else provider.base_url
    return MODELS[dialect]("test-model", base_url=address, api_key=provider.key, **options)


@asynccontextmanager
async def _open_bench(fp, dialect, script, *, variant=None, **options):
    usual = {"chat": "compatible", "responses": "openai", "anthropic": "anthropic"}[dialect]
    async with (
        fp.FakeProvider(script, variant=variant or usual) as provider,
        model_at(provider, dialect, **options) as model,
    ):
        yield Bench(fp, provider, model, dialect)
        assert provider.refused == []


@pytest.fixture(params=list(MODELS))
def dialect(request):
    """Each of the three dialects."""
    return request.param


@pytest.fixture
def bench(fake_provider, dialect):
    """For each dialect, what opens a `Bench`: it takes a script and the model's options."""
    return partial(_open_bench, fake_provider, dialect)


@pytest.fixture
def chat_bench(fake_provider):
    """As `bench`, for Chat Completions alone."""
    return partial(_open_bench, fake_provider, "chat")


@pytest.fixture
def at_provider():
    """The function `model_at`."""
    return model_at
