"""Jobs: work on a store's tables, and the way its result takes back to the Trio loop that asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from logging import ERROR
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio
from attrs import frozen

from quiesce.actors.log import Log
from quiesce.protocol.errors import StoreError

if TYPE_CHECKING:
    from quiesce.actors.stores.tables import Tables

__all__ = ["Job", "NotOpen", "Settled", "deliver", "refuse"]

Done: TypeAlias = Callable[[Any, Exception | None], None]
"""Takes the result of the work and None, or None and the error."""

_log: Final = Log("quiesce.stores")


class NotOpen(StoreError):  # noqa: N818 - named for what happened
    """The store is closed, or was never entered."""


@frozen
class Job:
    """`work` is done in a transaction; `done` is told its result on the thread of `loop`."""

    work: Callable[[Tables], object]
    done: Done
    loop: trio.lowlevel.TrioToken


@frozen
class Settled:
    """A job that has ended: with `value`, or with `error` and then without any trace in the tables."""

    job: Job
    value: object = None
    error: Exception | None = None


def refuse(jobs: Iterable[Job], error: Exception) -> list[Settled]:
    """The `jobs`, each ended with `error`."""
    return [Settled(job, error=error) for job in jobs]


def deliver(settled: Iterable[Settled]) -> None:
    """Tell all who wait for these jobs, in order, in one hop per loop. May be called on any thread.

    Whoever waited on a loop that has ended is gone, and is not told.
    """
    by_loop: dict[trio.lowlevel.TrioToken, list[Settled]] = {}
    for item in settled:
        by_loop.setdefault(item.job.loop, []).append(item)
    for loop, items in by_loop.items():
        with suppress(trio.RunFinishedError):
            loop.run_sync_soon(partial(_tell, items))


def _tell(items: Iterable[Settled]) -> None:
    for item in items:
        try:
            item.job.done(item.value, item.error)
        except Exception as error:  # noqa: BLE001 - raised into Trio it would end the run; those behind it would not be told
            _log.write(ERROR, "store_callback_failed", exc_info=error)
