"""What the tests of the dialects share: generators of histories and of foreign message lists (`histories.py`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def histories():
    """The module `histories.py`."""
    spec = importlib.util.spec_from_file_location("quiesce_test_histories", Path(__file__).with_name("histories.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
