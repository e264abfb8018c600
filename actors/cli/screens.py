"""Where a narrator's words go.

| screen | where | how |
|---|---|---|
| `LiveScreen` | a terminal | text and calls scroll by; what runs at the moment stands below, with its time |
| `LineScreen` | a pipe, a file | the model's text on standard output; on standard error a line for all else |
| `JsonScreen` | `--json` | the committed events on standard output, one JSON object per line |
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from quiesce.actors.cli.chart import MARKS, outcome_words
from quiesce.actors.cli.terminal import open_console, write_bytes
from quiesce.actors.cli.timeline import Outcome
from quiesce.actors.cli.words import arguments_in_words, duration, one_line, shortened
from quiesce.protocol.codec import dumps
from quiesce.protocol.events import AssistantMessage, Event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.status import Status

    from quiesce.actors.cli.timeline import Call

__all__ = ["JsonScreen", "LineScreen", "LiveScreen", "Screen", "open_screen"]

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

    def connecting(self, servers: Sequence[str]) -> None:
        """These servers are being connected to, until it is left."""
        ...

    def calls(self, running: Sequence[Call], waiting: Sequence[Call]) -> None:
        """The bodies of these calls run at the moment, and no others; these wait for one thing or another."""
        ...

    def ended(self, call: Call) -> None:
        """A call has its result."""
        ...

    def note(self, words: str, style: str = "dim") -> None:
        """Something else happened."""
        ...


def call_line(call: Call) -> Text:
    """A call that has ended, in a line: its mark, what was asked, how long it took, and what came of it."""
    mark, style = MARKS[call.outcome]
    label, said = outcome_words(call)
    line = Text.assemble((f"{mark} ", style), (one_line(call.name) or "(no name)", "bold"), " ")
    line.append(_asked(call))
    if call.ran is not None and call.outcome is not Outcome.NOT_STARTED:
        line.append(f"  {duration(call.ran[1] - call.ran[0])}", "dim")
    line.append(f"  {label}" if label else "", style)
    return line.append(f"  {shortened(said, _WIDTH)}" if said.strip() else "", "dim")


def _asked(call: Call) -> str:
    return shortened(arguments_in_words(call.arguments), _WIDTH // 2)


def _connecting(servers: Sequence[str]) -> str:
    return f"connecting to {', '.join(map(one_line, servers))}…"


# --- screens -------------------------------------------------------------------------------------------------------


def open_screen(*, as_json: bool) -> Screen:
    """The screen that suits standard output."""
    if as_json:
        return JsonScreen()
    console = open_console()
    return LiveScreen(console) if _is_watched(console) else LineScreen()


def _is_watched(console: Console) -> bool:
    """Whether what moves can be shown on it."""
    return console.is_terminal and not console.is_dumb_terminal


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

    def connecting(self, servers: Sequence[str]) -> None:
        pass

    def calls(self, running: Sequence[Call], waiting: Sequence[Call]) -> None:
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
        self._status: Status | None = None

    def __exit__(self, *_: object) -> None:
        self._end_line()
        if self._status is not None:
            self._status.stop()

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

    def connecting(self, servers: Sequence[str]) -> None:
        """A spinner for all, if somebody may be waiting for it; there is nothing to tell before one fails."""
        if servers and _is_watched(self._notes):
            self._status = self._notes.status(Text(_connecting(servers), "dim"))
            self._status.start()

    def calls(self, running: Sequence[Call], waiting: Sequence[Call]) -> None:  # noqa: ARG002 - nothing has happened to them
        """Say once of each that it started."""
        for call in running:
            if id(call) not in self._running:
                self.note(f"… {one_line(call.name)} {_asked(call)}".rstrip())
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
        self._waiting: list[Text] = []
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._live = Live(self, console=self._console, transient=True, refresh_per_second=_FRAMES_PER_SECOND)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()
        self._busy, self._running, self._waiting = None, {}, []
        if self._live is not None:
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

    def connecting(self, servers: Sequence[str]) -> None:
        """A spinner for all."""
        if servers:
            self.busy(_connecting(servers))

    def calls(self, running: Sequence[Call], waiting: Sequence[Call]) -> None:
        """A spinner for each that runs, with the time since its start; a still line for those that wait."""
        self._running = {id(call): self._running.get(id(call)) or _RunningCall(call) for call in running}
        alone = f"○ {one_line(waiting[0].name)} {_asked(waiting[0])} waits" if len(waiting) == 1 else ""
        self._waiting = [Text(alone or f"○ {len(waiting):,} calls wait", "dim")] if waiting else []

    def ended(self, call: Call) -> None:
        """A line for it."""
        self._print(call_line(call))

    def note(self, words: str, style: str = "dim") -> None:
        """A line."""
        self._end_line()
        self._print(Text(words, style))

    def _end_line(self) -> None:
        line, self._line = self._line, ""  # first, or printing draws it below once more
        if line:
            self._print(Text(line))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)

    def __rich__(self) -> RenderableType:
        """What stands below. Rich asks at each print: a copy made at the last frame would show what is over."""
        busy = [] if self._busy is None else [self._busy]
        # A paragraph may be longer than the screen, of which Rich would show the beginning, and then stand still.
        calls: list[RenderableType] = [*self._running.values(), *self._waiting]
        room = max(1, self._console.height - len(calls) - len(busy) - 1)
        line = Text(self._line[-room * self._console.width :]).wrap(self._console, self._console.width)[-room:]
        return Group(*(line if self._line else ()), *busy, *calls)


class _RunningCall(Spinner):
    """A call that runs: its name, what was asked, and the seconds that it has been running."""

    def __init__(self, call: Call) -> None:
        super().__init__("dots")
        self._call = call

    def render(self, time: float) -> RenderableType:
        if self.start_time is None:
            self.start_time = time
        seconds = time - self.start_time
        name, asked = one_line(self._call.name), _asked(self._call)
        self.text = Text.assemble((name, "bold"), f" {asked}", (f"  {seconds:.0f} s", "dim"))
        return super().render(time)
