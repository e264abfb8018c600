"""What a fake provider remembers of what was sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

if TYPE_CHECKING:
    from .validator import Problem

__all__ = ["SECRET_HEADERS", "Breach", "Request"]

SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})
"""What is never recorded: tests print records."""


@define
class Request:
    """One request as it arrived; headers in lower case and without keys. `status` is what it was answered, 0 before."""

    number: int
    connection: int
    dialect: str
    path: str
    headers: dict[str, str]
    body: Any
    request_id: str
    status: int = 0
    problems: list[Problem] = field(factory=list)

    @property
    def model(self):
        """The model that is asked."""
        return self.body.get("model", "")

    @property
    def items(self):
        """The messages, or the items of Responses; an input that is a string is one user message."""
        found = self.body.get("input" if self.dialect == "responses" else "messages") or []
        return [{"role": "user", "content": found}] if isinstance(found, str) else found

    @property
    def depth(self):
        """How many answers of a model the conversation has. Items of Responses that follow each other are one."""
        own = [_is_models(item) for item in self.items]
        return sum(now and not before for before, now in zip([False, *own], own, strict=False))

    @property
    def texts(self):
        """The text of each item, in order."""
        return [_text(item) for item in self.items]

    @property
    def last_text(self):
        """What the last message of the user says."""
        said = (_text(item) for item in reversed(self.items) if item.get("role") == "user")
        return next((text for text in said if text), "")


@frozen(repr=False)
class Breach:
    """A request that was refused, and why."""

    request: Request
    problems: tuple[Problem, ...]

    def __str__(self):
        return f"request {self.request.number} ({self.request.dialect}): {'; '.join(map(str, self.problems))}"

    __repr__ = __str__  # what a failing `assert provider.refused == []` shows


def _is_models(item):
    return item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning"}


def _text(item):
    content = item.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(
        part.get("text", "") for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
