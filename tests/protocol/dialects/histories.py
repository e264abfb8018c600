"""Generators for the tests of the dialects.

`messages` makes any list of neutral messages; `foreign` any list of objects that look like messages of a dialect, most
of them broken somewhere; `valid` lists that a server of the dialect takes as they are. `flat` says what was sent, block
by block.
"""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import strategies as st

from quiesce.protocol.dialects import PROFILES
from quiesce.protocol.events import (
    ModelMessage,
    OpaqueBlock,
    ReasoningBlock,
    Shape,
    TextBlock,
    ToolCallBlock,
    ToolMessage,
    UserMessage,
)

PNG = {"type": "image", "mediaType": "image/png", "data": "AAAA"}
LARGE = "AAAA" * 20
LARGE_URL = f"data:image/png;base64,{LARGE}"
"""Media that are too large for profiles with small limits."""
LABELS = ("a", "b", "c1", "", "x" * 70, "functions.f:0", "a b", "\ud800", "aaaaaaaaa", "bbbbbbbbb")
NAMES = ("read", "", " ", "calendar.read", "calendar/read", "n" * 200, "\ud800", "tool", "unnamed_tool")
ARGUMENTS = ("", " ", "{}", '{"a": 1}', '{"a":"\\ud800"}', '{"a":NaN}', "[1]", "nonsense {", '"text"', '{"a":1e400}')
TEXTS = (
    "hello",
    "",
    " ",
    "\n\n",
    "a\0b",
    "lone \ud800",
    "two\n\nparts",
    "\u2028",
    "longer text with words",
    "long " * 40,
)


def word(values) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


# --- neutral messages --------------------------------------------------------------------------------------------

UNSENDABLE = st.sampled_from(
    [
        *("\ud800", "a\0b", math.nan, math.inf, -math.inf, (1, 2), b"x", object()),
        *({"\ud800": 1}, {"a": 1, "a\0": 2}, {5: "x"}, [["\udfff"]], {"x": [{"y": math.nan}]}),
    ]
)
"""What no request can carry."""


