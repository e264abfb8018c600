"""What the commands share that take transcripts as well as logs: their options, and the profile to judge one by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from attrs import evolve

from quiesce.actors.cli.words import count
from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.dialects.repair import lenient_profile
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from quiesce.protocol.dialects.profile import Profile
    from quiesce.protocol.dialects.transcript import Transcript

__all__ = ["fitted", "format_option", "noun_of", "profile_option", "read_as", "size_of"]

_FORMATS: Final = ("log", "chat", "responses", "anthropic")
_TITLES: Final = {"chat": "Chat Completions", "responses": "Responses", "anthropic": "Anthropic Messages"}

format_option = click.option(
    "--format", "kind", type=click.Choice(_FORMATS), help="What the file is. Without it, that is found out and told."
)
profile_option = click.option(
    "--profile",
    "profile_name",
    metavar="NAME",
    type=click.Choice(list(PROFILES)),
    help=f"The provider to judge a transcript for: {', '.join(PROFILES)}. Without it: what all of its dialect refuse.",
)


def fitted(transcript: Transcript, profile_name: str | None) -> tuple[Transcript, Profile]:
    """`transcript` and the profile to judge it by. Plain messages are of whatever dialect the profile speaks.

    Raises `InvalidInput` if the profile is for another dialect.
    """
    if profile_name is None:
        return transcript, lenient_profile(transcript.dialect)
    profile = PROFILES[profile_name]
    if transcript.is_plain and transcript.dialect != profile.dialect:
        reason = f"plain messages, for {profile.name}"
        return evolve(transcript, dialect=profile.dialect, reason=reason), profile
    if transcript.dialect != profile.dialect:
        fitting = ", ".join(name for name, other in PROFILES.items() if other.dialect == transcript.dialect)
        raise InvalidInput(
            f"a {transcript.dialect} transcript ({transcript.reason}), and --profile {profile_name} is for "
            f"{profile.dialect}; fitting are {fitting}"
        )
    return transcript, profile


def read_as(transcript: Transcript) -> str:
    """How it was read, in words: `5 messages of Anthropic Messages ([1] has ...)`."""
    return f"{size_of(transcript)}, read as {_TITLES[transcript.dialect]} ({transcript.reason})"


def size_of(transcript: Transcript) -> str:
    """How long it is: `5 messages`, `1 item`."""
    return count(len(transcript.messages), noun_of(transcript))


def noun_of(transcript: Transcript) -> str:
    """What its provider calls one of its parts."""
    return "item" if transcript.dialect == "responses" else "message"
