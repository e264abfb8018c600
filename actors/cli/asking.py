"""Who decides about calls in a chat: a person is asked before anything runs that may change something."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import define, field

from quiesce.actors.cli.typed import Typed
from quiesce.actors.cli.words import arguments_in_words, one_line, shortened
from quiesce.actors.hooks import Ask, Hooks
from quiesce.protocol.errors import InvalidInput, NoOpenQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.screens import Screen
    from quiesce.actors.cli.typed import Line
    from quiesce.actors.hooks import ToolInvocation
    from quiesce.protocol.approvals import Question

__all__ = ["AskFirst", "Decisions"]

_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_SHOWN: Final = 500
"""Characters of the arguments that a person is shown. More are counted."""


class AskFirst(Hooks):
    """A `prepare` hook that has a person decide about each call that its tool does not declare to be harmless."""

    async def prepare(self, call: ToolInvocation) -> Ask | None:
        """Let calls pass that only read, which are those that may run beside others."""
        if call.tool.classify(call.tool.validate(call.arguments)) == "parallel":
            return None
        return Ask(f"may {call.name} run?")


@define
class Decisions:
    """Shows the open questions, one after the other, and takes the answers; `approves_all` takes none and shows none.

    `typed` is what a person types, from which answers are to be taken.
    """

    agent: Agent
    screen: Screen
    approves_all: bool = False
    typed: Typed = field(init=False)
    _shown: Question | None = None

    def __attrs_post_init__(self) -> None:
        self.typed = Typed(lambda: self._shown, partial(self.screen.note, style="yellow"))

    async def show_next(self) -> None:
        """Ask about the first call that nobody has decided about, unless that has been asked."""
        waiting = await self.agent.questions()
        if self.approves_all:
            await self._approve_all(waiting)
            return
        if waiting and waiting[0] != self._shown:
            self.typed.catch_up()  # what was typed until here is no answer to it
            self._ask(waiting[0])
        self._shown = waiting[0] if waiting else None

    async def take(self, line: Line) -> bool:
        """Take `line` as an answer. False: it is none, which the person is told if a question is open."""
        if self._shown is None and line.seen is None:
            return False
        word, reason = _answer(line.text)
        current = line.seen == self._shown
        if word not in _YES | _NO or not (current or not reason):
            if self._shown is not None:
                self.screen.note(_TO_THE_MODEL, "yellow")
            return False
        if not current:
            self.screen.note(_TOO_EARLY if self._shown is not None else _TOO_LATE, "yellow")
        elif word in _YES and reason:  # it may be a condition, and what runs is what was shown
            self.screen.note(_CONDITION, "yellow")
        else:
            await self._decide(word, reason)
        return True

    async def _decide(self, word: str, reason: str) -> None:
        assert self._shown is not None
        try:
            if word in _YES:
                await self.agent.approve(self._shown)
            else:
                await self.agent.deny(self._shown, reason or "the user does not want it")
        except (InvalidInput, NoOpenQuestion) as error:  # the reason cannot be stored; it was decided elsewhere
            self.screen.note(str(error), "yellow")
        await self.show_next()

    async def _approve_all(self, waiting: Iterable[Question]) -> None:
        for question in waiting:
            with suppress(NoOpenQuestion):  # it was cancelled, or decided elsewhere
                await self.agent.approve(question)
                self.screen.note(f"approved, as --yes wants: {_in_words(question)}", "yellow")

    def _ask(self, question: Question) -> None:
        self.screen.note(f"? {_in_words(question)}", "bold yellow")
        self.screen.note(f"  {one_line(question.text)} y, or n and a reason", "yellow")


_TO_THE_MODEL: Final = "to the model at its next step; the question is still open: y, or n and a reason"
_TOO_EARLY: Final = "not taken, since it was typed before this question was shown: y, or n and a reason"
_TOO_LATE: Final = "not taken, since that question was decided before"
_CONDITION: Final = "y alone lets it run as it is shown; n and a reason, if it shall be another call"


def _in_words(question: Question) -> str:
    asked = shortened(arguments_in_words(json.dumps(question.arguments, ensure_ascii=False)), _SHOWN)
    return f"{one_line(question.name)} {asked}".rstrip()


def _answer(line: str) -> tuple[str, str]:
    """The first word of a line in small letters, and the rest; also where people write `No, not that`."""
    word = next(iter(re.findall(r"^\w+", line)), "")
    return word.lower(), line[len(word) :].strip(" \t,.;:!-")
