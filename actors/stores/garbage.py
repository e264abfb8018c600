"""Holding Python's garbage collector off while many values are made of which none is garbage."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["uncollected"]

_pausing = Lock()


@contextmanager
def uncollected() -> Iterator[None]:
    """No automatic collection in this process until the block ends.

    The collector would look again and again at every event decoded so far, which takes nearly half of the time of
    reading a long log. Of several such blocks at once, only the first to come has an effect, so that an endless
    succession of overlapping readers cannot keep the collector off for good. A collector that is off stays off.
    """
    if not _pausing.acquire(blocking=False):
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        _pausing.release()
