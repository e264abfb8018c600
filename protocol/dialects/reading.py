"""What the readers of all dialects share: a foreign list is looked at once, made storable, and never trusted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import make_storable

if TYPE_CHECKING:
    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.events import JsonObject

__all__ = ["item_list", "label", "model_source", "reader_source", "same", "text_at"]


def item_list(messages: object, where: str) -> list[JsonObject]:
    """`messages` as a list of storable objects. Raises `InvalidInput`, naming the position, if it is none."""
    if type(messages) is not list:
        raise InvalidInput(f"{where}: expected a list of messages, not {type(messages).__name__}")
    for at, item in enumerate(messages):
        if type(item) is not dict:
            raise InvalidInput(f"{where}[{at}]: expected an object, not {type(item).__name__}")
    return [make_storable(item) for item in messages]  # type: ignore[misc]  # an object becomes an object


def label(at: int, part: int | None = None) -> str:
    """The id of the neutral message that item `at` of the list (or a part of it) becomes."""
    return f"imported-{at}" if part is None else f"imported-{at}-{part}"


def model_source(profile: Profile) -> JsonObject:
    """The source of an answer that the server of `profile` is taken to have made."""
    source = {"kind": "model", "provider": profile.provider}
    return source if profile.model is None else {**source, "model": profile.model}


def reader_source(profile: Profile) -> JsonObject:
    """The source of input that a transcript holds."""
    return {"kind": "transcript", "provider": profile.provider}


def text_at(obj: JsonObject, key: str) -> str:
    """The string at `key`, or "" for anything else."""
    value = obj.get(key)
    return value if type(value) is str else ""


def same(made: object, given: object) -> bool:
    """Whether both are the same JSON, byte for byte: the order of keys counts."""
    return made == given and json.dumps(made) == json.dumps(given)
