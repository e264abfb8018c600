"""Messages that can be taken back until they are handled: what timers and monitors send."""

from __future__ import annotations

from quiesce.actors.kernel.system_message import SystemMessage

__all__ = ["Revocable"]


class Revocable(SystemMessage):
    """Stands in an inbox for `message`. The receiver table opens it when its turn comes, unless it was revoked."""

    __slots__ = ("message", "revoked")

    def __init__(self, message: object) -> None:
        self.message = message
        self.revoked = False

    def taken(self) -> None:
        """Called when the message is about to be handled."""
