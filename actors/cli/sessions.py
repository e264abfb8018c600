"""The commands on a store: `quiesce sessions`, `quiesce export`, `quiesce fork`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import trio
from rich import box
from rich.table import Table
from rich.text import Text

from quiesce.actors.cli.parameters import AtLeast, FileName, checked_id
from quiesce.actors.cli.stored import existing_store, read_session, session_log
from quiesce.actors.cli.terminal import open_console, write_bytes
from quiesce.actors.cli.words import moment, one_line
from quiesce.actors.fork import fork_session
from quiesce.actors.sources import Sources
from quiesce.protocol.logfile import header, write_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.actors.stores import SessionInfo
    from quiesce.protocol.events import JsonObject

__all__ = ["export", "fork", "sessions"]


# --- sessions ----------------------------------------------------------------------------------------------------


@click.command()
@click.argument("db", metavar="DB", type=FileName())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session, one per line.")
def sessions(db: str, *, as_json: bool) -> None:
    """List the sessions of a store.

    State: `closed` between turns, `running` while somebody holds the session and a turn is open, `cut off` where a
    crash left a turn open (the next resume closes it).

    \b
    Examples:
      quiesce sessions agents.db
      quiesce sessions agents.db --json | jq -r 'select(.open) | .id'

    Exit codes: 0 listed, 2 there is no such store, or it is not readable.
    """  # noqa: D301 - the \b is a character that click looks for
    infos = trio.run(_list, db)
    if as_json:
        for info in infos:
            click.echo(json.dumps(_info_as_json(info), ensure_ascii=False))
        return
    if not infos:
        click.echo("no sessions", err=True)
        return
    console = open_console()
    console.print(_table(infos))


async def _list(db: str) -> Sequence[SessionInfo]:
    async with existing_store(db) as store:
        return await store.list()


def _table(infos: Sequence[SessionInfo]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("session", overflow="fold", style="bold")
    table.add_column("turns", justify="right")
    table.add_column("events", justify="right")
    table.add_column("last activity", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("held by", overflow="fold")
    for info in infos:
        table.add_row(
            Text(one_line(info.id)),
            f"{info.turns:,}",
            f"{0 if info.last_seq is None else info.last_seq + 1:,}",
            moment(info.created_at if info.last_time is None else info.last_time),
            _state(info),
            Text(one_line(info.holder or "")),
        )
    return table


def _state(info: SessionInfo) -> Text:
    if not info.open:
        return Text("closed", "green")
    return Text("cut off", "bold magenta") if info.holder is None else Text("running", "bold yellow")


def _info_as_json(info: SessionInfo) -> JsonObject:
    return {
        "id": info.id,
        "turns": info.turns,
        "events": 0 if info.last_seq is None else info.last_seq + 1,
        "open": info.open,
        "holder": info.holder,
        "createdAt": info.created_at,
        "lastTime": info.last_time,
        "epoch": info.epoch,
        "header": info.header,
    }


# --- export ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("db", metavar="DB", type=FileName())
@click.argument("session")
def export(db: str, session: str) -> None:
    """Write a session to standard output, as JSON lines.

    The first line is a header, then comes one event per line. The session may be running: what is committed by now is
    written. `show`, `check` and `recover` read such files.

    \b
    Examples:
      quiesce export agents.db reviewer > reviewer.jsonl
      quiesce export agents.db reviewer | quiesce check -

    Exit codes: 0 written, 2 there is no such store or session, or it is not readable.
    """  # noqa: D301 - the \b is a character that click looks for
    log = session_log(db, session)
    own = header(log.info.id, log.info.created_at)
    write_bytes(write_log(own | {key: value for key, value in log.info.header.items() if key not in own}, log.events))


# --- fork --------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("db", metavar="DB", type=FileName())
@click.argument("session")
@click.option("--at", metavar="SEQ", type=AtLeast(0), help="The last event to take over. Default: the last.")
@click.option(
    "--id",
    "new_id",
    metavar="NEW",
    callback=checked_id,
    help="The new session's id. Default: the old one's, and some letters.",
)
def fork(db: str, session: str, at: int | None, new_id: str | None) -> None:
    """Make a new session of the beginning of another.

    The new session's id is printed. A turn that is open at that point is closed in the new session, its calls answered
    without being run. The old session is not touched and may be running.

    \b
    Examples:
      quiesce fork agents.db reviewer                    all of it
      quiesce fork agents.db reviewer --at 14            up to event 14, included
      quiesce fork agents.db reviewer --id second-try
      quiesce show agents.db "$(quiesce fork agents.db reviewer)"

    Exit codes: 0 forked, 2 there is no such store, session or event, or the new id is taken.
    """  # noqa: D301 - the \b is a character that click looks for
    click.echo(trio.run(_fork, db, session, at, new_id))


async def _fork(db: str, session_id: str, at: int | None, new_id: str | None) -> str:
    async with existing_store(db) as store:
        await read_session(store, session_id)
        return await fork_session(store, session_id, new_id, at=at, sources=Sources())
