"""The models on the official SDKs, over real sockets, at a strict fake provider: what they send, and what they make of
the reply.
"""

from __future__ import annotations

import pytest
import trio

from quiesce.protocol.dialects.profile import PROFILES
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import ModelMessage, ReasoningBlock, TextBlock, ToolCallBlock, ToolMessage, UserMessage
from quiesce.protocol.model import Finished, ModelRequest, TextDelta, ToolSpec


def user(text):
    return UserMessage((TextBlock(text),), {"kind": "user"}, "user", "u")


def answered(model, blocks, *results):
    """The messages of a step that is over: what the model said, and a result for each call."""
    source = {"kind": "model", "provider": model.provider, "model": model.name}
    message = ModelMessage("assistant", blocks, source, "m")
    pairs = zip(message.calls, results, strict=True)
    return [
        message,
        *(ToolMessage("tool", call.id, (TextBlock(text),), is_error=False, id="t") for call, text in pairs),
    ]


# --- replies -----------------------------------------------------------------------------------------------------


async def test_text_comes_in_pieces_and_then_the_end_with_the_usage(bench, fake_provider):
    fp = fake_provider
    async with bench([[fp.Text("Hello there", pieces=3), fp.Usage(12, 3)]]) as it:
        answer = await it.reply()
        assert answer.complete() == (TextBlock("Hello there"),)
        assert answer.finished.reason == "stop"
        counted = answer.finished.usage
        assert counted.get("input_tokens", counted.get("prompt_tokens")) == 12
        assert counted.get("output_tokens", counted.get("completion_tokens")) == 3
        assert answer.finished.source["servedModel"] == "test-model"
        assert answer.finished.source["replyId"]


async def test_each_piece_is_emitted_as_soon_as_it_arrives(bench, fake_provider):
    fp = fake_provider
    async with bench([[fp.Text("abc", pieces=3, gate="go")]]) as it, trio.open_nursery() as nursery:
        send, pieces = trio.open_memory_channel(10)
        nursery.start_soon(it.model.respond, ModelRequest("s", 1, 1, (user("Hi"),)), send.send_nowait)
        for piece in "abc":
            await it.provider.waiting("go")
            it.provider.let("go")
            assert await pieces.receive() == TextDelta(piece)
        assert isinstance(await pieces.receive(), Finished)


async def test_parallel_calls_are_assembled_with_their_own_arguments(bench, fake_provider):
    fp = fake_provider
    calls = fp.Calls([fp.Call("read", {"path": "a"}, pieces=3), fp.Call("read", {"path": "b"}, pieces=3)])
    async with bench([[fp.Text("Let me look."), calls]]) as it:
        answer = await it.reply()
        text, first, second = answer.complete()
        assert (text, answer.finished.reason) == (TextBlock("Let me look."), "tool-calls")
        assert [(call.name, call.arguments) for call in (first, second)] == [
            ("read", '{"path": "a"}'),
            ("read", '{"path": "b"}'),
        ]
        assert first.id
        assert second.id
        assert first.id != second.id


async def test_an_empty_reply_is_a_finished_one(bench):
    async with bench([[]]) as it:
        answer = await it.reply()
        assert (answer.complete(), answer.finished.reason) == ((), "stop")


async def test_the_token_limit_drops_calls(bench, fake_provider):
    fp = fake_provider
    async with bench([[fp.Text("So"), fp.Call("read", {"path": "a"}, cut=6), fp.Finish("length")]]) as it:
        answer = await it.reply()
        assert (answer.complete(), answer.finished.reason) == ((TextBlock("So"),), "max-tokens")


async def test_a_tool_with_a_name_that_no_provider_takes_is_called_by_its_own_name(bench, fake_provider):
    tool = ToolSpec("files.read/all", "Read.", {"type": "object", "properties": {}})

    def call_what_is_on_offer(request):
        offered = request.body["tools"][0]
        return [fake_provider.Call(offered.get("function", offered)["name"], {})]

    async with bench(call_what_is_on_offer) as it:
        answer = await it.reply(tools=[tool])
        assert [call.name for call in answer.complete()] == ["files.read/all"]


# --- what goes back ----------------------------------------------------------------------------------------------


