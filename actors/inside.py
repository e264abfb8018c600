"""Who is inside a turn: what runs there cannot wait for that turn's end, which waits for it.

A tool, a hook or a model may use its own agent, but not wait for the turn that it is part of. The task that runs a turn
or a batch marks itself, and its children inherit the mark; the mark counts only for tasks that really descend from it,
so that work which a tool started elsewhere, in a nursery of the host, is not inside.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio
from attrs import frozen

from quiesce.actors.kernel import SelfWaitError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["inside", "refuse_inside"]


@frozen
class _Mark:
    """The session whose turn it is, by identity, and the task that everything inside descends from."""

    session: object
    task: trio.lowlevel.Task
    outer: _Mark | None


_marks: ContextVar[_Mark | None] = ContextVar("quiesce_inside", default=None)


@contextmanager
def inside(session: object) -> Iterator[None]:
    """What the calling task does here, and what it starts, is part of a turn of `session`."""
    token = _marks.set(_Mark(session, trio.lowlevel.current_task(), _marks.get()))
    try:
        yield
    finally:
        _marks.reset(token)


def refuse_inside(session: object, what: str) -> None:
    """Raise `SelfWaitError` if the caller is part of a turn of `session`, whose end it is about to wait for."""
    mark = _marks.get()
    while mark is not None:
        if mark.session is session and _descends(trio.lowlevel.current_task(), mark.task):
            raise SelfWaitError(
                f"{what} waits for the end of the turn that this tool, hook or model is part of, which waits for it: "
                "return first (a Result may conclude the turn), or call it from a task outside of the turn"
            )
        mark = mark.outer


def _descends(task: trio.lowlevel.Task | None, ancestor: trio.lowlevel.Task) -> bool:
    while task is not None:
        if task is ancestor:
            return True
        task = task.parent_nursery and task.parent_nursery.parent_task
    return False
