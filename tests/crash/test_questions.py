"""`kill -9` in a turn that waits for a person: the question stays open, and nothing runs twice.

The child plays `ask` of `victim.py` and kills itself at one of many points; afterwards this process opens the session,
approves what is open, and looks at what has run.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest
import trio

from quiesce.actors import Ask, Hooks, Runtime, ScriptedModel, SqliteStore, say, tool
from quiesce.protocol.events import ApprovalDecided, ApprovalRequested, ToolCall, ToolResult
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.rules import check

EVERY = 5
"""Of so many points one is tried."""


@pytest.fixture(scope="module")
def points(victims, tmp_path_factory):
    """The points of the turn, in the order in which one run passed them."""
    folder = tmp_path_factory.mktemp("ask")
    assert victims[0].run("ask", folder=str(folder)) == 0
    return (folder / "points").read_text().split("\n")


class AskAboutAsked(Hooks):
    async def prepare(self, call):
        return Ask("Shall it?") if call.arguments["of"] == "asked" else None


def tools(folder):
    """The tools of the child, again: what they do stands in the same file."""

    def effect(of):
        with (folder / "effects").open("a") as effects:
            effects.write(f"{of}\n")
        return f"did {of}"

    @tool(parallel=True)
    async def quick(of: str) -> str:
        return effect(of)

    @tool
    async def alone(of: str) -> str:
        return effect(of)

    return [quick, alone]


def effects(folder):
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def test_g6_a_question_that_is_open_when_the_process_is_killed_is_open_afterwards(victims, tmp_path):
    assert victims[0].run("ask", folder=str(tmp_path), fatal="waiting 1") == -signal.SIGKILL
    trio.run(_answer_it, tmp_path)


async def _answer_it(folder):
    model = ScriptedModel([say("done")])
    async with Runtime.open(folder / "agents.db") as runtime:
        agent = await runtime.agent("s", model=model, tools=tools(folder), hooks=[AskAboutAsked()])
        (question,) = await agent.questions()
        assert (question.key, question.name, question.arguments) == ((1, 1, 1), "alone", {"of": "asked"})
        assert (question.text, model.requests, effects(folder)) == ("Shall it?", [], ["before"])
        await agent.approve(question)
        turn = await agent.wait()
        assert (turn.number, str(turn.reason), turn.text) == (1, "completed", "done")
        assert effects(folder) == ["before", "asked", "behind"]
        assert sendable_problems(model.requests[0].messages) == []


def test_g4_g6_killed_anywhere_in_a_turn_that_waits_for_a_person_nothing_runs_twice(victims, points, tmp_path):
    for at, point in enumerate(points[::EVERY]):
        folder = tmp_path / str(at)
        folder.mkdir()
        assert victims[0].run("ask", folder=str(folder), fatal=point) == -signal.SIGKILL, point
        trio.run(_look_after, folder)


async def _look_after(folder):
    async with SqliteStore(folder / "agents.db") as store:
        left = list(await store.read("s")) if await store.list() else []
        asked = [event for event in left if isinstance(event.body, ApprovalRequested)]
        decided = [event for event in left if isinstance(event.body, ApprovalDecided)]
        model = ScriptedModel([say("done")] * 3)
        async with Runtime.open(store) as runtime:
            agent = await runtime.agent("s", model=model, tools=tools(folder), hooks=[AskAboutAsked()])
            open_ = await agent.questions()
            assert len(open_) == len(asked) - len(decided)
            for question in open_:
                await agent.approve(question)
            await agent.wait()
            log = list(await store.read("s"))
            assert (await agent.send("and now?")).text == "done"
        assert list(check(await store.read("s"))) == []
    assert [problem for request in model.requests for problem in sendable_problems(request.messages)] == []
    _no_label_is_dishonest(folder, log)


def _no_label_is_dishonest(folder, log):
    ran = Counter(effects(folder))
    assert set(ran.values()) <= {1}
    names = ("before", "asked", "behind")
    results = [event.body for event in log if isinstance(event.body, ToolResult)]
    for of, result in zip(names, results, strict=False):
        code = None if result.error is None else result.error.code
        assert of in ran if code is None else of not in ran or code == "TOOL_OUTCOME_UNKNOWN"
    assert len(results) in (0, 3)
    assert set(ran) <= {name for name, _ in zip(names, [e for e in log if isinstance(e.body, ToolCall)], strict=False)}
