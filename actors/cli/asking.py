"""Who decides about calls in a chat: a person is asked before anything runs that may change something."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from attrs import define

from quiesce.actors.cli.words import arguments_in_words, one_line, shortened
from quiesce.actors.hooks import Ask, Hooks
from quiesce.protocol.errors import InvalidInput, NoOpenQuestion

if TYPE_CHECKING:
    from quiesce.actors.agent import Agent
    from quiesce.actors.cli.narration import Screen
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
    """Shows the open questions, one after the other, and takes the answers."""

    agent: Agent
    screen: Screen
    _shown: Question | None = None

    async def show_next(self) -> None:
        """Ask about the first call that nobody has decided about, unless that has been asked."""
        waiting = await self.agent.questions()
        if waiting and waiting[0] != self._shown:
            self._ask(waiting[0])
        self._shown = waiting[0] if waiting else None

    async def take(self, line: str) -> bool:
        """Take `line` as an answer. False: no question is open, or it is none, which the person is told."""
        if self._shown is None:
            return False
        word, reason = _answer(line)
        if word not in _YES | _NO:
            self.screen.note(
                "to the model at its next step; the question is still open: y, or n and a reason", "yellow"
            )
            return False
        if word in _YES and reason:  # it may be a condition, and what runs is what was shown
            self.screen.note(
                "y alone lets it run as it is shown; n and a reason, if it shall be another call", "yellow"
            )
            return True
        try:
            if word in _YES:
                await self.agent.approve(self._shown)
            else:
                await self.agent.deny(self._shown, reason or "the user does not want it")
        except InvalidInput as error:  # of a reason that cannot be stored
            self.screen.note(str(error), "yellow")
        except NoOpenQuestion as error:  # it was cancelled, or decided elsewhere
            self.screen.note(str(error), "yellow")
        await self.show_next()
        return True

    def _ask(self, question: Question) -> None:
        asked = shortened(arguments_in_words(json.dumps(question.arguments, ensure_ascii=False)), _SHOWN)
        self.screen.note(f"? {one_line(question.name)} {asked}", "bold yellow")
        self.screen.note(f"  {one_line(question.text)} y, or n and a reason", "yellow")


def _answer(line: str) -> tuple[str, str]:
    """The first word of a line in small letters, and the rest; also where people write `No, not that`."""
    word = next(iter(re.findall(r"^\w+", line)), "")
    return word.lower(), line[len(word) :].strip(" \t,.;:!-")
