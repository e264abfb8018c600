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
