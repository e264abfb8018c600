"""`quiesce import`: a session made of a transcript or of a log file, so that it can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import click
import trio
from attrs import evolve

from quiesce.actors.cli.conversation import db_option
from quiesce.actors.cli.faults import Fault
from quiesce.actors.cli.inputs import read_file, shown_name
from quiesce.actors.cli.transcripts import fitted, format_option
from quiesce.actors.cli.words import count
from quiesce.actors.options import check_text
from quiesce.actors.sources import Sources
from quiesce.actors.stores import SqliteStore
from quiesce.actors.stores.whole import create_session
from quiesce.protocol.dialects import DIALECTS, PROFILES
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import AssistantMessage, ToolResult, TurnStart
from quiesce.protocol.imported import imported_log, imported_messages
from quiesce.protocol.logfile import LogFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.dialects.transcript import Transcript
    from quiesce.protocol.events import Event
    from quiesce.protocol.model import Visible

    Kind: TypeAlias = DialectName | Literal["log"]

__all__ = ["import_"]

T = TypeVar("T")

_MAKERS: Final = {"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic"}
"""Dialect -> the profile of whoever is taken to have written a transcript in it."""


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path())
@db_option
@click.option("--session", metavar="ID", help="The new session's id. Default: a new one, which is printed.")
@format_option
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME",
    type=click.Choice(list(PROFILES)),
    help="Whose transcript it is. Default: the vendor of its dialect.",
)
def import_(file: str, db: str, session: str | None, kind: Kind | None, profile_name: str | None) -> None:
    """Make a session of a transcript or a log.

    Then it can be continued, with any provider.

    FILE is a message list in the dialect of OpenAI Chat Completions, OpenAI Responses or Anthropic Messages (JSON, JSON
    lines, or a whole request body), or a session log (of `quiesce export` or the DeepSeek Harness). `-` is standard
    input. It is never touched. The id of the new session is printed.

    A call without a result is answered as one whose outcome is unknown; a result that answers no call is left out, and
    told. What a provider wants back from its own model (signed thinking, reasoning items) is kept for it.

    \b
    Examples:
      quiesce import broken.json --db agents.db --session rescued
      quiesce run --db agents.db --session rescued --model anthropic:claude-sonnet-4-5 "Where were we?"
      quiesce import session.jsonl.zstd --db agents.db
      quiesce show agents.db "$(quiesce import request.json --db agents.db)"

    Exit codes: 0 imported, 2 FILE is not readable, or there is a session of that name.
    """  # noqa: D301 - the \b is a character that click looks for
    sources = Sources()
    session_id = session or sources.mint()
    check_text("session", session_id)
    events = _events(file, kind, profile_name, sources.now())
    header = {"createdAt": sources.now(), "importedFrom": shown_name(file)}
    trio.run(_create, db, session_id, events, header)
    _tell(events)
    click.echo(session_id)


def _events(file: str, kind: Kind | None, profile_name: str | None, now: int) -> Sequence[Event]:
    _, found = read_file(file, kind)
    try:
        if isinstance(found, LogFile):
            return imported_log(_some(found.events, "event"))
        return imported_messages(_some(_messages(found, profile_name), "message"), now)
    except InvalidInput as error:
        raise Fault(f"{shown_name(file)}: {error}") from error


def _messages(transcript: Transcript, profile_name: str | None) -> Sequence[Visible]:
    """What the transcript says. What its provider wants back is kept for the model that the transcript names."""
    asked, profile = fitted(transcript, profile_name or _MAKERS[transcript.dialect])
    model = (transcript.body or {}).get("model")
    maker = evolve(profile, model=model if isinstance(model, str) else None)
    return DIALECTS[asked.dialect].read(asked.messages, maker)


def _some(found: Sequence[T], noun: str) -> Sequence[T]:
    if not found:
        raise InvalidInput(f"there is no {noun} in it")
    return found


async def _create(db: str, session_id: str, events: Sequence[Event], header: dict[str, object]) -> None:
    async with SqliteStore(Path(db)) as store:
        await create_session(store, session_id, events, header)


def _tell(events: Sequence[Event]) -> None:
    kinds = [type(event.body) for event in events]
    turns, answers = kinds.count(TurnStart), kinds.count(AssistantMessage)
    unknown = sum(isinstance(event.body, ToolResult) and _is_unknown(event.body) for event in events)
    click.echo(f"imported {count(turns, 'turn')}, {count(answers, 'answer')} of a model", err=True)
    if unknown:
        click.echo(f"answered {count(unknown, 'call')} without a result: outcome unknown", err=True)


def _is_unknown(result: ToolResult) -> bool:
    return result.error is not None and result.error.code == "TOOL_OUTCOME_UNKNOWN"