async def test_calls_and_results_go_back_as_the_contract_wants_them(bench, fake_provider):
    fp = fake_provider
    script = [
        [fp.Calls([fp.Call("read", {"path": "a"}), fp.Call("read", {"path": "b"})])],
        [fp.Text("Done.")],
    ]
    async with bench(script) as it:
        first = (await it.reply("Look")).complete()
        messages = [user("Look"), *answered(it.model, first, "one", "two")]
        assert (await it.reply(messages=messages)).complete() == (TextBlock("Done."),)


async def test_sealed_reasoning_goes_back_to_the_model_that_made_it(bench, fake_provider, dialect):
    fp = fake_provider
    script = [[fp.Thinking("Hm.", pieces=2), fp.Call("read", {"path": "a"})], [fp.Text("Done.")]]
    variant = "deepseek" if dialect == "chat" else None
    options = {"profile": PROFILES["deepseek"]} if dialect == "chat" else {}
    async with bench(script, variant=variant, **options) as it:
        first = (await it.reply("Look")).complete()
        assert isinstance(first[0], ReasoningBlock)
        assert first[0].text == "Hm."
        messages = [user("Look"), *answered(it.model, first, "one")]
        assert (await it.reply(messages=messages)).complete() == (TextBlock("Done."),)
        sent = str(it.provider.requests[1].body)
        assert ("Hm." in sent) or (first[0].replay["encrypted_content"] in sent)


async def test_redacted_reasoning_goes_back_too(fake_provider, dialect, bench):
    if dialect == "chat":
        pytest.skip("there is no such thing in Chat Completions")
    fp = fake_provider
    script = [[fp.Thinking(redacted=True), fp.Call("read", {"path": "a"})], [fp.Text("Done.")]]
    async with bench(script) as it:
        first = (await it.reply("Look")).complete()
        assert (first[0].text, bool(first[0].replay)) == ("", True)
        messages = [user("Look"), *answered(it.model, first, "one")]
        await it.reply(messages=messages)
        assert str(first[0].replay) in str(it.provider.requests[1].body)


async def test_a_request_renders_only_what_is_new(bench, fake_provider):
    async with bench([[fake_provider.Text("One.")]]) as it:
        messages = [user("Look")]
        first = (await it.reply(messages=messages)).complete()
        longer = [*messages, *answered(it.model, first), user("And?")]
        before, after = (sent(it.model._body(ModelRequest("s", 1, 1, tuple(them)))) for them in (messages, longer))
        assert len(after) == 3
        assert after[0] is before[0]


def sent(body):
    """The messages of a request in any dialect."""
    return body["input" if "input" in body else "messages"]


async def test_renderers_of_sessions_that_were_not_used_for_longest_are_given_up(bench):
    async with bench([]) as it:
        for number in range(300):
            it.model._renderer(f"s{number}")
        assert len(it.model._renderers) == 256
        assert next(iter(it.model._renderers)) == "s44"


@pytest.mark.parametrize(
    ("name", "key"), [("openai", "max_completion_tokens"), ("deepseek", "max_tokens"), ("mistral", "max_tokens")]
)
async def test_the_limit_of_an_answer_is_called_as_the_server_calls_it(chat_bench, fake_provider, name, key):
    options = {"max_tokens": 77, "profile": PROFILES[name]}
    async with chat_bench([[fake_provider.Text("x")]], variant=name, **options) as it:
        await it.reply()
        assert it.provider.requests[0].body[key] == 77


async def test_options_become_fields_of_the_request(bench, fake_provider, dialect):
    options = {"max_tokens": 77, "temperature": 0.5, "extra_body": {"top_p": 0.9, "temperature": None}}
    async with bench([[fake_provider.Text("x")]], **options) as it:
        await it.reply()
        body = it.provider.requests[0].body
        limit = {"chat": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}[dialect]
        assert (body[limit], body["top_p"], body["stream"], body["model"]) == (77, 0.9, True, "test-model")
        assert "temperature" not in body


# --- what goes wrong ---------------------------------------------------------------------------------------------


async def failure(it):
    with pytest.raises(ModelError) as caught:
        await it.reply()
    return caught.value


async def test_a_rate_limit_is_transient_and_says_when_to_come_back(bench, fake_provider):
    async with bench([[fake_provider.refuse(429, retry_after=7)]]) as it:
        error = await failure(it)
        assert (error.status, error.transient, error.retry_after) == (429, True, 7)
        assert error.request_id == it.provider.requests[0].request_id
        assert all(word in str(error) for word in ("HTTP 429", error.code, error.request_id, "retry after 7 s"))
        assert len(it.provider.requests) == 1


