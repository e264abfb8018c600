"""`Supervisor` and `DynamicSupervisor`: actors that keep other actors running, after Erlang/OTP.

They carry out what `supervision.py` decides. A supervisor is an actor like others: what happens to its children comes
to it as messages, one at a time, and its children end before it does. What differs from OTP:

- A child's ref outlives its restarts, and messages to it wait meanwhile.
- A supervisor that gives up *fails*, with `SupervisorGaveUpError`, so that its own supervisor restarts it, whether it
  is permanent or transient there. (In OTP it ends with `shutdown`, and a transient one silently stays down.)
- Between restarts there may be a back-off, in which the supervisor still answers.
- Trio cannot kill. A child that does not end after its shutdown time is cancelled and waited for.
"""

# ruff: noqa: SLF001  # a supervisor's own cell, and those of its children, are the kernel's own

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from quiesce.actors.kernel.administration import (
    ChildState,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
)
from quiesce.actors.kernel.child import Child, ChildEnded, Leaving
from quiesce.actors.kernel.receivers import receive
from quiesce.actors.kernel.ref import ActorRef
from quiesce.actors.kernel.supervising import RestartDue, Supervising, answering
from quiesce.actors.kernel.supervision import (
    AutoShutdown,
    Backoff,
    ChildSpec,
    Fate,
    Intensity,
    Rules,
    Strategy,
)
from quiesce.actors.kernel.supervision_errors import (
    ChildNotFoundError,
    ChildPresentError,
    ChildRestartingError,
    ChildRunningError,
    ChildStartError,
    SpecError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Hashable, Iterable

    from quiesce.actors.kernel.exits import Haste
    from quiesce.actors.kernel.reply import Reply

__all__ = ["DynamicSupervisor", "Supervisor"]


class Supervisor(Supervising):
    """Starts its children in order, restarts those that crash, and stops them in reverse order.

        await system.spawn(Supervisor, [ChildSpec("store", Store), ChildSpec("cache", partial(Cache, 10))],
                           strategy="rest_for_one", intensity=Intensity(3, 5.0), backoff=Backoff(initial=0.5))

    or as the child of another: `ChildSpec("shop", partial(Supervisor, specs), kind="supervisor")`. It is spawned when
    all children are up; if one fails to start, the others are stopped and `ChildStartError` names it.

    Children are started, and stopped because of a sibling, one at a time, and other requests wait for that. A child
    that asks its own supervisor in `on_start`, and awaits the answer, gets `AskCycleError`.

    A subclass may have hooks and receivers of its own. `on_start` runs before the children are started, `on_stop` and
    `on_failure` run when they have stopped.
    """

    def __init__(
        self,
        children: Iterable[ChildSpec] = (),
        *,
        strategy: Strategy = "one_for_one",
        intensity: Intensity | None = None,
        backoff: Backoff | None = None,
        auto_shutdown: AutoShutdown = "never",
        chance: random.Random | None = None,
    ) -> None:
        """Take the specs and the rules.

        Args:
            children: started in this order.
            strategy: who is restarted when a child is: `one_for_one`: it alone; `one_for_all`: all children;
                `rest_for_one`: those that were started after it.
            intensity: the restarts to allow before giving up; by default 3 in 5 seconds, for all children together.
            backoff: how long to wait before a restart; by default, not at all.
            auto_shutdown: end, normally, when a significant child has ended by itself and stays down
                (`any_significant`), or when the last one has (`all_significant`).
            chance: where the jitter of a back-off comes from.

        Raises:
            SpecError: a field of a spec or a rule is wrong, or two children have one id.

        """
        super().__init__(Rules(strategy, intensity or Intensity(), backoff, auto_shutdown), chance)
        for spec in children:
            self._rules.check(spec)
            if spec.id in self._children:
                raise SpecError("id", f"id {spec.id!r} is that of two children")
            self._children[spec.id] = Child(spec, self._cell)

    def child(self, child_id: Hashable) -> ActorRef[Any]:
        """Return the ref of a child that is up: for the `start` of later ones, in a subclass that makes its own specs.

        Raises:
            ChildNotFoundError: there is no such child, or it is down.

        """
        child = self._find(child_id)
        if not child.active or child.cell is None:
            raise ChildNotFoundError(child_id)
        return child.ref

    async def _start_children(self) -> None:
        for child_id, child in list(self._children.items()):
            try:
                started = await self._start_one(child_id, child)
            except Exception as error:
                fallen = self._fallen_before(child_id)
                if fallen is not None:
                    raise ChildStartError(fallen.spec.id) from fallen.error
                raise ChildStartError(child_id) from error
            if not started:
                self._decline(child_id)

    @receive(ChildEnded)
    async def _child_ended(self, message: ChildEnded) -> None:
        child = message.child
        self._ended.discard(child)
        if not child.has_ended() or self._children.get(child.spec.id) is not child:
            return
        restart = self._judge(child.spec.id, child.reason, child.error)
        if restart is not None:
            await self._stop_group(restart.decision)
            if not self._postpone(restart):
                await self._start_group(restart)

    @receive(RestartDue)
    async def _restart_due(self, restart: RestartDue) -> None:
        await self._start_group(restart)

    @receive(StartChild)
    @answering
    async def start_child(self, message: StartChild) -> ActorRef[Any] | None:
        """See `StartChild`."""
        self._rules.check(message.spec)
        child_id = message.spec.id
        present = self._children.get(child_id)
        if present is not None:
            raise ChildRunningError(child_id, present.ref) if present.runs else ChildPresentError(child_id)
        child = self._children[child_id] = Child(message.spec, self._cell)
        starting = child.launch()
        with suppress(Exception):
            await starting
        return self._admit(child_id, starting)

    @receive(TerminateChild)
    @answering
    async def terminate_child(self, message: TerminateChild) -> None:
        """See `TerminateChild`."""
        child = self._find(message.child)
        await child.stop(Leaving.FOR_GOOD)
        if child.spec.restart == "temporary":
            del self._children[message.child]

    @receive(RestartChild)
    @answering
    async def restart_child(self, message: RestartChild) -> ActorRef[Any] | None:
        """See `RestartChild`."""
        return await self._start_down(message.child, self._find_down(message.child))

    async def _start_down(self, child_id: Hashable, child: Child) -> ActorRef[Any] | None:
        try:
            return child.ref if await child.start() else None
        except Exception as error:
            child.retire()
            raise ChildStartError(child_id) from error

    @receive(DeleteChild)
    @answering
    async def delete_child(self, message: DeleteChild) -> None:
        """See `DeleteChild`."""
        self._find_down(message.child)
        del self._children[message.child]

    def _find(self, child_id: Hashable) -> Child:
        try:
            return self._children[child_id]
        except (KeyError, TypeError):  # no child's, or not even hashable
            raise ChildNotFoundError(child_id) from None

    def _find_down(self, child_id: Hashable) -> Child:
        child = self._find(child_id)
        if child.state is ChildState.RUNNING:
            raise ChildRunningError(child_id, child.ref)
        if child.state is not ChildState.DOWN:
            raise ChildRestartingError(child_id)
        return child


class DynamicSupervisor(Supervising):
    """Has children that come and go, any number of them, each on its own: `await ref.ask(StartChild(spec))`.

    Children are named by their refs, so several may have the same id. They are started, restarted and stopped
    independently, at the same time if need be; when the supervisor stops, all of them stop together. A child that ends
    and is not restarted is forgotten. It answers `StartChild`, `TerminateChild` (of a ref), `WhichChildren` and
    `CountChildren`.
    """

    def __init__(
        self,
        *,
        intensity: Intensity | None = None,
        backoff: Backoff | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Take the rules; see `Supervisor`.

        Raises:
            SpecError: a rule is wrong.

        """
        super().__init__(Rules("one_for_one", intensity or Intensity(), backoff), chance)

    async def _stop_all(self, haste: Haste) -> None:
        pace = self.actor_system.pace
        async with trio.open_nursery() as nursery:
            for child in list(self._children.values()):
                if not child.begin_stop(Leaving.FOR_GOOD, haste):
                    nursery.start_soon(child.stop, Leaving.FOR_GOOD, haste)
                if pace.is_due():
                    await pace.checkpoint()

    def _leave_down(self, key: Hashable, _fate: Fate) -> None:
        super()._leave_down(key, Fate.FORGET)

    @receive(ChildEnded)
    def _child_ended(self, message: ChildEnded) -> None:
        child = message.child
        if child.has_ended() and child in self._children:
            restart = self._judge(child, child.reason, child.error)
            if restart is not None and not self._postpone(restart):
                self.start_soon(self._start_group, restart)

    @receive(RestartDue)
    def _restart_due(self, restart: RestartDue) -> None:
        self.start_soon(self._start_group, restart)

    @receive(StartChild)
    @answering
    async def start_child(self, message: StartChild) -> ActorRef[Any] | None:
        """See `StartChild`."""
        self._rules.check(message.spec)
        child = Child(message.spec, self._cell)
        self._children[child] = child
        starting = child.launch()
        if starting.done():
            return self._admit(child, starting)
        answer = self.take_reply(message)

        def started(starting: Reply[Any]) -> None:
            try:
                answer.set(self._admit(child, starting))
            except ChildStartError as error:
                answer.set_exception(error)

        starting.on_done(started)
        return None

    @receive(TerminateChild)
    @answering
    async def terminate_child(self, message: TerminateChild) -> None:
        """See `TerminateChild`."""
        child = message.child._cell.owner if isinstance(message.child, ActorRef) else None
        if not isinstance(child, Child) or child not in self._children:
            raise ChildNotFoundError(message.child)
        if child.begin_stop(Leaving.FOR_GOOD):
            del self._children[child]
        else:
            self.start_soon(self._terminate, child, self.take_reply(message))

    async def _terminate(self, child: Child, answer: Reply[None]) -> None:
        await child.stop(Leaving.FOR_GOOD)
        self._children.pop(child, None)
        answer.set(None)
