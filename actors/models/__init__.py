"""Models: whoever answers an agent's requests.

Those on the official SDKs are imported when they are first asked for; they need the extras `openai` and `anthropic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.actors.later import importing
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

__getattr__, __dir__ = importing(
    __name__,
    {
        "quiesce.actors.models.anthropic": ("AnthropicModel",),
        "quiesce.actors.models.openai_chat": ("OpenAIChatModel",),
        "quiesce.actors.models.openai_responses": ("OpenAIResponsesModel",),
        "quiesce.actors.models.specs": ("model_from",),
    },
)