@pytest.mark.parametrize(("status", "transient"), [(500, True), (503, True), (529, True), (401, False), (404, False)])
async def test_the_status_says_whether_another_try_may_help(bench, fake_provider, status, transient):
    async with bench([[fake_provider.refuse(status)]]) as it:
        error = await failure(it)
        assert (error.status, error.transient) == (status, transient)
        assert error.request_id
        assert len(it.provider.requests) == 1


async def test_the_error_page_of_a_gateway_is_an_error_as_any(bench, fake_provider):
    page = "<html><body><h1>502 Bad Gateway</h1></body></html>"
    async with bench([[fake_provider.refuse(502, body=page)]]) as it:
        error = await failure(it)
        assert (error.status, error.code, error.transient) == (502, "HTTP_502", True)
        assert "502 Bad Gateway" in str(error)


async def test_a_bad_request_names_its_position_and_what_stands_there(fake_provider, dialect, at_provider):
    """The message is refused here because its role is none; a rendered history gives no reason to."""
    broken = [{"role": "nobody", "content": "secret words"}]
    async with (
        fake_provider.FakeProvider([], variant="anthropic" if dialect == "anthropic" else "compatible") as provider,
        at_provider(provider, dialect) as model,
    ):
        key = "input" if dialect == "responses" else "messages"
        failure = await model._exchange({"model": "m", "stream": True, "max_tokens": 5, key: broken}, None)
        assert (failure.status, failure.transient) == (400, False)
        assert failure.position.startswith(f"{key}[0]")
        assert f"at {failure.position} (role nobody)" in str(failure)
        assert "secret words" not in str(failure)
        assert failure.request_id in str(failure)


async def test_a_reset_before_the_answer_is_transient(bench, fake_provider):
    async with bench([[fake_provider.Reset()]]) as it:
        error = await failure(it)
        assert (error.code, error.status, error.transient) == ("CONNECTION", None, True)
        assert "reset" in str(error)


@pytest.mark.parametrize("fault", ["Reset", "Cut"])
async def test_a_connection_that_breaks_in_the_reply_is_transient(bench, fake_provider, fault):
    async with bench([[fake_provider.Text("Half"), getattr(fake_provider, fault)()]]) as it:
        error = await failure(it)
        assert (error.code, error.transient) == ("CONNECTION", True)


async def test_nobody_at_the_address_is_transient(dialect, fake_provider, at_provider):
    async with fake_provider.FakeProvider([]) as provider:
        model = at_provider(provider, dialect)
    async with model:
        error = await model._exchange({}, None)
    assert (error.code, error.transient) == ("CONNECTION", True)
    assert "refused" in str(error).lower() or "failed" in str(error).lower()


async def test_a_server_that_says_nothing_in_time_is_a_transient_fault(bench, fake_provider):
    async with bench([[fake_provider.Hang()]], timeout=0.05) as it:
        error = await failure(it)
        assert (error.code, error.transient) == ("TIMEOUT", True)


async def test_a_reply_that_ends_without_its_end_is_not_finished(bench, fake_provider):
    async with bench([[fake_provider.Text("Half"), fake_provider.End()]]) as it:
        answer = await it.reply()
        assert answer.finished is None
        assert answer.interrupted() == (TextBlock("Half"),)


async def test_a_reply_that_is_no_stream_is_malformed(bench, fake_provider):
    async with bench([[fake_provider.refuse(200, body="<html>Welcome</html>")], [fake_provider.Text("Hi")]]) as it:
        error = await failure(it)
        assert (error.code, error.transient) == ("MALFORMED_REPLY", True)
        assert "text/html" in str(error)
        await it.reply()
        assert it.provider.connections == 1


async def test_a_long_reply_that_is_no_stream_is_not_read_to_its_end(bench, fake_provider):
    async with bench([[fake_provider.refuse(200, body="x" * 3_000_000)]]) as it:
        assert (await failure(it)).code == "MALFORMED_REPLY"
        await it.provider.closed()


ERRORS = [
    {"error": {"message": "It broke.", "type": "server_error", "code": None}},
    {"type": "error", "error": {"type": "overloaded_error", "message": "It broke."}},
    {"object": "error", "message": "It broke.", "type": "internal_server_error", "code": 500},
]


