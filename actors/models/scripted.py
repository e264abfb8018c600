"""`ScriptedModel`: a model that plays a fixed list of replies and records every request. For tests and demos."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, get_args

import trio
from attrs import evolve, frozen

from quiesce.actors.options import listed
from quiesce.protocol.errors import InvalidInput, ModelError
from quiesce.protocol.events import ToolCallBlock
from quiesce.protocol.model import CallDelta, Finished, ModelRequest, ReasoningDelta, StopReason, TextDelta
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.model import Delta

__all__ = ["ScriptLine", "ScriptedModel", "ScriptedReply", "call", "fail", "say"]


@frozen
class ScriptedReply:
    """One answer: after `delay` seconds these deltas come, and then the end, or `failure`."""

    deltas: tuple[Delta, ...] = ()
    delay: float = 0
    failure: Exception | None = None

    def after(self, delay: float) -> ScriptedReply:
        """The same answer, `delay` seconds later."""
        return evolve(self, delay=delay)

    def then_fail(self, failure: Exception) -> ScriptedReply:
        """The same deltas, but the stream is cut by `failure` before it is complete."""
        return evolve(self, deltas=tuple(d for d in self.deltas if not isinstance(d, Finished)), failure=failure)


ScriptLine: TypeAlias = ScriptedReply | Exception | Callable[[ModelRequest], ScriptedReply]
"""A reply, an error to raise, or a function that makes a reply of the request."""


def call(tool: AnyTool | str, /, *, call_id: str = "", raw: str | None = None, **arguments: object) -> ToolCallBlock:
    """A call for `say`. `raw` gives the arguments as the model would write them, for instance malformed.

    Without a `call_id` the model that plays it numbers its calls. Raises `InvalidInput` for what is no tool or name,
    and for arguments that are not JSON.
    """
    name = tool if isinstance(tool, str) else getattr(tool, "name", None)
    if not isinstance(name, str):
        raise InvalidInput(f"call: {tool!r} is neither a tool nor the name of one")
    check_json(arguments, "arguments")
    return ToolCallBlock(call_id, name, json.dumps(arguments) if raw is None else raw)


def say(
    text: str = "",
    *calls: ToolCallBlock,
    stop: StopReason | None = None,
    reasoning: str = "",
    usage: JsonObject | None = None,
) -> ScriptedReply:
    """An answer of `text` and `calls`. `stop` defaults to what the calls imply.

    Raises `InvalidInput` for a text that is none, for calls that `call` did not make, and for an unknown `stop`.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"say: the text must be a str, not {text!r}")
    for made in calls:
        if not isinstance(made, ToolCallBlock):
            raise InvalidInput(f"say: {made!r} is no call; make one with call(...)")
    if stop is not None and stop not in get_args(StopReason):
        raise InvalidInput(f"say: stop must be one of {', '.join(get_args(StopReason))}, not {stop!r}")
    deltas: list[Delta] = [ReasoningDelta(reasoning)] if reasoning else []
    if text:
        deltas.append(TextDelta(text))
    deltas += [CallDelta(at, made.id, made.name, made.arguments) for at, made in enumerate(calls)]
    deltas.append(Finished(stop or ("tool-calls" if calls else "stop"), usage))
    return ScriptedReply(tuple(deltas))


def fail(message: str = "scripted failure", *, transient: bool = False, retry_after: float | None = None) -> ModelError:
    """A provider's failure, for the script."""
    return ModelError(message, transient=transient, retry_after=retry_after)


class ScriptedModel:
    """Plays `script`, one line per request, in order. `requests` holds every request it was given.

    A request beyond the end of the script is a `ModelError`. Delays are in seconds of Trio's clock.
    """

    name = "scripted"
    provider = "quiesce"

    def __init__(self, script: Iterable[ScriptLine]) -> None:
        self._script = listed("script", script)
        for line in self._script:
            if not isinstance(line, ScriptedReply | Exception) and not callable(line):
                raise InvalidInput(f"script: {line!r} is neither a reply, an error nor a function")
        self._calls = 0
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, emit: Callable[[Delta], None]) -> None:
        """Play the next line."""
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        reply = self._line(request)
        if reply.delay:
            await trio.sleep(reply.delay)
        for delta in reply.deltas:
            emit(self._numbered(delta))
        if reply.failure is not None:
            raise reply.failure

    def _line(self, request: ModelRequest) -> ScriptedReply:
        if len(self.requests) > len(self._script):
            raise ModelError(f"the script has {len(self._script)} replies, this is request {len(self.requests)}")
        line = self._script[len(self.requests) - 1]
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, ScriptedReply) else line(request)

    def _numbered(self, delta: Delta) -> Delta:
        if not isinstance(delta, CallDelta) or delta.id:
            return delta
        self._calls += 1
        return evolve(delta, id=f"call{self._calls:05d}")
