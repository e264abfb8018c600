"""What can go wrong with a server, as errors, and the words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quiesce.protocol.errors import QuiesceError
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LinkLost", "McpConnectError", "reason_of"]

_MAX_REASON = 500
"""Characters of what an exception says."""


class McpConnectError(QuiesceError):
    """A server could not be reached: its command does not start, or it does not answer as a server does.

    The text names the server and ends with the last lines that it wrote to standard error, where there are any.
    """


class LinkLost(QuiesceError):  # noqa: N818 - named for what happened, as the project's errors are
    """The connection ended before the answer came: whether the call ran is unknown, unless `sent` is False."""

    def __init__(self, reason: str, *, sent: bool = True) -> None:
        super().__init__(reason)
        self.sent = sent


def reason_of(error: BaseException) -> str:
    """What an exception says, on one line. Of a group: its members, since the group itself says nothing."""
    said = dict.fromkeys(_says(leaf) for leaf in _leaves(error))  # each once, in order
    return "; ".join(said)[:_MAX_REASON]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for member in error.exceptions:
        yield from _leaves(member)


def _says(error: BaseException) -> str:
    text = " ".join(clean_text(str(error)).split())
    return text if isinstance(error, QuiesceError) and text else f"{type(error).__name__}: {text or 'no message'}"
