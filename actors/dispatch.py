"""`BatchRun`: the async shell around one `Batch`. It does what the batch asks for and reports what happened.

Everything that takes time (`prepare`, a body, `finalize`, an append) is a task of one nursery. The reply to `RunCalls`
is made after that nursery has closed: nothing of the batch can run or write any more, by construction (G2).

A call that waits for a person has no task. Its question is in the log, and so is the decision before anything follows
from it. A batch that began in another process is taken up as the log left it (`RunCalls.resumed`): what has a result
keeps it, what may have run is not run again, what waits for a person goes on waiting, and what was never started has
its turn.

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

from quiesce.actors.calls import Call, never_ran, take_up
from quiesce.actors.hooks import Asked, ToolInvocation
from quiesce.actors.invoke import Body, outcome_of
from quiesce.actors.results import error_text
from quiesce.protocol.errors import AlreadyDecided, NoOpenQuestion
from quiesce.protocol.events import ApprovalDecided, ApprovalRequested, LateResult, draft
from quiesce.protocol.messages import Append, BatchOutcome, CallsAborted, CallsCompleted, CallsRejected, Settled
from quiesce.protocol.outcome import ToolOutcome, denial, failure, result_body
from quiesce.protocol.schedule import Batch, CallState, Commit, Mode, Run, Start

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterator

    from quiesce.actors.hooks import HookChain
    from quiesce.actors.invoke import BodyEnd
    from quiesce.actors.kernel import ActorRef, Reply
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.actors.tools import AnyTool, Toolbox
    from quiesce.protocol.events import Draft, UserMessage
    from quiesce.protocol.messages import Committed, Decide, RunCalls

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
    _calls: list[Call] = field(init=False)
    _tasks: trio.Nursery = field(init=False)
    _changed: trio.Event = field(init=False, factory=trio.Event)
    _drain_scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _draining: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        request, workshop = self.request, self.workshop
        self._calls = [Call.read(request, index, workshop.toolbox) for index in range(len(request.calls))]
        if request.resumed is None:
            self._batch = Batch(len(self._calls), workshop.max_parallel)
        else:
            self._batch = take_up(self._calls, request.resumed, workshop.max_parallel)

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
            for index in (*self._batch.waiting(), *self._batch.unstarted()):
                self._calls[index].outcome = never_ran(self._calls[index])
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
                    case Run(index):
                        self._run_approved(self._calls[index])
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

    async def _accompany(self, call: Call, step: Callable[[Call], Awaitable[None]]) -> None:
        """Run one task of a call; what it raises is a failure of the scheduler, and the call is lost."""
        try:
            await step(call)
        except Exception as error:  # noqa: BLE001 - a failing scheduler rejects its batch, it does not crash (G2)
            self._fail(error)
            await self._give_up(call)
        self._changed.set()

    async def _give_up(self, call: Call) -> None:
        """The call is lost, once its record is no longer on its way."""
        if call.record is not None and call.record_seq is None and not await self._recorded(call):
            return
        if self._batch.state(call.index) in _CAN_BE_LOST:
            self._batch.lost(call.index)

    # --- start -------------------------------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        """Send the record, then prepare; nothing waits here, so that calls that start together share one commit."""
        if not self._batch.try_start(call.index, call.classify()):
            return
        call.record = self.workshop.session.ask(Append((draft(call.start()),)))
        call.record.on_done(self._record_settled)
        found = self._invoked(call)
        if isinstance(found, ToolOutcome):
            self._answer(call, found)
            return
        call.invocation = found
        if self.workshop.hooks.has_prepare:
            call.preparing = trio.CancelScope()
            self._tasks.start_soon(self._accompany, call, self._prepare)
        else:
            self._dispatch(call)

    def _invoked(self, call: Call) -> ToolInvocation | ToolOutcome:
        return call.invoke(self.workshop.session_id, self.workshop.toolbox)

    async def _prepare(self, call: Call) -> None:
        assert call.invocation is not None
        assert call.preparing is not None
        found: ToolInvocation | Asked | ToolOutcome | None = None
        with call.preparing:
            found = await self.workshop.hooks.prepare(call.invocation)
        if found is None:
            await self._not_run(call)
        elif isinstance(found, ToolOutcome):
            self._answer(call, found)
        elif isinstance(found, Asked):
            call.invocation = found.call
            self._ask(call, found)
        else:
            call.invocation = found
            self._dispatch(call)

    # --- an answer without a body ------------------------------------------------------------------------------

    def _answer(self, call: Call, outcome: ToolOutcome) -> None:
        call.outcome = outcome
        self._batch.answered(call.index)
        self._tasks.start_soon(self._accompany, call, self._settle_when_recorded)

    async def _settle_when_recorded(self, call: Call) -> None:
        if await self._recorded(call):
            self._batch.settled(call.index)

    async def _not_run(self, call: Call) -> None:
        """The batch was aborted, or failed, before the body of a recorded call ran."""
        if not await self._recorded(call):
            return
        self._not_wanted(call)

    def _not_wanted(self, call: Call) -> None:
        """A call whose record is durable, and whose body has not run, is over: the batch was aborted, or failed."""
        if self._batch.mode is Mode.ABORTING:
            call.outcome = never_ran(call)
            self._batch.settled(call.index)
        else:
            self._batch.lost(call.index)

    def _record_settled(self, record: Reply[Committed]) -> None:
        """A record that the log refused is the failure at once, whatever its call waits for; nothing starts then."""
        try:
            record.get()
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._fail(error)

    async def _recorded(self, call: Call) -> bool:
        """Wait until the call's record is durable. False if the log refused it: the body must not run (G4)."""
        if call.record_seq is not None:
            return True
        assert call.record is not None
        try:
            call.record_seq = (await call.record).events[0].seq
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._batch.record_failed(call.index, error)
            return False
        return True

    # --- a person's decision -----------------------------------------------------------------------------------

    def _ask(self, call: Call, asked: Asked) -> None:
        """Write the question down; the call waits from then on."""
        self._batch.asking(call.index)
        call.asked = True
        invocation, ask = asked.call, asked.ask
        body = ApprovalRequested(
            turn=invocation.turn,
            step=invocation.step,
            index=call.index,
            call_id=invocation.call_id,
            name=invocation.name,
            arguments=invocation.arguments,
            text=ask.text,
            detail=ask.detail,
        )
        self.workshop.session.ask(Append((draft(body),))).on_done(partial(self._asked, call))

    def _asked(self, call: Call, stored: Reply[Committed]) -> None:
        assert call.record is not None
        try:
            stored.get()
            call.record_seq = call.record.get().events[0].seq  # it was sent before the question, so it is there
        except Exception as error:  # noqa: BLE001 - whatever the log said is the failure of the batch
            self._batch.record_failed(call.index, error)
        else:
            if not self._batch.asked(call.index):
                self._not_wanted(call)
        self._changed.set()

    def decide(self, decision: Decide, reply: Callable[[], Reply[None]]) -> None:
        """Write down what a person decided; the reply, taken once that may be done, is answered when it is durable.

        Raises `NoOpenQuestion` if nobody is asked about that call: then nothing has changed.
        """
        call = self._in_question(decision)
        self._batch.deciding(call.index)
        call.approved = decision.approved
        turn, step, index = decision.call
        body = ApprovalDecided(turn, step, index, call.block.id, decision.approved, decision.reason)
        stored = self.workshop.session.ask(Append((draft(body),)))
        stored.on_done(partial(self._decided, call, decision, reply()))

    def _in_question(self, decision: Decide) -> Call:
        turn, step, index = decision.call
        place = f"call {index} of step {turn}.{step}"
        if (turn, step) != (self.request.turn, self.request.step) or not 0 <= index < len(self._calls):
            raise NoOpenQuestion(f"{place}: the step that is running has no such call")
        call = self._calls[index]
        if self._batch.state(index) is CallState.ASKED:
            return call
        if call.approved is not None:
            said = "approved" if call.approved else "denied"
            raise AlreadyDecided(f"{place} was {said} already", approved=call.approved)
        raise NoOpenQuestion(f"{place}: nobody is asked about it, it is {self._batch.state(index).value}")

    def _decided(self, call: Call, decision: Decide, reply: Reply[None], stored: Reply[Committed]) -> None:
        try:
            stored.get()
        except Exception as error:  # noqa: BLE001 - it goes to whoever decided; the question is still open
            call.approved = None
            if not self._batch.asked(call.index):
                self._not_wanted(call)
            reply.set_exception(error)
        else:
            if not decision.approved:
                call.outcome = denial(decision.reason)
                self._batch.settled(call.index)
            elif not self._batch.allowed(call.index):
                self._not_wanted(call)
            reply.set(None)
        self._changed.set()

    def _run_approved(self, call: Call) -> None:
        """There is a place for it. One that was asked about in another process is read again, as it was approved."""
        found = call.invocation or self._invoked(call)
        if isinstance(found, ToolOutcome):
            call.outcome = found
            self._batch.settled(call.index)
        else:
            call.invocation = found
            self._dispatch(call)

    # --- the body ----------------------------------------------------------------------------------------------

    def _dispatch(self, call: Call) -> None:
        assert call.invocation is not None
        if self._batch.prepared(call.index):
            call.body = Body(call.invocation, chain=self.workshop.hooks)
            self._tasks.start_soon(self._accompany, call, self._run_body)
        else:
            self._tasks.start_soon(self._accompany, call, self._not_run)

    async def _run_body(self, call: Call) -> None:
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

    async def _run_abandonable(self, call: Call, body: Body, tool: AnyTool) -> BodyEnd | None:
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

    async def _late(self, call: Call, end: BodyEnd, tool: AnyTool) -> None:
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

    def _commit(self, call: Call) -> None:
        self._batch.committing(call.index)
        if call.from_body and self.workshop.hooks.has_finalize:
            self._tasks.start_soon(self._accompany, call, self._finalize)
        else:
            self._append(call)

    async def _finalize(self, call: Call) -> None:
        assert call.invocation is not None
        assert call.outcome is not None
        call.outcome = await self.workshop.hooks.finalize(call.invocation, call.outcome)
        self._append(call)

    def _append(self, call: Call) -> None:
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
            drafts: tuple[Draft, ...] = (draft(call.start()), draft(call.result))
        else:
            drafts = (draft(call.result, sources=(call.record_seq,)),)
        self.workshop.session.ask(Append(drafts)).on_done(partial(self._appended, call))

    def _appended(self, call: Call, stored: Reply[Committed]) -> None:
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
