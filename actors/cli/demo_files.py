"""What the demo works on: a text and a large file of a folder, found by a look that is bounded in every way.

A folder may be empty, huge, full of files that cannot be read or must not be opened (pipes, devices). So only regular
files count, links are not followed, and the look ends after so many entries or so much time. What is not there is made
in the demo's own temporary folder; the user's folder is never written to.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Exhibits", "find_exhibits"]

_MAX_ENTRIES: Final = 5_000
_MAX_SECONDS: Final = 0.5
_MAX_DEPTH: Final = 4
_LARGE: Final = 1 << 20
"""Bytes from which on a file is worth a thread of its own."""
_TOO_LARGE: Final = 256 << 20
_MADE: Final = 32 << 20
_TEXT: Final = 4_096
_PREFERRED: Final = (".md", ".txt", ".rst", ".toml", ".py", ".json")

_SAMPLE: Final = "A sample, because the folder has no text file that can be read.\n"


@frozen
class Exhibits:
    """The folder, and the two files that the demo's tools work on, as paths from there.

    A file that the folder did not have is made elsewhere: its path is absolute then.
    """

    folder: Path
    text: Path
    large: Path


def find_exhibits(folder: Path, workshop: Path) -> Exhibits:
    """Find them in `folder`; what is missing is made in `workshop`. Raises `OSError` if `folder` cannot be listed."""
    folder = folder.resolve()
    os.scandir(folder).close()
    files = sorted(_files(folder), key=_by_preference)
    text = next((path.relative_to(folder) for path, size in files if size and _is_text(path)), None)
    sized = sorted(((size, path) for path, size in files if _LARGE <= size <= _TOO_LARGE), reverse=True)
    large = next((path.relative_to(folder) for _, path in sized if _begin_of(path) is not None), None)
    return Exhibits(folder, text or _make_text(workshop), large or _make_large(workshop))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Regular files and their sizes, those nearest to `folder` first."""
    deadline = time.monotonic() + _MAX_SECONDS
    todo, seen = deque([(folder, 0)]), 0
    while todo:
        place, depth = todo.popleft()
        for entry in _entries(place):
            seen += 1
            if seen > _MAX_ENTRIES or time.monotonic() > deadline:
                return
            try:
                mode = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(mode.st_mode) and depth < _MAX_DEPTH and not entry.name.startswith("."):
                todo.append((Path(entry.path), depth + 1))
            elif stat.S_ISREG(mode.st_mode) and entry.path.isprintable():
                yield Path(entry.path), mode.st_size


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return


def _by_preference(found: tuple[Path, int]) -> tuple[int, bool, int, str]:
    path, _ = found
    kind = _PREFERRED.index(path.suffix) if path.suffix in _PREFERRED else len(_PREFERRED)
    return len(path.parts), path.name.startswith("."), kind, str(path)


def _is_text(path: Path) -> bool:
    begin = _begin_of(path)
    if begin is None or b"\0" in begin:
        return False
    try:
        begin[: max(0, len(begin) - 3)].decode()
    except UnicodeDecodeError as error:
        return error.start >= len(begin) - 6  # the cut may go through a character
    return bool(begin.strip())


def _begin_of(path: Path) -> bytes | None:
    """The first bytes of a file, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_TEXT)
    except OSError:
        return None


def _make_text(workshop: Path) -> Path:
    path = workshop / "sample.txt"
    path.write_text(_SAMPLE)
    return path


def _make_large(workshop: Path) -> Path:
    path = workshop / "large.bin"
    with path.open("wb") as file:
        for number in range(_MADE >> 20):
            file.write(bytes([number]) * (1 << 20))
    return path
