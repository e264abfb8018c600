"""What an agent does, told while it does it: the model's text as it streams, calls as they start and end.

A `Narrator` listens to what `Agent.watch` gives and says what is worth saying to a `Screen`. There are three:

| screen | where | how |
|---|---|---|
| `LiveScreen` | a terminal | text and calls scroll by; what runs at the moment stands below, with its time |
| `LineScreen` | a pipe, a file | the model's text on standard output; on standard error a line for all else |
| `JsonScreen` | `--json` | the committed events on standard output, one JSON object per line |
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol

from attrs import Factory, define
from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from quiesce.actors.cli.chart import MARKS, outcome_words
from quiesce.actors.cli.terminal import open_console, write_bytes
from quiesce.actors.cli.timeline import Answer, Outcome, Timeline
from quiesce.actors.cli.words import arguments_in_words, duration, one_line, shortened, visible
from quiesce.actors.live import AttemptFailed, ModelDelta
from quiesce.protocol.codec import dumps
from quiesce.protocol.events import AssistantMessage, Event, TurnEnd, UserMessage, text_of
from quiesce.protocol.model import CallDelta, ReasoningDelta, TextDelta
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from rich.console import Console, RenderableType

    from quiesce.actors.cli.timeline import Call
    from quiesce.actors.feed import Happenings
    from quiesce.actors.live import Happening

__all__ = ["JsonScreen", "LineScreen", "LiveScreen", "Narrator", "Screen", "open_screen"]

_WIDTH: Final = 100
_FRAMES_PER_SECOND: Final = 10


class Screen(Protocol):
    """Where a narrator's words go. A context manager: on leaving, the terminal is as it was."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        ...

    def event(self, event: Event) -> None:
        """An event was committed."""
        ...

    def text(self, piece: str) -> None:
        """The model said some more."""
        ...

    def busy(self, what: str) -> None:
        """Say what the model is busy with: thinking, writing a call; empty for nothing."""
        ...

    def calls(self, running: list[Call]) -> None:
        """These calls run at the moment, and no others."""
        ...

    def ended(self, call: Call) -> None:
        """A call has its result."""
        ...

    def note(self, words: str, style: str = "dim") -> None:
        """Something else happened."""
        ...


@define
class Narrator:
    """Tells a screen what happens."""

    screen: Screen
    timeline: Timeline = Factory(Timeline)
    _told: set[int] = Factory(set)
    _said: int = 0

    def recall(self, events: Iterable[Event]) -> None:
        """Take what happened before anybody listened. It is not told; what follows is understood by it."""
        for event in events:
            self.timeline.observe(event)
        self._told = {id(call) for call in self._latest_calls() if call.answer is not None}

    async def listen(self, happenings: Happenings) -> None:
        """Tell everything that happens, for as long as something does."""
        async for what in happenings:
            self.hear(what)

    def hear_rest(self, happenings: Happenings) -> None:
        """Tell what has happened by now."""
        for what in happenings.so_far():
            self.hear(what)

    def hear(self, what: Happening) -> None:
        """Tell the next thing that happens."""
        match what:
            case ModelDelta(delta=TextDelta(text)):
                self._said += len(text)
                self.screen.busy("")
                self.screen.text(visible(clean_text(text)))
            case ModelDelta(delta=ReasoningDelta()):
                self.screen.busy("thinking")
            case ModelDelta(delta=CallDelta(name=name)) if name:
                self.screen.busy(f"asking for {one_line(name)}")
            case AttemptFailed():
                self._attempt_failed(what)
            case Event():
                self._committed(what)

    def _attempt_failed(self, failed: AttemptFailed) -> None:
        self._said = 0
        self.screen.busy("")
        again = "" if failed.retry_in is None else f"; trying again in {duration(round(failed.retry_in * 1000))}"
        self.screen.note(f"attempt {failed.attempt} failed: {one_line(str(failed.error))}{again}", "yellow")

    def _committed(self, event: Event) -> None:
        if event.seq < self.timeline.state.next_seq:
            return  # recalled
        self.timeline.observe(event)
        self.screen.event(event)
        match event.body:
            case AssistantMessage(message=message):
                if not self._said and (text := text_of(message.content)).strip():
                    self.screen.text(visible(text))  # a model that does not stream
                self._said = 0
                self.screen.busy("")
            case UserMessage(content=content, source=source) if source.get("kind") != "user":
                self.screen.note(f"context: {shortened(text_of(content), _WIDTH)}")
            case TurnEnd(turn=turn, reason=reason) if reason.kind != "completed":
                words = reason.message or reason.cause
                self.screen.note(f"turn {turn}: {reason}{f': {one_line(str(words))}' if words else ''}", "bold yellow")
        self._tell_calls()

    def _tell_calls(self) -> None:
        calls = self._latest_calls()
        self._told &= {id(call) for call in calls}
        for call in calls:
            if call.answer is not None and id(call) not in self._told:
                self._told.add(id(call))
                self.screen.ended(call)
        self.screen.calls([call for call in calls if call.record is not None and call.answer is None])

    def _latest_calls(self) -> list[Call]:
        turns = self.timeline.turns
        parts = turns[-1].parts[-1:] if turns else []
        entries = [entry for part in parts for entry in getattr(part, "entries", ())]
        return [call for entry in entries if isinstance(entry, Answer) for call in entry.calls]


