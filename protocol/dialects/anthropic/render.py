"""History -> the `messages` of Anthropic Messages. The rules are in the package's docstring."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import define

from quiesce.protocol.dialects.arguments import argument_object
from quiesce.protocol.dialects.labels import wire_name, wire_names
from quiesce.protocol.dialects.media import media_of
from quiesce.protocol.dialects.originals import is_listed, like, original_of
from quiesce.protocol.dialects.rendering import (
    BaseRenderer,
    BaseWriter,
    in_words,
    is_own,
    sendable_text,
    system_text,
    too_large,
)
from quiesce.protocol.events import ModelMessage, OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock
from quiesce.protocol.history import NO_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quiesce.protocol.dialects.media import Media
    from quiesce.protocol.dialects.profile import MediaKind, Profile
    from quiesce.protocol.events import Block, JsonObject, ToolMessage, UserMessage
    from quiesce.protocol.model import ModelRequest, ToolSpec

__all__ = ["MESSAGE", "RESULT", "Renderer", "media_block", "render_tools", "request"]

MESSAGE: Final = ("role", "content")
"""The keys of a message that rendering computes."""
RESULT: Final = ("type", "tool_use_id", "content", "is_error")
"""The keys of a result block that rendering computes."""
_CALL: Final = ("type", "id", "name", "input")
_KNOWN: Final = frozenset({"text", "tool_use", "tool_result", "thinking", "redacted_thinking"})
_PLAIN: Final = ("type", "text")
"""The keys of a part that is nothing but text."""
_MEDIA: Final[Mapping[str, MediaKind]] = {"image": "image", "document": "document"}
_IN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
_USERS: Final = frozenset({*_MEDIA, "search_result"})
"""What only a user's message may hold."""
_SERVERS: Final = ("server_tool_use", "mcp_tool_use")
_SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_SEALS: Final = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data", "data")}
"""Reasoning -> the keys of its text and of its seal, which it must come with."""
_MAX_TITLE: Final = 500
"""Characters of a document's title (schema). An image has none: the schema knows no such field."""


def render_tools(tools: Sequence[ToolSpec], profile: Profile) -> list[JsonObject]:
    """The tools on offer. Raises `InvalidInput` if two of them have one name on the wire."""
    names = wire_names((tool.name for tool in tools), profile)
    return [
        {"name": name, "description": tool.description, "input_schema": tool.parameters}
        for name, tool in zip(names, tools, strict=True)
    ]


def request(asked: ModelRequest, profile: Profile, messages: list[JsonObject] | None = None) -> JsonObject:
    """The body of a request: `messages` and, if there are any, `system` and `tools`.

    `messages` are the rendered ones of `asked`, if they are known already.
    """
    body: JsonObject = {"messages": Renderer(profile).render(asked.messages) if messages is None else messages}
    if system := system_text(asked, profile):
        body["system"] = system
    if asked.tools:
        body["tools"] = render_tools(asked.tools, profile)
    return body


@define
class _Writer(BaseWriter):
    def _add_input(self, message: UserMessage) -> None:
        if blocks := [made for block in message.content if (made := _block(block, self.profile)) is not None]:
            self._put("user", blocks, original_of(message, self.profile))

    def _add_answer(
        self, message: ModelMessage, calls: tuple[ToolCallBlock, ...], answers: tuple[ToolMessage, ...]
    ) -> None:
        ids = self._ids.batch(calls) if calls else []
        blocks = _answer(message, ids, self.profile)
        if blocks:
            self._put("assistant", blocks, original_of(message, self.profile))
        if calls:
            self._add_results(answers, ids)

    def _add_results(self, answers: tuple[ToolMessage, ...], ids: list[str]) -> None:
        results: list[JsonObject] = []
        moved: list[JsonObject] = []
        for answer, label in zip(answers, ids, strict=True):
            made, media = _result(answer, label, self.profile)
            results.append(made)
            moved += media
        results += moved
        self._put("user", results, original_of(answers[0], self.profile, "message"))

    def _put(self, role: str, blocks: list[JsonObject], original: JsonObject | None) -> None:
        """Add a message, or make the last one longer if it is of the same role."""
        last = self._out[-1] if self._out else None
        if last is None and role == "assistant" and self.profile.starts_with_user:
            self._begin()
        if last is not None and last["role"] == role:
            self._out[-1] = {**last, "content": [*_as_blocks(last["content"]), *blocks]}
        else:
            self._out.append(like({"role": role, "content": _content(blocks, original)}, original, MESSAGE))

    @staticmethod
    def _is_input(message: JsonObject) -> bool:
        return bool(message["role"] == "user")


