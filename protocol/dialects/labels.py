"""Labels on the wire: call ids and names of tools, as a server takes them.

1. A label that fits the profile's rule is sent as it is. That holds for nearly all.
2. A name that does not fit becomes a readable rest of it and nine characters that stand for the whole name. That is a
   function of the name alone, so that a call of last week and the tool on offer today agree.
3. A call id that does not fit, or that stands in the request already, is replaced by nine letters and digits, which fit
   every known server. They stand for the call's *place* (which batch, which call of it), so that ids which repeat or
   are empty cross nothing. Ids are given in order: what comes later never changes what was given.
4. What stands for something is a hash, never a cut: two labels with one beginning stay two labels.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from attrs import Factory, define

from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quiesce.protocol.dialects.profile import LabelRule, Profile
    from quiesce.protocol.events import ToolCallBlock

__all__ = ["CallIds", "mint", "wire_name", "wire_names"]

_SIZE: Final = 9
_NAMELESS: Final = "unnamed_tool"


def mint(*place: object) -> str:
    """Nine letters and digits that stand for `place`, the same each time."""
    digest = blake2b(repr(place).encode("utf-8", "backslashreplace"), digest_size=_SIZE).digest()
    return b64encode(digest, altchars=b"xy")[:_SIZE].decode()


def wire_name(name: str, profile: Profile) -> str:
    """What a tool is called on the wire. A name that says nothing becomes `unnamed_tool`, its call stays a call."""
    return _wire_name(name, profile.tool_name)


@lru_cache(maxsize=4096)
def _wire_name(name: str, rule: LabelRule) -> str:
    if not name.strip():
        return _NAMELESS
    if rule.allows(name) and clean_text(name) == name:
        return name
    readable = re.sub(f"[^{rule.alphabet}]", "_", clean_text(name))
    room = None if rule.max_length is None else rule.max_length - _SIZE - 1
    return f"{readable[:room]}_{mint(name)}"


def wire_names(names: Iterable[str], profile: Profile) -> dict[str, str]:
    """Name on the wire -> name of the tool, of all tools of one request: how names in a reply are read.

    Raises `InvalidInput` if two tools would have one name there.
    """
    found: dict[str, str] = {}
    for name in names:
        wire = wire_name(name, profile)
        if wire in found:
            raise InvalidInput(f"tools: {name!r} and {found[wire]!r} are both called {wire!r} by {profile.name}")
        found[wire] = name
    return found


@define
class CallIds:
    """Gives the calls of one request their ids, batch by batch."""

    profile: Profile
    _used: set[str] = Factory(set)
    _batches: int = 0

    def batch(self, calls: Sequence[ToolCallBlock]) -> list[str]:
        """The ids of one message's calls, for them and for their results."""
        self._batches += 1
        if not self.profile.unique_call_ids:
            self._used.clear()
        return [self._id(index, clean_text(call.id)) for index, call in enumerate(calls)]

    def _id(self, index: int, label: str) -> str:
        chosen, attempt = label, 0
        while chosen in self._used or not self.profile.call_id.allows(chosen):
            chosen = mint(self._batches, index, label, attempt)
            attempt += 1
        self._used.add(chosen)
        return chosen
