"""SessionActor: the only writer of one session's log.

It admits drafts by the rules, numbers them and hands them to the store without waiting, so that senders may pipeline.
Two states of the log are kept: the *tail*, which counts what was handed to the store, and what is *committed*. A draft
is admitted against the tail. When the store refuses an append, the tail falls back to what is committed; what was
handed over behind it does not fit any more, is refused by the store in its turn, and is answered with the first error.

The order that it guarantees for each append: durable, then observers are told, then the appender gets its reply.

Under a supervisor it is a `ResumedSession`, which takes the lease and replays the log whenever it starts. What the
store still says to an incarnation that crashed is not meant for the next one, which has read it in the log.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from attrs import Factory, define, frozen
from pykka import ActorDeadError

from quiesce.actors.kernel import TrioActor, receive
from quiesce.actors.stores.whole import release
from quiesce.protocol.approvals import Question, Questions
from quiesce.protocol.codec import check_draft
from quiesce.protocol.errors import StoreError
from quiesce.protocol.history import History
from quiesce.protocol.inbox import Inbox
from quiesce.protocol.message import Message
from quiesce.protocol.messages import (
    Append,
    CloseOpenTurn,
    Committed,
    EventsCommitted,
    HistoryView,
    Observer,
    ReadHistory,
    ReadQuestions,
    SessionStopped,
    Subscribe,
)
from quiesce.protocol.recovery import closers
from quiesce.protocol.rules import LogState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quiesce.actors.kernel import Reply
    from quiesce.actors.lease import Lease
    from quiesce.actors.sources import Sources
    from quiesce.actors.stores import Writer
    from quiesce.protocol.events import Draft, Event

__all__ = ["ResumedSession", "SessionActor", "SessionState"]


@define
class SessionState:
    """What a session remembers of its committed log: the state of the rules, the history, the input, the questions."""

    log: LogState = Factory(LogState)
    history: History = Factory(History)
    inbox: Inbox = Factory(Inbox)
    asked: Questions = Factory(Questions)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The calls that wait for a person, in call order."""
        return self.asked.undecided(self.log.pending)

    @classmethod
    def replay(cls, events: Iterable[Event]) -> SessionState:
        """The state after `events`."""
        state = cls()
        for event in events:
            state.watch(event)
        return state

    def watch(self, event: Event) -> None:
        """Take the next committed event."""
        self.log.watch(event)
        self.history.observe(event)
        self.inbox.observe(event)
        self.asked.observe(event)


@frozen
class _Stored(Message[None]):
    """The store has answered for one append of one incarnation."""

    asker: SessionActor
    events: tuple[Event, ...]
    generation: int
    reply: Reply[Committed]
    error: Exception | None


class SessionActor(TrioActor):
    """Owns the lease and the state of one log. Stopping it releases the lease, after what was handed over is stored."""

    def __init__(self, writer: Writer, state: SessionState, sources: Sources) -> None:
        super().__init__()
        self._begin_at(writer, state)
        self._remember_nothing(sources)

    def _remember_nothing(self, sources: Sources) -> None:
        self._sources = sources
        self._generation = 0
        self._refusal: Exception = StoreError("nothing was refused yet")
        self._in_flight = 0
        self._behind: list[Reply[Committed]] = []
        self._observers: list[Observer] = []

    def _begin_at(self, writer: Writer, state: SessionState) -> None:
        self._writer = writer
        self._state = state
        self._tail = state.log.copy()

    @receive(Append)
    def append(self, message: Append) -> None:
        """Refuses, by raising, what breaks a rule or is not storable; otherwise answers when it is durable.

        An append of nothing is answered when what was handed over before it is settled.
        """
        self._store(message, message.drafts, max(self._sources.now(), self._tail.last_time))

    @receive(CloseOpenTurn)
    def close_open_turn(self, message: CloseOpenTurn) -> None:
        """The closers carry the time of the last event: nothing happened since."""
        kept = message.keep_questions and self._tail.pending.undecided
        self._store(message, () if kept else closers(self._tail, message.cause), self._tail.last_time)

    @receive(ReadHistory)
    def read_history(self, _: ReadHistory) -> HistoryView:
        """What is committed now."""
        state = self._state
        history, log = state.history, state.log.copy()
        return HistoryView(history.entries(), history.in_order, state.inbox.copy(), log, state.questions)

    @receive(ReadQuestions)
    def read_questions(self, _: ReadQuestions) -> tuple[Question, ...]:
        """Those that are committed and open now."""
        return self._state.questions

    @receive(Subscribe)
    def subscribe(self, message: Subscribe) -> int:
        """The observer is told of each event once, in log order, however often it subscribes."""
        if not any(known is message.observer for known in self._observers):
            self._observers.append(message.observer)
        return self._state.log.next_seq

    @receive(_Stored)
    def stored(self, message: _Stored) -> None:
        """An append is durable, or refused."""
        if message.asker is not self:
            return
        self._in_flight -= 1
        if message.error is None:
            self._commit(message)
        else:
            message.reply.set_exception(self._fall_back(message.generation, message.error))
        if not self._in_flight:
            behind, self._behind = self._behind, []
            for reply in behind:
                reply.set(Committed(()))

    async def on_stop(self) -> None:
        """Tell the observers that no event will follow, and give the lease back."""
        await self._stop(None)

    async def on_failure(self, _kind: object, failure: BaseException | None, _trace: object) -> None:
        """As `on_stop`, after a crash."""
        await self._stop(failure)

    async def _stop(self, failure: BaseException | None) -> None:
        self._tell(SessionStopped(failure))
        await release(self._writer)

    def _store(self, message: Message[Committed], drafts: Sequence[Draft], time: int) -> None:
        for item in drafts:
            check_draft(item)
        events = self._tail.admit(drafts, time)
        reply = self.take_reply(message)
        if events:
            self._in_flight += 1
            self._writer.append(events, partial(self._answered, events, self._generation, reply))
        elif self._in_flight:
            self._behind.append(reply)
        else:
            reply.set(Committed(()))

    def _commit(self, message: _Stored) -> None:
        for event in message.events:
            self._state.watch(event)
        self._tell(EventsCommitted(message.events))
        message.reply.set(Committed(message.events))

    def _answered(
        self,
        events: tuple[Event, ...],
        generation: int,
        reply: Reply[Committed],
        error: Exception | None,
    ) -> None:
        with suppress(ActorDeadError):  # the reply was failed when the actor stopped
            self.actor_ref.tell(_Stored(self, events, generation, reply, error))

    def _fall_back(self, generation: int, error: Exception) -> Exception:
        """Drop what was assumed on top of a failed append, once for all that were in flight with it.

        Gives back the error to report: those behind the first were refused because of it, whatever the store says.
        """
        if generation == self._generation:
            self._tail = self._state.log.copy()
            self._generation += 1
            self._refusal = error
        return self._refusal

    def _tell(self, message: EventsCommitted | SessionStopped) -> None:
        for observer in tuple(self._observers):
            try:
                observer.tell(message)
            except Exception:  # noqa: BLE001 - an observer that cannot be told must not harm the log; it is dropped
                self._observers.remove(observer)


class ResumedSession(SessionActor):
    """A session that takes its lease and replays its log when it starts, so that it can be started again.

    Starting it raises what `Lease.resume` raises.
    """

    def __init__(self, lease: Lease, sources: Sources) -> None:
        TrioActor.__init__(self)
        self._lease = lease
        self._remember_nothing(sources)

    async def on_start(self) -> None:
        """Wait for the lease and the log."""
        self._begin_at(*await self._lease.resume())
