"""`Runtime`: many agents, one store. It opens sessions, creating or repairing them, and closes them in order."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from pykka import ActorDeadError

from quiesce.actors.agent import Agent
from quiesce.actors.attempts import RetryPolicy
from quiesce.actors.dispatch import Workshop
from quiesce.actors.fork import fork_session, release
from quiesce.actors.hooks import HookChain
from quiesce.actors.kernel import ActorSystem, TrioActor
from quiesce.actors.options import check_count, check_instance, check_seconds, listed
from quiesce.actors.scheduler import SchedulerActor
from quiesce.actors.session import SessionActor, SessionState
from quiesce.actors.sources import Sources
from quiesce.actors.step_driver import StepDriverActor
from quiesce.actors.stores import SqliteStore, Store
from quiesce.actors.tools import Toolbox
from quiesce.actors.turn import Brain
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from os import PathLike

    from quiesce.actors.attempts import Model
    from quiesce.actors.hooks import Hooks
    from quiesce.actors.kernel import ActorRef, Reply
    from quiesce.actors.stores import Writer
    from quiesce.actors.tools import AnyTool

__all__ = ["Runtime"]

A = TypeVar("A", bound=TrioActor)
_PIECE: Final = 1000
"""How many events are read and replayed at a time: a few milliseconds of work."""


class Runtime:
    """Runs agents on one store. Use `Runtime.open`."""

    def __init__(self, store: Store, system: ActorSystem, sources: Sources) -> None:
        self.store = store
        self._system = system
        self._sources = sources
        self._agents: dict[str, Agent] = {}
        self._being_opened: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, store: Store | str | PathLike[str], *, sources: Sources | None = None
    ) -> AsyncIterator[Runtime]:
        """Open a runtime on `store`: a store, or the path of an SQLite file, which is made if it is not there.

        On leaving, every agent is closed. Cancelled, the agents are stopped at once, and what their turns left open in
        the log is repaired when they are resumed.

        Raises `InvalidInput` for what is no store, and `StoreError` for one that cannot be opened.
        """
        if sources is not None:
            check_instance("sources", sources, Sources)
        async with _as_store(store) as opened, ActorSystem(name="quiesce") as system:
            runtime = cls(opened, system, sources or Sources())
            try:
                yield runtime
            finally:
                await runtime._close()

    async def agent(
        self,
        session_id: str,
        *,
        model: Model,
        tools: Iterable[AnyTool] = (),
        hooks: Iterable[Hooks] = (),
        system: str | None = None,
        max_parallel: int = 10,
        max_steps: int = 100,
        drain_grace: float = 30.0,
        retry: RetryPolicy | None = None,
        takeover: bool = False,
    ) -> Agent:
        """Open a session: create it, or resume it, closing first what a crash left open in its log.

        Args:
            session_id: its name in the store.
            model: who answers its requests.
            tools: what the model may ask for, made by `@tool`.
            hooks: what is asked around each call; the first is the outermost.
            system: the system prompt. It is not part of the log.
            max_parallel: how many bodies of parallel calls may run at a time.
            max_steps: how many model requests a turn may take.
            drain_grace: seconds that live bodies may go on after the scheduler failed, before they are cancelled.
            retry: when to repeat a failed model request.
            takeover: take the lease from whoever holds it; that writer can append no more.

        Raises:
            InvalidInput: an argument is out of range, or the session is open here already.
            SessionHeld: another writer holds the session.
            UnreadableLog: its log cannot be read.
            StoreError: the store failed.

        Cancelled, it leaves nothing open behind.

        """
        toolbox, chain = Toolbox(listed("tools", tools)), HookChain(listed("hooks", hooks))
        brain = Brain(session_id, model, toolbox.specs(), system, max_steps, RetryPolicy() if retry is None else retry)
        check_count("max_parallel", max_parallel)
        check_seconds("drain_grace", drain_grace)
        async with self._opening(session_id), AsyncExitStack() as undo:
            writer = await self.store.open(session_id, takeover=takeover, header={"createdAt": self._sources.now()})
            undo.push_async_callback(release, writer)
            state = await self._replayed(writer)
            session = await _started(undo, self._system.spawn(SessionActor, writer, state, self._sources))
            workshop = Workshop(
                session_id=session_id,
                session=session,
                toolbox=toolbox,
                hooks=chain,
                sources=self._sources,
                max_parallel=max_parallel,
                drain_grace=drain_grace,
            )
            scheduler = await _started(undo, self._system.spawn(SchedulerActor, workshop))
            driver = await _started(undo, self._system.spawn(StepDriverActor, session, scheduler, brain, self._sources))
            undo.pop_all()
        agent = self._agents[session_id] = Agent(
            session_id,
            store=self.store,
            session=session,
            scheduler=scheduler,
            driver=driver,
            sources=self._sources,
            on_closed=self._forget,
        )
        return agent

    @asynccontextmanager
    async def _opening(self, session_id: str) -> AsyncIterator[None]:
        """Make room for the session; until it is open, it is this caller's, and another one is told so."""
        await self._make_room(session_id)
        self._being_opened.add(session_id)
        try:
            yield
        finally:
            self._being_opened.discard(session_id)

    async def _make_room(self, session_id: str) -> None:
        """Close what is left of an agent of that session that crashed."""
        if session_id in self._being_opened:
            raise InvalidInput(f"session_id: {session_id!r} is being opened in this runtime already")
        if (agent := self._agents.get(session_id)) is None:
            return
        if agent.is_alive():
            raise InvalidInput(f"session_id: {session_id!r} is open in this runtime already")
        await agent.close()

    async def _replayed(self, writer: Writer) -> SessionState:
        """The state after the stored log, read piece by piece: other tasks have their turn, and no piece is kept."""
        state = SessionState()
        for start in range(0, writer.next_seq, _PIECE):
            for event in await self.store.read(writer.session_id, start, start + _PIECE):
                state.watch(event)
        return state

    async def fork(self, session_id: str, new_id: str | None = None, *, at: int | None = None) -> str:
        """Fork a session; see `fork_session`."""
        return await fork_session(self.store, session_id, new_id, at=at, sources=self._sources)

    def _forget(self, agent: Agent) -> None:
        """`agent` is closed: keep nothing of it, unless its session has been opened again meanwhile."""
        if self._agents.get(agent.session_id) is agent:
            del self._agents[agent.session_id]

    async def _close(self) -> None:
        async with trio.open_nursery() as nursery:
            for agent in tuple(self._agents.values()):
                nursery.start_soon(agent.close)


def _as_store(store: object) -> Store:
    if isinstance(store, Store):
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise InvalidInput(f"store: must be a store or the path of a file, not {store!r}")
    return SqliteStore(store)


async def _started(undo: AsyncExitStack, spawning: Reply[ActorRef[A]]) -> ActorRef[A]:
    """The actor, which `undo` will stop. Shielded: it starts soon, and nobody would stop what nobody waited for."""
    try:
        with trio.CancelScope(shield=True):
            ref = await spawning
    except ActorDeadError:
        await trio.lowlevel.checkpoint_if_cancelled()  # it was stopped because the runtime is being cancelled
        raise
    undo.push_async_callback(_stop, ref)
    await trio.lowlevel.checkpoint_if_cancelled()
    return ref


async def _stop(ref: ActorRef[Any]) -> None:
    with trio.CancelScope(shield=True):  # no actor may outlive its cancelled owner
        await ref.aclose()
