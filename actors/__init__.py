"""What runs: the agent runtime. `quiesce.actors.kernel` is the actor runtime under it, useful alone.

Each name is imported when it is first asked for, so that a part of the package (the command, the kernel, a store) costs
only what it needs itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.actors.later import importing

if TYPE_CHECKING:
    from quiesce.actors.agent import Agent
    from quiesce.actors.attempts import Model, RetryPolicy
    from quiesce.actors.fork import fork_session
    from quiesce.actors.hooks import Ask, Hooks, ToolInvocation
    from quiesce.actors.live import AttemptFailed, ModelDelta
    from quiesce.actors.models import ScriptedModel, call, fail, say
    from quiesce.actors.results import Result
    from quiesce.actors.runtime import Runtime
    from quiesce.actors.sources import Sources
    from quiesce.actors.stores import MemoryStore, SqliteStore, Store
    from quiesce.actors.supervised import agent_spec
    from quiesce.actors.tools import Tool, Toolbox, tool
    from quiesce.protocol.approvals import Question
    from quiesce.protocol.errors import (
        AlreadyDecided,
        InputDropped,
        InputParked,
        InvalidInput,
        ModelError,
        NoOpenQuestion,
        QuiesceError,
        RecoveryFailed,
        StoreError,
        ToolDenied,
        TurnFailed,
    )
    from quiesce.protocol.messages import Turn

__all__ = [
    "Agent",
    "AlreadyDecided",
    "Ask",
    "AttemptFailed",
    "Hooks",
    "InputDropped",
    "InputParked",
    "InvalidInput",
    "MemoryStore",
    "Model",
    "ModelDelta",
    "ModelError",
    "NoOpenQuestion",
    "Question",
    "QuiesceError",
    "RecoveryFailed",
    "Result",
    "RetryPolicy",
    "Runtime",
    "ScriptedModel",
    "Sources",
    "SqliteStore",
    "Store",
    "StoreError",
    "Tool",
    "ToolDenied",
    "ToolInvocation",
    "Toolbox",
    "Turn",
    "TurnFailed",
    "agent_spec",
    "call",
    "fail",
    "fork_session",
    "say",
    "tool",
]

__getattr__, __dir__ = importing(
    __name__,
    {
        "quiesce.actors.agent": ("Agent",),
        "quiesce.actors.attempts": ("Model", "RetryPolicy"),
        "quiesce.actors.fork": ("fork_session",),
        "quiesce.actors.hooks": ("Ask", "Hooks", "ToolInvocation"),
        "quiesce.actors.live": ("AttemptFailed", "ModelDelta"),
        "quiesce.actors.models": ("ScriptedModel", "call", "fail", "say"),
        "quiesce.actors.results": ("Result",),
        "quiesce.actors.runtime": ("Runtime",),
        "quiesce.actors.sources": ("Sources",),
        "quiesce.actors.stores": ("MemoryStore", "SqliteStore", "Store"),
        "quiesce.actors.supervised": ("agent_spec",),
        "quiesce.actors.tools": ("Tool", "Toolbox", "tool"),
        "quiesce.protocol.approvals": ("Question",),
        "quiesce.protocol.errors": (
            "AlreadyDecided",
            "InputDropped",
            "InputParked",
            "InvalidInput",
            "ModelError",
            "NoOpenQuestion",
            "QuiesceError",
            "RecoveryFailed",
            "StoreError",
            "ToolDenied",
            "TurnFailed",
        ),
        "quiesce.protocol.messages": ("Turn",),
    },
)
