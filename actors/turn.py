"""`TurnRun`: one turn, from the claim of its first input to its end in the log.

A turn goes step by step: open a step with the input that waits, ask the model, commit its answer, have its calls run,
close the step, decide. Whatever fails on the way leads to one place, `_recover`: it answers what is still pending (the
settled result where there is one, a recovery result where there is none), closes step and turn in the log with the
first failure, and raises that failure to whoever waits (G1, G3, G5).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

import trio
from attrs import Factory, define, frozen

from quiesce.actors.attempts import Model, RetryPolicy, attempt
from quiesce.actors.live import AttemptFailed, ModelDelta, Watchers
from quiesce.actors.options import check_count, check_instance, check_model, check_text
from quiesce.actors.tools import Toolbox
from quiesce.protocol.errors import RecoveryFailed, StepLimitReached, TurnFailed
from quiesce.protocol.events import (
    AssistantAttempt,
    AssistantMessage,
    ErrorInfo,
    ModelMessage,
    Reason,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    draft,
    text_of,
)
from quiesce.protocol.history import sendable
from quiesce.protocol.inbox import insert, remove
from quiesce.protocol.messages import (
    AbortCalls,
    BatchOutcome,
    CallsAborted,
    CallsCompleted,
    CallsRejected,
    Committed,
    OpenBatch,
    ReadHistory,
    RunCalls,
    Turn,
)
from quiesce.protocol.model import ModelRequest
from quiesce.protocol.recovery import recovery_results
from quiesce.protocol.rules import Phase
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.actors.attempts import Attempt
    from quiesce.actors.cancellation import Cancellation
    from quiesce.actors.kernel import ActorRef, Reply
    from quiesce.actors.scheduler import SchedulerActor
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.protocol.events import Block, Draft, JsonObject, ToolResult, UserMessage
    from quiesce.protocol.inbox import Inbox
    from quiesce.protocol.messages import HistoryView
    from quiesce.protocol.model import Delta
    from quiesce.protocol.rules import LogState

__all__ = ["Brain", "Desk", "TurnRun"]


@frozen
class Brain:
    """What decides in a turn: the model, what it is told, and the limits it works in. Raises `InvalidInput`."""

    session_id: str
    model: Model
    tools: Toolbox = Factory(Toolbox)
    system: str | None = None
    max_steps: int = 100
    retry: RetryPolicy = Factory(RetryPolicy)
    watchers: Watchers = Factory(Watchers)

    def __attrs_post_init__(self) -> None:
        check_text("session_id", self.session_id)
        check_model(self.model)
        if self.system is not None:
            check_text("system", self.system)
        check_count("max_steps", self.max_steps)
        check_instance("retry", self.retry, RetryPolicy)


class Desk(Protocol):
    """What a turn needs of the driver: its colleagues, and its view of the log, current as of the last `append`."""

    session: ActorRef[SessionActor]
    scheduler: ActorRef[SchedulerActor]
    sources: Sources
    log: LogState
    inbox: Inbox

    async def append(self, drafts: Sequence[Draft]) -> Committed:
        """Append, and return when it is durable and `log` and `inbox` show it.

        Appending nothing waits until they show whatever was on its way into the log, whoever sent it.
        """
        ...


@define
class TurnRun:
    """The turn that is running. `number` is 0 until it is open in the log; `failure` is set once it has failed."""

    desk: Desk
    brain: Brain
    cancellation: Cancellation
    number: int = 0
    step: int = 0
    text: str = ""
    claimed: list[str] = Factory(list)
    failure: Exception | None = None
    _left: Reply[BatchOutcome] | None = None
    _limited: bool = False
    _settled: dict[int, ToolResult] = Factory(dict)

    @classmethod
    def resumed(cls, desk: Desk, brain: Brain, cancellation: Cancellation, view: HistoryView) -> TurnRun:
        """The turn that another process left open in the log with a call that waits for a person.

        The scheduler has been handed what is left of its batch when this returns: questions can be decided.
        """
        log = view.log
        said = (entry.message for entry in reversed(view.entries) if entry.turn == log.turn)
        text = next((text_of(message.content) for message in said if isinstance(message, ModelMessage)), "")
        left = RunCalls(log.turn, log.step, log.calls or (), OpenBatch(tuple(log.pending), view.questions))
        return cls(desk, brain, cancellation, log.turn, log.step, text, left=desk.scheduler.ask(left))

    async def run(self) -> Turn:
        """Run the turn to its end.

        Raises:
            TurnFailed: the turn failed and is closed in the log; its cause is the original failure.
            RecoveryFailed: the log refused to be closed as well; step and turn stay open in it.

        Cancellation from outside passes at once and leaves the turn open in the log: resume repairs it.

        """
        try:
            reason = None if self._left is None else await self._finish(await self._outcome(self._left))
            while reason is None:
                reason = await self._step()
            return self._turn(reason)
        except Exception as failure:  # noqa: BLE001 - whatever failed is the turn's failure, and is raised from there
            await self._recover(failure)

    # --- one step ----------------------------------------------------------------------------------------------

    async def _step(self) -> Reason | None:
        """Take one step. The reason why the turn is over with it, or None if it goes on."""
        await self._open_step()
        message = None if self.cancellation.requested else await self._answer()
        if message is None or (self.cancellation.requested and not message.calls):
            return await self._close(self._aborted())
        return await self._finish(await self._run_calls(message), called=bool(message.calls))

    async def _finish(self, outcome: BatchOutcome, *, called: bool = True) -> Reason | None:
        """Close the step whose calls, if it had any, ended so."""
        match outcome:
            case CallsRejected(failure=failure, settled=settled):
                self._settled = {item.index: item.body for item in settled}
                raise failure
            case CallsAborted():
                return await self._close(self._aborted())
            case CallsCompleted():
                return await self._close(self._decide(outcome, called=called), outcome.context)

    async def _open_step(self) -> None:
        opening = not self.number
        turn, step = self.desk.log.turn + opening, self.step + 1
        if step > self.brain.max_steps:
            raise StepLimitReached(self.brain.max_steps)
        step_input = self.desk.inbox.queued("next-step")
        follow_up = self.desk.inbox.queued("next-turn")[:1] if opening else ()
        messages = (*step_input, *follow_up)
        self.claimed += [message.id for message in messages]
        await self.desk.append(
            (
                *((draft(TurnStart(turn)),) if opening else ()),
                *remove("next-step", len(step_input)),
                *remove("next-turn", len(follow_up)),
                draft(StepStart(turn, step)),
                *map(draft, messages),
            )
        )
        self.number, self.step = turn, step

    async def _run_calls(self, message: ModelMessage) -> BatchOutcome:
        if not message.calls:
            return CallsCompleted()
        return await self._outcome(self.desk.scheduler.ask(RunCalls(self.number, self.step, message.calls)))

    async def _outcome(self, reply: Reply[BatchOutcome]) -> BatchOutcome:
        with self.cancellation.by(self._abort_calls):
            return await reply

    def _abort_calls(self) -> None:
        self.desk.scheduler.tell(AbortCalls(self.cancellation.cause or ""))

    def _decide(self, outcome: CallsCompleted, *, called: bool) -> Reason | None:
        """Whether the turn is over: input that waits for the next step keeps it going, unless it was blocked."""
        if outcome.blocks_turn is not None:
            return Reason("blocked", message=clean_text(outcome.blocks_turn))
        waiting = outcome.context or self.desk.inbox.queued("next-step")
        if waiting or (called and not outcome.concludes_turn):
            return self._aborted() if self.cancellation.requested else None
        return Reason("max-tokens" if self._limited else "completed")

    async def _close(self, reason: Reason | None, context: Sequence[UserMessage] = ()) -> Reason | None:
        """Close the step, and the turn with it if there is a reason to; gives the reason back."""
        drafts = [draft(StepEnd(self.number, self.step))]
        if context:
            drafts.append(insert("next-step", len(self.desk.inbox.queued("next-step")), *context))
        if reason is not None:
            drafts.append(draft(TurnEnd(self.number, reason)))
        await self.desk.append(drafts)
        return reason

    def _aborted(self) -> Reason:
        return Reason("aborted", cause=self.cancellation.cause)

    # --- the model ---------------------------------------------------------------------------------------------

    async def _answer(self) -> ModelMessage | None:
        """The model's committed answer; None if the user cancelled before there was one."""
        request = await self._request()
        attempts = 0
        while True:
            attempts += 1
            heard = partial(self._tell_delta, attempts)
            made = await attempt(self.brain.model, request, self.cancellation, heard)
            if made.failure is None and not made.cancelled:
                return await self._commit(made)
            delay = None if made.cancelled else self.brain.retry.delay(made, attempts, self.desk.sources.random)
            if made.failure is not None:
                self.brain.watchers.tell(AttemptFailed(self.number, self.step, attempts, made.failure, delay))
            await self._keep_partial(made)
            if made.failure is not None and delay is None:
                raise made.failure
            if made.cancelled or not await self._wait(delay or 0):
                return None

    def _tell_delta(self, attempts: int, delta: Delta) -> None:
        self.brain.watchers.tell(ModelDelta(self.number, self.step, attempts, delta))

    async def _request(self) -> ModelRequest:
        view = await self.desk.session.ask(ReadHistory())
        brain = self.brain
        return ModelRequest(
            brain.session_id,
            self.number,
            self.step,
            sendable(view.entries, in_order=view.in_order),
            brain.tools.specs(),
            brain.system,
        )

    async def _commit(self, made: Attempt) -> ModelMessage:
        finished = made.answer.finished
        message = self._message(made.answer.complete(), finished.source if finished else None)
        await self.desk.append(
            (draft(AssistantMessage(self.number, self.step, message, finished.usage if finished else None)),)
        )
        self.text = text_of(message.content) or self.text
        self._limited |= finished is not None and finished.reason == "max-tokens"
        return message

    async def _keep_partial(self, made: Attempt) -> None:
        """What a cut or cancelled answer delivered: its text as an interrupted message, anything else as an attempt.

        If the log refuses it, the failure of the attempt is raised: it came first (G5).
        """
        try:
            await self._record_partial(made)
        except Exception as refusal:
            if made.failure is None:
                raise
            raise made.failure from refusal

    async def _record_partial(self, made: Attempt) -> None:
        content = made.answer.interrupted()
        if text_of(content).strip():
            message = self._message(content)
            body = AssistantMessage(self.number, self.step, message, interrupted=True)
            await self.desk.append((draft(body),))
            self.text = text_of(content)
            return
        error = None if made.failure is None else _error_info(made.failure)
        await self.desk.append((draft(AssistantAttempt(self.number, self.step, content, error)),))

    async def _wait(self, seconds: float) -> bool:
        """Wait before the next attempt; False if the user cancelled, who goes first."""
        with trio.CancelScope() as scope, self.cancellation.by(scope.cancel):
            await trio.sleep(seconds)
        return not self.cancellation.requested

    def _message(self, content: tuple[Block, ...], extra: JsonObject | None = None) -> ModelMessage:
        model = self.brain.model
        source = {"kind": "model", "provider": model.provider, "model": model.name, **(extra or {})}
        return ModelMessage("assistant", content, source, self.desk.sources.mint())

    # --- failure -----------------------------------------------------------------------------------------------

    async def _recover(self, failure: Exception) -> NoReturn:
        """Close in the log what is open, and raise `failure` to whoever waits for the turn; never returns."""
        self.failure = failure
        reason = Reason("error", message=_error_text(failure), code=_error_code(failure))
        turn = self._turn(reason)
        try:
            await self.desk.append(())
            for drafts in self._closing(reason):
                await self.desk.append(drafts)
        except Exception as refusal:  # noqa: BLE001 - both are raised: the refusal never hides the first failure
            raise RecoveryFailed(turn, failure, refusal) from failure
        raise TurnFailed(turn, failure) from failure

    def _closing(self, reason: Reason) -> list[tuple[Draft, ...]]:
        """The appends that close the open step, then the open turn."""
        log, appends = self.desk.log, list[tuple["Draft", ...]]()
        if log.phase is Phase.STEP:
            results = recovery_results(log.pending, "failed", lambda *_: self.desk.sources.mint(), self._settled)
            appends.append((*results, draft(StepEnd(log.turn, log.step))))
        if log.phase is not Phase.IDLE:
            appends.append((draft(TurnEnd(log.turn, reason)),))
        return appends

    def _turn(self, reason: Reason) -> Turn:
        return Turn(self.number, reason, self.text, self.step)


def _error_text(failure: BaseException) -> str:
    return clean_text(str(failure)) or type(failure).__name__


def _error_code(failure: BaseException) -> str:
    code = getattr(failure, "code", None)
    return code if isinstance(code, str) else type(failure).__name__


def _error_info(failure: BaseException) -> ErrorInfo:
    return ErrorInfo(type(failure).__name__, _error_code(failure), _error_text(failure))
