"""Events to JSON and back, with nothing lost.

Canonical form: the keys stand in the order of the field tables, a field that is None is left out, every other field is
written. An object that was read in another form (unknown keys, another order, an explicit null, a default left out)
carries a `Shape` that says how, and is written back that way; in the canonical form `shape` is None and costs nothing.
What Python's `json` itself does not keep, nobody keeps: repeated keys of one object, and the spelling of a number.

Primitives are strict: `1` is no bool, `true` is no int, `"1"` is neither. Reading has a fast pass that stops at the
first fault, and only then a second, detailed one that names the path of each fault.

With `foreign`, a log written by somebody else is read: an unknown event type is kept as a `ForeignBody`, and so is one
that quiesce has added to the vocabulary, where it has another form there; a block of a known type that lacks what the
type needs is kept as an `OpaqueBlock`. Without it, both are errors, except an unknown
event that is marked `ignorable`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, get_args, get_origin

from attrs import NOTHING, Attribute, fields, frozen
from cattrs import BaseValidationError, Converter, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from quiesce.protocol.errors import InvalidInput, UnreadableLog
from quiesce.protocol.events import (
    BODIES,
    ApprovalDecided,
    ApprovalRequested,
    Block,
    Draft,
    Event,
    ForeignBody,
    JsonObject,
    OpaqueBlock,
    ReasoningBlock,
    Record,
    Replace,
    Shape,
    SurfaceOp,
    TextBlock,
    ToolCallBlock,
)
from quiesce.protocol.storable import MAX_DEPTH, check_json

__all__ = ["check_draft", "dumps", "event_from_json", "event_to_json", "load_json", "loads"]

T = TypeVar("T")
Json: TypeAlias = Any
"""JSON as Python reads it, not looked at yet."""
Wanted: TypeAlias = Any
"""The type that cattrs names to every reader; ours know it already."""
Value: TypeAlias = Any
"""What the log's vocabulary makes of a piece of JSON."""
Read: TypeAlias = Callable[[Json, Wanted], Value]
Write: TypeAlias = Callable[[Value], Json]

_BLOCKS: Final[dict[type[Record], str]] = {cls: cls.TYPE for cls in (TextBlock, ReasoningBlock, ToolCallBlock)}
_ADDED: Final = (ApprovalRequested, ApprovalDecided)
"""Bodies whose types others may use for something of their own."""
_FAULTS: Final = (BaseValidationError, KeyError, TypeError, ValueError)
_KINDS: Final = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a whole number"}
_ENVELOPE_DEPTH: Final = 16
"""Levels that the vocabulary itself may add above a value that was storable on its own."""


# --- public ------------------------------------------------------------------------------------------------------


def event_to_json(event: Event) -> JsonObject:
    """The JSON object of `event`. Free-form parts are shared with the event, not copied."""
    out: JsonObject = {"type": event.type, "seq": event.seq, "time": event.time, "data": _body_to_json(event.body)}
    if event.ignorable is not None:
        out["ignorable"] = event.ignorable
    if event.source_event_seqs is not None:
        out["sourceEventSeqs"] = list(event.source_event_seqs)
    if event.surface_op is not None:
        out["surfaceOp"] = _write_surface_op(event.surface_op)
    return out if event.shape is None else _EVENT.restore(out, event.shape)


def event_from_json(obj: object, *, foreign: bool = False) -> Event:
    """The event that `obj` stands for. Raises `UnreadableLog`, naming the path of each fault.

    Free-form parts are shared with `obj`, which must not be changed afterwards. `foreign`: see the module.
    """
    try:
        return _reader(foreign, False)(obj)
    except _FAULTS as error:
        raise UnreadableLog(_explain(obj, foreign=foreign)) from error


def dumps(event: Event) -> str:
    """`event` as one line of JSON, without its line feed.

    The text can always be encoded as UTF-8: a lone surrogate (which only a log from elsewhere can hold) is escaped.
    Raises `InvalidInput` if the event holds what is not JSON.
    """
    obj = event_to_json(event)
    try:
        text = _ENCODER.encode(obj)
    except (TypeError, ValueError, RecursionError) as error:
        check_json(obj, "event")
        raise InvalidInput(f"the event cannot be written as JSON: {error}") from error
    return text if text.isascii() else _encodable(text)


def loads(text: str | bytes, *, foreign: bool = False) -> Event:
    """The event in one line of JSON. Raises `UnreadableLog` for anything else."""
    return event_from_json(load_json(text), foreign=foreign)


