"""The pace of a loop's thread: when a checkpoint is due, and how seldom the clock is read to know it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.actors.kernel.pace import Pace


class Work:
    """A clock that its messages move, and that counts its readings."""

    def __init__(self):
        self.now = 0.0
        self.readings = 0
        self.pace = Pace(self.read)
        self.readings = 0

    def read(self):
        self.readings += 1
        return self.now

    def is_due_after(self, seconds):
        """Handle a message, as the hot paths do."""
        self.now += seconds
        if self.pace.spare:
            self.pace.spare -= 1
            return False
        return self.pace.is_due()


def test_brisk_messages_have_the_clock_read_for_every_eighth():
    work = Work()
    assert not any(work.is_due_after(0.000_001) for _ in range(801))
    assert work.readings == 101


def test_slow_messages_have_the_clock_read_for_each():
    work = Work()
    due = [work.is_due_after(0.000_4) for _ in range(3)]
    assert (due, work.readings) == ([False, False, True], 3)


@pytest.mark.parametrize("brisk", range(1, 20))
def test_slow_messages_after_brisk_ones_go_on_for_seven_at_most(brisk):
    work = Work()
    assert not any(work.is_due_after(0.000_001) for _ in range(brisk))
    assert any(work.is_due_after(0.001) for _ in range(8))


def test_a_new_stretch_begins_with_a_reading():
    work = Work()
    for _ in range(3):
        work.is_due_after(0.000_001)
    work.pace.restart()
    readings = work.readings
    work.is_due_after(0.000_001)
    assert work.readings == readings + 1


@given(st.lists(st.floats(0, 0.002)))
def test_a_stretch_is_never_longer_than_a_millisecond_and_eight_messages(durations):
    work = Work()
    stretch = []
    for seconds in durations:
        stretch.append(seconds)
        if work.is_due_after(seconds):
            work.pace.restart()
            stretch = []
        assert sum(stretch[:-8]) < 0.001
