"""What each dialect makes of single things: media, arguments, text, reasoning, requests; and lists that are none."""

from __future__ import annotations

import pytest
from attrs import evolve

from quiesce.protocol.codec import dumps, loads
from quiesce.protocol.dialects import DIALECTS, PROFILES, dialect_of, rendering
from quiesce.protocol.dialects.cleaning import cleaned
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.events import (
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
    draft,
)
from quiesce.protocol.model import ModelRequest, ToolSpec

OPENAI, RESPONSES, ANTHROPIC = (PROFILES[name] for name in ("openai", "openai-responses", "anthropic"))
DEEPSEEK, MISTRAL = PROFILES["deepseek"], PROFILES["mistral"]
EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
PNG = OpaqueBlock({"type": "image", "mediaType": "image/png", "data": "AAAA"})
GO = UserMessage((TextBlock("go"),), {"kind": "user"}, "user", "u")


def user(*blocks, role="user"):
    return UserMessage(blocks, {"kind": "user"}, role, "u")


def answer(*blocks, profile=None):
    source = {"kind": "model", "provider": profile.provider} if profile else {}
    return ModelMessage("assistant", blocks, source, "m")


def call(label="c1", arguments="{}", **fields):
    return ToolCallBlock(label, "read", arguments, **fields)


def result(*blocks, label="c1", failed=False):
    return ToolMessage("tool", label, blocks, is_error=failed, id="t")


def render(profile, *messages):
    return dialect_of(profile).render(messages, profile)


# --- media -------------------------------------------------------------------------------------------------------

DATA_URL = "data:image/png;base64,AAAA"
IN_CHAT = {"type": "image_url", "image_url": {"url": DATA_URL}}
IN_RESPONSES = {"type": "input_image", "image_url": DATA_URL, "detail": "auto"}
IN_ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@pytest.mark.parametrize(("profile", "part"), [(OPENAI, IN_CHAT), (RESPONSES, IN_RESPONSES), (ANTHROPIC, IN_ANTHROPIC)])
def test_an_image_is_shown_in_the_words_of_the_dialect(profile, part):
    assert render(profile, user(PNG))[0]["content"] == [part]


@pytest.mark.parametrize(
    ("kind", "media_type", "name", "title"),
    [
        ("image", "image/png", "a.png", None),
        ("document", "application/pdf", "a.pdf", "a.pdf"),
        ("document", "application/pdf", "", None),
        ("document", "application/pdf", "n" * 600, "n" * 500),
    ],
)
def test_a_title_is_sent_with_what_has_one_in_anthropic_and_only_as_long_as_it_may_be(kind, media_type, name, title):
    (part,) = render(
        ANTHROPIC, user(OpaqueBlock({"type": kind, "mediaType": media_type, "data": "AAAA", "name": name}))
    )[0]["content"]
    assert part.get("title") == title
    assert ("title" in part) is (title is not None)


@pytest.mark.parametrize(
    "data",
    [
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "image", "url": DATA_URL},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "resource", "resource": {"uri": "a", "mimeType": "image/png", "blob": "AAAA"}},
    ],
)
def test_an_image_of_another_log_is_understood(data):
    assert render(OPENAI, user(OpaqueBlock(data)))[0]["content"] == [IN_CHAT]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"type": "hologram", "x": 1}, "[hologram: cannot be shown here]"),
        ({"type": "image", "mediaType": "image/tiff", "data": "AAAA"}, "[image image/tiff: cannot be shown here]"),
        ({"type": "image", "mediaType": "image/png", "data": "?"}, "[image image/png: cannot be shown here]"),
        (
            {"type": "resource_link", "name": "a", "uri": "file:///a"},
            "[resource_link a file:///a: cannot be shown here]",
        ),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({}, "[content of no type: cannot be shown here]"),
    ],
)
@EVERY_PROFILE
def test_what_cannot_be_shown_is_named(profile, data, words):
    said = render(profile, user(OpaqueBlock(data)))[0]["content"]
    assert said == words


