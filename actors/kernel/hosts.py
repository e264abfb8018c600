"""Which library runs the calling task: Trio or asyncio. Whatever waits for an actor asks here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint_if_cancelled

if TYPE_CHECKING:
    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["checkpoint", "in_asyncio", "in_event_loop", "refuse_asyncio"]


def in_asyncio() -> bool:
    """Whether the caller runs in an asyncio event loop, and not in a Trio task."""
    if trio.lowlevel.in_trio_task():
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_event_loop() -> bool:
    """Whether blocking the calling thread would stop a loop, of either library."""
    return trio.lowlevel.in_trio_run() or in_asyncio()


def refuse_asyncio(entered: str, instead: str) -> None:
    """Refuse to be entered by an asyncio task, where only Trio will do.

    Raises:
        RuntimeError: it says what to enter there.

    """
    if in_asyncio():
        raise RuntimeError(f"{entered} is for Trio; in an asyncio program it is `async with {instead}`")


async def checkpoint(system: ActorSystem) -> None:
    """Be a cancellation point, and give way at least once per millisecond of work."""
    pace = system.pace
    if in_asyncio():
        await asyncio.sleep(0)
    elif not pace.is_due():
        await checkpoint_if_cancelled()
    else:
        await pace.checkpoint()
