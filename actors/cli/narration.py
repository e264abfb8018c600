"""What an agent does, told while it does it: the model's text as it streams, calls as they start and end.

A `Narrator` listens to what `Agent.watch` gives and says what is worth saying to a `Screen` (see `screens`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import Factory, define

from quiesce.actors.cli.contents import content_in_words
from quiesce.actors.cli.timeline import Answer, Step, Timeline
from quiesce.actors.cli.words import duration, one_line, shortened, visible
from quiesce.actors.hooks import Hooks
from quiesce.actors.live import AttemptFailed, ModelDelta
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import AssistantMessage, Event, TurnEnd, UserMessage, text_of
from quiesce.protocol.model import CallDelta, ReasoningDelta, TextDelta
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from quiesce.actors.cli.screens import Screen
    from quiesce.actors.cli.timeline import Call
    from quiesce.actors.feed import Happenings
    from quiesce.actors.hooks import RunBody, ToolInvocation
    from quiesce.actors.live import Happening
    from quiesce.protocol.events import Block, Reason

__all__ = ["Narrator"]

_WIDTH: Final = 100


Place: TypeAlias = "tuple[int, int, int]"
"""Which call it is: turn, step, index in the message."""


class _Starts(Hooks):
    """Notes that a body starts, and no more: what an `around` hook raises would be the end of its call."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Place](math.inf)

    async def around(self, call: ToolInvocation, run: RunBody) -> object:
        self._send.send_nowait((call.turn, call.step, call.index))
        return await run()

    def so_far(self) -> Iterator[Place]:
        """What was noted and not taken yet."""
        with suppress(trio.WouldBlock):
            while True:
                yield self._receive.receive_nowait()

    async def next(self) -> Place:
        """Wait for the next one."""
        return await self._receive.receive()


@define
class Narrator:
    """Tells a screen what happens. `hook` has to be a hook of the agent, or no call is told to start."""

    screen: Screen
    tells_failure: bool = True
    """Whether it says why a turn failed. False: whoever waits for the turn says so."""
    timeline: Timeline = Factory(Timeline)
    hook: _Starts = Factory(_Starts)
    _started: set[Place] = Factory(set)
    _told: set[Place] = Factory(set)
    _said: int = 0

    @property
    def at_work(self) -> bool:
        """Whether a turn is running."""
        return self.timeline.is_open

    def recall(self, events: Iterable[Event]) -> None:
        """Take what happened before anybody listened. It is not told; what follows is understood by it."""
        for event in events:
            self.timeline.observe(event)
        self._told = {place for place, call in self._latest_calls() if call.answer is not None}

    async def listen(self, happenings: Happenings) -> None:
        """Tell everything that happens, for as long as something does."""
        async for what in happenings:
            self.hear(what)

    async def listen_for_starts(self) -> None:
        """Tell of bodies that they start, for ever. Between what `hear` is told, nobody else would."""
        while True:
            self._started.add(await self.hook.next())
            self._tell_calls()

    def hear_rest(self, happenings: Happenings) -> None:
        """Tell what has happened by now."""
        for what in happenings.so_far():
            self.hear(what)

    def hear(self, what: Happening) -> None:
        """Tell the next thing that happens."""
        self._hear_starts()
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

    def _hear_starts(self) -> None:
        """A body has started before its result is there, and is told in this order."""
        if started := set(self.hook.so_far()):
            self._started |= started
            self._tell_calls()

    def _attempt_failed(self, failed: AttemptFailed) -> None:
        """Say it if there is another attempt; the failure of the last one is that of the turn, which is told."""
        self.screen.busy("")
        if failed.retry_in is not None:
            self._said = 0  # what is said next is said anew
            again = f"trying again in {duration(round(failed.retry_in * 1000))}"
            self.screen.note(f"attempt {failed.attempt} failed: {_briefly(failed.error)}; {again}", "yellow")

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
                if not message.calls and not text_of(message.content).strip():
                    self.screen.note(_in_place_of_text(message.content), "yellow")
            case UserMessage(content=content, source=source) if source.get("kind") != "user":
                self.screen.note(f"context: {shortened(text_of(content), _WIDTH)}")
            case TurnEnd(turn=turn, reason=reason) if reason.kind != "completed":
                self._turn_ended(turn, reason)
        self._tell_calls()

    def _turn_ended(self, turn: int, reason: Reason) -> None:
        if reason.kind == "error" and not self.tells_failure:
            return
        words = reason.message or reason.cause
        self.screen.note(f"turn {turn}: {reason}{f': {one_line(str(words))}' if words else ''}", "bold yellow")

    def _tell_calls(self) -> None:
        calls = dict(self._latest_calls())
        for place, call in calls.items():
            if call.answer is not None and place not in self._told:
                self._told.add(place)
                self.screen.ended(call)
        under_way = {place: call for place, call in calls.items() if call.record is not None and call.answer is None}
        self.screen.calls(
            [call for place, call in under_way.items() if place in self._started],
            [call for place, call in under_way.items() if place not in self._started],
        )

    def _latest_calls(self) -> Iterator[tuple[Place, Call]]:
        turn = self.timeline.turns[-1] if self.timeline.turns else None
        step = turn.parts[-1] if turn is not None and turn.parts else None
        if turn is None or not isinstance(step, Step):
            return
        for entry in step.entries:
            if isinstance(entry, Answer):
                yield from (((turn.number, step.number, index), call) for index, call in enumerate(entry.calls))


def _in_place_of_text(content: tuple[Block, ...]) -> str:
    others = content_in_words(content).strip()
    return f"the model said nothing but {one_line(others)}" if others else "the model said nothing"


def _briefly(error: Exception) -> str:
    """What is said of a failure that may pass: `429 rate_limit_exceeded`."""
    if not isinstance(error, ModelError):
        return type(error).__name__
    status = "" if error.status is None else f"{error.status} "
    return one_line(f"{status}{error.code.removeprefix(f'HTTP_{error.status}')}")
