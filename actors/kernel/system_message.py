"""Which messages are the kernel's own: never refused by a full inbox, and no dead letters."""

from __future__ import annotations

from typing import Final

from pykka.messages import _ActorStop

__all__ = ["STOP", "SystemMessage", "is_system_message"]

STOP: Final = _ActorStop()  # one for all: it says nothing more, and making it is slow


class SystemMessage:
    """The base of the kernel's own messages."""

    __slots__ = ()


def is_system_message(message: object) -> bool:
    """Whether a message is the kernel's own; Pykka's stop is one too."""
    return isinstance(message, (SystemMessage, _ActorStop))
