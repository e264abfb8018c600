"""History -> the `input` items of Responses. The rules are in the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import define

from quiesce.protocol.dialects.arguments import argument_text
from quiesce.protocol.dialects.labels import wire_name, wire_names
from quiesce.protocol.dialects.media import media_of
from quiesce.protocol.dialects.originals import is_listed, like, original_of
from quiesce.protocol.dialects.rendering import (
    NO_OUTPUT,
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

__all__ = ["ANSWERS", "CALL", "MESSAGE", "OUTPUT", "Renderer", "media_part", "render_tools", "request"]

MESSAGE: Final = ("role", "content")
"""The keys of a message item that rendering computes."""
CALL: Final = ("call_id", "name", "arguments", "input")
"""The keys of a call item that rendering computes."""
OUTPUT: Final = ("call_id", "output")
"""The keys of an output item that rendering computes."""
ANSWERS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""A call that is answered here -> the type of its answer."""
_PLAIN: Final = ("type", "text")
"""The keys of a part that is nothing but text."""
_MEDIA: Final[Mapping[str, MediaKind]] = {"input_image": "image", "input_file": "document", "input_audio": "audio"}
_NOT_OPAQUE: Final = frozenset({"message", "reasoning", *ANSWERS, *ANSWERS.values()})
_MAX_ID: Final = 64


def render_tools(tools: Sequence[ToolSpec], profile: Profile) -> list[JsonObject]:
    """The tools on offer. Raises `InvalidInput` if two of them have one name on the wire."""
    names = wire_names((tool.name for tool in tools), profile)
    return [
        {
            "type": "function",
            "name": name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
        for name, tool in zip(names, tools, strict=True)
    ]


def request(asked: ModelRequest, profile: Profile, messages: list[JsonObject] | None = None) -> JsonObject:
    """The body of a request: `input` and, if there are any, `instructions` and `tools`.

    `messages` are the rendered items of `asked`, if they are known already.
    """
    body: JsonObject = {"input": Renderer(profile).render(asked.messages) if messages is None else messages}
    if system := system_text(asked, profile):
        body["instructions"] = system
    if asked.tools:
        body["tools"] = render_tools(asked.tools, profile)
    return body


@define
class _Writer(BaseWriter):
    _begun: bool = False

    def _add_input(self, message: UserMessage) -> None:
        if parts := [part for block in message.content if (part := _part(block, self.profile)) is not None]:
            original = original_of(message, self.profile)
            made = {"role": _role(message.role, self.profile), "content": _content(parts, original, "content")}
            self._put(_without_id(like(made, original, MESSAGE), self.profile, reasoned=True))

    def _add_answer(
        self, message: ModelMessage, calls: tuple[ToolCallBlock, ...], answers: tuple[ToolMessage, ...]
    ) -> None:
        ids = self._ids.batch(calls) if calls else []
        given = [_form_of_pair(call, answer, self.profile) for call, answer in zip(calls, answers, strict=True)]
        for item in _answer(message, ids, given, self.profile):
            self._put(item)
        if calls:
            self._add_results(calls, answers, ids, given)

    def _add_results(
        self, calls: tuple[ToolCallBlock, ...], answers: tuple[ToolMessage, ...], ids: list[str], given: list[str]
    ) -> None:
        moved: list[JsonObject] = []
        for call, answer, label, kind in zip(calls, answers, ids, given, strict=True):
            made, media = _output(answer, label, ANSWERS[kind], self.profile)
            self._out.append(_without_id(_named(made, call, self.profile), self.profile, reasoned=True))
            if media:
                moved += [_text(f"From the result of call {label}:"), *media]
        if moved:
            self._put({"role": "user", "content": moved})

    def _put(self, item: JsonObject) -> None:
        """Add an item, or make the last one longer if both are messages of one role."""
        role = _role_of(item)
        if not self._begun and role not in self.profile.input_roles:
            self._begun = True
            if self.profile.starts_with_user and role != "user":
                self._begin()
        if role and self.profile.merge and self._out and _role_of(self._out[-1]) == role:
            last = self._out[-1]
            kind = "output_text" if role == "assistant" else "input_text"
            parts = [*_as_parts(last["content"], kind), *_as_parts(item["content"], kind)]
            self._out[-1] = {**last, "content": parts}
        else:
            self._out.append(item)

    @staticmethod
    def _is_input(message: JsonObject) -> bool:
        return _role_of(message) not in (None, "assistant") or message.get("type") in ANSWERS.values()


class Renderer(BaseRenderer):
    """Renders a history that grows."""

    _writer = _Writer


def _role_of(item: JsonObject) -> str | None:
    """Who says a message; what is none may have kept a `role` that means nothing."""
    return item.get("role") if item.get("type") in (None, "message") else None


# --- input -------------------------------------------------------------------------------------------------------


def _role(role: str, profile: Profile) -> str:
    return role if role in profile.input_roles else "user"


def _content(parts: list[JsonObject], original: JsonObject | None, key: str) -> str | list[JsonObject]:
    """One plain text is a string, unless it was a list."""
    if len(parts) == 1 and tuple(parts[0]) == _PLAIN and not is_listed(original, key):
        return str(parts[0]["text"])
    return parts


def _as_parts(content: str | list[JsonObject], kind: str) -> list[JsonObject]:
    return [{"type": kind, "text": content}] if type(content) is str else content  # type: ignore[return-value]  # or a list


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _part(block: Block, profile: Profile) -> JsonObject | None:
    """What a user says, or a result; None if that is nothing."""
    if isinstance(block, TextBlock):
        return _text_part(block, profile)
    part = _shown(block, profile) if isinstance(block, OpaqueBlock) else None
    if part is None or not isinstance(block, OpaqueBlock):
        words = in_words(block, profile)
        return _text(words) if words else None
    words = too_large(block, part, _MEDIA.get(part["type"]), profile)
    return _text(words) if words else part


def _shown(block: OpaqueBlock, profile: Profile) -> JsonObject | None:
    """The part that shows it, if the profile takes such."""
    original = original_of(block, profile)
    if original is not None and _MEDIA.get(str(original.get("type"))) in profile.media:
        return original
    media = media_of(block.data, profile)
    return None if media is None else media_part(media)


def _text_part(block: TextBlock, profile: Profile) -> JsonObject | None:
    text = sendable_text(block.text, profile)
    if not text and not profile.verbatim:
        return None
    part = _text(text)
    return part if block.shape is None else like(part, original_of(block, profile), ("type", "text"))


def media_part(media: Media) -> JsonObject | None:
    """The content part that shows `media`, or None if there is none for it."""
    if media.kind == "image":
        return {"type": "input_image", "image_url": media.data_url, "detail": "auto"}
    if media.kind == "audio" or media.media_type not in (None, "application/pdf"):
        return None
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.name or "document.pdf", "file_data": media.data_url}