class Renderer(BaseRenderer):
    """Renders a history that grows."""

    _writer = _Writer


# --- messages ----------------------------------------------------------------------------------------------------


def _content(blocks: list[JsonObject], original: JsonObject | None) -> str | list[JsonObject]:
    """One plain text is a string, unless it was a list."""
    if (
        len(blocks) == 1
        and tuple(blocks[0]) == _PLAIN
        and blocks[0]["type"] == "text"
        and not is_listed(original, "content")
    ):
        return str(blocks[0]["text"])
    return blocks


def _as_blocks(content: str | list[JsonObject]) -> list[JsonObject]:
    return [_text(content)] if type(content) is str else content  # type: ignore[return-value]  # or a list


def _answer(message: ModelMessage, ids: list[str], profile: Profile) -> list[JsonObject]:
    """The blocks of an answer: text before calls, and what signed thinking holds in its place stays there."""
    own = is_own(message, profile)
    sealed = own and any(map(_sealed, message.content))
    blocks = _ordered(message, ids, profile, own=own, sealed=sealed)
    if sealed and not any(map(_is_thinking, blocks)):  # all of it stood at the end
        return _ordered(message, ids, profile, own=own, sealed=False)
    return blocks


def _ordered(message: ModelMessage, ids: list[str], profile: Profile, *, own: bool, sealed: bool) -> list[JsonObject]:
    labels = iter(ids)
    asked: set[str] = set()
    blocks: list[JsonObject] = []
    behind: list[JsonObject] = []
    in_place = own and (profile.verbatim or sealed)
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            behind.append(_call(block, next(labels), profile, own=own))
            continue
        made = _spoken(block, profile, asked, own=own, sealed=sealed)
        if made is not None:
            stays = in_place and behind and (profile.verbatim or made["type"] != "text")
            (behind if stays else blocks).append(made)
    blocks += behind
    while blocks and _is_thinking(blocks[-1]):  # no server takes that at the end, where a token limit can leave it
        blocks.pop()
    return blocks


def _is_thinking(block: JsonObject) -> bool:
    return block["type"] in _SEALS


def _sealed(block: Block) -> JsonObject | None:
    """The thinking that the server wants back: signed, or redacted with its data."""
    replay = block.replay if isinstance(block, ReasoningBlock) else None
    if not replay:
        return None
    needed = _SEALS.get(str(replay.get("type")))
    if needed is None or type(replay.get("thinking", "")) is not str:
        return None
    text, seal = needed
    return replay if text in replay and type(replay.get(seal)) is str and replay[seal] else None


def _call(block: ToolCallBlock, label: str, profile: Profile, *, own: bool) -> JsonObject:
    made = {
        "type": "tool_use",
        "id": label,
        "name": wire_name(block.name, profile),
        "input": argument_object(block.arguments),
    }
    if own and block.replay:
        made |= {key: value for key, value in block.replay.items() if key not in made}
    return made if block.shape is None else like(made, original_of(block, profile), _CALL)


