"""`Ledger`: the checkers' book of which calls are due an answer, and the rules of pairing that it tells.

It knows nothing of `pairing`, by which lists are made and repaired: what one gets wrong the other shall find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import Factory, define

from quiesce.protocol.dialects.checking import shown
from quiesce.protocol.dialects.problem import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiesce.protocol.dialects.checking import Report
    from quiesce.protocol.dialects.problem import Path

__all__ = ["PAIRING_RULES", "Ledger"]

PAIRING_RULES: Final = (
    Rule("unanswered", "each call has a result", "langchain-ai/langchain#27216, openai/codex#394", "service", True),
    Rule(
        "orphan", "a result needs its call before it", "sinas-platform/sinas#195, hermes-agent#12807", "service", True
    ),
    Rule("duplicate", "each call has one result", "vercel/eve#1246, hermes-agent#111443", "service", True),
    Rule("misplaced", "results stand right after the message that asked", "MoonshotAI/kimi-cli#2405", "service", True),
)
"""What a `Ledger` tells."""


@define
class Ledger:
    """Which calls are due an answer. Tells the rules of pairing; where results may stand is said with `close`.

    A key is what makes two labels the same; a call or result without one is not booked.
    """

    report: Report
    may_be_elsewhere: bool = False
    """Whether calls may stand before the list, on the server: then a result without its call here is no orphan."""
    _due: list[tuple[int, str, Path]] = Factory(list)  # batch, key, place
    _late: set[str] = Factory(set)  # keys of the latest calls that were closed without an answer
    _known: set[str] = Factory(set)
    _batch: int = 0

    def ask(self, calls: Iterable[tuple[str, Path]]) -> None:
        """A message makes `calls`: key and place of each."""
        self._batch += 1
        for key, at in calls:
            self._due.append((self._batch, key, at))
            self._known.add(key)
            self._late.discard(key)

    def answer(self, key: str, at: Path, label: str) -> None:
        """A result of the call `key`, which it names `label`, stands at `at`."""
        waiting = [item for item in self._due if item[1] == key]
        if waiting:
            self._due.remove(max(waiting, key=lambda item: item[0]))
        elif key in self._late:
            self._late.discard(key)
            self.report.tell("misplaced", at, f"the result of call {shown(label)} stands apart from it")
        elif key in self._known:
            self.report.tell("duplicate", at, f"another result of call {shown(label)}")
        elif not self.may_be_elsewhere:
            self.report.tell("orphan", at, f"no call before it is labelled {shown(label)}")

    def is_due(self, key: str) -> bool:
        """Whether a call of that key waits for its result."""
        return any(item[1] == key for item in self._due)

    def close(self) -> None:
        """No result can stand from here on: what is due is unanswered."""
        for _, key, at in self._due:
            self._late.add(key)
            self.report.tell("unanswered", at, "this call has no result where one must stand")
        self._due.clear()
