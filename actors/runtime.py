"""`Runtime`: many agents, one store. It opens sessions, creating or repairing them, and closes them in order."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from quiesce.actors.agent import Agent
from quiesce.actors.attempts import RetryPolicy
from quiesce.actors.dispatch import Workshop
from quiesce.actors.fork import fork_session, release
from quiesce.actors.hooks import HookChain
from quiesce.actors.kernel import ActorSystem
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
    from quiesce.actors.tools import AnyTool

__all__ = ["Runtime"]


class Runtime:
    """Runs agents on one store. Use `Runtime.open`."""

    def __init__(self, store: Store, system: ActorSystem, sources: Sources) -> None:
        self.store = store
        self._system = system
        self._sources = sources
        self._agents: dict[str, Agent] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, store: Store | str | PathLike[str], *, sources: Sources | None = None
    ) -> AsyncIterator[Runtime]:
        """Open a runtime on `store`: a store, or the path of an SQLite file, which is made if it is not there.

        On leaving, every agent is closed. Cancelled, the agents are stopped at once, and what their turns left open in
        the log is repaired when they are resumed.
        """
        opened = store if isinstance(store, Store) else SqliteStore(os.fspath(store))
        async with opened, ActorSystem(name="quiesce") as system:
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
        toolbox = Toolbox(tools)
        brain = Brain(session_id, model, toolbox.specs(), system, max_steps, retry or RetryPolicy())
        chain = HookChain(hooks)
        if (open_agent := self._agents.get(session_id)) is not None:
            if open_agent.is_alive():
                raise InvalidInput(f"session_id: {session_id!r} is open in this runtime already")
            await open_agent.close()
        async with AsyncExitStack() as undo:
            writer = await self.store.open(session_id, takeover=takeover)
            undo.push_async_callback(release, writer)
            events = await self.store.read(session_id)
            state = await trio.to_thread.run_sync(SessionState.replay, events)
            del events
            session = await self._system.spawn(SessionActor, writer, state, self._sources)
            undo.push_async_callback(session.aclose)
            workshop = Workshop(
                session_id=session_id,
                session=session,
                toolbox=toolbox,
                hooks=chain,
                sources=self._sources,
                max_parallel=max_parallel,
                drain_grace=drain_grace,
            )
            scheduler = await self._system.spawn(SchedulerActor, workshop)
            undo.push_async_callback(scheduler.aclose)
            driver = await self._system.spawn(StepDriverActor, session, scheduler, brain, self._sources)
            undo.pop_all()
        agent = Agent(
            session_id,
            store=self.store,
            session=session,
            scheduler=scheduler,
            driver=driver,
            sources=self._sources,
        )
        self._agents[session_id] = agent
        return agent

    async def fork(self, session_id: str, new_id: str | None = None, *, at: int | None = None) -> str:
        """Fork a session; see `fork_session`."""
        return await fork_session(self.store, session_id, new_id, at=at, sources=self._sources)

    async def _close(self) -> None:
        async with trio.open_nursery() as nursery:
            for agent in self._agents.values():
                nursery.start_soon(agent.close)
