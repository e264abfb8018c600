"""The fake provider as real SDK clients see it: each action of a script, each refusal, and who left whom when."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
import trio
from attrs import define, field

# At "[DONE]", and where an event is no JSON, the SDKs close the response but leave their generators to the collector.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:Async generator '(openai|anthropic|httpx2|httpcore2)\.:ResourceWarning"
)

DIALECTS = ["chat", "responses", "anthropic"]
BROKEN = (openai.APIConnectionError, anthropic.APIConnectionError, httpx2.TransportError)
HI = [{"role": "user", "content": "hi"}]


# --- asking, as the SDKs do --------------------------------------------------------------------------------------


@define
class Client:
    """Both SDKs, connected to a provider; one question at a time, in any dialect."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic

    async def start(self, dialect, messages=HI, *, stream=True, **more):
        """What the SDK gives for a question: a stream of events, or the whole reply."""
        more = {"model": "m", "stream": stream, **more}
        if dialect == "chat":
            return await self.openai.chat.completions.create(messages=messages, **more)
        if dialect == "responses":
            return await self.openai.responses.create(input=messages, **more)
        return await self.anthropic.messages.create(messages=messages, **{"max_tokens": 99, **more})

    async def ask(self, dialect, messages=HI, *, into=None, **more):
        """The whole answer of a stream; `into` has what arrived, also when the stream breaks."""
        answer = Answer() if into is None else into
        async for event in await self.start(dialect, messages, **more):
            answer.take(dialect, event)
        return answer


@define
class Answer:
    """What arrived of an answer: text, thinking, the fragments of calls in order, and the end."""

    text: list[str] = field(factory=list)
    thinking: list[str] = field(factory=list)
    fragments: list[tuple] = field(factory=list)  # (index, id, name) or (index, more arguments)
    seals: list[str] = field(factory=list)
    finish: str | None = None
    usage: tuple[int, int] | None = None
    events: list = field(factory=list)
    _more: trio.Event = field(factory=trio.Event)

    async def has(self, pieces):
        """Return when so many pieces of text have arrived."""
        while len(self.text) < pieces:
            await self._more.wait()

    def take(self, dialect, event):
        """Take the next event of the SDK."""
        self.events.append(event)
        self._more.set()
        self._more = trio.Event()
        {"chat": self._chat, "responses": self._responses, "anthropic": self._anthropic}[dialect](event)

    @property
    def arguments(self):
        """All arguments by the index of their call."""
        found = {}
        for index, *rest in self.fragments:
            found[index] = found.get(index, "") + (rest[0] if len(rest) == 1 else "")
        return found

    def _add(self, to, text):
        if text:
            to.append(text)

    def _chat(self, chunk):
        if chunk.usage:
            self.usage = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        for choice in chunk.choices:
            self.finish = choice.finish_reason or self.finish
            self._add(self.text, choice.delta.content)
            self._add(self.thinking, getattr(choice.delta, "reasoning_content", None))
            for call in choice.delta.tool_calls or ():
                if call.id is not None:
                    self.fragments.append((call.index, call.id, call.function.name))
                if call.function.arguments:
                    self.fragments.append((call.index, call.function.arguments))

    def _responses(self, event):
        match event.type:
            case "response.output_text.delta":
                self.text.append(event.delta)
            case "response.reasoning_summary_text.delta":
                self.thinking.append(event.delta)
            case "response.output_item.added" if event.item.type == "function_call":
                self.fragments.append((event.output_index, event.item.call_id, event.item.name))
            case "response.function_call_arguments.delta":
                self.fragments.append((event.output_index, event.delta))
            case "response.output_item.done" if event.item.type == "reasoning":
                self._add(self.seals, event.item.encrypted_content)
            case "response.completed" | "response.incomplete" | "response.failed":
                self.finish = event.response.status
                usage = event.response.usage
                self.usage = usage and (usage.input_tokens, usage.output_tokens)

    def _anthropic(self, event):
        match event.type:
            case "content_block_start" if event.content_block.type == "tool_use":
                self.fragments.append((event.index, event.content_block.id, event.content_block.name))
            case "content_block_start" if event.content_block.type == "redacted_thinking":
                self.seals.append(event.content_block.data)
            case "content_block_delta":
                self._delta(event.index, event.delta)
            case "message_start":
                self.usage = event.message.usage.input_tokens, 0
            case "message_delta":
                self.finish = event.delta.stop_reason
                self.usage = self.usage[0], event.usage.output_tokens

    def _delta(self, index, delta):
        match delta.type:
            case "text_delta":
                self.text.append(delta.text)
            case "thinking_delta":
                self.thinking.append(delta.thinking)
            case "signature_delta":
                self.seals.append(delta.signature)
            case "input_json_delta" if delta.partial_json:
                self.fragments.append((index, delta.partial_json))


