"""The fake provider itself: takes requests, judges them, plays their replies, and remembers all of it.

One task serves one connection. While a reply is on its way another task reads the socket, so that a client that goes
away is noticed at once, whatever the reply waits for. No clock is read, nothing sleeps: a reply waits for gates only.
"""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count, zip_longest
from urllib.parse import parse_qs, urlsplit

import h11
import trio
from attrs import define, field

from .errors import error_body, refusal_body
from .gates import Gate
from .records import SECRET_HEADERS, Breach, Request
from .script import (
    Call,
    Calls,
    Cut,
    End,
    ErrorEvent,
    Event,
    Finish,
    Hang,
    Malformed,
    Refuse,
    Reset,
    Script,
    Text,
    Thinking,
    Usage,
    Wait,
    pieces_of,
)
from .seals import Seals
from .validator import VARIANTS, Problem, problems
from .voice import Ids, sse
from .voice_anthropic import AnthropicVoice
from .voice_chat import ChatVoice
from .voice_responses import ResponsesVoice
from .wire import Connection, DisconnectedError

__all__ = ["FakeProvider"]

_PATHS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}
_VERSION = re.compile("^(/v1)+(?=/)")  # base URLs of SDKs have it or add it, and those of users both
_REQUEST_ID = {"chat": "x-request-id", "responses": "x-request-id", "anthropic": "request-id"}


