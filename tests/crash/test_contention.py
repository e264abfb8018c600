"""Two processes and one session: each has it alone (G8), and a dead one does not keep the other waiting."""

from __future__ import annotations

import signal
from collections import Counter

import trio

from quiesce.actors import Runtime, ScriptedModel, SqliteStore, say
from quiesce.protocol.events import ToolCall, ToolResult, TurnStart
from quiesce.protocol.rules import check

TURNS = 8


async def test_g8_two_processes_that_contend_for_a_session_take_it_in_turns(victims, tmp_path):
    for parent, name in zip(victims, "ab", strict=True):
        parent.start("contend", folder=str(tmp_path), name=name, turns=TURNS)
    assert [await trio.to_thread.run_sync(parent.end) for parent in victims] == [0, 0]
    async with SqliteStore(tmp_path / "agents.db") as store:
        log = await store.read("s")
        assert (await store.info("s")).holder is None
    assert list(check(log)) == []
    assert [event.body.turn for event in log if isinstance(event.body, TurnStart)] == list(range(1, 2 * TURNS + 1))
    effects = (tmp_path / "effects").read_text().split()
    assert Counter(effects) == Counter(f"{name}{turn}" for name in "ab" for turn in range(TURNS))
    assert sum(isinstance(event.body, ToolCall) for event in log) == 2 * TURNS


async def test_a_session_whose_holder_was_killed_is_opened_at_once_and_without_a_takeover(victims, tmp_path):
    victims[0].start("hold", folder=str(tmp_path), fatal="in the tool")
    assert await trio.to_thread.run_sync(victims[0].end) == -signal.SIGKILL
    async with Runtime.open(tmp_path / "agents.db") as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("hello")]))
        assert (await agent.send("go on")).number == 2
        codes = [event.body.error.code for event in await runtime.store.read("s") if isinstance(event.body, ToolResult)]
        assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]


async def test_g6_g8_after_a_takeover_the_process_that_lost_the_session_runs_no_further_tool(victims, tmp_path):
    victims[0].start("hold", folder=str(tmp_path))
    while not (tmp_path / "held").exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.001)
    async with Runtime.open(tmp_path / "agents.db") as runtime:
        agent = await runtime.agent("s", model=ScriptedModel([say("mine now")]), takeover=True)
        (tmp_path / "go").touch()
        assert (await agent.send("go on")).text == "mine now"
        assert await trio.to_thread.run_sync(victims[0].end) == 0
        before = await runtime.store.read("s")
        assert list(check(before)) == []
    assert (tmp_path / "effects").read_text().split() == ["h1"]
    assert (tmp_path / "failed").read_text().split() == ["LeaseLost"]
