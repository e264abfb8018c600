"""The chart of the calls of one message: a line for each, with its bar on the time axis that they share.

                                   0             0.80 s
    1 ✓ read_file path="a.txt"     ━━━━━━━━━━━━━━━━━━━━  0.80 s  the result's text
    2 ✓ read_file path="b.txt"     ━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   96 ms  the result's text
    3 ? read_file path="c.txt"     ╍╍╍╍╍╍╍╍╍╍╍                   UNKNOWN: may have had effects

A bar goes from the start of a call to its result, dotted on while the result waited for its place in the log (known
only where the host measures bodies). Outcomes are told by a mark and a word; colours only help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen
from rich.text import Text

from quiesce.actors.cli.timeline import Outcome
from quiesce.actors.cli.words import arguments_in_words, duration, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from quiesce.actors.cli.timeline import Call, Span

__all__ = ["MARKS", "chart", "legend", "outcome_words"]

_RAN: Final = "━"
_WAITED: Final = "┄"
_UNCLEAR: Final = "╍"

MARKS: Final = {
    Outcome.OK: ("✓", "green"),
    Outcome.ERROR: ("✗", "red"),
    Outcome.DENIED: ("⊘", "yellow"),
    Outcome.TIMEOUT: ("✗", "red"),
    Outcome.ABORTED: ("✗", "yellow"),
    Outcome.UNKNOWN: ("?", "bold black on yellow"),
    Outcome.NOT_STARTED: ("○", "bold black on cyan"),
    Outcome.OPEN: ("…", "bold yellow"),
    Outcome.WAITING: ("⧖", "bold black on yellow"),
    Outcome.UNANSWERED: ("…", "bold red"),
}
"""Outcome -> its mark, and the style of mark and word."""
_REMARKS: Final = {
    Outcome.TIMEOUT: "",
    Outcome.ABORTED: "",
    Outcome.UNKNOWN: "may have had effects",
    Outcome.NOT_STARTED: "had no effect",
    Outcome.OPEN: "started, no result yet",
    Outcome.UNANSWERED: "its step is over",
}
"""What is said of an outcome instead of the result's text."""
_WITHOUT_END: Final = frozenset({Outcome.UNKNOWN, Outcome.OPEN, Outcome.UNANSWERED})
_NO_BAR: Final = frozenset({Outcome.WAITING, Outcome.NOT_STARTED})
"""Its body has not run, though it may be recorded, as a call that waits for a person is."""

_TIME: Final = 9
_SHORTEST: Final = 8
"""Columns in which a text without its middle still says something."""


@frozen
class _Columns:
    """The widths of the columns, the first of which is indent, number and mark."""

    first: int
    call: int
    bar: int
    said: int

    @classmethod
    def of(cls, width: int, first: int) -> _Columns:
        free = max(30, width - first - _TIME - 3)
        bar = min(30, free // 4)
        call = min(40, (free - bar) * 13 // 25)
        return cls(first, call, bar, free - bar - call)


def chart(
    calls: Sequence[Call], span: Span | None, width: int, indent: int, below: Callable[[Call, int], Iterable[Text]]
) -> Iterator[Text]:
    """The lines of the chart. `below` gives what is to stand below a call's line, at an indent; often nothing."""
    if not calls:
        return
    digits = len(str(len(calls)))
    columns = _Columns.of(width, indent + digits + 3)
    if span is not None:
        yield _axis(span, columns)
    for number, call in enumerate(calls, 1):
        mark, style = MARKS[call.outcome]
        line = Text(f"{' ' * indent}{number:>{digits}} ").append(mark, style).append(" ")
        line.append(_asked(call, columns.call)).append(" ").append(_bar(call, span, columns.bar))
        line.append(f"{_time(call):>{_TIME}}", "dim").append("  ")
        yield line.append(_said(call, columns.said))
        yield from below(call, columns.first)


def legend(calls: Iterable[Call]) -> str:
    """What the bars of these calls mean; empty if there are none but plain ones."""
    bars = [call for call in calls if call.record is not None]
    found = {
        _WAITED: any(_waited(call) for call in bars),
        _UNCLEAR: any(call.outcome in _WITHOUT_END for call in bars),
    }
    meanings = {_WAITED: "ended, waited for its place in the log", _UNCLEAR: "outcome unknown"}
    said = [f"{glyph * 2} {meanings[glyph]}" for glyph, used in found.items() if used]
    return "   ".join([f"{_RAN * 2} from its start to its result", *said]) if said else ""


# --- columns -----------------------------------------------------------------------------------------------------


def _asked(call: Call, width: int) -> Text:
    """Name and arguments in exactly `width` columns. Long arguments lose their middle: paths differ at their ends."""
    name = one_line(call.name) or "(no name)"
    arguments = _without_middle(arguments_in_words(call.arguments), width - len(name) - 1)
    words = Text.assemble((name, "bold"), " ", arguments)
    words.truncate(width, overflow="ellipsis", pad=True)
    return words


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit or limit < _SHORTEST:
        return text
    tail = limit // 2
    return f"{text[: limit - tail - 1]}…{text[len(text) - tail :]}"


def _axis(span: Span, columns: _Columns) -> Text:
    end = duration(span[1] - span[0])
    zero = "0" if len(end) + 1 < columns.bar else ""
    return Text(f"{' ' * (columns.first + columns.call + 1)}{zero}{end:>{columns.bar - len(zero)}}", "dim")


def _bar(call: Call, span: Span | None, width: int) -> Text:
    if span is None or call.record is None or call.ran is None or call.outcome in _NO_BAR:
        return Text(" " * width)
    length = max(1, span[1] - span[0])
    without_end = call.outcome in _WITHOUT_END
    answered = span[1] if call.answer is None else call.answer.time
    start = min((call.ran[0] - span[0]) * width // length, width - 1)
    end = -((span[0] - (answered if without_end else call.ran[1])) * width // length)  # rounded up
    end = min(max(end, start + 1), width)
    waited = 0 if without_end else (answered - span[0]) * width // length - end
    bar = Text(" " * start)
    bar.append((_UNCLEAR if without_end else _RAN) * (end - start), "yellow" if without_end else MARKS[call.outcome][1])
    bar.append(_WAITED * waited, "dim")
    return bar.append(" " * (width - len(bar)))


def _waited(call: Call) -> bool:
    return call.answer is not None and call.ran is not None and call.answer.time > call.ran[1]


def _time(call: Call) -> str:
    if call.record is None or call.ran is None or call.outcome in _WITHOUT_END | _NO_BAR:
        return ""
    return duration(call.ran[1] - call.ran[0])


def _said(call: Call, width: int) -> Text:
    label, remark = outcome_words(call)
    said = Text(label, MARKS[call.outcome][1])
    said.append(": " if label and remark else "", "none").append(one_line(remark[: 8 * width]), "dim")
    said.truncate(width, overflow="ellipsis")
    return said


def outcome_words(call: Call) -> tuple[str, str]:
    """The label of an outcome, and what else there is to say."""
    outcome, error = call.outcome, None if call.result is None else call.result.error
    if outcome in {Outcome.OK, Outcome.ERROR}:
        return "" if error is None or error.code == "TOOL_ERROR" else one_line(error.code), call.text
    if outcome is Outcome.WAITING:
        return outcome.value, call.question
    if outcome is Outcome.OPEN and call.record is None:
        return outcome.value, "not started yet"
    if error is not None and error.code == "ABORTED_BEFORE_DISPATCH":
        return outcome.value, "before it started"
    if outcome is Outcome.DENIED:
        return outcome.value, "" if error is None else error.reason or ""
    return outcome.value, _REMARKS[outcome]
