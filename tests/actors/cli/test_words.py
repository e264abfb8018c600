"""How values are put in words."""

from __future__ import annotations

import pytest

from quiesce.actors.cli.words import arguments_in_words, count, duration, moment, one_line, shortened, visible


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "<1 ms"),
        (12, "12 ms"),
        (999, "999 ms"),
        (1_000, "1.00 s"),
        (59_994, "59.99 s"),
        (60_000, "1 min 00 s"),
        (3_599_999, "59 min 59 s"),
        (11_220_000, "3 h 07 min"),
    ],
)
def test_a_duration_is_told_in_the_unit_that_suits_it(milliseconds, words):
    assert duration(milliseconds) == words


@pytest.mark.parametrize(("number", "words"), [(0, "0 calls"), (1, "1 call"), (2_000, "2,000 calls")])
def test_a_count(number, words):
    assert count(number, "call") == words


def test_a_moment_that_no_calendar_has_is_a_number():
    assert moment(10**30) == f"{10**30} ms"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("hällo 世界 ✓", "hällo 世界 ✓"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\r\x00\x9b", r"\r\x00\x9b"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_is_not_printable_is_escaped(text, shown):
    assert visible(text) == shown


def test_one_line_collapses_white_space():
    assert one_line(" a \n\n\t b ") == "a b"


def test_what_fits_is_not_shortened():
    assert shortened("a" * 10, 10) == "a" * 10


def test_what_is_shortened_says_how_long_it_is():
    assert shortened("a" * 2_000, 30) == "a" * 10 + "… (2,000 characters)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", ""),
        ("{}", ""),
        ('{"path": "a.txt", "depth": 2}', 'path="a.txt" depth=2'),
        ('{"a": {"b": [1]}}', 'a={"b": [1]}'),
        ("[1]", "[1]"),
        ('{"cut', '{"cut'),
        ("[" * 100_000, "[" * 100_000),
        ('{"\\u001b": "\\u001b[2J"}', r'\x1b="\u001b[2J"'),
    ],
)
def test_arguments(arguments, words):
    assert arguments_in_words(arguments) == words
