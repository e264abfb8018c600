"""Which result answers which call, decided on labels and places alone. What a place is, is its user's affair.

Labels come from providers and from logs made elsewhere: they may be empty, repeated inside a message, or used again in
every round. So a label alone binds nothing; the order does too:

1. A **batch** is what one model message asks for. A result can only answer a call that stands before it.
2. Of all calls before it, a result means those of the **latest batch that uses its label**: a server that counts its
   calls anew in each round, or has one label for all, gives its results before it asks again. So a label that comes
   back never draws a later result to an earlier call, nor an earlier result to a later call.
3. Within that batch it answers the **first call of its label that has no answer** yet: the first answer wins, and of
   several calls with one label each gets its own.
4. A result whose batch has no such call left is a **duplicate**; one whose label no batch before it uses is an
   **orphan**. Both are told, never thrown away.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from attrs import define, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Asked", "Given", "Leftover", "Pairs", "Why", "pair"]

P = TypeVar("P")

Why: TypeAlias = Literal["orphan", "duplicate"]
"""Why a result answers no call."""


@frozen
class Asked(Generic[P]):
    """One batch: the place and the label of each call of one model message, in call order."""

    calls: tuple[tuple[P, str], ...]


@frozen
class Given(Generic[P]):
    """A result: where it stands and the label that it names."""

    place: P
    label: str


@frozen
class Leftover(Generic[P]):
    """A result that answers no call."""

    place: P
    label: str
    why: Why


@frozen
class Pairs(Generic[P]):
    """What `pair` found: every call and every result of its input stands in it exactly once."""

    answers: tuple[tuple[P, P | None], ...]
    """Each call, in order, and the place of its result; None if it is unanswered."""
    leftovers: tuple[Leftover[P], ...]
    """The results that answer none, in order."""


def pair(items: Iterable[Asked[P] | Given[P]]) -> Pairs[P]:
    """The pairs among `items`, which stand in the order of the messages. See the module for the rules."""
    slots: list[_Slot[P]] = []
    free: dict[str, deque[_Slot[P]]] = {}  # label -> the calls without answer in its latest batch
    leftovers: list[Leftover[P]] = []
    for item in items:
        if isinstance(item, Asked):
            batch = [(label, _Slot(place)) for place, label in item.calls]
            slots += [slot for _, slot in batch]
            free |= _by_label(batch)
        elif waiting := free.get(item.label):
            waiting.popleft().answer = item.place
        else:
            leftovers.append(Leftover(item.place, item.label, "duplicate" if item.label in free else "orphan"))
    return Pairs(tuple((slot.call, slot.answer) for slot in slots), tuple(leftovers))


@define
class _Slot(Generic[P]):
    """A call, and what answers it."""

    call: P
    answer: P | None = None


def _by_label(batch: Iterable[tuple[str, _Slot[P]]]) -> dict[str, deque[_Slot[P]]]:
    found: dict[str, deque[_Slot[P]]] = {}
    for label, slot in batch:
        found.setdefault(label, deque()).append(slot)
    return found
