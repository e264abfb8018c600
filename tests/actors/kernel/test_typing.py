"""What a type checker accepts and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

mypy_api = pytest.importorskip("mypy.api")

PRELUDE = """
from collections.abc import AsyncGenerator
from typing import assert_type
from attrs import frozen
from quiesce.actors.kernel import ActorRef, ActorSystem, Call, Exit, Message, Reply, TrioActor
from quiesce.actors.kernel import host_on_thread, receive

@frozen
class Count(Message[int]):
    word: str

@frozen
class Note(Message[None]):
    pass
"""

ACCEPTED = """
class Counter(TrioActor):
    def __init__(self, start: int) -> None:
        super().__init__()

    async def on_start(self) -> None: ...
    async def on_stop(self) -> None: ...
    def on_failure(self, *_: object) -> None: ...

    @receive(Count)
    def count(self, message: Count) -> int:
        assert_type(self.take_reply(message), Reply[int])
        return 1

class Later(Counter):
    @receive(Count)
    async def count_async(self, message: Count) -> int:
        return 1

    @receive(Note)
    async def note(self, message: Note) -> None: ...

class Deferring(Counter):
    @receive(Count)
    def count_deferred(self, message: Count) -> None:
        self.take_reply(message).set(3)

    @receive(Note)
    def note(self, message: Note) -> None: ...

async def measure(word: str, *, times: int = 1) -> int:
    return times
async def words() -> AsyncGenerator[str, None]:
    yield "x"

def on_a_thread(system: ActorSystem) -> None:
    assert_type(system.run(measure, "x", times=2), Call[int])
    assert_type(system.run(measure, "x").get(), int)
    assert_type(next(system.iterate(words())), str)
    with host_on_thread(system, system) as it:
        assert_type(it, ActorSystem)

async def main(system: ActorSystem) -> None:
    assert_type(await system.run(measure, "x").or_cancel(), int)
    ref = await system.spawn(Counter, 1)
    assert_type(ref, ActorRef[Counter])
    assert_type(ref.ask(Count("x")), Reply[int])
    assert_type(await ref.ask(Count("x")), int)
    assert_type(ref.ask(Count("x"), block=True), int)
    assert_type(ref.ask(Count("x")).get(timeout=1), int)
    assert_type(await ref.wait_stopped(), Exit)
    assert_type(ref.stop(block=False), Reply[bool])
    ref.tell(Note())
    ref.tell("anything")
"""

REFUSED = [
    "def count(self, message: Count) -> str: return ''",
    "async def count(self, message: Count) -> str: return ''",
    "def count(self, message: Note) -> int: return 1",
    "async def count(self, message: Note) -> int: return 1",
    "def count(self) -> int: return 1",
]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Check a source against the packages as they stand in this tree, and return the lines that have errors."""
    root = tmp_path_factory.mktemp("typing")
    (root / "quiesce").mkdir()
    for package in ("actors", "protocol"):
        (root / "quiesce" / package).symlink_to(ROOT / package)
    options = ["--strict", "--namespace-packages", "--explicit-package-bases", f"--cache-dir={root / 'cache'}"]

    def check(source: str) -> dict[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MYPYPATH", str(root))
            output, _, _ = mypy_api.run([*options, "-c", PRELUDE + source])
        errors = re.findall(r"^<string>:(\d+): error: (.*)$", output, re.MULTILINE)
        return {int(line) - PRELUDE.count("\n"): error for line, error in errors}

    return check


def test_a_type_checker_knows_the_reply_of_every_message(check):
    assert check(ACCEPTED) == {}


def test_a_type_checker_refuses_a_receiver_that_does_not_answer_its_message(check):
    source = "".join(
        f"class Wrong{number}(TrioActor):\n    @receive(Count)\n    {method}\n" for number, method in enumerate(REFUSED)
    )
    errors = check(source)
    assert {(line - 1) // 3 for line in errors} == set(range(len(REFUSED)))


def test_a_type_checker_checks_the_arguments_of_spawn(check):
    source = """
class Counter(TrioActor):
    def __init__(self, start: int) -> None:
        super().__init__()

def main(system: ActorSystem) -> None:
    system.spawn(Counter, "one")
    system.spawn(Counter, 1)
"""
    assert list(check(source)) == [7]


def test_a_type_checker_knows_specs_requests_to_supervisors_and_their_answers(check):
    source = """
from functools import partial
from typing import Any
from quiesce.actors.kernel import (
    Backoff, ChildCounts, ChildInfo, ChildSpec, CountChildren, DeleteChild, DynamicSupervisor, Intensity, StartChild,
    Supervisor, WhichChildren,
)

class Counter(TrioActor):
    def __init__(self, start: int) -> None:
        super().__init__()

async def main(system: ActorSystem) -> None:
    inner = partial(Supervisor, [ChildSpec("a", partial(Counter, 1))], strategy="one_for_all")
    specs = [ChildSpec("c", partial(Counter, 1), restart="transient", shutdown=2), ChildSpec(2, inner)]
    ref = await system.spawn(Supervisor, specs, strategy="rest_for_one", intensity=Intensity(3, 5), backoff=Backoff())
    assert_type(ref, ActorRef[Supervisor])
    assert_type(await ref.ask(StartChild(specs[0])), ActorRef[Any] | None)
    assert_type(ref.ask(DeleteChild("c")), Reply[None])
    assert_type(await ref.ask(WhichChildren()), tuple[ChildInfo, ...])
    assert_type(await (await system.spawn(DynamicSupervisor)).ask(CountChildren()), ChildCounts)
"""
    assert check(source) == {}


def test_a_type_checker_refuses_a_wrong_spec(check):
    source = """
from quiesce.actors.kernel import ChildSpec, Supervisor
ChildSpec("a", TrioActor)
ChildSpec("a", TrioActor, restart="always")
ChildSpec("a", (TrioActor, 1))
def main(system: ActorSystem) -> None:
    system.spawn(Supervisor, [TrioActor])
    system.spawn(Supervisor, [], strategy="one_for_none")
"""
    assert list(check(source)) == [4, 5, 7, 8]
