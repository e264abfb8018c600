"""The vocabulary of a session's log: what an event is and what each type of event says.

An `Event` is an envelope (seq, time, where it stands in the model-visible surface) around a body. Each class below that
has a `TYPE` is the body of one event type, and `BODIES` is the table of them. Fields are named as in Python; their JSON
keys (camelCase) and their order are those of the DeepSeek Harness session log, format 4, so that its logs can be read.

A `Record` remembers the keys it did not know and the order it was read in, so that writing it back loses nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypeAlias

from attrs import field, frozen

__all__ = [
    "BODIES",
    "ApprovalDecided",
    "ApprovalRequested",
    "AssistantAttempt",
    "AssistantMessage",
    "Block",
    "Body",
    "CallClass",
    "Draft",
    "EndSeed",
    "ErrorInfo",
    "Event",
    "ForeignBody",
    "InboxSpliced",
    "JsonObject",
    "LateResult",
    "MessageBody",
    "ModelMessage",
    "OpaqueBlock",
    "Reason",
    "ReasoningBlock",
    "Record",
    "Replace",
    "Shape",
    "StepEnd",
    "StepStart",
    "SurfaceOp",
    "TextBlock",
    "ToolCall",
    "ToolCallBlock",
    "ToolMessage",
    "ToolResult",
    "TurnEnd",
    "TurnStart",
    "UserMessage",
    "draft",
    "text_of",
]

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as Python reads it. Treated as immutable once it is in a record."""

CallClass: TypeAlias = Literal["parallel", "exclusive"]
"""How a call may share the pool: `parallel` with its like, `exclusive` alone."""


@frozen
class Shape:
    """How a JSON object differed from the canonical one: all keys in their order, and the values of unknown keys."""

    keys: tuple[str, ...]
    extra: JsonObject


@frozen(kw_only=True)
class Record:
    """The base of every value that is one JSON object of the log."""

    shape: Shape | None = field(default=None, repr=False)


# --- content -----------------------------------------------------------------------------------------------------
#
# `replay` is what a provider attached to a block and wants back with it, verbatim: a signed thinking block, a reasoning
# item, a signature. It goes back to the model that made it and to no other.


@frozen
class TextBlock(Record):
    """Text that the model wrote or reads."""

    TYPE: ClassVar[str] = "text"
    text: str
    replay: JsonObject | None = field(default=None, kw_only=True)


@frozen
class ReasoningBlock(Record):
    """What a model thought aloud; `text` is for people, `replay` what the provider wants back."""

    TYPE: ClassVar[str] = "reasoning"
    text: str = ""
    replay: JsonObject | None = field(default=None, kw_only=True)


@frozen
class ToolCallBlock(Record):
    """A call that the model asks for. `arguments` is the raw string; `id` is the provider's label, possibly empty."""

    TYPE: ClassVar[str] = "tool-call"
    id: str
    name: str
    arguments: str
    replay: JsonObject | None = field(default=None, kw_only=True)


@frozen
class OpaqueBlock(Record):
    """Any other content (an image, a document): carried as it is. `data` is the whole block, its `type` included."""

    data: JsonObject


Block: TypeAlias = TextBlock | ReasoningBlock | ToolCallBlock | OpaqueBlock


@frozen
class ModelMessage(Record):
    """What a model answered. `source` says which model, and may hold the provider's replay state."""

    role: str
    content: tuple[Block, ...]
    source: JsonObject
    id: str

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls it asks for, in call order: the index in this tuple is the call's identity in its step."""
        return tuple([block for block in self.content if isinstance(block, ToolCallBlock)])


@frozen
class ToolMessage(Record):
    """The model-visible part of a result."""

    role: str
    tool_call_id: str
    content: tuple[Block, ...]
    is_error: bool
    id: str


@frozen
class ErrorInfo(Record):
    """The typed label of an error result; code reads this, never the text."""

    name: str
    code: str
    reason: str | None = None


@frozen
class Reason(Record):
    """Why a turn ended; it prints as its kind.

    completed, blocked, max-tokens, aborted (with a cause), error (with message and code), interrupted, forked.
    """

    kind: str
    cause: Any = None
    message: str | None = None
    code: str | None = None

    def __str__(self) -> str:
        return self.kind


# --- bodies ------------------------------------------------------------------------------------------------------


@frozen
class TurnStart(Record):
    """A turn opens."""

    TYPE: ClassVar[str] = "turn/start"
    turn: int


@frozen
class TurnEnd(Record):
    """A turn is closed, for `reason`."""

    TYPE: ClassVar[str] = "turn/end"
    turn: int
    reason: Reason


@frozen
class StepStart(Record):
    """A step of the open turn opens: one model request and the calls it leads to."""

    TYPE: ClassVar[str] = "step/start"
    turn: int
    step: int


@frozen
class StepEnd(Record):
    """A step is closed: each call of it has exactly one result (G1)."""

    TYPE: ClassVar[str] = "step/end"
    turn: int
    step: int


@frozen
class UserMessage(Record):
    """Input that the model sees from here on. The body of `user/message` is the message itself."""

    TYPE: ClassVar[str] = "user/message"
    content: tuple[Block, ...]
    source: JsonObject
    role: str
    id: str


@frozen
class AssistantMessage(Record):
    """The model's committed answer of one step; `interrupted` if its stream was cut."""

    TYPE: ClassVar[str] = "assistant/message"
    turn: int
    step: int
    message: ModelMessage
    usage: JsonObject | None = None
    interrupted: bool | None = None


