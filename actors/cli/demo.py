"""`quiesce demo`: the story is told, and everything that it promises is checked."""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import trio
from attrs import frozen
from rich.text import Text

from quiesce.actors.cli.demo_files import find_exhibits
from quiesce.actors.cli.demo_story import Expectation, Story
from quiesce.actors.cli.drawing import Drawing
from quiesce.actors.cli.faults import NO, Fault, Interrupted
from quiesce.actors.cli.inputs import check_store
from quiesce.actors.cli.parameters import FileName
from quiesce.actors.cli.terminal import open_console, print_lines, print_text
from quiesce.actors.cli.words import count, one_line, visible
from quiesce.actors.sources import Sources
from quiesce.actors.stores import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from quiesce.actors.cli.demo_files import Exhibits

__all__ = ["demo"]


_SECONDS: Final = 0.8
"""How long the slow tool takes."""


class _Failed(Fault):
    """Something that the demo promises did not hold."""

    exit_code = NO


@frozen
class _Setting:
    """Where the story is told."""

    exhibits: Exhibits
    workshop: Path
    db: Path
    session_id: str
    console: Console


@click.command()
@click.option(
    "--dir",
    "folder",
    type=FileName(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder that the tools look at; nothing is written to it. Default: the current one.",
)
@click.option("--db", type=FileName(dir_okay=False, path_type=Path), help="Keep the session in this store.")
def demo(folder: Path, db: Path | None) -> None:
    """Watch an agent fail, recover, be killed and go on, on real files.

    A scripted model asks for real tools: list a folder, read a file, hash a large one in a thread, a slow one. (1) They
    run in parallel; (2) the scheduler fails in the middle of a step; (3) the session goes on; (4) a process is killed
    by SIGKILL inside a tool, and its session is resumed. The timeline of each part is drawn, and everything that is
    promised is checked. It takes a few seconds.

    The session is written to a temporary folder that is removed at the end, unless --db names a store to keep it in.

    \b
    Examples:
      quiesce demo
      quiesce demo --dir ~/src/project
      quiesce demo --db demo.db && quiesce sessions demo.db

    Exit codes: 0 everything held, 1 something did not (it is named), 2 DIR or the store cannot be used.
    """  # noqa: D301 - the \b is a character that click looks for
    if db is not None:
        check_store(str(db))
    console = open_console()
    with tempfile.TemporaryDirectory(prefix="quiesce-demo-", ignore_cleanup_errors=True) as name:
        workshop = Path(name)
        session_id = f"demo-{Sources().mint()}"
        exhibits = find_exhibits(folder, workshop)
        setting = _Setting(exhibits, workshop, db or workshop / "demo.db", session_id, console)
        print_text(console, Text(_introduction(exhibits)))
        expectations = trio.run(_tell, setting)
    console.print()
    print_lines(console, _report(expectations))
    _close(console, expectations, db, session_id)


def _introduction(exhibits: Exhibits) -> str:
    text = "made for the demo, there is none here" if exhibits.text.is_absolute() else exhibits.text
    large = "made for the demo, there is none of 1 MB or more here" if exhibits.large.is_absolute() else exhibits.large
    return visible(f"A scripted model looks at {exhibits.folder}. Text file: {text}. Large file: {large}.")


async def _tell(setting: _Setting) -> Sequence[Expectation]:
    """Tell the story; what breaks it off is an expectation that does not hold. Raises `Interrupted`."""
    with trio.CancelScope() as scope, _cancelled_by_ctrl_c(scope):
        async with SqliteStore(setting.db) as store:
            with setting.console.status("", spinner="dots") as status:
                story = Story(
                    store,
                    setting.session_id,
                    setting.exhibits,
                    setting.workshop,
                    Drawing(setting.console),
                    _SECONDS,
                    progress=lambda words: status.update(Text(words or " ")),  # empty: Rich would keep what it has
                )
                try:
                    await story.tell()
                except Exception as error:  # noqa: BLE001 - whatever it is, the demo has failed, and says so
                    story.expectations.append(_broken_off(error))
                return story.expectations
    raise Interrupted


@contextmanager
def _cancelled_by_ctrl_c(scope: trio.CancelScope) -> Iterator[None]:
    """Ctrl-C cancels `scope`: agents and child process are ended in order, wherever the story is."""
    token = trio.lowlevel.current_trio_token()
    before = signal.signal(signal.SIGINT, lambda *_: token.run_sync_soon(scope.cancel))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _broken_off(error: Exception) -> Expectation:
    return Expectation(0, "the story is told to its end", False, f"{type(error).__name__}: {error}")


def _report(expectations: Sequence[Expectation]) -> Iterator[Text]:
    """A line for each expectation, with the part of the story that it belongs to."""
    yield Text("What was expected", "bold")
    part = -1
    for item in expectations:
        line = Text(f"  {item.part or 'all' if item.part != part else '':>4}  ", "dim")
        if item.holds:
            yield line.append("✓", "green").append(f"  {item.name}", "not dim")
        else:
            yield line.append(f"✗  {item.name}: NO, {one_line(item.found)}", "not dim bold red")
        part = item.part


def _close(console: Console, expectations: Sequence[Expectation], db: Path | None, session_id: str) -> None:
    """Say how it ended and where the session is. Raises `Fault` with exit code 1 if anything did not hold."""
    failed = [item for item in expectations if not item.holds]
    console.print()
    if not failed:
        console.print(Text(f"All {len(expectations)} expectations hold.", "bold green"))
    if db is None:
        console.print(Text("The session was in a temporary folder and is gone; --db FILE keeps it."))
    else:
        kept = click.format_filename(db)
        console.print(Text(f"The session is kept: quiesce show {kept} {session_id}"), soft_wrap=True)
    if failed:
        names = "; ".join(f"{item.name} ({one_line(item.found)})" for item in failed)
        raise _Failed(f"demo: {count(len(failed), 'expectation')} of {len(expectations)} did not hold: {names}")
