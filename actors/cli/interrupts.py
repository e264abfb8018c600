"""What Ctrl-C does while an agent is opened, works or is closed.

The first cancels the turn that runs; where none runs, it ends the command in order. One that comes before that is
through quits at once, and so does any that comes while all is closed after a first one.

It is the handler of the signal itself that quits: neither a loop that stands still nor a close that is shielded from
cancellation holds it up.
"""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import trio
from attrs import Factory, define
from pykka import ActorDeadError

from quiesce.actors.cli.faults import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.narration import Narrator

__all__ = ["Interrupts"]


@define
class Interrupts:
    """Takes the place of Python's own handling of SIGINT, from `taken` on to the end of the command."""

    narrator: Narrator
    again: str
    """How to go on with the session."""
    goes_on: bool = False
    """Whether the command goes on when a turn was cancelled: the next Ctrl-C is a first one then."""
    _agent: Agent | None = None
    _pressed: bool = False
    _wake: trio.Event = Factory(trio.Event)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """All that the command does, in the main thread. Raises `KeyboardInterrupt` at its end if it was ended."""
        token = trio.lowlevel.current_trio_token()

        def handle(*_: object) -> None:
            if self._pressed:
                self._quit()
            self._pressed = True
            token.run_sync_soon(self._wake.set)

        async with trio.open_nursery() as nursery:
            before = signal.signal(signal.SIGINT, handle)
            try:
                with trio.CancelScope() as all_of_it:
                    nursery.start_soon(self._watch, all_of_it)
                    yield
            finally:
                signal.signal(signal.SIGINT, before)
            nursery.cancel_scope.cancel()
        if all_of_it.cancel_called:
            raise KeyboardInterrupt

    @contextmanager
    def cancelling(self, agent: Agent) -> Iterator[None]:
        """For as long as `agent` can be told to cancel a turn."""
        self._agent = agent
        try:
            yield
        finally:
            self._agent = None

    async def _watch(self, all_of_it: trio.CancelScope) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._agent is not None and self.narrator.at_work:
                await self._cancel(self._agent)
            else:
                self.narrator.screen.note("closing; Ctrl-C once more quits at once", "yellow")
                all_of_it.cancel()

    async def _cancel(self, agent: Agent) -> None:
        self.narrator.screen.note("cancelling; Ctrl-C once more quits at once", "yellow")
        with suppress(ActorDeadError):  # its turn, and the agent, came to their end meanwhile
            await agent.cancel()
        self._pressed = not self.goes_on

    def _quit(self) -> NoReturn:
        """End the process. No care is needed: what was acknowledged is durable, and the next resume closes the rest."""
        try:
            with suppress(RuntimeError):  # what is interrupted may be writing itself, which is not reentrant
                self.narrator.screen.__exit__(None, None, None)
            os.write(2, f"quit; to go on: {self.again}\n".encode())  # for that reason past `sys.stderr`
        finally:
            os._exit(INTERRUPTED)