@asynccontextmanager
async def clients(provider):
    """Both SDKs, without retries of their own; and without TLS, which takes long to prepare."""
    http = httpx2.AsyncClient(verify=False, timeout=None, limits=httpx2.Limits())
    options = {"api_key": provider.key, "max_retries": 0, "http_client": http}
    async with (
        openai.AsyncOpenAI(base_url=provider.base_url, **options) as of_openai,
        anthropic.AsyncAnthropic(base_url=provider.root_url, **options) as of_anthropic,
    ):
        yield Client(of_openai, of_anthropic)


@pytest.fixture
def serve(fake_provider):
    """A provider that plays replies, and a client of it."""

    @asynccontextmanager
    async def serving(*replies, variant="openai", **options):
        script = replies[0] if len(replies) == 1 and callable(replies[0]) else list(replies)
        async with (
            fake_provider.FakeProvider(script, variant, **options) as provider,
            clients(provider) as client,
        ):
            yield provider, client

    return serving


# --- what a model says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_arrives_in_as_many_pieces_as_the_script_says(fake_provider, serve, dialect):
    async with serve([fake_provider.Text("one two three", pieces=3)]) as (_, client):
        answer = await client.ask(dialect)
    assert answer.text == ["one ", "two ", "three"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_thinking_arrives_apart_from_text(fake_provider, serve, dialect):
    reply = [fake_provider.Thinking("let me see", pieces=2), fake_provider.Text("yes")]
    async with serve(reply) as (_, client):
        answer = await client.ask(dialect)
    assert (answer.thinking, answer.text) == (["let m", "e see"], ["yes"])


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
@pytest.mark.parametrize("redacted", [True, False])
async def test_thinking_is_sealed(fake_provider, serve, dialect, redacted):
    reply = [fake_provider.Thinking("hm", redacted=redacted), fake_provider.Text("yes")]
    include = {"include": ["reasoning.encrypted_content"]} if dialect == "responses" else {}
    async with serve(reply) as (_, client):
        answer = await client.ask(dialect, **include)
    assert len(answer.seals) == 1
    assert answer.thinking == ([] if redacted else ["hm"])


async def test_encrypted_content_is_whole_only_when_its_item_is_done(fake_provider, serve):
    async with serve([fake_provider.Thinking("hm"), fake_provider.Text("yes")]) as (_, client):
        answer = await client.ask("responses", include=["reasoning.encrypted_content"])
    added = next(event.item for event in answer.events if event.type == "response.output_item.added")
    assert answer.seals[0].startswith(added.encrypted_content)
    assert answer.seals[0] != added.encrypted_content


async def test_encrypted_content_is_for_those_who_ask_for_it(fake_provider, serve):
    async with serve([fake_provider.Thinking("hm"), fake_provider.Text("yes")]) as (_, client):
        answer = await client.ask("responses")
    assert answer.seals == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_parallel_calls_arrive_one_after_the_other(fake_provider, serve, dialect):
    reply = [fake_provider.Call("a", {"x": 1}, id="i1", pieces=2), fake_provider.Call("b", "{}", id="i2")]
    async with serve(reply) as (_, client):
        answer = await client.ask(dialect)
    assert answer.fragments == [(0, "i1", "a"), (0, '{"x"'), (0, ": 1}"), (1, "i2", "b"), (1, "{}")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_may_arrive_interleaved(fake_provider, serve, dialect):
    a, b = fake_provider.Call("a", "1234", id="i1", pieces=2), fake_provider.Call("b", "567", id="i2", pieces=3)
    async with serve([fake_provider.Calls([a, b])]) as (_, client):
        answer = await client.ask(dialect)
    begins = [(0, "i1", "a"), (1, "i2", "b")]
    assert answer.fragments == [*begins, (0, "12"), (1, "5"), (0, "34"), (1, "6"), (1, "7")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_ids_are_made_where_the_script_gives_none(fake_provider, serve, dialect):
    async with serve([fake_provider.Call("a"), fake_provider.Call("a")]) as (_, client):
        answer = await client.ask(dialect)
    ids = [rest[0] for _, *rest in answer.fragments if len(rest) == 2]
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ids", [("", ""), ("x", "x"), ("functions.a:0", "functions.a:1")])
async def test_ids_may_be_empty_repeated_or_in_another_alphabet(fake_provider, serve, dialect, ids):
    async with serve([fake_provider.Call("a", id=call_id) for call_id in ids]) as (_, client):
        answer = await client.ask(dialect)
    assert tuple(rest[0] for _, *rest in answer.fragments if len(rest) == 2) == ids


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_two_calls_may_share_an_index(fake_provider, serve, dialect):
    reply = [fake_provider.Call(name, f'"{name}"', id=name, index=0) for name in "ab"]
    async with serve(reply) as (_, client):
        answer = await client.ask(dialect)
    assert answer.fragments == [(0, "a", "a"), (0, '"a"'), (0, "b", "b"), (0, '"b"')]


async def test_a_call_of_chat_may_come_in_one_fragment(fake_provider, serve):
    async with serve([fake_provider.Call("a", "{}", pieces=0)]) as (_, client):
        answer = await client.ask("chat")
    chunks = [chunk for chunk in answer.events if chunk.choices and chunk.choices[0].delta.tool_calls]
    assert [chunk.choices[0].delta.tool_calls[0].function.arguments for chunk in chunks] == ["{}"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_usage_is_what_the_script_says(fake_provider, serve, dialect):
    options = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
    async with serve([fake_provider.Text("x"), fake_provider.Usage(12, 3)]) as (_, client):
        answer = await client.ask(dialect, **options)
    assert answer.usage == (12, 3)


@pytest.mark.parametrize(("variant", "usage"), [("openai", None), ("deepseek", (10, 5)), ("mistral", (10, 5))])
async def test_usage_of_chat_comes_unasked_from_some_providers_only(fake_provider, serve, variant, usage):
    async with serve([fake_provider.Text("x"), fake_provider.Usage()], variant=variant) as (_, client):
        answer = await client.ask("chat")
    assert answer.usage == usage


FINISHES = [
    ("chat", None, "stop"),
    ("chat", "length", "length"),
    ("chat", "refusal", "content_filter"),
    ("responses", None, "completed"),
    ("responses", "length", "incomplete"),
    ("anthropic", None, "end_turn"),
    ("anthropic", "length", "max_tokens"),
    ("anthropic", "pause_turn", "pause_turn"),
]


@pytest.mark.parametrize(("dialect", "reason", "word"), FINISHES)
async def test_a_finish_is_said_in_the_word_of_the_dialect(fake_provider, serve, dialect, reason, word):
    reply = [fake_provider.Text("x"), *([fake_provider.Finish(reason)] if reason else [])]
    async with serve(reply) as (_, client):
        assert (await client.ask(dialect)).finish == word


@pytest.mark.parametrize(("dialect", "word"), [("chat", "tool_calls"), ("anthropic", "tool_use")])
async def test_a_reply_with_calls_finishes_for_them(fake_provider, serve, dialect, word):
    async with serve([fake_provider.Call("a")]) as (_, client):
        assert (await client.ask(dialect)).finish == word


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_empty_reply_has_an_end_and_nothing_else(serve, dialect):
    async with serve([]) as (_, client):
        answer = await client.ask(dialect)
    assert (answer.text, answer.fragments) == ([], [])
    assert answer.finish


async def test_a_call_cut_by_the_token_limit_is_an_incomplete_item_of_responses(fake_provider, serve):
    reply = [fake_provider.Call("a", {"path": "long"}, cut=5), fake_provider.Finish("length")]
    async with serve(reply) as (_, client):
        answer = await client.ask("responses")
    (item,) = answer.events[-1].response.output
    assert (item.status, item.arguments) == ("incomplete", '{"pat')


@pytest.mark.parametrize(
    ("dialect", "last"), [("responses", "response.output_item.done"), ("anthropic", "content_block_stop")]
)
async def test_a_call_cut_by_the_token_limit_is_closed_before_the_finish(fake_provider, serve, dialect, last):
    reply = [fake_provider.Call("a", {"path": "long"}, cut=5), fake_provider.Finish("length")]
    async with serve(reply) as (_, client):
        answer = await client.ask(dialect)
    assert last in [event.type for event in answer.events]


async def test_a_reply_that_is_not_streamed_is_the_same_in_one_piece(fake_provider, serve):
    reply = [fake_provider.Thinking("hm"), fake_provider.Text("yes", 3), fake_provider.Call("a", {"x": 1}, id="i")]
    async with serve(reply, reply, reply) as (_, client):
        chat = (await client.start("chat", stream=False)).choices[0].message
        responses = await client.start("responses", stream=False)
        message = await client.start("anthropic", stream=False)
    assert (chat.content, chat.tool_calls[0].id, chat.tool_calls[0].function.arguments) == ("yes", "i", '{"x": 1}')
    assert [item.type for item in responses.output] == ["reasoning", "message", "function_call"]
    assert responses.output_text == "yes"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[2].input == {"x": 1}


# --- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_may_be_cut_in_the_middle_of_arguments(fake_provider, serve, dialect):
    answer = Answer()
    async with serve([fake_provider.Call("a", {"path": "x"}, id="i", cut=5), fake_provider.Cut()]) as (_, client):
        with pytest.raises(BROKEN):
            await client.ask(dialect, into=answer)
    assert (answer.arguments, answer.finish) == ({0: '{"pat'}, None)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_body_may_end_without_a_finish(fake_provider, serve, dialect):
    async with serve([fake_provider.Text("half"), fake_provider.End()]) as (_, client):
        answer = await client.ask(dialect)
    assert (answer.text, answer.finish) == (["half"], None)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_body_may_be_empty(fake_provider, serve, dialect):
    async with serve([fake_provider.End()]) as (_, client):
        assert (await client.ask(dialect)).events == []


@pytest.mark.parametrize(
    ("dialect", "status", "error"),
    [
        ("chat", 401, openai.AuthenticationError),
        ("chat", 429, openai.RateLimitError),
        ("responses", 500, openai.InternalServerError),
        ("anthropic", 429, anthropic.RateLimitError),
        ("anthropic", 500, anthropic.InternalServerError),
        ("anthropic", 529, anthropic.OverloadedError),
    ],
)
async def test_an_http_error_is_the_sdks_error_of_that_status(fake_provider, serve, dialect, status, error):
    async with serve([fake_provider.refuse(status)]) as (provider, client):
        with pytest.raises(error) as caught:
            await client.ask(dialect)
    assert caught.value.request_id == provider.requests[0].request_id
    assert provider.requests[0].status == status


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_rate_limit_says_when_to_come_again(fake_provider, serve, dialect):
    async with serve([fake_provider.refuse(429, "slowly", retry_after=7)]) as (_, client):
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError), match="slowly") as caught:
            await client.ask(dialect)
    assert caught.value.response.headers["retry-after"] == "7"


async def test_an_error_may_have_a_code_and_a_body_that_is_no_json(fake_provider, serve):
    replies = [fake_provider.refuse(400, code="context_length_exceeded")], [fake_provider.refuse(502, body="<html>")]
    async with serve(*replies) as (_, client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.ask("chat")
        with pytest.raises(openai.InternalServerError) as page:
            await client.ask("chat")
    assert caught.value.code == "context_length_exceeded"
    assert page.value.response.text == "<html>"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_after_an_error_the_next_reply_is_played_on_the_same_connection(fake_provider, serve, dialect):
    async with serve([fake_provider.refuse(500)], [fake_provider.Text("better")]) as (provider, client):
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
            await client.ask(dialect)
        answer = await client.ask(dialect)
    assert answer.text == ["better"]
    assert provider.connections == 1


async def test_an_error_in_the_middle_of_a_chat_stream_is_raised_after_the_text(fake_provider, serve):
    answer = Answer()
    async with serve([fake_provider.Text("half"), fake_provider.ErrorEvent("broke")]) as (_, client):
        with pytest.raises(openai.APIError, match="broke"):
            await client.ask("chat", into=answer)
    assert answer.text == ["half"]


async def test_an_error_in_the_middle_of_an_anthropic_stream_has_its_type(fake_provider, serve):
    async with serve([fake_provider.Text("half"), fake_provider.ErrorEvent("broke")]) as (_, client):
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.ask("anthropic")
    assert caught.value.type == "overloaded_error"


@pytest.mark.parametrize(("failed", "kind"), [(False, "error"), (True, "response.failed")])
async def test_an_error_in_the_middle_of_a_response_is_an_event(fake_provider, serve, failed, kind):
    async with serve([fake_provider.Text("half"), fake_provider.ErrorEvent("broke", failed=failed)]) as (_, client):
        answer = await client.ask("responses")
    assert answer.events[-1].type == kind


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_event_may_be_no_json(fake_provider, serve, dialect):
    name = {} if dialect != "anthropic" else {"event": "content_block_delta"}
    async with serve([fake_provider.Text("half"), fake_provider.Event('{"half', **name)]) as (_, client):
        with pytest.raises(json.JSONDecodeError):
            await client.ask(dialect)


async def test_a_test_may_send_events_of_its_own(fake_provider, serve):
    chunk = {"choices": [{"index": 0, "delta": {"content": "own"}, "finish_reason": None}]}
    async with serve([fake_provider.Event(chunk)]) as (_, client):
        assert (await client.ask("chat")).text == ["own"]


# --- the bare socket: how connections end ------------------------------------------------------------------------


async def bare(provider, *, stream=True):
    """A question on a bare socket."""
    body = json.dumps({"model": "m", "messages": HI, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {len(body)}"
    socket_stream = await trio.open_tcp_stream("127.0.0.1", provider.port)
    await socket_stream.send_all(head.encode() + b"\r\n\r\n" + body)
    return socket_stream


async def read_all(stream):
    """What arrives until the end or the break, and the break."""
    arrived = b""
    try:
        while data := await stream.receive_some():
            arrived += data
    except trio.BrokenResourceError as error:
        return arrived, type(error.__cause__)
    return arrived, None


async def test_a_reset_before_the_headers_leaves_nothing_to_read(fake_provider, serve):
    async with serve([fake_provider.Reset()]) as (provider, _), await bare(provider) as stream:
        assert await read_all(stream) == (b"", ConnectionResetError)


async def test_a_reset_in_the_middle_breaks_the_body(fake_provider, serve):
    reply = [fake_provider.Text("half"), fake_provider.Wait("read"), fake_provider.Reset()]
    async with serve(reply) as (provider, _), await bare(provider) as stream:
        await provider.waiting("read")
        first = await stream.receive_some()
        provider.open("read")
        rest, broken = await read_all(stream)
    assert b"half" in first + rest
    assert broken is ConnectionResetError


async def test_a_cut_ends_the_bytes_before_the_body_is_complete(fake_provider, serve):
    async with (
        serve([fake_provider.Text("half"), fake_provider.Cut()]) as (provider, _),
        await bare(provider) as stream,
    ):
        arrived, broken = await read_all(stream)
    assert broken is None
    assert b"half" in arrived
    assert not arrived.endswith(b"0\r\n\r\n")


async def test_what_is_no_http_ends_its_connection_and_no_other(fake_provider, serve):
    async with serve([fake_provider.Text("fine")]) as (provider, client):
        async with await trio.open_tcp_stream("127.0.0.1", provider.port) as stream:
            await stream.send_all(b"\x16\x03\x01 no http\r\n\r\n")
            assert (await read_all(stream))[0] == b""
        assert (await client.ask("chat")).text == ["fine"]


async def test_a_connection_is_kept_for_the_next_request(fake_provider, serve):
    async with serve([fake_provider.Text("1")], [fake_provider.Text("2")]) as (provider, client):
        await client.ask("chat")
        await client.ask("responses")
        assert (provider.connections, provider.open_connections, provider.disconnects) == (1, 1, 0)


# --- gates, and clients that leave -------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_trickle_brings_a_piece_each_time_the_gate_lets_one_through(fake_provider, serve, dialect):
    answer, seen = Answer(), []
    reply = [fake_provider.Text("abc", pieces=3, gate="drip")]
    async with serve(reply) as (provider, client), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.ask(dialect, into=answer))
        for _ in range(3):
            await provider.waiting("drip")
            await answer.has(len(seen))
            seen.append("".join(answer.text))
            provider.let("drip")
    assert seen == ["", "a", "ab"]
    assert answer.text == ["a", "b", "c"]


async def test_a_wait_before_all_else_holds_back_the_headers(fake_provider, serve):
    reply = [fake_provider.Wait("go"), fake_provider.refuse(500)]
    async with serve(reply) as (provider, client), trio.open_nursery() as nursery:
        nursery.start_soon(_expect_500, client)
        await provider.waiting("go")
        assert provider.requests[0].status == 0
        provider.open("go")


async def _expect_500(client):
    with pytest.raises(openai.InternalServerError):
        await client.ask("chat")


async def test_a_gate_that_was_opened_before_stays_open(fake_provider, serve):
    async with serve([fake_provider.Wait("go"), fake_provider.Text("x")]) as (provider, client):
        provider.open("go")
        assert (await client.ask("chat")).text == ["x"]


async def test_passes_that_nobody_waits_for_are_kept(fake_provider, serve):
    reply = [fake_provider.Wait("go"), fake_provider.Wait("go"), fake_provider.Text("x")]
    async with serve(reply) as (provider, client):
        provider.let("go", 2)
        assert (await client.ask("chat")).text == ["x"]


@pytest.mark.parametrize("hang", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_is_cancelled_is_noticed_at_once(fake_provider, serve, dialect, hang):
    stuck = fake_provider.Hang() if hang else fake_provider.Wait("never")
    async with serve([fake_provider.Text("half"), stuck]) as (provider, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, dialect)
            await provider.received()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await provider.disconnected()
        await provider.closed()
        assert (provider.disconnects, provider.open_connections) == (1, 0)


async def test_a_client_that_leaves_after_the_end_has_not_left_a_reply(fake_provider, serve):
    async with serve([fake_provider.Text("x")]) as (provider, client):
        await client.ask("chat")
        await client.openai.close()
        await provider.closed()
        assert provider.disconnects == 0


async def test_a_client_that_leaves_at_the_last_byte_has_not_left_a_reply(fake_provider, serve):
    async with serve(lambda _: [fake_provider.Text("x")]) as (provider, _):
        for _ in range(30):
            async with await bare(provider) as stream:
                arrived = b""
                while not arrived.endswith(b"\r\n0\r\n\r\n"):
                    arrived += await stream.receive_some()
        await provider.closed()
        assert (provider.connections, provider.disconnects) == (30, 0)


async def test_two_hundred_streams_neither_lose_nor_cross_a_piece(fake_provider, serve):
    heard = {}

    async def ask(client, number):
        answer = await client.ask(DIALECTS[number % 3], [{"role": "user", "content": f"number {number}"}])
        heard[number] = answer.text

    def echo(request):
        return [fake_provider.Text(f"{request.last_text} ", pieces=9), fake_provider.Text("again", gate="all")]

    async with serve(echo) as (provider, client), trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(ask, client, number)
        await provider.waiting("all", 200)
        provider.open("all")
    assert {number: "".join(text) for number, text in heard.items()} == {n: f"number {n} again" for n in range(200)}


async def test_half_of_the_clients_may_leave_and_the_others_go_on(fake_provider, serve):
    heard, leaving = {}, trio.CancelScope()

    async def ask(client, number):
        heard[number] = (await client.ask("chat")).text

    async def crowd(client, numbers):
        async with trio.open_nursery() as nursery:
            for number in numbers:
                nursery.start_soon(ask, client, number)

    async def crowd_that_leaves(client, numbers):
        with leaving:
            await crowd(client, numbers)

    async with serve(lambda _: [fake_provider.Text("ab", pieces=2, gate="all")]) as (provider, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crowd, client, range(20))
            nursery.start_soon(crowd_that_leaves, client, range(20, 40))
            await provider.waiting("all", 40)
            leaving.cancel()
            await provider.disconnected(20)
            provider.open("all")
        assert provider.disconnects == 20
    assert heard == {number: ["a", "b"] for number in range(20)}


# --- refusals ----------------------------------------------------------------------------------------------------

ORPHAN = {
    "chat": [*HI, {"role": "tool", "tool_call_id": "x", "content": "y"}],
    "responses": [*HI, {"type": "function_call_output", "call_id": "x", "output": "y"}],
    "anthropic": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "y"}]}],
}


@pytest.mark.parametrize(
    ("dialect", "place"),
    [("chat", r"messages\[1\]"), ("responses", r"input\[1\]"), ("anthropic", r"messages\.0\.content\.0")],
)
async def test_a_breach_is_answered_with_its_place_and_recorded(serve, dialect, place):
    async with serve([]) as (provider, client):
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=place):
            await client.ask(dialect, ORPHAN[dialect])
    (breach,) = provider.refused
    assert breach.request is provider.requests[0]
    assert breach.problems[0].rule == "pairing"