@pytest.mark.parametrize("body", ERRORS, ids=["openai", "anthropic", "mistral"])
async def test_an_error_that_comes_as_json_with_status_200_is_the_providers(bench, fake_provider, body):
    headers = {"content-type": "application/json; charset=utf-8"}
    async with bench([[fake_provider.refuse(200, body=body, headers=headers)]]) as it:
        error = await failure(it)
        assert "It broke." in str(error)
        assert error.transient
        assert error.code in str(body)
        assert error.request_id == it.provider.requests[0].request_id


async def test_an_error_with_status_200_that_another_try_would_not_cure_is_final(bench, fake_provider):
    body = {"error": "model 'nonesuch' not found"}
    async with bench([[fake_provider.refuse(200, body=body)]]) as it:
        error = await failure(it)
        assert "model 'nonesuch' not found" in str(error)
        assert not error.transient


@pytest.mark.parametrize("body", [{"error": None}, {"id": "x", "choices": []}, [1], "[" * 100_000])
async def test_what_is_neither_a_stream_nor_an_error_is_malformed(bench, fake_provider, body):
    async with bench([[fake_provider.refuse(200, body=body)]]) as it:
        error = await failure(it)
        assert (error.code, error.transient) == ("MALFORMED_REPLY", True)
        assert "no stream of events" in str(error)


async def test_a_malformed_event_is_transient(bench, fake_provider):
    async with bench([[fake_provider.Text("Half"), fake_provider.Malformed()]]) as it:
        error = await failure(it)
        assert (error.code, error.transient) == ("MALFORMED_REPLY", True)
        assert error.request_id == it.provider.requests[0].request_id


async def test_a_reply_that_is_given_up_leaves_no_connection_behind(bench, fake_provider):
    fp = fake_provider
    async with bench([[fp.Text("Half"), fp.Malformed(), fp.Wait("never")]]) as it:
        assert (await failure(it)).code == "MALFORMED_REPLY"
        await it.provider.closed()


async def test_an_error_in_the_stream_is_the_providers(bench, fake_provider):
    async with bench([[fake_provider.Text("Half"), fake_provider.ErrorEvent("It broke.")]]) as it:
        error = await failure(it)
        assert "It broke." in str(error)
        assert (error.status, error.transient) == (None, True)
        assert error.request_id == it.provider.requests[0].request_id


async def test_a_model_that_is_closed_says_so(bench):
    async with bench([]) as it:
        await it.model.aclose()
        assert (await failure(it)).code == "CLOSED"


# --- cancelling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before the answer", "in the reply"])
async def test_a_cancel_closes_the_connection_at_once(bench, fake_provider, where):
    fp = fake_provider
    reply = [fp.Wait("gate")] if where == "before the answer" else [fp.Text("trickle", pieces=7, gate="gate")]
    async with bench([reply]) as it, trio.open_nursery() as nursery:
        nursery.start_soon(it.reply)
        await it.provider.waiting("gate")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await it.provider.disconnected()
            await it.provider.closed()


async def test_a_connection_is_used_again_after_a_whole_reply(bench, fake_provider):
    async with bench([[fake_provider.Text("One")], [fake_provider.Text("Two")]]) as it:
        await it.reply()
        await it.reply()
        assert it.provider.connections == 1


# --- Chat Completions alone --------------------------------------------------------------------------------------

FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def test_a_finish_reason_is_enough_for_an_end(chat_bench, fake_provider):
    fp = fake_provider
    async with chat_bench([[fp.Text("Hi"), fp.Event(FINISH), fp.End()]]) as it:
        answer = await it.reply()
        assert (answer.complete(), answer.finished.reason) == ((TextBlock("Hi"),), "stop")


async def test_a_server_that_does_not_end_the_body_after_the_reply_is_not_waited_for(chat_bench, fake_provider):
    fp = fake_provider
    async with chat_bench([[fp.Text("Hi"), fp.Event(FINISH), fp.Event("[DONE]"), fp.Hang()]]) as it:
        assert (await it.reply()).complete() == (TextBlock("Hi"),)
        await it.provider.closed()


async def test_two_calls_on_one_index_stay_two(chat_bench, fake_provider):
    fp = fake_provider
    calls = [fp.Call("read", {"path": "1"}, id="a", index=0), fp.Call("read", {"path": "2"}, id="b", index=0)]
    async with chat_bench([calls]) as it:
        assert (await it.reply()).complete() == (
            ToolCallBlock("a", "read", '{"path": "1"}'),
            ToolCallBlock("b", "read", '{"path": "2"}'),
        )
