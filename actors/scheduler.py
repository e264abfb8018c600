"""SchedulerActor: runs the calls of one step, one batch at a time, and answers when it is quiescent (G2).

When it crashes its work is cancelled and waited for before it is started again. Started again, it refuses batches until
a driver has asked whether it is quiescent: what waited in its inbox meanwhile is of a turn that is over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykka import ActorDeadError

from quiesce.actors.dispatch import BatchRun
from quiesce.actors.inside import inside
from quiesce.actors.kernel import TrioActor, receive
from quiesce.protocol.errors import InvalidInput, NoOpenQuestion
from quiesce.protocol.messages import (
    AbortCalls,
    Decide,
    Quiesce,
    Quiescent,
    ReadStatistics,
    RunCalls,
    SchedulerStatistics,
)

if TYPE_CHECKING:
    from quiesce.actors.dispatch import Workshop
    from quiesce.actors.kernel import Reply
    from quiesce.protocol.messages import BatchOutcome

__all__ = ["SchedulerActor"]


class SchedulerActor(TrioActor):
    """Owns one `Batch` and its live dispatches; it alone starts tool bodies."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self._workshop = workshop
        self._greeted = self.actor_ref.incarnation == 1
        self._running: BatchRun | None = None
        self._quiet: list[Reply[Quiescent]] = []
        self._counts: Counter[str] = Counter()

    @receive(RunCalls)
    def run_calls(self, message: RunCalls) -> None:
        """Start the batch; its outcome is the reply."""
        if not self._greeted:
            raise ActorDeadError("the scheduler was started again, and the turn of these calls is over")
        if self._running is not None:
            raise InvalidInput("RunCalls: a batch of this session is running already")
        self._running = BatchRun(message, self._workshop, self.start_soon, self._counts)
        self.start_soon(self._run, self._running, self.take_reply(message))

    @receive(AbortCalls)
    def abort_calls(self, message: AbortCalls) -> None:
        """Abort the running batch; nothing if there is none."""
        if self._running is not None:
            self._running.abort(message.cause)

    @receive(Decide)
    def decide(self, message: Decide) -> None:
        """Have the decision written down; the answer follows when it is durable."""
        if self._running is None:
            raise NoOpenQuestion("no call is waiting for a person: no calls are running")
        self._running.decide(message, lambda: self.take_reply(message))

    @receive(Quiesce)
    def quiesce(self, message: Quiesce) -> None:
        """Answer at once if nothing runs, else abort the batch and answer when it is quiescent."""
        self._greeted = True
        reply = self.take_reply(message)
        if self._running is None:
            reply.set(Quiescent())
            return
        self._quiet.append(reply)
        self._running.abort("quiesce")

    @receive(ReadStatistics)
    def statistics(self, _: ReadStatistics) -> SchedulerStatistics:
        """What has been counted so far."""
        return SchedulerStatistics(**self._counts)

    async def _run(self, run: BatchRun, reply: Reply[BatchOutcome]) -> None:
        with inside(self._workshop.session):
            outcome = await run.run()
        self._running = None
        self._counts["batches"] += 1
        reply.set(outcome)
        quiet, self._quiet = self._quiet, []
        for waiting in quiet:
            waiting.set(Quiescent())
