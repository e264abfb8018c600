"""`Agent`: the handle a user holds. Three actors stand behind it; it owns the order in which they stop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from pykka import ActorDeadError

from quiesce.actors.fork import fork_session
from quiesce.actors.inside import refuse_inside
from quiesce.actors.options import check_count, check_text, listed
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock, UserMessage
from quiesce.protocol.history import sendable
from quiesce.protocol.messages import (
    Cancel,
    Deliver,
    EventsCommitted,
    ReadHistory,
    ReadStatistics,
    SessionStopped,
    Subscribe,
    WhenIdle,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from quiesce.actors.kernel import ActorRef
    from quiesce.actors.scheduler import SchedulerActor
    from quiesce.actors.session import SessionActor
    from quiesce.actors.sources import Sources
    from quiesce.actors.step_driver import StepDriverActor
    from quiesce.actors.stores import Store
    from quiesce.protocol.events import Block, Event
    from quiesce.protocol.inbox import Target
    from quiesce.protocol.messages import Receipt, SchedulerStatistics, Turn
    from quiesce.protocol.model import Visible

__all__ = ["Agent", "Content"]

Content: TypeAlias = "str | Iterable[Block]"
"""What a user says: text, or content blocks."""


class Agent:
    """One session and the three actors that run it. Made by `Runtime.agent`.

    Every method may be called from any task of the runtime's loop. Once the agent is closed, or one of its actors has
    crashed, they raise `pykka.ActorDeadError`; open the session again to go on.

    Cancelling a wait (`send`, `wait`) ends the wait, not the turn: `cancel` ends the turn.

    A tool, a hook or a model of this agent may call it too, but not wait for the turn that it is part of: there `send`,
    `cancel`, `wait` and `close` raise `SelfWaitError`; `follow_up`, `steer` and `inject` work.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: Store,
        session: ActorRef[SessionActor],
        scheduler: ActorRef[SchedulerActor],
        driver: ActorRef[StepDriverActor],
        sources: Sources,
        on_closed: Callable[[Agent], object],
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._session = session
        self._scheduler = scheduler
        self._driver = driver
        self._sources = sources
        self._on_closed = on_closed

    def __repr__(self) -> str:
        return f"<Agent {self.session_id!r} {'open' if self.is_alive() else 'closed'}>"

    def is_alive(self) -> bool:
        """Whether all three actors are running."""
        return all(ref.is_alive() for ref in (self._session, self._scheduler, self._driver))

    # --- input -------------------------------------------------------------------------------------------------

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

    async def follow_up(self, content: Content) -> Receipt:
        """Queue input for a turn of its own; return when it is durable. `receipt.turn` waits for that turn."""
        return await self._deliver(content, "next-turn", wake=True)

    async def steer(self, content: Content) -> Receipt:
        """Queue input for the next step of the running turn (or a new turn); return when it is durable."""
        return await self._deliver(content, "next-step", wake=True)

    async def inject(self, content: Content) -> Receipt:
        """Queue input for the next step, whenever there is one: it starts no turn. Return when it is durable."""
        return await self._deliver(content, "next-step", wake=False)

    async def _deliver(self, content: Content, target: Target, *, wake: bool) -> Receipt:
        message = UserMessage(_blocks(content), {"kind": "user"}, "user", self._sources.mint())
        return await self._driver.ask(Deliver(message, target, wake))

    # --- turns -------------------------------------------------------------------------------------------------

    async def cancel(self, cause: str = "user", *, keep_inbox: bool = False) -> Turn | None:
        """End the running turn as aborted, wait until it is over, and return the last turn; nothing if none runs.

        Queued input is dropped unless `keep_inbox`. Tool bodies are cancelled and waited for. The first of several
        cancels counts, with its `cause`. One that comes when the turn is all but over lets it complete, and holds for
        what is queued. Raises `InvalidInput` for a cause that cannot be stored.
        """
        check_text("cause", cause)
        refuse_inside(self._session, "cancel")
        await self._driver.ask(Cancel(cause, keep_inbox))
        return await self.wait()

    async def wait(self) -> Turn | None:
        """Wait until no turn is running or due. The last turn that ended since the agent was opened, if any did."""
        refuse_inside(self._session, "wait")
        return await self._driver.ask(WhenIdle())

    # --- reading -----------------------------------------------------------------------------------------------

    async def history(self) -> tuple[Visible, ...]:
        """The messages as the next request will have them, apart from input that is still queued."""
        view = await self._session.ask(ReadHistory())
        return sendable(view.entries, in_order=view.in_order)

    async def events(self, from_seq: int = 0) -> AsyncIterator[Event]:
        """The log from `from_seq` on: what is there, then each event as it is committed, until the agent stops.

        Events that the reader does not take wait in memory. Raises `InvalidInput` for a `from_seq` that cannot be,
        and `StoreError` or `UnreadableLog` if what is there cannot be read.
        """
        check_count("from_seq", from_seq, least=0)
        send, receive = trio.open_memory_channel["Event"](float("inf"))
        live_from = await self._session.ask(Subscribe(_Feed(send)))
        with receive:
            for event in await self._store.read(self.session_id, from_seq, live_from):
                yield event
            async for event in receive:
                if event.seq >= from_seq:
                    yield event

    async def statistics(self) -> SchedulerStatistics:
        """What the scheduler counts."""
        return await self._scheduler.ask(ReadStatistics())

    async def fork(self, new_id: str | None = None, *, at: int | None = None) -> str:
        """Fork this session up to event `at` (by default the last); return the new session's id. See `fork_session`."""
        return await fork_session(self._store, self.session_id, new_id, at=at, sources=self._sources)

    # --- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Cancel the running turn, keep what is queued, and stop driver, scheduler and session, in this order.

        Returns when nothing of the agent is left and its lease is free. Closing twice does nothing. Cancelled, it stops
        the actors without waiting for the turn to be closed in the log; resume does that.
        """
        refuse_inside(self._session, "close")
        try:
            with suppress(ActorDeadError):
                await self._driver.ask(Cancel("closed", keep_inbox=True))
                await self._driver.ask(WhenIdle())
        finally:
            with trio.CancelScope(shield=True):
                for ref in (self._driver, self._scheduler, self._session):
                    await ref.aclose()
            self._on_closed(self)


class _Feed:
    """An observer that puts committed events into a channel, and closes it when none will follow."""

    def __init__(self, send: trio.MemorySendChannel[Event]) -> None:
        self._send = send

    def tell(self, message: EventsCommitted | SessionStopped, /) -> None:
        if isinstance(message, SessionStopped):
            self._send.close()
            return
        for event in message.events:
            self._send.send_nowait(event)


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
