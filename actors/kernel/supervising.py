"""What both kinds of supervisor do: carry out, one incident at a time, what `supervision.py` decides."""

# a supervisor's own cell, and those of its children, are the kernel's own

from __future__ import annotations

import random
from functools import wraps
from logging import ERROR
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from attrs import frozen

from quiesce.actors.kernel.actor import TrioActor
from quiesce.actors.kernel.administration import (
    ChildCounts,
    ChildInfo,
    ChildState,
    CountChildren,
    WhichChildren,
)
from quiesce.actors.kernel.child import Child, Leaving
from quiesce.actors.kernel.exits import Exit, ExitKind, Haste
from quiesce.actors.kernel.log import note, report
from quiesce.actors.kernel.receivers import receive
from quiesce.actors.kernel.statistics import SupervisorStatistics
from quiesce.actors.kernel.supervision import (
    FATES,
    Decision,
    Fate,
    Reason,
    Rules,
    Verdict,
    decide,
)
from quiesce.actors.kernel.supervision_errors import (
    ChildStartError,
    SupervisorGaveUpError,
)
from quiesce.actors.kernel.system_message import SystemMessage
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.reply import Reply

__all__ = ["RestartDue", "Supervising", "answering"]

_CHANCE: Final = random.Random()  # noqa: S311  # spreads restarts over time; one for all, as it takes 2.5 KB

S = TypeVar("S", bound="Supervising")
M = TypeVar("M", bound=Message[Any])
R = TypeVar("R")


@frozen(eq=False)
class RestartDue(SystemMessage, Message[None]):
    """One incident: whom to stop and start. Sent by a supervisor to itself when it is time to start them.

    It stands in each child that it is to start, until that is done or another incident, or a request, takes over.
    """

    decision: Decision
    wait: float
    """Seconds of back-off."""
    retry: bool
    """Whether it follows from a failed attempt: then other messages have their turn first."""


def answering(
    handler: Callable[[S, M], Coroutine[Any, Any, R]],
) -> Callable[[S, M], Coroutine[Any, Any, R]]:
    """Have what goes wrong with a request fail the request, and not the supervisor, also when nobody asked."""

    @wraps(handler)
    async def answer(self: S, message: M) -> R:
        told = self._cell.reply is None
        try:
            return await handler(self, message)
        except Exception as error:
            if not told:
                raise
            report("supervisor_request_failed", supervisor=str(self), request=type(message).__name__, exc_info=error)
            return None  # type: ignore[return-value]  # to nobody

    return answer


