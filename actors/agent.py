"""`Agent`: the handle a user holds. Three actors under a supervisor stand behind it (see `supervised.py`)."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import trio
from attrs import frozen
from pykka import ActorDeadError

from quiesce.actors.feed import Feed
from quiesce.actors.fork import fork_session
from quiesce.actors.inside import refuse_inside
from quiesce.actors.kernel import ChildNotFoundError, SystemStoppedError, WhichChildren
from quiesce.actors.options import check_count, check_text, listed
from quiesce.actors.portable import portable
from quiesce.protocol.approvals import Question
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import Event, OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock, UserMessage
from quiesce.protocol.history import sendable
from quiesce.protocol.message import Message
from quiesce.protocol.messages import (
    Cancel,
    Decide,
    Deliver,
    ReadHistory,
    ReadQuestions,
    ReadStatistics,
    Subscribe,
    WhenIdle,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
    from typing import Self

    from quiesce.actors.feed import Happenings
    from quiesce.actors.kernel import ActorRef, ActorSystem
    from quiesce.actors.live import Watchers
    from quiesce.actors.scheduler import SchedulerActor
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.actors.step_driver import StepDriverActor
    from quiesce.actors.stores import Store
    from quiesce.protocol.approvals import CallKey
    from quiesce.protocol.events import Block
    from quiesce.protocol.inbox import Target
    from quiesce.protocol.messages import Receipt, SchedulerStatistics, Turn
    from quiesce.protocol.model import Visible

__all__ = ["Agent", "Content", "ReadAgent"]

R = TypeVar("R")

Content: TypeAlias = "str | Iterable[Block]"
"""What a user says: text, or content blocks."""


@frozen
class ReadAgent(Message["Agent"]):
    """Asked of the supervisor of an agent's three actors: the handle."""


