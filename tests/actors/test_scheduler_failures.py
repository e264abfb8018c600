"""The scheduler fails: at each seam, with zero, some and all siblings live, parallel and exclusive.

Whatever happens, the log is closed with every call answered in call order, what bodies returned is kept (G3), labels
are honest (G4), the first failure is the turn's (G5), and the next request is valid (G9).
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define, frozen
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import (
    Agent,
    Hooks,
    Runtime,
    ScriptedModel,
    Store,
    StoreError,
    Tool,
    Toolbox,
    ToolDenied,
    TurnFailed,
    call,
    say,
)
from quiesce.actors.invoke import Body
from quiesce.protocol.codec import dumps
from quiesce.protocol.errors import RecoveryFailed
from quiesce.protocol.events import AssistantMessage, ToolCall, ToolResult, TurnEnd, text_of
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.rules import LogState, Phase, check

# --- the table ---------------------------------------------------------------------------------------------------


@frozen
class Case:
    """One row. A letter of `calls` says what a call does, the letter of `answers` below it how it is answered.

    d  its body returns at once
    g  is denied by `prepare`, once nothing else moves: what was started before it is done or live by then
    l  its body is live when the scheduler fails, and returns afterwards
    F  the scheduler fails at it, once nothing else moves
    a  stands behind

    k  kept: what its body returned       u  TOOL_OUTCOME_UNKNOWN
    D  TOOL_DENIED                        n  TOOL_NOT_STARTED
    """

    seam: str
    siblings_live: str
    call_class: str
    calls: str
    answers: str
    pool: int = 10

    def __str__(self):
        return f"{self.seam}, {self.siblings_live} live, {self.call_class}"


CASES = (
    Case("before scheduling", "zero", "parallel", "aaa", "nnn"),
    Case("before scheduling", "zero", "exclusive", "aaa", "nnn"),
    Case("classification", "zero", "parallel", "dgFaa", "kDnnn"),
    Case("classification", "some", "parallel", "dlgFa", "kkDnn"),
    Case("classification", "all", "parallel", "llgF", "kkDn"),
    Case("classification", "zero", "exclusive", "dFa", "knn"),
    Case("prepare", "zero", "parallel", "dFaa", "kunn"),
    Case("prepare", "some", "parallel", "dlFa", "kkun"),
    Case("prepare", "all", "parallel", "llF", "kku"),
    Case("prepare", "zero", "exclusive", "dFa", "kun"),
    Case("dispatch", "zero", "parallel", "dgFaa", "kDunn"),
    Case("dispatch", "some", "parallel", "dlgFa", "kkDun"),
    Case("dispatch", "all", "parallel", "llgF", "kkDu"),
    Case("dispatch", "zero", "exclusive", "dFa", "kun"),
    Case("before the body", "zero", "parallel", "dFa", "kun", pool=1),
    Case("before the body", "some", "parallel", "dFlla", "kukkn", pool=3),
    Case("before the body", "all", "parallel", "Fll", "ukk"),
    Case("before the body", "zero", "exclusive", "dFa", "kun"),
    Case("after the body", "zero", "parallel", "dFa", "kun", pool=1),
    Case("after the body", "some", "parallel", "dFlla", "kukkn", pool=3),
    Case("after the body", "all", "parallel", "Fll", "ukk"),
    Case("after the body", "zero", "exclusive", "dFa", "kun"),
    Case("finalize", "zero", "parallel", "dFa", "kun", pool=1),
    Case("finalize", "some", "parallel", "dFlla", "kukkn", pool=3),
    Case("finalize", "all", "parallel", "Fll", "ukk"),
    Case("finalize", "zero", "exclusive", "dFa", "kun"),
    Case("append of a call", "zero", "parallel", "dgFaa", "kDnnn"),
    Case("append of a call", "some", "parallel", "dlgFa", "kkDnn"),
    Case("append of a call", "all", "parallel", "llgF", "kkDn"),
    Case("append of a call", "zero", "exclusive", "dFa", "knn"),
    Case("append of a result", "zero", "parallel", "dF", "kk"),
    Case("append of a result", "some", "parallel", "dFll", "kkkk"),
    Case("append of a result", "all", "parallel", "Fll", "kkk"),
    Case("append of a result", "zero", "exclusive", "dFa", "kkn"),
)

SHORT = {"TOOL_OUTCOME_UNKNOWN": "u", "TOOL_NOT_STARTED": "n", "TOOL_DENIED": "D", "TOOL_ERROR": "e", "ABORTED": "A"}


# --- the machinery that fails ------------------------------------------------------------------------------------


class Scene(Hooks):
    """Tools and hooks that play the letters of a case, and know what really happened."""

    def __init__(self, seam=""):
        self.seam = seam
        self.error = OSError("the first failure")
        self.failed = trio.Event()
        self.ran = set()
        self.returned = {}
        self.tools = [self._tool("parallel"), self._tool("exclusive")]

    def fail(self):
        """The failure. What is live goes on from here."""
        self.failed.set()
        return self.error

    def fails_at(self, seam, arguments):
        return seam == self.seam and arguments["role"] == "F"

    def calls(self, roles, call_class="parallel"):
        return [call(call_class, call_id=f"c{n}", role=role, n=n) for n, role in enumerate(roles)]

    def _tool(self, call_class):
        scene = self

        class Breakable(Tool):
            def classify(self, arguments):
                if scene.fails_at("classification", arguments.values):
                    raise scene.fail()
                return super().classify(arguments)

        return Breakable(
            name=call_class,
            description="",
            parameters={"type": "object"},
            function=self._body,
            runs="task",
            parallel=call_class == "parallel",
            read=lambda _, raw: raw,
        )

    async def _body(self, role, n):
        self.ran.add(n)
        if role == "F":
            await wait_all_tasks_blocked()
        if role == "l":
            await self.failed.wait()
        self.returned[n] = f"what {n} returned"
        return self.returned[n]

    async def prepare(self, call):
        if call.arguments["role"] == "g":
            await wait_all_tasks_blocked()
            raise ToolDenied("stands here to let the others get on")
        if self.fails_at("prepare", call.arguments):
            await wait_all_tasks_blocked()
            raise self.fail()
        if self.fails_at("append of a call", call.arguments):
            await trio.sleep_forever()  # it is interrupted when its record is refused

    async def finalize(self, call, outcome):
        await trio.lowlevel.checkpoint()
        if self.fails_at("finalize", call.arguments):
            raise self.fail()


def broken_body(scene):
    """The dispatch machinery, which fails when it makes a dispatch, before the body, or after it."""

    class BrokenBody(Body):
        def __init__(self, invocation, **options):
            if scene.fails_at("dispatch", invocation.arguments):
                raise scene.fail()
            super().__init__(invocation, **options)

        async def run(self):
            if scene.fails_at("before the body", self.call.arguments):
                await wait_all_tasks_blocked()
                raise scene.fail()
            end = await super().run()
            if scene.fails_at("after the body", self.call.arguments):
                raise scene.fail()
            return end

    return BrokenBody


def broken_toolbox(scene):
    """A toolbox that fails when it is asked for a tool."""

    class BrokenToolbox(Toolbox):
        def get(self, name):
            if scene.seam == "before scheduling":
                scene.seam = ""
                raise scene.fail()
            return super().get(name)

    return BrokenToolbox


@pytest.fixture
def play(taped_store, monkeypatch):
    """Makes a `Play` of a scene and the calls of its first turn: an async context manager."""

    @asynccontextmanager
    async def make(scene, *calls, **options):
        monkeypatch.setattr("quiesce.actors.dispatch.Body", broken_body(scene))
        monkeypatch.setattr("quiesce.actors.supervised.Toolbox", broken_toolbox(scene))
        model = ScriptedModel([say("", *calls), say("fine")])
        async with Runtime.open(taped_store) as runtime:
            options = {"model": model, "tools": scene.tools, "hooks": [scene], **options}
            try:
                yield Play(taped_store, model, await runtime.agent("s", **options), runtime, options)
            finally:
                taped_store.let_go()  # or closing would wait for it

    return make


@define
class Play:
    """An agent in a scene."""

    store: Store
    model: ScriptedModel
    agent: Agent
    runtime: Runtime
    options: dict

    async def repaired(self):
        """Wait for the driver that is started again, and repairs the log first."""
        await self.agent.wait()

    async def failing_turn(self):
        with pytest.raises(TurnFailed) as caught:
            await self.agent.send("go")
        return caught.value

    async def interrupted_turn(self):
        """Why a turn was not finished whose actors were started again, once that is done."""
        with pytest.raises(ActorDeadError) as caught:
            await self.agent.send("go")
        await self.repaired()
        return caught.value

    async def log(self):
        return await self.store.read("s")

    async def phase(self):
        """Where the log stands."""
        state = LogState()
        for event in await self.log():
            state.watch(event)
        return state.phase

    async def results(self):
        return [event.body for event in await self.log() if isinstance(event.body, ToolResult)]

    async def answers(self):
        """How each call is answered, in letters."""
        return "".join("k" if found.error is None else SHORT[found.error.code] for found in await self.results())

    async def assert_sound(self):
        """G1: the log keeps all rules, nothing is open in it, and each call has one result, in call order."""
        log = await self.log()
        assert list(check(log)) == []
        assert await self.phase() is Phase.IDLE
        messages = [event.body.message for event in log if isinstance(event.body, AssistantMessage)]
        answered = [result.message.tool_call_id for result in await self.results()]
        assert answered == [made.id for message in messages for made in message.calls]

    async def assert_goes_on(self):
        """G9: the next turn has a history that a provider accepts, and completes."""
        turn = await self.agent.send("and now?")
        assert (turn.reason.kind, turn.text) == ("completed", "fine")
        assert sendable_problems(self.model.requests[-1].messages) == []


# --- the matrix --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_g1_g3_g4_g5_g9_a_failing_scheduler_leaves_a_closed_and_honest_log(play, case):
    scene = Scene(case.seam)
    calls = scene.calls(case.calls, case.call_class)
    async with play(scene, *calls, max_parallel=case.pool) as it:
        for seam, kind in (("append of a call", "call"), ("append of a result", "result")):
            if case.seam == seam:
                it.store.refuse[f"{kind} c{case.calls.index('F')}"] = scene.fail
        failed = await it.failing_turn()
        await it.assert_sound()
        assert await it.answers() == case.answers
        assert failed.__cause__ is scene.error
        assert (failed.turn.reason.kind, failed.turn.reason.message) == ("error", "the first failure")
        assert (await it.log())[-1].body == TurnEnd(1, failed.turn.reason)
        assert_true(scene, case, await it.results())
        await it.assert_goes_on()


def assert_true(scene, case, results):
    """G3 and G4 against what the bodies themselves know."""
    lost = {case.calls.find("F")} if case.seam in {"finalize", "after the body"} else set()
    for n, result in enumerate(results):
        if n in scene.returned and n not in lost:
            assert text_of(result.message.content) == scene.returned[n]
        if result.error is not None and result.error.code == "TOOL_NOT_STARTED":
            assert n not in scene.ran
        if result.error is None:
            assert n in scene.returned


def test_the_table_has_each_seam_with_zero_some_and_all_siblings_live_and_with_exclusive_calls():
    rows = {(case.seam, case.siblings_live, case.call_class) for case in CASES}
    for seam in {case.seam for case in CASES} - {"before scheduling"}:
        for live in ("zero", "some", "all"):
            assert (seam, live, "parallel") in rows
        assert (seam, "zero", "exclusive") in rows  # an exclusive call runs alone: no sibling is ever live beside it


# --- second failures ---------------------------------------------------------------------------------------------


async def test_g5_a_finalize_that_raises_during_the_drain_does_not_hide_the_first_failure(play):
    class Second(Hooks):
        async def finalize(self, call, outcome):
            if call.index == 1:
                raise RuntimeError("the second failure")

    scene = Scene("before the body")
    async with play(scene, *scene.calls("Fll"), hooks=[scene, Second()]) as it:
        failed = await it.failing_turn()
        assert failed.__cause__ is scene.error
        assert await it.answers() == "uuk"
        await it.assert_sound()
        await it.assert_goes_on()


async def test_g5_a_result_that_is_refused_during_the_drain_does_not_hide_the_first_failure_and_is_kept(play):
    scene = Scene("prepare")
    async with play(scene, *scene.calls("llF")) as it:
        it.store.refuse["result c0"] = lambda: StoreError("the second failure")
        failed = await it.failing_turn()
        assert failed.__cause__ is scene.error
        assert await it.answers() == "kku"
        await it.assert_sound()
        await it.assert_goes_on()


@pytest.mark.parametrize("attempt", range(8))
async def test_g5_the_append_refused_first_is_the_failure_not_those_that_fell_with_it(bench, bodies, attempt):
    """Which of the waiting tasks runs first is chance in Trio, so there are several attempts."""
    first = StoreError("the disk is full")
    async with bench() as it:
        it.store.refuse["call c1"] = lambda: first
        outcome = await it.run(*(bodies.share(f"c{n}") for n in range(6)))
        assert outcome.failure is first


async def test_g5_a_refused_call_is_the_failure_although_results_fell_with_it(bench, bodies):
    first = StoreError("the disk is full")
    async with bench(max_parallel=2) as it:
        it.store.refuse["call c2"] = lambda: first
        reply = await it.start(bodies.share("c0", wait=True), bodies.share("c1", wait=True), bodies.share("c2"))
        await wait_all_tasks_blocked()
        it.store.held = True
        bodies.finish("c1")
        await wait_all_tasks_blocked()
        bodies.finish("c0")
        await wait_all_tasks_blocked()
        submitted = [line for line in it.tape if line.startswith("submit")]
        assert submitted[-3:] == ["submit call c2", "submit result c0", "submit result c1"]
        it.store.let_go()
        outcome = await reply
        assert outcome.failure is first
        assert [item.index for item in outcome.settled] == [0, 1]


@pytest.mark.parametrize(("broken", "answers"), [("finalize", "unn"), ("append of a result", "Ann")])
async def test_g1_a_failure_after_an_abort_closes_the_log_with_what_never_started(play, broken, answers):
    class Picky(Hooks):
        async def finalize(self, call, outcome):
            if broken == "finalize":
                raise scene.fail()

    scene, caught = Scene(), []
    async with play(scene, *scene.calls("laa"), hooks=[scene, Picky()], max_parallel=1) as it:
        if broken == "append of a result":
            it.store.refuse["result c0"] = scene.fail

        async def send():
            caught.append(await it.failing_turn())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            await it.agent.cancel()
        assert caught[0].__cause__ is scene.error
        assert await it.answers() == answers
        await it.assert_sound()
        await it.assert_goes_on()


# --- recovery itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("refused", "repaired"), [("step/end", "kuu"), ("turn/end", "kuk")])
async def test_g5_a_recovery_that_the_log_refuses_is_attached_and_the_next_driver_repairs_what_is_open(
    play, refused, repaired
):
    refusal = StoreError("still full")
    scene = Scene("finalize")
    async with play(scene, *scene.calls("dFl")) as it:
        it.store.refuse[refused] = lambda: refusal
        failed = await it.failing_turn()
        assert isinstance(failed, RecoveryFailed)
        assert failed.exceptions == (scene.error, refusal)
        assert failed.__cause__ is scene.error
        assert list(check(await it.log())) == []
        await it.repaired()
        assert (await it.log())[-1].body.reason.kind == "interrupted"
        assert await it.answers() == repaired
        await it.assert_sound()
        await it.assert_goes_on()


async def test_g3_a_result_that_did_not_pass_finalize_is_never_recorded_and_those_behind_it_are(play):
    scene = Scene("finalize")
    async with play(scene, *scene.calls("Fll")) as it:
        await it.failing_turn()
        written = "".join(map(dumps, await it.log()))
        assert scene.returned[0] not in written
        assert scene.returned[1] in written
        assert scene.returned[2] in written


async def test_g3_results_behind_a_gap_find_their_calls_although_all_ids_are_equal(play):
    scene = Scene("before the body")
    calls = [call("parallel", call_id="same", role=role, n=n) for n, role in enumerate("Fll")]
    async with play(scene, *calls) as it:
        await it.failing_turn()
        assert await it.answers() == "ukk"
        _, *kept = [text_of(result.message.content) for result in await it.results()]
        assert kept == ["what 1 returned", "what 2 returned"]
        log = await it.log()
        sources = [event.source_event_seqs for event in log if isinstance(event.body, ToolResult)]
        assert sources == [(event.seq,) for event in log if isinstance(event.body, ToolCall)]
        await it.assert_sound()
        await it.assert_goes_on()


async def test_g4_labels_say_in_words_what_they_mean(play):
    scene = Scene("prepare")
    async with play(scene, *scene.calls("Fa", "exclusive")) as it:
        await it.failing_turn()
        unknown, not_started = await it.results()
        assert "only if it only reads or is idempotent" in text_of(unknown.message.content)
        assert "never started" in text_of(not_started.message.content)


# --- an actor is gone --------------------------------------------------------------------------------------------


async def test_a_scheduler_that_is_dead_before_it_is_asked_leaves_every_call_not_started(play):
    scene = Scene()
    async with play(scene) as it:
        answer = say("", *scene.calls("aa"))

        def play_dead(_):
            it.agent._scheduler.stop(block=False, now=True)
            return answer

        it.model._script = (play_dead,)
        await it.interrupted_turn()
        assert await it.answers() == "nn"
        await it.assert_sound()


async def test_g2_a_scheduler_that_is_stopped_ends_its_bodies_and_what_it_sent_is_settled_before_the_repair_is(play):
    class HoldTheResult(Hooks):
        async def finalize(self, call, outcome):
            it.store.held = True
            ready.set()

    scene, caught, ready = Scene(), [], trio.Event()
    async with play(scene, *scene.calls("Fl"), hooks=[scene, HoldTheResult()]) as it:

        async def send():
            caught.append(await it.interrupted_turn())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await ready.wait()
            await wait_all_tasks_blocked()
            assert it.store.tape[-1] == "submit result c0"
            it.agent._scheduler.stop(block=False, now=True)
            await wait_all_tasks_blocked()
            assert not [line for line in it.store.tape if line.startswith("durable turn/end")]
            assert caught == []
            it.store.let_go()
        assert isinstance(caught[0].__cause__, ActorDeadError)
        assert await it.answers() == "ku"
        await it.assert_sound()


async def test_a_session_that_is_stopped_under_a_batch_leaves_its_step_open_and_the_next_driver_repairs_it(play):
    scene, caught = Scene(), []
    async with play(scene, *scene.calls("lla"), max_parallel=2) as it:

        async def send():
            caught.append(await it.interrupted_turn())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            it.agent._session.stop(block=False)
            await wait_all_tasks_blocked()
            scene.fail()
        assert isinstance(caught[0], ActorDeadError)
        assert await it.answers() == "uun"
        await it.assert_sound()
        await it.assert_goes_on()
