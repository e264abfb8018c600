"""The fake provider's validator: of each rule, a request that breaks it and nothing else, and one that keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

CASES = Path(__file__).parent.parent / "cases"


# --- requests in short notation ----------------------------------------------------------------------------------


def chat(*messages, **body):
    return "chat", {"model": "m", "messages": list(messages), **body}


def responses(*items, **body):
    return "responses", {"model": "m", "input": list(items), **body}


def anthropic(*messages, **body):
    return "anthropic", {"model": "m", "max_tokens": 9, "messages": list(messages), **body}


def user(content="hi"):
    return {"role": "user", "content": content}


def model(content="ok", **more):
    return {"role": "assistant", "content": content, **more}


def call(call_id="aaaaaaaa1", name="read", arguments="{}", **more):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}} | more


def calls(*made, content=None, **more):
    return model(content, tool_calls=[call(it) if isinstance(it, str) else it for it in made], **more)


def tool(call_id="aaaaaaaa1", content="done", **more):
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def pair(made, call_id="aaaaaaaa1"):
    """A conversation about one call of Chat Completions."""
    return chat(user(), calls(made), tool(call_id))


def item(call_id="c1", name="read", arguments="{}", **more):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id="c1", content="done", **more):
    return {"type": "function_call_output", "call_id": call_id, "output": content, **more}


def reasoning(**more):
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "well"}], **more}


def text(words="ok", **more):
    return {"type": "text", "text": words, **more}


def use(call_id="t1", name="read", arguments=None, **more):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if arguments is None else arguments, **more}


def result(call_id="t1", **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done"} | more


def picture(data):
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def thinking(**more):
    return {"type": "thinking", "thinking": "well", "signature": "s", **more}


def used(*blocks, results=None):
    """A conversation about one answer of Anthropic's, its calls answered."""
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return anthropic(user(), model(list(blocks)), user(results or [result(call_id) for call_id in asked] or "go on"))


def offered(dialect, *tools, **body):
    return {"chat": chat, "responses": responses, "anthropic": anthropic}[dialect](user(), tools=list(tools), **body)


def function(name="read", **more):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **more}}


def flat(name="read", **more):
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **more}


def custom(name="read", **more):
    return {"name": name, "input_schema": {"type": "object"}, **more}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}
INPUT_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aa"}

# --- the rules ---------------------------------------------------------------------------------------------------