def test_an_image_of_a_result_comes_behind_the_whole_batch_in_chat():
    sent = render(
        OPENAI,
        *(GO, answer(call("c1"), call("c2")), result(TextBlock("seen"), PNG), result(TextBlock("2"), label="c2")),
        user(TextBlock("well?")),
    )
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    seen = [{"type": "text", "text": "seen"}, {"type": "text", "text": "[image: in the next user message]"}]
    assert sent[2]["content"] == seen
    texts = [{"type": "text", "text": "From the result of call c1:"}, IN_CHAT, {"type": "text", "text": "well?"}]
    assert sent[4]["content"] == texts


@pytest.mark.parametrize(("profile", "part"), [(RESPONSES, IN_RESPONSES), (ANTHROPIC, IN_ANTHROPIC)])
def test_an_image_rides_in_the_result_where_it_may(profile, part):
    sent = render(profile, GO, answer(call()), result(PNG))
    held = sent[2]["output"] if profile is RESPONSES else sent[2]["content"][0]["content"]
    assert held == [part]


@pytest.mark.parametrize(("usual", "part"), [(RESPONSES, IN_RESPONSES), (ANTHROPIC, IN_ANTHROPIC)])
def test_an_image_comes_behind_the_whole_batch_where_it_may_not_ride_in_a_result(usual, part):
    profile = evolve(usual, images_in_results=False)
    sent = render(profile, GO, answer(call("a"), call("b")), result(PNG, label="a"), result(PNG, label="b"), GO)
    assert dialect_of(profile).problems(sent, profile) == []
    assert sent[-1]["content"].count(part) == 2
    assert sent[-1]["content"][-1]["text"] == "go"


def test_a_server_without_media_is_told_of_them():
    assert render(DEEPSEEK, user(TextBlock("see"), PNG)) == [
        {"role": "user", "content": "see\n\n[image image/png: cannot be shown here]"}
    ]


# --- arguments, text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kept", "wrapped"),
    [
        ("", "{}", "{}"),
        ('{"a": 1}', '{"a": 1}', '{"a": 1}'),
        ("[1]", "[1]", '{"malformed_arguments":"[1]"}'),
        ('{"a":', '{"a":', '{"malformed_arguments":"{\\"a\\":"}'),
        ('{"a":NaN}', '{"a":NaN}', '{"malformed_arguments":"{\\"a\\":NaN}"}'),
    ],
)
def test_malformed_arguments_stay_text_or_travel_in_an_object(arguments, kept, wrapped):
    messages = (GO, answer(call(arguments=arguments)), result(TextBlock("x")))
    assert render(OPENAI, *messages)[1]["tool_calls"][0]["function"]["arguments"] == kept
    assert render(DEEPSEEK, *messages)[1]["tool_calls"][0]["function"]["arguments"] == wrapped


def test_the_input_of_anthropic_is_an_object_whatever_the_arguments_are():
    sent = render(ANTHROPIC, GO, answer(call(arguments="nonsense")), result(TextBlock("x")))
    assert sent[1]["content"][0]["input"] == {"malformed_arguments": "nonsense"}


@EVERY_PROFILE
def test_what_no_server_takes_in_text_is_replaced(profile):
    said = render(profile, user(TextBlock("a\0b \ud800")))[0]["content"]
    assert said == "a\u2400b \ufffd"


def test_blank_text_is_left_out_and_so_is_a_message_of_it():
    blank = answer(TextBlock(" \n"), ReasoningBlock("hm"))
    assert render(OPENAI, GO, blank, user(TextBlock(""))) == [{"role": "user", "content": "go"}]


def test_a_text_beyond_the_limit_is_cut_visibly():
    short = evolve(OPENAI, max_text=50)
    said = render(short, user(TextBlock("x" * 60)))[0]["content"]
    assert len(said) == 50
    assert said.endswith("x\n[cut: 60 characters in all]")


