"""Dialects: the languages that model providers speak, and the way from history to requests and back. Pure.

One sub-package each for OpenAI Chat Completions (`chat`), OpenAI Responses (`responses`) and Anthropic Messages
(`anthropic`), with the same public names; `DIALECTS` is the table of them. What differs between servers of one dialect
is a value, the `Profile`. The theory of a dialect stands in the docstring of its package.

- `render` makes the messages of a request of any history, so that the server takes them;
- `read` makes history of the messages of a request, whoever wrote them;
- `problems` tells what a server would refuse in such messages, and knows nothing of the other two;
- `parse` and `Stream` make deltas of replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from attrs import frozen

from quiesce.protocol.dialects import anthropic, chat, responses
from quiesce.protocol.dialects.profile import PROFILES, DialectName, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quiesce.protocol.dialects.problem import Problem
    from quiesce.protocol.dialects.rendering import BaseRenderer
    from quiesce.protocol.dialects.replies import ReplyStream
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import ModelRequest, ToolSpec, Visible

__all__ = ["DIALECTS", "PROFILES", "Dialect", "DialectName", "Profile", "dialect_of"]


class _Request(Protocol):
    def __call__(
        self, asked: ModelRequest, profile: Profile, messages: list[JsonObject] | None = None
    ) -> JsonObject: ...


@frozen(kw_only=True)
class Dialect:
    """One dialect, as the functions that speak it. See the package for what each does."""

    name: DialectName
    messages_key: str
    """Under which key of a request body the messages stand."""
    Renderer: Callable[[Profile], BaseRenderer]
    render_tools: Callable[[Sequence[ToolSpec], Profile], list[JsonObject]]
    request: _Request
    """The body of a request: messages, system prompt, tools; none of the options of a model or an SDK."""
    read: Callable[[object, Profile], tuple[Visible, ...]]
    problems: Callable[[object, Profile], list[Problem]]
    tool_problems: Callable[[object, Profile], list[Problem]]
    parse: Callable[[JsonObject], tuple[Block, ...]]
    Stream: Callable[[], ReplyStream]

    def render(self, messages: Sequence[Visible], profile: Profile) -> list[JsonObject]:
        """The wire messages of `messages`, which may be any. See `Renderer` for a history that grows."""
        return self.Renderer(profile).render(messages)


DIALECTS: Final[Mapping[str, Dialect]] = {
    "chat": Dialect(
        name="chat",
        messages_key="messages",
        Renderer=chat.Renderer,
        render_tools=chat.render_tools,
        request=chat.request,
        read=chat.read,
        problems=chat.problems,
        tool_problems=chat.tool_problems,
        parse=chat.parse,
        Stream=chat.Stream,
    ),
    "responses": Dialect(
        name="responses",
        messages_key="input",
        Renderer=responses.Renderer,
        render_tools=responses.render_tools,
        request=responses.request,
        read=responses.read,
        problems=responses.problems,
        tool_problems=responses.tool_problems,
        parse=responses.parse,
        Stream=responses.Stream,
    ),
    "anthropic": Dialect(
        name="anthropic",
        messages_key="messages",
        Renderer=anthropic.Renderer,
        render_tools=anthropic.render_tools,
        request=anthropic.request,
        read=anthropic.read,
        problems=anthropic.problems,
        tool_problems=anthropic.tool_problems,
        parse=anthropic.parse,
        Stream=anthropic.Stream,
    ),
}
"""Name -> dialect."""


def dialect_of(profile: Profile) -> Dialect:
    """The dialect that the server of `profile` speaks."""
    return DIALECTS[profile.dialect]