class Agent:
    """One session and the three actors that run it. Made by `Runtime.agent`; by `Agent.of` in a tree of your own.

    Every method may be awaited in any task, of Trio or of asyncio; a plain thread has them run, as in
    `runtime.run(agent.send, "hello").get()`. The models, tools and hooks run on Trio, whoever calls. When one of the
    actors crashes its supervisor starts
    it again: the running turn is closed as interrupted and whoever waits for it gets the failure, queued input stays
    for the next waking one, and what is asked meanwhile waits. Once the agent is closed, or has crashed more than 3
    times in 5 seconds and given up, the methods raise `pykka.ActorDeadError`, whose cause is the failure; open the
    session again to go on.

    Cancelling a wait (`send`, `wait`) ends the wait, not the turn: `cancel` ends the turn.

    A tool, a hook or a model of this agent may call it too, but not wait for the turn that it is part of: there `send`,
    `cancel`, `wait` and `close` raise `SelfWaitError`; `follow_up`, `steer` and `inject` work. A `def` tool, which runs
    in a worker thread, calls it by `trio.from_thread.run(agent.inject, "...")`, not by `runtime.run`: only what is part
    of the turn is known to be, and ends with it.
    """

    def __init__(
        self,
        session_id: str,
        *,
        system: ActorSystem,
        store: Store,
        tree: ActorRef[Any],
        session: ActorRef[SessionActor],
        scheduler: ActorRef[SchedulerActor],
        driver: ActorRef[StepDriverActor],
        sources: Sources,
        watchers: Watchers,
    ) -> None:
        self.session_id = session_id
        self._system = system
        self._store = store
        self._tree = tree
        self._session = session
        self._scheduler = scheduler
        self._driver = driver
        self._sources = sources
        self._watchers = watchers
        self._on_closed: Callable[[Agent], object] = lambda _: None

    @classmethod
    async def of(cls, supervisor: ActorRef[Any], session_id: str) -> Self:
        """The handle of the agent that `supervisor`, a ref, has as a child, put there as an `agent_spec`.

        Raises `ChildNotFoundError` if it has none of that session, or one that is down.
        """
        for child in await supervisor.ask(WhichChildren()):
            if child.id == session_id and child.ref is not None:
                agent: Self = await child.ref.ask(ReadAgent())
                return agent
        raise ChildNotFoundError(session_id)

    def __repr__(self) -> str:
        return f"<Agent {self.session_id!r} {'open' if self.is_alive() else 'closed'}>"

    def is_alive(self) -> bool:
        """Whether all three actors are running, or being started again."""
        return all(ref.is_alive() for ref in (self._tree, self._session, self._scheduler, self._driver))

    async def _ask(self, ref: ActorRef[Any], message: Message[R]) -> R:
        """Ask one of the actors; if the agent is dead because it gave up, the error says why."""
        try:
            return await ref.ask(message)
        except ActorDeadError as error:
            if error.__cause__ is None and not self.is_alive():
                await self._tree.ask(ReadAgent())  # raises, with the cause
            raise

    # --- input -------------------------------------------------------------------------------------------------

    @portable
    async def send(self, content: Content) -> Turn:
        """Queue a follow-up, and wait for the end of the turn that takes it.

        Raises:
            InvalidInput: the content is empty, or holds what a log cannot store (NUL, lone surrogates).
            TurnFailed: the turn failed; it carries the turn, and its cause is the original failure.
            InputParked: the turn before it did not complete; the input stays queued for the next waking one.
            InputDropped: it was cancelled before a turn took it.
            StoreError: it could not be stored.

        """
        refuse_inside(self._session, "send")
        return await (await self.follow_up(content)).turn

    @portable
    async def follow_up(self, content: Content) -> Receipt:
        """Queue input for a turn of its own; return when it is durable. `receipt.turn` waits for that turn."""
        return await self._deliver(content, "next-turn", wake=True)

    @portable
    async def steer(self, content: Content) -> Receipt:
        """Queue input for the next step of the running turn (or a new turn); return when it is durable."""
        return await self._deliver(content, "next-step", wake=True)

    @portable
    async def inject(self, content: Content) -> Receipt:
        """Queue input for the next step, whenever there is one: it starts no turn. Return when it is durable."""
        return await self._deliver(content, "next-step", wake=False)

    async def _deliver(self, content: Content, target: Target, *, wake: bool) -> Receipt:
        message = UserMessage(_blocks(content), {"kind": "user"}, "user", self._sources.mint())
        return await self._ask(self._driver, Deliver(message, target, wake))

    # --- turns -------------------------------------------------------------------------------------------------

    @portable
    async def cancel(self, cause: str = "user", *, keep_inbox: bool = False) -> Turn | None:
        """End the running turn as aborted, wait until it is over, and return the last turn; nothing if none runs.

        Queued input is dropped unless `keep_inbox`. Tool bodies are cancelled and waited for. The first of several
        cancels counts, with its `cause`. One that comes when the turn is all but over lets it complete, and holds for
        what is queued. Raises `InvalidInput` for a cause that cannot be stored.
        """
        check_text("cause", cause)
        refuse_inside(self._session, "cancel")
        await self._ask(self._driver, Cancel(cause, keep_inbox))
        return await self.wait()

    @portable
    async def wait(self) -> Turn | None:
        """Wait until no turn is running or due. The last turn that ended since the agent was opened, if any did."""
        refuse_inside(self._session, "wait")
        return await self._ask(self._driver, WhenIdle())

    # --- questions ---------------------------------------------------------------------------------------------

    @portable
    async def questions(self) -> tuple[Question, ...]:
        """The calls that wait for a person now, in call order: those for which a `prepare` hook returned an `Ask`.

        Their turn waits until each is decided, however long that takes; its other calls run on. Each question, and each
        decision, is also an event (`approval/requested`, `approval/decided`) that `events` gives when it is durable.

        A question outlives its process: after a crash, or when the runtime was left while the turn waited for nothing
        but people, opening the session again finds it, and the turn goes on. What had a result keeps it; what may have
        run is not run again, and is answered as unknown; what had never started has its turn. What results had brought
        along for the step or the turn (context, `concludes_turn`) is not kept over a restart.

        Answered without a decision, as never started, are the calls of a turn that is cancelled, of an agent that is
        closed, and of a step that fails.
        """
        return await self._ask(self._session, ReadQuestions())

    @portable
    async def approve(self, question: Question | CallKey) -> None:
        """Let the call run that waits for a person, with the arguments of its question; return when that is durable.

        `question` is one of `questions`, or its `key`: (turn, step, index). Nothing but this call is decided by it.

        Raises:
            InvalidInput: `question` is neither.
            NoOpenQuestion: nobody is asked about that call; `AlreadyDecided` if somebody was faster.
            StoreError: it could not be stored; the question is still open.

        """
        await self._ask(self._scheduler, Decide(_key(question), approved=True))

    @portable
    async def deny(self, question: Question | CallKey, reason: str) -> None:
        """Have the call that waits for a person answered `TOOL_DENIED`, with `reason` for the model to read.

        As `approve` in everything else. Raises `InvalidInput` also for a reason that is blank or cannot be stored.
        """
        check_text("reason", reason)
        if not reason.strip():
            raise InvalidInput("reason: there is nothing in it; say why")
        await self._ask(self._scheduler, Decide(_key(question), approved=False, reason=reason))

    # --- reading -----------------------------------------------------------------------------------------------

    @portable
    async def history(self) -> tuple[Visible, ...]:
        """The messages as the next request will have them, apart from input that is still queued."""
        view = await self._ask(self._session, ReadHistory())
        return sendable(view.entries, in_order=view.in_order)

    async def events(self, from_seq: int = 0) -> AsyncGenerator[Event, None]:
        """The log from `from_seq` on: what is there, then each event as it is committed, until the session stops.

        It also ends when the session crashes: read on from the event after the last one. Events that the reader does
        not take wait in memory. Raises `InvalidInput` for a `from_seq` that cannot be, and `StoreError` or
        `UnreadableLog` if what is there cannot be read. A plain thread iterates `runtime.iterate(agent.events())`.
        """
        check_count("from_seq", from_seq, least=0)
        feed = Feed(self._system)
        news = feed.read()
        try:
            live_from = await self._ask(self._session, Subscribe(feed))
            for event in await self._read(from_seq, live_from):
                yield event
            async for what in news:
                if isinstance(what, Event) and what.seq >= from_seq:
                    yield what
        finally:
            self._system.call_in_order(feed.close)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Happenings]:
        """What happens from here on, in its order: each committed event, and the model's answers as they come.

            async with agent.watch() as happenings:
                await agent.follow_up("Hello")
                async for what in happenings:
                    match what:
                        case ModelDelta(delta=TextDelta(text)):
                            print(text, end="")
                        case Event(type="turn/end"):
                            break

        Between two events come the `ModelDelta`s of the request that runs, and an `AttemptFailed` for each attempt that
        fails. They come once and are not stored. It ends when the session stops or crashes; what its reader does not
        take waits in memory. As every method it may be used in any task, of whichever loop; a plain thread has an async
        function run that does (`runtime.run`).
        """
        feed = Feed(self._system)
        happenings = feed.read()
        try:
            await self._show(feed)
            yield happenings
        finally:
            self._system.call_in_order(self._show_no_more, feed)

    @portable
    async def _show(self, feed: Feed) -> None:
        """Tell `feed` what happens: events and deltas from the same moment on."""
        await self._ask(self._session, Subscribe(feed))
        self._watchers.add(feed.hear)

    def _show_no_more(self, feed: Feed) -> None:
        feed.close()
        self._watchers.remove(feed.hear)

    @portable
    async def _read(self, from_seq: int, to_seq: int) -> Sequence[Event]:
        return await self._store.read(self.session_id, from_seq, to_seq)

    @portable
    async def statistics(self) -> SchedulerStatistics:
        """What the scheduler counts."""
        return await self._ask(self._scheduler, ReadStatistics())

    @portable
    async def fork(self, new_id: str | None = None, *, at: int | None = None) -> str:
        """Fork this session up to event `at` (by default the last); return the new session's id. See `fork_session`."""
        return await fork_session(self._store, self.session_id, new_id, at=at, sources=self._sources)

    # --- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Cancel the running turn, keep what is queued, and stop driver, scheduler and session, in this order.

        Calls that wait for a person are answered `TOOL_NOT_STARTED`: whoever closes a session wants no answer any more.
        (A runtime that is left keeps such questions open; see there.) Returns when nothing of the agent is left and its
        lease is free. One that is being started again, or waits for that, is closed as well (but see `agent_spec` for a
        `permanent` one). Closing twice does nothing. Cancelled, it stops the actors without waiting for the turn to be
        closed in the log; resume does that.
        """
        await self._end(Cancel("closed", keep_inbox=True))

    async def _leave(self) -> None:
        """As `close`, but a turn that waits for nothing but people stays open in the log."""
        await self._end(Cancel("closed", keep_inbox=True, keep_questions=True))

    async def _end(self, cancel: Cancel) -> None:
        try:
            await self._close(cancel)
        except SystemStoppedError:  # then it has been closed with all the others, or is being closed
            await self._tree.wait_stopped()

    @portable
    async def _close(self, cancel: Cancel) -> None:
        refuse_inside(self._session, "close")
        try:
            with suppress(ActorDeadError):
                if await self._driver.ask(cancel):
                    await self._driver.ask(WhenIdle())
            await self._tree.aclose()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._tree.stop(block=False, now=True)  # also if a restart is under way that takes its time
            raise
        finally:
            self._on_closed(self)

    def _tell_when_closed(self, on_closed: Callable[[Agent], object]) -> None:
        self._on_closed = on_closed


def _key(question: object) -> CallKey:
    key = question.key if isinstance(question, Question) else question
    if not isinstance(key, tuple) or len(key) != 3 or any(type(part) is not int for part in key):  # noqa: PLR2004 - turn, step, index
        raise InvalidInput(f"question: must be a Question or its key (turn, step, index), not {question!r}")
    return key


def _blocks(content: Content) -> tuple[Block, ...]:
    """The content blocks of what a user said. Raises `InvalidInput` for what a user cannot say, and for nothing."""
    blocks = (TextBlock(content),) if isinstance(content, str) else listed("content", content, "a text, or blocks")
    said = [_says_something(at, block) for at, block in enumerate(blocks)]  # all of them: each block is checked
    if not any(said):
        raise InvalidInput("content: there is nothing in it; give some text or a content block")
    return blocks


def _says_something(at: int, block: Block) -> bool:
    match block:
        case TextBlock(text=str(text)):
            return bool(text.strip())
        case OpaqueBlock(data={"type": str(kind)}) if kind not in _NOT_OPAQUE:
            return True
    raise InvalidInput(f"content[{at}]: must be a text block, or an opaque one with a type of its own, not {block!r}")


_NOT_OPAQUE: Final = frozenset({TextBlock.TYPE, ReasoningBlock.TYPE, ToolCallBlock.TYPE})
"""Types that a log reads as blocks of its own: a user neither thinks nor calls in what the model reads."""