# --- answers -----------------------------------------------------------------------------------------------------


def _answer(message: ModelMessage, ids: list[str], given: list[str], profile: Profile) -> list[JsonObject]:
    """The items of an answer: text before calls, unless reasoning items hold all in its place.

    Servers that make Chat messages of the items (which want a user first) have no place for text behind a call.
    """
    own = is_own(message, profile)
    sealed = own and any(map(_sealed, message.content))
    items = _items(message, ids, given, profile, own=own, sealed=sealed)
    if sealed and not any(map(_is_reasoning, items)):  # nothing followed it: all of it stays behind
        return _items(message, ids, given, profile, own=own, sealed=False)
    return items


def _items(
    message: ModelMessage, ids: list[str], given: list[str], profile: Profile, *, own: bool, sealed: bool
) -> list[JsonObject]:
    labelled = zip(ids, given, strict=True)
    in_place = (sealed or (own and profile.verbatim)) and not profile.starts_with_user
    items: list[JsonObject] = []
    behind: list[JsonObject] = []
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            label, kind = next(labelled)
            made = _call(block, label, kind, profile, own=own)
            (items if in_place else behind).append(_without_id(made, profile, reasoned=sealed))
        elif (said := _spoken(block, profile, own=own, sealed=sealed)) is not None:
            items.append(_without_id(said, profile, reasoned=sealed))
    items += behind
    while items and _is_reasoning(items[-1]):
        items.pop()
    return items


def _is_reasoning(item: JsonObject) -> bool:
    return item.get("type") == "reasoning"


def _sealed(block: Block) -> JsonObject | None:
    """The reasoning item that the server wants back."""
    replay = block.replay if isinstance(block, ReasoningBlock) else None
    return replay if replay and replay.get("type") == "reasoning" and not _is_long(replay) else None


def _is_long(item: JsonObject) -> bool:
    return type(item.get("id")) is str and len(item["id"]) > _MAX_ID


