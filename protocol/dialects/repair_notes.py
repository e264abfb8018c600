"""What repair says: the `Change` that it reports, the text of an unknown outcome, and the notes that quote a result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from attrs import frozen

from quiesce.protocol.dialects.checking import shown
from quiesce.protocol.events import ToolCallBlock, text_of
from quiesce.protocol.history import unanswered

if TYPE_CHECKING:
    from quiesce.protocol.dialects.pairing import Why

__all__ = ["UNKNOWN", "Change", "ChangeKind", "answered_words", "label_words", "quoted", "quoted_words"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""

ChangeKind: TypeAlias = Literal["answered", "moved", "quoted", "call-moved", "joined"]
"""What repair does to a place; the module `repair` has the rules 1 to 4."""

UNKNOWN: Final = text_of(unanswered(ToolCallBlock("", "", ""), "").content)
"""The result of a call whose outcome nobody recorded."""

_TEXTS: Final = ("text", "input_text", "output_text")
_MEDIA: Final = ("image", "document", "image_url", "input_image", "input_file", "file")
_BECAME: Final[dict[Why, str]] = {
    "orphan": "the result of {call}, which is not before it, became a note",
    "duplicate": "another result of {call} became a note",
}
_WHY: Final[dict[Why, str]] = {
    "orphan": "it answers no call of this conversation",
    "duplicate": "that call had its result already",
}


@frozen
class Change:
    """One thing that repair did. `str()` of it is one line."""

    kind: ChangeKind
    position: str
    """The place in the list as it was, such as `messages[3].content[0]`."""
    label: str
    """The id of the call, or an empty text."""
    words: str
    """What was done, in a sentence."""

    def __str__(self) -> str:
        return f"{self.position}: {self.words}"


def quoted(label: Thing, why: Why, content: Thing, *, is_error: bool = False) -> tuple[str, list[Thing]]:
    """A note in place of a result: its text, which quotes the text of `content`, and the media that go with it."""
    parts = content if isinstance(content, list) else [content]
    texts = [text for part in parts if (text := _text(part)).strip()]
    media = [part for part in parts if _kind(part) in _MEDIA]
    what = "An error result" if is_error else "A result"
    held = "It holds what follows this note." if media and not texts else "It was empty."
    quote = "It said:\n" + "\n".join(texts) if texts else held
    return f"[Note: {what} for call {label_words(label)} stood here, but {_WHY[why]}. {quote}]", media


def answered_words(label: str) -> str:
    """That a call got a result."""
    return f"call {label_words(label)} had no result and got one that says its outcome is unknown"


def quoted_words(label: Thing, why: Why) -> str:
    """That a result became a note."""
    return _BECAME[why].format(call=f"call {label_words(label)}")


def label_words(label: Thing) -> str:
    """A call's id for a sentence."""
    return "without an id" if label is None else shown(label)


def _text(part: Thing) -> str:
    if part is None or _kind(part) in _MEDIA:
        return ""
    if isinstance(part, str):
        return part
    text = part.get("text") if _kind(part) in _TEXTS else None
    return text if isinstance(text, str) else json.dumps(part)


def _kind(part: Thing) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""
