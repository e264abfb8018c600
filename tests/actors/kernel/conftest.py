"""Children to put under supervisors: they write down what happens to them, and do what the test says."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from quiesce.actors.kernel import TrioActor
from quiesce.actors.kernel.supervision import ChildSpec


class Family:
    """What the children of one test share: the record of events, and how they are to start and stop."""

    def __init__(self):
        self.events = []
        self.starts = {}  # name -> for each coming start: None, an exception to raise, or seconds to take
        self.stops = {}  # name -> seconds that on_stop takes, or an exception to raise
        self.refs = {}

    def spec(self, name, /, **fields):
        """Return a spec; its child is `refs[name]` once started."""
        return ChildSpec(name, partial(Worker, self, name), **fields)

    def specs(self, names, **fields):
        """Return several, with one-letter names."""
        return [self.spec(name, **fields) for name in names]

    def crash(self, name, error=None):
        """Have a child crash at its next message."""
        self.refs[name].tell(error or ValueError(f"{name} crashes"))

    def take_events(self):
        """Return what happened since the last time, in one line."""
        events, self.events[:] = " ".join(map(str, self.events)), []
        return events

    async def settle(self):
        """Let everything happen that does not wait for time, and return the events."""
        await trio.testing.wait_all_tasks_blocked()
        return self.take_events()


class Worker(TrioActor):
    """Writes +name at its start, ?name at a failing one, -name at its end, !name when it crashes."""

    def __init__(self, family, name):
        super().__init__()
        self.family = family
        self.name = name
        family.refs[name] = self.actor_ref

    def write(self, sign):
        self.family.events.append(f"{sign}{self.name}")

    def on_start(self):
        planned = self.family.starts.get(self.name)
        step = planned.pop(0) if planned else None
        if isinstance(step, BaseException):
            self.write("?")
            raise step
        if step is not None:
            return self._later(step, "+")
        return self.write("+")

    def on_stop(self):
        step = self.family.stops.get(self.name)
        if isinstance(step, BaseException):
            self.write("-?")
            raise step
        if step is not None:
            return self._later(step, "-")
        return self.write("-")

    def on_failure(self, *exc_info):
        self.write("!")

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        if isinstance(message, float):
            return self._later(message, "~")
        if message == "stop":
            return self.stop()
        self.write(f"{message}>")
        return (self.name, message)

    async def _later(self, seconds, sign):
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.write(f"cancelled {sign}")
            raise
        self.write(sign)


@pytest.fixture
def family():
    """A fresh `Family`."""
    return Family()
