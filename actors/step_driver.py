"""StepDriverActor: owns turns and steps, the user's inbox, and the cancel of the running turn.

Its rules (behaviour: turns):

1. Input is durable before it is acknowledged. The queues follow the committed log and nothing else.
2. A waking input starts a turn when none is running; turns follow each other while waking input waits. Input for a turn
   of its own is waking by nature; input for the next step is if whoever delivered it says so.
3. After a turn that failed, was aborted or blocked, what is queued is parked until the next waking input. Whoever waits
   for a parked input is told so; the input itself stays. A cancel that comes too late to abort the turn does the same.
4. Started (again), it waits for a quiescent scheduler and closes what was left open before it does anything else. What
   is queued then is parked; what its predecessor was asked for and did not answer has failed.
5. Started for the first time, it does not close a turn in which a call waits for a person: it goes on with it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.cancellation import Cancellation
from quiesce.actors.inside import inside
from quiesce.actors.kernel import Reply, TrioActor, receive
from quiesce.actors.turn import TurnRun
from quiesce.protocol.errors import InputDropped, InputParked, RecoveryFailed, StoreError, TurnFailed
from quiesce.protocol.inbox import Inbox, Target, insert, remove
from quiesce.protocol.message import Message
from quiesce.protocol.messages import (
    Append,
    Cancel,
    CloseOpenTurn,
    Committed,
    Deliver,
    EventsCommitted,
    Quiesce,
    ReadHistory,
    Receipt,
    SessionStopped,
    Subscribe,
    Turn,
    WhenIdle,
)
from quiesce.protocol.rules import LogState, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.actors.kernel import ActorRef
    from quiesce.actors.scheduler import SchedulerActor
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.actors.turn import Brain
    from quiesce.protocol.events import Draft, UserMessage

__all__ = ["StepDriverActor"]


@frozen
class _Delivered(Message[None]):
    """The log has answered for an input that one incarnation was handed."""

    driver: StepDriverActor
    message: Deliver
    reply: Reply[Receipt]
    stored: Reply[Committed]


@frozen
class _Sync(Message[None]):
    """Answered when everything before it in the inbox has been handled."""


class StepDriverActor(TrioActor):
    """Drives the turns of one session. See the module's rules."""

    def __init__(
        self,
        session: ActorRef[SessionActor],
        scheduler: ActorRef[SchedulerActor],
        brain: Brain,
        sources: Sources,
    ) -> None:
        super().__init__()
        self.session = session
        self.scheduler = scheduler
        self.sources = sources
        self.log = LogState()
        self.inbox = Inbox()
        self._brain = brain
        self._session_failure: BaseException | None = None
        self._waking: set[str] = set()
        self._running: TurnRun | None = None
        self._last: Turn | None = None
        self._arriving: Counter[str] = Counter()
        self._waiters: dict[str, Reply[Turn]] = {}
        self._idlers: list[Reply[Turn | None]] = []

    async def on_start(self) -> None:
        """Rules 4 and 5."""
        await self.scheduler.ask(Quiesce())
        await self.session.ask(CloseOpenTurn("interrupted", keep_questions=self.actor_ref.incarnation == 1))
        subscribed, read = self.session.ask(Subscribe(self.actor_ref)), self.session.ask(ReadHistory())
        await subscribed
        view = await read  # asked for at the same moment, so that no event comes between the two
        self.log, self.inbox = view.log, view.inbox
        if self.log.phase is Phase.STEP:
            self._running = TurnRun.resumed(self, self._brain, Cancellation(), view)
            self.start_soon(self._turns, self._running)

    # --- the log -----------------------------------------------------------------------------------------------

    @receive(EventsCommitted)
    def watch(self, message: EventsCommitted) -> None:
        """Follow the committed log. What comes late, for a predecessor, has been read already."""
        for event in message.events:
            if event.seq < self.log.next_seq:
                continue
            self.log.watch(event)
            self.inbox.observe(event)

    @receive(SessionStopped)
    def session_stopped(self, message: SessionStopped) -> None:
        """No event will follow; what still wants the session gets its own error."""
        self._session_failure = message.failure

    @receive(_Sync)
    def synced(self, _: _Sync) -> None:
        """The messages before this one have been handled: that is all it says."""

    async def append(self, drafts: Sequence[Draft]) -> Committed:
        """Append, and return when it is durable and this actor's view of the log shows it."""
        committed = await self.session.ask(Append(tuple(drafts)))
        await self.actor_ref.ask(_Sync())  # observers are told before appenders: the events are in the inbox by now
        return committed

    # --- input -------------------------------------------------------------------------------------------------

    @receive(Deliver)
    def deliver(self, message: Deliver) -> None:
        """Store the input; the receipt follows when it is durable (rule 1)."""
        reply = self.take_reply(message)
        start = len(self.inbox.queued(message.target)) + self._arriving[message.target]
        self._arriving[message.target] += 1
        stored = self.session.ask(Append((insert(message.target, start, message.message),)))
        stored.on_done(partial(self._stored, message, reply))

    def _stored(self, message: Deliver, reply: Reply[Receipt], stored: Reply[Committed]) -> None:
        with suppress(ActorDeadError):  # the reply was failed when the actor stopped
            self.actor_ref.tell(_Delivered(self, message, reply, stored))

    @receive(_Delivered)
    def delivered(self, message: _Delivered) -> None:
        """Hand out the receipt, and wake for it (rule 2)."""
        if message.driver is not self:
            return
        request = message.message
        self._arriving[request.target] -= 1
        try:
            message.stored.get()
        except Exception as refusal:  # noqa: BLE001 - whatever the log said goes to whoever delivered
            message.reply.set_exception(refusal)
            return
        waiter = self._waiters[request.message.id] = Reply[Turn]()
        message.reply.set(Receipt(request.message.id, waiter))
        if request.wake:
            self._wake(request.message)

    @receive(Cancel)
    def cancel(self, message: Cancel) -> bool:
        """The first cause wins; nothing happens when no turn is running, or one that is to be kept open."""
        if self._running is None:
            return False
        cancellation = self._running.cancellation
        if message.keep_questions and self.log.pending.only_undecided and not cancellation.requested:
            return False
        cancellation.request(message.cause, keep_inbox=message.keep_inbox)
        return True

    @receive(WhenIdle)
    def when_idle(self, message: WhenIdle) -> None:
        """Answer now, or when the running turns are over."""
        reply = self.take_reply(message)
        if self._running is None:
            reply.set(self._last)
        else:
            self._idlers.append(reply)

    # --- turns -------------------------------------------------------------------------------------------------

    def _wake(self, message: UserMessage) -> None:
        """`message` wants a turn. If none is running, it takes along what was parked."""
        self._waking.add(message.id)
        if self._running is None:
            self._waking.update(parked.id for parked in self.inbox.queued("next-turn"))
            self._running = self._next_turn()
            self.start_soon(self._turns, self._running)

    def _next_turn(self) -> TurnRun:
        return TurnRun(self, self._brain, Cancellation())

    async def _turns(self, run: TurnRun) -> None:
        """Run turns while one is open or there is waking input (rules 2, 3 and 5), then tell who waits for that."""
        while run.number or self._is_due():
            await self._one_turn(run)
            self._running = run = self._next_turn()
        self._running = None
        idlers, self._idlers = self._idlers, []
        for reply in idlers:
            reply.set(self._last)

    def _is_due(self) -> bool:
        """Whether waking input waits that no step has claimed."""
        queued = (message for target in get_args(Target) for message in self.inbox.queued(target))
        due = any(message.id in self._waking for message in queued)
        if not due:
            self._waking.clear()  # all of it was claimed
        return due

    async def _one_turn(self, run: TurnRun) -> None:
        """Run one turn, see to what is still queued, and tell its waiters: last, since they may go on at once."""
        try:
            with inside(self.session):
                self._last = turn = await run.run()
        except TurnFailed as failed:
            self._last = failed.turn
            self._answer(self._park(run), _parked(failed))
            self._answer(run.claimed, failed)
            if isinstance(failed, RecoveryFailed):
                raise  # the log is closed to this driver: it crashes, and the next one repairs the log or gives up
            return
        if turn.reason.kind not in _ON or run.cancellation.requested:
            await self._set_aside(run)
        self._answer(run.claimed, turn)

    async def _set_aside(self, run: TurnRun) -> None:
        """Drop or park what was queued when the turn ended. What arrives from now on is the next waking input."""
        parked = self._park(run)
        if run.cancellation.requested and not run.cancellation.keep_inbox:
            with suppress(StoreError):  # then it stays queued, as whoever waits for it is told
                await self._drop_inbox()
        self._answer(parked, _parked(None))

    def _park(self, run: TurnRun) -> Sequence[str]:
        """Nothing that is queued wakes any more (rule 3). Whoever waits for one of the ids given back is to be told."""
        self._waking.clear()
        return [message_id for message_id in self._waiters if message_id not in run.claimed]

    async def _drop_inbox(self) -> None:
        queues = {target: self.inbox.queued(target) for target in get_args(Target)}
        await self.append([item for target, queue in queues.items() for item in remove(target, len(queue), "dropped")])
        dropped = [message.id for queue in queues.values() for message in queue]
        self._answer(dropped, InputDropped("a cancel dropped it from the inbox"))

    def _answer(self, message_ids: Sequence[str], outcome: Turn | Exception) -> None:
        for message_id in message_ids:
            waiter = self._waiters.pop(message_id, None)
            if waiter is None:
                continue
            if isinstance(outcome, Exception):
                waiter.set_exception(outcome)
            else:
                waiter.set(outcome)

    # --- the end -----------------------------------------------------------------------------------------------

    def on_stop(self) -> None:
        """Whoever still waits for a turn is told that it will not come; a colleague's crash is the cause."""
        self._fail_waiters(self._colleagues_failure())

    def on_failure(self, _kind: object, failure: BaseException | None, _trace: object) -> None:
        """As `on_stop`, after a crash."""
        self._fail_waiters(failure)

    def _colleagues_failure(self) -> BaseException | None:
        failure = None if self._running is None else self._running.failure
        return failure or self._session_failure

    def _fail_waiters(self, cause: BaseException | None) -> None:
        error = ActorDeadError(f"{self.actor_ref} stopped before the turn ended")
        error.__cause__ = cause
        self._answer(list(self._waiters), error)


_ON: Final = frozenset({"completed", "max-tokens"})
"""The kinds of end after which queued input goes on without another waking input."""


def _parked(cause: TurnFailed | None) -> InputParked:
    parked = InputParked("the turn before it did not complete; it stays queued")
    parked.__cause__ = cause
    return parked
