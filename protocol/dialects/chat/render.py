"""History -> the `messages` of Chat Completions. The rules are in the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define

from quiesce.protocol.dialects.arguments import argument_text
from quiesce.protocol.dialects.labels import wire_name, wire_names
from quiesce.protocol.dialects.media import media_of
from quiesce.protocol.dialects.originals import is_listed, like, original_of
from quiesce.protocol.dialects.rendering import (
    NO_OUTPUT,
    NO_REASONING,
    BaseRenderer,
    BaseWriter,
    in_words,
    is_own,
    sendable_text,
    system_text,
    too_large,
)
from quiesce.protocol.events import ModelMessage, OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quiesce.protocol.dialects.media import Media
    from quiesce.protocol.dialects.profile import MediaKind, Profile
    from quiesce.protocol.events import Block, JsonObject, ToolMessage, UserMessage
    from quiesce.protocol.model import ModelRequest, ToolSpec

__all__ = ["COMPUTED", "Renderer", "media_part", "render_tools", "request"]

COMPUTED: Final = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content")
"""The keys of a message that rendering computes; others are its original's."""
_CALL: Final = ("id", "function")
_FUNCTION: Final = ("name", "arguments")
_UNSAID: Final = (ToolCallBlock, ReasoningBlock)
"""What stands beside the content of an answer, or nowhere."""
_PLAIN: Final = ("type", "text")
"""The keys of a part that is nothing but text."""
_MEDIA: Final[Mapping[str, MediaKind]] = {"image_url": "image", "input_audio": "audio", "file": "document"}
_AUDIO_FORMATS: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}


def render_tools(tools: Sequence[ToolSpec], profile: Profile) -> list[JsonObject]:
    """The tools on offer. Raises `InvalidInput` if two of them have one name on the wire."""
    names = wire_names((tool.name for tool in tools), profile)
    return [
        {
            "type": "function",
            "function": {"name": name, "description": tool.description, "parameters": tool.parameters},
        }
        for name, tool in zip(names, tools, strict=True)
    ]


def request(asked: ModelRequest, profile: Profile, messages: list[JsonObject] | None = None) -> JsonObject:
    """The body of a request: `messages` and, if there are any, `tools`. The system prompt is the first message.

    `messages` are the rendered ones of `asked`, if they are known already.
    """
    rendered = Renderer(profile).render(asked.messages) if messages is None else messages
    system = system_text(asked, profile)
    body: JsonObject = {"messages": [{"role": "system", "content": system}, *rendered] if system else rendered}
    if asked.tools:
        body["tools"] = render_tools(asked.tools, profile)
    return body


@define
class _Writer(BaseWriter):
    _begun: bool = False

    def _add_input(self, message: UserMessage) -> None:
        original = original_of(message, self.profile)
        role = _role(message.role, self.profile)
        say = _part if role == "user" else _spoken
        if parts := [part for block in message.content if (part := say(block, self.profile)) is not None]:
            self._put(like({"role": role, "content": _content(parts, self.profile, original)}, original, COMPUTED))

    def _add_answer(
        self, message: ModelMessage, calls: tuple[ToolCallBlock, ...], answers: tuple[ToolMessage, ...]
    ) -> None:
        profile, original = self.profile, original_of(message, self.profile)
        said = [block for block in message.content if not isinstance(block, _UNSAID)]
        parts = [part for block in said if (part := _beside_calls(block, profile)) is not None]
        if original is not None and _is_aside(original) and profile.null_content:
            parts = []
        elif not parts and not calls:
            return
        own = is_own(message, profile)
        made: JsonObject = {"role": "assistant", "content": _content(parts, profile, original)}
        if profile.reasoning_content and (calls or profile.verbatim):
            _add_reasoning(made, _thoughts(message, profile), profile)
        ids = self._ids.batch(calls) if calls else []
        if calls:
            pairs = zip(calls, ids, strict=True)
            made["tool_calls"] = [_call(block, label, profile, own=own) for block, label in pairs]
        if original is not None:
            made = like(made, original, COMPUTED)
            if made["content"] is None and "content" not in original:
                del made["content"]
        self._put(made)
        if calls:
            self._add_results(answers, ids)

    def _add_results(self, answers: tuple[ToolMessage, ...], ids: list[str]) -> None:
        moved: list[JsonObject] = []
        for answer, label in zip(answers, ids, strict=True):
            original = original_of(answer, self.profile) if answer.shape else None
            parts, media = _result(answer, self.profile)
            content = _content(parts or [_text(NO_OUTPUT)], self.profile, original)
            made = {"role": "tool", "tool_call_id": label, "content": content}
            self._out.append(made if original is None else like(made, original, COMPUTED))
            if media:
                moved += [_text(f"From the result of call {label}:"), *media]
        if moved:
            self._put({"role": "user", "content": _content(moved, self.profile, None)})

    def _put(self, message: JsonObject) -> None:
        """Add a message, or make the last one longer if it is of the same role."""
        role = message["role"]
        if not self._begun and role not in self.profile.input_roles:
            self._begun = True
            if self.profile.starts_with_user and role != "user":
                self._begin()
        if self._out and self._out[-1]["role"] == role and _merges(self._out[-1], message, self.profile):
            self._out[-1] = _merged(self._out[-1], message, self.profile)
        else:
            self._out.append(message)

    @staticmethod
    def _is_input(message: JsonObject) -> bool:
        return message["role"] in ("user", "tool")


class Renderer(BaseRenderer):
    """Renders a history that grows."""

    _writer = _Writer


def _is_aside(original: JsonObject) -> bool:
    """Whether all that the answer says stood beside its content: a refusal, a reference to audio."""
    return original.get("content") is None and any(original.get(key) for key in ("refusal", "audio"))