@define(eq=False)
class FakeProvider:
    """A provider on loopback that enforces the contracts and plays a script. `fake.py` shows how it is used.

    `script` is a list of replies, a function of the request, or a `Script`. `variant` names the rules (`VARIANTS`);
    `rules` are others. `port` 0 is any that is free.
    """

    script: Script = field(converter=lambda it: it if isinstance(it, Script) else Script(it))
    variant: str = "strict"
    rules: object = None
    port: int = 0
    key: str = "test-key-that-never-shows"
    requests: list[Request] = field(factory=list, init=False)
    refused: list[Breach] = field(factory=list, init=False)
    connections: int = field(default=0, init=False)
    open_connections: int = field(default=0, init=False)
    disconnects: int = field(default=0, init=False)
    _gates: dict[str, Gate] = field(factory=dict, init=False)
    _changed: trio.Event = field(factory=trio.Event, init=False)
    _seals: Seals = field(factory=Seals, init=False)
    _ids: Ids = field(factory=Ids, init=False)
    _numbers: count = field(factory=count, init=False)
    _exits: AsyncExitStack = field(factory=AsyncExitStack, init=False)

    def __attrs_post_init__(self):
        if self.rules is None:
            self.rules = VARIANTS[self.variant]

    async def __aenter__(self):
        await self._exits.enter_async_context(self._serving())
        return self

    async def __aexit__(self, *exc_info):
        return await self._exits.__aexit__(*exc_info)

    @property
    def root_url(self):
        """Where it is, for SDKs that add /v1 themselves (anthropic)."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self):
        """Where it is, for SDKs that do not (openai)."""
        return f"{self.root_url}/v1"

    # --- gates ---

    def open(self, gate):
        """Let all pass a gate, now and later."""
        self._gate(gate).open()

    def let(self, gate, passes=1):
        """Let so many pass a gate: who waits there first, then who comes."""
        self._gate(gate).let(passes)

    def _gate(self, name):
        return self._gates.setdefault(name, Gate())

    # --- waiting for what clients do ---

    async def waiting(self, gate, count=1):
        """Return when at least `count` replies wait at a gate."""
        await self._until(lambda: self._gate(gate).waiting >= count)

    async def received(self, count=1):
        """Return when at least `count` requests have arrived."""
        await self._until(lambda: len(self.requests) >= count)

    async def disconnected(self, count=1):
        """Return when clients have left at least `count` replies before their end."""
        await self._until(lambda: self.disconnects >= count)

    async def closed(self):
        """Return when no connection is open."""
        await self._until(lambda: self.open_connections == 0)

    async def _until(self, happened):
        while not happened():
            await self._changed.wait()

    def _tell(self):
        self._changed.set()
        self._changed = trio.Event()

    # --- connections ---

    @asynccontextmanager
    async def _serving(self):
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1", backlog=1024)
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, self._serve, listeners))
            yield
            nursery.cancel_scope.cancel()

    async def _serve(self, stream):
        connection = Connection(stream, self.connections, self.rules.max_body)
        self.connections += 1
        self.open_connections += 1
        try:
            while incoming := await connection.receive():
                async with connection.watching():
                    await self._answer(connection, incoming)
                if not connection.recycle():
                    break
        except DisconnectedError:
            self.disconnects += 1
        except h11.RemoteProtocolError:
            pass  # what came was no HTTP: there is nobody to answer
        finally:
            connection.close()
            self.open_connections -= 1
            self._tell()

    async def _answer(self, connection, incoming):
        url = urlsplit(incoming.path)
        dialect = _PATHS.get(_VERSION.sub("", url.path))
        if dialect is None or incoming.method != "POST":
            await self._control(connection, incoming, url)
            return
        request = self._record(connection, dialect, url.path, incoming)
        self._tell()
        refusal = self._judge(request, incoming)
        if refusal:
            request.status, body = refusal
            await connection.answer(request.status, self.headers_for(request), body)
        else:
            await self._reply(connection, request)

    def _record(self, connection, dialect, path, incoming):
        headers = {name: value for name, value in incoming.headers.items() if name not in SECRET_HEADERS}
        number = next(self._numbers)
        request_id = f"req_{number:08d}"
        request = Request(number, connection.number, dialect, path, headers, _parsed(incoming.body), request_id)
        self.requests.append(request)
        return request

    def headers_for(self, request):
        """What every answer to a request carries."""
        return [(_REQUEST_ID[request.dialect], request.request_id)]

    # --- judging ---

    def _judge(self, request, incoming):
        """The status and body to refuse a request with, or None."""
        say = partial(error_body, request.dialect, self.variant, request_id=request.request_id)
        if not _has_key(request.dialect, incoming.headers):
            return 401, say(401)
        if len(incoming.body) > self.rules.max_body:
            return 413, say(413)
        request.problems = self._problems(request)
        if not request.problems:
            return None
        self.refused.append(Breach(request, tuple(request.problems)))
        return 400, refusal_body(request.dialect, self.variant, request.request_id, request.problems)

    def _problems(self, request):
        if request.dialect == "anthropic" and "anthropic-version" not in request.headers:
            return [Problem((), "the header anthropic-version has to be given", "envelope")]
        return problems(request.dialect, request.body, self.rules) or self._seals.problems(
            request.dialect, request.body, self.rules
        )

    # --- replying ---

    async def _reply(self, connection, request):
        actions = self.script.reply_to(request)
        if actions is None:
            request.problems = [Problem((), "the script has no reply to this request", "script")]
            self.refused.append(Breach(request, tuple(request.problems)))
            actions = [Refuse(500, "The script has no reply to this request.", headers={"x-should-retry": "false"})]
        await _Player(self, connection, request, self._voice(request)).play(actions)

    def _voice(self, request):
        if request.dialect == "chat":
            return ChatVoice(request, self._ids, self._seals, self.variant)
        return {"responses": ResponsesVoice, "anthropic": AnthropicVoice}[request.dialect](
            request, self._ids, self._seals
        )

    async def pass_gate(self, name):
        """Go through a gate; who waits for replies to be there is told."""
        self._tell()
        await self._gate(name).go_through()

    # --- for those who are in another process ---

    async def _control(self, connection, incoming, url):
        """`POST /gates/NAME[?passes=N]` opens a gate, `GET /record` tells what happened."""
        if incoming.method == "POST" and url.path.startswith("/gates/"):
            name, passes = url.path.removeprefix("/gates/"), parse_qs(url.query).get("passes")
            if passes:
                self.let(name, int(passes[0]))
            else:
                self.open(name)
            await connection.answer(200, [], {})
        elif incoming.method == "GET" and url.path == "/record":
            await connection.answer(200, [], self.record())
        else:
            await connection.answer(404, [], error_body("chat", self.variant, 404, None))

    def record(self):
        """What happened so far, as JSON: requests, refusals, connections, disconnects."""
        keys = ("number", "dialect", "path", "request_id", "status", "body")
        return {
            "requests": [{key: getattr(request, key) for key in keys} for request in self.requests],
            "refused": [str(breach) for breach in self.refused],
            "connections": self.connections,
            "open_connections": self.open_connections,
            "disconnects": self.disconnects,
        }


@define
class _Player:
    """Plays one reply to one request. Each action is a method that returns whether the reply is over with it."""

    provider: FakeProvider
    connection: Connection
    request: Request
    voice: object
    _finish: Finish | None = None
    _begun: bool = False

    async def play(self, actions):
        """All actions, then the finish, unless one of them was the end. Usage is told from the start."""
        self.voice.usage = next((action for action in actions if isinstance(action, Usage)), None)
        for action in actions:
            if await _PLAY[type(action)](self, action):
                return
        await self._begin()
        for block in self.voice.blocks:
            if block.open:
                await self._send(self.voice.close(block))
        if self._streams:
            await self.connection.end(b"".join(self.voice.finish(self._finish)))
        else:
            await self._answer(200, self.voice.whole(self._finish))

    @property
    def _streams(self):
        return bool(self.request.body.get("stream"))

    async def _begin(self):
        if not self._begun:
            self._begun = True
            events = self.voice.begin()
            await self._start_stream()
            await self._send(events)

    async def _start_stream(self):
        if self._streams and not self.connection.streaming:
            self.request.status = 200
            await self.connection.start_stream(self.provider.headers_for(self.request))

    async def _send(self, events):
        if self._streams and events:
            await self.connection.write(b"".join(events))

    async def _answer(self, status, body, headers=()):
        self.request.status = status
        await self.connection.answer(status, [*self.provider.headers_for(self.request), *headers], body)

    # --- what a model says ---

    async def _say(self, action):
        block = await self._open(action)
        for piece in _rest(block):
            await self._piece(block, piece)
        await self._close(block)

    async def _interleave(self, action):
        blocks = [await self._open(call) for call in action.calls]
        for turn in zip_longest(*map(_rest, blocks)):
            for block, piece in zip(blocks, turn, strict=True):
                if piece is not None:
                    await self._piece(block, piece)
        for block in blocks:
            await self._close(block)

    async def _open(self, action):
        await self._begin()
        block, events = self.voice.open(action)
        await self._send(events)
        return block

    async def _piece(self, block, piece):
        if block.action.gate:
            await self.provider.pass_gate(block.action.gate)
        await self._send(self.voice.piece(block, piece))

    async def _close(self, block):
        if getattr(block.action, "cut", None) is None:
            await self._send(self.voice.close(block))

    async def _count(self, usage):
        """Nothing now: the voice knows it from the start."""

    async def _stop(self, finish):
        self._finish = finish

    async def _event(self, action):
        await self._begin()
        await self._send([sse(action.data, getattr(action, "event", None))])

    async def _wait(self, action):
        await self.provider.pass_gate(action.gate)

    # --- what goes wrong ---

    async def _refuse(self, action):
        retry = [] if action.retry_after is None else [("retry-after", action.retry_after)]
        request = self.request
        body = error_body(
            request.dialect,
            self.provider.variant,
            action.status,
            request.request_id,
            message=action.message,
            code=action.code,
        )
        await self._answer(
            action.status, body if action.body is None else action.body, [*retry, *action.headers.items()]
        )
        return True

    async def _break_off(self, action):
        if not self._streams:
            return await self._refuse(Refuse(500, action.message, code=action.code))
        await self._begin()
        await self.connection.end(b"".join(self.voice.error(action)))
        return True

    async def _hang(self, action):
        await trio.sleep_forever()

    async def _cut(self, action):
        return True

    async def _reset(self, action):
        self.connection.reset_at_close()
        return True

    async def _end(self, action):
        await self._start_stream()
        await self.connection.end()
        return True


_PLAY = {
    Text: _Player._say,
    Thinking: _Player._say,
    Call: _Player._say,
    Calls: _Player._interleave,
    Usage: _Player._count,
    Finish: _Player._stop,
    Event: _Player._event,
    Malformed: _Player._event,
    Wait: _Player._wait,
    Refuse: _Player._refuse,
    ErrorEvent: _Player._break_off,
    Hang: _Player._hang,
    Cut: _Player._cut,
    Reset: _Player._reset,
    End: _Player._end,
}


def _rest(block):
    """The pieces of a block that are still to be sent."""
    action = block.action
    text = action.raw[: action.cut] if isinstance(action, Call) else action.text
    return pieces_of(text[len(block.text) :], action.pieces)


def _parsed(body):
    try:
        return json.loads(body, parse_constant=_no_number)
    except ValueError:
        return None


def _no_number(name):
    raise ValueError(f"{name} is no JSON")


def _has_key(dialect, headers):
    given = headers.get("authorization", "").removeprefix("Bearer").strip()
    return bool(given or (dialect == "anthropic" and headers.get("x-api-key")))