@EVERY_PROFILE
def test_a_result_without_text_says_so_or_has_no_content(profile):
    last = render(profile, GO, answer(call("aaaaaaaaa")), result(label="aaaaaaaaa"))[-1]
    held = last.get("output") or last["content"]
    assert (held[0].get("content") if profile.dialect == "anthropic" else held) == (
        None if profile.dialect == "anthropic" else "(no output)"
    )


# --- reasoning ---------------------------------------------------------------------------------------------------


def test_deepseek_gets_the_reasoning_of_its_own_calls_back():
    thought = ReasoningBlock("because")
    messages = (GO, answer(thought, call(), profile=DEEPSEEK), result(TextBlock("x")))
    sent = render(DEEPSEEK, *messages)
    assert sent[1]["reasoning_content"] == "because"
    assert render(evolve(DEEPSEEK, model="another"), *messages) == sent
    assert "reasoning_content" not in render(DEEPSEEK, GO, answer(thought, TextBlock("x"), profile=DEEPSEEK))[1]


def test_deepseek_gets_a_sentence_for_the_reasoning_of_another():
    sent = render(DEEPSEEK, GO, answer(ReasoningBlock("secret"), call(), profile=OPENAI), result(TextBlock("x")))
    assert sent[1]["reasoning_content"] == "(No reasoning of this answer is known.)"


def test_no_other_chat_server_gets_reasoning():
    sent = render(OPENAI, GO, answer(ReasoningBlock("because"), call(), profile=OPENAI), result(TextBlock("x")))
    assert sent[1].keys() == {"role", "content", "tool_calls"}


def test_extra_fields_of_a_call_go_back_with_it():
    extra = {"extra_content": {"google": {"thought_signature": "t"}}}
    sent = render(OPENAI, GO, answer(call(replay=extra), profile=OPENAI), result(TextBlock("x")))
    assert sent[1]["tool_calls"][0]["extra_content"] == extra["extra_content"]


@pytest.mark.parametrize("text", [(), (TextBlock(" "),)], ids=["alone", "before blank text"])
@pytest.mark.parametrize(
    "seal",
    [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}],
    ids=["signed", "redacted"],
)
def test_an_answer_that_is_nothing_but_signed_thinking_does_not_go_back(seal, text):
    thought = answer(ReasoningBlock("t", replay=seal), *text, profile=ANTHROPIC)
    assert render(ANTHROPIC, GO, thought, GO) == [{"role": "user", "content": [{"type": "text", "text": "go"}] * 2}]


@EVERY_PROFILE
def test_a_lone_surrogate_in_arguments_from_another_log_is_replaced(profile):
    sent = render(profile, GO, answer(call(arguments='{"x":"\ud800"}')), result(TextBlock("r")))
    assert dialect_of(profile).problems(sent, profile) == []


def test_where_reasoning_stays_behind_text_stands_before_calls():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    blocks = (call(), TextBlock("so"), ReasoningBlock("", replay=item))
    sent = render(RESPONSES, GO, answer(*blocks, profile=RESPONSES), result(TextBlock("r")))
    assert [one.get("type") for one in sent[1:]] == [None, "function_call", "function_call_output"]


def test_a_reasoning_item_goes_back_in_its_place_and_alone_it_does_not_go():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    thought = ReasoningBlock("", replay=item)
    sent = render(RESPONSES, GO, answer(thought, call(), profile=RESPONSES), result(TextBlock("x")))
    assert sent[1] is item
    assert render(RESPONSES, GO, answer(thought, profile=RESPONSES)) == [{"role": "user", "content": "go"}]


def test_a_servers_own_tools_go_back_to_it_and_are_named_to_others():
    used = OpaqueBlock({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})
    message = answer(used, TextBlock("found"), profile=ANTHROPIC)
    assert render(ANTHROPIC, GO, message, GO)[1]["content"][0] is used.data
    assert render(OPENAI, GO, message)[1]["content"][0]["text"] == "[server_tool_use web_search: cannot be shown here]"


