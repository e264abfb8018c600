"""Repair where results are blocks of the user's message behind their calls: Anthropic Messages.

Three passes, each from list to list: calls that stand in a user's message get an assistant's of their own; then results
go to the message behind their calls, and what answers nothing becomes a note; then messages of one role that this left
side by side become one. Each pass gives back the very objects that it has nothing to do with.
"""

from __future__ import annotations

from itertools import groupby, pairwise, takewhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, define, frozen

from quiesce.protocol.dialects.checking import is_blank
from quiesce.protocol.dialects.pairing import Asked, Given, pair
from quiesce.protocol.dialects.problem import Path, position
from quiesce.protocol.dialects.repair_notes import (
    UNKNOWN,
    Change,
    ChangeKind,
    answered_words,
    label_words,
    quoted,
    quoted_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from quiesce.protocol.dialects.pairing import Why

__all__ = ["repair_blocks"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""

_Place: TypeAlias = tuple[int, int]
"""A message and a block in it."""

_SPLIT: Final = ("user", "system")
"""Roles out of whose messages calls are taken."""
_JOINED: Final = ("user", "assistant")
"""Roles whose messages have to alternate."""
_ROLES: Final = ("user", "assistant", "system")


def repair_blocks(messages: Sequence[Thing], *, merge: bool) -> tuple[list[Thing], list[Change]]:
    """The repaired list and what was done; `merge` as in the profile. What needs nothing is the same object."""
    report = _Report()
    pieces = [piece for index, message in enumerate(messages) for piece in _split(_Piece(message, index), report)]
    paired = _Pairing(pieces, report).run()
    joined = _join(paired, report) if merge else paired
    return [piece.message for piece in joined], report.changes()


@frozen
class _Piece:
    """A message or a part of one, and where it stood."""

    message: Thing
    index: int
    first: int = 0
    """The index of its first block in the message that it was."""
    is_ours: bool = False
    """Whether repair wrote to it."""

    @property
    def role(self) -> Thing:
        role = self.message.get("role") if isinstance(self.message, dict) else None
        return role if role in _ROLES else None

    @property
    def content(self) -> Thing:
        return self.message.get("content") if isinstance(self.message, dict) else None

    @property
    def blocks(self) -> list[Thing]:
        """Its content, if that is a list."""
        return self.content if isinstance(self.content, list) else []

    @property
    def can_take(self) -> bool:
        """Whether blocks can be added to it."""
        return isinstance(self.content, (str, list))


@define
class _Report:
    """Collects what was done, with the message that it was done to."""

    found: list[tuple[int, Change]] = Factory(list)

    def tell(self, kind: ChangeKind, at: tuple[int, ...], label: Thing, words: str) -> None:
        """Something was done at a message, or at a block of one."""
        path: Path = ("messages", *at) if len(at) == 1 else ("messages", at[0], "content", *at[1:])
        self.found.append((at[0], Change(kind, position(path), label if isinstance(label, str) else "", words)))

    def changes(self) -> list[Change]:
        """In the order of the messages that were there."""
        return [change for _, change in sorted(self.found, key=lambda item: item[0])]


def _kind(block: Thing) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def _is_call(block: Thing) -> bool:
    return _kind(block) == "tool_use"


def _is_result(block: Thing) -> bool:
    return _kind(block) == "tool_result"


# --- calls in messages that cannot make them ---------------------------------------------------------------------


def _split(piece: _Piece, report: _Report) -> Iterator[_Piece]:
    """The message; in pieces if calls stand in it that its role cannot make."""
    if piece.role not in _SPLIT or not any(map(_is_call, piece.blocks)):
        yield piece
        return
    first = 0
    for is_call, group in groupby(piece.blocks, key=_is_call):
        blocks = list(group)
        for at, block in enumerate(blocks if is_call else (), start=first):
            label = block.get("id")
            words = f"call {label_words(label)} stood in a message of role {piece.role}, and is an assistant's now"
            report.tell("call-moved", (piece.index, at), label, words)
        role = "assistant" if is_call else piece.role
        yield _Piece({**piece.message, "role": role, "content": blocks}, piece.index, first, is_ours=True)
        first += len(blocks)


# --- results behind their calls ----------------------------------------------------------------------------------


@define
class _Pairing:
    """Goes through the messages with what the next one of the user's has to begin with: results that are due, notes."""

    pieces: list[_Piece]
    report: _Report
    answers: dict[_Place, _Place | None] = Factory(dict)
    """Call -> its result."""
    taken: set[_Place] = Factory(set)
    """The results that answer a call."""
    leftovers: dict[_Place, Why] = Factory(dict)
    calls: list[_Place] = Factory(list)
    """The calls of the message before."""
    notes: list[Thing] = Factory(list)
    """Notes from messages that cannot hold them."""
    out: list[_Piece] = Factory(list)

    def run(self) -> list[_Piece]:
        """The messages, each call answered at the start of the message behind it."""
        found = pair(self._marks())
        self.answers = dict(found.answers)
        self.taken = {place for place in self.answers.values() if place is not None}
        self.leftovers = {item.place: item.why for item in found.leftovers}
        for at, piece in enumerate(self.pieces):
            if piece.role == "user" and piece.can_take:
                self._take_user(at, piece)
            else:
                self._write_due(piece.index)
                self._take_other(at, piece)
        self._write_due(len(self.pieces))
        return self.out

    def _marks(self) -> Iterator[Asked[_Place] | Given[_Place]]:
        for at in range(len(self.pieces)):
            if calls := self._calls_in(at):
                yield Asked(tuple((place, f"id {self._block(place)['id']}") for place in calls))
            for place in self._results_in(at):
                label = self._block(place).get("tool_use_id")
                yield Given(place, f"id {label}" if isinstance(label, str) else "")  # no call has an empty one

    def _calls_in(self, at: int) -> list[_Place]:
        piece = self.pieces[at]
        blocks = piece.blocks if piece.role == "assistant" else []
        found = [(index, block) for index, block in enumerate(blocks) if _is_call(block)]
        return [(at, index) for index, block in found if isinstance(block.get("id"), str)]

    def _results_in(self, at: int) -> list[_Place]:
        piece = self.pieces[at]
        blocks = piece.blocks if piece.role is not None else []
        return [(at, index) for index, block in enumerate(blocks) if _is_result(block)]

    def _block(self, place: _Place) -> Thing:
        return self.pieces[place[0]].blocks[place[1]]

    def _take_user(self, at: int, piece: _Piece) -> None:
        """A message that results and notes can stand in: first the results, then the notes, then what was there."""
        before = self._due(at)
        rest = [block for index in range(len(piece.blocks)) for block in self._kept((at, index))]
        if _are_same([*before, *rest], piece.blocks):
            self.out.append(piece)
        else:
            self._write(piece, [*before, *(rest if piece.blocks else _as_blocks(piece.content))])

    def _take_other(self, at: int, piece: _Piece) -> None:
        """A message that none can stand in."""
        results = self._results_in(at)
        if results:
            self._write(piece, [block for block in piece.blocks if not _is_result(block)])
            self.notes += [block for place in results for block in self._kept(place)]
        else:
            self.out.append(piece)
        self.calls = self._calls_in(at)

    def _write(self, piece: _Piece, blocks: list[Thing]) -> None:
        """The message with other content; gone if there is none."""
        if blocks:
            message = {**piece.message, "content": blocks}
            self.out.append(_Piece(message, piece.index, piece.first, is_ours=True))

    def _write_due(self, index: int) -> None:
        """What is due, in a message of its own."""
        if blocks := self._due(-1):
            self.out.append(_Piece({"role": "user", "content": blocks}, index, is_ours=True))

    def _due(self, at: int) -> list[Thing]:
        """The results of the calls before: those that stand in message `at`, in their order, then all others; notes."""
        placed = [(call, self.answers.get(call)) for call in self.calls]
        here = sorted(place for _, place in placed if place is not None and place[0] == at)
        leading = sum(1 for _ in takewhile(_is_result, self.pieces[at].blocks)) if here else 0
        for place in here:
            if place[1] > leading:
                self._tell(place, "moved", f"the result of call {self._label(place)} moved to the start of its message")
        brought = [self._brought(call, place) for call, place in placed if place is None or place[0] != at]
        due = [*map(self._block, here), *brought, *self.notes]
        self.calls, self.notes = [], []
        return due

    def _brought(self, call: _Place, place: _Place | None) -> Thing:
        label = self._block(call)["id"]
        if place is not None:
            self._tell(place, "moved", f"the result of call {label_words(label)} moved to it")
            return self._block(place)
        self._tell(call, "answered", answered_words(label))
        return {"type": "tool_result", "tool_use_id": label, "content": UNKNOWN, "is_error": True}

    def _kept(self, place: _Place) -> Iterable[Thing]:
        """What stays of a block in its place: nothing if it is a result with a call, a note if it is one without."""
        block, why = self._block(place), self.leftovers.get(place)
        if why is None:
            return () if place in self.taken else (block,)
        label = block.get("tool_use_id")
        self._tell(place, "quoted", quoted_words(label, why))
        text, media = quoted(label, why, block.get("content"), is_error=block.get("is_error") is True)
        return ({"type": "text", "text": text}, *media)

    def _label(self, place: _Place) -> str:
        return label_words(self._block(place).get("tool_use_id"))

    def _tell(self, place: _Place, kind: ChangeKind, words: str) -> None:
        piece, block = self.pieces[place[0]], self._block(place)
        label = block.get("id") if _is_call(block) else block.get("tool_use_id")
        self.report.tell(kind, (piece.index, piece.first + place[1]), label, words)


def _are_same(blocks: list[Thing], others: list[Thing]) -> bool:
    return list(map(id, blocks)) == list(map(id, others))


def _as_blocks(content: Thing) -> list[Thing]:
    if isinstance(content, str):
        return [] if is_blank(content) else [{"type": "text", "text": content}]
    return list(content)


# --- messages side by side ---------------------------------------------------------------------------------------


def _join(pieces: list[_Piece], report: _Report) -> list[_Piece]:
    """Messages of one role in a row become one, where repair wrote to one of them or results stand there."""
    out: list[_Piece] = []
    for role, group in groupby(pieces, key=lambda piece: piece.role if piece.can_take else None):
        row = list(group)
        concerned = any(piece.is_ours or any(map(_is_result, piece.blocks)) for piece in row)
        out += [_joined(row, report)] if role in _JOINED and len(row) > 1 and concerned else row
    return out


def _joined(row: list[_Piece], report: _Report) -> _Piece:
    for before, piece in pairwise(row):
        if piece.index != before.index:
            report.tell("joined", (piece.index,), None, f"joined to the message before: both are of role {piece.role}")
    blocks = [block for piece in row for block in _as_blocks(piece.content)]
    return _Piece({**row[0].message, "content": blocks}, row[0].index, row[0].first, is_ours=True)
