"""`Ledger`: the checkers' book of which calls are due an answer, and the rules of pairing that it tells.

It knows nothing of `pairing`, by which lists are made and repaired: what one gets wrong the other shall find.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

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


class _Batch(NamedTuple):
    """The calls of one key in one message that no result has answered yet."""

    number: int
    calls: deque[tuple[int, Path]]
    """Which call of the list each is, and its place."""


@define
class Ledger:
    """Which calls are due an answer. Tells the rules of pairing; where results may stand is said with `close`.

    A key is what makes two labels the same; a call or result without one is not booked.
    """

    report: Report
    may_be_elsewhere: bool = False
    """Whether calls may stand before the list, on the server: then a result without its call here is no orphan."""
    _due: dict[str, list[_Batch]] = Factory(dict)  # key -> its batches with calls that are due, the latest last
    _late: set[str] = Factory(set)  # keys of the latest calls that were closed without an answer
    _known: set[str] = Factory(set)
    _batch: int = 0
    _calls: int = 0

    def ask(self, calls: Iterable[tuple[str, Path]]) -> None:
        """A message makes `calls`: key and place of each."""
        self._batch += 1
        for key, at in calls:
            batches = self._due.setdefault(key, [])
            if not batches or batches[-1].number != self._batch:
                batches.append(_Batch(self._batch, deque()))
            batches[-1].calls.append((self._calls, at))
            self._calls += 1
            self._known.add(key)
            self._late.discard(key)

    def answer(self, key: str, at: Path, label: str) -> None:
        """A result of the call `key`, which it names `label`, stands at `at`."""
        if key in self._due:
            self._take_first_of_latest(key)
        elif key in self._late:
            self._late.discard(key)
            self.report.tell("misplaced", at, f"the result of call {shown(label)} stands apart from it")
        elif key in self._known:
            self.report.tell("duplicate", at, f"another result of call {shown(label)}")
        elif not self.may_be_elsewhere:
            self.report.tell("orphan", at, f"no call before it is labelled {shown(label)}")

    def _take_first_of_latest(self, key: str) -> None:
        batches = self._due[key]
        batches[-1].calls.popleft()
        if not batches[-1].calls:
            batches.pop()
        if not batches:
            del self._due[key]

    def is_due(self, key: str) -> bool:
        """Whether a call of that key waits for its result."""
        return key in self._due

    def close(self) -> None:
        """No result can stand from here on: what is due is unanswered."""
        unanswered = [call for batches in self._due.values() for batch in batches for call in batch.calls]
        for _, at in sorted(unanswered):
            self.report.tell("unanswered", at, "this call has no result where one must stand")
        self._late |= self._due.keys()
        self._due.clear()