def soiled(*values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """One of these objects, now and then with something in it that no request can carry."""
    extra = (
        st.just({}) | st.just({}) | st.dictionaries(st.sampled_from(["x", "\ud800", "name"]), UNSENDABLE, max_size=2)
    )
    return st.tuples(st.sampled_from(values), extra).map(lambda drawn: {**drawn[0], **drawn[1]})


OPAQUE = soiled(
    *[
        PNG,
        {"type": "image", "mediaType": "image/png", "data": LARGE},
        {"type": "document", "mediaType": "application/pdf", "data": LARGE, "name": "large.pdf"},
        {"type": "audio", "mediaType": "audio/wav", "data": LARGE},
        {"type": "image", "url": LARGE_URL},
        {**PNG, "name": "a.png"},
        {"type": "document", "mediaType": "application/pdf", "data": "AAAA", "name": "n" * 600},
        {"type": "document", "mediaType": "application/pdf", "data": "AAAA", "name": ""},
        {"type": "image", "url": "https://x/\ud800.png"},
        {"type": "document", "mediaType": "application/pdf", "data": "AAAA", "name": "a\ud800\0.pdf"},
        {"type": "image", "mediaType": "image/\ud800", "data": "AAAA"},
        {"type": "image", "url": "https://x/y.png"},
        {"type": "image", "mediaType": "image/tiff", "data": "AAAA"},
        {"type": "image", "mimeType": "image/png", "data": "not base64!"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
        {"type": "document", "mediaType": "application/pdf", "data": "AAAA", "name": "a.pdf"},
        {"type": "document", "url": "https://x/y.pdf"},
        {"type": "audio", "mediaType": "audio/wav", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "uri": "file:///a", "mediaType": "image/png", "data": "AAAA"},
        {"type": "resource", "uri": "file:///a", "text": " "},
        {"type": "hologram", "x": 1},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "tool_result", "tool_use_id": "a"},
        {"type": "message", "role": "user"},
        {"type": "function_call"},
        {"type": ""},
        {},
    ]
).map(OpaqueBlock)
SEALS = soiled(
    *[
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "thinking", "thinking": "", "signature": "s2"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zz"},
        {"type": "thinking", "thinking": "no seal"},
        {"type": "reasoning", "id": "r" * 70, "summary": []},
        {"other": 1},
    ]
)
ORIGINALS = st.tuples(
    st.sampled_from([profile.provider for profile in PROFILES.values()]),
    soiled({"type": "text", "text": None, "cache_control": {"type": "ephemeral"}}),
).map(lambda drawn: Shape(("type", "text", "wire"), {"wire": {"provider": drawn[0], "object": drawn[1]}}))
TEXT = st.builds(TextBlock, word(TEXTS), shape=st.none() | st.none() | ORIGINALS)
REASONING = st.builds(ReasoningBlock, word(TEXTS), replay=st.none() | SEALS)
EXTRAS = st.none() | soiled({"extra_content": {"google": {"thought_signature": "t"}}}, {"id": "stolen"})
CALL = st.builds(ToolCallBlock, word(LABELS), word(NAMES), word(ARGUMENTS), replay=EXTRAS)
SOURCES = st.sampled_from(
    [
        {"kind": "model"},
        {},
        *[{"kind": "model", "provider": profile.provider} for profile in PROFILES.values()],
        {"kind": "model", "provider": "anthropic", "model": "other"},
    ]
)


def blocks(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.one_of(*kinds), max_size=5).map(tuple)


USER = st.builds(
    UserMessage,
    blocks(TEXT, OPAQUE, TEXT, CALL, REASONING),
    st.just({"kind": "user"}),
    st.sampled_from(["user", "system", "developer", "critic"]),
    st.just("u"),
)
ANSWER = blocks(TEXT, REASONING, CALL, CALL, OPAQUE)
MODEL = st.builds(ModelMessage, st.just("assistant"), ANSWER, SOURCES, st.just("m"))
RESULT = st.builds(
    ToolMessage, st.just("tool"), word(LABELS), blocks(TEXT, OPAQUE), is_error=st.booleans(), id=st.just("t")
)
messages = st.lists(USER | MODEL | RESULT | RESULT, max_size=12).map(tuple)
"""Any list of neutral messages."""


# --- foreign lists -----------------------------------------------------------------------------------------------

JUNK = st.sampled_from([None, 5, True, "", " ", "text", [], {}, [5], [None], {"type": "text"}, ["text"], 1.5, "\ud800"])


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these keys, in any order, some of them missing, some of them junk, some of them strange."""
    entries = {key: st.one_of(value, value, value, value, JUNK) for key, value in fields.items()}
    strange = {"cache_control": st.just({"type": "ephemeral"}), "x": JUNK, "index": st.just(0)}
    some = st.fixed_dictionaries(entries, optional=strange) | st.fixed_dictionaries({}, optional=entries | strange)
    return st.tuples(some, st.randoms(use_true_random=False)).map(_shuffled)


def _shuffled(drawn: tuple[dict[str, Any], Any]) -> dict[str, Any]:
    items = list(drawn[0].items())
    if drawn[1].random() < 0.3:
        drawn[1].shuffle(items)
    return dict(items)


def listed(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return word(TEXTS) | st.lists(st.one_of(*parts, JUNK), max_size=4) | st.none()


def kinds(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


_CHAT_PARTS = (
    objects(type=kinds("text", "refusal", "text"), text=word(TEXTS), refusal=word(TEXTS)),
    objects(
        type=kinds("image_url"),
        image_url=objects(url=kinds("https://x/y", "data:image/png;base64,AAAA", LARGE_URL, "x")),
    ),
    objects(type=kinds("file", "input_audio", "hologram"), file=JUNK, input_audio=JUNK),
)
_CHAT = objects(
    role=kinds("user", "assistant", "assistant", "tool", "tool", "system", "developer", "function", "critic"),
    content=listed(*_CHAT_PARTS),
    tool_calls=st.lists(
        objects(
            id=word(LABELS),
            type=kinds("function", "custom"),
            function=objects(name=word(NAMES), arguments=word(ARGUMENTS)),
        ),
        max_size=3,
    ),
    tool_call_id=word(LABELS),
    reasoning_content=word(TEXTS),
    refusal=st.none() | word(TEXTS),
    function_call=st.none() | st.none() | objects(name=word(NAMES), arguments=word(ARGUMENTS)),
)
_ANTHROPIC_IMAGE = objects(
    type=kinds("image", "document"),
    source=objects(
        type=kinds("base64", "url"), media_type=kinds("image/png"), data=kinds("AAAA", "!", LARGE), url=JUNK
    ),
)
_ANTHROPIC_TEXT = objects(type=kinds("text"), text=word(TEXTS))
_ANTHROPIC_BLOCKS = (
    _ANTHROPIC_TEXT,
    _ANTHROPIC_IMAGE,
    objects(type=kinds("tool_use"), id=word(LABELS), name=word(NAMES), input=st.just({"a": 1})),
    objects(
        type=kinds("tool_result"),
        tool_use_id=word(LABELS),
        content=listed(_ANTHROPIC_TEXT, _ANTHROPIC_IMAGE, objects(type=kinds("hologram", "search_result"))),
        is_error=st.booleans(),
    ),
    objects(type=kinds("thinking"), thinking=word(TEXTS), signature=kinds("s1", "")),
    objects(type=kinds("redacted_thinking"), data=kinds("d")),
    objects(type=kinds("server_tool_use"), id=kinds("srvtoolu_1", "bad"), name=kinds("web_search"), input=st.just({})),
    objects(type=kinds("web_search_tool_result"), tool_use_id=kinds("srvtoolu_1", "bad"), content=JUNK),
    objects(type=kinds("hologram", "container_upload")),
    objects(type=kinds("search_result"), source=word(TEXTS), title=word(TEXTS), content=listed(_ANTHROPIC_TEXT)),
)
_ANTHROPIC = objects(role=kinds("user", "user", "assistant", "assistant", "critic"), content=listed(*_ANTHROPIC_BLOCKS))
_RESPONSES_PARTS = (
    objects(type=kinds("input_text", "output_text"), text=word(TEXTS), annotations=st.just([])),
    objects(
        type=kinds("input_image"),
        image_url=kinds("https://x/y", "data:image/png;base64,AAAA", LARGE_URL),
        detail=kinds("low"),
    ),
    objects(type=kinds("input_file", "input_audio", "refusal", "hologram"), refusal=word(TEXTS)),
)
_RESPONSES = st.one_of(
    objects(
        role=kinds("user", "assistant", "system", "developer", "critic"),
        type=kinds("message"),
        content=listed(*_RESPONSES_PARTS),
        id=kinds("msg_1", "m" * 70),
    ),
    objects(
        type=kinds("function_call"),
        call_id=word(LABELS),
        name=word(NAMES),
        arguments=word(ARGUMENTS),
        id=kinds("fc_1", "f" * 70),
    ),
    objects(
        type=kinds("function_call_output"),
        call_id=word(LABELS),
        output=listed(*_RESPONSES_PARTS),
        id=kinds("fo_1", "f" * 70),
    ),
    objects(type=kinds("reasoning"), id=kinds("rs_1", "r" * 70), summary=st.just([]), encrypted_content=kinds("e")),
    objects(
        type=kinds("custom_tool_call", "custom_tool_call_output", "computer_call", "computer_call_output"),
        call_id=word(LABELS),
        name=word(NAMES),
        input=word(TEXTS),
        id=kinds("ct_1", "c" * 70),
        output=listed(*_RESPONSES_PARTS),
    ),
    objects(type=kinds("web_search_call", "item_reference", "mcp_call", "local_shell_call_output"), id=kinds("w")),
)
foreign = {
    "chat": st.lists(_CHAT, max_size=8),
    "anthropic": st.lists(_ANTHROPIC, max_size=8),
    "responses": st.lists(_RESPONSES, max_size=10),
}
"""Dialect -> lists of objects that look like its messages."""


# --- valid lists -------------------------------------------------------------------------------------------------

_SAID = kinds("hello", "two\n\nparts", "x ", "{}")
_EXTRA = st.sampled_from([{}, {}, {"name": "bob"}, {"x": [1, {"y": None}]}])


@st.composite
def _reordered(draw: Any, obj: st.SearchStrategy[dict[str, Any]], extra: Any = _EXTRA) -> dict[str, Any]:
    items = [*draw(obj).items(), *draw(extra).items()]
    return dict(draw(st.permutations(items)) if draw(st.booleans()) else items)


@st.composite
def _ids(draw: Any, seen: list[str], alphabet: str = "abc_-7") -> str:
    label = f"{draw(st.text(alphabet, min_size=1, max_size=6))}{len(seen)}"
    seen.append(label)
    return label


def _one(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    made = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in fields.items()}
    return st.fixed_dictionaries(made)


_CACHE = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])
_OBJECT_TEXT = kinds("{}", '{"a":1}', '{"b":{"c":[1.5,"é"]}}')


@st.composite
def valid_chat(draw: Any) -> list[dict[str, Any]]:
    """A list that a Chat server takes: calls answered at once, in call order."""
    text = _reordered(_one(type="text", text=_SAID), _CACHE)
    image = _one(type="image_url", image_url=_one(url=kinds("https://x/y", "data:image/png;base64,AAAA")))
    detailed = _one(type="image_url", image_url=_one(url="https://x/y", detail="low"))
    file = _one(type="file", file=_one(file_id="f1"))
    audio = _one(type="input_audio", input_audio=_one(data="AAAA", format="wav"))
    refusal = _one(type="refusal", refusal="no")
    parts = st.lists(st.one_of(text, text, image, detailed, file, audio), min_size=1, max_size=3)
    texts = st.lists(text, min_size=1, max_size=2)
    spoken = st.lists(text | refusal, min_size=1, max_size=2)
    out: list[dict[str, Any]] = []
    seen: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(kinds("user", "system", "developer", "assistant", "calls", "refusal", "audio"))
        if kind == "user":
            out.append(draw(_reordered(_one(role="user", content=_SAID | parts | st.just("")))))
        elif kind in ("system", "developer"):
            out.append(draw(_reordered(_one(role=kind, content=_SAID | texts))))
        elif kind == "assistant":
            out.append(draw(_reordered(_one(role="assistant", content=_SAID | spoken | st.just("")))))
        elif kind == "refusal":
            out.append(draw(_reordered(_one(role="assistant", content=None, refusal="no"))))
        elif kind == "audio":
            out.append(draw(_reordered(_one(role="assistant", content=None, audio=_one(id="a1")))))
        else:
            ids = [draw(_ids(seen)) for _ in range(draw(st.integers(1, 3)))]
            calls = [draw(_reordered(_chat_call(label), st.sampled_from([{}, {"index": 0}]))) for label in ids]
            content = draw(st.sampled_from([{}, {"content": None}, {"content": "so"}, {"content": ""}]))
            thought = draw(st.sampled_from([{}, {"reasoning_content": "hm"}]))
            out.append(draw(_reordered(st.just({"role": "assistant", **content, **thought, "tool_calls": calls}))))
            out += [
                draw(_reordered(_one(role="tool", tool_call_id=label, content=_SAID | texts | st.just(""))))
                for label in ids
            ]
    return out


def _chat_call(label: str) -> st.SearchStrategy[dict[str, Any]]:
    function = _reordered(_one(name="read", arguments=_OBJECT_TEXT | st.just("not json")), st.just({}))
    return st.one_of(
        _one(id=label, type="function", function=function),
        _one(id=label, type="custom", custom=_one(name="read", input="free text")),
    )


@st.composite
def valid_anthropic(draw: Any) -> list[dict[str, Any]]:
    """A list that an Anthropic server takes: roles alternate, results first and in call order."""
    text = _reordered(_one(type="text", text=_SAID), _CACHE)
    image = _one(type="image", source=_one(type="base64", media_type="image/png", data="AAAA"))
    linked = _reordered(_one(type="image", source=_one(type="url", url="https://x/y")), _CACHE)
    pdf = _one(type="document", source=_one(type="file", file_id="f"), title="t", citations=_one(enabled=True))
    search = _one(type="search_result", source="s", title="t", content=st.just([]))
    inner = st.lists(st.one_of(text, text, image, linked, pdf, search), min_size=1, max_size=3)
    out: list[dict[str, Any]] = []
    seen: list[str] = []
    due: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        results = [draw(_anthropic_result(label, inner)) for label in due]
        said = draw(st.lists(st.one_of(text, text, image, linked, pdf), min_size=0 if results else 1, max_size=2))
        content = draw(_SAID) if not results and draw(st.booleans()) else [*results, *said]
        out.append(draw(_reordered(_one(role="user", content=st.just(content)), st.just({}))))
        due = [draw(_ids(seen)) for _ in range(draw(st.integers(0, 2)))]
        answer = {"role": "assistant", "content": draw(_anthropic_answer(text, due))}
        out.append(draw(_reordered(st.just(answer), _EXTRA)))
    if due:
        out.append({"role": "user", "content": [draw(_anthropic_result(label, inner)) for label in due]})
    return out


@st.composite
def _anthropic_answer(draw: Any, text: Any, due: list[str]) -> Any:
    if not due and draw(st.booleans()):
        return draw(_SAID)
    thinking = _one(type="thinking", thinking=kinds("hm", ""), signature="s") | _one(type="redacted_thinking", data="d")
    server = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ]
    spoken = [draw(st.lists(thinking, max_size=1)), draw(st.sampled_from([[], server])), [draw(text)]]
    calls = [[*draw(st.lists(thinking, max_size=1)), draw(_reordered(_anthropic_call(label), _CACHE))] for label in due]
    return [block for group in (*spoken, *calls) for block in group]


def _anthropic_call(label: str) -> st.SearchStrategy[dict[str, Any]]:
    return _one(type="tool_use", id=label, name="read", input=_OBJECT_TEXT.map(json.loads))


@st.composite
def _anthropic_result(draw: Any, label: str, inner: Any) -> dict[str, Any]:
    failed = draw(st.sampled_from([{}, {"is_error": False}, {"is_error": True}]))
    content = {"content": draw(_SAID | inner)}
    if not failed.get("is_error"):
        content = draw(st.sampled_from([content, content, {}, {"content": ""}, {"content": []}]))
    elif isinstance(content["content"], list):
        content["content"].append({"type": "text", "text": "failed"})
    return draw(_reordered(st.just({"type": "tool_result", "tool_use_id": label, **content, **failed}), _CACHE))


@st.composite
def valid_responses(draw: Any) -> list[dict[str, Any]]:
    """A list that a Responses server takes: outputs behind their calls, in call order."""
    text = _reordered(_one(type="input_text", text=_SAID), st.just({}))
    image = _one(type="input_image", image_url=kinds("https://x/y", "data:image/png;base64,AAAA"), detail="auto")
    low = _one(type="input_image", detail="low", file_id="f")
    file = _one(type="input_file", file_id="f")
    parts = st.lists(st.one_of(text, text, image, low, file), min_size=1, max_size=3)
    typed = st.sampled_from([{}, {"type": "message"}])
    out: list[dict[str, Any]] = []
    seen: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(kinds("user", "developer", "assistant", "own", "calls", "search", "special"))
        if kind in ("user", "developer"):
            out.append(draw(_reordered(_one(role=kind, content=_SAID | parts), typed)))
        elif kind == "assistant":
            out.append(draw(_reordered(_one(role="assistant", content=_SAID), typed)))
        elif kind == "own":
            spoken = _one(type="output_text", text=_SAID, annotations=st.just([])) | _one(type="refusal", refusal="no")
            content = st.lists(spoken, min_size=1, max_size=2)
            out.append(draw(_reasoning()))
            out.append(
                draw(_reordered(_one(type="message", id="m1", role="assistant", content=content, status="completed")))
            )
        elif kind == "search":
            out.append(draw(_reordered(_one(type="web_search_call", id="ws", status="completed"))))
        elif kind == "special":
            label = draw(_ids(seen))
            out.append(draw(_reordered(_one(type="custom_tool_call", call_id=label, name="read", input="x"))))
            out.append(draw(_reordered(_one(type="custom_tool_call_output", call_id=label, output=_SAID))))
        else:
            ids = [draw(_ids(seen)) for _ in range(draw(st.integers(1, 3)))]
            for label in ids:
                out += draw(st.lists(_reasoning(), max_size=1))
                call = _one(type="function_call", call_id=label, name="read", arguments=_OBJECT_TEXT)
                out.append(draw(_reordered(call, st.sampled_from([{}, {"id": f"fc_{label}", "status": "completed"}]))))
            for label in ids:
                output = _one(type="function_call_output", call_id=label, output=_SAID | parts | st.just(""))
                out.append(draw(_reordered(output, st.sampled_from([{}, {"status": "completed"}]))))
    return out


def _reasoning() -> st.SearchStrategy[dict[str, Any]]:
    summary = st.just([{"type": "summary_text", "text": "hm"}])
    return _reordered(_one(type="reasoning", id="rs", summary=summary, encrypted_content="e"), st.just({}))


valid = {"chat": valid_chat(), "anthropic": valid_anthropic(), "responses": valid_responses()}
"""Dialect -> lists that its servers take."""


# --- what was sent -----------------------------------------------------------------------------------------------


def flat(sent: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What was sent, block by block: the same for one message with two blocks and for two messages of one role."""
    return [line for item in sent for line in _lines(item)]


def _lines(item: dict[str, Any]) -> list[tuple[Any, ...]]:
    role = item.get("role", item.get("type"))
    rest = {key: value for key, value in item.items() if key not in ("role", "content", "tool_calls")}
    content = item.get("content")
    texts = content.split("\n\n") if isinstance(content, str) else content or []
    blocks = [text if isinstance(text, str) else text.get("text", text) for text in texts]
    aside = [json.dumps(rest)] if rest and (content is None or role == "tool") else []
    return [(role, json.dumps(block)) for block in (*blocks, *aside, *item.get("tool_calls", []))]
