"""`quiesce check`: whether logs keep the rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from attrs import frozen

from quiesce.actors.cli.faults import DONE, NO, WRONG, Fault
from quiesce.actors.cli.inputs import STDIN, read_log_file
from quiesce.actors.cli.words import count, one_line
from quiesce.protocol.rules import Break, LogState, Phase

if TYPE_CHECKING:
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.logfile import LogFile

__all__ = ["check"]


@frozen
class _Finding:
    """What was found in one file: why it cannot be read, or the log, what it breaks, and where it stands at its end."""

    name: str
    unreadable: str | None = None
    log: LogFile | None = None
    breaks: tuple[Break, ...] = ()
    state: LogState | None = None

    @property
    def exit_code(self) -> int:
        """The exit code that this file alone would lead to."""
        if self.unreadable is not None:
            return WRONG
        return NO if self.breaks else DONE


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file, one per line.")
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], *, as_json: bool) -> None:
    """Check logs against the rules.

    Each break of a rule is a line, `FILE: seq N: rule: what is wrong`. What a crash leaves behind is told and is no
    break: a torn tail (the last line or frame is incomplete; it is left out), and an open turn (`quiesce recover`
    closes it). `-` is standard input.

    \b
    Examples:
      quiesce check session.jsonl.zstd
      quiesce check logs/*.jsonl
      quiesce check --json *.jsonl | jq 'select(.sound | not)'
      quiesce export agents.db reviewer | quiesce check -

    Exit codes: 0 all are sound, 1 a rule is broken, 2 a file is not readable (which outweighs 1).
    """  # noqa: D301 - the \b is a character that click looks for
    findings = [_examine(name) for name in files]
    for finding in findings:
        if as_json:
            click.echo(json.dumps(_as_json(finding), ensure_ascii=False))
        else:
            _tell(finding)
    ctx.exit(max(finding.exit_code for finding in findings))


def _examine(name: str) -> _Finding:
    try:
        _, log = read_log_file(name)
    except Fault as fault:
        return _Finding(name, unreadable=fault.message)
    except OSError as error:
        return _Finding(name, unreadable=f"{click.format_filename(name)}: {error.strerror}")
    state, breaks = LogState(), list[Break]()
    for event in log.events:
        breaks += state.breaks(event)
        state.watch(event)
    return _Finding(name, None, log, tuple(breaks), state)


def _tell(finding: _Finding) -> None:
    if finding.log is None or finding.state is None:
        click.echo(f"quiesce: {one_line(finding.unreadable or '')}", err=True)
        return
    shown = "standard input" if finding.name == STDIN else click.format_filename(finding.name)
    for item in finding.breaks:
        click.echo(f"{shown}: seq {item.seq}: {item.rule}: {one_line(item.words)}")
    if (torn := finding.log.torn) is not None:
        click.echo(f"{shown}: torn tail: line {torn.line}, {torn.size:,} bytes left out: {one_line(torn.words)}")
    verdict = count(len(finding.breaks), "break") if finding.breaks else "sound"
    click.echo(f"{shown}: {verdict}, {count(len(finding.log.events), 'event')}{_open_words(finding.state)}")


def _open_words(state: LogState) -> str:
    if state.phase is Phase.IDLE:
        return ""
    step = f", step {state.step}" if state.phase is Phase.STEP else ""
    unanswered = f" with {count(len(state.pending), 'call')} unanswered" if len(state.pending) else ""
    return f"; turn {state.turn}{step} is open{unanswered}: `quiesce recover` closes it"


def _as_json(finding: _Finding) -> JsonObject:
    log, state = finding.log, finding.state
    torn = None if log is None or log.torn is None else log.torn
    return {
        "file": finding.name,
        "sound": finding.exit_code == DONE,
        "error": finding.unreadable,
        "format": None if log is None else log.format,
        "events": None if log is None else len(log.events),
        "open": None if state is None else state.phase is not Phase.IDLE,
        "unanswered": None if state is None else len(state.pending),
        "torn": None if torn is None else {"line": torn.line, "size": torn.size, "words": torn.words},
        "breaks": [{"seq": item.seq, "rule": item.rule, "words": item.words} for item in finding.breaks],
    }