@pytest.mark.parametrize("name", ["openai", "compatible", "strict-chat", "deepseek", "any-chat"])
@pytest.mark.parametrize(
    "body",
    [
        {"type": "function", "function": {"name": "a b", "arguments": "{}"}, "custom": {}},
        {"type": "function", "function": {"name": "a b", "arguments": "{}"}, "custom": "x"},
        {"type": "custom", "custom": [1]},
        {"type": "custom", "custom": {}},
        {"type": "custom", "custom": {"name": " ", "input": "x"}},
    ],
    ids=str,
)
def test_a_custom_call_goes_back_as_it_was_only_where_it_is_one(name, body):
    dialect, profile = DIALECTS["chat"], PROFILES[name]
    asked = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **body}]}
    given = [{"role": "user", "content": "go"}, asked, {"role": "tool", "tool_call_id": "c1", "content": "done"}]
    assert dialect.problems(dialect.render(dialect.read(given, profile), profile), profile) == []


def test_a_custom_call_without_a_name_gets_one():
    dialect = DIALECTS["responses"]
    asked = {"type": "custom_tool_call", "call_id": "c1", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}
    sent = dialect.render(dialect.read([asked, output], RESPONSES), RESPONSES)
    assert sent == [{**asked, "name": "custom_tool_call"}, output]


def test_thinking_that_is_left_out_at_the_end_holds_no_call_in_its_place():
    dialect = DIALECTS["anthropic"]
    used, shown = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}, {"type": "input_image", "image_url": "x"}
    asked = {"role": "assistant", "content": [used, shown, {"type": "redacted_thinking", "data": "d"}]}
    answered = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "y"}]}
    sent = dialect.render(dialect.read([asked, answered], ANTHROPIC), ANTHROPIC)
    assert [block["type"] for block in sent[-2]["content"]] == ["input_image", "tool_use"]
    assert dialect.render(dialect.read(sent, ANTHROPIC), ANTHROPIC) == sent


def test_what_a_user_said_in_the_mouth_of_the_assistant_is_an_item_of_the_assistant():
    dialect = DIALECTS["responses"]
    part = {"type": "input_text", "text": "hello", "cached": True}
    (said,) = dialect.read([{"role": "user", "content": [part]}], RESPONSES)
    sent = render(RESPONSES, GO, answer(*said.content, profile=RESPONSES))
    assert sent[1:] == [{"role": "assistant", "content": "hello"}]
    assert dialect.problems(sent, RESPONSES) == []


@pytest.mark.parametrize("asked", [None, {"type": "shell"}], ids=["plain call", "call of no known type"])
def test_a_result_that_remembers_an_object_of_no_type_answers_a_function_call(asked):
    def shape(original):
        return Shape(("wire",), {"wire": {"provider": RESPONSES.provider, "object": original}})

    answered = evolve(result(TextBlock("x")), shape=shape({"note": 1}))
    sent = render(RESPONSES, GO, answer(call(shape=asked and shape(asked))), answered)
    assert [item.get("type") for item in sent[1:]] == ["function_call", "function_call_output"]
    assert DIALECTS["responses"].problems(sent, RESPONSES) == []


@pytest.mark.parametrize("name", ["", " ", "a b", 5])
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "computer_call"])
def test_an_output_that_names_no_tool_that_is_taken_names_that_of_its_call(kind, name):
    dialect = DIALECTS["responses"]
    asked = {"type": kind, "call_id": "c1", "name": "read", "arguments": "{}", "input": "x"}
    output = {"type": f"{kind}_output", "call_id": "c1", "name": name, "output": "done"}
    sent = dialect.render(dialect.read([asked, output], RESPONSES), RESPONSES)
    assert [item["name"] for item in sent if item.get("call_id")] == ["read", "read"]
    assert dialect.problems(sent, RESPONSES) == []