# --- messages ----------------------------------------------------------------------------------------------------


def _role(role: str, profile: Profile) -> str:
    if role in profile.input_roles or role == "user":
        return role
    return "system" if role == "developer" and "system" in profile.input_roles else "user"


def _content(parts: list[JsonObject], profile: Profile, original: JsonObject | None) -> str | list[JsonObject] | None:
    """One plain text is a string, unless it was a list; so are all texts where there are no lists of them. Nothing, as
    beside calls, is null or an empty string.
    """
    if not parts:
        return None if profile.null_content else ""
    if len(parts) == 1 and tuple(parts[0]) == _PLAIN and not (profile.text_parts and is_listed(original, "content")):
        return str(parts[0]["text"])
    if not profile.text_parts and all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _merges(last: JsonObject, message: JsonObject, profile: Profile) -> bool:
    """Whether two messages of one role become one. Two speakers stay two, unless the roles must alternate."""
    return profile.merge and (profile.starts_with_user or last.get("name") == message.get("name"))


def _merged(last: JsonObject, message: JsonObject, profile: Profile) -> JsonObject:
    parts = [*_as_parts(last.get("content")), *_as_parts(message.get("content"))]
    merged = {**last, **message, "content": _content(parts, profile, None)}
    thoughts = [item["reasoning_content"] for item in (last, message) if "reasoning_content" in item]
    return {**merged, "reasoning_content": "\n\n".join(thoughts)} if len(thoughts) > 1 else merged


def _as_parts(content: str | list[JsonObject] | None) -> list[JsonObject]:
    if type(content) is str and content:
        return [_text(content)]
    return content or []  # type: ignore[return-value]  # what is no string is a list


def _add_reasoning(made: JsonObject, thoughts: str, profile: Profile) -> None:
    said = sendable_text(thoughts, profile) or ("" if profile.verbatim else NO_REASONING)
    if said:
        made["reasoning_content"] = said


def _call(block: ToolCallBlock, label: str, profile: Profile, *, own: bool) -> JsonObject:
    name, arguments = wire_name(block.name, profile), argument_text(block.arguments, profile)
    made: JsonObject = {"id": label, "type": "function", "function": {"name": name, "arguments": arguments}}
    if own and block.replay:
        made |= {key: value for key, value in block.replay.items() if key not in made}
    original = original_of(block, profile) if block.shape else None
    if original is None:
        return made
    custom = original.get("custom")
    if original.get("type") == "custom" and type(custom) is dict:
        return {**original, "id": label, "custom": {**custom, "name": name}}
    function = original.get("function")
    if type(function) is dict:
        made["function"] = like(made["function"], function, _FUNCTION)
    return like(made, original, _CALL)


# --- blocks ------------------------------------------------------------------------------------------------------


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _part(block: Block, profile: Profile) -> JsonObject | None:
    """What a user says, or a result; None if that is nothing."""
    part = _shown(block, profile) if isinstance(block, OpaqueBlock) else None
    if part is None or not isinstance(block, OpaqueBlock):
        return _spoken(block, profile)
    words = too_large(block, part, _MEDIA.get(part["type"]), profile)
    return _text(words) if words else part


def _shown(block: OpaqueBlock, profile: Profile) -> JsonObject | None:
    """The part that shows it, if the profile takes such."""
    original = original_of(block, profile)
    if original is not None and _MEDIA.get(str(original.get("type"))) in profile.media:
        return original
    media = media_of(block.data, profile)
    return None if media is None else media_part(media)


def _beside_calls(block: Block, profile: Profile) -> JsonObject | None:
    """What an assistant says beside its calls and thoughts. It alone can refuse in a part of its own."""
    made = _spoken(block, profile)
    if isinstance(block, TextBlock) and block.shape is None:
        return made
    original = original_of(block, profile)
    if original is None or original.get("type") != "refusal" or made is None or not profile.text_parts:
        return made
    return like({"type": "refusal", "refusal": made["text"]}, original, ("refusal",))


def _thoughts(message: ModelMessage, profile: Profile) -> str:
    """What the model thought, if it is one of this provider; which of them it is makes no difference."""
    if message.source.get("provider") != profile.provider:
        return ""
    return "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))


def _spoken(block: Block, profile: Profile) -> JsonObject | None:
    """What is said where there is text alone: by an assistant beside its calls, by the system."""
    if not isinstance(block, TextBlock):
        words = in_words(block, profile)
        return _text(words) if words else None
    text = sendable_text(block.text, profile)
    if not text and not profile.verbatim:
        return None
    original = None if block.shape is None or not profile.text_parts else original_of(block, profile)
    if original is None or original.get("type") != "text":  # a refusal is text where nobody can refuse
        return _text(text)
    return like(_text(text), original, ("text",))


def media_part(media: Media) -> JsonObject | None:
    """The content part that shows `media`, or None if there is none for it."""
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": media.data_url}}
    if media.data is None or media.media_type is None:
        return None
    if media.kind == "audio":
        audio = {"data": media.data, "format": _AUDIO_FORMATS[media.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if media.media_type != "application/pdf":
        return None
    return {"type": "file", "file": {"filename": media.name or "document.pdf", "file_data": media.data_url}}


def _result(answer: ToolMessage, profile: Profile) -> tuple[list[JsonObject], list[JsonObject]]:
    """What stands in the result, and the media that have to stand behind the batch."""
    parts: list[JsonObject] = []
    moved: list[JsonObject] = []
    for block in answer.content:
        made = _part(block, profile)
        if made is None:
            continue
        if profile.images_in_results or made["type"] == "text":
            parts.append(made)
        elif isinstance(block, OpaqueBlock):
            parts.append(_text(f"[{block.data.get('type')}: in the next user message]"))
            moved.append(made)
    return parts, moved
