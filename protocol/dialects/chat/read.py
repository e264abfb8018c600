"""The `messages` of Chat Completions -> history. Nothing about them is trusted, and nothing of them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from quiesce.protocol.dialects.arguments import text_of_arguments
from quiesce.protocol.dialects.chat.render import COMPUTED, media_part
from quiesce.protocol.dialects.media import media_of, neutral
from quiesce.protocol.dialects.originals import blanked, opaque, unknown, with_original
from quiesce.protocol.dialects.reading import item_list, label, model_source, reader_source, same
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

    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Visible

__all__ = ["read"]

_AUDIO_TYPES: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read(messages: object, profile: Profile) -> tuple[Visible, ...]:
    """The neutral messages of a message list that somebody else wrote.

    Raises `InvalidInput`, naming the position, for what is no list of objects. Everything else is read: what has no
    place in a neutral message rides along, and is given back to the server of `profile`.
    """
    return tuple(_message(at, item, profile) for at, item in enumerate(item_list(messages, "messages")))


def _message(at: int, item: JsonObject, profile: Profile) -> Visible:
    role = item.get("role")
    if role == "assistant":
        return _answer(at, item, profile)
    if role in ("tool", "function"):
        return _result(at, item, profile)
    if type(role) is not str:
        content: tuple[Block, ...] = (unknown({"": item}, profile),)
        return UserMessage(content, reader_source(profile), "user", label(at))
    content = _content(item.get("content"), profile)
    message = UserMessage(content, reader_source(profile), role, label(at))
    return with_original(message, profile, _form(item, content, ("role", "content")))


def _answer(at: int, item: JsonObject, profile: Profile) -> ModelMessage:
    thought = item.get("reasoning_content")
    reasoning = (ReasoningBlock(thought),) if type(thought) is str and thought else ()
    calls = item.get("tool_calls")
    made = [_call(call, profile) for call in (calls if type(calls) is list else []) if type(call) is dict]
    if (
        type(item.get("function_call")) is dict
    ):  # how one call was made before there were several; it is sent as they are
        made.append(_call({"function": item["function_call"]}, profile))
        item = {key: value for key, value in item.items() if key != "function_call"}
    spoken = _content(item.get("content"), profile)
    if item.get("content") is None:
        spoken = _said_aside(item, profile)
    usual = ("role", "content", *(["reasoning_content"] if reasoning else []), *(["tool_calls"] if made else []))
    message = ModelMessage("assistant", (*reasoning, *spoken, *made), model_source(profile), label(at))
    return with_original(message, profile, _form(item, spoken, usual))


def _said_aside(item: JsonObject, profile: Profile) -> tuple[Block, ...]:
    """What stands beside the content where there is none: a refusal, a reference to audio."""
    refusal = (TextBlock(item["refusal"]),) if type(item.get("refusal")) is str and item["refusal"] else ()
    return (*refusal, opaque({"type": "audio"}, profile, None)) if item.get("audio") else refusal


def _result(at: int, item: JsonObject, profile: Profile) -> ToolMessage:
    content = _content(item.get("content"), profile)
    call_id = item.get("tool_call_id")
    message = ToolMessage("tool", call_id if type(call_id) is str else "", content, is_error=False, id=label(at))
    usual = ("role", "tool_call_id", "content")
    return with_original(message, profile, _form(item, content, usual))


def _form(item: JsonObject, content: tuple[Block, ...], usual: tuple[str, ...]) -> JsonObject | None:
    """How `item` differs from what would be rendered of it, or None."""
    listed = type(item.get("content")) is list
    plain = len(content) == 1 and isinstance(content[0], TextBlock) and content[0].shape is None
    if tuple(item) == usual and listed != (plain or not content):
        return None
    form = blanked(item, COMPUTED)
    if not listed and item.get("content") is not None:
        form["content"] = ""  # None stays: then all that was said stood beside it
    return form


def _call(call: JsonObject, profile: Profile) -> ToolCallBlock:
    function = call.get("function", call.get("custom"))
    function = function if type(function) is dict else {}
    call_id, name = call.get("id"), function.get("name")
    arguments = text_of_arguments(function.get("arguments", function.get("input")))
    block = ToolCallBlock(call_id if type(call_id) is str else "", name if type(name) is str else "", arguments)
    if "custom" in call:
        return with_original(block, profile, blanked(call, ("id",)))
    if tuple(call) == ("id", "type", "function") and tuple(function) == ("name", "arguments"):
        return block
    return with_original(
        block, profile, {**blanked(call, ("id",)), "function": blanked(function, ("name", "arguments"))}
    )


# --- content -----------------------------------------------------------------------------------------------------


def _content(content: Any, profile: Profile) -> tuple[Block, ...]:  # noqa: ANN401 - not looked at yet
    if content is None:
        return ()
    return tuple(_block(part, profile) for part in (content if type(content) is list else [content]))


def _block(part: Any, profile: Profile) -> Block:  # noqa: ANN401 - not looked at yet
    if type(part) is str:
        return TextBlock(part)
    kind = part.get("type") if type(part) is dict else None
    if kind == "text" and type(part.get("text")) is str:
        block = TextBlock(part["text"])
        return block if tuple(part) == ("type", "text") else with_original(block, profile, blanked(part, ("text",)))
    if kind == "refusal" and type(part.get("refusal")) is str:
        return with_original(TextBlock(part["refusal"]), profile, blanked(part, ("refusal",)))
    data = _READERS[kind](part) if type(kind) is str and kind in _READERS else None
    if data is None:
        return unknown(part, profile)
    media = media_of(data, profile)
    return opaque(data, profile, None if media is not None and same(media_part(media), part) else part)


def _inner(part: JsonObject, key: str) -> JsonObject:
    found = part.get(key)
    return found if type(found) is dict else {"url": found}


def _image(part: JsonObject) -> JsonObject | None:
    return neutral("image", _inner(part, "image_url").get("url"))


def _audio(part: JsonObject) -> JsonObject | None:
    audio = _inner(part, "input_audio")
    return neutral("audio", media_type=_AUDIO_TYPES.get(str(audio.get("format"))), data=audio.get("data"))


def _file(part: JsonObject) -> JsonObject | None:
    file = _inner(part, "file")
    return neutral("document", file.get("file_data"), name=file.get("filename"))


_READERS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
