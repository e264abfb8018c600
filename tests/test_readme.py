"""The README's examples run, print what it says they print, and its commands are those that the project promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

README = Path(__file__).parent.parent / "README.md"


def _blocks(language: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(README.read_text())
    return [token.content for token in tokens if token.type == "fence" and token.info == language]


EXAMPLES = _blocks("python")


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
def test_an_example_of_the_readme_runs(index, tmp_path):
    _run(EXAMPLES[index], tmp_path)


def test_the_first_example_completes(tmp_path):
    assert _run(EXAMPLES[0], tmp_path) == "completed Done.\n"
    assert (tmp_path / "agents.db").exists()


def test_the_failing_hook_prints_what_the_readme_shows(tmp_path):
    assert _run(EXAMPLES[2], tmp_path) == _blocks("text")[0]


def test_the_examples_of_other_hosts_print_what_their_models_say(tmp_path):
    assert _run(EXAMPLES[3], tmp_path) == "From asyncio.\n1 session\n"
    assert _run(EXAMPLES[4], tmp_path) == "From a thread.\n"


def test_the_kernel_example_prints_five(tmp_path):
    assert _run(EXAMPLES[5], tmp_path) == "5\n"


def test_the_supervised_actor_prints_what_the_readme_shows(tmp_path):
    assert _run(EXAMPLES[6], tmp_path) == _blocks("text")[1]