def test_text_behind_a_call_moves_before_it_and_signed_thinking_stays():
    seals = [{"type": "thinking", "thinking": "t", "signature": sign} for sign in ("s1", "s2")]
    first, second = (ReasoningBlock("t", replay=seal) for seal in seals)
    blocks = (first, call("a"), TextBlock("so"), second, call("b"))
    results = (result(TextBlock("1"), label="a"), result(TextBlock("2"), label="b"))
    sent = render(ANTHROPIC, GO, answer(*blocks, profile=ANTHROPIC), *results)
    kinds = [block["type"] for block in sent[1]["content"]]
    assert kinds == ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert sent[1]["content"][0] is seals[0]
    assert sent[1]["content"][3] is seals[1]


# --- roles -------------------------------------------------------------------------------------------------------


def test_system_and_developer_messages_stay_in_their_place():
    messages = (GO, user(TextBlock("be brief"), role="developer"), answer(TextBlock("ok")), GO)
    assert [item["role"] for item in render(OPENAI, *messages)] == ["user", "developer", "assistant", "user"]
    assert [item["role"] for item in render(MISTRAL, *messages)] == ["user", "system", "assistant", "user"]
    assert [item["role"] for item in render(ANTHROPIC, *messages)] == ["user", "assistant", "user"]


@EVERY_PROFILE
def test_a_history_that_starts_and_ends_with_the_assistant_gets_a_user_where_one_is_wanted(profile):
    roles = [item["role"] for item in render(profile, answer(TextBlock("hello")))]
    wanted = ["user"] * profile.starts_with_user + ["assistant"] + ["user"] * profile.ends_with_input
    assert roles == wanted


@EVERY_PROFILE
@pytest.mark.parametrize("blank", [(), (user(),), (answer(ReasoningBlock("hm")), user())], ids=len)
def test_where_nothing_is_said_the_user_begins(profile, blank):
    sent = render(profile, *blank)
    assert sent == [{"role": "user", "content": "Begin."}]
    assert dialect_of(profile).problems(sent, profile) == []


@EVERY_PROFILE
def test_what_is_said_after_nothing_takes_its_place(profile):
    renderer = dialect_of(profile).Renderer(profile)
    renderer.render((user(),))
    assert renderer.render((user(), GO)) == [{"role": "user", "content": "go"}]


def test_a_refusal_is_a_part_of_its_own_in_an_answer_and_text_where_nobody_can_refuse():
    profile, part = PROFILES["any-chat"], {"type": "refusal", "refusal": "no"}
    given = [{"role": role, "content": [part]} for role in ("user", "assistant", "system")]
    sent = render(profile, *DIALECTS["chat"].read(given, profile))
    assert [message["content"] for message in sent] == ["no", [part], "no"]


CHAT = [profile for profile in PROFILES.values() if profile.dialect == "chat"]
EVERY_CHAT = pytest.mark.parametrize("profile", CHAT, ids=[profile.name for profile in CHAT])


@EVERY_CHAT
def test_beside_calls_content_is_null_or_an_empty_string_as_the_server_takes_it(profile):
    sent = render(profile, GO, answer(call("aaaaaaaaa")), result(TextBlock("x"), label="aaaaaaaaa"))
    assert sent[1]["content"] == (None if profile.null_content else "")
    assert profile.null_content is (profile.name not in ("compatible", "strict-chat"))


def test_an_empty_string_beside_calls_leaves_no_blank_text_when_messages_are_merged():
    profile = PROFILES["compatible"]
    sent = render(profile, GO, answer(TextBlock("so")), answer(call()), result(TextBlock("x")))
    assert sent[1]["content"] == "so"
    both = render(profile, GO, answer(TextBlock("a")), answer(TextBlock("b")), answer(call()), result(TextBlock("x")))
    assert [part["text"] for part in both[1]["content"]] == ["a", "b"]


