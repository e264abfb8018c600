"""Pykka's own test suite, run with `TrioActor` and `Reply` put in: `python tests/pykka_suite.py [pytest options]`.

The suite comes with Pykka's source distribution, which pip downloads in the version that is installed here. It is
unpacked to a temporary folder together with the one plugin it needs (pytest-mock) and run from there; nothing of it
stays. The exit code is pytest's. Every test of the suite is run. Most are parametrised by its fixture `runtime`, which
holds the actor class and the future class: those get ours. The others concern what is Pykka's alone (the thread of a
`ThreadingActor`, messages and envelopes as values, the abstract `Future`) and are counted apart.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pykka
import pytest

from quiesce.actors.kernel import Reply, TrioActor

if TYPE_CHECKING:
    from collections.abc import Iterator


class PutIn:
    """Has the suite's conftest find our classes under Pykka's names, and gives those back to the tests."""

    def __init__(self) -> None:
        self._actor, self._future = pykka.ThreadingActor, pykka.ThreadingFuture
        pykka.ThreadingActor, pykka.ThreadingFuture = TrioActor, Reply
        self._ours = self._all = 0

    def pytest_collection(self) -> None:
        """The conftest has been imported, the tests have not."""
        pykka.ThreadingActor, pykka.ThreadingFuture = self._actor, self._future

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests that will have our classes."""
        self._all = len(session.items)
        self._ours = sum(map(_is_ours, session.items))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was tested, above pytest's closing line."""
        terminalreporter.write_line(
            f"pykka {version('pykka')}: {self._ours} of {self._all} tests with TrioActor and Reply put in"
        )

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A run that tested Pykka alone is a failure."""
        if exitstatus == pytest.ExitCode.OK and not self._ours:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_ours(item: pytest.Item) -> bool:
    runtime = item.callspec.params.get("runtime") if hasattr(item, "callspec") else None
    return runtime is not None and (runtime.actor_class, runtime.future_class) == (TrioActor, Reply)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _unpacked(folder: Path) -> Iterator[Path]:
    """Download the suite and its plugin into a folder; the paths to import from."""
    plugins = folder / "plugins"
    _pip("install", "--no-deps", "--target", str(plugins), "pytest-mock")
    _pip("download", "--no-deps", "--no-binary=:all:", "--dest", str(folder), f"pykka=={version('pykka')}")
    (archive,) = folder.glob("pykka-*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    yield plugins
    yield folder / archive.name.removesuffix(".tar.gz")


def main(arguments: list[str]) -> int:
    """Run the suite; return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="pykka-suite-") as folder:
        plugins, suite = _unpacked(Path(folder))
        sys.path[:0] = [str(suite), str(plugins)]
        options = [f"--rootdir={suite}", "-p", "pytest_mock", "-p", "no:cacheprovider"]
        return pytest.main([*options, *arguments, str(suite / "tests")], plugins=[PutIn()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