async def test_a_breach_uses_up_no_reply(fake_provider, serve):
    async with serve([fake_provider.Text("first")]) as (_, client):
        with pytest.raises(openai.BadRequestError):
            await client.ask("chat", ORPHAN["chat"])
        assert (await client.ask("chat")).text == ["first"]


async def test_mistral_words_its_errors_in_a_shape_of_its_own(serve):
    async with serve([], variant="mistral") as (_, client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.ask("chat", ORPHAN["chat"])
    assert caught.value.body["object"] == "error"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_without_a_key_is_refused(serve, dialect):
    path = {"chat": "/chat/completions", "responses": "/responses", "anthropic": "/messages"}[dialect]
    async with serve([]) as (provider, _), httpx2.AsyncClient(base_url=provider.base_url) as client:
        reply = await client.post(path, json={"model": "m", "messages": HI, "input": HI})
    assert reply.status_code == 401


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_keys_are_not_recorded(serve, dialect):
    async with serve([]) as (provider, client):
        await client.ask(dialect)
    assert provider.requests[0].headers["user-agent"]
    assert provider.key not in repr(provider.requests)


async def test_anthropic_wants_its_version(serve):
    async with serve([]) as (provider, _), httpx2.AsyncClient() as client:
        body = {"model": "m", "max_tokens": 1, "messages": HI}
        reply = await client.post(f"{provider.base_url}/messages", json=body, headers={"x-api-key": "k"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_body_over_the_limit_is_refused(fake_provider, serve):
    async with serve([], rules=fake_provider.Rules(max_body=200)) as (_, client):
        with pytest.raises(anthropic.ContentTooLargeError):
            await client.ask("anthropic", [{"role": "user", "content": "x" * 500_000}])


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": NaN}', b"\xff"])
async def test_a_body_that_is_no_json_object_is_refused(serve, body):
    async with serve([]) as (provider, _), httpx2.AsyncClient() as client:
        headers = {"authorization": "Bearer k"}
        reply = await client.post(f"{provider.base_url}/responses", content=body, headers=headers)
    assert reply.status_code == 400


async def test_a_path_that_is_not_served_is_not_found(serve):
    async with serve([]) as (provider, _), httpx2.AsyncClient() as client:
        assert (await client.post(f"{provider.base_url}/embeddings", json={})).status_code == 404


@pytest.mark.parametrize("prefix", ["", "/v1", "/v1/v1"])
async def test_every_base_url_that_users_give_is_served(fake_provider, serve, prefix):
    async with serve([fake_provider.Text("x")]) as (provider, client):
        client.openai.base_url = provider.root_url + prefix
        assert (await client.ask("chat")).text == ["x"]


# --- sealed reasoning --------------------------------------------------------------------------------------------


async def thought(client, **more):
    """An answer of Anthropic's that thought and called, as blocks for the next request."""
    message = await client.start("anthropic", stream=False, **more)
    return [block.model_dump(exclude_none=True) for block in message.content]


def go_on(blocks):
    """The request after it."""
    results = [{"type": "tool_result", "tool_use_id": block["id"]} for block in blocks if block["type"] == "tool_use"]
    return [*HI, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


@pytest.fixture
def thinker(fake_provider, serve):
    """A provider whose model thinks, calls, and says ok."""

    @asynccontextmanager
    async def thinking(variant="anthropic"):
        first = [fake_provider.Thinking("hm"), fake_provider.Thinking("x", redacted=True), fake_provider.Call("a")]
        async with serve(first, [fake_provider.Text("ok")], variant=variant) as (_, client):
            yield client

    return thinking


async def test_thinking_that_comes_back_as_it_was_is_accepted(thinker):
    async with thinker("strict") as client:
        assert (await client.ask("anthropic", go_on(await thought(client)))).text == ["ok"]


CHANGES = {
    "its words changed": lambda blocks: [blocks[0] | {"thinking": "ha"}, *blocks[1:]],
    "its signature changed": lambda blocks: [blocks[0] | {"signature": "FAKE.bQ.x"}, *blocks[1:]],
    "a signature of another make": lambda blocks: [blocks[0] | {"signature": "EqQB"}, *blocks[1:]],
    "one block left out": lambda blocks: blocks[1:],
    "all blocks left out": lambda blocks: blocks[2:],
    "the order changed": lambda blocks: [blocks[1], blocks[0], blocks[2]],
    "redacted data changed": lambda blocks: [blocks[0], blocks[1] | {"data": "x"}, blocks[2]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_thinking_that_comes_back_changed_is_refused(thinker, change):
    async with thinker() as client:
        blocks = await thought(client)
        with pytest.raises(anthropic.BadRequestError, match=r"messages\.1\.content"):
            await client.ask("anthropic", go_on(change(blocks)))


async def test_thinking_may_be_left_out_of_messages_before_the_latest(thinker):
    async with thinker() as client:
        messages = go_on((await thought(client))[2:])
        assert (await client.ask("anthropic", [*messages, {"role": "assistant", "content": "x"}, *HI])).text == ["ok"]


async def test_thinking_may_be_left_out_for_another_model(thinker):
    async with thinker() as client:
        blocks = await thought(client)
        assert (await client.ask("anthropic", go_on(blocks[2:]), model="other")).text == ["ok"]


async def test_thinking_of_another_model_is_ignored(thinker):
    async with thinker() as client:
        blocks = await thought(client)
        assert (await client.ask("anthropic", go_on(blocks), model="other")).text == ["ok"]


async def test_thinking_of_another_model_is_refused_by_the_strict(thinker):
    async with thinker("strict") as client:
        blocks = await thought(client)
        with pytest.raises(anthropic.BadRequestError, match="another model"):
            await client.ask("anthropic", go_on(blocks), model="other")


@pytest.fixture
def reasoner(fake_provider, serve):
    """A client whose model reasons and calls in Responses, and the items of that."""

    @asynccontextmanager
    async def reasoning():
        first = [fake_provider.Thinking("hm"), fake_provider.Call("a")]
        async with serve(first, [fake_provider.Text("ok")]) as (_, client):
            include = {"include": ["reasoning.encrypted_content"], "store": False}
            response = await client.start("responses", stream=False, **include)
            item, call = (item.model_dump(exclude_none=True) for item in response.output)
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}
            yield client, item, call, output

    return reasoning


async def test_a_reasoning_item_that_comes_back_as_it_was_is_accepted(reasoner):
    async with reasoner() as (client, item, call, output):
        assert (await client.ask("responses", [*HI, item, call, output], store=False)).text == ["ok"]


async def test_a_reasoning_item_with_changed_content_is_refused(reasoner):
    async with reasoner() as (client, item, call, output):
        changed = item | {"encrypted_content": item["encrypted_content"][:12]}
        with pytest.raises(openai.BadRequestError, match=r"input\[1\]"):
            await client.ask("responses", [*HI, changed, call, output], store=False)


async def test_a_reasoning_item_without_content_is_refused_where_nothing_is_stored(reasoner):
    async with reasoner() as (client, item, call, output):
        del item["encrypted_content"]
        with pytest.raises(openai.BadRequestError, match=r"input\[1\]"):
            await client.ask("responses", [*HI, item, call, output], store=False)


async def test_a_call_that_kept_its_item_id_needs_its_reasoning_item(reasoner):
    async with reasoner() as (client, _, call, output):
        with pytest.raises(openai.BadRequestError, match="reasoning item"):
            await client.ask("responses", [*HI, call, output], store=False)


async def test_a_call_without_its_item_id_stands_alone(reasoner):
    async with reasoner() as (client, _, call, output):
        del call["id"]
        assert (await client.ask("responses", [*HI, call, output], store=False)).text == ["ok"]


@pytest.mark.parametrize(
    ("variant", "sent", "refused"),
    [
        ("deepseek", {"reasoning_content": "hm"}, False),
        ("deepseek", {"reasoning_content": "ha"}, True),
        ("deepseek", {}, True),
        ("strict", {}, False),
        ("openai", {}, False),
    ],
)
async def test_deepseek_wants_the_reasoning_of_calls_back(fake_provider, serve, variant, sent, refused):
    first = [fake_provider.Thinking("hm"), fake_provider.Call("a", id="aaaaaaaa1")]
    call = {"id": "aaaaaaaa1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    answered = [
        {"role": "assistant", "content": "", "tool_calls": [call], **sent},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "x"},
    ]
    async with serve(first, [fake_provider.Text("ok")], variant=variant) as (provider, client):
        await client.ask("chat")
        with suppress(openai.BadRequestError):
            await client.ask("chat", [*HI, *answered])
    assert bool(provider.refused) is refused


@pytest.mark.parametrize(("sent", "refused"), [({"sig": "s1"}, False), ({"sig": "s2"}, True), ({}, True)])
async def test_a_server_may_want_its_own_fields_of_a_call_back(fake_provider, serve, sent, refused):
    first = [fake_provider.Call("a", id="i", extra={"sig": "s1"})]
    call = {"id": "i", "type": "function", "function": {"name": "a", "arguments": "{}"}, **sent}
    answered = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "i", "content": "x"}]
    rules = fake_provider.Rules(call_fields=frozenset({"sig"}))
    async with serve(first, [fake_provider.Text("ok")], rules=rules) as (provider, client):
        answer = await client.ask("chat")
        with suppress(openai.BadRequestError):
            await client.ask("chat", [*HI, *answered])
    assert answer.events[1].choices[0].delta.tool_calls[0].sig == "s1"
    assert bool(provider.refused) is refused


# --- scripts -----------------------------------------------------------------------------------------------------


async def test_a_script_that_has_run_out_is_an_error_and_a_breach(fake_provider, serve):
    async with serve([fake_provider.Text("x")]) as (provider, client):
        await client.ask("chat")
        with pytest.raises(openai.InternalServerError, match="no reply"):
            await client.ask("chat")
    assert [breach.problems[0].rule for breach in provider.refused] == ["script"]


async def test_a_script_may_go_by_the_depth_of_the_conversation(fake_provider, serve):
    script = fake_provider.by_depth([[fake_provider.Text("first")], [fake_provider.Text("second")]])
    deeper = [*HI, {"role": "assistant", "content": "first"}, *HI]
    async with serve(script) as (_, client):
        heard = [(await client.ask(dialect, messages)).text for messages in (deeper, HI) for dialect in DIALECTS]
    assert heard == [["second"]] * 3 + [["first"]] * 3


async def test_items_of_one_answer_of_responses_count_once_for_the_depth(fake_provider, serve):
    call = {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"}
    items = [
        *HI,
        {"role": "assistant", "content": "x"},
        call,
        {"type": "function_call_output", "call_id": "c", "output": ""},
    ]
    async with serve([]) as (provider, client):
        await client.ask("responses", items)
    assert provider.requests[0].depth == 1


def test_a_script_is_read_from_json(fake_provider):
    fp = fake_provider
    script = fp.read_script(
        [
            [{"text": "a", "pieces": 2}, {"calls": [{"call": "f", "arguments": {"x": 1}}, {"call": "g"}]}],
            [{"error": 429, "retry_after": "1"}],
            [{"thinking": "t"}, {"hang": True}],
        ]
    )
    assert [script.reply_to(None) for _ in range(4)] == [
        [fp.Text("a", 2), fp.Calls([fp.Call("f", {"x": 1}), fp.Call("g")])],
        [fp.Refuse(429, retry_after="1")],
        [fp.Thinking("t"), fp.Hang()],
        None,
    ]


@pytest.mark.parametrize("reply", [[{"sing": "x"}], [{"text": "x", "volume": 3}], [{"text": True}]])
def test_a_script_with_an_unknown_action_or_field_is_no_script(fake_provider, reply):
    with pytest.raises(ValueError, match=r"sing|volume|text"):
        fake_provider.read_script([reply])


# --- in a thread, and as a process -------------------------------------------------------------------------------


def test_a_provider_in_a_thread_serves_asyncio(fake_provider):
    async def ask(provider):
        async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="k") as client:
            stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
            return [chunk.choices[0].delta.content async for chunk in stream]

    with fake_provider.in_thread([[fake_provider.Wait("go"), fake_provider.Text("x")]]) as provider:
        provider.open("go")
        assert "x" in asyncio.run(ask(provider))
        provider.call(provider.closed)
        assert len(provider.requests) == 1


def test_a_thread_may_wait_for_a_client_to_leave(fake_provider):
    with fake_provider.in_thread([[fake_provider.Hang()]]) as provider:
        body = json.dumps({"model": "m", "messages": HI})
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: k\r\ncontent-length: {len(body)}"
            client.sendall(f"{head}\r\n\r\n{body}".encode())
            provider.call(provider.received)
        provider.call(provider.disconnected)
        assert provider.disconnects == 1


def test_a_port_that_is_taken_is_told_at_once(fake_provider):
    with fake_provider.in_thread([]) as provider:
        again = fake_provider.in_thread([], port=provider.port)
        with pytest.raises(OSError, match="in use"):
            again.__enter__()


def process(*arguments):
    """The provider as a process of its own."""
    command = [sys.executable, str(Path(__file__).parent), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_plays_a_script_until_it_is_terminated(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"by": "depth", "replies": [[{"wait": "go"}, {"text": "hello", "pieces": 2}]]}')
    with process(script, "--variant", "openai") as provider:
        base_url = provider.stdout.readline().strip()
        root = base_url.removesuffix("/v1")
        with httpx2.Client() as client, openai.OpenAI(base_url=base_url, api_key="k") as of_openai:
            assert client.post(f"{root}/gates/go").status_code == 200
            stream = of_openai.chat.completions.create(model="m", messages=HI, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hello"
            record = client.get(f"{root}/record").json()
        provider.send_signal(signal.SIGTERM)
        assert provider.wait() == 0
    assert [request["body"]["messages"] for request in record["requests"]] == [HI]
    assert record["refused"] == []


def test_a_process_refuses_a_script_that_is_none(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('[[{"sing": 1}]]')
    with process(script) as provider:
        _, complaint = provider.communicate()
    assert provider.returncode == 2
    assert "'sing' is no action" in complaint
