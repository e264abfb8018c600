"""What the dialects have in common when they speak: blocks that are open, events on the wire, made-up ids."""

from __future__ import annotations

import json
from itertools import count

from attrs import define, field

from .script import Call, Text, Thinking, Usage

__all__ = ["CREATED", "Block", "Ids", "sse", "usage_or_default"]

CREATED = 1_700_000_000
"""When every reply was made, in seconds since the epoch: the server reads no clock."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def sse(data, event=None):
    """One server-sent event; `data` is text, or an object that is sent as JSON."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode() if event else f"data: {text}\n\n".encode()


@define
class Ids:
    """Ids of the lengths and alphabets that providers use, each once in a server's life."""

    _next: count = field(factory=lambda: count(1))

    def make(self, prefix="", length=24):
        """A prefix and `length` letters and digits."""
        number, tail = next(self._next), ""
        while number:
            number, digit = divmod(number, len(_ALPHABET))
            tail = _ALPHABET[digit] + tail
        return prefix + tail.rjust(length, "0")


@define
class Block:
    """A block of the reply on its way: what it is, where it stands, and what was sent of it.

    `number` is its place in the reply, `index` the number it is streamed under.
    """

    action: Text | Thinking | Call
    number: int
    index: int
    id: str = ""
    call_id: str = ""
    text: str = ""
    open: bool = True

    @property
    def kind(self):
        """Text, Thinking or Call."""
        return type(self.action)


def usage_or_default(usage, blocks):
    """The usage that the script gives, or one that the reply's length gives."""
    return usage or Usage(input=10, output=max(1, sum(len(block.text) for block in blocks) // 4))
