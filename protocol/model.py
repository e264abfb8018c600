"""What a model is asked and what it answers, in no provider's dialect; and the pure assembly of a streamed answer.

A model answers with a stream of deltas. `ReplyAssembler` folds them into content blocks and knows at every moment what
was delivered so far, so that a cut stream keeps its text and loses its half calls (behaviour: turns).
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias, get_args

from attrs import Factory, define, frozen

from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import (
    Block,
    JsonObject,
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
)
from quiesce.protocol.storable import clean_text, make_storable

__all__ = [
    "BlockDone",
    "CallDelta",
    "Delta",
    "Finished",
    "ModelRequest",
    "ReasoningDelta",
    "ReplyAssembler",
    "Sealed",
    "StopReason",
    "TextDelta",
    "ToolSpec",
    "Visible",
]

Visible: TypeAlias = UserMessage | ModelMessage | ToolMessage
"""A message as a model sees it."""

StopReason: TypeAlias = Literal["stop", "tool-calls", "max-tokens"]
"""Why a model stopped writing by itself."""


@frozen
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: JsonObject


@frozen
class ModelRequest:
    """One request: the history, the tools on offer, and where in which session it is made.

    In `messages` every call is answered, in call order, right after the message that made it.
    """

    session_id: str
    turn: int
    step: int
    messages: tuple[Visible, ...]
    tools: tuple[ToolSpec, ...] = ()
    system: str | None = None


@frozen
class TextDelta:
    """More text."""

    text: str


@frozen
class ReasoningDelta:
    """More reasoning."""

    text: str


@frozen
class CallDelta:
    """A part of the call that is number `index` of the answer: its label and name come once, arguments in pieces.

    So does what the provider wants back with it.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    replay: JsonObject | None = None


@frozen
class Sealed:
    """The reasoning before this is complete; `replay` is what the provider wants back for it, verbatim.

    Where there was none before it, or that was sealed already, it is reasoning without words.
    """

    replay: JsonObject


@frozen
class BlockDone:
    """A block that arrives whole (opaque reasoning, a complete call)."""

    block: Block


@frozen
class Finished:
    """The end of a complete answer. Calls are complete only once this has arrived."""

    reason: StopReason = "stop"
    usage: JsonObject | None = None
    source: JsonObject | None = None


Delta: TypeAlias = TextDelta | ReasoningDelta | Sealed | CallDelta | BlockDone | Finished


@define
class _Draft:
    """One block while it is being streamed."""

    kind: type[TextBlock | ReasoningBlock | ToolCallBlock]
    index: int = -1
    id: str = ""
    name: str = ""
    parts: list[str] = Factory(list)
    replay: JsonObject | None = None

    def goes_on_with(self, delta: CallDelta) -> bool:
        """Whether `delta`, of the same index, is more of this call.

        Labels decide where both have one. Without, another name begins another call; so does the same name, if it
        brings arguments and those of this call are whole (some servers send the name along with each piece).
        """
        if delta.id and self.id:
            return delta.id == self.id
        if not delta.name or not self.name:
            return True
        return delta.name == self.name and not (delta.arguments and self._is_whole())

    def _is_whole(self) -> bool:
        """Whether the arguments are a JSON object by now."""
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self.parts)), dict)
        except (ValueError, RecursionError):
            return False


