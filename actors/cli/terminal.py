"""The console that the commands draw on: colours on a terminal, plain text everywhere else, no wider than the window.

Plain means without any escape codes: in a pipe or a file, under NO_COLOR, on a dumb terminal. FORCE_COLOR asks for
colours in a pipe (`FORCE_COLOR=1 quiesce show ... | less -R`). Where the output cannot show the characters of a
drawing, ASCII takes their place, and what else it cannot show is escaped.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from rich.console import Console, ConsoleDimensions
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["open_console", "print_lines", "print_text", "write_bytes"]

_PLAIN_WIDTH: Final = 100
"""Columns where nobody has said how many there are."""
_NARROWEST: Final = 60
_ASCII: Final = str.maketrans("●✓✗⊘○…━┄╍─·", "*+xxo~=.?--")


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the command's own handling: Rich would end the program with exit code 1."""
        raise BrokenPipeError


def open_console(*, stderr: bool = False) -> Console:
    """A console on standard output, or standard error, as the environment wants it."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    console = _Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )
    width, height = console.size
    if not console.is_terminal and "COLUMNS" not in os.environ:
        width = _PLAIN_WIDTH
    console.size = ConsoleDimensions(max(width, _NARROWEST), height)  # set, or Rich asks the system for every line
    return console


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print lines that are made for the console's width, without the spaces at their ends."""
    printed = list(lines)
    for line in printed:
        line.rstrip()
        if console.options.ascii_only:
            line.plain = line.plain.translate(_ASCII)
    if printed:
        console.print(Text("\n").join(printed), no_wrap=True, overflow="ignore", crop=False)


def print_text(console: Console, text: Text) -> None:
    """Print a text, wrapped."""
    print_lines(console, text.wrap(console, console.width))


def write_bytes(data: bytes) -> None:
    """Write `data` to standard output as it is: line feeds stay line feeds on every system."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:  # without a buffer (python -u), a pipe takes a part at a time
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()
