"""`Stay`: what lives on Trio's side for as long as a block is open elsewhere, on a plain thread or in asyncio."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["Stay"]

L = TypeVar("L")


class Stay(Generic[L]):
    """One life of a system, by itself or as a part of more: `life` enters the system, and gives what the block gets."""

    def __init__(self, system: ActorSystem, life: AbstractAsyncContextManager[L]) -> None:
        self._system = system
        self._life = life
        self._opening = trio.CancelScope()
        self._left = trio.Event()
        self._entered = False
        self._hurried = False
        self._token: trio.lowlevel.TrioToken | None = None

    async def run(self, entered: Callable[[L], object]) -> None:
        """The loop's main function: enter, tell, and leave when the block has been left."""
        self._token = trio.lowlevel.current_trio_token()
        if self._hurried:
            self._opening.cancel()
        with self._opening:
            async with self._life as it:
                self._entered = True
                entered(it)
                await self._left.wait()

    def leave(self) -> None:
        """The block, which had been entered or is being hurried, is left. From any thread."""
        self._system.leaving = True
        self._post(self._left.set)

    def hurry(self) -> None:
        """The block is cancelled: give the opening up, or have the actors stopped `now`. From any thread."""
        self._hurried = self._system.leaving = True
        self._post(self._cancel)

    def _cancel(self) -> None:
        if self._entered:
            self._system.stop_now()  # and their hooks run to their end, unlike when all of it is cancelled
        else:
            self._opening.cancel()

    def _post(self, call: Callable[[], object]) -> None:
        if self._token is not None:  # else it has not begun, and will look at what it finds
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(call)
