"""Log files: both formats, plain and compressed; torn at any byte; damaged anywhere; continued as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from quiesce.protocol.codec import dumps
from quiesce.protocol.errors import InvalidInput, UnreadableLog
from quiesce.protocol.events import (
    ForeignBody,
    LateResult,
    Reason,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    draft,
)
from quiesce.protocol.logfile import LogFile, extend_log, header, is_log, read_log, write_log

# A session as the DeepSeek Harness writes it: types, keys and key order are those of a real log. Each group of lines is
# one batch, which the harness compresses into one frame.
BATCHES = (
    ('{"type":"session","version":4,"id":"session-1","createdAt":1796063356854,"cwd":"/w","isSeeded":false}',),
    (
        '{"type":"permission/preset","seq":0,"time":1796063356863,"data":{"preset":"workspace-write"}}',
        (
            '{"type":"agent/inbox/spliced","seq":1,"time":1796063356870,"data":{"target":"next-turn","start":0,'
            '"inserted":[{"content":[{"type":"text","text":"go\u2028 \\n é"}],"source":{"kind":"user"},"role":"user",'
            '"id":"4a2d"}]}}'
        ),
    ),
    (
        '{"type":"turn/start","seq":2,"time":1796063356873,"data":{"turn":1}}',
        (
            '{"type":"agent/inbox/spliced","seq":3,"time":1796063356874,"data":{"target":"next-turn","start":0,'
            '"removedCount":1,"inserted":[]}}'
        ),
        '{"type":"step/start","seq":4,"time":1796063357372,"data":{"turn":1,"step":1}}',
        (
            '{"type":"user/message","seq":5,"time":1796063357380,"data":{"content":[{"type":"text","text":"go"}],'
            '"source":{"kind":"user"},"role":"user","id":"4a2d"},"surfaceOp":"append"}'
        ),
    ),
    (
        (
            '{"type":"assistant/message","seq":6,"time":1796063358310,"data":{"turn":1,"step":1,"message":{"role":'
            '"assistant","content":[{"type":"text","text":"Reading."},{"type":"tool-call","id":"call_c1","name":"read",'
            '"arguments":"{\\"file_path\\": \\"/w/a.txt\\"}"}],"source":{"kind":"model","provider":"p","model":"m",'
            '"replayState":{"blocks":[{"type":"text"}]}},"id":"ca3a"},"usage":{"inputTokens":5},"stream":[{"type":'
            '"text-chunks","time0":1796063358305,"index":0,"dt":[],"texts":["Reading."]}]},"surfaceOp":"append"}'
        ),
        (
            '{"type":"tool/call","seq":7,"time":1796063358312,"data":{"turn":1,"step":1,"callId":"call_c1","name":"read",'
            '"arguments":"{\\"file_path\\": \\"/w/a.txt\\"}"}}'
        ),
        (
            '{"type":"tool/result","seq":8,"time":1796063358375,"data":{"turn":1,"step":1,"message":{"role":"tool",'
            '"source":{"kind":"tool","callId":"call_c1"},"toolCallId":"call_c1","content":[{"type":"text","text":"é"}],'
            '"isError":true,"id":"75a6"},"error":{"name":"FsError","code":"FS_NOT_FOUND"},"meta":{"lines":[1]}},'
            '"sourceEventSeqs":[7],"surfaceOp":"append"}'
        ),
    ),
    (
        '{"type":"step/end","seq":9,"time":1796063358712,"data":{"turn":1,"step":1}}',
        '{"type":"turn/end","seq":10,"time":1796063358906,"data":{"turn":1,"reason":{"kind":"completed"}}}',
    ),
)
LINES = tuple(line for batch in BATCHES for line in batch)


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def frame(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


PLAIN = text(*LINES)
FRAMES = tuple(frame(text(*batch)) for batch in BATCHES)
PACKED = b"".join(FRAMES)
SKIPPABLE = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
WHOLE = read_log(PLAIN)

OWN = tuple(
    draft(body).at(seq, 1000 + seq)
    for seq, body in enumerate(
        (
            TurnStart(1),
            StepStart(1, 1),
            StepEnd(1, 1),
            TurnEnd(1, Reason("completed")),
            LateResult(1, 1, "c1"),
        )
    )
)
OWN_TEXT = write_log(header("s1", 1000), OWN)


def closers(log: LogFile) -> list[Any]:
    """What recovery might append after `log`: two events that continue its numbers."""
    first = len(log.events)
    return [draft(StepEnd(1, 1)).at(first, 7), draft(TurnEnd(1, Reason("interrupted"))).at(first + 1, 7)]


def event_line(seq: int, **fields: Any) -> str:
    return json.dumps({"type": "turn/start", "seq": seq, "time": 0, "data": {"turn": 1}} | fields)


OWN_HEADER = json.dumps(header("s", 0))

OTHERS = (b"", b"[]", b'{"role":"user"}', b'{"a":{"type":"session"}}', b'{}\n{"type":"session"}')


@pytest.mark.parametrize("data", [PLAIN, PLAIN[:40], FRAMES[0], FRAMES[0][:9], SKIPPABLE, OWN_HEADER.encode()])
def test_what_sets_out_to_be_a_log_is_told_by_its_start(data):
    assert is_log(data)


@pytest.mark.parametrize("data", OTHERS)
def test_what_starts_otherwise_is_none(data):
    assert not is_log(data)


# --- whole logs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "compressed"), [(PLAIN, False), (PACKED, True)])
def test_a_harness_log_is_read(data, compressed):
    log = read_log(data)
    assert (log.format, log.compressed, log.torn, log.intact) == ("dsh", compressed, None, len(data))
    assert log.header["cwd"] == "/w"
    assert [event.type for event in log.events] == [json.loads(line)["type"] for line in LINES[1:]]
    assert log.events == WHOLE.events
    assert log.events[0].body == ForeignBody("permission/preset", {"preset": "workspace-write"})
    assert isinstance(log.events[7].body, ToolCall)
    assert isinstance(log.events[8].body, ToolResult)
    assert log.events[8].source_event_seqs == (7,)


@pytest.mark.parametrize("data", [PLAIN, PACKED])
def test_a_log_that_was_read_is_written_again_byte_for_byte(data):
    log = read_log(data)
    assert write_log(log.header, log.events) == PLAIN


def test_our_own_log_is_read_as_it_was_written():
    log = read_log(OWN_TEXT)
    assert (log.format, log.events, log.torn) == ("quiesce", OWN, None)
    assert log.header == {"type": "session", "format": "quiesce", "version": 1, "id": "s1", "createdAt": 1000}


def test_a_header_takes_more_keys_but_not_its_own():
    assert header("s", 1, parent="p")["parent"] == "p"
    with pytest.raises(InvalidInput, match="version: the header sets this itself"):
        header("s", 1, version=2)
    with pytest.raises(InvalidInput, match=r"header\.x: tuple"):
        header("s", 1, x=())


@pytest.mark.parametrize(("session_id", "created_at"), [("", 1), (None, 1), ("s", 1.5), ("s", True)])
def test_a_header_needs_an_id_and_a_time(session_id, created_at):
    with pytest.raises(InvalidInput, match=r"session_id|created_at"):
        header(session_id, created_at)


def test_a_log_of_a_header_alone_is_an_empty_log():
    assert read_log(text(OWN_HEADER)).events == ()
    assert read_log(OWN_HEADER.encode()).torn is None
    assert read_log(FRAMES[0]).events == ()


def test_skippable_and_empty_frames_are_skipped():
    log = read_log(SKIPPABLE + FRAMES[0] + frame(b"") + SKIPPABLE + b"".join(FRAMES[1:]) + SKIPPABLE)
    assert (log.events, log.torn) == (WHOLE.events, None)


def test_a_frame_may_end_within_a_line():
    log = read_log(frame(PLAIN[:200]) + frame(PLAIN[200:1000]) + frame(PLAIN[1000:]))
    assert (log.events, log.torn) == (WHOLE.events, None)


def test_frames_without_size_or_checksum_are_read():
    packer = zstandard.ZstdCompressor(write_checksum=False, write_content_size=False)
    assert read_log(packer.compress(PLAIN)).events == WHOLE.events


def test_a_long_log_of_repetitions_is_read():
    lines = [event_line(seq, ignorable=True, type="x", data="a" * 500) for seq in range(5000)]
    log = read_log(frame(text(OWN_HEADER, *lines)))
    assert (len(log.events), log.torn) == (5000, None)


def test_a_carriage_return_before_the_line_feed_is_white_space():
    log = read_log(PLAIN.replace(b"\n", b"\r\n"))
    assert (log.events, log.torn) == (WHOLE.events, None)


# --- torn tails --------------------------------------------------------------------------------------------------


def lines_within(cut: int) -> int:
    """How many whole lines, with or without their LF, stand in the first `cut` bytes of the plain log."""
    ends = [len(text(*LINES[: count + 1])) - 1 for count in range(len(LINES))]
    return sum(end <= cut for end in ends)


def test_a_plain_log_torn_at_any_byte_loses_its_last_line_alone():
    for cut in range(len(PLAIN) + 1):
        whole = lines_within(cut)
        if whole == 0:
            with pytest.raises(UnreadableLog, match=r"^line 1: "):
                read_log(PLAIN[:cut])
            continue
        log = read_log(PLAIN[:cut])
        assert log.events == WHOLE.events[: whole - 1]
        left_over = cut - len(text(*LINES[:whole]))
        assert (log.torn is None) == (left_over <= 0)
        if log.torn is not None:
            assert (log.torn.line, log.torn.size) == (whole + 1, left_over)


def test_a_compressed_log_torn_at_any_byte_loses_its_last_frame_alone():
    ends = [sum(map(len, FRAMES[: count + 1])) for count in range(len(FRAMES))]
    sizes = [sum(map(len, BATCHES[: count + 1])) - 1 for count in range(len(FRAMES))]
    for cut in range(len(PACKED) + 1):
        whole = sum(end <= cut for end in ends)
        if whole == 0:
            with pytest.raises(UnreadableLog, match=r"^line 1: "):
                read_log(PACKED[:cut])
            continue
        log = read_log(PACKED[:cut])
        assert log.events == WHOLE.events[: sizes[whole - 1]]
        assert (log.torn is None) == (cut == ends[whole - 1])
        if log.torn is not None:
            assert (log.torn.line, log.torn.size) == (len(log.events) + 2, cut - ends[whole - 1])


@pytest.mark.parametrize("data", [PLAIN, PACKED, OWN_TEXT])
def test_a_log_torn_at_any_byte_is_continued_in_its_own_format(data):
    whole = read_log(data)
    for cut in range(len(data) + 1):
        try:
            log = read_log(data[:cut])
        except UnreadableLog:
            continue
        new = closers(log)
        copy = extend_log(data[:cut], log, new)
        again = read_log(copy)
        assert copy.startswith(data[: log.intact])
        assert again.events == (*log.events, *new)
        assert (again.torn, again.format, again.compressed) == (None, whole.format, whole.compressed)


@pytest.mark.parametrize(
    "tail", [b"\0" * 50, b'{"type":"step/e\n', b"\xff\xfe\n", b"\n", b'{"type":"x","seq":11}garbage\n']
)
def test_a_last_line_that_is_not_json_is_torn_even_with_its_line_feed(tail):
    log = read_log(PLAIN + tail)
    assert log.events == WHOLE.events
    assert (log.torn.line, log.torn.size) == (13, len(tail))
    assert log.torn.words.startswith("the last line is not ")


@pytest.mark.parametrize("tail", [b"\0" * 50, b"garbage", PLAIN[-50:], FRAMES[-1][:-1], FRAMES[-1][:-1] + b"\0"])
def test_what_follows_the_last_frame_and_is_none_is_torn(tail):
    log = read_log(PACKED + tail)
    assert log.events == WHOLE.events
    assert (log.torn.line, log.torn.size) == (13, len(tail))
    assert log.torn.words.startswith("the last frame is broken: ")


def test_a_line_torn_inside_a_whole_frame_is_dropped_and_its_good_lines_are_carried_over():
    good = text(LINES[-2])
    data = b"".join(FRAMES[:-1]) + frame(good + LINES[-1][:20].encode())
    log = read_log(data)
    assert log.events == WHOLE.events[:-1]
    assert (log.torn.line, log.torn.size) == (12, 20)
    copy = extend_log(data, log, [WHOLE.events[-1]])
    assert copy.startswith(b"".join(FRAMES[:-1]))
    assert (read_log(copy).events, read_log(copy).torn) == (WHOLE.events, None)


# --- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2, len(LINES)))
def test_a_damaged_line_before_the_last_is_named(number):
    broken = [*LINES]
    broken[number - 1] = broken[number - 1][:-4]
    with pytest.raises(UnreadableLog, match=f"^line {number}: not JSON") as caught:
        read_log(text(*broken))
    assert caught.value.line == number


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([event_line(0), event_line(2)], "line 3: event number 2 stands where 1 must follow"),
        ([event_line(0), event_line(0)], "line 3: event number 0 stands where 1 must follow"),
        ([event_line(1)], "line 2: event number 1 stands where 0 must follow"),
        ([event_line(0), "", event_line(1)], "line 3: not JSON"),
        ([event_line(0), "[]"], "line 3: event: expected an object, not an array"),
        ([event_line(0), event_line(1, time=None)], "line 3: event.time: expected a whole number, not null"),
        ([event_line(0, type="new/kind")], "line 2: unknown event type 'new/kind'"),
    ],
)
def test_json_that_is_not_the_next_event_is_damage_even_at_the_end(lines, words):
    with pytest.raises(UnreadableLog) as caught:
        read_log(text(OWN_HEADER, *lines))
    assert str(caught.value).startswith(words)


def test_an_unknown_event_that_may_be_skipped_is_kept():
    line = event_line(0, type="new/kind", ignorable=True)
    assert read_log(text(OWN_HEADER, line)).events[0].body == ForeignBody("new/kind", {"turn": 1})


def test_a_changed_bit_is_never_read_as_another_event():
    last = len(PACKED) - len(FRAMES[-1])
    for place in range(len(PACKED)):
        data = bytearray(PACKED)
        data[place] ^= 1 << place % 8
        try:
            log = read_log(bytes(data))
        except UnreadableLog as error:
            assert error.line is not None  # noqa: PT017 - either outcome is right
            continue
        assert log.events == WHOLE.events[: len(log.events)]
        assert log.torn is None or place >= last
        assert log.torn is not None or log.events == WHOLE.events


def test_a_broken_frame_before_the_last_is_damage_and_names_its_first_line():
    broken = bytearray(FRAMES[2])
    broken[-1] ^= 1
    with pytest.raises(UnreadableLog, match=r"^line 4: the frame at byte \d+ is broken .*, and whole frames follow"):
        read_log(b"".join([*FRAMES[:2], bytes(broken), *FRAMES[3:]]))


@given(st.binary() | st.binary().map(b"\x28\xb5\x2f\xfd".__add__) | st.binary().map(PACKED.__add__))
def test_any_bytes_are_read_or_refused_with_a_clear_error(data):
    try:
        assert read_log(data).events[:11] == WHOLE.events
    except UnreadableLog as error:
        assert error.line is not None  # noqa: PT017 - either outcome is right


# --- what is no log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "there is no header: the file is empty"),
        (b"\n{}", "there is no header"),
        (frame(b""), "there is no header"),
        (FRAMES[0][:-1], "there is no header: the last frame is broken: cut"),
        (b"\xef\xbb\xbf" + PLAIN, "byte order mark"),
        (PLAIN.decode().encode("utf-16"), "byte order mark"),
        (PLAIN.decode().encode("utf-16-le"), "not JSON"),
        (b'{"type":"session","id":"\xff"}\n', "not UTF-8"),
        (PLAIN[:20], "the header is incomplete or damaged"),
        (text(event_line(0)), "the first line is no session header"),
        (text("[]"), "the first line is no session header"),
        (text('{"type":"session","version":4}'), "the header has no id"),
        (text('{"type":"session","id":"s","version":5}'), "DeepSeek Harness log of version 5; version 4 is read"),
        (text('{"type":"session","id":"s"}'), "DeepSeek Harness log of version none; version 4 is read"),
        (
            text('{"type":"session","id":"s","format":"quiesce","version":2}'),
            "quiesce log of version 2; version 1 is read",
        ),
        (text('{"type":"session","id":"s","format":"quiesce","version":true}'), "version True; version 1 is read"),
        (text('{"type":"session","id":"s","format":"other","version":1}'), "a log of format 'other'"),
    ],
)
def test_what_is_no_log_is_refused_with_a_clear_answer(data, words):
    with pytest.raises(UnreadableLog) as caught:
        read_log(data)
    assert words in str(caught.value)
    assert caught.value.line == 1


# --- continuing --------------------------------------------------------------------------------------------------


def test_a_harness_log_goes_out_as_a_harness_log_with_one_new_frame():
    new = closers(WHOLE)
    copy = extend_log(PACKED, read_log(PACKED), new)
    added = zstandard.ZstdDecompressor().decompress(copy[len(PACKED) :])
    assert copy.startswith(PACKED)
    assert added == text(*map(dumps, new))


def test_a_missing_last_line_feed_is_added_before_new_events():
    data = PLAIN.rstrip(b"\n")
    assert extend_log(data, read_log(data), closers(WHOLE)) == extend_log(PLAIN, WHOLE, closers(WHOLE))


@pytest.mark.parametrize("data", [PLAIN, PACKED])
def test_nothing_added_to_a_whole_log_is_the_same_file(data):
    assert extend_log(data, read_log(data), []) == data


def test_events_that_do_not_continue_the_log_are_refused():
    with pytest.raises(InvalidInput, match="number 3 stands where 11 must follow"):
        extend_log(PLAIN, WHOLE, [draft(TurnStart(2)).at(3, 0)])
    with pytest.raises(InvalidInput, match="number 1 stands where 0 must follow"):
        write_log(header("s", 0), OWN[1:])


def test_a_log_is_not_written_under_a_header_that_could_not_be_read():
    with pytest.raises(InvalidInput, match=r"header: .*version 7"):
        write_log(header("s", 0) | {"version": 7}, ())