def load_json(text: str | bytes) -> object:
    """Strict JSON: UTF-8 only, no byte order mark, no NaN or infinity. Raises `UnreadableLog`."""
    try:
        value: object = _decoded(text if isinstance(text, str) else str(text, "utf-8"))
    except UnicodeDecodeError as error:
        raise UnreadableLog(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise UnreadableLog(f"not JSON: {error}") from error
    except ValueError as error:  # a number, of which Python also says how a program may allow more digits
        raise UnreadableLog(str(error).partition("; use ")[0]) from error
    except RecursionError as error:
        raise UnreadableLog("JSON that is nested too deeply") from error
    return value


def _decoded(text: str) -> object:
    if text[:1] == "{" and text[-1:] == "}":  # the search for space around it takes as long as a short object itself
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
    return _DECODER.decode(text)


def check_draft(draft: Draft) -> None:
    """Refuse a draft that could not be read back as it is: `InvalidInput` names the path.

    It says nothing about the rules of the log (what may follow what).
    """
    try:
        obj = event_to_json(draft.at(0, 0))
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidInput(f"event: not a record of the log's vocabulary ({error!r})") from error
    check_json(obj["data"], "data", max_depth=MAX_DEPTH + _ENVELOPE_DEPTH)
    if draft.shape is not None:
        check_json(draft.shape.extra, "event")
    _check_return(draft, obj)


def _check_return(draft: Draft, obj: JsonObject) -> None:
    try:
        back = event_from_json(obj)
    except UnreadableLog as error:
        raise InvalidInput(str(error)) from error
    if isinstance(draft.body, ForeignBody) and not isinstance(back.body, ForeignBody):
        raise InvalidInput(f"event.type: {back.type} is a type of the log's own vocabulary")


# --- the form of one record class --------------------------------------------------------------------------------


@frozen
class _Face:
    """How the records of one class look as JSON objects."""

    order: tuple[str, ...]
    """All keys, in canonical order."""
    nullable: tuple[str, ...]
    """The keys that are left out while their value is None."""
    defaults: JsonObject
    """Keys that a reader can do without though we write them, and what they mean then."""
    usual: dict[tuple[str, ...], tuple[str, ...]]
    """Each canonical sequence of keys -> those among them that must not be null."""

    @classmethod
    def of(cls, order: tuple[str, ...], nullable: tuple[str, ...], defaults: JsonObject) -> _Face:
        """The form with these keys."""
        usual = {
            tuple(key for key in order if key not in nullable or key in present): present
            for size in range(len(nullable) + 1)
            for present in combinations(nullable, size)
        }
        return cls(order, nullable, defaults, usual)

    def shape_of(self, obj: JsonObject) -> Shape | None:
        """How `obj` differs from the canonical form, or None."""
        nullable = self.usual.get(tuple(obj))
        if nullable is not None and not any(obj[key] is None for key in nullable):
            return None
        return Shape(tuple(obj), {key: value for key, value in obj.items() if key not in self.order})

    def restore(self, canonical: JsonObject, shape: Shape) -> JsonObject:
        """`canonical` in the form that `shape` remembers. Fields that got a value since then come last."""
        out = {key: canonical[key] if key in canonical else shape.extra.get(key) for key in shape.keys}
        for key, value in canonical.items():
            if key not in out and (key not in self.defaults or self.defaults[key] != value):
                out[key] = value
        return out

    def in_order(self, obj: JsonObject) -> JsonObject:
        """`obj`, whose keys are all ours, in canonical order."""
        return {key: obj[key] for key in self.order if key in obj}


def _face(cls: type[Record]) -> _Face:
    values = {_key(item.name): item.default for item in _attributes(cls)}
    order = (*(["type"] if cls in _BLOCKS else []), *values)
    nullable = tuple(key for key, default in values.items() if default is None)
    defaults = {key: default for key, default in values.items() if default not in (NOTHING, None)}
    return _Face.of(order, nullable, {key: [] if default == () else default for key, default in defaults.items()})


def _attributes(cls: type[Record]) -> list[Attribute[Any]]:
    return [item for item in fields(cls) if item.name != "shape"]


def _key(name: str) -> str:
    """The JSON key of a field: camelCase, and `data` for the body of an event."""
    return "data" if name == "body" else re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


_EVENT: Final = _Face.of(
    ("type", "seq", "time", "data", "ignorable", "sourceEventSeqs", "surfaceOp"),
    ("ignorable", "sourceEventSeqs", "surfaceOp"),
    {"data": None},  # a foreign event may come without data
)


# --- the types that cattrs asks about ---------------------------------------------------------------------------


def _is_any(kind: Wanted) -> bool:
    return kind is Any


def _is_object(kind: Wanted) -> bool:
    origin: object = get_origin(kind)
    return origin is dict


def _is_array(kind: Wanted) -> bool:
    origin: object = get_origin(kind)
    return origin is tuple


def _is_record(kind: Wanted) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _is_block(kind: Wanted) -> bool:
    return bool(kind == Block)


def _is_surface_op(kind: Wanted) -> bool:
    return bool(kind == SurfaceOp)


# --- reading -----------------------------------------------------------------------------------------------------


@cache
def _reader(foreign: bool, detailed: bool) -> Callable[[object], Event]:  # noqa: FBT001 - cached by position
    """The function that reads events, built once for each way of reading."""
    converter = _converter(foreign=foreign, detailed=detailed)
    known = {kind: _event_reader(converter, converter.get_structure_hook(cls)) for kind, cls in BODIES.items()}
    unknown = _event_reader(converter, None)
    if foreign:
        known |= {cls.TYPE: _either(known[cls.TYPE], unknown) for cls in _ADDED}

    def read(obj: object) -> Event:
        if type(obj) is not dict:
            _refuse("an object", obj)
        kind = obj["type"]
        if type(kind) is not str:
            raise TypeError(f"expected type to be a string, not {_kind(kind)}")
        reader = known.get(kind)
        if reader is None:
            if not foreign and obj.get("ignorable") is not True:
                raise UnreadableLog(f"unknown event type {kind!r}, and it is not marked as one that may be skipped")
            reader = unknown
        event: Event = reader(obj, None)
        return event

    return read


def _either(ours: Read, others: Read) -> Read:
    def read(obj: Json, _: Wanted) -> Value:
        try:
            return ours(obj, None)
        except _FAULTS:
            return others(obj, None)

    return read


def _event_reader(converter: Converter, body: Read | None) -> Read:
    """Reads the envelope around one type of body; around any, kept as it is, if `body` is None."""
    read = make_dict_structure_fn(
        Event,
        converter,
        body=override(rename="data", struct_hook=body or _as_is),
        ignorable=override(),
        source_event_seqs=override(rename="sourceEventSeqs"),
        surface_op=override(rename="surfaceOp", struct_hook=converter.get_structure_hook(SurfaceOp)),
        shape=override(struct_hook=_as_is),
    )
    if body is None:
        return _remembering(_EVENT, lambda obj, _: read({**obj, "data": ForeignBody(obj["type"], obj.get("data"))}))
    return _remembering(_EVENT, read)


def _converter(*, foreign: bool, detailed: bool) -> Converter:
    converter = Converter(detailed_validation=detailed)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook_func(_is_any, _as_is)
    converter.register_structure_hook_func(_is_object, _exactly(dict))
    made = converter.register_structure_hook_factory
    made(_is_array, lambda kind: _array_reader(converter, get_args(kind)[0]))
    made(_is_record, lambda kind: _record_reader(converter, kind))
    made(_is_block, lambda _: _block_reader(converter, foreign=foreign))
    made(_is_surface_op, lambda _: _surface_reader(converter))
    return converter


def _record_reader(converter: Converter, cls: type[Record]) -> Read:
    hooks: dict[str, Any] = {item.name: override(rename=_key(item.name)) for item in _attributes(cls)}
    if "meta" in hooks:
        hooks["meta"] = override(struct_hook=_as_is)  # logs from elsewhere may hold any JSON here
    return _remembering(_face(cls), make_dict_structure_fn(cls, converter, shape=override(struct_hook=_as_is), **hooks))


def _remembering(face: _Face, read: Read) -> Read:
    """`read` for objects only, and what is not canonical about them goes to the field `shape`."""
    usual = face.usual

    def read_record(obj: Json, _: Wanted) -> Value:
        if type(obj) is not dict:
            _refuse("an object", obj)
        # The first look-up decides nearly always; an object's own key named "shape" is unknown and so never gets by it.
        if usual.get(tuple(obj)) != () and (shape := face.shape_of(obj)) is not None:
            return read({**obj, "shape": shape}, None)
        return read(obj, None)

    return read_record


def _block_reader(converter: Converter, *, foreign: bool) -> Read:
    readers = {kind: converter.get_structure_hook(cls) for cls, kind in _BLOCKS.items()}

    def read_block(obj: Json, _: Wanted) -> Block:
        if type(obj) is not dict:
            _refuse("an object", obj)
        kind = obj.get("type")
        reader = readers.get(kind) if type(kind) is str else None
        if reader is None:
            if not foreign and type(kind) is not str:
                raise TypeError(f"expected a block whose type is a string, not {_kind(kind)}")
            return OpaqueBlock(obj)
        try:
            block: Block = reader(obj, None)
        except _FAULTS:
            if not foreign:
                raise
            return OpaqueBlock(obj)
        return block

    return read_block


def _surface_reader(converter: Converter) -> Read:
    read = converter.get_structure_hook(Replace)

    def read_surface_op(obj: Json, _: Wanted) -> SurfaceOp | None:
        if obj == "append":
            return "append"
        if obj is None:
            return None
        if type(obj) is not dict or obj.get("op") != "replace":
            raise ValueError('expected "append" or an object whose op is "replace"')
        replace: Replace = read(obj, None)
        return replace

    return read_surface_op


def _array_reader(converter: Converter, item: Wanted) -> Read:
    read = converter.get_structure_hook(list[item])

    def read_array(obj: Json, _: Wanted) -> tuple[Any, ...]:
        if type(obj) is not list:
            _refuse("an array", obj)
        return tuple(read(obj, list[item]))

    return read_array


def _exactly(kind: type[T]) -> Callable[[Any, Any], T]:
    """Reads values of this very type: cattrs would coerce, and `bool` is an `int` to Python."""
    wanted = _KINDS[kind]

    def read_exactly(obj: Json, _: Wanted) -> T:
        if type(obj) is not kind:
            _refuse(wanted, obj)
        return obj

    return read_exactly


def _as_is(obj: Json, _: Wanted) -> Value:
    return obj


def _refuse(wanted: str, obj: object) -> NoReturn:
    raise TypeError(f"expected {wanted}, not {_kind(obj)}")


def _kind(obj: object) -> str:
    return "null" if obj is None else _KINDS.get(type(obj), type(obj).__name__)


def _explain(obj: object, *, foreign: bool) -> str:
    """What is wrong with `obj`, with the path of each fault."""
    try:
        _reader(foreign, True)(obj)
    except _FAULTS as error:
        return "; ".join(_placed(fault) for fault in transform_error(error, "event", _words))
    return "not an event"


def _words(error: BaseException, _: type | None) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _placed(fault: str) -> str:
    words, _, path = fault.rpartition(" @ ")
    return f"{_key(path.replace('event.body', 'event.data', 1))}: {words}"


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is out of range")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


# --- writing -----------------------------------------------------------------------------------------------------

_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
)  # a cycle ends in a RecursionError, which `dumps` explains
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text


