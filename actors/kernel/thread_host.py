"""A system on a loop thread of its own, for programs of plain threads."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import trio

from quiesce.actors.kernel.stay import Stay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quiesce.actors.kernel.system import ActorSystem

__all__ = ["host_on_thread"]

L = TypeVar("L")


@contextmanager
def host_on_thread(system: ActorSystem, life: AbstractAsyncContextManager[L]) -> Iterator[L]:
    """Run a loop on a thread of its own for as long as the block is open.

        with host_on_thread(system, life) as it: ...

    `life` is what lives there, and is entered and left on that thread. It has to enter `system`, itself or as a part of
    more, and `it` is what it gives. What `ActorSystem.on_thread` says of the end of its block holds for this one.
    """
    stay = Stay(system, life)
    entered: Future[L] = Future()
    ended: Future[None] = Future()
    name = f"actors: {system.name}"
    thread = threading.Thread(target=_run_into, args=(ended, entered, stay), name=name, daemon=True)
    try:
        _start(thread, ended)
        yield entered.result()
    except BaseException:
        stay.hurry()
        raise
    finally:
        stay.leave()
        _wait_out(ended, stay)
        if thread.is_alive():  # it is about to end, or never was
            thread.join()
        ended.result()


def _start(thread: threading.Thread, ended: Future[None]) -> None:
    try:
        thread.start()
    except RuntimeError as error:  # there can be no more threads
        ended.set_exception(error)
        raise


def _run_into(ended: Future[None], entered: Future[L], stay: Stay[L]) -> None:
    """Run a loop, and keep what comes out of it for the thread that waits."""
    try:
        ended.set_result(trio.run(stay.run, entered.set_result))
    except BaseException as error:  # noqa: BLE001  # raised again in the host's thread
        ended.set_exception(error)
        if not entered.done():
            entered.set_exception(error)


def _wait_out(ended: Future[None], stay: Stay[L]) -> None:
    """Wait for the end of the loop. Ctrl-C hurries it, and is raised when it has ended; a second one at once."""
    try:
        wait([ended])
    except BaseException:
        stay.hurry()
        wait([ended])
        raise
