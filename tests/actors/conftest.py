"""What the tests of the scheduler share: a store that tells what it does, and a scheduler whose driver is the test."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from quiesce.actors import MemoryStore, Sources, Tool, Toolbox, call
from quiesce.actors.dispatch import Workshop
from quiesce.actors.hooks import HookChain
from quiesce.actors.kernel import ActorSystem
from quiesce.actors.scheduler import SchedulerActor
from quiesce.actors.session import SessionActor, SessionState
from quiesce.actors.stores import Writer
from quiesce.protocol.events import (
    AssistantMessage,
    LateResult,
    ModelMessage,
    StepStart,
    ToolCall,
    ToolResult,
    TurnStart,
    draft,
    text_of,
)
from quiesce.protocol.messages import AbortCalls, Append, RunCalls

_LABELS = {
    ToolCall: lambda body: f"call {body.call_id}",
    ToolResult: lambda body: f"result {body.message.tool_call_id}",
    LateResult: lambda body: f"late {body.call_id}",
}


def label_of(event):
    """An event in short: `call c1`, `result c1`, `late c1`, or its type."""
    return _LABELS.get(type(event.body), lambda _: event.type)(event.body)


class TapedStore(MemoryStore):
    """A store that writes on `tape` what is submitted to it and how that ended.

    `refuse` maps the label of an event to a function that gives the error with which its append is refused, once. While
    it is `held`, appends stay on their way; `let_go` has them arrive, in order.
    """

    def __init__(self, tape=None):
        super().__init__()
        self.tape = [] if tape is None else tape
        self.refuse = {}
        self.held = False
        self._on_their_way = []

    async def open(self, session_id, **options):
        return _TapedWriter(await super().open(session_id, **options), self)

    def arrive(self, append):
        self._on_their_way.append(append)
        if not self.held:
            self.let_go()

    def let_go(self, *, hold=False):
        """Have all arrive that are on their way; and those that follow, unless `hold`."""
        self.held = hold
        appends, self._on_their_way = self._on_their_way, []
        for append in appends:
            append()


class _TapedWriter(Writer):
    def __init__(self, inner, store):
        self.session_id, self.epoch, self.next_seq, self.header = (
            inner.session_id,
            inner.epoch,
            inner.next_seq,
            inner.header,
        )
        self._inner = inner
        self._store = store

    def append(self, events, on_done):
        labels = [label_of(event) for event in events]
        self._store.tape.extend(f"submit {label}" for label in labels)

        def told(error):
            self._store.tape.extend(f"{'refused' if error else 'durable'} {label}" for label in labels)
            on_done(error)

        def arrives():
            refusals = [self._store.refuse.pop(label) for label in labels if label in self._store.refuse]
            if refusals:
                trio.lowlevel.current_trio_token().run_sync_soon(lambda: told(refusals[0]()))
            else:
                self._inner.append(events, told)

        self._store.arrive(arrives)

    async def release(self):
        self._store.let_go()
        await self._inner.release()


class ScriptedBodies:
    """Two tools, `share` (parallel) and `alone` (exclusive), whose bodies the test steers and the tape shows.

    A call is made by `share("c1")` or `alone("c1")` and answers "did c1"; with `wait=True` not before `finish("c1")`,
    with `error="..."` it raises that instead.
    """

    def __init__(self, tape):
        self.tape = tape
        self.live = 0
        self.most_live = 0
        self._gates = defaultdict(trio.Event)
        self.tools = [
            Tool.from_schema("share", "", {"type": "object"}, self._body, parallel=True),
            Tool.from_schema("alone", "", {"type": "object"}, self._body),
        ]

    def share(self, call_id, **arguments):
        return call("share", call_id=call_id, of=call_id, **arguments)

    def alone(self, call_id, **arguments):
        return call("alone", call_id=call_id, of=call_id, **arguments)

    def finish(self, *call_ids):
        for call_id in call_ids:
            self._gates[call_id].set()

    def ran(self):
        """The calls whose bodies ran, sorted: those that start together begin in any order."""
        return sorted(line.removeprefix("body ") for line in self.tape if line.startswith("body "))

    async def _body(self, arguments):
        of = arguments["of"]
        self.tape.append(f"body {of}")
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            if arguments.get("wait"):
                await self._gates[of].wait()
        finally:
            self.live -= 1
            self.tape.append(f"end {of}")
        if "error" in arguments:
            raise ValueError(arguments["error"])
        return f"did {of}"


class SchedulerBench:
    """A scheduler with a session on a taped store, and one open step; what a driver would do, the test does."""

    def __init__(self, store, session, scheduler):
        self.store = store
        self.tape = store.tape
        self.session = session
        self.scheduler = scheduler

    async def start(self, *calls, held=False):
        """Open a step whose message asks for `calls`, and have them run: the reply, whose arrival goes on the tape.

        With `held`, whatever is appended from then on stays on its way until the store lets go of it.
        """
        message = ModelMessage("assistant", calls, {"kind": "model"}, "m1")
        opening = (TurnStart(1), StepStart(1, 1), AssistantMessage(1, 1, message))
        await self.session.ask(Append(tuple(map(draft, opening))))
        self.tape.clear()
        self.store.held = held
        reply = self.scheduler.ask(RunCalls(1, 1, calls))
        reply.on_done(lambda _: self.tape.append("reply"))
        return reply

    async def run(self, *calls):
        """Run `calls` to the end of their batch: its outcome."""
        return await (await self.start(*calls))

    def abort(self, cause="user"):
        """Ask for the end of the batch, as a driver does when its user cancels."""
        self.scheduler.tell(AbortCalls(cause))

    async def log(self):
        return await self.store.read("s")

    async def order(self):
        """The records and results in the log, in short."""
        return [label_of(event) for event in await self.log() if type(event.body) in _LABELS]

    async def results(self):
        """The results in the log, in its order."""
        return [event.body for event in await self.log() if isinstance(event.body, ToolResult)]

    async def answers(self):
        """What each result in the log says: its code if it is an error, else its text."""
        return [answer_of(result) for result in await self.results()]


def answer_of(result):
    """The code of an error result, the text of another."""
    return text_of(result.message.content) if result.error is None else result.error.code


@asynccontextmanager
async def _open_bench(bodies, *tools, hooks=(), max_parallel=10, drain_grace=30.0):
    async with TapedStore(bodies.tape) as store, ActorSystem() as system:
        sources = Sources()
        session = await system.spawn(SessionActor, await store.open("s"), SessionState(), sources)
        workshop = Workshop(
            session_id="s",
            session=session,
            toolbox=Toolbox([*bodies.tools, *tools]),
            hooks=HookChain(hooks),
            sources=sources,
            max_parallel=max_parallel,
            drain_grace=drain_grace,
        )
        yield SchedulerBench(store, session, await system.spawn(SchedulerActor, workshop))


@pytest.fixture
def bodies():
    """A `ScriptedBodies` with a tape of its own."""
    return ScriptedBodies([])


@pytest.fixture
def taped_store(bodies):
    """A `TapedStore` that writes on the tape of `bodies`, not entered yet."""
    return TapedStore(bodies.tape)


@pytest.fixture
def bench(bodies):
    """Makes a `SchedulerBench` with the tools of `bodies` and those given, on the tape of `bodies`.

    To be used as `async with bench(*tools, hooks=..., max_parallel=..., drain_grace=...) as it`.
    """
    return partial(_open_bench, bodies)


@pytest.fixture
def plain_tool():
    """`plain_tool(function, parallel=..., ...)`: a tool named as the async `function` of the argument object."""

    def make(function, **options):
        return Tool.from_schema(function.__name__, "", {"type": "object"}, function, **options)

    return make
