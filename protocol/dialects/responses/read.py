"""The `input` items of Responses -> history. Nothing about them is trusted, and nothing of them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define

from quiesce.protocol.dialects.arguments import text_of_arguments
from quiesce.protocol.dialects.media import media_of, neutral
from quiesce.protocol.dialects.originals import blanked, opaque, unknown, with_original
from quiesce.protocol.dialects.reading import item_list, label, model_source, reader_source, same, text_at
from quiesce.protocol.dialects.responses.render import ANSWERS, CALL, MESSAGE, OUTPUT, media_part
from quiesce.protocol.events import ModelMessage, ReasoningBlock, TextBlock, ToolCallBlock, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Visible

__all__ = ["read"]

_FUNCTION_CALL: Final = ("type", "call_id", "name", "arguments")
_FUNCTION_OUTPUT: Final = ("type", "call_id", "output")
_TEXTUAL: Final = ("function_call_output", "custom_tool_call_output")


def read(messages: object, profile: Profile) -> tuple[Visible, ...]:
    """The neutral messages of an item list that somebody else wrote. A string is a user's message.

    Raises `InvalidInput`, naming the position, for what is no list of objects. Everything else is read: what has no
    place in a neutral message rides along, and is given back to the server of `profile`.
    """
    reader = _Reader(profile)
    items = [{"role": "user", "content": messages}] if type(messages) is str else messages
    for at, item in enumerate(item_list(items, "input")):
        reader.take(at, item)
    reader.close()
    return tuple(reader.made)


@define
class _Reader:
    """Items one after the other: a run of the model's own is one answer."""

    profile: Profile
    made: list[Visible] = Factory(list)
    _held: list[Block] = Factory(list)
    _since: int = 0

    def take(self, at: int, item: JsonObject) -> None:
        """The next item."""
        role, kind = item.get("role"), item.get("type")
        if type(role) is str and kind in (None, "message") and role != "assistant":
            self._take_other(_input(at, item, role, self.profile))
        elif type(kind) is str and kind in ANSWERS.values():
            self._take_other(_result(at, item, kind, self.profile))
        else:
            self._since = self._since if self._held else at
            self._held.append(_of_model(item, self.profile))

    def close(self) -> None:
        """The answer that is being read, if there is one, is over."""
        if self._held:
            source = model_source(self.profile)
            self.made.append(ModelMessage("assistant", tuple(self._held), source, label(self._since)))
            self._held = []

    def _take_other(self, message: Visible) -> None:
        self.close()
        self.made.append(message)


def _input(at: int, item: JsonObject, role: str, profile: Profile) -> UserMessage:
    content = _content(item.get("content"), profile)
    message = UserMessage(content, reader_source(profile), role, label(at))
    usual = tuple(item) == MESSAGE and _is_usual(item["content"], content)
    return message if usual else with_original(message, profile, blanked(item, MESSAGE))


def _result(at: int, item: JsonObject, kind: str, profile: Profile) -> ToolMessage:
    special = kind not in _TEXTUAL
    content = (TextBlock(text_of_arguments(item.get("output"))),) if special else _content(item.get("output"), profile)
    message = ToolMessage("tool", text_at(item, "call_id"), content, is_error=False, id=label(at))
    if tuple(item) == _FUNCTION_OUTPUT and kind == "function_call_output" and _is_usual(item["output"], content):
        return message
    return with_original(message, profile, blanked(item, ("call_id",) if special else OUTPUT))


def _is_usual(content: object, blocks: tuple[Block, ...]) -> bool:
    plain = len(blocks) == 1 and isinstance(blocks[0], TextBlock) and blocks[0].shape is None
    return type(content) is (str if plain else list)


def _of_model(item: JsonObject, profile: Profile) -> Block:
    kind = item.get("type")
    if item.get("role") == "assistant" and kind in (None, "message"):
        return _message(item, profile)
    if kind == "reasoning":
        return ReasoningBlock(_thoughts(item), replay=item)
    if type(kind) is str and kind in ANSWERS:
        return _call(item, kind, profile)
    return unknown(item, profile)


def _message(item: JsonObject, profile: Profile) -> TextBlock:
    content = item.get("content")
    if type(content) is str and tuple(item) == MESSAGE:
        return TextBlock(content)
    parts = content if type(content) is list else [content]
    text = "".join(_words(part) for part in parts)
    return with_original(TextBlock(text), profile, item if type(content) is list else blanked(item, MESSAGE))


def _words(part: Any) -> str:  # noqa: ANN401 - not looked at yet
    if type(part) is not dict:
        return part if type(part) is str else ""
    return text_at(part, "text") or text_at(part, "refusal")


def _thoughts(item: JsonObject) -> str:
    parts = [part for key in ("summary", "content") if type(item.get(key)) is list for part in item[key]]
    return "\n\n".join(filter(None, map(_words, parts)))


def _call(item: JsonObject, kind: str, profile: Profile) -> ToolCallBlock:
    if kind == "function_call":
        name, arguments = text_at(item, "name"), text_of_arguments(item.get("arguments"))
    else:
        said = {key: value for key, value in item.items() if key not in ("type", "call_id", "id", "status", "name")}
        name, arguments = text_at(item, "name") or kind, text_of_arguments(said)
    block = ToolCallBlock(text_at(item, "call_id"), name, arguments)
    if tuple(item) == _FUNCTION_CALL and kind == "function_call":
        return block
    return with_original(block, profile, blanked(item, CALL) if kind == "function_call" else item)


# --- content -----------------------------------------------------------------------------------------------------


def _content(content: Any, profile: Profile) -> tuple[Block, ...]:  # noqa: ANN401 - not looked at yet
    if content is None:
        return ()
    return tuple(_block(part, profile) for part in (content if type(content) is list else [content]))


def _block(part: Any, profile: Profile) -> Block:  # noqa: ANN401 - not looked at yet
    if type(part) is str:
        return TextBlock(part)
    kind = part.get("type") if type(part) is dict else None
    if kind in ("input_text", "output_text", "text") and type(part.get("text")) is str:
        block = TextBlock(part["text"])
        usual = tuple(part) == ("type", "text") and kind == "input_text"
        return block if usual else with_original(block, profile, blanked(part, ("type", "text")))
    data = _READERS[kind](part) if type(kind) is str and kind in _READERS else None
    if data is None:
        return unknown(part, profile)
    media = media_of(data, profile)
    return opaque(data, profile, None if media is not None and same(media_part(media), part) else part)


def _image(part: JsonObject) -> JsonObject | None:
    return neutral("image", part.get("image_url"))


def _file(part: JsonObject) -> JsonObject | None:
    return neutral("document", part.get("file_data") or part.get("file_url"), name=part.get("filename"))


_READERS: Final[dict[str, Callable[[JsonObject], JsonObject | None]]] = {"input_image": _image, "input_file": _file}
