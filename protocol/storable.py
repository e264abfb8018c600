"""What can be stored: lossless JSON that every reader and every database takes back unchanged.

Storable are None, booleans, whole numbers, finite floats other than -0.0, strings without NUL and without lone
surrogates, lists, and objects with such strings as keys, nested at most `MAX_DEPTH` deep. Exactly these types: a tuple
or a subclass would come back as something else.

`check_json` refuses everything else and names the place. `make_storable` turns anything at all into it, for results
that must not be lost, and leaves visible marks:

| found | stored as |
|---|---|
| NaN, infinities | the strings "NaN", "Infinity", "-Infinity" (no JSON number says it) |
| -0.0 | 0.0 (equal to it, and still a number to whoever computes with it) |
| a lone surrogate, NUL | U+FFFD (replacement character), U+2400 (the symbol for NUL) |
| subclasses of str, int, float; enum members | the plain value |
| tuples, other sequences; sets | lists; what is in a set is sorted, to be stored the same way each time |
| other mappings, attrs, dataclass and pydantic instances | objects |
| arrays and scalars that have `tolist` | what it returns |
| keys that are not strings | their JSON text; a number in brackets if that key is taken |
| dates and times, paths, decimals, UUIDs | their usual text |
| anything else, bytes and ranges among it | its `repr` |
| a cycle, too deep a nesting, an endless expansion, what raises when it is looked at | a mark in angle brackets |
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from quiesce.protocol.errors import InvalidInput

__all__ = ["JSON", "MAX_DEPTH", "check_json", "clean_json", "clean_text", "is_clean_json", "make_storable"]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A JSON value as Python reads it."""

Thing: TypeAlias = Any
"""What a caller handed in: anything at all."""

MAX_DEPTH: Final = 100
"""How many lists and objects may stand inside each other: Python's own reader and writer manage it on a usual stack."""

_MAX_BITS: Final = 14_284
"""Whole numbers up to this size have at most 4300 digits: more than that, Python neither reads nor writes."""

_MAX_SHARED: Final = 200_000
"""How many items may come from containers that were converted before, in one value: a few objects that refer to each
other every which way would otherwise expand without end."""


# --- checking ----------------------------------------------------------------------------------------------------


class _Fault(Exception):  # noqa: N818 - internal, carries the place
    """What is not storable; `path` is collected from the inside out."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.path: list[str] = []


def check_json(value: object, where: str = "data", *, max_depth: int = MAX_DEPTH) -> None:
    """Refuse what is not storable (see the module) with `InvalidInput`; its text starts with the path from `where`."""
    try:
        _check(value, max_depth)
    except _Fault as fault:
        raise InvalidInput(f"{where}{_path(fault.path)}: {fault}") from None
    except RecursionError:
        raise InvalidInput(f"{where}: nested too deeply") from None


def _check(value: Thing, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is dict or kind is list:
        if depth <= 0:
            raise _Fault("nested too deeply")
        _check_object(value, depth - 1) if kind is dict else _check_list(value, depth - 1)
    elif kind is int:
        if value.bit_length() > _MAX_BITS:
            raise _Fault("a whole number of more than 4300 digits")
    elif kind is float:
        if not _is_plain(value):
            raise _Fault(f"{value} is no JSON number")
    elif value is not None and kind is not bool:
        raise _Fault(f"{kind.__name__} is not JSON")


def _check_object(value: dict[object, object], depth: int) -> None:
    for key, item in value.items():
        try:
            _check_key(key)
            _check(item, depth)
        except _Fault as fault:
            fault.path.append(_step(key))
            raise


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise _Fault("only strings can be keys")
    _check_text(key)


def _check_list(value: list[object], depth: int) -> None:
    for index, item in enumerate(value):
        try:
            _check(item, depth)
        except _Fault as fault:
            fault.path.append(f"[{index}]")
            raise


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _Fault("holds NUL (U+0000)")
    if not text.isascii() and not _is_encodable(text):
        raise _Fault("holds a lone surrogate")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(number: float) -> bool:
    return math.isfinite(number) and (number != 0 or math.copysign(1, number) > 0)


def _step(key: object) -> str:
    """A key as a part of a path, in ASCII."""
    if type(key) is not str:
        return f"[a {type(key).__name__}]"
    return f".{key}" if key.isascii() and key.isidentifier() else f"[{key!a}]"


def _path(parts: list[str]) -> str:
    """The path from the outside in; the middle of a very long one is left out."""
    shown = parts[::-1]
    return "".join(shown if len(shown) <= 24 else [*shown[:12], "...", *shown[-12:]])  # noqa: PLR2004 - fits a line


# --- making ------------------------------------------------------------------------------------------------------


def make_storable(value: object) -> JSON:
    """`value` as storable JSON (see the module for what becomes of what). Never raises; the answer is a copy."""
    return _Maker().make(value, MAX_DEPTH)


def clean_text(text: str) -> str:
    """`text` as a plain string that can be stored: NUL becomes U+2400, lone surrogates U+FFFD.

    Two surrogates that together make one character (a text that was cut between them and joined again) become it.
    """
    if type(text) is not str:
        text = str.__str__(text)
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    if text.isascii() or _is_encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Thing) -> Thing:
    """`value` with what cannot be written as JSON in UTF-8, and NUL, replaced as `make_storable` does it.

    All else stays: what needs nothing, the whole or a part, is given back as the same object. Never raises.
    """
    try:
        return _clean(value)
    except RecursionError:
        return make_storable(value)


def is_clean_json(value: Thing) -> bool:
    """Whether `clean_json` gives `value` back as it is. Never raises, and copies nothing."""
    try:
        return _is_clean(value)
    except RecursionError:
        return False


def _is_clean(value: Thing) -> bool:
    """Whether nothing in `value` has to be replaced. It copies nothing: nearly all values are clean."""
    kind = type(value)
    if kind is str:
        return "\0" not in value and (value.isascii() or _is_encodable(value))
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not _is_clean(key) or not _is_clean(item):
                return False
        return True
    if kind is list:
        return all(map(_is_clean, value))
    if kind is float:
        return math.isfinite(value)
    return value is None or kind is bool or (kind is int and value.bit_length() <= _MAX_BITS)


def _clean(value: Thing) -> Thing:
    if _is_clean(value):
        return value
    if type(value) is list:
        return [_clean(item) for item in value]
    if type(value) is not dict:
        return make_storable(value)
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = clean_text(key) if type(key) is str else _as_key(make_storable(key))
        out[_free(name, out)] = _clean(item)
    return out


class _Maker:
    """One conversion: which containers are open above the current one, and which were seen before."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._seen: dict[int, object] = {}  # keeps what it names alive, so that no id is used twice
        self._shared_left = _MAX_SHARED

    def make(self, value: object, depth: int) -> JSON:
        scalar = _SCALARS.get(type(value))
        if scalar is not None:
            return scalar(value)
        try:
            return self._make(value, depth)
        except Exception:  # noqa: BLE001 - whatever a strange object raises, its siblings must not be lost
            return f"<{_name(value)} that cannot be shown>"

    def _make(self, value: object, depth: int) -> JSON:
        unfold: Callable[[Any], Any] | None = _same
        if type(value) is not dict and type(value) is not list:
            for kind, convert in _PLAIN:
                if isinstance(value, kind):
                    return convert(value)
            unfold = _unfolding(value)
        if unfold is None:
            return clean_text(repr(value))
        if id(value) in self._open:
            return f"<{_name(value)} that contains itself>"
        if depth <= 0:
            return f"<{_name(value)} nested too deeply>"
        self._open.add(id(value))
        try:
            return self._inside(value, unfold(value), depth - 1)
        finally:
            self._open.discard(id(value))

    def _inside(self, value: object, inner: Thing, depth: int) -> JSON:
        """What `inner` becomes, which is `value` unfolded."""
        if id(value) in self._seen:
            self._shared_left -= 1 + (len(inner) if isinstance(inner, (dict, list)) else 0)
            if self._shared_left < 0:
                return f"<{_name(value)} left out: the whole is too large>"
        self._seen[id(value)] = value
        if isinstance(inner, dict):
            return self._object(inner, depth)
        if isinstance(inner, list):
            made = [self.make(item, depth) for item in inner]
            return sorted(made, key=_text) if isinstance(value, (set, frozenset)) else made
        return self.make(inner, depth)

    def _object(self, items: dict[Any, Any], depth: int) -> JSON:
        out: dict[str, JSON] = {}
        for key, item in items.items():
            name = clean_text(key) if isinstance(key, str) else _as_key(self.make(key, depth))
            out[_free(name, out)] = self.make(item, depth)
        return out


