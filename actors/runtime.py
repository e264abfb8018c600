"""`Runtime`: many agents, one store, one root supervisor. It opens sessions, and closes them in order."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import trio
from pykka import ActorDeadError

from quiesce.actors.agent import ReadAgent
from quiesce.actors.fork import fork_session
from quiesce.actors.kernel import (
    ActorSystem,
    ChildSpec,
    ChildStartError,
    Decline,
    DynamicSupervisor,
    StartChild,
    host_in_asyncio,
    host_on_thread,
)
from quiesce.actors.kernel.hosts import refuse_asyncio
from quiesce.actors.options import check_instance
from quiesce.actors.portable import portable, portable_with_undo
from quiesce.actors.sources import Sources
from quiesce.actors.stores import SqliteStore, Store
from quiesce.actors.supervised import AgentSupervisor, plan
from quiesce.protocol.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from os import PathLike

    from quiesce.actors.agent import Agent
    from quiesce.actors.attempts import Model, RetryPolicy
    from quiesce.actors.hooks import Hooks
    from quiesce.actors.kernel import ActorRef, Call
    from quiesce.actors.mcp.server import McpServer
    from quiesce.actors.supervised import Plan
    from quiesce.actors.tools import AnyTool

__all__ = ["Runtime"]

P = ParamSpec("P")
T = TypeVar("T")


async def _close(agent: Agent) -> None:
    """Undo `Runtime.agent`."""
    await agent.close()


class Runtime:
    """Runs agents on one store. Use `Runtime.open` in Trio, `Runtime.in_asyncio`, or `Runtime.on_thread`."""

    def __init__(self, store: Store, system: ActorSystem, root: ActorRef[DynamicSupervisor], sources: Sources) -> None:
        self.store = store
        self._system = system
        self._root = root
        self._sources = sources
        self._agents: dict[str, Agent] = {}
        self._being_opened: set[str] = set()

    @classmethod
    def open(
        cls, store: Store | str | PathLike[str], *, sources: Sources | None = None
    ) -> AbstractAsyncContextManager[Runtime]:
        """Open a runtime on `store`: a store, or the path of an SQLite file, which is made if it is not there.

        On leaving, every agent is closed; but a turn that waits for nothing but people (see `Agent.questions`) is left
        open in the log, and goes on when its session is opened again. Cancelled, the agents are stopped at once, and
        what their turns left open in the log is repaired when they are resumed.

        Raises `InvalidInput` for what is no store, `StoreError` for one that cannot be opened, and `RuntimeError` in an
        asyncio task: there it is `in_asyncio`.
        """
        return cls._live(ActorSystem(name="quiesce"), store, sources)

    @classmethod
    def in_asyncio(
        cls, store: Store | str | PathLike[str], *, sources: Sources | None = None
    ) -> AbstractAsyncContextManager[Runtime]:
        """Open a runtime in an asyncio program, on the same thread: `async with Runtime.in_asyncio("agents.db") as it`.

        asyncio tasks then await what the runtime and its agents offer, as Trio tasks would. Models, tools and hooks run
        on Trio, between the steps of asyncio's tasks.

        It opens and ends as `open` does; a cancellation while it is left stops the agents at once too, and is raised
        when they have stopped. `ActorSystem.in_asyncio` says the rest: one runtime can live in a thread so, and has to
        be left before the loop is closed, which `asyncio.run()` sees to.
        """
        system = ActorSystem(name="quiesce")
        return host_in_asyncio(system, cls._live(system, store, sources))

    @classmethod
    def on_thread(
        cls, store: Store | str | PathLike[str], *, sources: Sources | None = None
    ) -> AbstractContextManager[Runtime]:
        """Open a runtime on a loop thread of its own: `with Runtime.on_thread("agents.db") as runtime`.

        Plain threads use it by `run` and `iterate`: `runtime.run(agent.send, "hello").get()`. Models, tools and hooks
        run on the loop's thread.

        It opens and ends as `open` does. When an exception leaves the block, Ctrl-C's among them, or one comes while
        the agents are closed, they are stopped at once and waited for. What came out of a tool, a hook or a model and
        is no `Exception` is raised when the block is left.
        """
        system = ActorSystem(name="quiesce")
        return host_on_thread(system, cls._live(system, store, sources))

    @classmethod
    @asynccontextmanager
    async def _live(
        cls, system: ActorSystem, store: Store | str | PathLike[str], sources: Sources | None
    ) -> AsyncIterator[Runtime]:
        """The whole life of a runtime, in `system`, which is new."""
        refuse_asyncio("Runtime.open()", "Runtime.in_asyncio()")
        if sources is not None:
            check_instance("sources", sources, Sources)
        async with _as_store(store) as opened, system:
            runtime = cls(opened, system, await system.spawn(DynamicSupervisor), sources or Sources())
            try:
                yield runtime
            finally:
                system.leaving = True  # from here on: what others have run would go on for ever
                await runtime._close()

    def run(self, async_fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Run an async function in a Trio task of the runtime's loop, from anywhere.

            turn = runtime.run(agent.send, "hello").get()             # in a plain thread
            sessions = await runtime.run(runtime.store.list)          # in asyncio, where a store needs this

        The call is at once under way; see `ActorSystem.run` for its answer, its errors and its end.
        """
        return self._system.run(async_fn, *args, **kwargs)

    def iterate(self, stream: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate an async generator on a plain thread: `for event in runtime.iterate(agent.events())`.

        Leaving the loop early closes it. Raises, at the first step, `BlockingCallError` on the loop's own thread.
        """
        return self._system.iterate(stream)

    @portable_with_undo(_close)
    async def agent(  # noqa: PLR0913 - the options of an agent, one keyword each
        self,
        session_id: str,
        *,
        model: Model,
        tools: Iterable[AnyTool] = (),
        mcp: Iterable[McpServer] = (),
        hooks: Iterable[Hooks] = (),
        system: str | None = None,
        max_parallel: int = 10,
        max_steps: int = 100,
        drain_grace: float = 30.0,
        retry: RetryPolicy | None = None,
        takeover: bool = False,
    ) -> Agent:
        """Open a session: create it, or resume it, closing first what a crash left open in its log.

        A turn in which a call waits for a person is not closed: it goes on, as `Agent.questions` says.

        Args:
            session_id: its name in the store.
            model: who answers its requests.
            tools: what the model may ask for, made by `@tool`.
            mcp: servers whose tools it may ask for as well; they are connected to, and closed with the agent.
            hooks: what is asked around each call; the first is the outermost.
            system: the system prompt. It is not part of the log.
            max_parallel: how many bodies of parallel calls may run at a time.
            max_steps: how many model requests a turn may take.
            drain_grace: seconds that live bodies may go on after the scheduler failed, before they are cancelled.
            retry: when to repeat a failed model request.
            takeover: take the lease from whoever holds it; that writer can append no more.

        Raises:
            InvalidInput: an argument is out of range, or the session is open here already.
            McpConnectError: a server could not be reached.
            SessionHeld: another writer holds the session.
            UnreadableLog: its log cannot be read.
            StoreError: the store failed.

        Cancelled, it leaves nothing open behind.

        """
        made = plan(
            session_id,
            store=self.store,
            model=model,
            tools=tools,
            hooks=hooks,
            system=system,
            max_parallel=max_parallel,
            max_steps=max_steps,
            drain_grace=drain_grace,
            retry=retry,
            takeover=takeover,
            sources=self._sources,
            mcp=mcp,
        )
        async with self._opening(session_id):
            agent = await self._started(_Start(made))
            self._agents[session_id] = agent
        agent._tell_when_closed(self._forget)  # noqa: SLF001 - the handle and its runtime are one mechanism
        return agent

    async def _started(self, start: _Start) -> Agent:
        """Start the agent's tree. Raises what kept it from starting; cancelled, it leaves nothing running."""
        # An agent that gives up is forgotten, and takes nobody else down.
        spec = ChildSpec(start.plan.lease.session_id, start, restart="temporary", kind="supervisor")
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._root.is_alive():
            raise StoreError("the runtime is closed")
        starting = self._root.ask(StartChild(spec))
        try:
            tree = await starting
            assert tree is not None  # only an unwanted one declines
            return await tree.ask(ReadAgent())
        except ChildStartError as error:
            raise _root_cause(error) from None
        except BaseException as error:
            with trio.CancelScope(shield=True):  # nobody would stop what nobody waited for
                await start.undo()
                with suppress(Exception):  # what became of it no longer matters
                    await starting
            if isinstance(error, ActorDeadError):
                await trio.lowlevel.checkpoint_if_cancelled()  # it was stopped because the runtime is being cancelled
            raise

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
        """Close what is left of an agent of that session that gave up."""
        if session_id in self._being_opened:
            raise InvalidInput(f"session_id: {session_id!r} is being opened in this runtime already")
        if (agent := self._agents.get(session_id)) is None:
            return
        if agent.is_alive():
            raise InvalidInput(f"session_id: {session_id!r} is open in this runtime already")
        await agent.close()

    @portable
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
                nursery.start_soon(agent._leave)  # noqa: SLF001 - as above


def _as_store(store: object) -> Store:
    if isinstance(store, Store):
        return store
    if not isinstance(store, (str, os.PathLike)):
        raise InvalidInput(f"store: must be a store or the path of a file, not {store!r}")
    return SqliteStore(store)


class _Start:
    """One opening of an agent: makes its tree, unless nobody wants it any more."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._unwanted = False
        self._tree: ActorRef[AgentSupervisor] | None = None

    def __call__(self) -> AgentSupervisor:
        if self._unwanted:
            raise Decline
        tree = AgentSupervisor(self.plan)
        self._tree = tree.actor_ref
        return tree

    async def undo(self) -> None:
        """Stop what was started, or have it not started."""
        self._unwanted = True
        if self._tree is not None:
            await self._tree.stop(block=False, now=True)


def _root_cause(error: BaseException) -> BaseException:
    """What kept an agent from starting, without the supervisors that say which child it was."""
    while isinstance(error, ChildStartError) and error.__cause__ is not None:
        error = error.__cause__
    return error
