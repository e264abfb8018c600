"""Requests: a history of 2 000 messages rendered, and the next request of it, beside json.dumps of the same.

Each dialect, in the same rounds as `json.dumps`, which is what every program pays that sends the request. The best of
many short rounds keeps out what else the machine does; the median beside it shows how much that is. What is rendered is
checked before it is shown: no server refuses it, and the next request is what rendering all would give.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, TypeVar

import click
from attrs import frozen
from rich.console import Console
from rich.table import Table

from quiesce.protocol.dialects import PROFILES, dialect_of
from quiesce.protocol.events import (
    ModelMessage,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.dialects import Profile
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Visible

A = TypeVar("A")
T = TypeVar("T")

__all__ = ["Figures", "conversation", "main", "measure"]

SERVERS = ("openai", "compatible", "openai-responses", "anthropic")
TURN = 5
"""Messages of a turn: the user's, an answer with two calls, their results, the last answer."""
_WORDS = "The quick brown fox jumps over the lazy dog while the band plays on. " * 3


@frozen
class Figures:
    """The best of all rounds, in seconds."""

    whole: float
    """All messages rendered."""
    median: float
    """The same in the middle one of the rounds."""
    after: float
    """The next request, one turn longer, from a renderer that has rendered the rest."""
    dumps: float
    """`json.dumps` of that request's messages."""


def conversation(messages: int, profile: Profile) -> list[Visible]:
    """So many messages of an agent at work, all by the model that is asked, with what its provider attaches."""
    return [message for number in range(-(-messages // TURN)) for message in _turn(number, profile)][:messages]


def _turn(number: int, profile: Profile) -> list[Visible]:
    source = {"kind": "model", "provider": profile.provider}
    calls = [_call(2 * number + index) for index in range(2)]
    thought = ReasoningBlock("Let me see.", replay=_seal(number, profile))
    said: list[Block] = [thought, TextBlock(_WORDS), *calls]
    return [
        UserMessage((TextBlock(f"{number}: {_WORDS}"),), {"kind": "user"}, "user", f"u{number}"),
        ModelMessage("assistant", tuple(said), source, f"a{number}"),
        *(ToolMessage("tool", call.id, (TextBlock(_WORDS),), is_error=False, id=f"t{call.id}") for call in calls),
        ModelMessage("assistant", (TextBlock(_WORDS),), source, f"b{number}"),
    ]


def _call(number: int) -> ToolCallBlock:
    return ToolCallBlock(f"call{number:05d}", "read_file", json.dumps({"path": f"src/{number}.py", "lines": [1, 80]}))


def _seal(number: int, profile: Profile) -> JsonObject | None:
    return {
        "chat": None,
        "responses": {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x" * 400},
        "anthropic": {"type": "thinking", "thinking": "Let me see.", "signature": "x" * 400},
    }[profile.dialect]


def measure(profile: Profile, messages: int, rounds: int) -> Figures:
    """Render so many messages, and the next request after them, `rounds` times."""
    dialect, talk = dialect_of(profile), conversation(messages + TURN, profile)
    before, after = tuple(talk[:messages]), tuple(talk)
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        renderer = dialect.Renderer(profile)
        whole, _ = _timed(renderer.render, before)
        following, sent = _timed(renderer.render, after)
        dumps, _ = _timed(json.dumps, sent)
        times.append((whole, following, dumps))
    assert sent == dialect.render(after, profile)
    assert not dialect.problems(sent, profile)
    whole_times, after_times, dumps_times = zip(*times, strict=True)
    return Figures(min(whole_times), statistics.median(whole_times), min(after_times), min(dumps_times))


def _timed(function: Callable[[A], T], argument: A) -> tuple[float, T]:
    started = time.perf_counter()
    result = function(argument)
    return time.perf_counter() - started, result


@click.command(help="A history rendered, and the next request of it, beside json.dumps of the same request.")
@click.option("--messages", default=2_000, show_default=True, type=click.IntRange(1), help="How long the history is.")
@click.option("--rounds", default=50, show_default=True, type=click.IntRange(1), help="How often each is done.")
def main(messages: int, rounds: int) -> None:
    """Measure each server's dialect and show a table."""
    headings = ("rendered", "in the median round", "beside dumps", "the next request", "beside dumps")
    table = Table(f"{messages:,} messages, for", *headings)
    table.columns[0].no_wrap = True
    for name in SERVERS:
        found = measure(PROFILES[name], messages, rounds)
        whole, median, after = (f"{seconds * 1000:.2f} ms" for seconds in (found.whole, found.median, found.after))
        beside = [f"{seconds / found.dumps:.2f}x" for seconds in (found.whole, found.after)]
        table.add_row(name, whole, median, beside[0], after, beside[1])
    Console().print(table)
