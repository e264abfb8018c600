"""The `messages` of Anthropic Messages -> history. Nothing about them is trusted, and nothing of them is lost.

A block says by its type whose it is, whatever the role of its message: a `tool_use` is the assistant's, a `tool_result`
is a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define

from quiesce.protocol.dialects.anthropic.render import MESSAGE, media_block
from quiesce.protocol.dialects.arguments import text_of_arguments
from quiesce.protocol.dialects.media import media_of, neutral
from quiesce.protocol.dialects.originals import blanked, opaque, unknown, with_original
from quiesce.protocol.dialects.reading import item_list, label, model_source, reader_source, same, text_at
from quiesce.protocol.events import ModelMessage, ReasoningBlock, TextBlock, ToolCallBlock, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from quiesce.protocol.dialects.profile import MediaKind, Profile
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Visible

__all__ = ["read"]

_CALL: Final = ("type", "id", "name", "input")


def read(messages: object, profile: Profile) -> tuple[Visible, ...]:
    """The neutral messages of a message list that somebody else wrote.

    Raises `InvalidInput`, naming the position, for what is no list of objects. Everything else is read: what has no
    place in a neutral message rides along, and is given back to the server of `profile`.
    """
    return tuple(
        message
        for at, item in enumerate(item_list(messages, "messages"))
        for message in _Item(at, item, profile).messages()
    )


@define
class _Item:
    """One wire message, and the neutral messages that it becomes."""

    at: int
    item: JsonObject
    profile: Profile
    _made: list[Visible] = Factory(list)
    _held: list[Block] = Factory(list)
    _by: str = "user"

    def messages(self) -> Iterator[Visible]:
        """In order: a run of blocks of one speaker is one message, each result is one."""
        role = text_at(self.item, "role") or "user"
        for part in self._parts():
            kind = part.get("type") if type(part) is dict else None
            if kind == "tool_result":
                self._close()
                self._made.append(self._result(part))
                continue
            speaker = "assistant" if kind == "tool_use" else role
            if speaker != self._by:
                self._close()
                self._by = speaker
            self._held.append(_block(part, self.profile))
        self._close()
        return iter(self._with_form())

    def _parts(self) -> list[Any]:
        content = self.item.get("content")
        if type(content) is list:
            return content
        return [] if content is None else [content]

    def _close(self) -> None:
        if self._held:
            self._made.append(self._message(tuple(self._held)))
            self._held = []

    def _message(self, content: tuple[Block, ...]) -> Visible:
        number = label(self.at, len(self._made))
        if self._by == "assistant":
            return ModelMessage("assistant", content, model_source(self.profile), number)
        return UserMessage(content, reader_source(self.profile), self._by, number)

    def _result(self, part: JsonObject) -> ToolMessage:
        content = part.get("content")
        parts = content if type(content) is list else [] if content is None else [content]
        blocks = tuple(_block(item, self.profile) for item in parts)
        failed = part.get("is_error") is True
        call_id, number = text_at(part, "tool_use_id"), label(self.at, len(self._made))
        message = ToolMessage("tool", call_id, blocks, is_error=failed, id=number)
        usual = ("type", "tool_use_id", *(["content"] if parts else []), *(["is_error"] if failed else []))
        if tuple(part) == usual and part.get("type") == "tool_result" and _is_usual(content, blocks):
            return message
        kept = blanked(part, ("tool_use_id", "content"))
        return with_original(message, self.profile, kept)

    def _with_form(self) -> list[Visible]:
        """The messages; the first remembers the form of the whole if it is not the usual one."""
        item, made = self.item, self._made
        if not made:
            return made
        first = made[0]
        blocks = first.content if len(made) == 1 and not isinstance(first, ToolMessage) else ()
        usual_content = _is_usual(item.get("content"), blocks) if blocks else type(item.get("content")) is list
        if tuple(item) == MESSAGE and usual_content:
            return made
        part = "message" if isinstance(first, ToolMessage) else "object"
        return [with_original(first, self.profile, blanked(item, MESSAGE), part), *made[1:]]


def _is_usual(content: object, blocks: tuple[Block, ...]) -> bool:
    """Whether what would be rendered of `blocks` has the form of `content`."""
    if not blocks or content == "":
        return content is None
    plain = len(blocks) == 1 and isinstance(blocks[0], TextBlock) and blocks[0].shape is None
    return type(content) is (str if plain else list)


def _block(part: Any, profile: Profile) -> Block:  # noqa: ANN401 - not looked at yet
    if type(part) is str:
        return TextBlock(part)
    kind = part.get("type") if type(part) is dict else None
    reader = _READERS.get(kind) if type(kind) is str else None
    block = None if reader is None else reader(part, profile)
    return unknown(part, profile) if block is None else block


def _text(part: JsonObject, profile: Profile) -> Block | None:
    if type(part.get("text")) is not str:
        return None
    block = TextBlock(part["text"])
    return block if tuple(part) == ("type", "text") else with_original(block, profile, blanked(part, ("text",)))


def _call(part: JsonObject, profile: Profile) -> Block | None:
    arguments = part.get("input")
    text = "" if arguments == {} else text_of_arguments(arguments)
    block = ToolCallBlock(text_at(part, "id"), text_at(part, "name"), text or "{}")
    return block if tuple(part) == _CALL else with_original(block, profile, blanked(part, ("id", "name", "input")))


def _thinking(part: JsonObject, _: Profile) -> Block | None:
    """Thinking without its signature is text for people: it cannot be given back."""
    if type(part.get("thinking")) is not str:
        return None
    return ReasoningBlock(part["thinking"], replay=part if text_at(part, "signature") else None)


def _redacted(part: JsonObject, _: Profile) -> Block | None:
    return ReasoningBlock(replay=part) if text_at(part, "data") else None


def _media(part: JsonObject, profile: Profile) -> Block | None:
    source = part.get("source")
    if type(source) is not dict:
        return None
    kind: MediaKind = "image" if part["type"] == "image" else "document"
    if source.get("type") == "base64":
        data = neutral(kind, media_type=source.get("media_type"), data=source.get("data"), name=part.get("title"))
    elif source.get("type") == "text" and type(source.get("data")) is str:
        return opaque({"type": "resource", "mediaType": "text/plain", "text": source["data"]}, profile, part)
    else:
        data = neutral(kind, source.get("url"), name=part.get("title")) if source.get("type") == "url" else None
    if data is None:
        return None
    media = media_of(data, profile)
    return opaque(data, profile, None if media is not None and same(media_block(media), part) else part)


_READERS: Final[Mapping[str, Callable[[JsonObject, Profile], Block | None]]] = {
    "text": _text,
    "tool_use": _call,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "image": _media,
    "document": _media,
}
"""Type of a block -> what reads it; it gives None for a block that is not what its type says."""
