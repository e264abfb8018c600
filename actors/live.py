"""What an agent does, as it does it: the pieces of the model's answers, between the events of the log.

A `Watchers` is handed from an agent's handle to its turns and outlives the restarts of its actors. Whoever watches gets
everything in the order in which it happened: the deltas of an attempt, `AttemptFailed` if it failed, the deltas of the
next one, and the committed message behind those that it was made of. Deltas are not durable: they are told once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import Factory, define, frozen

from quiesce.protocol.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.model import Delta

__all__ = ["AttemptFailed", "Happening", "ModelDelta", "Watchers"]


@frozen
class ModelDelta:
    """A piece of the model's answer in this turn and step; attempts are counted from 1 in each step.

    It is what the model sent, not looked at yet: text may end in half a character (a lone surrogate).
    """

    turn: int
    step: int
    attempt: int
    delta: Delta


@frozen
class AttemptFailed:
    """The attempt failed. The next one begins in `retry_in` seconds; with None there is none.

    What it delivered is not part of the answer; its text may be in the log, as an interrupted message.
    """

    turn: int
    step: int
    attempt: int
    error: Exception
    retry_in: float | None


Happening: TypeAlias = ModelDelta | AttemptFailed | Event
"""What a watcher is told."""


@define
class Watchers:
    """Whoever watches an agent at the moment. They are called on the loop's thread and must not wait."""

    _told: list[Callable[[ModelDelta | AttemptFailed], None]] = Factory(list)

    def add(self, watcher: Callable[[ModelDelta | AttemptFailed], None]) -> None:
        """Tell this one from now on, until it raises."""
        self._told.append(watcher)

    def remove(self, watcher: Callable[[ModelDelta | AttemptFailed], None]) -> None:
        """Tell it nothing more."""
        if watcher in self._told:
            self._told.remove(watcher)

    def tell(self, what: ModelDelta | AttemptFailed) -> None:
        """Tell all of them."""
        for watcher in tuple(self._told):
            try:
                watcher(what)
            except Exception:  # noqa: BLE001 - a watcher that cannot be told must not harm the turn; it is dropped
                self.remove(watcher)
