"""Repair of transcripts: every call has its one result afterwards, and what needed nothing was not touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.dialects.repair import check_transcript, lenient_profile, repair
from quiesce.protocol.dialects.repair_notes import UNKNOWN
from quiesce.protocol.dialects.transcript import load_transcript
from quiesce.protocol.errors import InvalidInput

CASES = Path(__file__).parents[2] / "cases"


def transcript(dialect, messages, **body):
    """A transcript of these very objects."""
    name = "input" if dialect == "responses" else "messages"
    return load_transcript(json.dumps({name: [], **body}), dialect).with_messages(messages)


def repaired(dialect, messages, profile=None, **body):
    """The repaired list and the kinds of changes."""
    found = repair(transcript(dialect, messages, **body), profile and PROFILES[profile])
    assert [problem for problem in found.problems if problem.about_pairing] == []
    return found.messages, [change.kind for change in found.changes]


def same(messages, others):
    """Whether these are the very same objects."""
    return [id(message) for message in messages] == [id(message) for message in others]


# --- the cases ---------------------------------------------------------------------------------------------------


def case(name):
    (path,) = CASES.glob(f"{name}.*.json")
    found = repair(load_transcript(path.read_bytes()))
    assert found.problems == ()
    return found.transcript.messages, json.loads(path.read_text())


def unknown(label):
    return {"type": "tool_result", "tool_use_id": label, "content": UNKNOWN, "is_error": True}


def test_b02_an_output_comes_right_behind_its_call():
    messages, (first, call, last) = case("B02-no-output")
    assert messages == [first, call, {"type": "function_call_output", "call_id": "call_c1", "output": UNKNOWN}, last]


def test_b04_a_call_at_the_end_is_answered():
    messages, original = case("B04-tail")
    assert messages == [*original, {"role": "user", "content": [unknown("t1")]}]


def test_b04_a_result_goes_first_in_the_next_user_message():
    messages, original = case("B04-middle")
    original[2]["content"] = [unknown("t1"), {"type": "text", "text": "weather please"}]
    assert messages == original


def test_b04_a_result_of_another_call_becomes_a_note():
    messages, original = case("B04-disjoint")
    note = "[Note: A result for call 'tB' stood here, but it answers no call of this conversation. It said:\nlate]"
    original[2]["content"] = [unknown("tA"), {"type": "text", "text": note}]
    assert messages == original


def test_b10_what_the_user_said_behind_the_results_joins_them():
    messages, (go, asks, results, said) = case("B10-two-user-messages")
    joined = {"role": "user", "content": [*results["content"], {"type": "text", "text": said["content"]}]}
    assert messages == [go, asks, joined]


def test_b12_each_call_gets_a_result_in_call_order():
    messages, original = case("B12-as-sent-by-bug")
    original[2]["content"] = [unknown("r1"), unknown("r2"), {"type": "text", "text": "what happened?"}]
    assert messages == original


def test_b16_split_results_come_together():
    messages, (go, asks, first, second) = case("B16-split")
    assert messages == [go, asks, {"role": "user", "content": [*first["content"], *second["content"]]}]


def test_b18_a_result_moves_before_what_the_user_said():
    messages, (go, asks, said, result, ok) = case("B18-interleaved-user")
    assert messages == [go, asks, result, said, ok]


def test_b20_text_goes_behind_the_results():
    messages, original = case("B20-text-between")
    first, text, second = original[2]["content"]
    original[2]["content"] = [first, second, text]
    assert messages == original


def test_b20_a_call_in_a_user_message_becomes_an_assistants():
    messages, original = case("B20-tool-use-in-user")
    original[1]["role"] = "assistant"
    assert messages == original


def test_b26_the_first_outcome_counts_and_the_other_call_is_unknown():
    messages, original = case("B26-tombstones")
    go, asks, first, _, _, said = original
    assert messages[:4] == [go, asks, first, {"role": "tool", "tool_call_id": "c2", "content": UNKNOWN}]
    assert [message["role"] for message in messages[4:]] == ["user"] * 3
    assert "real" in messages[5]["content"]
    assert messages[-1] == said


def test_b28_an_orphan_becomes_a_note():
    messages, _ = case("B28-orphan-after-filter")
    (message,) = messages
    go, note = message["content"]
    assert go == {"type": "text", "text": "go"}
    assert note["text"].startswith("[Note: An error result for call 't1' stood here, but it answers no call")
    assert "interrupted" in note["text"]


def test_b30_the_first_outcome_counts():
    messages, original = case("B30-two-outcomes")
    assert messages[:3] == original[:3]
    assert messages[3]["role"] == "user"
    assert "InvalidToolInput: JSON parse error" in messages[3]["content"]


def test_b68_one_result_directly_behind_the_call():
    messages, original = case("B68-far-repair")
    result = original[4]["content"][0]
    assert messages[2] == {"role": "user", "content": [result, {"type": "text", "text": "note"}]}
    assert [block["type"] for block in messages[4]["content"]] == ["text"]


@pytest.mark.parametrize("name", ["B48-interleaved", "B32-constant-id", "B32-recurring", "B34-empty", "B44-kimi-id"])
def test_a_case_without_a_fault_of_pairing_is_not_touched(name):
    (path,) = CASES.glob(f"{name}.*.json")
    original = load_transcript(path.read_bytes())
    found = repair(original)
    assert found.changes == ()
    assert found.transcript is original


# --- each rule ---------------------------------------------------------------------------------------------------

GO = {"role": "user", "content": "go"}
OK = {"role": "assistant", "content": "ok"}


def asks(*ids):
    function = {"name": "run", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool(call_id, content="x"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def call(call_id, kind="function_call"):
    return {"type": kind, "call_id": call_id, "name": "run", "arguments": "{}"}


def output(call_id, kind="function_call_output"):
    return {"type": kind, "call_id": call_id, "output": "x"}


def use(call_id):
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {}}


def result(call_id, content="x"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def says(text):
    return {"type": "text", "text": text}


def user(*content):
    return {"role": "user", "content": list(content)}


def model(*content):
    return {"role": "assistant", "content": list(content)}


def test_results_that_stand_stay_in_their_order_and_what_is_missing_follows_in_call_order():
    b, c = tool("b"), tool("c")
    messages, kinds = repaired("chat", [asks("a", "b", "c", "d"), c, b, GO])
    assert [message.get("tool_call_id") for message in messages] == [None, "c", "b", "a", "d", None]
    assert messages[1] is c
    assert messages[2] is b
    assert kinds == ["answered", "answered"]


def test_a_note_never_parts_a_call_from_its_result():
    messages, kinds = repaired("chat", [asks("a", "b"), tool("a"), tool("z"), tool("b"), GO])
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert kinds == ["quoted"]


def test_a_note_goes_behind_all_batches_that_run_into_each_other():
    items = [GO, call("a"), output("z"), call("b"), output("a"), output("b")]
    messages, kinds = repaired("responses", items, "strict-responses")
    assert same(messages[:-1], [items[at] for at in (0, 1, 3, 4, 5)])
    assert messages[-1]["role"] == "user"
    assert kinds == ["quoted"]


def test_unknown_keys_of_what_is_moved_stay():
    moved = {**tool("a"), "x_trace": {"id": 1}}
    messages, _ = repaired("chat", [asks("a"), GO, moved])
    assert messages[1] is moved


def test_a_result_without_an_id_is_quoted():
    messages, kinds = repaired("chat", [asks("a"), tool("a"), {"role": "tool", "content": "x"}])
    assert kinds == ["quoted"]
    assert "for call without an id stood here" in messages[-1]["content"]


def test_media_go_with_the_note():
    image = {"type": "image", "source": {}}
    messages, _ = repaired("anthropic", [GO, OK, user(says("a"), result("z", [image, says("b")]))])
    text, note, media = messages[2]["content"]
    assert (text, media) == (says("a"), image)
    assert note["text"].endswith("It said:\nb]")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "It was empty.]"),
        (None, "It was empty.]"),
        ([], "It was empty.]"),
        ([{"type": "image"}], "It holds what follows this note.]"),
        ({"a": 1}, 'It said:\n{"a": 1}]'),
        ([{"type": "text", "text": "a"}, {"type": "new", "b": 2}], 'It said:\na\n{"type": "new", "b": 2}]'),
    ],
)
def test_a_note_quotes_all_there_was(content, words):
    messages, _ = repaired("anthropic", [user(says("a"), result("z", content))])
    assert messages[0]["content"][1]["text"].endswith(words)


def test_responses_may_stand_apart_from_their_calls():
    items = [call("a"), GO, output("a")]
    assert same(repaired("responses", items)[0], items)


def test_where_they_may_not_they_move():
    items = [GO, call("a"), OK, output("a")]
    messages, kinds = repaired("responses", items, "strict-responses")
    assert same(messages, [items[0], items[1], items[3], items[2]])
    assert kinds == ["moved"]


def test_an_output_of_another_kind_answers_nothing():
    messages, kinds = repaired("responses", [call("a", "custom_tool_call"), output("a")])
    assert messages[1] == {"type": "custom_tool_call_output", "call_id": "a", "output": UNKNOWN}
    assert kinds == ["answered", "quoted"]


def test_what_the_server_may_hold_is_let_be():
    items = [output("a"), GO]
    assert same(repaired("responses", items, previous_response_id="r")[0], items)


def test_a_second_result_is_one_too_many_even_if_the_server_holds_more():
    _, kinds = repaired("responses", [call("a"), output("a"), output("a")], previous_response_id="r")
    assert kinds == ["quoted"]


def test_reasoning_stays_before_what_it_led_to():
    thought = {"type": "reasoning", "summary": []}
    messages, _ = repaired("responses", [call("a"), thought, OK, GO])
    assert [message.get("type") for message in messages] == [
        "function_call",
        "function_call_output",
        "reasoning",
        None,
        None,
    ]


def test_a_result_in_an_assistants_message_moves():
    messages, kinds = repaired("anthropic", [GO, model(use("a")), model(result("a"), says("so")), GO])
    assert messages == [GO, model(use("a")), user(result("a")), model(says("so")), GO]
    assert kinds == ["moved"]


def test_a_message_that_held_only_moved_results_is_gone():
    messages, kinds = repaired("anthropic", [GO, model(use("a")), GO, OK, user(result("a")), OK])
    assert messages == [GO, model(use("a")), user(result("a"), says("go")), OK, OK]
    assert kinds == ["moved"]


def test_blank_text_is_not_carried_into_a_list_of_blocks():
    messages, _ = repaired("anthropic", [GO, model(use("a")), {"role": "user", "content": " "}])
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result"]


def test_a_mixed_message_of_the_user_is_parted_at_its_calls():
    messages, kinds = repaired("anthropic", [{**user(says("a"), use("c"), result("c")), "x": 1}])
    assert messages == [{**user(says("a")), "x": 1}, {**model(use("c")), "x": 1}, {**user(result("c")), "x": 1}]
    assert kinds == ["call-moved"]


def test_messages_are_joined_only_where_the_profile_wants_it():
    messages = [GO, model(use("a")), user(result("a")), user(says("b"))]
    apart = evolve(PROFILES["any-anthropic"], merge=False)
    assert repair(transcript("anthropic", messages), apart).changes == ()
    assert [change.kind for change in repair(transcript("anthropic", messages)).changes] == ["joined"]


def test_two_messages_of_the_user_without_results_are_let_be():
    messages = [GO, GO, OK]
    assert same(repaired("anthropic", messages)[0], messages)


def test_a_change_says_where_and_what_in_one_line():
    found = repair(transcript("chat", [GO, asks("a\n"), tool("z"), tool("a\n")]))
    assert [str(change) for change in found.changes] == [
        "messages[2]: the result of call 'z', which is not before it, became a note"
    ]
    assert [(change.kind, change.label) for change in found.changes] == [("quoted", "z")]


def test_places_are_those_of_the_list_as_it_was():
    messages = [user(says("a"), use("c"), result("z")), GO, model(use("d")), user(says("x"), result("c"))]
    found = repair(transcript("anthropic", messages))
    assert [(change.kind, change.position) for change in found.changes] == [
        ("call-moved", "messages[0].content[1]"),
        ("quoted", "messages[0].content[2]"),
        ("joined", "messages[1]"),
        ("answered", "messages[2].content[0]"),
        ("moved", "messages[3].content[1]"),
    ]


def test_what_remains_is_told():
    found = repair(transcript("chat", [asks("c1"), GO]), PROFILES["mistral"])
    assert [(problem.rule, problem.position) for problem in found.problems] == [
        ("call-id", "messages[0].tool_calls[0].id"),
        ("call-id", "messages[1].tool_call_id"),
    ]


def test_a_profile_of_another_dialect_is_refused():
    with pytest.raises(InvalidInput, match="profile: openai is for chat messages, and these are anthropic messages"):
        repair(transcript("anthropic", [GO]), PROFILES["openai"])


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_the_lenient_profile_is_of_the_dialect(dialect):
    assert lenient_profile(dialect).dialect == dialect


def test_a_check_looks_at_the_tools_too():
    request = transcript("chat", [GO], tools=[{"type": "function", "function": {"name": ""}}])
    assert [problem.position for problem in check_transcript(request)] == ["tools[0].function.name"]


# --- any list ----------------------------------------------------------------------------------------------------
#
# As foreign programs leave them: hardly any of them right, in few ids and roles.

IDS = st.sampled_from(["a", "b", "c", ""]) | st.none() | st.just(7)
TEXT = st.sampled_from(["x", "", " ", "two\nlines", "\ud800"])
JUNK = st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
ROLES = st.sampled_from(["user", "user", "assistant", "assistant", "system", "tool"])
SAID = st.builds(lambda role, text: {"role": role, "content": text}, ROLES, TEXT)


def some_fields(**fields):
    """Objects that have some of these, each right or not."""
    return st.fixed_dictionaries({}, optional={key: value | JUNK for key, value in fields.items()})


CHAT_CALLS = st.lists(IDS, max_size=3).map(lambda ids: asks(*ids))
CHAT_RESULT = st.builds(tool, IDS, TEXT | st.lists(st.builds(says, TEXT) | JUNK, max_size=2))
CHAT_OTHER = some_fields(role=ROLES, tool_call_id=IDS, tool_calls=JUNK, content=TEXT)

KINDS = st.sampled_from(["function_call", "function_call", "custom_tool_call"])
ITEM_CALL = st.builds(call, IDS, KINDS)
ITEM_OUTPUT = st.builds(output, IDS, KINDS.map(lambda kind: f"{kind}_output"))
ITEM_OTHER = some_fields(type=KINDS | st.sampled_from(["message", "reasoning", "mcp_call"]), call_id=IDS, role=ROLES)

BLOCK = st.builds(use, IDS) | st.builds(result, IDS, TEXT | JUNK) | st.builds(says, TEXT) | JUNK
MESSAGE = st.builds(lambda role, content: {"role": role, "content": content}, ROLES, st.lists(BLOCK, max_size=4))
ASKING = st.lists(st.builds(use, IDS), min_size=1, max_size=3).map(lambda calls: model(*calls))
ANSWERING = st.lists(st.builds(result, IDS) | st.builds(says, TEXT), max_size=3).map(lambda found: user(*found))
MESSAGE_OTHER = some_fields(role=ROLES, content=st.lists(BLOCK, max_size=2))

LISTS = {
    "chat": st.lists(CHAT_CALLS | CHAT_RESULT | CHAT_RESULT | SAID | CHAT_OTHER | JUNK, max_size=9),
    "responses": st.lists(ITEM_CALL | ITEM_CALL | ITEM_OUTPUT | ITEM_OUTPUT | SAID | ITEM_OTHER | JUNK, max_size=9),
    "anthropic": st.lists(MESSAGE | ASKING | ANSWERING | SAID | MESSAGE_OTHER | JUNK, max_size=7),
}
EVERY_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


@EVERY_PROFILE
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_no_list_has_problems_of_pairing_afterwards(data, profile):
    messages = data.draw(LISTS[profile.dialect])
    found = repair(transcript(profile.dialect, messages), profile)
    assert [problem for problem in found.problems if problem.about_pairing] == []


@EVERY_PROFILE
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_repairing_twice_is_repairing_once(data, profile):
    found = repair(transcript(profile.dialect, data.draw(LISTS[profile.dialect])), profile)
    again = repair(found.transcript, profile)
    assert again.changes == ()
    assert same(again.messages, found.messages)


@EVERY_PROFILE
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_what_is_not_wrong_is_not_touched(data, profile):
    given_list = data.draw(LISTS[profile.dialect])
    before = json.dumps(given_list)
    found = repair(transcript(profile.dialect, given_list), profile)
    assert json.dumps(given_list) == before
    if not found.changes:
        assert same(found.messages, given_list)
    told = {problem.rule for problem in check_transcript(transcript(profile.dialect, given_list), profile)}
    if not told:
        assert not found.changes


@EVERY_PROFILE
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_nothing_that_a_tool_said_is_lost(data, profile):
    """Each text is in the repaired list as often as it was before."""
    marks = iter(range(1_000))

    def marked(value):
        if isinstance(value, dict):
            return {
                key: f"said-{next(marks)}." if key in ("output", "content") and inner == "x" else marked(inner)
                for key, inner in value.items()
            }
        return [marked(inner) for inner in value] if isinstance(value, list) else value

    messages = [marked(message) for message in data.draw(LISTS[profile.dialect])]
    written = json.dumps(repair(transcript(profile.dialect, messages), profile).messages)
    used = next(marks)
    assert [written.count(f"said-{number}.") for number in range(used)] == [1] * used