def test_an_answer_without_content_is_merged_with_the_next_one():
    given = [{"role": "assistant", "refusal": "no"}, {"role": "assistant", "content": "ok"}]
    sent = render(OPENAI, GO, *DIALECTS["chat"].read(given, OPENAI))
    assert sent[1] == {"role": "assistant", "refusal": "no", "content": "ok"}


@pytest.mark.parametrize("name", ["compatible", "strict-chat"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_what_stands_beside_content_is_said_in_it_where_that_may_not_be_null(name, content):
    profile = PROFILES[name]
    for aside in ({"refusal": "no"}, {"audio": {"id": "a1"}}, {"tool_calls": [CALLED]}):
        given = [{"role": "user", "content": "go"}, {"role": "assistant", **content, **aside}]
        sent = render(profile, *DIALECTS["chat"].read(given, profile))
        assert dialect_of(profile).problems(sent, profile) == []
        assert type(sent[1]["content"]) is str
        assert bool(sent[1]["content"]) is ("tool_calls" not in aside)


CALLED = {"id": "aaaaaaaaa", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def test_a_compatible_server_gets_nothing_that_only_openai_takes():
    profile = PROFILES["compatible"]
    pdf = OpaqueBlock({"type": "document", "mediaType": "application/pdf", "data": "AAAA"})
    messages = (user(TextBlock("be brief"), role="developer"), user(PNG, pdf), answer(call(arguments="[1]")))
    system, said, asked, answered = render(profile, *messages)
    assert (system["role"], answered["role"]) == ("system", "tool")
    assert said["content"] == [IN_CHAT, {"type": "text", "text": "[document application/pdf: cannot be shown here]"}]
    assert asked["tool_calls"][0]["function"]["arguments"] == '{"malformed_arguments":"[1]"}'


def test_two_speakers_of_different_names_stay_two_unless_the_roles_must_alternate():
    given = [{"role": "user", "content": "hi", "name": name} for name in ("ann", "bob")]
    assert render(OPENAI, *DIALECTS["chat"].read(given, OPENAI)) == given
    strict = PROFILES["strict-chat"]
    assert len(render(strict, *DIALECTS["chat"].read(given, strict))) == 1


# --- requests ----------------------------------------------------------------------------------------------------

TOOL = ToolSpec("calendar.read", "reads", {"type": "object"})


def test_a_request_of_chat_has_the_system_prompt_first():
    body = DIALECTS["chat"].request(ModelRequest("s", 1, 1, (GO,), (TOOL,), "be kind"), OPENAI)
    assert body["messages"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "go"}]
    assert body["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_a_request_of_responses_has_instructions():
    body = DIALECTS["responses"].request(ModelRequest("s", 1, 1, (GO,), (TOOL,), "be kind"), RESPONSES)
    assert (body["instructions"], body["input"]) == ("be kind", [{"role": "user", "content": "go"}])
    assert body["tools"][0]["type"] == "function"


def test_a_request_of_anthropic_has_the_system_prompt_beside_the_messages():
    body = DIALECTS["anthropic"].request(ModelRequest("s", 1, 1, (GO,), (TOOL,), "be kind"), ANTHROPIC)
    assert (body["system"], body["messages"]) == ("be kind", [{"role": "user", "content": "go"}])
    assert body["tools"][0]["input_schema"] == {"type": "object"}


@EVERY_PROFILE
def test_what_is_not_there_is_not_in_the_request(profile):
    dialect = dialect_of(profile)
    body = dialect.request(ModelRequest("s", 1, 1, (GO,), system=" "), profile)
    assert body == {dialect.messages_key: [{"role": "user", "content": "go"}]}


# --- lists that are none -----------------------------------------------------------------------------------------


@EVERY_PROFILE
@pytest.mark.parametrize(("given", "place"), [({}, ": expected a list"), ([{}, 5], r"\[1\]: expected an object")])
def test_what_is_no_list_of_objects_is_refused_with_its_place(profile, given, place):
    dialect = dialect_of(profile)
    with pytest.raises(InvalidInput, match=f"^{dialect.messages_key}{place}"):
        dialect.read(given, profile)


def test_the_input_of_responses_may_be_a_string():
    assert render(RESPONSES, *DIALECTS["responses"].read("go", RESPONSES)) == [{"role": "user", "content": "go"}]


@pytest.mark.parametrize("kind", ["text", "reasoning", "tool-call", "", None])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_block_that_is_not_what_its_type_says_is_still_one_in_the_log(dialect, kind):
    (message,) = DIALECTS[dialect].read([{"role": "user", "content": [{"type": kind}]}], PROFILES[f"any-{dialect}"])
    event = draft(message).at(0, 0)
    assert loads(dumps(event)) == event


def test_what_a_transcript_held_goes_back_to_its_server_and_to_no_other():
    given = [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]
    messages = DIALECTS["anthropic"].read(given, ANTHROPIC)
    assert render(ANTHROPIC, *messages) == given
    assert render(PROFILES["strict-anthropic"], *messages) == [{"role": "user", "content": "hi"}]
    assert render(OPENAI, *messages) == [{"role": "user", "content": "hi"}]


# --- histories that grow -----------------------------------------------------------------------------------------


@EVERY_PROFILE
def test_what_was_rendered_is_not_rendered_again(profile):
    renderer, dialect = dialect_of(profile).Renderer(profile), dialect_of(profile)
    before = (GO, answer(call()), result(TextBlock("x")))
    first = renderer.render(before)
    second = renderer.render((*before, answer(TextBlock("so")), GO))
    assert all(old is new for old, new in zip(first, second, strict=False))
    assert second == dialect.render((*before, answer(TextBlock("so")), GO), profile)


@pytest.fixture
def written(monkeypatch):
    """Every message that a writer is given, in order, and every one that is looked through for what cannot be sent."""
    seen = {"written": [], "cleaned": []}
    for dialect in DIALECTS.values():
        writer = dialect.Renderer._writer

        class Counting(writer):
            def add(self, exchange):
                seen["written"] += [exchange.message, *exchange.answers]
                super().add(exchange)

        monkeypatch.setattr(dialect.Renderer, "_writer", Counting)

    def clean(messages):
        seen["cleaned"] += messages
        return cleaned(messages)

    monkeypatch.setattr(rendering, "cleaned", clean)
    return seen


@EVERY_PROFILE
def test_each_message_is_written_once_however_long_the_history_grows(profile, written):
    renderer, history = dialect_of(profile).Renderer(profile), []
    for number in range(50):
        new = (GO, answer(TextBlock("so"), call(f"c{number}")), result(TextBlock("x"), label=f"c{number}"))
        history += new
        written["written"].clear()
        written["cleaned"].clear()
        renderer.render(tuple(history))
        assert written == {"written": list(new), "cleaned": list(new)}
    renderer.render(tuple(history))
    assert written["written"] == list(new)


@EVERY_PROFILE
def test_a_history_that_was_changed_is_rendered_anew(profile):
    renderer = dialect_of(profile).Renderer(profile)
    renderer.render((GO, answer(TextBlock("so")), GO))
    compacted = (user(TextBlock("in short")), answer(TextBlock("yes")), GO)
    assert renderer.render(compacted) == render(profile, *compacted)


@EVERY_PROFILE
def test_a_result_that_comes_after_its_call_was_sent_without_it_takes_its_place(profile):
    renderer = dialect_of(profile).Renderer(profile)
    renderer.render((GO, answer(call())))
    assert renderer.render((GO, answer(call()), result(TextBlock("late")))) == render(
        profile, GO, answer(call()), result(TextBlock("late"))
    )