def _unfolding(value: object) -> Callable[[Any], Any] | None:
    """How to see what is inside `value`: a dict, a list, or another value to look at. None: it has no inside.

    Methods are looked up on the type, because some objects claim to have any attribute.
    """
    kind: Any = type(value)
    for base, unfold in _FOLDED:
        if isinstance(value, base):
            return unfold
    for method in ("model_dump", "tolist"):
        if hasattr(kind, method):
            return getattr(kind, method)  # type: ignore[no-any-return]
    for has_fields, fields in ((attrs.has, attrs.fields), (dataclasses.is_dataclass, dataclasses.fields)):
        if has_fields(kind):
            return lambda value: {item.name: getattr(value, item.name) for item in fields(kind)}
    return None


def _as_key(made: JSON) -> str:
    return made if isinstance(made, str) else _text(made)


def _free(name: str, taken: Mapping[str, object]) -> str:
    """`name`, with a number in brackets if it is taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _text(made: JSON) -> str:
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _name(value: object) -> str:
    try:
        return clean_text(type(value).__name__)
    except Exception:  # noqa: BLE001 - a metaclass can do anything
        return "object"


def _whole(number: int) -> JSON:
    number = int.__int__(number)
    bits = number.bit_length()
    return number if bits <= _MAX_BITS else f"<whole number of {bits} bits>"


def _float(number: float) -> JSON:
    if math.isfinite(number):
        return float.__float__(number) or 0.0
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _same(value: Thing) -> JSON:
    return value  # type: ignore[no-any-return]


_SCALARS: Final[dict[type, Callable[[Any], JSON]]] = {
    type(None): _same,
    bool: _same,
    int: _whole,
    float: _float,
    str: clean_text,
}

_PLAIN: Final[tuple[tuple[Any, Callable[[Any], JSON]], ...]] = (
    (str, clean_text),
    (int, _whole),
    (float, _float),
    ((datetime, date, time), lambda value: clean_text(value.isoformat())),
    ((timedelta, PurePath, Decimal, UUID), lambda value: clean_text(str(value))),
    ((bytes, bytearray), lambda value: repr(bytes(value))),
    (range, repr),
)
"""Types (and their subclasses) whose values become one scalar."""

_FOLDED: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Enum, lambda value: value.value),
    (memoryview, bytes),
    (Mapping, dict),
    ((Sequence, AbstractSet), list),
)
"""Types with something inside, and how to get at it."""
