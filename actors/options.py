"""Checks of what callers hand in as options: each raises `InvalidInput` that names the option."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.actors.attempts import Model

__all__ = ["check_count", "check_instance", "check_model", "check_seconds", "check_text", "listed"]

T = TypeVar("T")


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """A whole number, at least `least`."""
    if type(value) is not int or value < least:
        raise InvalidInput(f"{name}: must be a whole number, at least {least}, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Zero or more seconds; any number of them is allowed, endlessly many as well."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise InvalidInput(f"{name}: must be a number of seconds, 0 or more, not {value!r}")


def check_text(name: str, value: object) -> None:
    """A text that can be stored."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: must be a text, not {type(value).__name__}")
    check_json(str(value), name)


def check_instance(name: str, value: object, kind: type[Any]) -> None:
    """An instance of `kind`."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{name}: must be a {kind.__name__}, not {value!r}")


def check_model(model: Model) -> None:
    """Something that answers as a `Model` does, with names that the log can hold."""
    for attribute in ("name", "provider"):
        check_text(f"model.{attribute}", getattr(model, attribute, None))
    if not callable(getattr(model, "respond", None)):
        raise InvalidInput(f"model: {model!r} has no respond(request, emit)")


def listed(name: str, values: Iterable[T], wanted: str = "a list") -> tuple[T, ...]:
    """The values, which must come as something that can be gone through; `wanted` says what that would be."""
    try:
        return tuple(values)
    except TypeError as error:
        raise InvalidInput(f"{name}: must be {wanted}, not {values!r}") from error
