"""The fold that renders a history in any dialect: what was rendered stays, only what is new is rendered.

A dialect gives a writer, which turns one exchange after the other into wire messages. The `Renderer` keeps a writer and
what it has written, and feeds it what came since. So what was sent stays a prefix of what is sent next, and prompt
caches hold (the last message may grow: messages of one role are one message).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from attrs import Factory, define

from quiesce.protocol.dialects.cleaning import cleaned
from quiesce.protocol.dialects.exchanges import exchanges, exchanges_in_order
from quiesce.protocol.dialects.labels import CallIds
from quiesce.protocol.dialects.media import described, longest_text, resource_text
from quiesce.protocol.events import ModelMessage, OpaqueBlock, ToolCallBlock
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quiesce.protocol.dialects.exchanges import Exchange
    from quiesce.protocol.dialects.profile import MediaKind, Profile
    from quiesce.protocol.events import Block, JsonObject, ToolMessage, UserMessage
    from quiesce.protocol.model import ModelRequest, Visible

__all__ = [
    "NO_OUTPUT",
    "NO_REASONING",
    "BaseRenderer",
    "BaseWriter",
    "in_words",
    "is_own",
    "sendable_text",
    "system_text",
    "too_large",
]

BEGIN: Final = "Begin."
"""What the user says first where a history starts with the assistant and the server wants a user, and where nothing
was said at all: no server takes a request without a message."""
CONTINUE: Final = "Continue."
"""What the user says last where a history ends with the assistant and the server wants input."""
NO_OUTPUT: Final = "(no output)"
"""The text of a result that has none."""
NO_REASONING: Final = "(No reasoning of this answer is known.)"
"""What stands for reasoning where a server wants some and another model made the answer."""


@define
class BaseWriter(ABC):
    """Writes one exchange after the other. Each dialect's writer is this with its own messages."""

    profile: Profile
    _out: list[JsonObject] = Factory(list)
    _ids: CallIds = Factory(lambda self: CallIds(self.profile), takes_self=True)

    def add(self, exchange: Exchange) -> None:
        """Write the next exchange."""
        message, calls, answers = exchange
        if isinstance(message, ModelMessage):
            self._add_answer(message, calls, answers)
        else:
            self._add_input(message)

    def written(self) -> list[JsonObject]:
        """All wire messages up to now, in a list of its own. The messages are never changed afterwards."""
        if not self._out:
            return [_said_by_user(BEGIN)]
        if self.profile.ends_with_input and not self._is_input(self._out[-1]):
            return [*self._out, _said_by_user(CONTINUE)]
        return self._out.copy()

    def _begin(self) -> None:
        """Have the user say something first."""
        self._out.append(_said_by_user(BEGIN))

    @abstractmethod
    def _add_input(self, message: UserMessage) -> None: ...

    @abstractmethod
    def _add_answer(
        self, message: ModelMessage, calls: tuple[ToolCallBlock, ...], answers: tuple[ToolMessage, ...]
    ) -> None: ...

    @staticmethod
    @abstractmethod
    def _is_input(message: JsonObject) -> bool:
        """Whether a wire message is something that the model answers."""


def _said_by_user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


class BaseRenderer:
    """Renders a history that grows. Each dialect's `Renderer` is this with its own writer."""

    _writer: Callable[[Profile], BaseWriter]
    _seen: tuple[Visible, ...]

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._start()

    def render(self, messages: Sequence[Visible]) -> list[JsonObject]:
        """The wire messages of `messages`.

        If these extend those of the last call (they are compared by identity, then by value), only the new ones are
        rendered, and otherwise all. The list is the caller's; the objects in it must not be changed.
        """
        messages = tuple(messages)
        new = self._new(messages)
        if new is None:
            self._start()
            new = exchanges(cleaned(messages))
        for exchange in new:
            self._writing.add(exchange)
        self._seen = messages
        return self._writing.written()

    def _start(self) -> None:
        self._writing = type(self)._writer(self.profile)  # noqa: SLF001 - its own
        self._seen = ()

    def _new(self, messages: tuple[Visible, ...]) -> list[Exchange] | None:
        """What has to be written after what is written; None if that has to be written anew."""
        known = len(self._seen)
        if messages[:known] != self._seen:
            return None
        return exchanges_in_order(cleaned(messages[known:]))


def is_own(message: ModelMessage, profile: Profile) -> bool:
    """Whether the server and model of `profile` made `message`: then it gets back what it attached."""
    source = message.source
    return bool(source.get("provider") == profile.provider and source.get("model") == profile.model)


def system_text(asked: ModelRequest, profile: Profile) -> str:
    """The system prompt of a request as it can be sent, or "" if there is none."""
    system = asked.system or ""
    return sendable_text(system, profile) if system.strip() else ""


def sendable_text(text: str, profile: Profile) -> str:
    """`text` as it can be sent, or "" if it is blank and the profile does not leave it so."""
    if not text or (text.isspace() and not profile.verbatim):
        return ""
    if not text.isascii() or "\0" in text:  # nearly no text needs the look into it
        text = clean_text(text)
    if profile.max_text is None or len(text) <= profile.max_text:
        return text
    note = f"\n[cut: {len(text)} characters in all]"
    return text[: profile.max_text - len(note)] + note


def too_large(block: OpaqueBlock, part: JsonObject, kind: MediaKind | None, profile: Profile) -> str:
    """The line that stands for `part`, which shows `block`, if that is longer than the server takes; else ""."""
    length = longest_text(part)
    if kind is None or profile.max_media.allow(kind, length):
        return ""
    why = f"too large to be shown here, {length:,} characters where {profile.max_media.of(kind):,} go"
    return sendable_text(described(block.data, why), profile)


def in_words(block: Block, profile: Profile) -> str:
    """What a block that is no text says where there is text alone; "" if nothing.

    Calls and thoughts in input come from logs made elsewhere alone.
    """
    if isinstance(block, OpaqueBlock):
        inside = resource_text(block.data) or ""
        said = inside if inside.strip() else described(block.data)
    else:
        said = f"[call of {block.name}: {block.arguments}]" if isinstance(block, ToolCallBlock) else block.text
    return sendable_text(said, profile) if said.strip() else ""
