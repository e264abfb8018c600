"""From what a server answered to the result that the model reads. Pure; reads the answer as it came, and never raises.

| in the answer | in the result |
|---|---|
| text | the text |
| image, audio | an opaque block: `{"type": "image" or "audio", "mediaType": ..., "data": base64}` |
| embedded resource with text | its URI and its text |
| embedded resource with bytes | as an image, audio or a PDF an opaque block (`document`); anything else is named |
| resource link | name, URI, media type and description, as text |
| structured content, and no text | its JSON, as text |
| structured content beside text | `meta["structuredContent"]`: the protocol has servers say it in text as well |
| a block of any other kind, or one that is not well-formed | a text that names it; the block in `meta["notShown"]` |
| `isError` | an error result; without any text it gets a placeholder |
| not a tool's result at all | an error result that shows it |
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final

from quiesce.actors.results import Result
from quiesce.protocol.events import OpaqueBlock, TextBlock
from quiesce.protocol.storable import make_storable

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.protocol.events import Block, JsonObject

__all__ = ["result_of"]

_MAX_SHOWN: Final = 1000
"""Characters of an answer that is no result."""


def result_of(answer: JsonObject) -> Result:
    """The result of a `tools/call` whose answer this is; see the module."""
    wrong = _what_is_wrong(answer)
    if wrong:
        return Result(content=f"{_MALFORMED} {wrong} It was: {_json(answer)[:_MAX_SHOWN]}", is_error=True)
    items: Any = answer.get("content", [])
    blocks = [_block(item) for item in items]
    shown = [block if block is not None else _named(item) for item, block in zip(items, blocks, strict=True)]
    structured = answer.get("structuredContent")
    says_something = any(isinstance(block, TextBlock) and block.text.strip() for block in shown)
    if structured is not None and not says_something:
        shown.append(TextBlock(_json(structured)))
    extra = {
        "structuredContent": structured if says_something else None,
        "notShown": [item for item, block in zip(items, blocks, strict=True) if block is None] or None,
        "_meta": answer.get("_meta") or None,
    }
    meta = {key: value for key, value in extra.items() if value is not None}
    return Result(content=shown or None, meta=meta or None, is_error=answer.get("isError") is True)


_MALFORMED: Final = "The tool was called, and the server's answer is not a tool's result."


def _what_is_wrong(answer: JsonObject) -> str:
    if answer.get("resultType", "complete") == "input_required":
        return "It asks for input, which cannot be given here."
    if "content" not in answer and answer.get("structuredContent") is None:
        return "It has no content."
    if not isinstance(answer.get("content", []), list):
        return "Its content is not a list."
    if not isinstance(answer.get("isError", False), bool):
        return "It does not say whether it is an error."
    return ""


# --- blocks ------------------------------------------------------------------------------------------------------


def _block(item: object) -> Block | None:
    """The block for an item of the content; None for one that cannot be shown."""
    if not isinstance(item, dict):
        return None
    kind = item.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return None if read is None else read(item)


def _text(item: dict[str, Any]) -> Block | None:
    text = item.get("text")
    return TextBlock(text) if isinstance(text, str) else None


def _media(item: dict[str, Any]) -> Block | None:
    return _opaque(item["type"], item.get("mimeType"), item.get("data"))


def _resource(item: dict[str, Any]) -> Block | None:
    resource = item.get("resource")
    if not isinstance(resource, dict):
        return None
    uri, text, media_type = resource.get("uri"), resource.get("text"), resource.get("mimeType")
    if isinstance(text, str):
        return TextBlock(f"[resource {uri}]\n{text}")
    kind = _kind_of(media_type) if isinstance(media_type, str) else None
    return None if kind is None else _opaque(kind, media_type, resource.get("blob"))


def _link(item: dict[str, Any]) -> Block | None:
    uri = item.get("uri")
    if not isinstance(uri, str):
        return None
    about = [item[key] for key in ("title", "name", "mimeType", "description") if isinstance(item.get(key), str)]
    return TextBlock(f"[resource link {uri}{': ' if about else ''}{', '.join(about)}]")


_READERS: Final[dict[str, Callable[[dict[str, Any]], Block | None]]] = {
    "text": _text,
    "image": _media,
    "audio": _media,
    "resource": _resource,
    "resource_link": _link,
}


def _kind_of(media_type: str) -> str | None:
    """The kind of block that bytes of this media type go into."""
    if media_type == "application/pdf":
        return "document"
    kind = media_type.partition("/")[0]
    return kind if kind in {"image", "audio"} else None


def _opaque(kind: str, media_type: object, data: object) -> Block | None:
    """Bytes as a block; only if they are what they say, since a provider refuses a whole history for bad base64."""
    if not isinstance(media_type, str) or not isinstance(data, str):
        return None
    packed = "".join(data.split())  # some servers break the lines
    try:
        base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return None
    return OpaqueBlock({"type": kind, "mediaType": media_type, "data": packed}) if packed else None


# --- what cannot be shown ----------------------------------------------------------------------------------------


def _named(item: object) -> TextBlock:
    """A text that stands for an item which cannot be shown, and says what it was."""
    if not isinstance(item, dict):
        return TextBlock(f"[content that is no block is not shown: {_json(item)[:_MAX_SHOWN]}]")
    kind = str(item.get("type"))
    resource = item.get("resource") if kind == "resource" else None
    if isinstance(resource, dict) and isinstance(uri := resource.get("uri"), str):
        return TextBlock(f"[resource {uri}, {resource.get('mimeType') or 'of unknown type'}, is not shown]")
    why = "not well-formed" if kind in _READERS else "of an unknown kind"
    return TextBlock(f"[content of type {kind!r} is not shown: it is {why}]")


def _json(value: object) -> str:
    return json.dumps(make_storable(value), ensure_ascii=False, separators=(",", ":"))
