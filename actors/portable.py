"""`portable`: async methods that any task may await: one of the system's own loop, of asyncio, or of another loop.

The body of such a method runs in Trio, in the loop of the system that `_system` names. A task of that loop runs it
itself. For any other the system does (`ActorSystem.run`), and a cancelled wait cancels the body and waits for its end,
so that the method keeps its promises about cancellation: what it cleans up has been cleaned up when the cancellation
goes on.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from quiesce.actors.kernel import ActorSystem

__all__ = ["portable", "portable_with_undo"]

P = ParamSpec("P")
S = TypeVar("S", bound="_Hosted")
T = TypeVar("T")


class _Hosted(Protocol):
    """Whoever has portable methods."""

    @property
    def _system(self) -> ActorSystem: ...


def portable(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Have a method run in Trio, whoever awaits it."""
    return _portable(method, None)


def portable_with_undo(
    undo: Callable[[T], Awaitable[object]],
) -> Callable[
    [Callable[Concatenate[S, P], Coroutine[Any, Any, T]]],
    Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
]:
    """As `portable`, for a method whose result must not be lost.

    `undo` takes it back when the waiting task was cancelled too late to keep the method from its end, and too early to
    get what it gave. That cannot happen to a task of the system's own loop.
    """
    return lambda method: _portable(method, undo)


def _portable(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], undo: Callable[[T], Awaitable[object]] | None
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def anywhere(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        system = self._system
        if system.in_task():
            return await method(self, *args, **kwargs)
        return await system.run(method, self, *args, **kwargs).or_cancel(undo)

    return anywhere
