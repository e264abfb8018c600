"""Actors started Pykka's way, with `Cls.start()`: where they live, and which of Pykka's own rules they keep.

They share one system, the default one, on a thread of its own that starts with the first of them. What is different
about them, and about no actor that is spawned in a system:

- They are in `pykka.ActorRegistry`, from before `on_start` until they take no more messages.
- Their life is logged to the logger `pykka`, in Pykka's words.
- What leaves a handler and is no `Exception` stops every actor of the registry, this one included.
- `start()` returns before `on_start` has run, as Pykka's does. When that fails the actor is dead, and every use of the
  ref raises an `ActorDeadError` with the failure as its cause.

They keep the program alive as Pykka's threads do: it ends when the last of them has ended, except those whose class
says `use_daemon_thread = True`. Those are stopped then, and given a second for it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING, Final

import trio
from pykka import ActorRegistry

from quiesce.actors.kernel.cell import ActorCell
from quiesce.actors.kernel.errors import SystemStoppedError
from quiesce.actors.kernel.exits import Exit, ExitKind
from quiesce.actors.kernel.reply import Reply
from quiesce.actors.kernel.states import EXITING
from quiesce.actors.kernel.system import ActorSystem

if TYPE_CHECKING:
    from quiesce.actors.kernel.actor import TrioActor

__all__ = ["DefaultSystem", "PykkaCell", "default_cell"]

_DAEMON_GRACE: Final = 1.0  # seconds for daemon actors to stop in, when the program ends
_log: Final = logging.getLogger("pykka")
_starting = threading.Lock()


class DefaultSystem(ActorSystem):
    """The system of the actors that `Cls.start()` starts. It runs until the program ends."""

    notes_lives = False  # Pykka's log does

    def __init__(self) -> None:
        super().__init__("default")
        self.lasting: set[ActorCell] = set()  # those that keep the program alive; only single operations, by any thread
        self._left = trio.Event()
        self._entered = threading.Event()
        self._host = threading.Thread(target=trio.run, args=(self._main,), name="quiesce default system", daemon=True)

    def host(self) -> None:
        """Start the thread, and return when actors can be started."""
        self._host.start()
        self._entered.wait()
        atexit.register(self.end)

    async def _main(self) -> None:
        async with self:
            self._entered.set()
            await self._left.wait()

    def end(self) -> None:
        """Wait for the actors that keep the program alive, stop the others, and end the thread."""
        if self is not _default:  # a forked process has this exit handler, but neither the thread nor the actors
            return
        try:
            while lasting := list(self.lasting):
                lasting[0].ended.get()
        finally:
            self.call_soon(self._left.set)
            self._host.join(_DAEMON_GRACE)

    def remove(self, cell: ActorCell) -> None:
        """Forget an actor that is dead."""
        super().remove(cell)
        self.lasting.discard(cell)

    def fatal(self, error: BaseException) -> None:
        """Stop every actor of the registry; this system has no host to raise the exception in."""
        _log.debug(f"{error!r} in a callback of a reply. Stopping all actors.")
        ActorRegistry.stop_all(block=False)


class PykkaCell(ActorCell):
    """A cell of the default system: the same life, logged and registered as Pykka does it."""

    __slots__ = ()

    system: DefaultSystem

    def launch(self, actor: TrioActor) -> None:
        """From any thread: have the loop begin the life of an actor that `start()` has made."""
        if not actor.use_daemon_thread:
            self.system.lasting.add(self)
        self.system.call_soon(self._enter, actor)

    def _enter(self, actor: TrioActor) -> None:
        self.system._live[self] = None  # noqa: SLF001  # its own system
        self.start(lambda: actor, (), {})

    def _handler_failed(self, error: Exception) -> None:
        asked = self.reply
        if asked is not None and not asked.done():
            _log.info(f"Exception returned from {self} to caller:", exc_info=error)
        super()._handler_failed(error)

    def crash(self, error: BaseException) -> None:
        """End the actor because of an exception that nobody else is there to receive."""
        self._log_failure(error)
        self.begin_exit(Exit(ExitKind.CRASHED, error))

    def _hook_failed(self, error: Exception) -> None:
        self._log_failure(error)

    def _log_failure(self, error: BaseException) -> None:
        _log.error(f"Unhandled exception in {self}:", exc_info=error)

    def fatal(self, error: BaseException) -> None:
        """Pykka's rule: what is no `Exception` stops every actor, each as if somebody had asked it to."""
        _log.debug(f"{error!r} in {self}. Stopping all actors.")
        self.begin_exit(Exit(ExitKind.CRASHED, error))
        ActorRegistry.stop_all(block=False)

    def is_failure(self, error: BaseException) -> bool:
        """Whether the hook is `on_failure`: not for what stops everybody, the one who raised it included."""
        return isinstance(error, Exception)

    def begin_exit(self, exit_: Exit) -> None:
        """Close the inbox; whoever sees the actor stopped finds it gone from the registry."""
        if self.state < EXITING:
            ActorRegistry.unregister(self.ref)
            super().begin_exit(exit_)
            if not isinstance(exit_.error, Exception):
                _log.debug(f"Stopped {self}")


def default_cell() -> PykkaCell:
    """Make a cell in the default system, whose thread is started if this is its first."""
    global _default  # noqa: PLW0603  # the one system that no program holds
    with _starting:
        if _default is None:
            _default = DefaultSystem()
            _default.host()
    if _default.stopping:
        raise SystemStoppedError("the program is ending: no actor can be started any more")
    return PykkaCell(_default, Reply(_default))


def _forget() -> None:
    """In a forked process, which has neither the thread nor its actors."""
    global _default, _starting
    _default, _starting = None, threading.Lock()


_default: DefaultSystem | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
