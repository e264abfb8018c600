"""`Call`: one call on its way through a batch, and how a batch that began in another process is taken up.

It is read once: which tool it names, and whether its arguments fit. What is known of it grows from there: its record,
its invocation, the question about it and the decision, its body, its outcome, its result.

What the log says of a batch that was cut decides what becomes of each of its calls (`take_up`): one with a result keeps
it; one that waits for a person goes on waiting; one that may have run is answered as unknown, and not run again; one
that a person denied is denied; one that was never started has its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from attrs import define

from quiesce.actors.hooks import ToolInvocation
from quiesce.actors.tools import InvalidArguments
from quiesce.protocol.events import ToolCall
from quiesce.protocol.outcome import ToolOutcome, failure, undecided
from quiesce.protocol.pending import Standing
from quiesce.protocol.recovery import recovery_outcome
from quiesce.protocol.schedule import Batch, CallState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.actors.invoke import Body
    from quiesce.actors.kernel import Reply
    from quiesce.actors.tools import AnyTool, ParsedArguments, Toolbox
    from quiesce.protocol.approvals import Question
    from quiesce.protocol.events import CallClass, JsonObject, ToolCallBlock, ToolResult
    from quiesce.protocol.messages import Committed, OpenBatch, RunCalls
    from quiesce.protocol.pending import PendingCall

__all__ = ["Call", "never_ran", "take_up"]


@define(eq=False)
class Call:
    """One call of a batch. `outcome` is what is known of its end, `result` what is to be recorded.

    `asked` says that a person is to decide about it, `approved` how the decision went, once there is one.
    """

    turn: int
    step: int
    index: int
    block: ToolCallBlock
    tool: AnyTool | None
    arguments: ParsedArguments | InvalidArguments | None
    record: Reply[Committed] | None = None
    record_seq: int | None = None
    invocation: ToolInvocation | None = None
    preparing: trio.CancelScope | None = None
    asked: bool = False
    approved: bool | None = None
    body: Body | None = None
    patience: trio.CancelScope | None = None
    abandoned: bool = False
    from_body: bool = False
    outcome: ToolOutcome | None = None
    result: ToolResult | None = None

    @classmethod
    def read(cls, request: RunCalls, index: int, toolbox: Toolbox) -> Call:
        """Find the tool and parse the arguments, once."""
        block = request.calls[index]
        tool = toolbox.get(block.name)
        arguments = None if tool is None else _parsed(tool, block.arguments)
        return cls(request.turn, request.step, index, block, tool, arguments)

    def classify(self) -> CallClass:
        """How it may share the pool; what cannot run at all is exclusive."""
        if self.tool is None or self.arguments is None or isinstance(self.arguments, InvalidArguments):
            return "exclusive"
        return self.tool.classify(self.arguments)

    def start(self) -> ToolCall:
        """Its record."""
        return ToolCall(self.turn, self.step, self.block.id, self.block.name, self.block.arguments)

    def invoke(self, session_id: str, toolbox: Toolbox) -> ToolInvocation | ToolOutcome:
        """The call as its tool takes it; its answer, if there is no such tool or the arguments do not fit."""
        if self.tool is None:
            known = ", ".join(tool.name for tool in toolbox) or "none"
            return failure("UNKNOWN_TOOL", f"There is no tool {self.block.name!r}. Tools: {known}.")
        if self.arguments is None or isinstance(self.arguments, InvalidArguments):
            return failure("INVALID_ARGS", str(self.arguments))
        return ToolInvocation(
            session_id=session_id,
            turn=self.turn,
            step=self.step,
            index=self.index,
            call_id=self.block.id,
            name=self.block.name,
            arguments=self.arguments.raw,
            tool=self.tool,
            values=self.arguments.values,
        )

    def cancel(self) -> None:
        """Interrupt what can be: `prepare`, the body, and the wait for one that may be abandoned."""
        if self.preparing is not None:
            self.preparing.cancel()
        if self.body is not None:
            self.body.cancel()
        if self.patience is not None and self.tool is not None and self.tool.abandon_after is not None:
            self.patience.deadline = min(self.patience.deadline, trio.current_time() + self.tool.abandon_after)


def never_ran(call: Call) -> ToolOutcome:
    """The answer to a call whose batch was aborted before its body could run."""
    if call.asked and call.approved is None:
        return undecided()
    return failure("ABORTED_BEFORE_DISPATCH", "This call was cancelled before it started, so it had no effect.")


def _parsed(tool: AnyTool, arguments: str) -> ParsedArguments | InvalidArguments:
    try:
        return tool.parse(arguments)
    except InvalidArguments as error:
        return error


# --- a batch that began in another process -----------------------------------------------------------------------

_DECIDED: Final = {Standing.APPROVED: True, Standing.DENIED: False}


def take_up(calls: Sequence[Call], left: OpenBatch, max_parallel: int) -> Batch:
    """The batch of these calls as the log left it; see the module."""
    pending = {call.index: call for call in left.pending}
    begun = max((call.index for call in calls if _has_begun(pending.get(call.index))), default=-1)
    states = [_taken_up(call, pending.get(call.index), begun) for call in calls]
    for question in left.questions:
        _as_shown(calls[question.index], question)
    return Batch.resumed(states, max_parallel, exclusive=_barrier(calls, states, begun))


def _has_begun(left: PendingCall | None) -> bool:
    return left is None or left.standing is not Standing.UNRECORDED


def _taken_up(call: Call, left: PendingCall | None, begun: int) -> CallState:
    """Where the call stands of which the log says `left`: None if it is answered there."""
    if left is None:
        return CallState.COMMITTED
    call.record_seq = left.recorded_seq
    call.asked = left.standing in _ASKED
    call.approved = _DECIDED.get(left.standing)
    if left.standing is Standing.ASKED:
        return CallState.ASKED
    if left.standing is Standing.UNRECORDED and call.index > begun:
        return CallState.WAITING
    call.outcome = recovery_outcome(left, "interrupted")
    return CallState.SETTLED


def _as_shown(call: Call, question: Question) -> None:
    """What a person was shown is what runs, if the tool takes it still."""
    if call.tool is not None:
        call.arguments = _validated(call.tool, question.arguments)


def _validated(tool: AnyTool, arguments: JsonObject) -> ParsedArguments | InvalidArguments:
    try:
        return tool.validate(arguments)
    except InvalidArguments as error:
        return error


def _barrier(calls: Sequence[Call], states: Sequence[CallState], begun: int) -> int | None:
    """The exclusive call that waits for a person: all before it is in the log, and nothing behind it has begun."""
    alone = begun >= 0 and states[begun] is CallState.ASKED and set(states[:begun]) <= {CallState.COMMITTED}
    return begun if alone and calls[begun].classify() == "exclusive" else None


_ASKED: Final = frozenset({Standing.ASKED, *_DECIDED})
