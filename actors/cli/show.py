"""`quiesce show`: a log as a timeline, or as its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from attrs import frozen
from rich.text import Text

from quiesce.actors.cli.drawing import Drawing
from quiesce.actors.cli.inputs import read_log_file
from quiesce.actors.cli.parameters import FileName
from quiesce.actors.cli.terminal import open_console, print_text, write_bytes
from quiesce.actors.cli.timeline import timeline_of
from quiesce.actors.cli.words import count, moment, one_line
from quiesce.protocol.codec import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.events import Event

__all__ = ["show"]


@frozen
class _Shown:
    """A log, and what its source says about it, a line each."""

    title: str
    events: Sequence[Event]
    remarks: tuple[str, ...] = ()


@click.command()
@click.argument("source", metavar="FILE|DB", type=FileName())
@click.argument("session", required=False)
@click.option("--full", is_flag=True, help="Shorten nothing; show each call's arguments and result in full.")
@click.option("--all", "everything", is_flag=True, help="Also list events that quiesce has no use for, dimmed.")
@click.option("--json", "as_json", is_flag=True, help="Print the events instead, one JSON object per line.")
def show(source: str, session: str | None, *, full: bool, everything: bool, as_json: bool) -> None:
    """Draw a log as a readable timeline.

    The log is a session of a store (DB SESSION), or a file (FILE; `-` is standard input). Each call of a step is a line
    of a chart: its place in the message, how it ended, what was asked, when it ran, how long, and its result. A session
    can be looked at while it is running.

    Marks: a tick for a success, a cross for an error, `?` for an outcome that nobody knows (the tool may have had
    effects), `o` for a call that was never started, `...` for one without a result yet, an hourglass for one that waits
    for a person to approve it.

    \b
    Examples:
      quiesce show agents.db reviewer            a session of a store
      quiesce show session.jsonl.zstd            a file
      quiesce show agents.db reviewer --full     nothing shortened
      quiesce show agents.db reviewer --json | jq -r .type
      FORCE_COLOR=1 quiesce show log.jsonl | less -R

    Exit codes: 0 shown, 2 there is no such session or file, or it is not readable.
    """  # noqa: D301 - the \b is a character that click looks for
    shown = _from_file(source) if session is None else _from_store(source, session)
    if as_json:
        write_bytes(b"".join(dumps(event).encode() + b"\n" for event in shown.events))
        return
    console = open_console()
    timeline = timeline_of(shown.events)
    began = "" if timeline.first_time is None else f" · began {moment(timeline.first_time)}"
    size = f"{count(len(timeline.turns), 'turn')} · {count(timeline.events, 'event')}"
    print_text(console, Text.assemble((one_line(shown.title), "bold"), f" · {size}{began}"))
    for remark in shown.remarks:
        print_text(console, Text(one_line(remark), "yellow"))
    Drawing(console, full=full, everything=everything).draw(timeline)


def _from_file(name: str) -> _Shown:
    _, log = read_log_file(name)
    torn = log.torn
    remarks = (
        () if torn is None else (f"a torn tail of {torn.size:,} bytes was dropped at line {torn.line}: {torn.words}",)
    )
    return _Shown(str(log.header["id"]), log.events, remarks)


def _from_store(name: str, session_id: str) -> _Shown:
    from quiesce.actors.cli.stored import session_log  # noqa: PLC0415 - what a store runs on, a file does without

    log = session_log(name, session_id)
    info = log.info
    parent = info.header.get("parent")
    remarks = (
        *((f"held by {info.holder}",) if info.holder is not None else ()),
        *((f"forked from {parent} at event {info.header.get('parentSeq')}",) if parent is not None else ()),
    )
    return _Shown(info.id, log.events, remarks)
