"""The actor runtime: Pykka-style actors on a Trio loop.

    class Count(Message[int]): ...

    class Counter(TrioActor):
        @receive(Count)
        def count(self, message: Count) -> int: ...

    async with ActorSystem() as system:
        ref = await system.spawn(Counter)
        ref.tell(Count("a"))
        assert await ref.ask(Count("b")) == 2

What holds, for every actor:

- It handles one message at a time, in the order in which they were sent (by one task or thread), whether its handlers
  are `def` (run by the system's dispatcher) or `async def` (run in the actor's own task).
- Every ask ends: with the reply, the handler's exception, or `ActorDeadError`.
- A crash ends that actor and no other, and what is no `Exception` (`KeyboardInterrupt`, ...) reaches the host. An actor
  under a `Supervisor` is started again at the same address, and the messages that wait there are kept.
- An actor that has stopped has no task left, and neither has a system.
"""

from quiesce.actors.kernel.actor import TrioActor
from quiesce.actors.kernel.administration import (
    ChildCounts,
    ChildInfo,
    ChildState,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from quiesce.actors.kernel.asyncio_host import host_in_asyncio
from quiesce.actors.kernel.call import Call
from quiesce.actors.kernel.dead_letters import DeadLetter
from quiesce.actors.kernel.errors import (
    ActorDeadError,
    AskCycleError,
    BlockingCallError,
    InboxFullError,
    NameTakenError,
    ReplyCompletedError,
    SelfWaitError,
    SystemStoppedError,
    UnhandledMessageError,
)
from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.monitors import Monitor, Terminated
from quiesce.actors.kernel.observer import Observer
from quiesce.actors.kernel.options import SpawnOptions
from quiesce.actors.kernel.receivers import receive
from quiesce.actors.kernel.ref import ActorRef
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.statistics import ActorStatistics, SupervisorStatistics, SystemStatistics
from quiesce.actors.kernel.supervision import AT_ONCE, INFINITE, Backoff, ChildSpec, Intensity
from quiesce.actors.kernel.supervision_errors import (
    ChildError,
    ChildNotFoundError,
    ChildPresentError,
    ChildRestartingError,
    ChildRunningError,
    ChildStartError,
    Decline,
    SpecError,
    SupervisorGaveUpError,
)
from quiesce.actors.kernel.supervisor import DynamicSupervisor, Supervisor
from quiesce.actors.kernel.system import ActorSystem
from quiesce.actors.kernel.thread_host import host_on_thread
from quiesce.protocol.message import Message

__all__ = [
    "AT_ONCE",
    "INFINITE",
    "ActorDeadError",
    "ActorRef",
    "ActorStatistics",
    "ActorSystem",
    "AskCycleError",
    "Backoff",
    "BlockingCallError",
    "Call",
    "ChildCounts",
    "ChildError",
    "ChildInfo",
    "ChildNotFoundError",
    "ChildPresentError",
    "ChildRestartingError",
    "ChildRunningError",
    "ChildSpec",
    "ChildStartError",
    "ChildState",
    "CountChildren",
    "DeadLetter",
    "Decline",
    "DeleteChild",
    "DynamicSupervisor",
    "Exit",
    "ExitKind",
    "InboxFullError",
    "Intensity",
    "Message",
    "Monitor",
    "NameTakenError",
    "Observer",
    "Reply",
    "ReplyCompletedError",
    "RestartChild",
    "SelfWaitError",
    "SpawnOptions",
    "SpecError",
    "StartChild",
    "Supervisor",
    "SupervisorGaveUpError",
    "SupervisorStatistics",
    "SystemStatistics",
    "SystemStoppedError",
    "TerminateChild",
    "Terminated",
    "TrioActor",
    "UnhandledMessageError",
    "WhichChildren",
    "host_in_asyncio",
    "host_on_thread",
    "receive",
]
