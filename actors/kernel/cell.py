"""The cell: an actor's address, inbox and life. It owns the invariant that an actor does one thing at a time.

The states are in `states.py`. An actor that is still in `on_start` is RUNNING, with `spawning` set. Whoever brings a
handler to its end looks at the state again: a cell that became EXITING meanwhile is taken further by `advance_exit()`,
which goes on once the cell has no task. All of this happens on the loop's thread.

The hot paths are `turn()` and `handle_at_once()`, with `tell` and `ask` in `ref.py`: what they need stands in them:
each call costs a tenth of a message.
"""

# ruff: noqa: SLF001  # a cell, its actor and the replies to it are one mechanism

from __future__ import annotations

import contextvars
import threading
import uuid
import weakref
from collections import deque
from logging import DEBUG, WARNING
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import trio
from pykka import ActorDeadError
from pykka.messages import _ActorStop

from quiesce.actors.kernel.bounded import BoundedInbox
from quiesce.actors.kernel.construction import construct
from quiesce.actors.kernel.ending import TAKEN, EndingCell
from quiesce.actors.kernel.entries import NO_INBOX, Asked, opened, packed
from quiesce.actors.kernel.errors import InboxFullError
from quiesce.actors.kernel.exits import Haste
from quiesce.actors.kernel.log import enabled, note
from quiesce.actors.kernel.reply import PENDING, Reply
from quiesce.actors.kernel.runner import Runner
from quiesce.actors.kernel.states import DEAD, EXITING, IDLE, READY, RUNNING
from quiesce.actors.kernel.system_message import is_system_message
from quiesce.actors.kernel.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.bounded import InboxPolicy
    from quiesce.actors.kernel.ending import Owner
    from quiesce.actors.kernel.entries import Entry
    from quiesce.actors.kernel.exits import Exit
    from quiesce.actors.kernel.monitors import Monitor
    from quiesce.actors.kernel.receivers import Handler
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.system import ActorSystem
    from quiesce.actors.kernel.timers import Timers

__all__ = ["ActorCell"]

T = TypeVar("T")

UNFINISHED: Final = object()  # what is left of a turn that is no coroutine: messages, or an exit that began
_UNHURRIED: Final = Haste.NONE  # looked up once: that is slow
_first_asking = threading.Lock()  # two threads may be the first to ask for the same thing of one actor


