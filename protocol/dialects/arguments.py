"""The arguments of a call on the wire: the text that the model wrote, or the object that it means.

Nothing means `{}`. Text that is no JSON object travels inside an object, whole, where a server wants one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from quiesce.protocol.codec import load_json
from quiesce.protocol.errors import UnreadableLog
from quiesce.protocol.storable import clean_text, make_storable

if TYPE_CHECKING:
    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.events import JsonObject

__all__ = ["argument_object", "argument_text", "text_of_arguments"]

_MALFORMED: Final = "malformed_arguments"
"""The key under which arguments travel that are no object."""


def argument_object(text: str) -> JsonObject:
    """The object that the argument text `text` means."""
    cleaned = clean_text(text)
    found = _parsed(cleaned)
    return {_MALFORMED: cleaned} if found is None else found


def argument_text(text: str, profile: Profile) -> str:
    """The argument text `text` as `profile` wants it."""
    cleaned = clean_text(text)
    if not cleaned.strip():
        return "{}"
    if profile.arguments == "any" or _parsed(cleaned) is not None:
        return cleaned
    return text_of_arguments({_MALFORMED: cleaned})


def text_of_arguments(arguments: object) -> str:
    """The argument text that means `arguments`, a JSON value; of a string, itself."""
    if type(arguments) is str:
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _parsed(text: str) -> JsonObject | None:
    """The object, or None if it is none. Escapes can hide what no server takes: a lone surrogate, NUL."""
    if text == "{}" or not text.strip():
        return {}
    try:
        found = load_json(text)
    except UnreadableLog:
        return None
    if type(found) is not dict:
        return None
    if "\\u" in text:
        return {clean_text(key): make_storable(value) for key, value in found.items()}
    return found
