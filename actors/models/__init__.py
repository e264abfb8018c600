"""Models: whoever answers an agent's requests."""

from __future__ import annotations

from quiesce.actors.models.scripted import ScriptedModel, ScriptedReply, ScriptLine, call, fail, say

__all__ = ["ScriptLine", "ScriptedModel", "ScriptedReply", "call", "fail", "say"]
