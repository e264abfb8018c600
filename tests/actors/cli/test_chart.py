"""The chart of a message's calls: its bars, its columns, its words."""

from __future__ import annotations

import pytest
from attrs import evolve

from quiesce.actors.cli.chart import chart, legend
from quiesce.actors.cli.timeline import timeline_of

WIDTH = 100


@pytest.fixture
def drawn(logs):
    """The lines of the chart of a log's only answer, without the axis; `measured` are body times by call index."""

    def drawn(line, *, width=WIDTH, measured=()):
        events, times = [], list(measured)
        for event in logs.read(line):
            if event.type == "tool/result" and times:
                start, end = times.pop(0)
                event = evolve(event, body=evolve(event.body, meta={"startedAt": start, "endedAt": end}))  # noqa: PLW2901
            events.append(event)
        (turn,) = timeline_of(events).turns
        answer = turn.parts[0].entries[0]
        return [line.plain for line in chart(answer.calls, answer.span, width, 2, lambda *_: ())]

    return drawn


def bar(line):
    """From where to where a bar goes, and of what it is made."""
    drawn = [(place, char) for place, char in enumerate(line) if char in "━┄╍"]
    return drawn[0][0], drawn[-1][0] + 1, "".join(dict.fromkeys(char for _, char in drawn))


def test_calls_one_after_another(drawn):
    _, first, second = drawn("turn step ask:a,b call:a result:a call:b result:b")
    assert bar(first)[1] <= bar(second)[0]


def test_calls_side_by_side(drawn):
    _, first, second = drawn("turn step ask:a,b call:a call:b result:a result:b")
    assert bar(first)[0] < bar(second)[0] < bar(first)[1] < bar(second)[1]


def test_a_result_that_waited_for_its_place_is_dotted(drawn):
    _, _, second = drawn("turn step ask:a,b call:a call:b result:a result:b", measured=[(1_003, 1_005), (1_004, 1_004)])
    assert bar(second)[2] == "━┄"


def test_what_has_no_known_end_is_dashed(drawn):
    _, first, second = drawn("turn step ask:a,b call:a call:b unknown:a")
    assert (bar(first)[2], bar(second)[2]) == ("╍", "╍")


def test_a_call_that_never_started_has_no_bar_and_no_time(drawn):
    _, _, second = drawn("turn step ask:a,b call:a result:a unstarted:b")
    assert not set(second) & set("━┄╍")
    assert "ms" not in second


def test_the_shortest_call_has_a_bar(drawn):
    lines = drawn(
        "turn step ask:a,b call:a foreign foreign foreign result:a call:b result:b", measured=[(1_003, 1_003)]
    )
    start, end, _ = bar(lines[1])
    assert end > start


def test_a_message_whose_calls_took_no_time_at_all(drawn):
    lines = drawn("turn step ask:a call:a result:a", measured=[(1_003, 1_003)])
    assert "<1 ms" in lines[1]


def test_the_columns_of_all_lines_are_aligned(drawn):
    _, *lines = drawn("turn step ask:a,b,c call:a call:b result:a result:b unstarted:c")
    assert {line.index("tool") for line in lines} == {6}
    assert lines[0].index("done") == lines[1].index("done") == lines[2].index("NOT STARTED")


def test_the_numbers_of_many_calls_are_aligned(drawn):
    labels = [f"c{number}" for number in range(12)]
    _, *lines = drawn(f"turn step ask:{','.join(labels)} call:c0")
    assert [line[:6] for line in lines[8:10]] == ["   9 …", "  10 …"]


def test_long_arguments_lose_their_middle(logs):
    events = logs.read("turn step ask:a")
    message = events[2].body.message
    block = evolve(message.content[1], arguments='{"path": "/home/someone/with/a/long/path/to/file.txt"}')
    body = evolve(events[2].body, message=evolve(message, content=(block,)))
    (turn,) = timeline_of((*events[:2], evolve(events[2], body=body))).turns
    (line,) = chart(turn.calls, None, WIDTH, 2, lambda *_: ())
    assert 'tool path="/home' in line.plain
    assert 'file.txt"' in line.plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("call:a result:a=fine", "fine"),
        ("call:a failed:a=oops", "oops"),
        ("call:a aborted:a", "aborted: before it started"),
        ("call:a unknown:a", "UNKNOWN: may have had effects"),
        ("unstarted:a", "NOT STARTED: had no effect"),
        ("call:a", "open: started, no result yet"),
        ("", "open: not started yet"),
        ("call:a end-step", "unanswered: its step is over"),
    ],
)
def test_what_is_said_of_an_outcome(drawn, words, said):
    assert drawn(f"turn step ask:a {words}")[-1].endswith(f" {said}")


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        ("call:a result:a", ""),
        ("call:a unknown:a", "━━ from its start to its result   ╍╍ outcome unknown"),
        ("unstarted:a", ""),
    ],
)
def test_bars_are_explained_when_they_are_not_plain(logs, words, explained):
    (turn,) = timeline_of(logs.read(f"turn step ask:a {words}")).turns
    assert legend(turn.calls) == explained