# what breaks, the rule, where, a request that breaks it, one that keeps it, and the variant where that is not openai
ENVELOPE = [
    ("a model is named", "envelope", "model", chat(user(), model=""), chat(user())),
    ("stream is a boolean", "envelope", "stream", chat(user(), stream="yes"), chat(user(), stream=True)),
    (
        "stream options are for streams",
        "envelope",
        "stream_options",
        chat(user(), stream_options={"include_usage": True}),
        chat(user(), stream=True, stream_options={"include_usage": True}),
    ),
    ("chat has messages", "envelope", "messages", chat(), chat(user())),
    ("responses has an input", "envelope", "input", responses(), ("responses", {"model": "m", "input": "hi"})),
    ("anthropic has messages", "envelope", "messages", anthropic(), anthropic(user())),
    (
        "anthropic needs max_tokens",
        "envelope",
        "max_tokens",
        ("anthropic", {"model": "m", "messages": [user()]}),
        anthropic(user()),
    ),
    (
        "the limit of chat is called max_completion_tokens",
        "envelope",
        "max_tokens",
        chat(user(), max_tokens=9),
        chat(user(), max_completion_tokens=9),
    ),
    *(
        (
            f"other servers call the limit max_tokens: {name}",
            "envelope",
            "max_completion_tokens",
            chat(user(), max_completion_tokens=9),
            chat(user(), max_tokens=9),
            name,
        )
        for name in ("compatible", "deepseek", "mistral", "strict")
    ),
    ("max_tokens is positive", "envelope", "max_tokens", anthropic(user(), max_tokens=0), anthropic(user())),
    (
        "a token limit is a number",
        "envelope",
        "max_output_tokens",
        responses(user(), max_output_tokens="9"),
        responses(user(), max_output_tokens=9),
    ),
    (
        "anthropic has 100 000 messages",
        "envelope",
        "messages",
        anthropic(*[user(), model()] * 50_000, user()),
        anthropic(*[user(), model()] * 49_999, user()),
    ),
    ("text has no lone surrogate", "envelope", "", chat(user("a\ud800")), chat(user("a\U0001f600"))),
]
TOOLS = [
    ("chat has no empty list of tools", "tools", "tools", offered("chat"), offered("chat", function())),
    (
        "a tool of chat has a name of 64",
        "tools",
        "tools[0].function.name",
        offered("chat", function("n" * 65)),
        offered("chat", function("n" * 64)),
    ),
    (
        "a tool of responses has a name of 128",
        "tools",
        "tools[0].name",
        offered("responses", flat("n" * 129)),
        offered("responses", flat("n" * 128)),
    ),
    (
        "a tool of anthropic has a name without dots",
        "tools",
        "tools[0].name",
        offered("anthropic", custom("git.log")),
        offered("anthropic", custom("git-log")),
    ),
    (
        "a tool has a schema",
        "tools",
        "tools[0].input_schema",
        offered("anthropic", {"name": "read"}),
        offered("anthropic", custom()),
    ),
    (
        "a schema is that of an object",
        "tools",
        "tools[0].function.parameters",
        offered("chat", function(parameters={"type": "array"})),
        offered("chat", function()),
    ),
    (
        "a description is text",
        "tools",
        "tools[0].description",
        offered("responses", flat(description=None)),
        offered("responses", flat(description="")),
    ),
    (
        "each tool has its own name",
        "tools",
        "tools[1].name",
        offered("anthropic", custom("a"), custom("a")),
        offered("anthropic", custom("a"), custom("b")),
    ),
    (
        "a tool of chat is a function",
        "tools",
        "tools[0].type",
        offered("chat", flat() | {"type": "magic"}),
        offered("chat", function()),
    ),
    (
        "a tool choice needs tools",
        "tools",
        "tool_choice",
        chat(user(), tool_choice="auto"),
        offered("chat", function(), tool_choice="auto"),
    ),
    (
        "a tool choice names a tool that is there",
        "tools",
        "tool_choice",
        offered("anthropic", custom("a"), tool_choice={"type": "tool", "name": "b"}),
        offered("anthropic", custom("a"), tool_choice={"type": "tool", "name": "a"}),
    ),
]
CHAT = [
    ("a role is known", "shape", "messages[1].role", chat(user(), model() | {"role": "bot"}), chat(user(), model())),
    (
        "other servers know no developer",
        "shape",
        "messages[0].role",
        chat({"role": "developer", "content": "x"}, user()),
        chat({"role": "system", "content": "x"}, user()),
        "deepseek",
    ),
    (
        "a message has no unknown field",
        "shape",
        "messages[0].replay",
        chat(user() | {"replay": {}}),
        chat(user() | {"name": "eve"}),
    ),
    (
        "only some know reasoning_content",
        "shape",
        "messages[1].reasoning_content",
        chat(user(), model(reasoning_content="x"), user()),
        chat(user(), model(), user()),
    ),
    ("content is not null", "shape", "messages[0].content", chat(user(None)), chat(user("x"))),
    (
        "an assistant's content is null only with calls",
        "shape",
        "messages[1].content",
        chat(user(), model(None)),
        pair(call()),
    ),
    (
        "text parts have text",
        "shape",
        "messages[0].content[0].text",
        chat(user([{"type": "text"}])),
        chat(user([text()])),
    ),
    (
        "pictures have a url",
        "shape",
        "messages[0].content[0].image_url",
        chat(user([{"type": "image_url"}])),
        chat(user([PICTURE])),
    ),
    (
        "calls are a list",
        "shape",
        "messages[1].tool_calls",
        chat(user(), model(tool_calls={}), user()),
        chat(user(), model(), user()),
    ),
    (
        "a call is of a function",
        "shape",
        "messages[1].tool_calls[0]",
        pair(call(type="custom")),
        pair(call()),
    ),
    (
        "a result is not null",
        "shape",
        "messages[2].content",
        chat(user(), calls("aaaaaaaa1"), tool(content=None)),
        pair(call()),
    ),
    (
        "a list of parts is not empty",
        "shape",
        "messages[2].content",
        chat(user(), calls("aaaaaaaa1"), tool(content=[])),
        chat(user(), calls("aaaaaaaa1"), tool(content=[text()])),
    ),
    (
        "images do not ride in results",
        "shape",
        "messages[2].content[0].type",
        chat(user(), calls("aaaaaaaa1"), tool(content=[PICTURE])),
        chat(user(), calls("aaaaaaaa1"), tool(), user([PICTURE])),
    ),
    (
        "there is no empty list of calls",
        "empty-calls",
        "messages[1].tool_calls",
        chat(user(), model(tool_calls=[]), user()),
        chat(user(), model(), user()),
    ),
    (
        "a call has no unknown field",
        "shape",
        "messages[1].tool_calls[0].index",
        pair(call(index=0)),
        pair(call()),
    ),
    (
        "an id has 40 characters",
        "call-id",
        "messages[1].tool_calls[0].id",
        pair(call("i" * 41), "i" * 41),
        pair(call("i" * 40), "i" * 40),
    ),
    (
        "an id of mistral has 9 letters and digits",
        "call-id",
        "messages[1].tool_calls[0].id",
        pair(call("functions.read:0"), "functions.read:0"),
        pair(call("abcDEF123"), "abcDEF123"),
        "mistral",
    ),
    (
        "ids of a message differ",
        "unique",
        "messages[1].tool_calls[1].id",
        chat(user(), calls("x", "x"), tool("x"), tool("x")),
        chat(user(), calls("x", "y"), tool("x"), tool("y")),
    ),
    (
        "ids of a request differ",
        "unique",
        "messages[3].tool_calls[0].id",
        chat(user(), calls("x"), tool("x"), calls("x"), tool("x")),
        chat(user(), calls("x"), tool("x"), calls("y"), tool("y")),
        "deepseek",
    ),
    (
        "a name has 64 characters",
        "name",
        "messages[1].tool_calls[0].function.name",
        pair(call(name="n" * 65)),
        pair(call(name="n" * 64)),
    ),
    (
        "a name is not empty",
        "name",
        "messages[1].tool_calls[0].function.name",
        pair(call(name="")),
        pair(call(name="n")),
    ),
    (
        "arguments are a string",
        "arguments",
        "messages[1].tool_calls[0].function.arguments",
        pair(call(arguments={})),
        pair(call(arguments="{oops")),
    ),
    (
        "arguments hold an object where servers parse them",
        "arguments",
        "messages[1].tool_calls[0].function.arguments",
        chat(user(), calls(call(arguments="[]"), content=""), tool()),
        chat(user(), calls(call(arguments='{"a": 1}'), content=""), tool()),
        "strict",
    ),
    *(
        (
            f"content beside calls is not null where servers want text: {name}",
            "shape",
            "messages[1].content",
            chat(user(), {"role": "assistant", **null, "tool_calls": [call()]}, tool("aaaaaaaa1")),
            chat(user(), calls("aaaaaaaa1", content=""), tool("aaaaaaaa1")),
            name,
        )
        for name in ("compatible", "strict")
        for null in ({"content": None}, {})
    ),
    (
        "other servers know no files",
        "shape",
        "messages[0].content[0].type",
        chat(user([{"type": "file", "file": {"file_id": "f"}}])),
        chat(user([{"type": "image_url", "image_url": {"url": "https://x/y"}}])),
        "compatible",
    ),
    (
        "a call is answered",
        "pairing",
        "messages[1]",
        chat(user(), calls("x", "y"), tool("x")),
        chat(user(), calls("x", "y"), tool("x"), tool("y")),
    ),
    (
        "the results of a batch may have any order",
        "pairing",
        "messages[1]",
        chat(user(), calls("x", "y"), tool("y"), user()),
        chat(user(), calls("x", "y"), tool("y"), tool("x"), user()),
    ),
    ("a result has its call", "pairing", "messages[1]", chat(user(), tool("x")), chat(user(), calls("x"), tool("x"))),
    (
        "a call is answered once",
        "pairing",
        "messages[3]",
        chat(user(), calls("x"), tool("x"), tool("x")),
        chat(user(), calls("x"), tool("x")),
    ),
    (
        "roles of mistral alternate",
        "order",
        "messages[1]",
        chat(user(), user()),
        chat(user(), model(), user()),
        "mistral",
    ),
    (
        "mistral's last message is input",
        "order",
        "messages[1]",
        chat(user(), model()),
        chat(user(), model(prefix=True)),
        "mistral",
    ),
    (
        "an assistant of mistral says something",
        "blank",
        "messages[1]",
        chat(user(), model(" "), user()),
        chat(user(), model("a"), user()),
        "mistral",
    ),
]
RESPONSES = [
    ("an item is known", "shape", "input[1]", responses(user(), {"type": "memo"}), responses(user(), model())),
    (
        "a role of responses is known",
        "shape",
        "input[1].role",
        responses(user(), {"role": "tool", "content": "x"}),
        responses(user(), {"role": "developer", "content": "x"}),
    ),
    ("a message has content", "shape", "input[0].content", responses(user(None)), responses(user())),
    (
        "a user writes input",
        "shape",
        "input[0].content[0].type",
        responses(user([{"type": "output_text", "text": "x"}])),
        responses(user([{"type": "input_text", "text": "x"}, INPUT_IMAGE])),
    ),
    (
        "a model writes output",
        "shape",
        "input[1].content[0].type",
        responses(user(), model([{"type": "input_text", "text": "x"}])),
        responses(user(), model([{"type": "output_text", "text": "x"}])),
    ),
    (
        "a call id has 64 characters",
        "call-id",
        "input[0].call_id, input[1].call_id",
        responses(item("c" * 65), output("c" * 65)),
        responses(item("c" * 64), output("c" * 64)),
    ),
    (
        "a call id is not empty",
        "call-id",
        "input[0].call_id, input[1].call_id",
        responses(item(""), output("")),
        responses(item(), output()),
    ),
    (
        "an item id has 64 characters",
        "call-id",
        "input[0].id",
        responses(item(id="fc" + "x" * 63), output()),
        responses(item(id="fc" + "x" * 62), output()),
    ),
    (
        "an item id has the prefix of its kind",
        "shape",
        "input[0].id",
        responses(item(id="call_1"), output()),
        responses(item(id="fc_1"), output()),
    ),
    (
        "a name has 128 letters, digits, lines",
        "name",
        "input[0].name",
        responses(item(name="git.log"), output()),
        responses(item(name="n" * 128), output()),
    ),
    (
        "arguments of an item are a string",
        "arguments",
        "input[0].arguments",
        responses(item(arguments=None), output()),
        responses(item(arguments=""), output()),
    ),
    (
        "strict servers want an object",
        "arguments",
        "input[0].arguments",
        responses(item(arguments=""), output()),
        responses(item(), output()),
        "strict",
    ),
    (
        "an output is text or parts",
        "shape",
        "input[1].output",
        responses(item(), output(content=None)),
        responses(item(), output(content=[{"type": "input_text", "text": "x"}, INPUT_IMAGE])),
    ),
    (
        "an output has 10 MiB",
        "size",
        "input[1].output",
        responses(item(), output(content="x" * 10_485_761)),
        responses(item(), output(content="x" * 10_485_760)),
    ),
    (
        "an image of responses has 20 MiB",
        "size",
        "input[0].content[0].image_url",
        responses(user([INPUT_IMAGE | {"image_url": "x" * 20_971_521}])),
        responses(user([INPUT_IMAGE | {"image_url": "x" * 20_971_520}])),
    ),
    (
        "a file of responses has 70 MiB",
        "size",
        "input[1].output[0].file_data",
        responses(item(), output(content=[{"type": "input_file", "file_data": "x" * 73_400_321}])),
        responses(item(), output(content=[{"type": "input_file", "file_data": "x" * 73_400_320}])),
    ),
    (
        "an image of anthropic has 5 MiB in base64",
        "size",
        "messages[0].content[0].source.data",
        anthropic(user([picture("x" * 5_242_881)])),
        anthropic(user([picture("x" * 5_242_880)])),
    ),
    (
        "an image of anthropic has no title",
        "shape",
        "messages[0].content[0].image.title",
        anthropic(user([picture("x") | {"title": "a.png"}])),
        anthropic(user([picture("x") | {"type": "document", "title": "a.png"}])),
    ),
    *(
        (
            f"a document of anthropic has a title of 1 to 500 characters: {length}",
            "shape",
            "messages[0].content[0].title",
            anthropic(user([picture("x") | {"type": "document", "title": "t" * length}])),
            anthropic(user([picture("x") | {"type": "document", "title": "t" * 500}])),
        )
        for length in (0, 501)
    ),
    ("a call has its output", "pairing", "input[0]", responses(item(), user()), responses(item(), output(), user())),
    ("an output has its call", "pairing", "input[0]", responses(output()), responses(item(), output())),
    (
        "a response on the server may hold the call",
        "pairing",
        "input[0]",
        responses(output()),
        responses(output(), previous_response_id="resp_1"),
    ),
    (
        "an output follows its call",
        "pairing",
        "input[0]",
        responses(output(), item(), previous_response_id=None),
        responses(item(), output()),
    ),
    (
        "a call has one output",
        "pairing",
        "input[2]",
        responses(item(), output(), output()),
        responses(item(), output()),
    ),
    (
        "call ids differ",
        "unique",
        "input[1].call_id",
        responses(item("x"), item("x"), output("x")),
        responses(item("x"), item("y"), output("x"), output("y")),
    ),
    (
        "outputs come before messages at gateways",
        "order",
        "input[2]",
        responses(user(), item(), user(), output()),
        responses(user(), item(), output(), user()),
        "strict",
    ),
    (
        "openai itself lets messages come between",
        "pairing",
        "input[0]",
        responses(item(), user()),
        responses(item(), user(), output()),
    ),
    (
        "reasoning is followed by what it led to",
        "reasoning",
        "input[0]",
        responses(reasoning(), user()),
        responses(reasoning(), item(), output()),
    ),
    (
        "reasoning does not come last",
        "reasoning",
        "input[1]",
        responses(user(), reasoning()),
        responses(user(), reasoning(), model()),
    ),
    (
        "reasoning has a summary",
        "reasoning",
        "input[0].summary",
        responses(reasoning(summary=None), model(), user()),
        responses(reasoning(summary=[]), model(), user()),
    ),
    (
        "a summary is text",
        "reasoning",
        "input[0].summary[0]",
        responses(reasoning(summary=["well"]), model(), user()),
        responses(reasoning(), model(), user()),
    ),
    (
        "reasoning has its id",
        "shape",
        "input[0].id",
        responses(reasoning(id=None), model(), user()),
        responses(reasoning(), model(), user()),
    ),
]
ANTHROPIC = [
    (
        "there are two roles",
        "shape",
        "messages[1].role",
        anthropic(user(), {"role": "system", "content": "x"}),
        anthropic(user(), system="x"),
    ),
    ("system is text", "shape", "system", anthropic(user(), system={}), anthropic(user(), system=[text()])),
    (
        "a message of anthropic has no unknown field",
        "shape",
        "messages[0].name",
        anthropic(user() | {"name": "eve"}),
        anthropic(user()),
    ),
    (
        "a block has no unknown field",
        "shape",
        "messages[1].content[0].tool_use.index",
        used(use(index=0)),
        used(use(cache_control={"type": "ephemeral"})),
    ),
    (
        "a message of anthropic is not empty",
        "shape",
        "messages[0].content",
        anthropic(user([])),
        anthropic(user([text()])),
    ),
    ("content is not blank", "blank", "messages[0].content", anthropic(user(" \n")), anthropic(user("."))),
    (
        "text is not blank",
        "blank",
        "messages[1].content[0].text",
        used(text(" "), use()),
        used(text("."), use()),
    ),
    (
        "system is not blank",
        "blank",
        "system[0].text",
        anthropic(user(), system=[text("")]),
        anthropic(user(), system=[text(".")]),
    ),
    (
        "text in a result is not blank",
        "blank",
        "messages[2].content[0].content[0].text",
        used(use(), results=[result(content=[text("")])]),
        used(use(), results=[result(content=[])]),
    ),
    (
        "a result is text or blocks",
        "shape",
        "messages[2].content[0].content",
        used(use(), results=[result(content={})]),
        used(use(), results=[result(content=None)]),
    ),
    (
        "an error result is not empty",
        "blank",
        "messages[2].content[0].content",
        used(use(), results=[result(content="", is_error=True)]),
        used(use(), results=[result(content="")]),
    ),
    (
        "calls are the model's",
        "shape",
        "messages[0].content[0]",
        anthropic(user([use()])),
        used(use()),
    ),
    (
        "results are the user's",
        "shape",
        "messages[1].content[0]",
        anthropic(user(), model([result()]), user()),
        used(use()),
    ),
    (
        "images ride in results",
        "shape",
        "messages[2].content[0].content[0]",
        used(use(), results=[result(content=[use()])]),
        used(use(), results=[result(content=[IMAGE])]),
    ),
    (
        "a tool_use id has letters, digits, lines",
        "call-id",
        "messages[1].content[0].id, messages[2].content[0].tool_use_id",
        used(use("functions.read:0")),
        used(use("functions-read_" + "0" * 90)),
    ),
    (
        "a tool_use id is used once in a request",
        "unique",
        "messages[3].content[0].id",
        anthropic(user(), model([use()]), user([result()]), model([use()]), user([result()])),
        anthropic(user(), model([use()]), user([result()]), model([use("t2")]), user([result("t2")])),
    ),
    (
        "a name of a call has 200 characters",
        "name",
        "messages[1].content[0].name",
        used(use(name="n" * 201)),
        used(use(name="n" * 200)),
    ),
    (
        "an input is an object",
        "arguments",
        "messages[1].content[0].input",
        used(use(arguments="{}")),
        used(use(arguments={})),
    ),
    (
        "calls are answered in the very next message",
        "pairing",
        "messages[1]",
        anthropic(user(), model([use(), use("t2")]), user([result()])),
        anthropic(user(), model([use(), use("t2")]), user([result("t2"), result()])),
    ),
    (
        "calls at the end are answered",
        "pairing",
        "messages[1]",
        anthropic(user(), model([use()])),
        used(use()),
    ),
    (
        "a result has its call in the message before",
        "pairing",
        "messages[2].content[1]",
        used(use(), results=[result(), result("t9")]),
        used(use()),
    ),
    (
        "a call has one result",
        "pairing",
        "messages[2].content[1]",
        used(use(), results=[result(), result()]),
        used(use(), results=[result(), text()]),
    ),
    (
        "results stand in front",
        "order",
        "messages[2].content[1]",
        used(use(), results=[text(), result()]),
        used(use(), results=[result(), text()]),
    ),
    (
        "results are in one run",
        "order",
        "messages[2].content[2]",
        used(use(), use("t2"), results=[result(), IMAGE, result("t2")]),
        used(use(), use("t2"), results=[result(), result("t2"), IMAGE]),
    ),
    (
        "the first message is the user's",
        "order",
        "messages[0]",
        anthropic(model(), user()),
        anthropic(user(), model(), user()),
    ),
    (
        "messages of one role are merged",
        "order",
        "messages[1]",
        anthropic(user(), user()),
        anthropic(user([text(), text()])),
    ),
    (
        "strict servers want text before calls",
        "order",
        "messages[1]",
        used(use(), text()),
        used(text(), use()),
        "strict",
    ),
    (
        "strict servers want the last word to be the user's",
        "order",
        "messages[1]",
        anthropic(user(), model()),
        anthropic(user(), model(), user()),
        "strict",
    ),
    (
        "thinking is signed",
        "reasoning",
        "messages[1].content[0].signature",
        used({"type": "thinking", "thinking": "well"}, use()),
        used(thinking(), use()),
    ),
    (
        "thinking may be empty but not missing",
        "reasoning",
        "messages[1].content[0].thinking",
        used({"type": "thinking", "signature": "s"}, use()),
        used(thinking(thinking=""), use()),
    ),
    (
        "redacted thinking has its data",
        "reasoning",
        "messages[1].content[0].data",
        used({"type": "redacted_thinking"}, use()),
        used({"type": "redacted_thinking", "data": "x"}, use()),
    ),
    (
        "a message does not end in thinking",
        "reasoning",
        "messages[1]",
        used(text(), thinking()),
        used(thinking(), text()),
    ),
]
RULES = [case if len(case) == 6 else (*case, "openai") for case in (*ENVELOPE, *TOOLS, *CHAT, *RESPONSES, *ANTHROPIC)]


