"""A small form of `python -m bench agents`: that it works is tested here, how fast it is is measured there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from quiesce.protocol.dialects import PROFILES

ROOT = Path(__file__).parents[1]


def _module(name):
    """A module of `bench/`."""
    spec = importlib.util.spec_from_file_location(f"quiesce_bench_{name}", ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bench():
    """The module `bench/agents.py`, which checks what it measures against the logs."""
    return _module("agents")


async def test_fifty_agents_each_take_a_turn_of_eight_parallel_calls_on_one_store(bench, tmp_path):
    done = []
    found = await bench.crowd(tmp_path / "agents.db", 50, lambda: done.append(1))
    assert (found.agents, len(done), found.allocated) == (50, 100, None)


async def test_an_idle_agent_stays_within_its_share_of_memory(bench, tmp_path):
    found = await bench.crowd(tmp_path / "agents.db", 50, at_once=10, traced=True)
    assert found.allocated < 25_000


async def test_an_agent_with_a_log_of_five_thousand_events_takes_turns_like_one_with_an_empty_log(bench, tmp_path):
    found = await bench.long_log(tmp_path, 5_000, turns=5)
    assert found.events >= 5_000


@pytest.mark.parametrize("name", ["openai", "compatible", "openai-responses", "anthropic"])
def test_the_conversation_whose_rendering_is_measured_is_taken_by_every_server_and_renders_as_it_should(name):
    """`measure` itself refuses what a server would, and a next request that is not what rendering all gives."""
    rendering = _module("rendering")
    found = rendering.measure(PROFILES[name], messages=20, rounds=2)
    assert 0 < found.whole <= found.median
    assert len(rendering.conversation(20, PROFILES[name])) == 20
    assert min(found.whole, found.after, found.dumps) > 0


def test_the_benchmarks_are_listed_and_an_unknown_one_is_an_error():
    def run(*arguments):
        command = [sys.executable, "-m", "bench", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    listed = run()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "agents" in listed.stdout
    assert run("nonesuch").returncode == 2
    assert "--events" in run("agents", "--help").stdout