@define
class ReplyAssembler:
    """Folds deltas, in the order they come, into the blocks of one assistant message.

    Text from a model is foreign text: what cannot be stored in it (a lone surrogate, NUL) is replaced visibly.
    """

    finished: Finished | None = None
    _blocks: list[_Draft | Block] = Factory(list)
    _calls: dict[tuple[int, str], _Draft] = Factory(dict)
    _latest: dict[int, _Draft] = Factory(dict)

    def add(self, delta: Delta) -> None:
        """Take the next delta of the stream.

        Raises:
            ModelError: it is no delta, or the stream was finished before: the model does not keep to its contract.

        """
        if self.finished is not None:
            raise ModelError(f"the model went on after it had finished, with {delta!r}", code="BAD_DELTA")
        match delta:
            case TextDelta("") | ReasoningDelta(""):
                pass  # many streams begin with one; nothing has arrived yet
            case TextDelta(str(text)):
                self._open(TextBlock).parts.append(text)
            case ReasoningDelta(str(text)):
                self._open(ReasoningBlock).parts.append(text)
            case Sealed(dict() as replay):
                self._open(ReasoningBlock).replay = replay
            case CallDelta(int(), str(), str(), str(), None | dict()):
                self._add_call(delta)
            case BlockDone(TextBlock() | ReasoningBlock() | ToolCallBlock() | OpaqueBlock() as block):
                self._blocks.append(block)
            case Finished(reason, None | dict() as usage, None | dict() as source) if reason in get_args(StopReason):
                self.finished = Finished(reason, usage and _clean_object(usage), source and _clean_object(source))
            case _:
                raise ModelError(f"the model emitted {delta!r}, which is no delta of an answer", code="BAD_DELTA")

    @property
    def delivered(self) -> bool:
        """Whether anything that a reader could have seen has arrived."""
        return bool(self._blocks)

    def complete(self) -> tuple[Block, ...]:
        """The blocks of a finished answer; without its calls if the token limit cut it."""
        blocks = tuple(_whole(item) for item in self._blocks)
        if self.finished is not None and self.finished.reason == "max-tokens":
            return _without_calls(blocks)
        return blocks

    def interrupted(self) -> tuple[Block, ...]:
        """The blocks of an answer that was cut: its text, none of its calls."""
        return _without_calls(tuple(_whole(item) for item in self._blocks))

    def _open(self, kind: type[TextBlock | ReasoningBlock]) -> _Draft:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, _Draft) and last.kind is kind and last.replay is None:
            return last
        fresh = _Draft(kind)
        self._blocks.append(fresh)
        return fresh

    def _add_call(self, delta: CallDelta) -> None:
        call = self._find_call(delta)
        if delta.id and not call.id:
            call.id = delta.id
            self._calls[delta.index, delta.id] = call
        call.name = call.name or delta.name
        if delta.replay:
            call.replay = {**(call.replay or {}), **delta.replay}
        call.parts.append(delta.arguments)

    def _find_call(self, delta: CallDelta) -> _Draft:
        """The call that the delta is a part of, made if it is the first of it (some servers give all one index)."""
        latest = self._latest.get(delta.index)
        if latest is not None and latest.goes_on_with(delta):
            return latest
        if delta.id and (labelled := self._calls.get((delta.index, delta.id))) is not None:
            return labelled
        fresh = self._latest[delta.index] = _Draft(ToolCallBlock, delta.index)
        self._blocks.append(fresh)
        return fresh


def _whole(item: _Draft | Block) -> Block:
    if not isinstance(item, _Draft):
        return _storable(item)
    body, replay = clean_text("".join(item.parts)), item.replay and _clean_object(item.replay)
    if item.kind is ToolCallBlock:
        return ToolCallBlock(clean_text(item.id), clean_text(item.name), body, replay=replay)
    return TextBlock(body) if item.kind is TextBlock else ReasoningBlock(body, replay=replay)


def _storable(block: Block) -> Block:
    shape = block.shape and Shape(tuple(map(clean_text, block.shape.keys)), _clean_object(block.shape.extra))
    if isinstance(block, OpaqueBlock):
        return OpaqueBlock(_clean_object(block.data), shape=shape)
    replay = block.replay and _clean_object(block.replay)
    match block:
        case ToolCallBlock(id=call_id, name=name, arguments=arguments):
            return ToolCallBlock(
                clean_text(call_id), clean_text(name), clean_text(arguments), replay=replay, shape=shape
            )
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return type(block)(clean_text(text), replay=replay, shape=shape)


def _clean_object(data: JsonObject) -> JsonObject:
    return {clean_text(key): make_storable(value) for key, value in data.items()}


def _without_calls(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if not isinstance(block, ToolCallBlock))
