"""What a fake provider is told to answer: actions, which make a reply; replies, which make a script; and both in JSON.

A reply is a list of actions, played in order. Blocks (text, thinking, calls) come out as the dialect streams them; a
`Finish` is added at the end where the reply has none and no fault ended it before. An empty list is an empty answer.
A request that does not ask for a stream gets the same reply in one piece.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field, fields, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .records import Request

__all__ = [
    "Action",
    "Call",
    "Calls",
    "Cut",
    "End",
    "ErrorEvent",
    "Event",
    "Finish",
    "Hang",
    "Malformed",
    "Refuse",
    "Reply",
    "Reset",
    "Script",
    "Text",
    "Thinking",
    "Usage",
    "Wait",
    "by_depth",
    "pieces_of",
    "read_script",
    "refuse",
]


# --- what a model says -------------------------------------------------------------------------------------------


@frozen
class Text:
    """Text, in `pieces` parts; with a `gate`, each part waits there first."""

    text: str
    pieces: int = 1
    gate: str | None = None


@frozen
class Thinking:
    """Reasoning: a thinking block with its signature, a reasoning item with encrypted content, `reasoning_content`.

    `redacted` makes it a block without words (Anthropic) or an item without a summary (Responses). Signatures are made
    by the server, which refuses them changed (`seals.py`).
    """

    text: str = ""
    pieces: int = 1
    gate: str | None = None
    redacted: bool = False


@frozen
class Call:
    """A tool call. `arguments` is an object, or text that is sent as it is.

    `id` None has one made in the provider's style; "" is an empty one. `index` is the number it is streamed under,
    where that shall not be the next free one. `pieces=0` has the arguments come with the name in one fragment, where
    the dialect can do that. `cut` sends only so many characters of the arguments and leaves the call open: for a
    `Cut`, `Reset`, `Hang` or `Finish("length")` in the middle of it. `extra` are fields of the server's own beside the
    usual ones, in Chat Completions; servers whose rules know them want them back (`Rules.call_fields`).
    """

    name: str
    arguments: dict[str, Any] | str = field(factory=dict)
    id: str | None = None
    index: int | None = None
    pieces: int = 1
    gate: str | None = None
    cut: int | None = None
    extra: dict[str, Any] = field(factory=dict)

    @property
    def raw(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@frozen
class Calls:
    """Calls whose arguments arrive interleaved: all begin, then a piece of each in turns, then all end."""

    calls: tuple[Call, ...] = field(converter=tuple)


@frozen
class Usage:
    """Tokens that the reply tells of, instead of made-up ones."""

    input: int = 10
    output: int = 5
    cached: int = 0
    reasoning: int = 0


@frozen
class Finish:
    """Why the model stopped: "stop", "tool_calls", "length" or "refusal", or any word of the dialect itself."""

    reason: str


# --- what goes wrong ---------------------------------------------------------------------------------------------


@frozen
class Refuse:
    """An HTTP error instead of a reply. See `refuse`."""

    status: int
    message: str | None = None
    retry_after: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(factory=dict)
    body: str | None = None


def refuse(status, message=None, *, retry_after=None, code=None, headers=None, body=None):
    """An HTTP error with the provider's usual words for `status` (401, 429, 500, 529, ...) where none are given.

    `retry_after` is the header of that name: seconds or a date. `body` replaces the whole error body, for gateways
    that answer in HTML.
    """
    return Refuse(status, message, None if retry_after is None else str(retry_after), code, headers or {}, body)


@frozen
class ErrorEvent:
    """An error in the middle of the stream, after which the body ends.

    `failed` has Responses tell it with `response.failed` instead of an `error` event.
    """

    message: str = "The server had a fault in the middle of the stream."
    code: str | None = None
    failed: bool = False


@frozen
class Event:
    """An event of the test's own: `data` is sent as it is, with the name `event` if that is given."""

    data: dict[str, Any] | str
    event: str | None = None


@frozen
class Malformed:
    """An event whose data is no JSON. What follows is played as ever."""

    data: str = '{"choices": [{"delta": {"content": "half of'


@frozen
class Wait:
    """Nothing happens until the gate opens. As the first action: not even the headers are sent."""

    gate: str


@frozen
class Hang:
    """Nothing more happens until the client goes away."""


@frozen
class Cut:
    """The connection closes, with the body unfinished."""


@frozen
class Reset:
    """The connection is reset. As the first action: before anything is answered."""


@frozen
class End:
    """The body ends as it should, but nothing was said of a finish: a gateway that lost its upstream."""


Action: TypeAlias = (
    Text
    | Thinking
    | Call
    | Calls
    | Usage
    | Finish
    | Refuse
    | ErrorEvent
    | Event
    | Malformed
    | Wait
    | Hang
    | Cut
    | Reset
    | End
)
Reply: TypeAlias = "Sequence[Action]"


def pieces_of(text, count):
    """The text in `count` parts of about the same length, or as many as it has characters; no part is empty."""
    if not text:
        return []
    count = max(1, min(count, len(text)))
    marks = [len(text) * part // count for part in range(count + 1)]
    return [text[start:stop] for start, stop in pairwise(marks)]


# --- scripts -----------------------------------------------------------------------------------------------------


@define
class Script:
    """Replies in the order in which requests are accepted; or what a function of the request gives.

    `otherwise` is played when none is left; without it, such a request is refused.
    """

    replies: list[Reply] | Callable[[Request], Reply | None]
    otherwise: Reply | None = None
    _played: int = 0

    def reply_to(self, request):
        """The reply to this request, or None if the script has none."""
        if callable(self.replies):
            reply = self.replies(request)
        else:
            reply = self.replies[self._played] if self._played < len(self.replies) else None
            self._played += 1
        return self.otherwise if reply is None else reply


def by_depth(replies):
    """A script that picks the reply by the number of model messages in the request."""
    return lambda request: replies[request.depth] if request.depth < len(replies) else None


_KEYS = {
    "text": Text,
    "thinking": Thinking,
    "call": Call,
    "calls": Calls,
    "usage": Usage,
    "finish": Finish,
    "error": Refuse,
    "error_event": ErrorEvent,
    "event": Event,
    "malformed": Malformed,
    "wait": Wait,
    "hang": Hang,
    "cut": Cut,
    "reset": Reset,
    "end": End,
}


def read_script(data):
    """A script from JSON: a list of replies, or `{"replies": [...], "otherwise": [...], "by": "order" | "depth"}`.

    A reply is a list of objects. The first key of each names the action and has its first field, the other keys are its
    other fields: `{"text": "Hello", "pieces": 2}`, `{"call": "read", "arguments": {"path": "a"}}`, `{"error": 429,
    "retry_after": "1"}`, `{"calls": [{"call": "a"}, {"call": "b"}]}`. What has no fields, or shall have the usual ones,
    has `true`: `{"hang": true}`.

    Raises:
        ValueError: an object names no action, or a field that it does not have.

    """
    data = {"replies": data} if isinstance(data, list) else data
    replies = [_reply(reply) for reply in data["replies"]]
    otherwise = data.get("otherwise")
    return Script(
        by_depth(replies) if data.get("by") == "depth" else replies,
        None if otherwise is None else _reply(otherwise),
    )


def _reply(items):
    return [_action(item) for item in items]


def _action(item):
    (key, first), *others = item.items()
    kind = _KEYS.get(key)
    if kind is None:
        raise ValueError(f"{key!r} is no action; there are {', '.join(_KEYS)}")
    if kind is Calls:
        first = _reply(first)
    given = dict(others) if first is True else {fields(kind)[0].name: first, **dict(others)}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{item}: {error}") from None
