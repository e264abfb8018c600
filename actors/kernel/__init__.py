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
- A crash ends that actor and no other, and what is no `Exception` (`KeyboardInterrupt`, ...) reaches the host.
- An actor that has stopped has no task left, and neither has a system.
"""

from quiesce.actors.kernel.actor import TrioActor
from quiesce.actors.kernel.errors import (
    ActorDeadError,
    BlockingCallError,
    ReplyCompletedError,
    SelfWaitError,
    SystemStoppedError,
    UnhandledMessageError,
)
from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.receivers import receive
from quiesce.actors.kernel.ref import ActorRef
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.system import ActorSystem
from quiesce.protocol.message import Message

__all__ = [
    "ActorDeadError",
    "ActorRef",
    "ActorSystem",
    "BlockingCallError",
    "Exit",
    "ExitKind",
    "Message",
    "Reply",
    "ReplyCompletedError",
    "SelfWaitError",
    "SystemStoppedError",
    "TrioActor",
    "UnhandledMessageError",
    "receive",
]