def call_line(call: Call) -> Text:
    """A call that has ended, in a line: its mark, what was asked, how long it took, and what came of it."""
    mark, style = MARKS[call.outcome]
    label, said = outcome_words(call)
    line = Text.assemble((f"{mark} ", style), (one_line(call.name) or "(no name)", "bold"), " ")
    line.append(shortened(arguments_in_words(call.arguments), _WIDTH // 2))
    if call.ran is not None and call.outcome is not Outcome.NOT_STARTED:
        line.append(f"  {duration(call.ran[1] - call.ran[0])}", "dim")
    line.append(f"  {label}" if label else "", style)
    return line.append(f"  {shortened(said, _WIDTH)}" if said.strip() else "", "dim")


# --- screens -------------------------------------------------------------------------------------------------------


def open_screen(*, as_json: bool) -> Screen:
    """The screen that suits standard output."""
    if as_json:
        return JsonScreen()
    console = open_console()
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else LineScreen()


class _Quiet:
    """A screen that says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, event: Event) -> None:
        pass

    def text(self, piece: str) -> None:
        pass

    def busy(self, what: str) -> None:
        pass

    def calls(self, running: list[Call]) -> None:
        pass

    def ended(self, call: Call) -> None:
        pass

    def note(self, words: str, style: str = "dim") -> None:
        pass


class JsonScreen(_Quiet):
    """The committed events, one JSON object per line."""

    def event(self, event: Event) -> None:
        """Write it."""
        write_bytes(dumps(event).encode() + b"\n")


class LineScreen(_Quiet):
    """The model's text on standard output; everything else on standard error, a line each."""

    def __init__(self) -> None:
        self._notes = open_console(stderr=True)
        self._in_line = False
        self._running: set[int] = set()

    def __exit__(self, *_: object) -> None:
        self._end_line()

    def event(self, event: Event) -> None:
        """The text of a message ends its line."""
        if isinstance(event.body, AssistantMessage):
            self._end_line()

    def text(self, piece: str) -> None:
        """Write it as it comes."""
        if not piece:
            return
        sys.stdout.write(piece)
        sys.stdout.flush()
        self._in_line = not piece.endswith("\n")

    def calls(self, running: list[Call]) -> None:
        """Say once of each that it started."""
        for call in running:
            if id(call) not in self._running:
                words = shortened(arguments_in_words(call.arguments), _WIDTH // 2)
                self.note(f"… {one_line(call.name)} {words}".rstrip())
        self._running = {id(call) for call in running}

    def ended(self, call: Call) -> None:
        """A line for it."""
        self._print(call_line(call))

    def note(self, words: str, style: str = "dim") -> None:
        """A line."""
        self._print(Text(words, style))

    def _print(self, line: Text) -> None:
        self._end_line()
        self._notes.print(line, soft_wrap=True)

    def _end_line(self) -> None:
        if self._in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._in_line = False


class LiveScreen(_Quiet):
    """A terminal: what is over scrolls by, what goes on stands below it and moves."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = ""
        self._busy: Spinner | None = None
        self._running: dict[int, Spinner] = {}
        self._live = Live(
            console=console, transient=True, refresh_per_second=_FRAMES_PER_SECOND, get_renderable=self._below
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()
        self._busy, self._running = None, {}
        self._live.stop()

    def event(self, event: Event) -> None:
        """The text of a message ends its line."""
        if isinstance(event.body, AssistantMessage):
            self._end_line()

    def text(self, piece: str) -> None:
        """Whole lines scroll by; the last one stands below until it is whole."""
        *lines, self._line = (self._line + piece).split("\n")
        for line in lines:
            self._print(Text(line))

    def busy(self, what: str) -> None:
        """A spinner."""
        if not what:
            self._busy = None
        elif self._busy is None or self._busy.text != Text(what, "dim"):
            self._busy = Spinner("dots", Text(what, "dim"))

    def calls(self, running: list[Call]) -> None:
        """A spinner for each, with the time since its start."""
        self._running = {id(call): self._running.get(id(call)) or _RunningCall(call) for call in running}

    def ended(self, call: Call) -> None:
        """A line for it."""
        self._print(call_line(call))

    def note(self, words: str, style: str = "dim") -> None:
        """A line."""
        self._end_line()
        self._print(Text(words, style))

    def _end_line(self) -> None:
        if self._line:
            self._print(Text(self._line))
            self._line = ""

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)

    def _below(self) -> RenderableType:
        busy = [] if self._busy is None else [self._busy]
        # A paragraph may be longer than the screen, of which Rich would show the beginning, and then stand still.
        room = max(1, self._console.height - len(self._running) - len(busy) - 1)
        line = Text(self._line[-room * self._console.width :]).wrap(self._console, self._console.width)[-room:]
        return Group(*line, *busy, *self._running.values())


class _RunningCall(Spinner):
    """A call that runs: its name, what was asked, and the seconds that it has been running."""

    def __init__(self, call: Call) -> None:
        super().__init__("dots")
        self._call = call

    def render(self, time: float) -> RenderableType:
        if self.start_time is None:
            self.start_time = time
        seconds = time - self.start_time
        asked = shortened(arguments_in_words(self._call.arguments), _WIDTH // 2)
        self.text = Text.assemble((one_line(self._call.name), "bold"), f" {asked}", (f"  {seconds:.0f} s", "dim"))
        return super().render(time)
