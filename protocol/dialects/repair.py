"""Repair of a transcript from elsewhere: each call gets its one result, in its place, and nothing else is touched.

1. A call that nothing answers gets a result that says its outcome is unknown: it may have taken effect.
2. A result that stands elsewhere than its provider wants it moves behind its calls.
3. A result that answers no call, and one that came after the first, are no results any more: what they hold is quoted
   in a user's note behind the batch where they stood, because a model may have built on it.
4. In Anthropic Messages, a call that stands in a user's message becomes an assistant's; and where results or notes come
   to stand in one of two adjacent user messages, these become one, if the profile wants that.
5. Every message that needs none of this stays the same object. A list without problems of pairing comes back as it was,
   and repairing twice is repairing once.

Which result answers which call is decided in `pairing`. What else a provider would refuse is not repaired but told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import frozen

from quiesce.protocol.dialects.anthropic import contract as anthropic
from quiesce.protocol.dialects.chat import contract as chat
from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.dialects.repair_blocks import repair_blocks
from quiesce.protocol.dialects.repair_items import CHAT, RESPONSES, repair_items
from quiesce.protocol.dialects.responses import contract as responses
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from quiesce.protocol.dialects.problem import Problem
    from quiesce.protocol.dialects.profile import DialectName, Profile
    from quiesce.protocol.dialects.repair_notes import Change
    from quiesce.protocol.dialects.transcript import Transcript

__all__ = ["Repaired", "check_transcript", "lenient_profile", "repair"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""

_LENIENT: Final[dict[DialectName, str]] = {
    "chat": "any-chat",
    "responses": "any-responses",
    "anthropic": "any-anthropic",
}


@frozen
class Repaired:
    """What became of a transcript."""

    transcript: Transcript
    """The repaired one; the same messages if there was nothing to repair."""
    changes: tuple[Change, ...]
    """What was done, in the order of the messages that were there."""
    problems: tuple[Problem, ...]
    """What the provider would still refuse. None of it is about pairing."""

    @property
    def messages(self) -> list[Any]:
        """The repaired list."""
        return self.transcript.messages


def lenient_profile(dialect: DialectName) -> Profile:
    """The profile that asks the least of a dialect: what every server of it refuses, and no more."""
    return PROFILES[_LENIENT[dialect]]


def check_transcript(transcript: Transcript, profile: Profile | None = None) -> list[Problem]:
    """What the provider of `profile` would refuse in `transcript`, messages and names of tools.

    Without a profile, what any server of its dialect would. Raises `InvalidInput` for the profile of another dialect.
    """
    used = _fitting(transcript, profile)
    tools = (transcript.body or {}).get("tools")
    return _message_problems(transcript, used) + ([] if tools is None else _TOOLS[transcript.dialect](tools, used))


def repair(transcript: Transcript, profile: Profile | None = None) -> Repaired:
    """`transcript` with every call answered, for the provider of `profile`; see the module for what is done.

    Without a profile, for any server of its dialect. Raises `InvalidInput` for the profile of another dialect.
    """
    used = _fitting(transcript, profile)
    match transcript.dialect:
        case "chat":
            messages, changes = repair_items(transcript.messages, CHAT)
        case "responses":
            forms = RESPONSES.for_profile(used, continues=transcript.continues)
            messages, changes = repair_items(transcript.messages, forms)
        case "anthropic":
            messages, changes = repair_blocks(transcript.messages, merge=used.merge)
    repaired = transcript.with_messages(messages) if changes else transcript
    return Repaired(repaired, tuple(changes), tuple(check_transcript(repaired, used)))


_TOOLS: Final = {
    "chat": chat.tool_problems,
    "responses": responses.tool_problems,
    "anthropic": anthropic.tool_problems,
}


def _message_problems(transcript: Transcript, profile: Profile) -> list[Problem]:
    match transcript.dialect:
        case "chat":
            return chat.problems(transcript.messages, profile)
        case "responses":
            return responses.problems(transcript.messages, profile, continued=transcript.continues)
        case "anthropic":
            return anthropic.problems(transcript.messages, profile)


def _fitting(transcript: Transcript, profile: Profile | None) -> Profile:
    if profile is None:
        return lenient_profile(transcript.dialect)
    if profile.dialect != transcript.dialect:
        raise InvalidInput(
            f"profile: {profile.name} is for {profile.dialect} messages, and these are {transcript.dialect} messages"
        )
    return profile
