"""`quiesce import`: a session made of a transcript or of a log file, so that it can be continued."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import click
import trio
from attrs import evolve

from quiesce.actors.cli.faults import Fault
from quiesce.actors.cli.inputs import check_store, nature_of, read_file, shown_name
from quiesce.actors.cli.parameters import FileName, checked_id, db_option
from quiesce.actors.cli.transcripts import fitted, format_option, noun_of
from quiesce.actors.cli.words import count
from quiesce.actors.sources import Sources
from quiesce.actors.stores import SqliteStore
from quiesce.actors.stores.whole import create_session
from quiesce.protocol.dialects import DIALECTS, PROFILES
from quiesce.protocol.dialects.transcript import Transcript
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import AssistantMessage, ToolMessage, ToolResult, TurnStart
from quiesce.protocol.imported import imported_log, imported_messages
from quiesce.protocol.logfile import LogFile
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quiesce.protocol.dialects.profile import DialectName
    from quiesce.protocol.events import Event
    from quiesce.protocol.model import Visible

    Kind: TypeAlias = DialectName | Literal["log"]

__all__ = ["import_"]

T = TypeVar("T")

_MAKERS: Final = {"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic"}
"""Dialect -> the profile of whoever is taken to have written a transcript in it."""


@click.command("import")
@click.argument("file", metavar="FILE", type=FileName())
@db_option
@click.option(
    "--session", metavar="ID", callback=checked_id, help="The new session's id. Default: a new one, which is printed."
)
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
    _check_ways(file, db)
    sources = Sources()
    session_id = session or sources.mint()
    _, found = read_file(file, kind)
    try:
        if isinstance(found, LogFile):
            events, left_out = imported_log(_some(found.events, "event")), 0
        else:
            messages = _some(_messages(found, profile_name), noun_of(found))
            events = imported_messages(messages, sources.now())
            left_out = _results(messages) - _results(event.body for event in events)
    except InvalidInput as error:
        raise Fault(f"{shown_name(file)}: {error}") from error
    header = {"createdAt": sources.now(), "importedFrom": shown_name(file)}
    trio.run(_create, db, session_id, events, header)
    if isinstance(found, Transcript):
        _tell_cleaned(found)
    _tell(events, left_out)
    click.echo(session_id)


def _check_ways(file: str, db: str) -> None:
    """Raise `Fault` if what is to be written to can be no store; above all, if it is what was to be read."""
    what = _NO_STORE.get(nature_of(db))
    if what is None:
        check_store(db)
    elif nature_of(file) == "database":
        ways = f"quiesce import {shlex.quote(db)} --db {shlex.quote(file)}"
        raise Fault(f"{click.format_filename(db)}: {what}, and --db names the store; did you mean `{ways}`?")
    else:
        raise Fault(f"{click.format_filename(db)}: {what}; FILE is what is read, --db names the store that is written")


_NO_STORE: Final = {"log": "a log, and no store", "transcript": "a transcript, and no store", "other": "no store"}
"""What a file that is there already may be, and what is said of it."""


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


def _results(parts: Iterable[object]) -> int:
    """How many results of calls are among messages, or events, that were not made up."""
    return sum(
        isinstance(part, ToolMessage) or (isinstance(part, ToolResult) and not _is_unknown(part)) for part in parts
    )


def _tell(events: Sequence[Event], left_out: int) -> None:
    kinds = [type(event.body) for event in events]
    turns, answers = kinds.count(TurnStart), kinds.count(AssistantMessage)
    unknown = sum(isinstance(event.body, ToolResult) and _is_unknown(event.body) for event in events)
    click.echo(f"imported {count(turns, 'turn')}, {count(answers, 'answer')} of a model", err=True)
    if unknown:
        click.echo(f"answered {count(unknown, 'call')} without a result: outcome unknown", err=True)
    if left_out:
        click.echo(
            f"left out {count(left_out, 'result')} that {'answers' if left_out == 1 else 'answer'} no call", err=True
        )


def _tell_cleaned(transcript: Transcript) -> None:
    cleaned = sum(not _is_storable(message) for message in transcript.messages)
    if cleaned:
        size = count(cleaned, noun_of(transcript))
        click.echo(f"replaced visibly in {size} what cannot be stored (lone surrogates, NUL and their like)", err=True)


def _is_storable(message: object) -> bool:
    try:
        check_json(message)
    except InvalidInput:
        return False
    return True


def _is_unknown(result: ToolResult) -> bool:
    return result.error is not None and result.error.code == "TOOL_OUTCOME_UNKNOWN"
