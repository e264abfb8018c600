"""How values are put in words for people: texts made safe to print and short, times, arguments.

Texts in a log come from models, tools and users. What would move the cursor, change colours or reorder the line is
shown as an escape, so that a log can say nothing on its own account to a terminal.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

__all__ = ["arguments_in_words", "count", "duration", "moment", "one_line", "shortened", "visible"]

_LAYOUT: Final = frozenset("\n\t")
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


def visible(text: str) -> str:
    """`text` with everything that is not printable escaped, apart from line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _LAYOUT else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """`text` made visible, its white space collapsed to single spaces."""
    return " ".join(visible(text).split())


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters of `text` on one line; what is left out is marked and counted."""
    line = one_line(text)
    if len(line) <= limit:
        return line
    mark = f"… ({len(text):,} characters)"
    return line[: max(0, limit - len(mark))].rstrip() + mark


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def duration(milliseconds: int) -> str:
    """A span of time in the unit that suits it: `<1 ms`, `12 ms`, `1.23 s`, `2 min 05 s`, `3 h 07 min`."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms" if milliseconds else "<1 ms"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.2f} s"
    if milliseconds < _HOUR:
        return f"{milliseconds // _MINUTE} min {milliseconds % _MINUTE // _SECOND:02} s"
    return f"{milliseconds // _HOUR} h {milliseconds % _HOUR // _MINUTE:02} min"


def moment(milliseconds: int) -> str:
    """A point in time, given in milliseconds since the epoch, on the clock of whoever reads it."""
    try:
        return datetime.fromtimestamp(milliseconds / _SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms"


def arguments_in_words(arguments: str) -> str:
    """The arguments of a call as Python would write them, `path="a.txt" depth=2`; as they are if they are no object."""
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return one_line(arguments)
    if not isinstance(values, dict):
        return one_line(arguments)
    return " ".join(f"{one_line(key)}={_value(value)}" for key, value in values.items())


def _value(value: object) -> str:
    return one_line(json.dumps(value, ensure_ascii=False))