class ActorCell(EndingCell):
    """One actor's address, for as long as anybody holds a ref; `actor` is what lives there."""

    __slots__ = (
        "_ref",
        "_urn",
        "actor_class",
        "bounds",
        "context",
        "handled",
        "handlers",
        "inbox",
        "incarnation",
        "name",
        "started_at",
        "system",
        "tasks",
        "work",
    )

    def __init__(self, system: ActorSystem, spawning: Reply[Any]) -> None:
        self.system = system
        self.state = RUNNING  # until on_start has ended, so that messages queue up
        self.inbox: deque[Entry] = NO_INBOX  # see made_inbox()
        self.context = contextvars.copy_context()
        self.actor: TrioActor | None = None
        self.actor_class: type[TrioActor] | None = None
        self.message: object = None  # what is being handled, and the reply that its asker waits for
        self.reply: Reply[Any] | None = None
        self.taken: set[Reply[Any]] | None = None
        self.runner: Runner | None = None
        self.work: Work | None = None
        self.tasks = 0  # of runner and work: 0 is when an exit can go on
        self.spawning: Reply[Any] | None = spawning  # until on_start has ended
        self.stops: list[Reply[bool]] | None = None
        self.exit: Exit | None = None
        self.haste = _UNHURRIED
        self.hook_scope: trio.CancelScope | None = None
        self.hook_task: trio.lowlevel.Task | None = None
        self.owner: Owner | None = None  # of a supervised actor
        self.kept = False  # from EXITING on: messages wait for the next incarnation; set before the state
        self.incarnation = 1
        self.started_at: float | None = None  # on Trio's clock; of this incarnation
        self.handled = 0  # messages, by all incarnations
        self.bounds: tuple[int | None, InboxPolicy | None] | None = None  # as given at the spawn
        self.name: str | None = None  # within the system; most have none
        self.timers: Timers | None = None
        self.monitors: set[Monitor] | None = None  # what this actor watches
        self._ended: Reply[Exit] | None = None
        self._ref: ActorRef[Any] | weakref.ref[ActorRef[Any]] | None = None
        self._urn: str | None = None
        self._event: threading.Event | None = None

    def __str__(self) -> str:
        kind = "an actor under construction" if self.actor_class is None else self.actor_class.__name__
        return f"{kind} ({self.urn})" if self.name is None else f"{kind} {self.name!r} ({self.urn})"

    # -- what is only made when somebody asks --------------------------------------------------------------------------

    @property
    def urn(self) -> str:
        """A universally unique name."""
        if self._urn is None:
            with _first_asking:
                if self._urn is None:
                    self._urn = uuid.uuid4().urn
        return self._urn

    @property
    def ref(self) -> ActorRef[Any]:
        """The one ref to this cell. A dead cell does not keep it alive, or the two would be garbage in a cycle."""
        ref = self._ref
        if type(ref) is weakref.ref:
            ref = ref()
        if ref is None:
            ref = self.system.ref_to(self)
            self._ref = ref if self.state < DEAD else weakref.ref(ref)
        return ref  # type: ignore[return-value]  # it has been followed if it was weak

    def loosen_ref(self) -> None:
        """Keep the ref no longer than others do."""
        if type(self._ref) is not weakref.ref and self._ref is not None:
            self._ref = weakref.ref(cast("ActorRef[Any]", self._ref))

    @property
    def stopped_event(self) -> threading.Event:
        """Set once the cell takes no more messages."""
        if self._event is None:
            with _first_asking:
                if self._event is None:
                    self._event = threading.Event()
            if self.state >= EXITING:
                self._set_event()
        return self._event

    @property
    def ended(self) -> Reply[Exit]:
        """The reply that arrives when the actor is dead: how it ended."""
        if self._ended is None:
            with _first_asking:
                if self._ended is None:
                    ended: Reply[Exit] = Reply(self.system)
                    ended._cell = self
                    self._ended = ended
            if self.state == DEAD:
                self._ended._settle(self.exit)
        return self._ended

    # -- start ---------------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def start(self, make: Callable[..., TrioActor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the actor and run `on_start`; `spawning` gets the ref when that has ended, or what went wrong."""
        try:
            actor = self.context.run(construct, self, make, args, kwargs)
            self.handlers = self.known_handlers(actor)
            result: object = self.context.run(actor._begin)
        except Exception as error:  # noqa: BLE001  # the spawner gets it
            self.crash(error)
        except BaseException as error:  # noqa: BLE001  # the host gets it
            self._die(error)
        else:
            if type(result) is CoroutineType:
                self._hand_over(self._start_later(result))
                return
            self._started()
        self.end_turn()

    def known_handlers(self, actor: TrioActor) -> dict[type, Handler]:
        """What handles each type of message that has been met."""
        return actor._receivers.known

    def handler_of(self, message_type: type) -> Handler:
        """What handles a type of message that is met for the first time."""
        return cast("TrioActor", self.actor)._receivers.handler_of(message_type)

    def revive(self, make: Callable[..., TrioActor]) -> Reply[Any]:
        """Start the next incarnation at the address that is DOWN; what is queued waits for it."""
        reply: Reply[Any] = Reply(self.system)
        self.state, self.spawning = RUNNING, reply
        self.exit, self.haste = None, _UNHURRIED  # `kept` stays: a thread may look at it with the old state in mind
        self.incarnation += 1
        self.context = contextvars.copy_context()
        self.start(make, (), {})
        return reply

    async def _start_later(self, on_start: Coroutine[Any, Any, None]) -> None:
        await on_start
        if self.runner is not None:
            self.runner.parks = False
        self._started()

    def _started(self) -> None:
        spawning, self.spawning = self.spawning, None
        if spawning is not None:
            self._began_life()
            spawning._resolve(self.ref)

    def _began_life(self) -> None:
        """An incarnation has started."""
        self.started_at = self.system.now()
        self.system.tally.started += 1
        if self.incarnation > 1:
            note(WARNING, "actor_restarted", self)
        elif enabled(DEBUG):
            note(DEBUG, "actor_started", self)

    def bound_inbox(self, cls: type[TrioActor] | None = None) -> None:
        """Put a bounded inbox in the place of the deque, if the spawn or the actor's class says so.

        A limit given at the spawn holds before there is a class, which may still decide about the policy.
        """
        limit, policy = self.bounds or (None, None)
        if cls is not None:
            limit, policy = limit or cls.inbox_limit, policy or cls.inbox_policy
        if limit is not None and type(self.inbox) is deque:
            self.inbox = BoundedInbox(self, limit, waits=policy == "wait")
        elif self.bounds is not None and type(self.inbox) is BoundedInbox:
            self.inbox.waits = policy == "wait"

    # -- messages ------------------------------------------------------------------------------------------------------

    def made_inbox(self) -> deque[Entry]:
        """Make the inbox: most actors need none, since they are asked when they are idle, and it is half of a cell."""
        self.inbox = deque()
        return self.inbox

    def post(self, message: object, reply: Reply[Any] | None) -> None:
        """Send from any thread; what one thread sends arrives in order."""
        if self.system.on_loop():
            self.deliver(message, reply)
        elif self.state == DEAD or not self._post_to_loop(message, reply):
            self._refuse(message, reply, f"{self} not found", dead=True)

    def _post_to_loop(self, message: object, reply: Reply[Any] | None) -> bool:
        """Send from a thread that is not the loop's; False when there is no loop any more."""
        inbox = self.inbox
        if type(inbox) is deque or is_system_message(message):
            return self.system.call_soon(self._arrive, message, reply)
        try:
            cast("BoundedInbox", inbox).reserve(message)
        except InboxFullError as error:
            if reply is None:
                raise
            reply._fail(error)
            return True
        return self.system.call_soon(self.deliver, message, reply, cast("BoundedInbox", inbox).append_reserved)

    def _arrive(self, message: object, reply: Reply[Any] | None) -> None:
        """Take a message of another thread; an ask at once, if the actor is idle and no checkpoint is due.

        The inbox may have become bounded after the message was sent, and be full: then a tell is a dead letter.
        """
        pace = self.system.pace
        if reply is not None and self.state == IDLE and not pace.is_due():
            self.handle_at_once(message, reply)
            return
        try:
            self.deliver(message, reply)
        except InboxFullError:  # nobody is there any more to be told
            self.system.dead_letters.add(self, message)

    def deliver(
        self,
        message: object,
        reply: Reply[Any] | None,
        append: Callable[[Entry], None] | None = None,
    ) -> None:
        """Put a message into the inbox; an actor that is gone fails the ask and drops the tell.

        Raises:
            InboxFullError: there is no room for a tell; an ask is answered with it.

        """
        if self.state >= EXITING and (not self.kept or type(message) is _ActorStop):
            self._refuse(message, reply, f"{self} not found")
            return
        if reply is not None:
            reply._cell = self
        try:
            if append is None:
                append = (self.made_inbox() if self.inbox is NO_INBOX else self.inbox).append
            append(packed(message, reply))
        except InboxFullError as error:
            if reply is None:
                raise
            reply._fail(error)
            return
        if self.state == IDLE:
            self.state = READY
            self.system.dispatcher.schedule(self)

    def offer(self, message: object, accepted: Reply[None]) -> None:
        """Take a message now, or when there is room for it; complete `accepted` then."""
        if self.state >= EXITING and not self.kept:
            self._refuse(message, accepted, f"{self} not found")
            return
        accepted._cell = self  # a handler that waits for its own actor's room would wait for ever
        try:
            self.deliver(message, None)
        except InboxFullError:
            cast("BoundedInbox", self.inbox).wait(message, accepted)
        else:
            accepted._resolve(None)

    def withdraw(self, accepted: Reply[None]) -> None:
        """Give up waiting for room."""
        cast("BoundedInbox", self.inbox).withdraw(accepted)

    def take_back(self, asked: Reply[Any], error: Exception) -> None:
        """Take a message out again whose asker is refused to wait for it, or a ring of asks would go round for ever.

        It stays if anybody else waits, and a stop stays in any case.
        """
        if asked._waiters or asked._observers:
            return
        for position, entry in enumerate(self.inbox):
            message, reply = opened(entry)
            if reply is asked and not is_system_message(message):
                del self.inbox[position]
                if type(self.inbox) is BoundedInbox:
                    self.inbox.admit()
                asked._fail(error)
                return

    @trio.lowlevel.enable_ki_protection
    def turn(self, limit: int) -> object:  # noqa: C901, PLR0912  # see above
        """Handle queued messages, one by one, in the actor's context; `close_turn()` gets what it returns, unless None.

        The caller owns the cell: it took it out of the dispatcher's queue, or is its runner. It ends when the inbox is
        empty, after about `limit` messages, when a checkpoint is due, when the actor begins its exit, or with a handler
        that is a coroutine.
        """
        self.state = RUNNING
        inbox, actor, handlers = self.inbox, self.actor, self.handlers
        pace = self.system.pace
        handled, unhurried = 0, pace.spare
        rest: object = None
        while inbox:
            entry: Any = inbox.popleft()
            if type(entry) is Asked:
                message, asked = entry
            else:
                message, asked = entry, None
            self.message, self.reply = message, asked
            handled += 1
            try:
                try:
                    handler = handlers[type(message)]
                except KeyError:
                    handler = self.handler_of(type(message))
                result = handler(actor, message)
            except BaseException as error:  # noqa: BLE001  # a crash stays with this actor; the host gets the rest
                self._handler_raised(error)
            else:
                if type(result) is CoroutineType:
                    if asked is not None:
                        asked._cell = self  # what a handler elsewhere waits for when it awaits this reply
                    rest = result
                    break
                if asked is not None and self.message is not TAKEN:
                    asked._resolve(result)
            if self.state != RUNNING:
                break
            if handled > unhurried:  # time to look at the clock
                if handled >= limit or (inbox and pace.is_due()):
                    break
                unhurried = handled + pace.spare
        self.handled += handled
        pace.spare = unhurried - handled if unhurried > handled else 0
        if rest is None and self.state == RUNNING and not inbox:  # nearly always: without a call
            self.state = IDLE
            self.message = self.reply = None
            return None
        return rest or UNFINISHED

    @trio.lowlevel.enable_ki_protection
    def handle_at_once(self, message: object, asked: Reply[Any]) -> None:
        """Handle a message that found the actor idle: a turn of one message that never was in the inbox."""
        self.state = RUNNING
        self.message, self.reply = message, asked
        rest: object = UNFINISHED
        self.handled += 1
        try:
            try:
                handler = self.handlers[type(message)]
            except KeyError:
                handler = self.handler_of(type(message))
            result = self.context.run(handler, self.actor, message)
        except BaseException as error:  # noqa: BLE001  # as in turn()
            self._handler_raised(error)
        else:
            if type(result) is CoroutineType:
                asked._cell = self
                rest = result
            elif self.message is not TAKEN and asked._result is PENDING:  # Reply._resolve(), without the call
                asked._result = result
                if asked._waiters is not None or asked._observers is not None:
                    asked._announce()
        if rest is UNFINISHED and self.state == RUNNING and not self.inbox:  # nearly always: without a call
            self.state = IDLE
            self.message = self.reply = None
        else:
            self.close_turn(rest)

    def close_turn(self, rest: object) -> None:
        """Leave RUNNING, unless what is left of a turn is the coroutine of a handler, which the runner gets."""
        if type(rest) is CoroutineType:
            self._hand_over(rest)
        else:
            self.end_turn()

    def end_turn(self) -> None:
        """Leave RUNNING, with no handler under way, to whatever is next."""
        if self.state != RUNNING:
            self.advance_exit()
        elif self.inbox:
            self.state = READY
            self.system.dispatcher.schedule(self)
        else:
            self.state = IDLE
            self.message = self.reply = None  # nothing of the last message is kept alive

    async def complete(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run an `async def` handler to its end, in the actor's own task, and answer."""
        asked = self.reply
        try:
            result = await _interruptibly(coroutine)
        except Exception as error:  # noqa: BLE001  # a crash stays with this actor, or goes to its asker
            self._handler_failed(error)
        except BaseException as error:
            self._lose_asker(error)
            raise
        else:
            if asked is not None and self.message is not TAKEN:
                asked._resolve(result)

    def take_reply(self, message: object) -> Reply[Any]:
        """Take over answering the message that is being handled."""
        if message is not self.message or self.state < RUNNING:
            raise LookupError(f"{self} is not handling {message!r}, or its reply has been taken already")
        self.message = TAKEN
        reply: Reply[Any] = Reply(self.system) if self.reply is None else self.reply
        reply._cell = self
        if self.taken is None:
            self.taken = set()
        self.taken.add(reply)
        return reply

    def has_taken(self, reply: Reply[Any]) -> bool:
        """Whether the actor answers this one later, and has not done so yet."""
        return self.taken is not None and reply in self.taken

    def forget(self, reply: Reply[Any]) -> None:
        """A reply has been completed, on whichever thread."""
        if self.taken is not None:
            self.taken.discard(reply)

    def _handler_raised(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._handler_failed(error)
        else:
            self._lose_asker(error)
            self._die(error)

    def _handler_failed(self, error: Exception) -> None:
        """Give the exception to the asker; with nobody to give it to, it is a crash."""
        asked = self.reply
        if asked is None or asked.done():
            self.crash(error)
        else:
            asked._fail(error)

    def _lose_asker(self, error: BaseException) -> None:
        if self.reply is not None:
            self.reply._abandon(ActorDeadError(f"{self} ended while it handled the message: {type(error).__name__}"))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _hand_over(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Have the actor's own task run a coroutine; the cell stays RUNNING until that task says otherwise."""
        if self.runner is None:
            self.runner = Runner(self)
            self.tasks += 1
            self.context.run(self.system.start_task, self.runner.run, name=self._task_name())
        self.runner.take(coroutine)
        if self.state >= EXITING:  # the handler stopped its own actor before it became a coroutine
            self.runner.cancel()

    def start_soon(
        self, async_fn: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], name: object
    ) -> None:
        """Start child work, in the nursery that is open while there is any."""
        if self.state >= EXITING:
            raise ActorDeadError(f"{self} is stopping and starts no more work")
        if self.work is None:
            self.work = Work(self)
            self.tasks += 1
            self.system.start_task(self.work.run, name=self._task_name())
        self.work.start_soon(async_fn, args, name)

    def _task_name(self) -> str:
        return "actor" if self.actor_class is None else self.actor_class.__name__

    def task_ended(self) -> None:
        """The runner or the child work has come to its end; the dispatcher takes the exit further."""
        self.tasks -= 1
        if self.state == EXITING:
            self.system.dispatcher.schedule(self)

    def _own_task(self) -> trio.lowlevel.Task | None:
        """The task in which the actor's `async def` handlers run, or at its end the exit hook."""
        return self.runner.task if self.hook_task is None and self.runner is not None else self.hook_task

    def awaited(self) -> object:
        """What the handler or hook in the actor's own task waits for; no reply when it waits for something else."""
        task = self._own_task()
        return None if task is None else task.custom_sleep_data

    def runs_in(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task is the actor's own, in which its `async def` handlers and hooks run."""
        return self._own_task() is task


@trio.lowlevel.disable_ki_protection
async def _interruptibly(coroutine: Coroutine[Any, Any, T]) -> T:
    """Let Ctrl-C interrupt the user's code, which the runner's protected loop awaits."""
    return await coroutine
