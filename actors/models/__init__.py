"""Models: whoever answers an agent's requests.

Those on the official SDKs are imported when they are first asked for; they need the extras `openai` and `anthropic`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from quiesce.actors.models.scripted import ScriptedModel, ScriptedReply, ScriptLine, call, fail, say

if TYPE_CHECKING:
    from quiesce.actors.models.anthropic import AnthropicModel
    from quiesce.actors.models.openai_chat import OpenAIChatModel
    from quiesce.actors.models.openai_responses import OpenAIResponsesModel
    from quiesce.actors.models.specs import model_from

__all__ = [
    "AnthropicModel",
    "OpenAIChatModel",
    "OpenAIResponsesModel",
    "ScriptLine",
    "ScriptedModel",
    "ScriptedReply",
    "call",
    "fail",
    "model_from",
    "say",
]

_LATER: Final = {
    "AnthropicModel": "anthropic",
    "OpenAIChatModel": "openai_chat",
    "OpenAIResponsesModel": "openai_responses",
    "model_from": "specs",
}
"""Name -> the module that it is imported from when it is first asked for."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever it is called
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