def _body_to_json(body: Record) -> Json:
    return body.data if isinstance(body, ForeignBody) else _WRITERS[type(body)](body)


def _write_surface_op(op: SurfaceOp) -> Json:
    return op if isinstance(op, str) else _WRITE_REPLACE(op)


def _writing_converter() -> Converter:
    converter = Converter()
    converter.register_unstructure_hook_func(_is_any, _same)
    converter.register_unstructure_hook_func(_is_object, _same)
    made = converter.register_unstructure_hook_factory
    made(_is_array, lambda kind: _array_writer(converter, get_args(kind)[0]))
    made(_is_record, lambda kind: _record_writer(converter, kind))
    made(_is_block, lambda _: _block_writer(converter))
    return converter


def _record_writer(converter: Converter, cls: type[Record]) -> Write:
    hooks: dict[str, Any] = {
        item.name: override(rename=_key(item.name), omit_if_default=item.default is None) for item in _attributes(cls)
    }
    write: Write = make_dict_unstructure_fn(cls, converter, shape=override(omit=True), **hooks)
    face = _face(cls)
    if cls in _BLOCKS:
        write = _with_type(_BLOCKS[cls], write)
    if face.order[-len(face.nullable) or len(face.order) :] != face.nullable:
        write = _then(face.in_order, write)  # cattrs writes fields that may be left out after all others

    def write_record(value: Value) -> JsonObject:
        out = write(value)
        return out if value.shape is None else face.restore(out, value.shape)

    return write_record


def _with_type(kind: str, write: Write) -> Write:
    return lambda value: {"type": kind, **write(value)}


def _then(second: Write, first: Write) -> Write:
    return lambda value: second(first(value))


def _array_writer(converter: Converter, item: Wanted) -> Write:
    write = converter.get_unstructure_hook(item)
    return lambda values: [write(value) for value in values]


def _block_writer(converter: Converter) -> Write:
    writers = {cls: converter.get_unstructure_hook(cls) for cls in _BLOCKS}

    def write_block(block: Block) -> JsonObject:
        return block.data if isinstance(block, OpaqueBlock) else writers[type(block)](block)

    return write_block


def _same(value: T) -> T:
    return value


_WRITING: Final = _writing_converter()
_WRITERS: Final[dict[type[Record], Write]] = {cls: _WRITING.get_unstructure_hook(cls) for cls in BODIES.values()}
_WRITE_REPLACE: Final = _WRITING.get_unstructure_hook(Replace)
