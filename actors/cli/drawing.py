"""How a timeline looks: turns, steps and texts as lines, and under each message the chart of its calls.

    ● turn 1 · completed · 0.81 s                                                                events 1-14
      step 1
        user       Compare the two files.
        assistant  Reading.
                                       0             0.80 s
        1 ✓ read_file path="a.txt"     ━━━━━━━━━━━━━━━━━━━━  0.80 s  the result's text
        2 ? read_file path="b.txt"     ╍╍╍╍╍╍╍╍╍╍╍                   UNKNOWN: it may have had effects

Each line is made for a width and never wrapped by the console. What stands out does so by words and marks; colours only
help.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from attrs import define
from rich.text import Text

from quiesce.actors.cli.chart import chart, legend
from quiesce.actors.cli.contents import content_in_words
from quiesce.actors.cli.terminal import print_lines
from quiesce.actors.cli.timeline import Answer, Step, Timeline, Turn
from quiesce.actors.cli.words import arguments_in_words, count, duration, one_line, shortened, visible
from quiesce.protocol.codec import event_to_json
from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantAttempt,
    AssistantMessage,
    EndSeed,
    ForeignBody,
    LateResult,
    ReasoningBlock,
    Replace,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from quiesce.actors.cli.timeline import Call, Entry
    from quiesce.protocol.events import Event, Reason

__all__ = ["Drawing"]

_LABEL: Final = 11
"""Columns of the label before a text."""
_LINES: Final = 3
"""Lines of a text that is shortened."""

_REASONS: Final = {
    "completed": "bold green",
    "error": "bold red",
    "interrupted": "bold magenta",
    "forked": "bold magenta",
}
"""Why a turn ended -> its style; yellow for what is neither good nor bad."""


@define
class Drawing:
    """Draws on `console`. `full` shortens nothing; `everything` also shows the events that quiesce has no use for."""

    console: Console
    full: bool = False
    everything: bool = False

    # --- the whole log -----------------------------------------------------------------------------------------

    def draw(self, timeline: Timeline) -> None:
        """The whole timeline, and what is left to say about it."""
        for part in timeline.parts:
            if isinstance(part, Turn):
                self.draw_turn(part)
            else:
                self._print(*self._entry(part, indent=2))
        self.draw_legend(timeline.turns)
        self._print(*self._remarks(timeline))

    def draw_turn(self, turn: Turn) -> None:
        """One turn."""
        self._print(*self._turn(turn))

    def draw_legend(self, turns: Iterable[Turn]) -> None:
        """What the bars of these turns mean; nothing if they need no words."""
        if words := legend([call for turn in turns for call in turn.calls]):
            self._print(Text(""), Text(f"  {words}", "dim"))

    def _remarks(self, timeline: Timeline) -> Iterator[Text]:
        for target in ("next-turn", "next-step"):
            for message in timeline.inbox.queued(target):
                yield Text.assemble(
                    ("  queued", "bold"), f" for the {target}: {shortened(text_of(message.content), 70)}"
                )
        if timeline.is_open:
            state = timeline.state
            unanswered = f", {count(len(state.pending), 'call')} unanswered" if len(state.pending) else ""
            yield Text(f"  … turn {state.turn} is open{unanswered}", "bold yellow")
        if timeline.foreign and not self.everything:
            kinds = ", ".join(f"{one_line(kind)} {number}" for kind, number in sorted(timeline.foreign.items()))
            said = f"  {count(timeline.foreign.total(), 'event')} of other types, listed with --all: {kinds}"
            yield from self._wrapped(Text(said, "dim"), indent=4)

    # --- turns and steps ---------------------------------------------------------------------------------------

    def _turn(self, turn: Turn) -> Iterator[Text]:
        yield Text("")
        yield self._turn_title(turn)
        if turn.reason is not None:
            yield from self._reason_words(turn.reason)
        for part in turn.parts:
            yield from self._step(part) if isinstance(part, Step) else self._entry(part, indent=2)

    def _turn_title(self, turn: Turn) -> Text:
        title = Text.assemble((f"● turn {turn.number}", "bold"))
        if turn.reason is None:
            title.append(" · ").append("OPEN", "bold black on yellow")
        else:
            title.append(" · ").append(one_line(turn.reason.kind), _REASONS.get(turn.reason.kind, "bold yellow"))
        if turn.opened is not None and turn.last_time is not None:
            so_far = "" if turn.closed is not None else " so far"
            title.append(f" · {duration(max(0, turn.last_time - turn.opened.time))}{so_far}")
        return self._with_right(title, _event_range(turn))

    def _reason_words(self, reason: Reason) -> Iterator[Text]:
        words = {
            "error": f"{reason.code or 'error'}: {reason.message}",
            "aborted": f"cause: {reason.cause}",
            "blocked": reason.message or "",
            "interrupted": "it was cut short, and closed afterwards",
            "forked": "it was open where this session was forked off",
        }.get(reason.kind, "")
        if words:
            yield from self._said("", words, indent=2, style=_REASONS.get(reason.kind, "yellow").replace("bold ", ""))

    def _step(self, step: Step) -> Iterator[Text]:
        title = Text(f"  step {step.number}", "dim")
        if step.closed is None:
            title.append(" · ").append("open", "bold yellow")
        yield title
        for entry in step.entries:
            yield from self._entry(entry, indent=4)

    # --- what stands in a step ---------------------------------------------------------------------------------

    def _entry(self, entry: Entry, *, indent: int) -> Iterator[Text]:
        if isinstance(entry, Answer):
            yield from self._message(entry.event, indent)
            yield from chart(entry.calls, entry.span, self.console.width, indent, self._below)
        elif isinstance(entry.surface_op, Replace):
            covered = f"in place of the events {entry.surface_op.start_seq} to {entry.surface_op.end_seq}: "
            yield from self._said("compacted", covered + _any_text(entry), indent=indent, style="magenta")
        else:
            yield from self._event(entry, indent)

    def _message(self, event: Event, indent: int) -> Iterator[Text]:
        body = event.body
        assert isinstance(body, AssistantMessage)
        for block in body.message.content:
            if isinstance(block, ReasoningBlock) and block.text.strip():
                yield from self._said("thought", block.text, indent=indent, style="dim italic")
        text = content_in_words(body.message.content)
        if body.interrupted:
            text += " [cut off]"
        if text.strip():
            yield from self._said("assistant", text, indent=indent, style="cyan")
        elif not body.message.calls:
            yield from self._said("assistant", "(an empty answer)", indent=indent, style="dim")

    def _event(self, event: Event, indent: int) -> Iterator[Text]:
        match event.body:
            case UserMessage(content=content, source=source):
                kind = str(source.get("kind", "user"))
                label = "user" if kind == "user" else "context"
                yield from self._said(
                    label, content_in_words(content), indent=indent, style="bold" if label == "user" else "dim"
                )
            case AssistantAttempt(content=content, error=error):
                why = "cancelled" if error is None else f"{error.code}: {error.reason or error.name}"
                yield from self._said(
                    "attempt", f"failed: {why} {content_in_words(content)}", indent=indent, style="yellow"
                )
            case LateResult(call_id=label, content=content):
                words = f"of {label!r}, after it had been answered: {content_in_words(content)}"
                yield from self._said("late result", words, indent=indent, style="yellow")
            case EndSeed(inherited=inherited):
                label, origin = ("forked", "the parent") if inherited else ("imported", "elsewhere")
                yield from self._said(label, f"what stands above comes from {origin}", indent=indent, style="magenta")
            case ForeignBody():
                yield from self._foreign(event, indent) if self.everything else ()
            case _:
                yield from self._stray(event, indent)

    def _foreign(self, event: Event, indent: int) -> Iterator[Text]:
        data = json.dumps(event_to_json(event).get("data"), ensure_ascii=False)
        shown = visible(data) if self.full else shortened(data, self.console.width - indent - len(event.type) - 12)
        line = Text(f"{' ' * indent}· {event.seq} {one_line(event.type)} {shown}", "dim")
        yield from self._wrapped(line, indent=indent + 2)

    def _stray(self, event: Event, indent: int) -> Iterator[Text]:
        """A record or a result that belongs to no call: only in a log that breaks the rules."""
        words = _STRAYS.get(type(event.body), "out of place")
        yield from self._said("stray", f"event {event.seq}, {words}: {_any_text(event)}", indent=indent, style="red")

    def _said(self, label: str, text: str, *, indent: int, style: str) -> Iterator[Text]:
        """A text beside its label, wrapped; its beginning only, unless all is wanted."""
        width = self.console.width - indent - (_LABEL if label else 0)
        shown = visible(text).strip() if self.full else shortened(text, _LINES * width - width // 4)
        start = indent + (_LABEL if label else 0)
        first = f"{' ' * indent}{label:<{_LABEL if label else 0}}"
        for line in Text(shown, style, tab_size=4).wrap(self.console, width):
            yield Text.assemble((first, "dim" if label not in {"user", "assistant"} else ""), line)
            first = " " * start

    def _below(self, call: Call, indent: int) -> Iterator[Text]:
        """What stands below a call's line, if nothing is to be shortened."""
        if self.full:
            yield from self._said("arguments", call.arguments, indent=indent, style="dim")
            if call.question:
                yield from self._said("question", call.question, indent=indent, style="dim")
            if call.decision:
                yield from self._said("decision", call.decision, indent=indent, style="dim")
            if call.result is not None:
                yield from self._said("result", call.text, indent=indent, style="dim")

    # --- lines -------------------------------------------------------------------------------------------------

    def _with_right(self, left: Text, right: str) -> Text:
        gap = self.console.width - left.cell_len - len(right)
        return left.append(" " * gap).append(right, "dim") if gap > 0 and right else left

    def _wrapped(self, text: Text, *, indent: int) -> Iterator[Text]:
        first, *rest = text.wrap(self.console, self.console.width - indent) or [Text()]
        yield first
        for line in rest:
            yield Text.assemble(" " * indent, line)

    def _print(self, *lines: Text) -> None:
        print_lines(self.console, lines)


_STRAYS: Final = {
    ToolCall: "a record of no call",
    ApprovalRequested: "a question about no call",
    ApprovalDecided: "a decision about no call",
    ToolResult: "a result of no call",
}


# --- words ---------------------------------------------------------------------------------------------------------


def _event_range(turn: Turn) -> str:
    first = "" if turn.opened is None else str(turn.opened.seq)
    return f"events {first}-{'' if turn.closed is None else turn.closed.seq}" if first else ""


def _any_text(event: Event) -> str:
    match event.body:
        case UserMessage(content=content):
            return content_in_words(content)
        case AssistantMessage(message=message) | ToolResult(message=message):
            return content_in_words(message.content)
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {arguments_in_words(arguments)}"
        case _:
            return ""