@pytest.mark.parametrize(
    ("rule", "place", "broken", "variant"), [(*case[1:4], case[5]) for case in RULES], ids=[case[0] for case in RULES]
)
def test_a_request_that_breaks_one_rule_is_refused_for_it_alone(fake_provider, rule, place, broken, variant):
    found = fake_provider.problems(*broken, fake_provider.VARIANTS[variant])
    assert {problem.rule for problem in found} == {rule}
    assert ", ".join(problem.bracketed for problem in found) == place


@pytest.mark.parametrize(("kept", "variant"), [case[4:] for case in RULES], ids=[case[0] for case in RULES])
def test_a_request_that_keeps_the_rule_is_accepted(fake_provider, kept, variant):
    assert fake_provider.problems(*kept, fake_provider.VARIANTS[variant]) == []


@pytest.mark.parametrize("body", [None, [], "x", 1])
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_body_that_is_no_object_is_refused(fake_provider, dialect, body):
    assert [problem.rule for problem in fake_provider.problems(dialect, body)] == ["envelope"]


@pytest.mark.parametrize("junk", [None, 1, "x", [], {}, {"role": "user"}, {"role": "assistant", "content": 5}])
@pytest.mark.parametrize("dialect", [chat, responses, anthropic])
def test_what_is_no_message_is_refused_and_breaks_nothing(fake_provider, dialect, junk):
    assert fake_provider.problems(*dialect(user(), junk), fake_provider.VARIANTS["strict"])


