"""`Cancellation`: the user's wish to end the running turn, and whom it interrupts at the moment."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Cancellation"]


@define
class Cancellation:
    """At most one cause per turn: the first wins.

    What the turn waits for at the moment says, with `by`, how it is interrupted: a model request by a cancel scope, a
    batch by a message to the scheduler. Appends are never interrupted.
    """

    cause: str | None = None
    keep_inbox: bool = False
    _interrupt: Callable[[], None] | None = None

    @property
    def requested(self) -> bool:
        """Whether the turn shall end as aborted."""
        return self.cause is not None

    def request(self, cause: str, *, keep_inbox: bool) -> None:
        """End the turn; a second request changes nothing."""
        if self.cause is None:
            self.cause, self.keep_inbox = cause, keep_inbox
            if self._interrupt is not None:
                self._interrupt()

    @contextmanager
    def by(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` on a request while inside; at once if it was requested before."""
        self._interrupt = interrupt
        try:
            if self.requested:
                interrupt()
            yield
        finally:
            self._interrupt = None
