"""Answers count for the question that was shown when they were typed; and how what is typed is read."""

from __future__ import annotations

import os

import pytest
from attrs import Factory, define

from quiesce.actors.cli.asking import Decisions
from quiesce.actors.cli.screens import JsonScreen
from quiesce.actors.cli.typed import Typed
from quiesce.protocol.approvals import Question


class Notes(JsonScreen):
    def __init__(self):
        self.notes = []

    def note(self, words, style="dim"):
        self.notes.append(words)


@define
class Asking:
    """Stands for an agent that has questions."""

    waiting: list
    approved: list = Factory(list)
    denied: list = Factory(list)

    async def questions(self):
        return tuple(self.waiting)

    async def approve(self, question):
        self.waiting.remove(question)
        self.approved.append(question.index)

    async def deny(self, question, reason):
        self.waiting.remove(question)
        self.denied.append((question.index, reason))


def question(index):
    return Question(1, 1, index, f"c{index}", "remove", {"at": index}, "may remove run?")


@pytest.fixture
def keyboard(monkeypatch):
    """What types: standard input is the other end of it."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", 0) as keyboard:
        monkeypatch.setattr("sys.stdin", stdin)
        yield keyboard


@pytest.fixture
def decide(keyboard):
    def decide(number, **options):
        agent, screen = Asking([question(index) for index in range(number)]), Notes()
        return agent, screen.notes, Decisions(agent, screen, **options)

    return decide


async def test_an_answer_that_was_typed_before_its_question_was_shown_approves_nothing(decide, keyboard):
    agent, notes, decisions = decide(1)
    keyboard.write(b"y\n")
    await decisions.show_next()
    assert await decisions.take(await anext(decisions.typed))
    assert agent.approved == []
    assert notes[-1].startswith("not taken, since it was typed before this question was shown")


async def test_an_answer_that_was_begun_before_its_question_was_shown_approves_nothing(decide, keyboard):
    agent, _, decisions = decide(1)
    keyboard.write(b"y")
    await decisions.show_next()
    keyboard.write(b"\n")
    assert await decisions.take(await anext(decisions.typed))
    assert agent.approved == []


async def test_an_answer_that_was_typed_under_its_question_decides(decide, keyboard):
    agent, _, decisions = decide(1)
    await decisions.show_next()
    keyboard.write(b"y\n")
    assert await decisions.take(await anext(decisions.typed))
    assert agent.approved == [0]


async def test_of_two_answers_typed_at_once_the_second_is_not_for_the_next_question(decide, keyboard):
    agent, _, decisions = decide(2)
    await decisions.show_next()
    keyboard.write(b"y\ny\n")
    for _ in range(2):
        assert await decisions.take(await anext(decisions.typed))
    assert agent.approved == [0]
    keyboard.write(b"no, not that\n")
    assert await decisions.take(await anext(decisions.typed))
    assert agent.denied == [(1, "not that")]


async def test_an_answer_to_a_question_that_is_decided_goes_nowhere(decide, keyboard):
    agent, notes, decisions = decide(1)
    await decisions.show_next()
    keyboard.write(b"y\ny\n")
    assert await decisions.take(await anext(decisions.typed))
    assert await decisions.take(await anext(decisions.typed))
    assert agent.approved == [0]
    assert notes[-1] == "not taken, since that question was decided before"


async def test_more_than_an_answer_that_was_typed_before_a_question_is_for_the_model(decide, keyboard):
    agent, notes, decisions = decide(1)
    keyboard.write(b"no, use the other file\n")
    await decisions.show_next()
    assert not await decisions.take(await anext(decisions.typed))
    assert agent.denied == []
    assert "still open" in notes[-1]


async def test_without_a_question_nothing_is_an_answer(decide, keyboard):
    _, notes, decisions = decide(0)
    await decisions.show_next()
    keyboard.write(b"y\n")
    assert not await decisions.take(await anext(decisions.typed))
    assert notes == []


async def test_whoever_approves_all_is_told_of_each_and_asked_about_none(decide):
    agent, notes, decisions = decide(2, approves_all=True)
    await decisions.show_next()
    assert agent.approved == [0, 1]
    assert notes == [f"approved, as --yes wants: remove at={index}" for index in range(2)]


# -- what is typed ----------------------------------------------------------------------------------------------------


async def test_lines_come_as_they_are_typed_and_the_last_needs_no_end(keyboard):
    typed = Typed(lambda: None, print)
    keyboard.write(b" one \n\ntw")
    assert [(await anext(typed)).text for _ in range(2)] == ["one", ""]
    keyboard.write(b"o")
    keyboard.close()
    assert [line.text async for line in typed] == ["two"]


async def test_a_file_is_read_as_well(monkeypatch, tmp_path):
    (tmp_path / "said").write_bytes(b"one\ntwo")
    with (tmp_path / "said").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert [line.text async for line in Typed(lambda: None, print)] == ["one", "two"]


async def test_where_nothing_says_whether_there_is_anything_lines_are_read_one_by_one(monkeypatch, keyboard):
    monkeypatch.setattr("select.select", lambda *_: (_ for _ in ()).throw(OSError("not a socket")))
    typed = Typed(lambda: None, print)
    keyboard.write(b"one\ntwo\n")
    typed.catch_up()
    keyboard.close()
    assert [line.text async for line in typed] == ["one", "two"]


async def test_what_is_no_text_is_replaced_and_told_once(keyboard):
    told = []
    typed = Typed(lambda: None, told.append)
    keyboard.write(b"caf\xe9\n\xff\n")
    keyboard.close()
    assert [line.text async for line in typed] == ["caf\ufffd", "\ufffd"]
    assert len(told) == 1