# Words that the validator looks for, so that junk comes close to real requests.
WORDS = [
    "role",
    "content",
    "type",
    "text",
    "id",
    "name",
    "arguments",
    "function",
    "tool_calls",
    "tool_call_id",
    "user",
    "assistant",
    "tool",
    "system",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "call_id",
    "output",
    "summary",
    "tool_use",
    "tool_result",
    "tool_use_id",
    "input",
    "thinking",
    "signature",
    "image_url",
    "input_text",
    "output_text",
    "messages",
    "tools",
    "tool_choice",
    "model",
    "stream",
    "max_tokens",
    "image",
    "source",
]
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from([*WORDS, "", "\ud800"])
JUNK = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6)
)


@given(
    dialect=st.sampled_from(["chat", "responses", "anthropic"]),
    variant=st.sampled_from(["openai", "mistral", "strict"]),
    messages=st.lists(JUNK | st.dictionaries(st.sampled_from(WORDS), JUNK, max_size=6), max_size=4),
    more=st.dictionaries(st.sampled_from(WORDS), JUNK, max_size=3),
)
def test_any_json_is_judged_without_a_fault(fake_provider, dialect, variant, messages, more):
    body = {"model": "m", "max_tokens": 1, **more, "messages": messages, "input": messages}
    for problem in fake_provider.problems(dialect, body, fake_provider.VARIANTS[variant]):
        assert str(problem)


