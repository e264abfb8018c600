"""The codec: what is read is written back as it was, what is not JSON or not an event is refused with its path."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.codec import check_draft, dumps, event_from_json, event_to_json, load_json, loads
from quiesce.protocol.errors import InvalidInput, UnreadableLog
from quiesce.protocol.events import (
    BODIES,
    ApprovalDecided,
    ApprovalRequested,
    AssistantAttempt,
    AssistantMessage,
    Draft,
    EndSeed,
    ErrorInfo,
    Event,
    ForeignBody,
    InboxSpliced,
    LateResult,
    ModelMessage,
    OpaqueBlock,
    Reason,
    ReasoningBlock,
    Replace,
    Shape,
    StepEnd,
    StepStart,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolMessage,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    draft,
)

# --- strategies --------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSONS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSONS, max_size=3)
COUNT = st.integers(0, 2**53)


def none_or(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def opaque(data: dict[str, Any], kind: str) -> OpaqueBlock:
    return OpaqueBlock({"type": f"x-{kind}", **{key: value for key, value in data.items() if key != "type"}})


BLOCKS = (
    st.builds(TextBlock, TEXT)
    | st.builds(ReasoningBlock, TEXT)
    | st.builds(ToolCallBlock, TEXT, TEXT, TEXT)
    | st.builds(opaque, OBJECTS, TEXT)
)
CONTENT = st.lists(BLOCKS, max_size=3).map(tuple)
USERS = st.builds(UserMessage, CONTENT, OBJECTS, TEXT, TEXT)
ERRORS = st.builds(ErrorInfo, TEXT, TEXT, none_or(TEXT))
BODY = {
    TurnStart: st.builds(TurnStart, COUNT),
    TurnEnd: st.builds(TurnEnd, COUNT, st.builds(Reason, TEXT, JSONS, none_or(TEXT), none_or(TEXT))),
    StepStart: st.builds(StepStart, COUNT, COUNT),
    StepEnd: st.builds(StepEnd, COUNT, COUNT),
    UserMessage: USERS,
    AssistantMessage: st.builds(
        AssistantMessage,
        COUNT,
        COUNT,
        st.builds(ModelMessage, TEXT, CONTENT, OBJECTS, TEXT),
        none_or(OBJECTS),
        none_or(st.booleans()),
    ),
    AssistantAttempt: st.builds(AssistantAttempt, COUNT, COUNT, CONTENT, none_or(ERRORS)),
    ToolCall: st.builds(ToolCall, COUNT, COUNT, TEXT, TEXT, TEXT),
    ApprovalRequested: st.builds(ApprovalRequested, COUNT, COUNT, COUNT, TEXT, TEXT, OBJECTS, TEXT, none_or(OBJECTS)),
    ApprovalDecided: st.builds(ApprovalDecided, COUNT, COUNT, COUNT, TEXT, st.booleans(), none_or(TEXT)),
    ToolResult: st.builds(
        ToolResult,
        COUNT,
        COUNT,
        st.builds(ToolMessage, TEXT, TEXT, CONTENT, st.booleans(), TEXT),
        none_or(ERRORS),
        none_or(OBJECTS),
    ),
    LateResult: st.builds(LateResult, COUNT, COUNT, TEXT, CONTENT, st.booleans(), none_or(ERRORS)),
    InboxSpliced: st.builds(
        InboxSpliced, TEXT, COUNT, st.lists(USERS, max_size=2).map(tuple), none_or(TEXT), removed_count=none_or(COUNT)
    ),
    EndSeed: st.builds(EndSeed, none_or(st.booleans())),
    ForeignBody: st.builds(ForeignBody, TEXT.map("x-".__add__), JSONS),
}
EVENTS = st.builds(
    Event,
    st.one_of(*BODY.values()),
    none_or(st.booleans()),
    none_or(st.lists(COUNT, max_size=3).map(tuple)),
    none_or(st.just("append") | st.builds(Replace, st.just("replace"), COUNT, COUNT)),
    seq=COUNT,
    time=COUNT,
)


KEYS = ("shape", "body", "data", "type", "usage", "call_id", "inherited", "x")
STRANGE: tuple[Any, ...] = (None, [], {"shape": {}}, "x", 1.5, True)


def in_another_form(obj: Any, chance: Random) -> Any:
    """The same JSON, here and there with unknown keys, keys in another order, and keys that are null or left out."""
    if isinstance(obj, list):
        return [in_another_form(item, chance) for item in obj]
    if not isinstance(obj, dict):
        return obj
    items = [(key, in_another_form(value, chance)) for key, value in obj.items()]
    kind = chance.choice(["same", "same", "more", "shuffled", "fewer", "null"])
    if kind == "more":
        items.insert(chance.randint(0, len(items)), (chance.choice(KEYS), chance.choice(STRANGE)))
    elif kind == "shuffled":
        chance.shuffle(items)
    elif items and kind in ("fewer", "null"):
        index = chance.randrange(len(items))
        items[index : index + 1] = [] if kind == "fewer" else [(items[index][0], None)]
    return dict(items)


def text(obj: Any) -> str:
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":"))


# --- nothing is lost ---------------------------------------------------------------------------------------------


def test_every_body_class_has_a_strategy():
    assert set(BODY) == {*BODIES.values(), ForeignBody}


@given(EVENTS)
def test_any_event_is_read_back_as_an_equal_value(event):
    assert loads(dumps(event), foreign=True) == event
    assert loads(dumps(event).encode(), foreign=True) == event


@given(EVENTS, st.integers(), st.booleans())
def test_any_json_that_can_be_read_is_written_back_identically(event, seed, foreign):
    line = text(in_another_form(event_to_json(event), Random(seed)))
    try:
        read = loads(line, foreign=foreign)
    except UnreadableLog:
        return
    assert dumps(read) == line


@given(st.dictionaries(TEXT | st.sampled_from(["type", "seq", "time", "data"]), JSONS, max_size=6))
def test_any_object_is_read_losslessly_or_refused_with_a_clear_error(obj):
    try:
        assert text(event_to_json(event_from_json(obj, foreign=True))) == text(obj)
    except UnreadableLog as error:
        assert str(error).startswith("event")  # noqa: PT017 - either outcome is right


@given(st.text() | st.binary())
def test_any_line_is_read_or_refused_with_a_clear_error(line):
    try:
        loads(line, foreign=True)
    except UnreadableLog:
        return


def test_the_usual_form_costs_no_shape():
    body = ToolResult(1, 1, ToolMessage("tool", "c1", (TextBlock("x"),), False, "m1"), meta={"a": None})
    event = loads(dumps(draft(body, sources=(3,)).at(4, 5)))
    assert (event.shape, event.body.shape, event.body.message.shape) == (None, None, None)


def test_unknown_keys_and_their_places_are_remembered():
    line = '{"seq":0,"type":"turn/start","time":1,"data":{"x":[1.0],"turn":1},"y":null}'
    event = loads(line)
    assert event.body == TurnStart(1, shape=Shape(("x", "turn"), {"x": [1.0]}))
    assert event.shape == Shape(("seq", "type", "time", "data", "y"), {"y": None})
    assert dumps(event) == line


def test_a_field_set_after_reading_is_written_after_the_remembered_keys():
    event = loads('{"type":"session/end-seed","seq":0,"time":1,"data":{"x":1}}')
    changed = attrs.evolve(event, body=attrs.evolve(event.body, inherited=True))
    assert event_to_json(changed)["data"] == {"x": 1, "inherited": True}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("agent/inbox/spliced", '{"target":"next-turn","start":0,"inserted":[]}'),
        ("agent/inbox/spliced", '{"target":"next-turn","start":0,"removedCount":null,"inserted":[],"outcome":null}'),
        ("agent/inbox/spliced", '{"target":"next-turn","start":0,"removedCount":1,"inserted":[],"outcome":"dropped"}'),
        ("assistant/attempt", '{"turn":1,"step":1}'),
        ("assistant/attempt", '{"turn":1,"step":1,"content":[]}'),
        ("assistant/attempt", '{"turn":1,"step":1,"error":null,"content":[{"type":"reasoning"}]}'),
    ],
)
def test_defaults_and_nulls_are_written_as_they_were_read(kind, data):
    line = f'{{"type":"{kind}","seq":0,"time":1,"data":{data}}}'
    assert dumps(loads(line)) == line


# --- the form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            draft(UserMessage((TextBlock("hé\u2028"),), {"kind": "user"}, "user", "u1")).at(2, 9),
            (
                '{"type":"user/message","seq":2,"time":9,"data":{"content":[{"type":"text","text":"hé\u2028"}],'
                '"source":{"kind":"user"},"role":"user","id":"u1"},"surfaceOp":"append"}'
            ),
        ),
        (
            draft(
                ToolResult(
                    1,
                    2,
                    ToolMessage("tool", "c1", (), True, "m1"),
                    ErrorInfo("ToolError", "TOOL_ERROR", "why"),
                    {"k": 1},
                ),
                sources=(16,),
            ).at(20, 9),
            (
                '{"type":"tool/result","seq":20,"time":9,"data":{"turn":1,"step":2,"message":{"role":"tool",'
                '"toolCallId":"c1","content":[],"isError":true,"id":"m1"},"error":{"name":"ToolError",'
                '"code":"TOOL_ERROR","reason":"why"},"meta":{"k":1}},"sourceEventSeqs":[16],"surfaceOp":"append"}'
            ),
        ),
        (
            Event(UserMessage((), {}, "user", "u"), None, (1, 2), Replace("replace", 1, 2), seq=3, time=4),
            (
                '{"type":"user/message","seq":3,"time":4,"data":{"content":[],"source":{},"role":"user","id":"u"},'
                '"sourceEventSeqs":[1,2],"surfaceOp":{"op":"replace","startSeq":1,"endSeq":2}}'
            ),
        ),
        (
            draft(LateResult(1, 1, "c1")).at(0, 0),
            (
                '{"type":"tool/late-result","seq":0,"time":0,"data":{"turn":1,"step":1,"callId":"c1","content":[],'
                '"isError":false},"ignorable":true}'
            ),
        ),
        (
            draft(InboxSpliced("next-turn", 0, (), removed_count=1)).at(5, 6),
            (
                '{"type":"agent/inbox/spliced","seq":5,"time":6,"data":{"target":"next-turn","start":0,'
                '"removedCount":1,"inserted":[]}}'
            ),
        ),
    ],
)
def test_keys_stand_in_the_order_of_the_log_format(event, line):
    assert dumps(event) == line
    assert loads(line) == event


def test_every_character_stays_on_the_line_and_can_be_encoded():
    read = loads(r'{"type":"x","seq":0,"time":0,"data":["\ud800","\n","\u0000","é","\ud83d\ude00"]}', foreign=True)
    line = dumps(read)
    assert line == '{"type":"x","seq":0,"time":0,"data":["\\ud800","\\n","\\u0000","é","😀"]}'
    assert loads(line.encode(), foreign=True) == read


# --- foreign logs ------------------------------------------------------------------------------------------------


def test_an_unknown_type_is_kept_verbatim_in_a_foreign_log():
    line = '{"type":"job/settled","seq":0,"time":1,"data":{"b":1,"a":[null]}}'
    event = loads(line, foreign=True)
    assert event.body == ForeignBody("job/settled", {"b": 1, "a": [None]})
    assert dumps(event) == line


def test_an_unknown_type_without_data_is_kept_in_a_foreign_log():
    line = '{"type":"ping","seq":0,"time":1}'
    assert dumps(loads(line, foreign=True)) == line


def test_an_unknown_type_in_our_own_log_needs_to_be_ignorable():
    obj = {"type": "later/kind", "seq": 0, "time": 1, "data": {}}
    with pytest.raises(UnreadableLog, match="unknown event type 'later/kind'"):
        event_from_json(obj)
    with pytest.raises(UnreadableLog, match="later/kind"):
        event_from_json({**obj, "ignorable": False})
    assert event_from_json({**obj, "ignorable": True}).body == ForeignBody("later/kind", {})


def user_message(*content: Any) -> dict[str, Any]:
    data = {"content": list(content), "source": {}, "role": "user", "id": "u"}
    return {"type": "user/message", "seq": 0, "time": 0, "data": data}


def test_a_block_of_an_unknown_type_is_kept_whole():
    image = {"type": "image", "data": {"x": 1}}
    assert event_from_json(user_message(image)).body.content == (OpaqueBlock(image),)


def test_a_malformed_block_is_kept_whole_in_a_foreign_log_and_refused_in_ours():
    obj = user_message({"type": "text", "text": "good"}, {"type": "text", "txt": "bad"})
    kept = event_from_json(obj, foreign=True)
    assert kept.body.content == (TextBlock("good"), OpaqueBlock({"type": "text", "txt": "bad"}))
    assert event_to_json(kept) == obj
    with pytest.raises(UnreadableLog, match=r"event\.data\.content\[1\]\.text: 'text' is missing"):
        event_from_json(obj)


def test_a_malformed_body_of_a_known_type_is_refused_in_a_foreign_log_too():
    with pytest.raises(UnreadableLog, match=r"event\.data\.step: 'step' is missing"):
        event_from_json({"type": "step/start", "seq": 0, "time": 0, "data": {"turn": 1}}, foreign=True)


@pytest.mark.parametrize("data", [{"id": "c1", "approved": True}, {"turn": 1, "step": 1}, None, "later"])
@pytest.mark.parametrize("kind", ["approval/requested", "approval/decided"])
def test_an_approval_in_the_form_of_somebody_else_is_kept_in_a_foreign_log_and_refused_in_ours(kind, data):
    obj = {"type": kind, "seq": 0, "time": 0, "data": data}
    kept = event_from_json(obj, foreign=True)
    assert kept.body == ForeignBody(kind, data)
    assert event_to_json(kept) == obj
    with pytest.raises(UnreadableLog):
        event_from_json(obj)


def test_a_question_and_its_answer_are_written_with_the_keys_of_the_log(logs):
    asked, decided = logs.read("turn step ask:a call:a asks:a=0 denies:a=0")[-2:]
    call = {"turn": 1, "step": 1, "index": 0, "callId": "a"}
    assert event_to_json(asked)["data"] == {**call, "name": "tool", "arguments": {}, "text": "may it?"}
    assert event_to_json(decided)["data"] == {**call, "approved": False, "reason": "no"}


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq": True}, "event.seq: expected a whole number, not a boolean"),
        ({"seq": 1.0}, "event.seq: expected a whole number, not float"),
        ({"seq": "1"}, "event.seq: expected a whole number, not a string"),
        ({"time": None}, "event.time: expected a whole number, not null"),
        ({"ignorable": 1}, "event.ignorable: expected a boolean, not a whole number"),
        ({"sourceEventSeqs": "12"}, "event.sourceEventSeqs: expected an array, not a string"),
        ({"sourceEventSeqs": [1, "2"]}, "event.sourceEventSeqs[1]: expected a whole number, not a string"),
        ({"surfaceOp": "prepend"}, 'event.surfaceOp: expected "append" or an object whose op is "replace"'),
        ({"surfaceOp": {"op": "replace", "startSeq": 1}}, "event.surfaceOp.endSeq: 'endSeq' is missing"),
        ({"data": []}, "event.data: expected an object, not an array"),
        (
            {"data": {"turn": 1, "step": 2, "callId": "", "name": 5, "arguments": ""}},
            "event.data.name: expected a string",
        ),
        (
            {"data": {"turn": 1, "step": 2}},
            "event.data.callId: 'callId' is missing; event.data.name: 'name' is missing",
        ),
        ({"type": 5}, "event: expected type to be a string"),
    ],
)
def test_a_wrong_field_is_refused_with_its_path(change, words):
    data = {"turn": 1, "step": 2, "callId": "c", "name": "n", "arguments": "{}"}
    with pytest.raises(UnreadableLog) as caught:
        event_from_json({"type": "tool/call", "seq": 0, "time": 0, "data": data} | change)
    assert words in str(caught.value)


def test_a_fault_deep_inside_is_named_with_its_path():
    message = {"role": "tool", "toolCallId": "c", "content": "text", "isError": 0, "id": "m"}
    data = {"turn": 1, "step": 1, "message": message}
    with pytest.raises(UnreadableLog) as caught:
        event_from_json({"type": "tool/result", "seq": 0, "time": 0, "data": data})
    assert str(caught.value) == (
        "event.data.message.content: expected an array, not a string; "
        "event.data.message.isError: expected a boolean, not a whole number"
    )


@pytest.mark.parametrize("value", [None, [], "turn/start", 5])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(UnreadableLog, match="event: expected an object"):
        event_from_json(value, foreign=True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "not JSON"),
        ('{"a":1', "not JSON"),
        ('{"a":NaN}', "NaN is not JSON"),
        ('{"a":-Infinity}', "-Infinity is not JSON"),
        ('{"a":1e999}', "out of range"),
        ("1" * 5000, "has 5000 digits"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_strict_json_is_refused(line, words):
    with pytest.raises(UnreadableLog, match=words):
        load_json(line)


def foreign(data: Any) -> Draft:
    return Draft(ForeignBody("x", data), ignorable=True)


def test_a_storable_draft_is_accepted():
    check_draft(foreign({"a": [1, 2.5, None, "é"]}))
    check_draft(draft(ToolCall(1, 1, "", "n", "{}")))


def is_readable(event: Event) -> bool:
    return event.ignorable is True or not isinstance(event.body, ForeignBody)


cyclic: list[Any] = []
cyclic.append(cyclic)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (foreign({"a": [1, math.nan]}), "data.a[1]: nan"),
        (foreign(cyclic), "nested too deeply"),
        (draft(ToolCall(1, 1, "c", "n", "a\0")), "data.arguments: holds NUL"),
        (draft(ToolCall("1", 1, "c", "n", "")), "event.data.turn: expected a whole number"),
        (draft(UserMessage((TextBlock("\ud800"),), {}, "user", "u")), "data.content[0].text: holds a lone surrogate"),
        (draft(UserMessage((TextBlock("x"),), {"k": (1,)}, "user", "u")), "data.source.k: tuple is not JSON"),
        (draft(UserMessage(("x",), {}, "user", "u")), "not a record"),
        (Draft(ForeignBody("turn/start", {"turn": 1})), "event.type: turn/start is a type of the log's own vocabulary"),
        (Draft(ForeignBody("x", {})), "unknown event type 'x'"),
        (Draft(None), "not a record"),
        (Draft(TurnStart(1), surface_op="prepend"), "event.surfaceOp: expected"),
        (Draft(TurnStart(1), shape=Shape(("type", "x"), {"x": {1}})), "event.x: set is not JSON"),
        (Draft(EndSeed(shape=Shape(("x",), {"x": -0.0}))), "data.x: -0.0"),
    ],
)
def test_a_draft_that_could_not_be_read_back_is_refused_with_its_path(bad, words):
    with pytest.raises(InvalidInput) as caught:
        check_draft(bad)
    assert words in str(caught.value)


@given(EVENTS.filter(lambda event: "-0.0" not in dumps(event)).filter(is_readable))
def test_a_draft_whose_parts_are_storable_is_accepted(event):
    check_draft(event)


@pytest.mark.parametrize("data", [math.inf, cyclic, object(), {"a": {1}}])
def test_writing_what_is_not_json_is_refused(data):
    with pytest.raises(InvalidInput):
        dumps(foreign(data).at(0, 0))
