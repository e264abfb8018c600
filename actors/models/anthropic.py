"""`AnthropicModel`: Anthropic Messages, on the official SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from quiesce.actors.models.clients import Sdk
from quiesce.actors.models.provider import Dialect, ProviderModel
from quiesce.protocol.dialects.anthropic.parse import Stream
from quiesce.protocol.dialects.anthropic.render import Renderer, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quiesce.protocol.events import JsonObject

__all__ = ["AnthropicModel"]

_MAX_TOKENS: Final = 8192
"""The dialect has no default, so this is ours. A model that allows fewer says so; give `max_tokens` then."""


_ANTHROPIC: Final = Sdk(
    "anthropic",
    "AsyncAnthropic",
    "AnthropicError",
    "ANTHROPIC_API_KEY",
    ("api_key", "auth_token", "credentials"),
)


class AnthropicModel(ProviderModel):
    """A model behind Anthropic Messages. `ProviderModel` tells of its options."""

    sdk = _ANTHROPIC
    dialect = Dialect(Renderer, request, Stream, "/v1/messages")
    profiles: ClassVar[Mapping[str, str]] = {"": "anthropic"}

    def _options(self) -> JsonObject:
        return {"max_tokens": self._limit or _MAX_TOKENS}
