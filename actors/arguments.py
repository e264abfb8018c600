"""What a model wrote as the arguments of a call, read as JSON. What they mean to a function: `signatures`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import frozen

from quiesce.protocol.errors import QuiesceError
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.events import JsonObject

__all__ = ["InvalidArguments", "ParsedArguments", "Reader", "dump_arguments", "load_arguments"]


class InvalidArguments(QuiesceError, ValueError):  # noqa: N818 - named for what happened
    """What a model wrote does not fit the tool. The text tells the model what was wrong; the body does not run."""


@frozen
class ParsedArguments:
    """Arguments that fit their tool: `raw` as the JSON object that was written, `values` as the function takes them."""

    raw: JsonObject
    values: dict[str, Any]


Reader: TypeAlias = "Callable[[str, JsonObject], dict[str, Any]]"
"""From a JSON object, as text and as read, to the values that the function takes. Raises only `InvalidArguments`."""


def load_arguments(text: str) -> JsonObject:
    """The JSON object that `text` says. Raises `InvalidArguments` for anything else, NaN and repeated keys included."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(clean_text(f"The arguments are not valid JSON: {error}")) from None
    if not isinstance(found, dict):
        raise InvalidArguments(f"The arguments must be a JSON object, not {_KINDS.get(type(found), 'a number')}.")
    return found


def dump_arguments(arguments: JsonObject) -> str:
    """The JSON text of `arguments`. Raises `InvalidArguments` for what JSON cannot say."""
    try:
        return json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(clean_text(f"The arguments are not JSON: {error}")) from None


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object in which no key stands twice: readers disagree on which of the two counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_distinct, parse_float=_finite, parse_constant=_no_constant)
_KINDS: Final[dict[type, str]] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
