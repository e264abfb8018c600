"""What the crash tests share: warm parent processes whose children are killed (see `victim.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


class Victims:
    """One warm parent: `run("story", ...)` runs a child to its end and gives its exit code, or minus its signal."""

    def __init__(self):
        program = Path(__file__).with_name("victim.py")
        command = [sys.executable, str(program)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, run, **arguments):
        """Start a child; `end()` waits for it."""
        self._process.stdin.write(json.dumps({"run": run, **arguments}) + "\n")
        self._process.stdin.flush()

    def end(self):
        return int(self._process.stdout.readline())

    def run(self, run, **arguments):
        self.start(run, **arguments)
        return self.end()

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="session")
def victims():
    """Two warm parents, whose children can run beside each other."""
    pair = Victims(), Victims()
    yield pair
    for parent in pair:
        parent.close()
