"""Which messages are the kernel's own: never refused by a full inbox, and no dead letters."""

from __future__ import annotations

from pykka.messages import _ActorStop

__all__ = ["SystemMessage", "is_system_message"]


class SystemMessage:
    """The base of the kernel's own messages."""

    __slots__ = ()


def is_system_message(message: object) -> bool:
    """Whether a message is the kernel's own; Pykka's stop is one too."""
    return isinstance(message, (SystemMessage, _ActorStop))
