"""What a provider's own object looked like: how a record read from a transcript keeps it, so that it can be given back.

A neutral record says what every dialect can say. What else the object held (unknown keys, another order of keys, a
block of a type that only its provider knows) rides along as its *original*, under the key `wire`:

    {"provider": "anthropic", "model": "...", "object": {...}}

In a record with named fields it is an unknown key of the record's `shape`, in an `OpaqueBlock` a key of `data`: either
way it is a plain key of that object in the log, and any reader of logs keeps it. Values that rendering computes anew
(content, ids) are blanked in it, so that nothing is stored twice. It goes back to the provider and model it came from
and to no other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import evolve, fields

from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, Record, Shape, TextBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Collection

    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.events import JsonObject

__all__ = ["blanked", "is_listed", "like", "opaque", "original_of", "unknown", "with_original"]

R = TypeVar("R", bound=Record)

_KEY: Final = "wire"
_LOG_TYPES: Final = frozenset({TextBlock.TYPE, ReasoningBlock.TYPE, ToolCallBlock.TYPE})


def original_of(record: Record, profile: Profile, part: str = "object") -> JsonObject | None:
    """The original of `record` if `profile` is of the server that it came from. `part`: see `with_original`."""
    if isinstance(record, OpaqueBlock):
        wire = record.data.get(_KEY)
    elif record.shape is None:
        return None
    else:
        wire = record.shape.extra.get(_KEY)
    if type(wire) is not dict or (wire.get("provider"), wire.get("model")) != profile.identity:
        return None
    found = wire.get(part)
    return found if type(found) is dict else None


def with_original(record: R, profile: Profile, original: JsonObject | None, part: str = "object") -> R:
    """`record`, remembering `original` (nothing if it is None). A record that stands for two objects, a result block
    and the message around it, remembers the second as another `part`.
    """
    if original is None:
        return record
    held = record.shape.extra[_KEY] if record.shape else _wire(profile)
    return evolve(record, shape=Shape((*_keys(record), _KEY), {_KEY: {**held, part: original}}))


def opaque(data: JsonObject, profile: Profile, original: object) -> OpaqueBlock:
    """The opaque block `data`, which was `original` in a transcript; None if that says nothing more."""
    if original is None:
        return OpaqueBlock(data)
    held = original if type(original) is dict else {"": original}
    return OpaqueBlock({**data, _KEY: {**_wire(profile), "object": held}})


def unknown(original: object, profile: Profile) -> OpaqueBlock:
    """A part of a transcript of which no more is known than, perhaps, its type. That must be none of the log's own."""
    kind = original.get("type") if type(original) is dict else None
    named = type(kind) is str and kind and kind not in _LOG_TYPES
    return opaque({"type": kind if named else "unknown"}, profile, original)


def blanked(obj: JsonObject, computed: Collection[str]) -> JsonObject:
    """`obj` with the values of these keys left out: a list stays an empty list, so that its form is known."""
    return {key: ([] if type(value) is list else None) if key in computed else value for key, value in obj.items()}


def like(made: JsonObject, original: JsonObject | None, computed: Collection[str]) -> JsonObject:
    """`made` in the form of `original`: its order of keys, and those of its keys that are not `computed`."""
    if original is None:
        return made
    kept = {key: made.get(key, value) for key, value in original.items() if key in made or key not in computed}
    return {**kept, **made}


def is_listed(original: JsonObject | None, key: str) -> bool:
    """Whether what stood at `key` was a list."""
    return original is not None and type(original.get(key)) is list


def _wire(profile: Profile) -> JsonObject:
    named = {"provider": profile.provider, "model": profile.model}
    return {key: value for key, value in named.items() if value is not None}


def _keys(record: Record) -> tuple[str, ...]:
    """The keys of the record's JSON object, in the order of the log."""
    named: Any = fields(type(record))
    kind = ("type",) if hasattr(record, "TYPE") and not hasattr(record, "role") else ()
    present = [item.name for item in named if item.name != "shape" and getattr(record, item.name) is not None]
    return (*kind, *(re.sub(r"_([a-z])", lambda found: found[1].upper(), name) for name in present))
