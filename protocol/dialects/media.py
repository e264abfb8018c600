"""Content beside text: the one neutral shape of images, documents and audio, and what each server takes of them.

Quiesce's own tools and everything that is read from a transcript have this shape, as the `data` of an `OpaqueBlock`:

    {"type": "image", "mediaType": "image/png", "data": "<base64>"}        or {"type": "image", "url": "https://..."}
    {"type": "document", "mediaType": "application/pdf", "data": ..., "name": "a.pdf"}
    {"type": "audio", "mediaType": "audio/wav", "data": ...}
    {"type": "resource", "uri": ..., "mediaType": ..., "text" or "data": ...}

Blocks of logs from elsewhere are understood too where they say the same in other words (MCP's `mimeType`, a `source`
object). What a server cannot take is named by a line of text in its place, never left out in silence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from quiesce.protocol.dialects.profile import MediaKind, Profile
    from quiesce.protocol.events import JsonObject

__all__ = ["Media", "described", "longest_text", "media_of", "neutral", "resource_text"]

_TYPES: Final[dict[str, MediaKind]] = {
    "image/png": "image",
    "image/jpeg": "image",
    "image/gif": "image",
    "image/webp": "image",
    "application/pdf": "document",
    "text/plain": "document",
    "audio/wav": "audio",
    "audio/mpeg": "audio",
}
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_WEB: Final = ("https://", "http://")
_SHOWN: Final = 200


@frozen
class Media:
    """An image, a document or a piece of audio that some server takes: its `data` in base64, or a `url`."""

    kind: MediaKind
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    name: str | None = None

    @property
    def data_url(self) -> str:
        """The data as a URL, or the URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


def media_of(data: JsonObject, profile: Profile) -> Media | None:
    """What the opaque block `data` shows, if `profile` takes it."""
    found = _media(data)
    return found if found is not None and found.kind in profile.media else None


def neutral(
    kind: MediaKind, url: object = None, *, media_type: object = None, data: object = None, name: object = None
) -> JsonObject | None:
    """The neutral block of what a dialect says in its own words, or None if it says nothing that is known."""
    if type(url) is str and (held := _DATA_URL.fullmatch(url)):
        media_type, data, url = held[1], held[2], None
    said = {"type": kind, "mediaType": media_type, "data": data, "url": url, "name": name}
    block = {key: value for key, value in said.items() if value is not None}
    return block if _media(block) is not None else None


def resource_text(data: JsonObject) -> str | None:
    """The text of an embedded resource, if it has one."""
    inner = data.get("resource") if data.get("type") == "resource" else None
    text = (inner if type(inner) is dict else data).get("text") if data.get("type") == "resource" else None
    return text if type(text) is str else None


def described(data: JsonObject, why: str = "cannot be shown here") -> str:
    """The line that stands for a block that cannot be sent: its type, what is known about it, and why it cannot."""
    said = [data.get(key) for key in ("type", "mediaType", "mimeType", "name", "uri", "url")]
    shown = (item.partition(",")[0] if item.startswith("data:") else item for item in said if type(item) is str)
    words = " ".join(item[:_SHOWN] for item in shown if item.strip())
    return f"[{words or 'content of no type'}: {why}]"


def longest_text(part: object) -> int:
    """How many characters the longest text in `part` has: of a part that shows media, that is what it shows."""
    if type(part) is str:
        return len(part)
    inner = part.values() if type(part) is dict else part if type(part) is list else ()
    return max((longest_text(item) for item in inner), default=0)


def _media(data: JsonObject) -> Media | None:
    said = _unfolded(data)
    kind, url, content, name = said.get("type"), said.get("url"), said.get("data"), said.get("name")
    media_type = said.get("mediaType") or said.get("mimeType") or said.get("media_type")
    if type(url) is str and (held := _DATA_URL.fullmatch(url)):
        media_type, content = held[1], held[2]
    media_type = _ALIASES.get(media_type, media_type) if type(media_type) is str else None
    name = name if type(name) is str else None
    if type(content) is str:
        known = _TYPES.get(media_type or "")
        fits = known is not None and kind in (known, "resource") and _is_base64(content)
        return Media(known, media_type, content, None, name) if known is not None and fits else None
    if type(url) is str and url.startswith(_WEB) and kind in ("image", "document"):
        return Media("image" if kind == "image" else "document", media_type, None, url, name)
    return None


def _is_base64(text: str) -> bool:
    """Whether it is base64, and not empty. It may be tens of megabytes: one run over it has to do."""
    return len(text) % 4 == 0 and _BASE64.fullmatch(text) is not None


def _unfolded(data: JsonObject) -> JsonObject:
    """`data` with what stands in an inner object (`source`, `resource`) laid open."""
    for key in ("source", "resource"):
        inner = data.get(key)
        if type(inner) is dict:
            return {
                **data,
                **{name: value for name, value in inner.items() if name != "type"},
                "data": inner.get("data", inner.get("blob")),
            }
    return data