class Supervising(TrioActor):
    """What both kinds of supervisor do. How children are keyed, and what may happen at the same time, differs."""

    def __init__(self, rules: Rules, chance: random.Random | None) -> None:
        super().__init__()
        self._rules = rules
        self._chance = chance or _CHANCE
        self._history: tuple[float, ...] = ()
        self._restarts = 0
        self._children: dict[Hashable, Child] = {}  # in start order
        self._being_started: Hashable = None  # of those that are started one at a time
        self._ended: set[Child] = set()  # by themselves, which is in the inbox; of those that fall together
        self._patience = trio.CancelScope()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        hook = super()._begin()
        if hook is not None:
            await hook
        try:
            await self._start_children()
        except BaseException:
            await self._stop_children()
            raise

    async def _end(self, failure: BaseException | None) -> None:
        try:
            await self._stop_children()
        finally:
            hook = super()._end(failure)
            if hook is not None:
                await hook

    async def _start_children(self) -> None:
        """Start those that are there from the beginning."""

    @trio.lowlevel.enable_ki_protection
    async def _stop_children(self) -> None:
        """Stop all children, the last one first. Whoever cannot wait for their shutdown times cancels this."""
        try:
            with self._patience:
                await self._stop_all(self._cell.haste)
            if self._patience.cancelled_caught:
                await self._stop_all(Haste.NOW)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._stop_all(Haste.AT_ONCE)
            raise

    def _hurry(self) -> None:
        self._patience.cancel()

    async def _stop_all(self, haste: Haste) -> None:
        for child in reversed(list(self._children.values())):
            await child.stop(Leaving.FOR_GOOD, haste=haste)

    # -- what happens to children --------------------------------------------------------------------------------------

    def _judge(self, key: Hashable, reason: Reason, error: BaseException | None) -> RestartDue | None:
        """Decide what follows from what happened to a child, and do it, except for the restart that is returned.

        Raises:
            SupervisorGaveUpError: this was once too often.

        """
        child = self._children[key]
        decision = decide(self._rules, self._children, key, reason, self._history, trio.current_time())
        self._history = decision.history
        if decision.verdict is Verdict.GIVE_UP:
            intensity = self._rules.intensity
            note(ERROR, "supervisor_gave_up", self._cell, child=child.spec.id)
            raise SupervisorGaveUpError(child.spec.id, intensity.restarts, intensity.period) from error
        if decision.verdict is Verdict.RESTART:
            restart = RestartDue(decision, self._wait_for(child), reason is Reason.NOT_STARTED)
            for other in decision.start:
                self._children[other].await_restart(restart)
            return restart
        self._leave_down(key, decision.fate)
        if decision.verdict is Verdict.SHUT_DOWN:
            self._cell.begin_exit(Exit(ExitKind.NORMAL))
        return None

    def _wait_for(self, child: Child) -> float:
        backoff = self._rules.backoff
        if backoff is None:
            return 0
        child.wait = backoff.next_wait(child.wait, child.lasted)
        return backoff.shortened(child.wait, self._chance.random())

    def _leave_down(self, key: Hashable, fate: Fate) -> None:
        self._children[key].retire()
        if fate is Fate.FORGET:
            del self._children[key]

    def _decline(self, key: Hashable) -> None:
        self._leave_down(key, FATES[self._children[key].spec.restart][Reason.DECLINED])

    def _postpone(self, restart: RestartDue) -> bool:
        """Have a restart sent back later, if it is not to be done at once."""
        if restart.wait > 0:
            self.timers.once(restart, restart.wait, restart)
        elif restart.retry:
            self._cell.deliver(restart, None)
        else:
            return False
        return True

    async def _stop_group(self, decision: Decision) -> None:
        forget = set(decision.forget)
        for key in decision.stop:
            forgotten = key in forget
            await self._children[key].stop(Leaving.FOR_GOOD if forgotten else Leaving.FOR_RESTART)
            if forgotten:
                del self._children[key]

    async def _start_group(self, restart: RestartDue) -> None:
        """Start those that still wait for this restart. A failure is the next incident, and ends this one.

        The end of one that was started before them and takes them along interrupts it: that is in the inbox by then,
        and the rest of this restart goes behind it, in case a request has the elder stay down first.
        """
        for key in restart.decision.start:
            child = self._children.get(key)
            if child is None or child.restart is not restart:
                continue
            if self._fallen_before(key) is not None:
                self._cell.deliver(restart, None)
                return
            try:
                started = await self._start_one(key, child)
            except Exception as error:  # noqa: BLE001  # the next attempt, or the failure of this supervisor
                if self._fallen_before(key) is not None:
                    await self._put_back(child, restart)
                elif self._wants(key, child):
                    await self._try_again(key, child, error)
                return
            if child.stops() and self._fallen_before(key) is not None:  # cut short when it was all but up
                await self._put_back(child, restart)
                return
            self._restarts += started
            if not started and self._wants(key, child):
                self._decline(key)

    async def _put_back(self, child: Child, restart: RestartDue) -> None:
        """Have a child whose elder has ended wait for its restart again, behind what follows from that end."""
        await child.stop(Leaving.FOR_RESTART)
        if not child.heeding:
            child.await_restart(restart)
        self._cell.deliver(restart, None)

    async def _start_one(self, key: Hashable, child: Child) -> bool:
        self._being_started = key
        try:
            return await child.start()
        finally:
            self._being_started = None

    def _fallen_before(self, key: Hashable) -> Child | None:
        """Find the child that has ended and will take this one, started after it, along; one that is done does not."""
        if self._rules.strategy == "one_for_one":
            return None
        number = self._children[key].number
        fallen = (child for child in self._ended if child.number < number and child.has_fallen())
        return min(fallen, key=lambda child: child.number, default=None)

    def _sibling_ended(self, child: Child) -> None:
        """Cut short the start of a child whose elder has ended: it may be waiting for that one, and so for ever."""
        if self._rules.strategy == "one_for_one":
            return
        self._ended.add(child)
        key = self._being_started
        if key is not None and self._fallen_before(key) is not None:
            self._children[key].abort_start()

    def _wants(self, key: Hashable, child: Child) -> bool:
        """Whether a child has not been terminated meanwhile, which is possible where they start independently."""
        return self._children.get(key) is child and not child.stops()

    async def _try_again(self, key: Hashable, child: Child, error: Exception) -> None:
        if child.start_failure is Reason.NOT_STARTED:
            report("child_not_restarted", supervisor=str(self), child=child.spec.id, exc_info=error)
        restart = self._judge(key, child.start_failure, error)
        if restart is not None:
            await self._stop_group(restart.decision)
            if not self._postpone(restart):
                self._cell.deliver(restart, None)  # behind what came meanwhile, and not from within this one

    def _supervised(self) -> SupervisorStatistics:
        states = [child.state for child in list(self._children.values())]
        return SupervisorStatistics(
            children=len(states),
            running=states.count(ChildState.RUNNING),
            restarting=states.count(ChildState.RESTARTING),
            restarts=self._restarts,
            incidents=self._rules.intensity.counting(self._history, self._cell.system.now()),
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _admit(self, key: Hashable, starting: Reply[Any]) -> ActorRef[Any] | None:
        """Say what came of the first start of a child that is in the table; a failed one is taken out again."""
        child = self._children[key]
        try:
            if child.outcome(starting):
                return child.ref
        except Exception as error:
            self._leave_down(key, Fate.FORGET)
            raise ChildStartError(child.spec.id) from error
        self._decline(key)
        return None

    @receive(WhichChildren)
    def which_children(self, _message: WhichChildren) -> tuple[ChildInfo, ...]:
        """See `WhichChildren`."""
        return tuple(child.info for child in self._children.values())

    @receive(CountChildren)
    def count_children(self, _message: CountChildren) -> ChildCounts:
        """See `CountChildren`."""
        children = self._children.values()
        supervisors = sum(child.spec.kind == "supervisor" for child in children)
        return ChildCounts(
            specs=len(children),
            active=sum(child.state is ChildState.RUNNING for child in children),
            supervisors=supervisors,
            workers=len(children) - supervisors,
        )
