"""The README's examples run, print what it says they print, and its commands are those that the project promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

README = Path(__file__).parent.parent / "README.md"


_PRINTS = re.compile(r"It prints `(.+?)`")


def _examples() -> list[tuple[str, str | None]]:
    """Each example, and what the README says it prints: the text block, or the sentence, right behind it."""
    found: list[tuple[str, str | None]] = []
    behind = False
    for token in MarkdownIt("commonmark").parse(README.read_text()):
        if token.type == "fence" and token.info == "python":
            found.append((token.content, None))
            behind = True
        elif behind and token.type in {"fence", "inline"}:
            told = token.content if token.info == "text" else _sentence(token.content)
            found[-1] = found[-1][0], told
            behind = False
    return found


def _sentence(words: str) -> str | None:
    prints = _PRINTS.match(words)
    return None if prints is None else prints[1] + "\n"


EXAMPLES = _examples()


def _run(source: str, folder: Path) -> str:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=folder,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_an_example_of_the_readme_runs_and_prints_what_is_shown(index, tmp_path):
    source, told = EXAMPLES[index]
    printed = _run(source, tmp_path)
    assert told is None or printed == told


def test_most_examples_show_what_they_print():
    assert sum(told is not None for _, told in EXAMPLES) >= len(EXAMPLES) - 2


def test_the_first_example_leaves_the_store_that_the_readme_names(tmp_path):
    _run(EXAMPLES[0][0], tmp_path)
    assert (tmp_path / "agents.db").exists()
