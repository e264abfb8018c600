"""`OpenAIResponsesModel`: OpenAI Responses, on the official SDK.

Nothing is stored at the provider: the whole history is sent each time, reasoning included, which comes encrypted and
goes back as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from quiesce.actors.models.clients import OPENAI
from quiesce.actors.models.provider import Dialect, ProviderModel
from quiesce.protocol.dialects.responses.parse import Stream
from quiesce.protocol.dialects.responses.render import Renderer, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quiesce.protocol.events import JsonObject

__all__ = ["OpenAIResponsesModel"]

_UNREASONING: Final = ("gpt-3", "gpt-4", "chatgpt-4")
"""How the names of OpenAI's models begin that do not reason: they refuse to be asked for encrypted reasoning."""


class OpenAIResponsesModel(ProviderModel):
    """A model behind OpenAI Responses. `ProviderModel` tells of its options."""

    sdk = OPENAI
    dialect = Dialect(Renderer, request, Stream, "/responses")
    profiles: ClassVar[Mapping[str, str]] = {"": "openai-responses"}

    def _options(self) -> JsonObject:
        options: JsonObject = {"max_output_tokens": self._limit, "store": False}
        if not self.name.startswith(_UNREASONING):
            options["include"] = ["reasoning.encrypted_content"]
        return options