@frozen
class AssistantAttempt(Record):
    """What a failed or cancelled model attempt delivered: kept for people, never shown to a model."""

    TYPE: ClassVar[str] = "assistant/attempt"
    turn: int
    step: int
    content: tuple[Block, ...] = ()
    error: ErrorInfo | None = None


@frozen
class ToolCall(Record):
    """A call is about to start: durable before its body runs (G4). `arguments` is the raw string of the message."""

    TYPE: ClassVar[str] = "tool/call"
    turn: int
    step: int
    call_id: str
    name: str
    arguments: str


@frozen
class ApprovalRequested(Record):
    """A recorded call waits for a person: its body does not run before `approval/decided` says that it may.

    A call is named by `index`, its place in the message; `call_id` is its label. `arguments` are those that the body
    would get: what a person approves is what runs. `text` is the question, `detail` more about it for a program.
    """

    TYPE: ClassVar[str] = "approval/requested"
    turn: int
    step: int
    index: int
    call_id: str
    name: str
    arguments: JsonObject
    text: str
    detail: JsonObject | None = None


@frozen
class ApprovalDecided(Record):
    """A person has decided about a call that waited: once, and about this call only."""

    TYPE: ClassVar[str] = "approval/decided"
    turn: int
    step: int
    index: int
    call_id: str
    approved: bool
    reason: str | None = None


@frozen
class ToolResult(Record):
    """The one answer to a call. `error` labels an error result; `meta` is not for the model."""

    TYPE: ClassVar[str] = "tool/result"
    turn: int
    step: int
    message: ToolMessage
    error: ErrorInfo | None = None
    meta: Any = None


@frozen
class LateResult(Record):
    """What arrived after its call had been answered. A reader may skip it."""

    TYPE: ClassVar[str] = "tool/late-result"
    turn: int
    step: int
    call_id: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    error: ErrorInfo | None = None


@frozen
class InboxSpliced(Record):
    """The durable inbox changed: at `start` of queue `target`, `removed_count` messages left and `inserted` came."""

    TYPE: ClassVar[str] = "agent/inbox/spliced"
    target: str
    start: int
    removed_count: int | None = field(default=None, kw_only=True)
    inserted: tuple[UserMessage, ...]
    outcome: str | None = None


@frozen
class EndSeed(Record):
    """What stands before came from elsewhere (a fork's parent, if `inherited`)."""

    TYPE: ClassVar[str] = "session/end-seed"
    inherited: bool | None = None


@frozen
class ForeignBody(Record):
    """An event type that quiesce has no use for, kept verbatim."""

    type: str
    data: Any


Body: TypeAlias = (
    TurnStart
    | TurnEnd
    | StepStart
    | StepEnd
    | UserMessage
    | AssistantMessage
    | AssistantAttempt
    | ToolCall
    | ApprovalRequested
    | ApprovalDecided
    | ToolResult
    | LateResult
    | InboxSpliced
    | EndSeed
    | ForeignBody
)

MessageBody: TypeAlias = UserMessage | AssistantMessage | ToolResult
"""The bodies that a model sees; their events carry a `surfaceOp`."""

_KNOWN: tuple[type[Any], ...] = (
    TurnStart,
    TurnEnd,
    StepStart,
    StepEnd,
    UserMessage,
    AssistantMessage,
    AssistantAttempt,
    ToolCall,
    ApprovalRequested,
    ApprovalDecided,
    ToolResult,
    LateResult,
    InboxSpliced,
    EndSeed,
)
BODIES: Final[dict[str, type[Any]]] = {cls.TYPE: cls for cls in _KNOWN}
"""Type string -> body class, for every event type that quiesce knows."""

_ON_SURFACE: Final = (UserMessage, AssistantMessage, ToolResult)
_IGNORABLE: Final = (LateResult,)


# --- envelope ----------------------------------------------------------------------------------------------------


@frozen
class Replace(Record):
    """Compaction: this message stands for those of the events `start_seq` to `end_seq`, both included."""

    op: str
    start_seq: int
    end_seq: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


@frozen
class Draft(Record):
    """An event that the log has not numbered yet: what an `Append` carries."""

    body: Body
    ignorable: bool | None = None
    source_event_seqs: tuple[int, ...] | None = None
    surface_op: SurfaceOp | None = None

    def at(self, seq: int, time: int) -> Event:
        """The event that this draft becomes as number `seq`, at `time` (ms since the epoch)."""
        return Event(
            self.body,
            self.ignorable,
            self.source_event_seqs,
            self.surface_op,
            seq=seq,
            time=time,
            shape=self.shape,
        )


@frozen
class Event(Draft):
    """One entry of a log. `seq` counts from 0 without gaps; `time` is in whole milliseconds since the epoch."""

    seq: int = field(kw_only=True)
    time: int = field(kw_only=True)

    @property
    def type(self) -> str:
        """The type string of the log."""
        return self.body.type if isinstance(self.body, ForeignBody) else self.body.TYPE


def draft(body: Body, *, sources: tuple[int, ...] | None = None) -> Draft:
    """A draft of `body` as it is usually written: messages are appended to the surface, late results are ignorable."""
    return Draft(
        body,
        ignorable=True if isinstance(body, _IGNORABLE) else None,
        source_event_seqs=sources,
        surface_op="append" if isinstance(body, _ON_SURFACE) else None,
    )


def text_of(content: tuple[Block, ...]) -> str:
    """The text blocks of `content`, joined."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))
