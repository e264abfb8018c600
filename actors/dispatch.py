"""`BatchRun`: the async shell around one `Batch`. It does what the batch asks for and reports what happened.

Everything that takes time (`prepare`, a body, `finalize`, an append) is a task of one nursery. The reply to `RunCalls`
is made after that nursery has closed: nothing of the batch can run or write any more, by construction (G2).

One task accompanies a call from its record to its outcome. It never gives up waiting for the record, so that no append
is outstanding when the call is over, however it ends.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve, field, frozen

from quiesce.actors.hooks import ToolInvocation
from quiesce.actors.invoke import Body, outcome_of
from quiesce.actors.results import error_text
from quiesce.actors.tools import InvalidArguments
from quiesce.protocol.events import LateResult, ToolCall, draft
from quiesce.protocol.messages import Append, BatchOutcome, CallsAborted, CallsCompleted, CallsRejected, Settled
from quiesce.protocol.outcome import ToolOutcome, failure, result_body
from quiesce.protocol.schedule import Batch, CallState, Commit, Mode, Start

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterator

    from quiesce.actors.hooks import HookChain
    from quiesce.actors.invoke import BodyEnd
    from quiesce.actors.kernel import ActorRef, Reply
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.actors.tools import AnyTool, ParsedArguments, Toolbox
    from quiesce.protocol.events import CallClass, Draft, ToolCallBlock, ToolResult, UserMessage
    from quiesce.protocol.messages import Committed, RunCalls

__all__ = ["BatchRun", "Workshop"]


@frozen
class Workshop:
    """What a batch works with. `drain_grace` is in seconds: so long may bodies go on after the scheduler failed."""

    session_id: str
    session: ActorRef[SessionActor]
    toolbox: Toolbox
    hooks: HookChain
    sources: Sources
    max_parallel: int = 10
    drain_grace: float = 30.0


@define(eq=False)
class _Call:
    """One call on its way through the batch. `outcome` is what is known of its end, `result` what is to be recorded."""

    index: int
    block: ToolCallBlock
    tool: AnyTool | None
    arguments: ParsedArguments | InvalidArguments | None
    record: Reply[Committed] | None = None
    record_seq: int | None = None
    invocation: ToolInvocation | None = None
    preparing: trio.CancelScope | None = None
    body: Body | None = None
    patience: trio.CancelScope | None = None
    abandoned: bool = False
    from_body: bool = False
    outcome: ToolOutcome | None = None
    result: ToolResult | None = None

    def cancel(self) -> None:
        """Interrupt what can be: `prepare`, the body, and the wait for one that may be abandoned."""
        if self.preparing is not None:
            self.preparing.cancel()
        if self.body is not None:
            self.body.cancel()
        if self.patience is not None and self.tool is not None and self.tool.abandon_after is not None:
            self.patience.deadline = min(self.patience.deadline, trio.current_time() + self.tool.abandon_after)


@define(eq=False)
class BatchRun:
    """Runs the calls of one step; `run` once, `abort` at any time.

    `outlive` starts an async function that may outlive the batch: only for bodies that may be abandoned, which `counts`
    counts (`abandoned`, `abandoned_live`).
    """

    request: RunCalls
    workshop: Workshop
    outlive: Callable[..., object]
    counts: Counter[str]

    _batch: Batch = field(init=False)
    _calls: list[_Call] = field(init=False)
    _tasks: trio.Nursery = field(init=False)
    _changed: trio.Event = field(init=False, factory=trio.Event)
    _drain_scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _draining: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._batch = Batch(len(self.request.calls), self.workshop.max_parallel)
        self._calls = [self._read(index, block) for index, block in enumerate(self.request.calls)]

    async def run(self) -> BatchOutcome:
        """Run every call to its end, and say how the batch ended, once nothing of it can run or write any more."""
        async with trio.open_nursery() as self._tasks:
            while True:
                self._changed = trio.Event()
                self._act()
                if self._failing() and not self._draining:
                    self._begin_to_drain()
                if self._batch.quiescent:
                    break
                await self._changed.wait()
            self._drain_scope.cancel()
        return self._outcome()

    def abort(self, cause: str) -> None:
        """Start nothing more, cancel what is live, answer what never started. The first cause wins.

        After the scheduler failed, all it does is to cancel what is live: nobody wants to wait for the grace any more.
        """
        if self._batch.abort(cause):
            for index in tuple(self._batch.unstarted()):
                self._calls[index].outcome = _before_dispatch()
                self._batch.settled(index)
        for call in self._calls:
            call.cancel()
        self._changed.set()

    # --- the loop ----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Do all that the batch asks for now."""
        while (action := self._batch.next_action()) is not None:
            try:
                match action:
                    case Commit(index):
                        self._commit(self._calls[index])
                    case Start(index):
                        self._start(self._calls[index])
            except Exception as error:  # noqa: BLE001 - a failing scheduler rejects its batch, it does not crash (G2)
                self._fail(error)
                self._tasks.start_soon(self._accompany, self._calls[action.index], self._give_up)

    def _failing(self) -> bool:
        return self._batch.mode is Mode.FAILING

    def _fail(self, error: BaseException) -> None:
        self._batch.fail(error)
        self._changed.set()

    def _begin_to_drain(self) -> None:
        self._draining = True
        for call in self._calls:
            if self._batch.state(call.index) is CallState.STARTING:
                call.cancel()  # a call that waits in `prepare` is not dispatched
        self._tasks.start_soon(self._drain)

    async def _drain(self) -> None:
        """Let live bodies go on for the grace, then cancel them."""
        with self._drain_scope:
            await trio.sleep(self.workshop.drain_grace)
            for call in self._calls:
                call.cancel()

    async def _accompany(self, call: _Call, step: Callable[[_Call], Awaitable[None]]) -> None:
        """Run one task of a call; what it raises is a failure of the scheduler, and the call is lost."""
        try:
            await step(call)
        except Exception as error:  # noqa: BLE001 - a failing scheduler rejects its batch, it does not crash (G2)
            self._fail(error)
            await self._give_up(call)
        self._changed.set()

    async def _give_up(self, call: _Call) -> None:
        """The call is lost, once its record is no longer on its way."""
        if call.record is not None and call.record_seq is None and not await self._recorded(call):
            return
        if self._batch.state(call.index) in _CAN_BE_LOST:
            self._batch.lost(call.index)

    # --- start -------------------------------------------------------------------------------------------------

    def _read(self, index: int, block: ToolCallBlock) -> _Call:
        """Find the tool and parse the arguments, once."""
        tool = self.workshop.toolbox.get(block.name)
        if tool is None:
            return _Call(index, block, None, None)
        try:
            return _Call(index, block, tool, tool.parse(block.arguments))
        except InvalidArguments as error:
            return _Call(index, block, tool, error)

    def _classify(self, call: _Call) -> CallClass:
        if call.tool is None or call.arguments is None or isinstance(call.arguments, InvalidArguments):
            return "exclusive"
        return call.tool.classify(call.arguments)

    def _start(self, call: _Call) -> None:
        """Send the record, then prepare; nothing waits here, so that calls that start together share one commit."""
        if not self._batch.try_start(call.index, self._classify(call)):
            return
        call.record = self.workshop.session.ask(Append((draft(self._record(call)),)))
        call.record.on_done(self._record_settled)
        if call.tool is None:
            known = ", ".join(tool.name for tool in self.workshop.toolbox) or "none"
            self._answer(call, failure("UNKNOWN_TOOL", f"There is no tool {call.block.name!r}. Tools: {known}."))
        elif call.arguments is None or isinstance(call.arguments, InvalidArguments):
            self._answer(call, failure("INVALID_ARGS", str(call.arguments)))
        else:
            call.invocation = self._invocation(call, call.tool, call.arguments)
            if self.workshop.hooks.has_prepare:
                call.preparing = trio.CancelScope()
                self._tasks.start_soon(self._accompany, call, self._prepare)
            else:
                self._dispatch(call)

    async def _prepare(self, call: _Call) -> None:
        assert call.invocation is not None
        assert call.preparing is not None
        found: ToolInvocation | ToolOutcome | None = None
        with call.preparing:
            found = await self.workshop.hooks.prepare(call.invocation)
        if found is None:
            await self._not_run(call)
        elif isinstance(found, ToolOutcome):
            self._answer(call, found)
        else:
            call.invocation = found
            self._dispatch(call)

    def _record(self, call: _Call) -> ToolCall:
        block = call.block
        return ToolCall(self.request.turn, self.request.step, block.id, block.name, block.arguments)

    def _invocation(self, call: _Call, tool: AnyTool, arguments: ParsedArguments) -> ToolInvocation:
        return ToolInvocation(
            session_id=self.workshop.session_id,
            turn=self.request.turn,
            step=self.request.step,
            index=call.index,
            call_id=call.block.id,
            name=call.block.name,
            arguments=arguments.raw,
            tool=tool,
            values=arguments.values,
        )

    # --- an answer without a body ------------------------------------------------------------------------------

    def _answer(self, call: _Call, outcome: ToolOutcome) -> None:
        call.outcome = outcome
        self._batch.answered(call.index)
        self._tasks.start_soon(self._accompany, call, self._settle_when_recorded)

    async def _settle_when_recorded(self, call: _Call) -> None:
        if await self._recorded(call):
            self._batch.settled(call.index)

    async def _not_run(self, call: _Call) -> None:
        """The batch was aborted, or failed, before the body of a recorded call ran."""
        if not await self._recorded(call):
            return
        if self._batch.mode is Mode.ABORTING:
            call.outcome = _before_dispatch()
            self._batch.settled(call.index)
        else:
            self._batch.lost(call.index)

    def _record_settled(self, record: Reply[Committed]) -> None:
        """A record that the log refused is the failure at once, whatever its call waits for; nothing starts then."""
        try:
            record.get()
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._fail(error)

    async def _recorded(self, call: _Call) -> bool:
        """Wait until the call's record is durable. False if the log refused it: the body must not run (G4)."""
        assert call.record is not None
        try:
            call.record_seq = (await call.record).events[0].seq
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._batch.record_failed(call.index, error)
            return False
        return True

    # --- the body ----------------------------------------------------------------------------------------------

    def _dispatch(self, call: _Call) -> None:
        assert call.invocation is not None
        if self._batch.prepared(call.index):
            call.body = Body(call.invocation, chain=self.workshop.hooks)
            self._tasks.start_soon(self._accompany, call, self._run_body)
        else:
            self._tasks.start_soon(self._accompany, call, self._not_run)

    async def _run_body(self, call: _Call) -> None:
        assert call.body is not None
        assert call.tool is not None
        if not await self._recorded(call):
            return
        if self._batch.mode is not Mode.RUNNING:
            await self._not_run(call)
            return
        patient = call.tool.abandon_after is None
        end = await (call.body.run() if patient else self._run_abandonable(call, call.body, call.tool))
        if end is None:
            call.outcome = failure("TOOL_OUTCOME_UNKNOWN", _ABANDONED)
        else:
            call.outcome, call.from_body = self._outcome_of(end, call.tool), True
        if call.outcome is None:
            self._batch.lost(call.index)
        else:
            self._batch.settled(call.index)

    def _outcome_of(self, end: BodyEnd, tool: AnyTool) -> ToolOutcome | None:
        """The outcome of a call whose body ended so; None if it is for recovery to say that it is unknown."""
        drained = self._failing() and self._batch.abort_cause is None
        if drained and end.how in _WITHOUT_RESULT:
            return None
        if drained and end.cancel_requested and end.error is not None:
            return failure("TOOL_OUTCOME_UNKNOWN", f"{_DRAINED} It then raised {error_text(end.error)}")
        return outcome_of(end, tool)

    async def _run_abandonable(self, call: _Call, body: Body, tool: AnyTool) -> BodyEnd | None:
        """Wait for the body; for one that was cancelled or timed out, no longer than its tool allows (then None)."""
        ended, ends = trio.Event(), list["BodyEnd"]()

        async def run() -> None:
            ends.append(await body.run())
            ended.set()
            if call.abandoned:
                await self._late(call, ends[0], tool)

        patience = (tool.timeout or math.inf) + (tool.abandon_after or 0)
        with trio.CancelScope(deadline=trio.current_time() + patience) as call.patience:
            self.outlive(run)
            await ended.wait()
        if ends:
            return ends[0]
        call.abandoned = True
        body.cancel()  # no effect, unless it still waits for its thread or process: then it never runs
        self.counts.update(abandoned=1, abandoned_live=1)
        return None

    async def _late(self, call: _Call, end: BodyEnd, tool: AnyTool) -> None:
        """An abandoned body has ended after all: keep what it returned beside the answer that stands."""
        self.counts["abandoned_live"] -= 1
        if end.how != "returned" and end.value is None and end.error is None:
            return
        assert call.invocation is not None
        outcome = outcome_of(evolve(end, how="returned" if end.error is None else "raised"), tool)
        with suppress(Exception):  # nobody waits for it: a hook or a log that refuses it has the last word
            outcome = await self.workshop.hooks.finalize(call.invocation, outcome)
            body = LateResult(
                self.request.turn, self.request.step, call.block.id, outcome.content, outcome.is_error, outcome.error
            )
            await self.workshop.session.ask(Append((draft(body),)))

    # --- commit ------------------------------------------------------------------------------------------------

    def _commit(self, call: _Call) -> None:
        self._batch.committing(call.index)
        if call.from_body and self.workshop.hooks.has_finalize:
            self._tasks.start_soon(self._accompany, call, self._finalize)
        else:
            self._append(call)

    async def _finalize(self, call: _Call) -> None:
        assert call.invocation is not None
        assert call.outcome is not None
        call.outcome = await self.workshop.hooks.finalize(call.invocation, call.outcome)
        self._append(call)

    def _append(self, call: _Call) -> None:
        """Send the result, if the order allows it; one that never started brings its record along."""
        assert call.outcome is not None
        call.result = result_body(
            call.outcome,
            turn=self.request.turn,
            step=self.request.step,
            call_id=call.block.id,
            message_id=self.workshop.sources.mint(),
        )
        if not self._batch.finalized(call.index):
            return
        if call.record_seq is None:
            drafts: tuple[Draft, ...] = (draft(self._record(call)), draft(call.result))
        else:
            drafts = (draft(call.result, sources=(call.record_seq,)),)
        self.workshop.session.ask(Append(drafts)).on_done(partial(self._appended, call))

    def _appended(self, call: _Call, stored: Reply[Committed]) -> None:
        try:
            stored.get()
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._batch.append_failed(call.index, error)
        else:
            self._batch.appended(call.index)
        self._changed.set()

    # --- the end -----------------------------------------------------------------------------------------------

    def _outcome(self) -> BatchOutcome:
        if self._failing():
            assert self._batch.failure is not None
            return CallsRejected(self._batch.failure, tuple(self._settled()))
        if self._batch.mode is Mode.ABORTING:
            return CallsAborted(self._batch.abort_cause or "")
        outcomes = [call.outcome for call in self._calls if call.outcome is not None]
        return CallsCompleted(
            context=tuple(self._named(message) for outcome in outcomes for message in outcome.context),
            concludes_turn=any(outcome.concludes_turn for outcome in outcomes if not outcome.is_error),
            blocks_turn=next((o.blocks_turn for o in outcomes if o.blocks_turn is not None), None),
        )

    def _settled(self) -> Iterator[Settled]:
        """The results that are not in the log. A call that has no record has none: recovery says it never started."""
        for call in self._calls:
            held = self._batch.state(call.index) is CallState.HELD
            if held and call.result is not None and call.record_seq is not None:
                yield Settled(call.index, call.result)

    def _named(self, message: UserMessage) -> UserMessage:
        return message if message.id else evolve(message, id=self.workshop.sources.mint())


_WITHOUT_RESULT = frozenset({"cancelled", "not-started"})
_ABANDONED = (
    "The tool was stopped and did not end, so it was given up. Its outcome is unknown: it may still take effect. "
    "Repeat the call only if it only reads or is idempotent; otherwise check for its effects first, or ask the user."
)
_DRAINED = (
    "The tool was stopped because the scheduler had failed. Its outcome is unknown: it may have taken effect. Repeat "
    "the call only if it only reads or is idempotent; otherwise check for its effects first, or ask the user."
)
_CAN_BE_LOST = frozenset({CallState.STARTING, CallState.LIVE, CallState.ANSWERED, CallState.FINALIZING})


def _before_dispatch() -> ToolOutcome:
    return failure("ABORTED_BEFORE_DISPATCH", "This call was cancelled before it started, so it had no effect.")
