"""An agent as a supervised subtree: session, scheduler and driver under one supervisor, and its spec.

Its MCP servers, if it has any, are a subtree of their own beside the three, with a supervisor that comes first.

What happens when one of the three crashes:

- The strategy is rest_for_one, in the order session, scheduler, driver: what was started after the one that crashed
  leans on it and is started again with it. Their work is cancelled and waited for first, so no tool body is left.
- A session that is started again takes its lease and replays its log; a driver waits for a quiescent scheduler, closes
  the open turn as interrupted and parks what is queued. No tool runs twice, and the refs stay the same.
- A turn in which a call waits for a person is closed as any other, when one of the three crashes. When the agent itself
  is started (in another process, by a runtime, by a supervisor of yours), such a turn goes on: see `Agent.questions`.
- Whoever waited for the turn gets the failure: `TurnFailed` if the turn could still be closed with it, else
  `ActorDeadError`, whose cause is the failure. What was asked in between waits for the restart.
- More crashes, or failed starts, than the intensity allows, by default 3 in 5 seconds, and the agent gives up: it is
  dead, with the last failure as the cause. That is what comes of a log that refuses to be repaired (a full disk), one
  that cannot be read, and a lease that somebody else took: there is no back-off in which an asker would wait. Open the
  session again when there is room: that repairs it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import frozen

from quiesce.actors.agent import Agent, ReadAgent
from quiesce.actors.attempts import RetryPolicy
from quiesce.actors.dispatch import Workshop
from quiesce.actors.hooks import HookChain
from quiesce.actors.kernel import ChildSpec, Supervisor, receive
from quiesce.actors.lease import Lease
from quiesce.actors.mcp.supervised import McpSupervisor, check_servers
from quiesce.actors.options import check_count, check_instance, check_seconds, listed
from quiesce.actors.scheduler import SchedulerActor
from quiesce.actors.session import ResumedSession
from quiesce.actors.sources import Sources
from quiesce.actors.step_driver import StepDriverActor
from quiesce.actors.stores import Store
from quiesce.actors.tools import Toolbox
from quiesce.actors.turn import Brain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from quiesce.actors.attempts import Model
    from quiesce.actors.hooks import Hooks
    from quiesce.actors.kernel.supervision import Restart
    from quiesce.actors.mcp.server import McpServer
    from quiesce.actors.tools import AnyTool

__all__ = ["AgentSupervisor", "Plan", "agent_spec", "plan"]


_ACTORS: Final = (ResumedSession, SchedulerActor, StepDriverActor)


@frozen
class Plan:
    """What an agent is made of, again and again."""

    lease: Lease
    brain: Brain
    toolbox: Toolbox
    hooks: HookChain
    sources: Sources
    max_parallel: int
    drain_grace: float
    servers: tuple[McpServer, ...] = ()


class AgentSupervisor(Supervisor):
    """Runs the three actors of one agent. Its ref answers `ReadAgent` with the handle."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        session, scheduler, driver = _ACTORS
        specs = (
            *self._servers(),
            ChildSpec("session", partial(session, plan.lease, plan.sources)),
            ChildSpec("scheduler", lambda: scheduler(self._workshop())),
            ChildSpec("driver", lambda: self._driver(driver)),
        )
        super().__init__(specs, strategy="rest_for_one")

    @receive(ReadAgent)
    def agent(self, _: ReadAgent) -> Agent:
        """The handle. It holds the refs of the three, which outlive their restarts."""
        session, scheduler, driver = map(self.child, ("session", "scheduler", "driver"))
        lease = self._plan.lease
        return Agent(
            lease.session_id,
            system=self.actor_system,
            store=lease.store,
            tree=self.actor_ref,
            session=session,
            scheduler=scheduler,
            driver=driver,
            sources=self._plan.sources,
            watchers=self._plan.brain.watchers,
        )

    def _servers(self) -> Iterator[ChildSpec]:
        """The first to start and the last to stop: nothing that crashes here ends the connection to a server."""
        plan = self._plan
        if plan.servers:
            yield ChildSpec("mcp", partial(McpSupervisor, plan.servers, plan.toolbox), kind="supervisor")

    def _driver(self, make: type[StepDriverActor]) -> StepDriverActor:
        return make(self.child("session"), self.child("scheduler"), self._plan.brain, self._plan.sources)

    def _workshop(self) -> Workshop:
        plan = self._plan
        return Workshop(
            session_id=plan.lease.session_id,
            session=self.child("session"),
            toolbox=plan.toolbox,
            hooks=plan.hooks,
            sources=plan.sources,
            max_parallel=plan.max_parallel,
            drain_grace=plan.drain_grace,
        )


def plan(  # noqa: PLR0913 - the options of an agent, checked in one place
    session_id: str,
    *,
    store: Store,
    model: Model,
    tools: Iterable[AnyTool],
    hooks: Iterable[Hooks],
    system: str | None,
    max_parallel: int,
    max_steps: int,
    drain_grace: float,
    retry: RetryPolicy | None,
    takeover: bool,
    sources: Sources,
    mcp: Iterable[McpServer] = (),
) -> Plan:
    """Check the options of an agent. Raises `InvalidInput`, which names the option."""
    toolbox, chain = Toolbox(listed("tools", tools)), HookChain(listed("hooks", hooks))
    brain = Brain(session_id, model, toolbox, system, max_steps, RetryPolicy() if retry is None else retry)
    check_count("max_parallel", max_parallel)
    check_seconds("drain_grace", drain_grace)
    lease = Lease(store, session_id, sources, takeover=takeover)
    return Plan(lease, brain, toolbox, chain, sources, max_parallel, drain_grace, check_servers("mcp", mcp))


def agent_spec(  # noqa: PLR0913 - as those of `Runtime.agent`, one keyword each
    session_id: str,
    *,
    store: Store,
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
    sources: Sources | None = None,
    restart: Restart = "transient",
) -> ChildSpec:
    """The spec of an agent, to be put under a supervisor of your own; its id is the session's.

        async with SqliteStore("agents.db") as store, ActorSystem() as system:
            spec = agent_spec("reviewer", store=store, model=model)
            tree = await system.spawn(Supervisor, [spec, ...])
            agent = await Agent.of(tree, "reviewer")

    The store has to be open for as long as the supervisor runs. Starting the agent opens the session, as
    `Runtime.agent` does, where the other options are described; what goes wrong there is at the end of the causes of
    the start's failure. `restart` says what becomes of an agent that gave up: `transient`, and your supervisor starts
    it again; `temporary`, and it stays down. `Agent.close` ends it for good, unless it is `permanent`. One that your
    supervisor started again is reached by a new handle.

    Raises `InvalidInput`, which names the option, and `SpecError` for what `restart` cannot be.
    """
    check_instance("store", store, Store)
    if sources is not None:
        check_instance("sources", sources, Sources)
    made = plan(
        session_id,
        store=store,
        model=model,
        tools=tools,
        hooks=hooks,
        system=system,
        max_parallel=max_parallel,
        max_steps=max_steps,
        drain_grace=drain_grace,
        retry=retry,
        takeover=takeover,
        sources=sources or Sources(),
        mcp=mcp,
    )
    return ChildSpec(session_id, partial(AgentSupervisor, made), restart=restart, kind="supervisor")