def test_a_place_is_written_in_the_notation_of_the_provider(fake_provider):
    (problem,) = fake_provider.problems(*used(use(arguments="{}")))
    assert problem.dotted == "messages.1.content.0.input"
    assert problem.bracketed == "messages[1].content[0].input"


def test_what_one_variant_refuses_another_may_accept(fake_provider):
    body = chat({"role": "developer", "content": "x"}, user(), user())
    found = {name: bool(fake_provider.problems(*body, rules)) for name, rules in fake_provider.VARIANTS.items()}
    lenient = {"openai", "anthropic"}
    assert found == {name: name not in lenient for name in fake_provider.VARIANTS}


# --- the collected cases -----------------------------------------------------------------------------------------

BY_DIALECT = {"chat": chat, "responses": responses, "anthropic": anthropic}
TRANSCRIPTS = [case for case in json.loads((CASES / "index.json").read_text("utf-8")) if case["format"] in BY_DIALECT]


@pytest.mark.parametrize("case", TRANSCRIPTS, ids=[case["file"] for case in TRANSCRIPTS])
def test_a_collected_case_is_refused_unless_it_is_marked_as_valid(fake_provider, case):
    messages = json.loads((CASES / case["file"]).read_text("utf-8"))
    found = fake_provider.problems(*BY_DIALECT[case["format"]](*messages), fake_provider.VARIANTS["strict"])
    assert (not found) is case["valid"]
