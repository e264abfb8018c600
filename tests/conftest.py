"""What every test may use: logs in short notation (`logs.py`), whole agents (`agents.py`), no limits in hypothesis."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as of a job in the background; tests and what they start take it
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("quiesce", deadline=None)
settings.load_profile("quiesce")


def _beside(name):
    """A module that stands beside this one. Tests are imported one by one, so it comes to them by way of a fixture."""
    spec = importlib.util.spec_from_file_location(f"quiesce_test_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Work:
    """Counts how many instructions of Python are executed inside of it, on this thread."""

    def __init__(self):
        self.done = 0

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _trace(self, frame, event, _):
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.done += event == "opcode"
        return self._trace


@pytest.fixture(scope="session")
def work():
    """The class `Work`: how the cost of something is tested without a clock."""
    return Work


@pytest.fixture(scope="session")
def logs():
    """The module `tests/logs.py`."""
    return _beside("logs")


@pytest.fixture(scope="session")
def agents():
    """The module `tests/agents.py`."""
    return _beside("agents")


@pytest.fixture(scope="session")
def fake_provider():
    """The module `tests/provider/fake.py`: a strict fake provider for all dialects. Its docstring shows its use."""
    name = "quiesce_test_provider"
    package = sys.modules.setdefault(name, ModuleType(name))
    package.__path__ = [str(Path(__file__).with_name("provider"))]
    return importlib.import_module(f"{name}.fake")
