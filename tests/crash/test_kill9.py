"""`kill -9` at many points of a turn: nothing acknowledged is missing, no tool runs twice, no label is dishonest.

A child process plays the story of `victim.py` on a `SqliteStore` and kills itself at a point: around each append (its
submission, its transaction, its commit, its answers), each body and each hook. Afterwards this process resumes the
session and looks at what it finds. Which points there are is learnt from one run of the story to its end; the tests
take `QUIESCE_KILL_POINTS` of them (by default 60), evenly spread; `QUIESCE_KILL_POINTS=1000` takes them all.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
import trio

from quiesce.actors import Runtime, ScriptedModel, SqliteStore, say
from quiesce.protocol.codec import dumps, load_json
from quiesce.protocol.events import AssistantMessage, StepEnd, ToolCall, ToolResult, TurnEnd
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.rules import check

POINTS = int(os.environ.get("QUIESCE_KILL_POINTS", "60"))
NOT_RUN = {"TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH"}
ADDED_BY_RESUME = (ToolResult, StepEnd, TurnEnd)


@pytest.fixture(scope="module")
def points(victims, tmp_path_factory):
    """The points of the story, in the order in which one run passed them."""
    folder = tmp_path_factory.mktemp("story")
    assert victims[0].run("story", folder=str(folder)) == 0
    passed = (folder / "points").read_text().split("\n")
    wanted = min(POINTS, len(passed))
    return [passed[at * len(passed) // wanted] for at in range(wanted)]


@pytest.mark.parametrize("which", range(POINTS))
def test_g1_g4_g6_g7_g9_a_session_survives_kill_9(victims, points, tmp_path, which):
    if which >= len(points):
        pytest.skip("the story has no more points than that")
    assert victims[0].run("story", folder=str(tmp_path), fatal=points[which]) == -signal.SIGKILL, points[which]
    trio.run(_look_after, tmp_path)


async def _look_after(folder):
    async with SqliteStore(folder / "agents.db") as store:
        left = list(await store.read("s")) if await store.list() else []
        _nothing_acknowledged_is_missing(folder, left)
        model = ScriptedModel([say("still here")] * 5)
        async with Runtime.open(store) as runtime:
            agent = await runtime.agent("s", model=model)
            repaired = list(await store.read("s"))
            _only_closers_were_added(left, repaired)
            _no_tool_ran_twice_and_no_label_is_dishonest(folder, repaired)
            turn = await agent.send("are you there?")
            await agent.close()
            assert (str(turn.reason), turn.text) == ("completed", "still here")
            await runtime.agent("s", model=model)
        log = list(await store.read("s"))
    assert [problem for request in model.requests for problem in sendable_problems(request.messages)] == []
    assert log[: len(repaired)] == repaired
    assert list(check(log)) == []
    _every_call_is_answered_once_and_in_order(log)
    _no_tool_ran_twice_and_no_label_is_dishonest(folder, log)


def _lines(path):
    return path.read_text().split("\n")[:-1] if path.exists() else []


def _nothing_acknowledged_is_missing(folder, left):
    """G7, byte for byte."""
    acknowledged = _lines(folder / "acknowledged")
    assert [dumps(event) for event in left[: len(acknowledged)]] == acknowledged


def _only_closers_were_added(left, repaired):
    assert repaired[: len(left)] == left
    added = repaired[len(left) :]
    assert all(isinstance(event.body, ADDED_BY_RESUME) for event in added)
    assert {event.time for event in added} <= {event.time for event in left[-1:]}


def _no_tool_ran_twice_and_no_label_is_dishonest(folder, log):
    """G4, G6: what the bodies themselves have written says what happened."""
    ran = Counter(_lines(folder / "effects"))
    assert set(ran.values()) <= {1}
    records = {load_json(event.body.arguments)["of"] for event in log if isinstance(event.body, ToolCall)}
    assert set(ran) <= records
    for of, result in _answers(log):
        code = None if result.error is None else result.error.code
        assert of not in ran if code in NOT_RUN else code is not None or of in ran
        assert (code == "TOOL_NOT_STARTED") == (of not in records)


def _every_call_is_answered_once_and_in_order(log):
    """G1, found the plain way."""
    asked = [call.id for event in log if isinstance(event.body, AssistantMessage) for call in event.body.message.calls]
    answered = [event.body.message.tool_call_id for event in log if isinstance(event.body, ToolResult)]
    assert asked == answered
    assert len(set(asked)) == len(asked)


def _answers(log):
    """Each result with the mark of the call that it answers."""
    marks = {
        call.id: load_json(call.arguments)["of"]
        for event in log
        if isinstance(event.body, AssistantMessage)
        for call in event.body.message.calls
    }
    return [(marks[event.body.message.tool_call_id], event.body) for event in log if isinstance(event.body, ToolResult)]
