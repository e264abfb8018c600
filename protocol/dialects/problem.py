"""`Problem`: one thing in a message list that a provider refuses, where it stands, and the `Rule` that it breaks."""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from attrs import frozen

__all__ = ["Path", "Problem", "Rule", "Strength", "position"]

Path: TypeAlias = tuple[str | int, ...]
"""Where something stands: `("messages", 3, "content")`."""

Strength: TypeAlias = Literal["spec", "doc", "quoted", "service", "measured", "own"]
"""How strong the evidence for a rule is.

The vendor's schema or validator code; the vendor's text; the same as quoted in a public thread; an error of the live
service as quoted in public reports; somebody's experiment. `own`: no provider says so, it is what is safe.
"""


@frozen
class Rule:
    """One rule of a provider's contract."""

    id: str
    """Short and stable; a program may read it."""
    wants: str
    """What the provider wants, as the second half of a sentence that says what was found."""
    source: str
    """Where that is known from: a schema, or a public thread."""
    strength: Strength
    about_pairing: bool = False
    """Whether it says which result belongs to which call and where: what repair sees to."""


@frozen
class Problem:
    """What is wrong at one place of a list. `str()` of it is one line."""

    position: str
    """A path into the request, such as `messages[3].content[0].tool_use_id` or `input[2].call_id`."""
    rule: str
    """The id of the rule that is broken."""
    words: str
    """What was found, and what the provider wants. One line."""
    about_pairing: bool = False
    """As in the rule."""

    def __str__(self) -> str:
        return f"{self.position}: {self.rule}: {self.words}"


def position(at: Path) -> str:
    """`at` as a `Problem` says it. One line of ASCII."""
    return "".join(_step(step) for step in at).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step.isascii() and step.isidentifier():
        return f".{step}"
    return f"[{json.dumps(step[:60])}]"