def _without_id(item: JsonObject, profile: Profile, *, reasoned: bool) -> JsonObject:
    """A message or call that kept the server's id needs its reasoning item: without that it goes without the id. So
    does any item whose id is too long.
    """
    if "id" not in item:
        return item
    kept = reasoned or profile.verbatim or item.get("type") not in (None, "message", "function_call")
    if kept and not _is_long(item):
        return item
    return {key: value for key, value in item.items() if key != "id"}


def _spoken(block: Block, profile: Profile, *, own: bool, sealed: bool) -> JsonObject | None:
    """The item of what an assistant says and thinks beside its calls."""
    if isinstance(block, TextBlock):
        text = sendable_text(block.text, profile)
        if not text and not profile.verbatim:
            return None
        original = None if block.shape is None else original_of(block, profile)
        if original is None or "role" not in original:  # a part of somebody's message
            return {"role": "assistant", "content": text}
        return _as_it_was(original, text)
    if not isinstance(block, OpaqueBlock):
        return _sealed(block) if sealed else None
    original = original_of(block, profile)
    if original is None and own and "wire" not in block.data:
        original = block.data
    if original is not None and _is_servers(original):
        return original
    return {"role": "assistant", "content": in_words(block, profile)}


def _is_servers(item: JsonObject) -> bool:
    """Whether it is an item of the server's own, which only it knows."""
    kind = item.get("type")
    return type(kind) is str and kind not in _NOT_OPAQUE and "role" not in item and not _is_long(item)


def _as_it_was(original: JsonObject, text: str) -> JsonObject:
    """A message item in its original form, if that is sound; else with the text alone."""
    content = original.get("content")
    sound = type(content) is list and content and all(_is_sound(part) for part in content)
    made: JsonObject = {"role": "assistant", "content": content if sound else text}
    return like(made, original, MESSAGE)


def _is_sound(part: Any) -> bool:  # noqa: ANN401 - not looked at yet
    key = {"output_text": "text", "refusal": "refusal"}.get(str(part.get("type"))) if type(part) is dict else None
    return key is not None and type(part.get(key)) is str


def _form_of_pair(call: ToolCallBlock, answer: ToolMessage, profile: Profile) -> str:
    """The type of the item of `call`: that of a special tool only if both the call and its answer are of it."""
    asked = original_of(call, profile)
    if asked is None:
        return "function_call"
    told, kind = original_of(answer, profile), str(asked.get("type"))
    return kind if told is not None and kind in ANSWERS and ANSWERS[kind] == told.get("type") else "function_call"


def _call(block: ToolCallBlock, label: str, kind: str, profile: Profile, *, own: bool) -> JsonObject:
    original = original_of(block, profile) if block.shape else None
    name = wire_name(block.name, profile)
    if kind != "function_call" and original is not None:
        made = {**original, "call_id": label}
        return {**made, "name": name} if kind == "custom_tool_call" or "name" in made else made
    made = {
        "type": "function_call",
        "call_id": label,
        "name": name,
        "arguments": argument_text(block.arguments, profile),
    }
    if own and block.replay:
        made |= {key: value for key, value in block.replay.items() if key not in made}
    return made if original is None or original.get("type") != kind else like(made, original, CALL)


def _named(output: JsonObject, call: ToolCallBlock, profile: Profile) -> JsonObject:
    """An output that kept the name of a tool which nobody takes names that of its call."""
    name = output.get("name")
    if name is None or (type(name) is str and wire_name(name, profile) == name):
        return output
    return {**output, "name": wire_name(call.name, profile)}


def _output(answer: ToolMessage, label: str, kind: str, profile: Profile) -> tuple[JsonObject, list[JsonObject]]:
    """The output item, and the media that have to stand behind the batch."""
    original = original_of(answer, profile) if answer.shape else None
    if original is not None and original.get("type") != kind:
        original = None
    if original is not None and kind not in ("function_call_output", "custom_tool_call_output"):
        return {**original, "call_id": label}, []
    parts: list[JsonObject] = []
    moved: list[JsonObject] = []
    for block in answer.content:
        made = _part(block, profile)
        if made is None:
            continue
        if made["type"] == "input_text" or (profile.images_in_results and made["type"] != "input_audio"):
            parts.append(made)
        elif isinstance(block, OpaqueBlock):
            parts.append(_text(f"[{block.data.get('type')}: in the next user message]"))
            moved.append(made)
    output = _content(parts or [_text(NO_OUTPUT)], original, "output")
    return like({"type": kind, "call_id": label, "output": output}, original, OUTPUT), moved
