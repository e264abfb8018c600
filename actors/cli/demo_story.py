"""The story that `quiesce demo` tells, in four parts on one session, and what is expected of each.

A scripted model asks for real tools on real files. `Story.tell` runs the parts in order and draws each; `expectations`
are what was checked on the way, by the log, the requests that the model was given, and the tools' own ledger.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen
from rich.text import Text

from quiesce.actors.cli.demo_child import running_child
from quiesce.actors.cli.demo_tools import Refusal, SlowestLast, Stopwatch, make_tools, read_ledger
from quiesce.actors.cli.terminal import print_lines, print_text
from quiesce.actors.cli.timeline import Outcome, timeline_of
from quiesce.actors.models import ScriptedModel, call, say
from quiesce.actors.runtime import Runtime
from quiesce.protocol.errors import TurnFailed
from quiesce.protocol.events import ModelMessage, ToolMessage, ToolResult
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.rules import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.demo_files import Exhibits
    from quiesce.actors.cli.demo_tools import Place
    from quiesce.actors.cli.drawing import Drawing
    from quiesce.actors.cli.timeline import Turn
    from quiesce.actors.models import ScriptedReply
    from quiesce.actors.stores import SqliteStore
    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.events import Event
    from quiesce.protocol.model import ModelRequest

__all__ = ["Expectation", "Story"]

_KILLED: Final = -signal.SIGKILL if sys.platform != "win32" else 1
_NEW_GLYPHS: Final = frozenset({1, 2})
"""Parts whose drawing has bars that the parts before them had not."""
_FAILING: Final[Place] = (2, 1, 2)
_RUNNING: Final[frozenset[Place]] = frozenset({(2, 1, 0), (2, 1, 1)})
_LAST: Final[Place] = (1, 1, 0)
_OTHERS: Final[frozenset[Place]] = frozenset({(1, 1, 1), (1, 1, 2), (1, 1, 3)})
"""Turn, step and index of the calls whose order the story depends on."""


@frozen
class Expectation:
    """Something that must hold, in words; whether it did; and what was found."""

    part: int
    name: str
    holds: bool
    found: str


@define
class Story:
    """Told once, on the new session `session_id` of an open store.

    `workshop` is a folder for what the tools write, `seconds` how long the slow tool takes, `progress` is told what is
    going on meanwhile.
    """

    store: SqliteStore
    session_id: str
    exhibits: Exhibits
    workshop: Path
    drawing: Drawing
    seconds: float
    progress: Callable[[str], None] = lambda _: None
    expectations: list[Expectation] = field(init=False, factory=list)
    _part: int = field(init=False, default=0)

    async def tell(self) -> None:
        """Run and draw all parts. Raises whatever a part raises that was not meant to."""
        await self._while_it_runs()
        await self._after_a_kill()
        events = await self._events()
        self._part = 0
        broken = [f"seq {item.seq}: {item.rule}" for item in check(events)]
        self._expect("the whole log keeps every rule", not broken, broken)
        self._expect_honesty(timeline_of(events).turns)

    # --- parts 1 to 3: one process -----------------------------------------------------------------------------

    async def _while_it_runs(self) -> None:
        stopwatch = self._stopwatch()
        failure = RuntimeError("the sandbox refused to start")
        hooks = (
            stopwatch,
            SlowestLast(stopwatch, _LAST, _OTHERS),
            Refusal(stopwatch, _FAILING, _RUNNING, failure),
        )
        model = ScriptedModel(_script(self.exhibits, self.seconds))
        async with Runtime.open(self.store) as runtime:
            agent = await runtime.agent(self.session_id, model=model, tools=self._tools(), hooks=hooks)
            await self._out_of_order(agent, stopwatch)
            await self._failure(agent, failure)
            await self._going_on(agent, model.requests)

    async def _out_of_order(self, agent: Agent, stopwatch: Stopwatch) -> None:
        self._begin(
            1,
            "Four tools at once",
            "They run in parallel and end in any order. The log has each result once, in the order of the calls.",
        )
        await agent.send("What is in this folder?")
        turn = await self._draw(1)
        ends = [place for place in stopwatch.runs if place[0] == 1]
        runs = [stopwatch.runs[place] for place in sorted(ends)]
        shared = sum(run.started <= runs[0].ended and run.ended >= runs[0].started for run in runs)
        self._expect("the four tools ran at the same time", shared == 4, f"{shared} with the first")  # noqa: PLR2004
        self._expect("they ended in another order than the calls", ends != sorted(ends), ends)
        self._expect("all four succeeded", _outcomes(turn) == [Outcome.OK] * 4, _outcomes(turn))
        self._expect("their results are recorded in call order", *_in_call_order(turn))
        self._expect("the turn completed", *_ended(turn, "completed"))

    async def _failure(self, agent: Agent, failure: Exception) -> None:
        self._begin(
            2,
            "The scheduler fails in the middle of a step",
            "The `prepare` hook of the third of five calls raises while the first two are running. What they return is "
            "kept, every other call is answered with a label, and the failure is the turn's.",
        )
        raised: BaseException | None = None
        try:
            await agent.send("Look closer, please.")
        except TurnFailed as failed:
            raised = failed.__cause__
        turn = await self._draw(2)
        labels = [Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.NOT_STARTED, Outcome.NOT_STARTED]
        found = _outcomes(turn)
        self._expect("whoever waited for the turn got what the hook raised", raised is failure, repr(raised))
        self._expect("what the two running tools returned is kept", found[:2] == labels[:2], found)
        self._expect("the third call is UNKNOWN, the last two NOT STARTED", found[2:] == labels[2:], found)
        self._expect("every call has one result, in call order", *_in_call_order(turn))
        self._expect("the turn is closed with that failure", *_ended(turn, "error", str(failure)))

    async def _going_on(self, agent: Agent, requests: Sequence[ModelRequest]) -> None:
        self._begin(3, "The session goes on", "Every call has its result, so the next request is one a provider takes.")
        await agent.send("Go on with what is missing.")
        turn = await self._draw(3)
        self._expect("the next turn completed", *_ended(turn, "completed"))
        answers = _answers_to_five(requests[-1])
        self._expect("its request has five results for the five calls", answers == 5, answers)  # noqa: PLR2004
        self._expect_sendable(requests)

    # --- part 4: two processes ---------------------------------------------------------------------------------

    async def _after_a_kill(self) -> None:
        self._begin(
            4,
            "kill -9 in the middle of a tool",
            "Another process resumes the session and starts a turn. It is killed inside the second of three calls.",
        )
        cut = await self._kill()
        turn = await self._draw(4)
        self._expect("its turn was left open in the log", turn.reason is None, turn.reason)
        self._say("Now the session is resumed here: what the kill left open is closed before anything else happens.")
        model = ScriptedModel(_LAST_SCRIPT)
        async with Runtime.open(self.store) as runtime:
            agent = await runtime.agent(self.session_id, model=model, tools=self._tools(), hooks=[self._stopwatch()])
            await self._resumed(cut)
            await agent.send("What happened?")
        last = await self._draw(5)
        self._expect("the next turn completed", *_ended(last, "completed"))
        self._expect_sendable(model.requests)

    async def _kill(self) -> Sequence[Event]:
        """Have a child run and kill it; the log as it left it."""
        exhibits, next_seq = self.exhibits, len(await self._events())
        arguments = (self.store.path, self.session_id, str(exhibits.folder), str(exhibits.text))
        self.progress("a child process is starting")
        async with running_child(self.workshop, *arguments, str(self.workshop), str(next_seq)) as child:
            self._say(f"Process {child.pid} is inside its second tool: kill -9 {child.pid}")
            status = await child.kill()
        events = await self._events()
        kept = len(events) > child.acknowledged and isinstance(events[child.acknowledged].body, ToolResult)
        self._expect("the child was killed inside the tool", status == _KILLED, f"its status is {status}")
        self._expect("what it had been told is stored, is stored", kept, f"{len(events)} events")
        return events

    async def _resumed(self, cut: Sequence[Event]) -> None:
        events = await self._events()
        turn = await self._draw(4)
        found, added = _outcomes(turn), len(events) - len(cut)
        self._expect("resuming adds two results and closes step and turn", added == 4, f"{added} events")  # noqa: PLR2004
        self._expect("nothing else of the log was touched", list(events[: len(cut)]) == list(cut), "it differs")
        self._expect("the result that had come is kept", found[0] is Outcome.OK, found)
        labels = [Outcome.UNKNOWN, Outcome.NOT_STARTED]
        self._expect("the running call is UNKNOWN, the waiting one NOT STARTED", found[1:] == labels, found)
        self._expect("the turn is closed as interrupted", *_ended(turn, "interrupted"))

    # --- what is expected of the whole -------------------------------------------------------------------------

    def _expect_sendable(self, requests: Iterable[ModelRequest]) -> None:
        problems = [problem for request in requests for problem in sendable_problems(request.messages)]
        self._expect("every request is one that a provider accepts", not problems, problems)

    def _expect_honesty(self, turns: Sequence[Turn]) -> None:
        """The ledger was written by the tools' bodies themselves, in both processes."""
        ran = read_ledger(self.workshop / "ledger.txt")
        twice = sorted({place for place in ran if ran.count(place) > 1})
        self._expect("no tool ran twice", not twice, twice)
        never = {
            (turn.number, 1, index)
            for turn in turns
            for index, item in enumerate(turn.calls)
            if item.outcome is Outcome.NOT_STARTED
        }
        lies = sorted(never & set(ran))
        self._expect("no tool ran whose call is labelled NOT STARTED", not lies, lies)

    def _expect(self, name: str, holds: bool, found: object) -> None:  # noqa: FBT001 - read as a sentence
        self.expectations.append(Expectation(self._part, name, holds, _in_words(found)))

    # --- telling -----------------------------------------------------------------------------------------------

    def _begin(self, part: int, title: str, words: str) -> None:
        self._part = part
        console = self.drawing.console
        rule = "─" * (console.width - len(title) - 4)
        print_lines(console, [Text(""), Text.assemble((f"{part}. {title}", "bold"), (f" {rule}", "dim"))])
        self._say(words)

    def _say(self, words: str) -> None:
        print_text(self.drawing.console, Text(words, "italic"))

    async def _draw(self, number: int) -> Turn:
        """Draw that turn, as it is in the log by now."""
        self.progress("")
        turn = timeline_of(await self._events()).turns[number - 1]
        self.drawing.draw_turn(turn)
        if self._part in _NEW_GLYPHS:
            self.drawing.draw_legend([turn])
        return turn

    async def _events(self) -> Sequence[Event]:
        return await self.store.read(self.session_id)

    def _tools(self) -> tuple[AnyTool, ...]:
        return make_tools(self.exhibits.folder, self.workshop / "notes.txt")

    def _stopwatch(self) -> Stopwatch:
        return Stopwatch(self.workshop / "ledger.txt", self._show_progress)

    def _show_progress(self, stopwatch: Stopwatch) -> None:
        self.progress(f"running: {', '.join(stopwatch.live.values())}" if stopwatch.live else "")


