"""Logs in short notation, for tests: what to write, how to read it back, and generators of whole logs.

A log is a line of words. A word is an event type, then what it needs, in this order:

    ask:a,b   an answer with the calls a and b; `ask` has text alone, `ask:` one call whose label is empty
    call:a    the record that a starts
    asks:a=0  a, the call of that index, waits for a person; `approves:a=0`, `denies:a=0` decide
    result:a=text    its success; `failed`, `aborted`, `unknown`, `unstarted`, `denied` are error results
    step@1.2  the turn and step that it names; without, those that are due (`turn`, `step`) or open (all others)
    user:text>3-5    it replaces events 3 to 5
    call:a<3  it comes from event 3

`read` makes events of a line and `show` makes a line of events, so that a test can say in one line what it expects.
Labels and texts have no spaces in them. Events are a millisecond apart, the first at `TIME`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attrs import define, evolve
from hypothesis import strategies as st

from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantAttempt,
    AssistantMessage,
    Body,
    Draft,
    EndSeed,
    ErrorInfo,
    Event,
    ForeignBody,
    InboxSpliced,
    LateResult,
    ModelMessage,
    Reason,
    Replace,
    StepEnd,
    StepStart,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolMessage,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    draft,
)
from quiesce.protocol.outcome import ERROR_NAMES
from quiesce.protocol.rules import LogState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TIME = 1_000
NAME, ARGUMENTS = "tool", "{}"
CODES = {
    "failed": "TOOL_ERROR",
    "aborted": "ABORTED_BEFORE_DISPATCH",
    "unknown": "TOOL_OUTCOME_UNKNOWN",
    "unstarted": "TOOL_NOT_STARTED",
    "denied": "TOOL_DENIED",
}
_WORD = re.compile(
    r"(?P<kind>[a-z-]+)(:(?P<label>[^=@<>]*))?(=(?P<text>[^@<>]*))?(@(?P<place>[\d.]+))?"
    r"(>(?P<start>\d+)-(?P<end>\d+))?(<(?P<sources>-?\d+))?"
)


# --- bodies ------------------------------------------------------------------------------------------------------


def block(label: str, name: str = NAME, arguments: str = ARGUMENTS) -> ToolCallBlock:
    return ToolCallBlock(label, name, arguments)


def user(text: str = "hello") -> UserMessage:
    return UserMessage((TextBlock(text),), {"kind": "user"}, "user", f"user-{text}")


def answer(turn: int, step: int, *blocks: Any) -> AssistantMessage:
    return AssistantMessage(turn, step, ModelMessage("assistant", blocks, {"kind": "model"}, f"answer-{turn}-{step}"))


def result(turn: int, step: int, label: str, text: str = "done", code: str | None = None) -> ToolResult:
    error = None if code is None else ErrorInfo(ERROR_NAMES[code], code)
    message = ToolMessage("tool", label, (TextBlock(text),), error is not None, f"result-{label}-{text}")
    return ToolResult(turn, step, message, error)


@define
class Place:
    """Which turn and step are open, as far as the words said."""

    turn: int = 0
    step: int = 0

    def of(self, word: re.Match[str]) -> Place:
        if word["place"] is not None:
            return Place(*map(int, word["place"].split(".")))
        due = {"turn": Place(self.turn + 1, 0), "step": Place(self.turn, self.step + 1)}
        return due.get(word["kind"], Place(self.turn, self.step))


def _labels(word: re.Match[str]) -> list[str]:
    return [] if word["label"] is None else word["label"].split(",")


def _result(word: re.Match[str], at: Place) -> ToolResult:
    return result(at.turn, at.step, word["label"], word["text"] or "done", CODES.get(word["kind"]))


def _decision(word: re.Match[str], at: Place, *, approved: bool) -> ApprovalDecided:
    reason = None if approved else "no"
    return ApprovalDecided(at.turn, at.step, int(word["text"]), word["label"], approved, reason)


_BODIES: dict[str, Callable[[re.Match[str], Place], Body]] = {
    "turn": lambda _, at: TurnStart(at.turn),
    "end-turn": lambda word, at: TurnEnd(at.turn, Reason(word["label"] or "completed")),
    "step": lambda _, at: StepStart(at.turn, at.step),
    "end-step": lambda _, at: StepEnd(at.turn, at.step),
    "user": lambda word, _: user(word["label"] or "hello"),
    "attempt": lambda _, at: AssistantAttempt(at.turn, at.step),
    "ask": lambda word, at: answer(at.turn, at.step, TextBlock(word["text"] or "well"), *map(block, _labels(word))),
    "blank": lambda _, at: answer(at.turn, at.step, TextBlock(" ")),
    "call": lambda word, at: ToolCall(at.turn, at.step, word["label"], NAME, ARGUMENTS),
    "asks": lambda word, at: ApprovalRequested(at.turn, at.step, int(word["text"]), word["label"], NAME, {}, "may it?"),
    "approves": lambda word, at: _decision(word, at, approved=True),
    "denies": lambda word, at: _decision(word, at, approved=False),
    "result": _result,
    **dict.fromkeys(CODES, _result),
    "late": lambda word, at: LateResult(at.turn, at.step, word["label"]),
    "splice": lambda word, _: InboxSpliced("next-turn", 0, tuple(map(user, _labels(word)))),
    "seed": lambda _, __: EndSeed(inherited=True),
    "foreign": lambda word, _: ForeignBody(word["label"] or "elsewhere", {}),
}


# --- reading and showing -----------------------------------------------------------------------------------------


def draft_of(word: str, place: Place | None = None) -> Draft:
    """The draft of one word; `place` is where it stands, and moves along."""
    found = _WORD.fullmatch(word)
    assert found, f"no event is written {word!r}"
    place = place or Place()
    at = place.of(found)
    made = draft(_BODIES[found["kind"]](found, at))
    if found["kind"] in ("turn", "step"):
        place.turn, place.step = at.turn, at.step
    if found["start"] is not None:
        made = evolve(made, surface_op=Replace("replace", int(found["start"]), int(found["end"])))
    if found["sources"] is not None:
        made = evolve(made, source_event_seqs=(int(found["sources"]),))
    return made


def numbered(drafts: Iterable[Draft], *, first: int = 0) -> tuple[Event, ...]:
    return tuple(item.at(seq, TIME + seq) for seq, item in enumerate(drafts, first))


def read(line: str) -> tuple[Event, ...]:
    """The events that `line` stands for. Nothing checks them: a broken log can be written as well."""
    place = Place()
    return numbered(draft_of(word, place) for word in line.split())


def show(events: Iterable[Draft]) -> str:
    """The line of these events or drafts, without the places, ranges and sources that they name."""
    return " ".join(map(_show, events))


def _show(item: Draft) -> str:
    match item.body:
        case AssistantMessage(message=message) if message.calls:
            return "ask:" + ",".join(call.id for call in message.calls)
        case ToolResult(message=message, error=error):
            code = error.code if error else None
            return f"{next((kind for kind in CODES if CODES[kind] == code), 'result')}:{message.tool_call_id}"
        case ApprovalDecided(call_id=label, approved=approved):
            return f"{'approves' if approved else 'denies'}:{label}"
        case ToolCall(call_id=label) | LateResult(call_id=label) | ApprovalRequested(call_id=label):
            return f"{_LABELLED[type(item.body)]}:{label}"
        case TurnEnd(reason=reason):
            return f"end-turn:{reason}"
        case body:
            return _SHOWN[type(body)]


_LABELLED = {ToolCall: "call", LateResult: "late", ApprovalRequested: "asks"}
_SHOWN = {
    TurnStart: "turn",
    StepStart: "step",
    StepEnd: "end-step",
    UserMessage: "user",
    AssistantMessage: "ask",
    AssistantAttempt: "attempt",
    InboxSpliced: "splice",
    EndSeed: "seed",
    ForeignBody: "foreign",
}


def state_of(events: Iterable[Event]) -> LogState:
    state = LogState()
    for event in events:
        state.watch(event)
    return state


# --- what stands in a log, found the plain way -------------------------------------------------------------------


def steps(events: Iterable[Event]) -> list[tuple[list[str], list[str], bool]]:
    """Of each step: the labels of its calls, of its results in log order, and whether it was closed."""
    found: dict[tuple[int, int], tuple[list[str], list[str], bool]] = {}
    for event in events:
        match event.body:
            case AssistantMessage(turn=turn, step=step, message=message) if event.surface_op == "append":
                found[turn, step] = ([call.id for call in message.calls], [], False)
            case ToolResult(turn=turn, step=step, message=message) if event.surface_op == "append":
                found[turn, step][1].append(message.tool_call_id)
            case StepEnd(turn=turn, step=step) if (turn, step) in found:
                found[turn, step] = (*found[turn, step][:2], True)
    return list(found.values())


def is_paired(events: Iterable[Event]) -> bool:
    """G1: each closed step has exactly one result for each call, in call order."""
    return all(calls == results for calls, results, closed in steps(events) if closed)


# --- generators --------------------------------------------------------------------------------------------------


@st.composite
def walks(draw: Callable[[st.SearchStrategy[Any]], Any], *, distinct: bool = False) -> str:
    """A line of a log as quiesce would write it, closed to its end. Labels repeat and are empty, unless `distinct`."""
    words: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        words += [*draw(_NOISE), "turn"]
        for _ in range(draw(st.integers(1, 3))):
            words += ["step", *draw(_INPUT), *draw(_step(distinct=distinct)), "end-step", *draw(_NOISE)]
        words.append(f"end-turn:{draw(st.sampled_from(['completed', 'aborted', 'error', 'max-tokens']))}")
    return " ".join(words)


_NOISE = st.lists(st.sampled_from(["splice", "splice:x,y", "foreign", "late:a", "seed"]), max_size=2)
_INPUT = st.lists(st.sampled_from(["user", "user:more", "splice", "attempt"]), max_size=2)


@st.composite
def _step(draw: Callable[[st.SearchStrategy[Any]], Any], *, distinct: bool) -> list[str]:
    """One answer and its calls: records and results each in call order, in any way between each other."""
    labels = draw(st.lists(st.sampled_from(["a", "b", "c", "d", ""]), max_size=4, unique=distinct))
    words = ["ask:" + ",".join(labels) if labels else draw(st.sampled_from(["ask", "blank", "attempt"]))]
    recorded = answered = 0
    asked: dict[int, str] = {}
    while answered < len(labels):
        move = draw(st.sampled_from(["record", "answer", "noise", "approval"]))
        if move == "approval":
            words += _approval(draw, labels, range(answered, recorded), asked)
        elif move == "noise":
            words += draw(_NOISE)
        elif move == "record" and recorded < len(labels):
            words.append(f"call:{labels[recorded]}")
            recorded += 1
        else:
            kinds = _KINDS[asked.get(answered, "run" if answered < recorded else "ask")]
            words.append(f"{draw(st.sampled_from(kinds))}:{labels[answered]}")
            answered += 1
            recorded = max(recorded, answered)
    return words + draw(_INPUT)


_KINDS = {
    "run": ["result", "failed", "unknown"],
    "ask": ["unstarted"],
    "approves": ["result", "failed", "unknown"],
    "denies": ["denied"],
}
"""How far a call came -> how it may be answered."""


def _approval(draw: Any, labels: list[str], begun: range, asked: dict[int, str]) -> list[str]:
    """Ask about a call that has begun, or decide about one that was asked about; nothing if there is none."""
    fresh = [("ask", at) for at in begun if at not in asked]
    open_ = [(how, at) for at in begun if asked.get(at) == "ask" for how in ("approves", "denies")]
    if not fresh + open_:
        return []
    how, at = draw(st.sampled_from(fresh + open_))
    asked[at] = how
    return [f"{'asks' if how == 'ask' else how}:{labels[at]}={at}"]


_ANY_WORD = (
    *("turn", "step", "end-step", "end-turn", "user", "ask", "ask:a,b", "ask:a,a", "ask:,b,", "blank", "attempt"),
    *("call:a", "call:b", "call:", "result:a", "result:b", "result:", "unstarted:a", "unstarted:b", "unstarted:"),
    *("unknown:a", "failed:b", "late:a", "splice:x", "seed", "foreign", "denied:a"),
    *("asks:a=0", "asks:b=1", "asks:=0", "approves:a=0", "approves:b=1", "denies:a=0", "denies:b=1", "denies:=0"),
)
_MISPLACED = ("turn@1", "turn@5", "step@1.1", "step@2.1", "end-step@1.2", "end-turn@2", "call:a@1.1", "result:a@1.1")
_COMPACTION = ("user:sum>0-2", "user:sum>1-4", "ask:a>0-3", "result:a>2-2", "unstarted:b>0-0")


@st.composite
def damaged(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A line of a log that somebody else wrote, or spoilt: a walk with words left out, put in and moved."""
    words = draw(walks()).split()
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(words)))
        change = draw(st.sampled_from(["drop", "insert", "move"]))
        if change == "insert":
            words.insert(at, draw(st.sampled_from((*_ANY_WORD, *_MISPLACED, *_COMPACTION))))
        elif at < len(words):
            word = words.pop(at)
            if change == "move":
                words.insert(draw(st.integers(0, len(words))), word)
    return " ".join(words)


@st.composite
def admitted(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[Event, ...]:
    """A log of nothing but events that the rules admit: any that they admit may come next."""
    state, place, events = LogState(), Place(), list[Event]()
    for choice in draw(st.lists(st.integers(0, 10_000), max_size=40)):
        open_to = [word for word in (*_ANY_WORD, *_MISPLACED, *_COMPACTION) if _fits(word, place, state)]
        event = draft_of(open_to[choice % len(open_to)], place).at(state.next_seq, TIME + state.next_seq)
        state.watch(event)
        events.append(event)
    return tuple(events)


def _fits(word: str, place: Place, state: LogState) -> bool:
    return not state.breaks(draft_of(word, evolve(place)).at(state.next_seq, TIME))
