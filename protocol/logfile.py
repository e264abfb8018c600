"""The two formats of a log as a file: quiesce's own (version 1) and that of the DeepSeek Harness (version 4).

Both are UTF-8 text without a byte order mark: a header object on the first line, then one event per line, numbered from
0 without gaps. Lines end at LF and nowhere else. A CR before it is white space to JSON and is let be; an empty line is
a fault. Both may be compressed with Zstandard, one frame after another, each holding the lines of one batch; skippable
frames are skipped. In a log of the DeepSeek Harness, events of unknown types are kept verbatim.

What a crash can leave behind is told from damage:

1. A **torn tail** is dropped and reported as `LogFile.torn`: a last line that is not JSON; the whole of a last frame
   that is cut or does not decompress; what follows the last frame and is none.
2. A last line that is JSON and only lacks its LF is complete: an object cannot be the beginning of a longer one.
3. **Everything else is damage**, and raises `UnreadableLog` with the number of the line: a line before the last one
   that is not JSON; a broken frame with a whole frame after it; and, in any place, JSON that is no event, an event out
   of order, or one of an unknown type that must not be skipped. No cut makes those, so none of them is dropped.
4. Without a complete header there is no log: `UnreadableLog`.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import zstandard
from attrs import field, frozen

from quiesce.protocol.codec import dumps, event_from_json, load_json
from quiesce.protocol.errors import InvalidInput, UnreadableLog
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.events import Event, JsonObject

__all__ = ["LogFile", "LogFormat", "Torn", "extend_log", "header", "is_log", "read_log", "write_log"]

LogFormat: TypeAlias = Literal["quiesce", "dsh"]

_TITLES: Final[dict[LogFormat, str]] = {"quiesce": "quiesce", "dsh": "DeepSeek Harness"}
_VERSIONS: Final[dict[LogFormat, int]] = {"quiesce": 1, "dsh": 4}

_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FRAME: Final = b"\x28\xb5\x2f\xfd"
_HEADER: Final = re.compile(rb'\s*\{[^{}\n]*"type"\s*:\s*"session"')
_SKIPPABLE: Final = b"\x2a\x4d\x18"
"""A skippable frame starts with a byte from 0x50 to 0x5F and these three."""
_CHUNK: Final = 1 << 20
"""Bytes decompressed at a time: memory grows with what really comes out, not with what a frame claims."""


@frozen
class Torn:
    """What was dropped from the end of a file: from which line on, how many bytes of the file, and why.

    For a line torn inside an intact frame, `size` counts bytes of the text.
    """

    line: int
    size: int
    words: str


@frozen
class LogFile:
    """A log that was read. `torn` tells what of it was dropped; None if the file ends as it should."""

    format: LogFormat
    header: JsonObject
    events: tuple[Event, ...] = field(repr=False)
    torn: Torn | None
    compressed: bool
    intact: int
    """How many bytes of the file a continued copy takes over as they are."""
    carried: bytes = field(repr=False)
    """Text that such a copy has to write before anything new: a missing LF, or the good lines of a torn frame."""


@frozen
class _Text:
    """The text of a file and how far it goes."""

    text: bytes | bytearray
    size: int
    """Bytes of the file that were understood."""
    fault: str | None = None
    """Why the rest was not."""
    frames: tuple[tuple[int, int], ...] = ()
    """Where each frame starts in the file, and its first byte of text in `text`."""


# --- public ------------------------------------------------------------------------------------------------------


def read_log(data: bytes) -> LogFile:
    """The log in `data`, of either format, compressed or not. Raises `UnreadableLog`; see the module for when."""
    compressed = _starts_frame(data, 0)
    source = _decompress(data) if compressed else _Text(data, len(data))
    start = source.text.find(b"\n") + 1 or len(source.text)
    head = _read_header(bytes(source.text[:start]), source.fault)
    log_format = _format_of(head)
    events, cut, words = _read_events(source.text, start, foreign=log_format == "dsh")
    torn = None
    if source.fault is not None:
        torn = Torn(len(events) + 2, len(data) - source.size, source.fault)
    elif words is not None:
        torn = Torn(len(events) + 2, len(source.text) - cut, words)
    intact, carried = _continuation(source, cut)
    return LogFile(log_format, head, tuple(events), torn, compressed, intact, carried)


def is_log(data: bytes) -> bool:
    """Whether `data` sets out to be a log, whole or damaged: it is compressed, or starts as a header does."""
    return _starts_frame(data, 0) or _HEADER.match(data) is not None


def header(session_id: str, created_at: int, /, **more: object) -> JsonObject:
    """The header of a new quiesce log; `created_at` in ms since the epoch, `more` is free. Raises `InvalidInput`."""
    if type(session_id) is not str or not session_id:
        raise InvalidInput("session_id: a string that is not empty is needed")
    if type(created_at) is not int:
        raise InvalidInput("created_at: whole milliseconds since the epoch are needed")
    own: JsonObject = {"type": "session", "format": "quiesce", "version": 1, "id": session_id, "createdAt": created_at}
    for key in more:
        if key in own:
            raise InvalidInput(f"{key}: the header sets this itself")
    check_json(own | more, "header")
    return own | more


def write_log(header: JsonObject, events: Sequence[Event]) -> bytes:
    """A whole log as plain text, in the format that `header` names. Raises `InvalidInput`."""
    check_json(header, "header")
    try:
        _format_of(header)
    except UnreadableLog as error:
        raise InvalidInput(f"header: {error}") from error
    _check_numbers(events, 0)
    return _line(json.dumps(header, ensure_ascii=False, separators=(",", ":"))) + _lines(events)


def extend_log(data: bytes, log: LogFile, events: Sequence[Event]) -> bytes:
    """The file that continues `data` (which was read as `log`) with `events`, in its own format and compression.

    What stands before a torn tail is taken over byte for byte; the tail is gone. Raises `InvalidInput` if the events do
    not continue the log.
    """
    _check_numbers(events, len(log.events))
    text = log.carried + _lines(events)
    if log.compressed and text:
        text = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    return data[: log.intact] + text


# --- writing -----------------------------------------------------------------------------------------------------


def _lines(events: Sequence[Event]) -> bytes:
    return b"".join([_line(dumps(event)) for event in events])


def _line(text: str) -> bytes:
    return text.encode() + b"\n"


def _check_numbers(events: Sequence[Event], first: int) -> None:
    for seq, event in enumerate(events, first):
        if event.seq != seq:
            raise InvalidInput(f"events: number {event.seq} stands where {seq} must follow")


# --- reading the text --------------------------------------------------------------------------------------------


def _read_header(line: bytes, fault: str | None) -> JsonObject:
    if not line.strip():
        raise UnreadableLog(f"there is no header: {fault or 'the file is empty, or its first line is'}", line=1)
    if line.startswith(_MARKS):
        raise UnreadableLog("the file starts with a byte order mark; a log is UTF-8 without one", line=1)
    try:
        head = load_json(line)
    except UnreadableLog as error:
        raise UnreadableLog(f"the header is incomplete or damaged: {error}", line=1) from error
    if not isinstance(head, dict) or head.get("type") != "session":
        raise UnreadableLog("not a session log: the first line is no session header", line=1)
    if type(head.get("id")) is not str:
        raise UnreadableLog("the header has no id", line=1)
    return head


def _format_of(head: JsonObject) -> LogFormat:
    """Which format `head` belongs to, if its version is one that is read."""
    name = head.get("format", "dsh")
    for known, version in _VERSIONS.items():
        if name != known:
            continue
        if type(head.get("version")) is not int or head["version"] != version:
            found = head.get("version", "none")
            raise UnreadableLog(f"{_TITLES[known]} log of version {found}; version {version} is read", line=1)
        return known
    raise UnreadableLog(f"a log of format {name!r}; quiesce and DeepSeek Harness logs are read", line=1)


def _read_events(text: bytes | bytearray, start: int, *, foreign: bool) -> tuple[list[Event], int, str | None]:
    """The events from `start` on, where the good text ends, and why it does not end with the last line."""
    events: list[Event] = []
    while start < len(text):
        end = text.find(b"\n", start)
        stop = len(text) if end < 0 else end + 1
        try:
            obj = load_json(bytes(text[start:stop]))
        except UnreadableLog as error:
            if stop == len(text):
                return events, start, f"the last line is {error}"
            raise UnreadableLog(str(error), line=len(events) + 2) from error
        events.append(_read_event(obj, len(events), foreign=foreign))
        start = stop
    return events, start, None


def _read_event(obj: object, seq: int, *, foreign: bool) -> Event:
    try:
        event = event_from_json(obj, foreign=foreign)
    except UnreadableLog as error:
        raise UnreadableLog(str(error), line=seq + 2) from error
    if event.seq != seq:
        raise UnreadableLog(f"event number {event.seq} stands where {seq} must follow", line=seq + 2)
    return event


def _continuation(source: _Text, cut: int) -> tuple[int, bytes]:
    """What a copy takes over of a file whose text is good up to `cut`: bytes of the file, and text to write again."""
    if cut == len(source.text):
        return source.size, b"" if source.text.endswith(b"\n") else b"\n"
    if not source.frames:
        return cut, b""
    place, first = next(frame for frame in reversed(source.frames) if frame[1] <= cut)
    return place, bytes(source.text[first:cut])


# --- reading the frames ------------------------------------------------------------------------------------------


class _BrokenFrame(Exception):  # noqa: N818 - internal, carries the words
    """There is no whole frame at this place."""


def _decompress(data: bytes) -> _Text:
    text = bytearray()
    frames: list[tuple[int, int]] = []
    place = 0
    while place < len(data):
        first = len(text)
        try:
            end = _end_of_frame(data, place)
            _unpack(data, place, end, text)
        except _BrokenFrame as fault:
            del text[first:]
            if _has_whole_frame(data, place + 1):
                words = f"the frame at byte {place} is broken ({fault}), and whole frames follow"
                raise UnreadableLog(words, line=text.count(b"\n") + 1) from fault
            return _Text(text, place, f"the last frame is broken: {fault}", tuple(frames))
        frames.append((place, first))
        place = end
    return _Text(text, place, None, tuple(frames))


def _starts_frame(data: bytes, place: int) -> bool:
    return data[place : place + 4] == _FRAME or _is_skippable(data, place)


def _is_skippable(data: bytes, place: int) -> bool:
    return data[place + 1 : place + 4] == _SKIPPABLE and data[place] >> 4 == 5  # noqa: PLR2004 - see _SKIPPABLE


def _has_whole_frame(data: bytes, place: int) -> bool:
    """Whether a whole frame starts anywhere from `place` on."""
    while (place := data.find(_FRAME, place)) >= 0:
        try:
            _unpack(data, place, _end_of_frame(data, place), bytearray())
        except _BrokenFrame:
            place += 1
        else:
            return True
    return False


def _end_of_frame(data: bytes, place: int) -> int:
    """Where the frame at `place` ends, read from its block headers (RFC 8878, 3.1)."""
    if not _starts_frame(data, place):
        raise _BrokenFrame("cut" if len(data) - place < len(_FRAME) else "not a Zstandard frame")
    if _is_skippable(data, place):
        end = place + 8 + int.from_bytes(data[place + 4 : place + 8], "little")
    else:
        end = _end_of_blocks(data, place)
    if end > len(data) or len(data) - place < 8:  # noqa: PLR2004 - no frame of either kind is shorter
        raise _BrokenFrame("cut")
    return end


def _end_of_blocks(data: bytes, place: int) -> int:
    descriptor = int.from_bytes(data[place + 4 : place + 5], "little")
    single_segment = descriptor >> 5 & 1
    size_of_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    place += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + size_of_size
    last = 0
    while not last:
        if place + 3 > len(data):
            raise _BrokenFrame("cut")
        block = int.from_bytes(data[place : place + 3], "little")
        last, kind = block & 1, block >> 1 & 3
        place += 3 + (1 if kind == 1 else block >> 3)
    return place + 4 * (descriptor >> 2 & 1)


def _unpack(data: bytes, place: int, end: int, text: bytearray) -> None:
    """Append the text of one frame to `text`."""
    if _is_skippable(data, place):
        return
    reader = zstandard.ZstdDecompressor().stream_reader(memoryview(data)[place:end])
    try:
        while chunk := reader.read(_CHUNK):
            text += chunk
    except zstandard.ZstdError as error:
        raise _BrokenFrame(str(error)) from error