# --- the script --------------------------------------------------------------------------------------------------


def _script(exhibits: Exhibits, seconds: float) -> tuple[ScriptedReply, ...]:
    text, large = str(exhibits.text), str(exhibits.large)
    return (
        say(
            "I look at it from four sides at once.",
            call("survey", seconds=seconds),
            call("hash_file", path=large),
            call("list_folder", path="."),
            call("read_file", path=text),
        ),
        say("I have seen the folder, a file, and the checksum of a large one."),
        say(
            "I take five steps.",
            call("survey", seconds=seconds / 2),
            call("hash_file", path=large),
            call("read_file", path=text),
            call("list_folder", path="."),
            call("take_note", text="looked closer"),
        ),
        say("Two results came back. The third may have had effects, but it only reads.", call("read_file", path=text)),
        say("Now I have it."),
    )


_LAST_SCRIPT: Final = (
    say(
        "The survey was cut short, and the note was never written. I write it now.", call("take_note", text="surveyed")
    ),
    say("The note is written, once."),
)


# --- words ---------------------------------------------------------------------------------------------------------


def _in_words(found: object) -> str:
    if isinstance(found, Outcome):
        return found.value
    return ", ".join(map(_in_words, found)) if isinstance(found, list) else str(found)


# --- what a turn's timeline says -----------------------------------------------------------------------------------


def _outcomes(turn: Turn) -> list[Outcome]:
    return [item.outcome for item in turn.calls]


def _in_call_order(turn: Turn) -> tuple[bool, str]:
    """Whether every call has its result, and the results stand in the order of the calls."""
    seqs = [None if item.answer is None else item.answer.seq for item in turn.calls]
    known = [seq for seq in seqs if seq is not None]
    return len(known) == len(seqs) and known == sorted(known), f"the results are the events {seqs}"


def _ended(turn: Turn, kind: str, message: str | None = None) -> tuple[bool, str]:
    """Whether the turn is closed for that reason."""
    reason = turn.reason
    return reason is not None and (reason.kind, reason.message) == (kind, message), f"its end is {reason!r}"


def _answers_to_five(request: ModelRequest) -> int:
    """How many results follow the message that makes five calls."""
    messages = request.messages
    start = next(i for i, item in enumerate(messages) if isinstance(item, ModelMessage) and len(item.calls) == 5)  # noqa: PLR2004
    rest = messages[start + 1 :]
    return next((i for i, item in enumerate(rest) if not isinstance(item, ToolMessage)), len(rest))
