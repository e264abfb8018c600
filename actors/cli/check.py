"""`quiesce check`: whether logs keep the rules, and whether a provider would take transcripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click
from attrs import frozen

from quiesce.actors.cli.faults import DONE, NO, WRONG, Fault
from quiesce.actors.cli.inputs import read_file, shown_name
from quiesce.actors.cli.parameters import FileName
from quiesce.actors.cli.transcripts import fitted, format_option, profile_option, read_as
from quiesce.actors.cli.words import count, one_line
from quiesce.protocol.dialects.repair import check_transcript, repair
from quiesce.protocol.dialects.transcript import Transcript
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.rules import Break, LogState, Phase

if TYPE_CHECKING:
    from quiesce.protocol.dialects.problem import Problem
    from quiesce.protocol.dialects.profile import DialectName, Profile
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.logfile import LogFile

__all__ = ["check"]

_SHOWN: Final = 5
"""Places that are named in a summary."""


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FileName())
@format_option
@profile_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file, one per line.")
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[str, ...],
    kind: DialectName | Literal["log"] | None,
    profile_name: str | None,
    *,
    as_json: bool,
) -> None:
    """Check logs against the rules, and transcripts against a provider's.

    Each break of a rule in a log is a line, `FILE: seq N: rule: what is wrong`. What a crash leaves behind is told and
    is no break: a torn tail (the last line or frame is incomplete; it is left out), and an open turn (`quiesce recover`
    closes it).

    A transcript is a list of messages as JSON or JSON lines, or a whole request body, of OpenAI Chat Completions,
    OpenAI Responses or Anthropic Messages. What the provider would refuse is a line, `FILE: place: rule: what is
    wrong`: a call without its result, a result without its call or in the wrong place, an id, a name, blank text.
    `-` is standard input.

    \b
    Examples:
      quiesce check session.jsonl.zstd
      quiesce check logs/*.jsonl
      quiesce check refused-request.json --profile anthropic
      quiesce check --json *.jsonl | jq 'select(.sound | not)'
      quiesce export agents.db reviewer | quiesce check -

    Exit codes: 0 all are sound, 1 a rule is broken, 2 a file is not readable (which outweighs 1).
    """  # noqa: D301 - the \b is a character that click looks for
    findings = [_examine(name, kind, profile_name) for name in files]
    for finding in findings:
        if as_json:
            click.echo(json.dumps(finding.as_json(), ensure_ascii=False))
        else:
            finding.tell()
    ctx.exit(max(finding.exit_code for finding in findings))


def _examine(name: str, kind: DialectName | Literal["log"] | None, profile_name: str | None) -> _Finding:
    try:
        _, found = read_file(name, kind)
        if isinstance(found, Transcript):
            transcript, profile = fitted(found, profile_name)
            return _OfTranscript(name, transcript, profile, tuple(check_transcript(transcript, profile)))
    except Fault as fault:
        return _Unreadable(name, fault.message)
    except InvalidInput as error:
        return _Unreadable(name, f"{shown_name(name)}: {error}")
    except OSError as error:
        return _Unreadable(name, f"{click.format_filename(name)}: {error.strerror}")
    if profile_name is not None:
        return _Unreadable(name, f"{shown_name(name)}: a log, and --profile is for transcripts")
    state, breaks = LogState(), list[Break]()
    for event in found.events:
        breaks += state.breaks(event)
        state.watch(event)
    return _OfLog(name, found, tuple(breaks), state)


# --- what was found in a file ------------------------------------------------------------------------------------


@frozen
class _Unreadable:
    """Why a file is neither a log nor a transcript."""

    name: str
    words: str

    @property
    def exit_code(self) -> int:
        """The exit code that this file alone would lead to."""
        return WRONG

    def tell(self) -> None:
        """Print it."""
        click.echo(f"quiesce: {one_line(self.words)}", err=True)

    def as_json(self) -> JsonObject:
        """Its JSON object: that of a log, with nothing in it."""
        nothing = dict.fromkeys(("format", "events", "open", "unanswered", "torn"))
        return {"file": self.name, "sound": False, "error": self.words, **nothing, "breaks": []}


@frozen
class _OfLog:
    """What a log breaks, and where it stands at its end."""

    name: str
    log: LogFile
    breaks: tuple[Break, ...]
    state: LogState

    @property
    def exit_code(self) -> int:
        """The exit code that this file alone would lead to."""
        return NO if self.breaks else DONE

    def tell(self) -> None:
        """Print it."""
        shown = shown_name(self.name)
        for item in self.breaks:
            click.echo(f"{shown}: seq {item.seq}: {item.rule}: {one_line(item.words)}")
        if (torn := self.log.torn) is not None:
            click.echo(f"{shown}: torn tail: line {torn.line}, {torn.size:,} bytes left out: {one_line(torn.words)}")
        verdict = count(len(self.breaks), "break") if self.breaks else "sound"
        click.echo(f"{shown}: {verdict}, {count(len(self.log.events), 'event')}{_open_words(self.state)}")

    def as_json(self) -> JsonObject:
        """Its JSON object."""
        torn = self.log.torn
        return {
            "file": self.name,
            "sound": not self.breaks,
            "error": None,
            "format": self.log.format,
            "events": len(self.log.events),
            "open": self.state.phase is not Phase.IDLE,
            "unanswered": len(self.state.pending),
            "torn": None if torn is None else {"line": torn.line, "size": torn.size, "words": torn.words},
            "breaks": [{"seq": item.seq, "rule": item.rule, "words": item.words} for item in self.breaks],
        }


def _open_words(state: LogState) -> str:
    if state.phase is Phase.IDLE:
        return ""
    step = f", step {state.step}" if state.phase is Phase.STEP else ""
    unanswered = f" with {count(len(state.pending), 'call')} unanswered" if len(state.pending) else ""
    return f"; turn {state.turn}{step} is open{unanswered}: `quiesce recover` closes it"


@frozen
class _OfTranscript:
    """What a provider would refuse in a transcript."""

    name: str
    transcript: Transcript
    profile: Profile
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> int:
        """The exit code that this file alone would lead to."""
        return NO if self.problems else DONE

    def tell(self) -> None:
        """Print it."""
        shown = shown_name(self.name)
        for problem in self.problems:
            click.echo(f"{shown}: {one_line(str(problem))}")
        verdict = count(len(self.problems), "problem") if self.problems else "sound"
        verdict += f" for {self.profile.name}, {one_line(read_as(self.transcript))}{self._mending()}"
        click.echo(f"{shown}: {verdict}")

    def _mending(self) -> str:
        """What a repair would do about it."""
        if not self.problems:
            return ""
        repaired = repair(self.transcript, self.profile)
        if not repaired.changes:
            return "; `quiesce recover` repairs none of them"
        if not (left := repaired.problems):
            return "; `quiesce recover` repairs them"
        places = ", ".join(dict.fromkeys(problem.position for problem in left[:_SHOWN]))
        more = f" and {len(left) - _SHOWN:,} more" if len(left) > _SHOWN else ""
        stay = f"{count(len(left), 'problem')} {'stays' if len(left) == 1 else 'stay'}"
        return f"; `quiesce recover` repairs the pairing of calls and results; {stay} in its copy: {places}{more}"

    def as_json(self) -> JsonObject:
        """Its JSON object."""
        return {
            "file": self.name,
            "sound": not self.problems,
            "error": None,
            "format": self.transcript.dialect,
            "reason": self.transcript.reason,
            "profile": self.profile.name,
            "messages": len(self.transcript.messages),
            "problems": [
                {"position": item.position, "rule": item.rule, "words": item.words, "pairing": item.about_pairing}
                for item in self.problems
            ],
        }


_Finding: TypeAlias = _Unreadable | _OfLog | _OfTranscript
