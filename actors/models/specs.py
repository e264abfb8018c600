"""Models by a spec in one word, as a command line has it: `openai:NAME`, `responses:NAME`, `anthropic:NAME`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from quiesce.actors.models.provider import ProviderModel
    from quiesce.protocol.dialects.profile import Profile

__all__ = ["KINDS", "model_from"]

KINDS: Final = {
    "openai": ("openai_chat", "OpenAIChatModel"),
    "responses": ("openai_responses", "OpenAIResponsesModel"),
    "anthropic": ("anthropic", "AnthropicModel"),
}
"""What a spec may begin with -> the module and the class."""


def model_from(spec: str, base_url: str | None = None, profile: Profile | None = None) -> ProviderModel:
    """The model that `spec` names, at `base_url` if that is given. Its SDK is imported here, and no sooner.

    Raises `InvalidInput` for any other spec, a profile of another dialect, a missing extra and a missing key.
    """
    kind, colon, name = spec.partition(":")
    if kind not in KINDS or not colon or not name.strip():
        raise InvalidInput(f"model: must be one of {', '.join(f'{kind}:NAME' for kind in KINDS)}, not {spec!r}")
    module, cls = KINDS[kind]
    make: type[ProviderModel] = getattr(import_module(f"quiesce.actors.models.{module}"), cls)
    return make(name, base_url=base_url, profile=profile)
