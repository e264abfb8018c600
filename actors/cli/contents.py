"""Content blocks of messages in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock

if TYPE_CHECKING:
    from quiesce.protocol.events import Block

__all__ = ["content_in_words"]


def content_in_words(content: tuple[Block, ...]) -> str:
    """The text of content blocks. What is neither text, reasoning nor a call is named: `[image]`."""
    return " ".join(words for block in content if (words := _block_words(block)))


def _block_words(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case OpaqueBlock(data=data):
            return f"[{data.get('type', 'block')}]"
        case ToolCallBlock() | ReasoningBlock():
            return ""