def _result(answer: ToolMessage, label: str, profile: Profile) -> tuple[JsonObject, list[JsonObject]]:
    """The result block, and the media that have to stand behind the batch."""
    original = original_of(answer, profile) if answer.shape else None
    parts: list[JsonObject] = []
    moved: list[JsonObject] = []
    for block in answer.content:
        made = _block(block, profile)
        if made is None:
            continue
        if made["type"] == "text" or (profile.images_in_results and made["type"] in _IN_RESULTS):
            parts.append(made)
        elif isinstance(block, OpaqueBlock):
            parts.append(_text(f"[{block.data.get('type')}: behind the results]"))
            moved.append(made)
    result: JsonObject = {"type": "tool_result", "tool_use_id": label}
    if answer.is_error and not any(part.get("type") == "text" for part in parts):
        parts.append(_text(NO_WORDS))
    if parts:
        result["content"] = _content(parts, original)
    elif original is not None and "content" in original:
        result["content"] = [] if type(original["content"]) is list else ""
    if answer.is_error or (original is not None and original.get("is_error") is False):
        result["is_error"] = answer.is_error
    return like(result, original, RESULT), moved


# --- blocks ------------------------------------------------------------------------------------------------------


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _block(block: Block, profile: Profile) -> JsonObject | None:
    """What a user says, or a result; None if that is nothing."""
    if isinstance(block, TextBlock):
        return _text_block(block, profile)
    made = _shown(block, profile) if isinstance(block, OpaqueBlock) else None
    if made is None or not isinstance(block, OpaqueBlock):
        words = in_words(block, profile)
        return _text(words) if words else None
    words = too_large(block, made, _MEDIA.get(made["type"]), profile)
    return _text(words) if words else made


def _shown(block: OpaqueBlock, profile: Profile) -> JsonObject | None:
    """The block that shows it, if the profile takes such."""
    if (original := _given_back(block, profile)) is not None:
        return original
    media = media_of(block.data, profile)
    return None if media is None else media_block(media)


def _given_back(block: OpaqueBlock, profile: Profile) -> JsonObject | None:
    """The original of a user's block, if such may stand in a user's message."""
    original = original_of(block, profile)
    kind = None if original is None else original.get("type")
    if type(kind) is not str or not kind or kind in _KNOWN or kind in _SERVERS or kind.endswith("_tool_result"):
        return None
    return original if _MEDIA.get(kind) is None or _MEDIA[kind] in profile.media else None


def _spoken(block: Block, profile: Profile, asked: set[str], *, own: bool, sealed: bool) -> JsonObject | None:
    """What an assistant says beside its calls. `asked`: the calls of the server's own tools that stand before it."""
    if isinstance(block, TextBlock):
        return _text_block(block, profile)
    if not isinstance(block, OpaqueBlock):
        return _sealed(block) if sealed else None
    original = original_of(block, profile)
    if original is None and own and "wire" not in block.data:
        original = block.data
    if original is not None and _is_servers(original, asked):
        return original
    return _text(in_words(block, profile))


def _is_servers(block: JsonObject, asked: set[str]) -> bool:
    """Whether `block` is one of the server's own tools, whole and with its call before it."""
    kind, call_id, answered = block.get("type"), block.get("id"), block.get("tool_use_id")
    if type(kind) is not str or not kind or kind in _KNOWN or kind in _USERS:
        return False
    if kind.endswith("_tool_result"):
        return type(answered) is str and answered in asked
    if kind == "server_tool_use" and (type(call_id) is not str or _SERVER_ID.fullmatch(call_id) is None):
        return False
    if kind in _SERVERS and type(call_id) is str:
        asked.add(call_id)
    return True


def _text_block(block: TextBlock, profile: Profile) -> JsonObject | None:
    text = sendable_text(block.text, profile)
    if not text or text.isspace():  # nothing blank in this dialect, whatever the profile says
        return None
    made = _text(text)
    return made if block.shape is None else like(made, original_of(block, profile), ("text",))


def media_block(media: Media) -> JsonObject | None:
    """The content block that shows `media`, or None if there is none for it."""
    if media.kind == "audio":
        return None
    if media.url is not None:
        source: JsonObject = {"type": "url", "url": media.url}
    elif media.media_type == "text/plain":
        return None
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    made: JsonObject = {"type": media.kind, "source": source}
    return {**made, "title": media.name[:_MAX_TITLE]} if media.name and media.kind == "document" else made
