"""Helpers for tests of whole agents: models that can be watched and stalled, a store that stops on the way, timelines.

When `at_work` ends, every request that its model was given must be one that a provider accepts (G9), and every log in
its store must keep the rules and have its steps paired (G1): each test of an agent checks that by the way.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from itertools import count

import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import MemoryStore, Runtime, ScriptedModel, Sources
from quiesce.actors.stores import Writer
from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantAttempt,
    AssistantMessage,
    EndSeed,
    InboxSpliced,
    LateResult,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    text_of,
)
from quiesce.protocol.history import sendable_problems
from quiesce.protocol.model import Finished
from quiesce.protocol.rules import check

NOW = 1_700_000_000_000


def ticking(start=NOW):
    """Sources whose time goes on by a millisecond at each look, and whose ids come from a seed."""
    return Sources(count(start).__next__, random.Random(1))


# --- models ------------------------------------------------------------------------------------------------------


class StallingModel(ScriptedModel):
    """Plays its script, but stops before the end of each answer, with `stalled` set, until `go_on` is set."""

    def __init__(self, script):
        super().__init__(script)
        self.stalled = trio.Event()
        self.go_on = trio.Event()

    async def respond(self, request, emit):
        last = []
        await super().respond(request, lambda delta: last.append(delta) if isinstance(delta, Finished) else emit(delta))
        self.stalled.set()
        await self.go_on.wait()
        for delta in last:
            emit(delta)


def said(request):
    """What the messages of a request say, in order."""
    return [text_of(message.content) for message in request.messages]


# --- stores ------------------------------------------------------------------------------------------------------


class SteppedStore(MemoryStore):
    """A store whose appends can be held up on their way, and refused, one by one.

    `held` keeps the appends that were submitted and have not arrived; `let_go` has them arrive. While `holding`, those
    that follow are held up as well. `refuse` is asked of each append's words and gives the error to refuse it with.
    """

    def __init__(self):
        super().__init__()
        self.holding = False
        self.held = []
        self.submitted = []
        self.refuse = lambda words: None

    async def open(self, session_id, **options):
        return _SteppedWriter(await super().open(session_id, **options), self)

    def let_go(self, *, holding=False):
        self.holding = holding
        held, self.held = self.held, []
        for arrive in held:
            arrive()

    async def hold_at(self, word):
        """Let appends arrive one after the other until one with an event that `word` begins is on its way."""
        self.holding = True
        while not self.held or not any(said.startswith(word) for said in self.submitted[-1]):
            await wait_all_tasks_blocked()
            assert self.held, f"nothing is on its way, and no {word!r} was submitted"
            if not any(said.startswith(word) for said in self.submitted[-1]):
                self.let_go(holding=True)


class _SteppedWriter(Writer):
    def __init__(self, inner, store):
        self.session_id, self.epoch = inner.session_id, inner.epoch
        self.next_seq, self.header = inner.next_seq, inner.header
        self._inner = inner
        self._store = store

    def append(self, events, on_done):
        words = [word(event) for event in events]
        self._store.submitted.append(words)

        def arrive():
            refusal = self._store.refuse(words)
            if refusal is None:
                self._inner.append(events, on_done)
            else:
                trio.lowlevel.current_trio_token().run_sync_soon(on_done, refusal)

        self._store.held.append(arrive)
        if not self._store.holding:
            self._store.let_go()

    async def release(self):
        self._store.let_go()
        await self._inner.release()


# --- logs --------------------------------------------------------------------------------------------------------


def _place(body):
    return f"{body.turn}.{body.step}"


def _answer(body):
    return f"{'interrupted' if body.interrupted else 'answer'} {text_of(body.message.content)}".strip()


def _result(body):
    return f"result {body.message.tool_call_id} {body.error.code if body.error else text_of(body.message.content)}"


def _splice(body):
    return f"queue {body.target} {'-' * (body.removed_count or 0)}{'+' * len(body.inserted)}"


_WORDS = {
    TurnStart: lambda body: f"turn {body.turn}",
    TurnEnd: lambda body: f"end turn {body.turn} {body.reason}",
    StepStart: lambda body: f"step {_place(body)}",
    StepEnd: lambda body: f"end step {_place(body)}",
    UserMessage: lambda body: f"user {text_of(body.content)}",
    AssistantMessage: _answer,
    AssistantAttempt: lambda body: f"attempt {body.error.code}" if body.error else "attempt",
    ToolCall: lambda body: f"call {body.call_id}",
    ApprovalRequested: lambda body: f"ask {body.call_id}",
    ApprovalDecided: lambda body: f"{'approve' if body.approved else 'deny'} {body.call_id}",
    ToolResult: _result,
    LateResult: lambda body: f"late {body.call_id}",
    EndSeed: lambda _: "seed",
    InboxSpliced: _splice,
}


def word(event):
    """An event in short."""
    return _WORDS[type(event.body)](event.body)


def timeline(events):
    """A log in words, without what happens to its queues."""
    return [word(event) for event in events if not isinstance(event.body, InboxSpliced)]


# --- agents ------------------------------------------------------------------------------------------------------


class Desk:
    """An agent, and what a test wants to know of it."""

    def __init__(self, runtime, agent, model):
        self.runtime = runtime
        self.store = runtime.store
        self.agent = agent
        self.model = model

    async def log(self):
        return list(await self.store.read(self.agent.session_id))

    async def timeline(self, *kinds):
        """The log in words; with `kinds`, only the lines that begin so."""
        return [line for line in timeline(await self.log()) if line.startswith(kinds or "")]


@asynccontextmanager
async def at_work(script, *, store=None, model=None, session_id="s", sources=None, **options):
    """An agent that plays `script`, in a runtime of its own, as a `Desk`."""
    model = model or ScriptedModel(script)
    async with Runtime.open(store or MemoryStore(), sources=sources or ticking()) as runtime:
        yield Desk(runtime, await runtime.agent(session_id, model=model, **options), model)
        await check_all(runtime.store, model)


async def check_all(store, *models):
    """The logs in `store` are sound, and so were the requests to `models`."""
    for info in await store.list():
        await check_session(store, info.id)
    for model in models:
        assert [problem for request in model.requests for problem in sendable_problems(request.messages)] == []


async def check_session(store, session_id):
    """The log of one session keeps the rules, G1 among them."""
    assert list(check(await store.read(session_id))) == []
