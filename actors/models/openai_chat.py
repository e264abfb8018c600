"""`OpenAIChatModel`: Chat Completions, on the official SDK. Most servers that are compatible with OpenAI speak it.

What OpenAI alone is sure to take (the role `developer`, `max_completion_tokens`, arguments that are no JSON) is sent to
OpenAI alone: any other host has the profile of its vendor, or `compatible`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from quiesce.actors.models.clients import OPENAI
from quiesce.actors.models.provider import Dialect, ProviderModel
from quiesce.protocol.dialects.chat.parse import Stream
from quiesce.protocol.dialects.chat.render import Renderer, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quiesce.protocol.events import JsonObject

__all__ = ["OpenAIChatModel"]

_LIMITS: Final = {"openai": "max_completion_tokens"}
"""Provider -> what it calls the most tokens of an answer. OpenAI refuses the older `max_tokens` for newer models;
others know only that."""
_UNCOUNTED: Final = frozenset({"mistral"})
"""Providers that send usage unasked, and refuse to be asked (openai/openai-agents-python#442)."""


class OpenAIChatModel(ProviderModel):
    """A model behind Chat Completions. `ProviderModel` tells of its options."""

    sdk = OPENAI
    dialect = Dialect(Renderer, request, Stream, "/chat/completions")
    profiles: ClassVar[Mapping[str, str]] = {
        "": "compatible",
        "api.openai.com": "openai",
        "openai.azure.com": "openai",
        "api.deepseek.com": "deepseek",
        "api.mistral.ai": "mistral",
    }

    def _options(self) -> JsonObject:
        options: JsonObject = {_LIMITS.get(self.provider, "max_tokens"): self._limit}
        if self.provider not in _UNCOUNTED:
            options["stream_options"] = {"include_usage": True}
        return options
