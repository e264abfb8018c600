"""What Ctrl-C does while an agent works: it cancels the turn; pressed again meanwhile, it quits at once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NoReturn

import click
import trio
from attrs import define

from quiesce.actors.cli.faults import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.narration import Screen

__all__ = ["Interrupts"]


@define
class Interrupts:
    """Takes the place of Python's own handling of SIGINT, for as long as `watch` runs."""

    agent: Agent
    screen: Screen
    at_work: Callable[[], bool]
    """Whether a turn is running."""
    again: str
    """How to go on with the session."""
    _cancelling: bool = False

    async def watch(self) -> None:
        """Wait for Ctrl-C, for ever. Raises `KeyboardInterrupt` for one that comes when nothing runs."""
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                async for _ in signals:
                    if self._cancelling:
                        self._quit()
                    if not self.at_work():
                        raise KeyboardInterrupt
                    self._cancelling = True
                    self.screen.note("cancelling; Ctrl-C once more quits at once", "yellow")
                    nursery.start_soon(self._cancel)

    async def _cancel(self) -> None:
        await self.agent.cancel()
        self._cancelling = False

    def _quit(self) -> NoReturn:
        """End the process. No care is needed: what was acknowledged is durable, and the next resume closes the rest."""
        self.screen.__exit__(None, None, None)
        click.echo(f"quit; to go on: {self.again}", err=True)
        os._exit(INTERRUPTED)
