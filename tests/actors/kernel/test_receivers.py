"""Which method handles which message."""

from __future__ import annotations

import pytest
from attrs import frozen

from quiesce.actors.kernel import ActorSystem, Message, TrioActor, UnhandledMessageError, receive


@frozen
class Count(Message[int]):
    word: str


@frozen
class CountTwice(Count):
    pass


@frozen
class Unknown(Message[int]):
    pass


class Counter(TrioActor):
    @receive(Count)
    def count(self, message: Count) -> int:
        return len(message.word)

    def on_receive(self, message):
        return f"untyped {message}"


async def test_a_typed_message_goes_to_its_receiver_and_any_other_to_on_receive():
    async with ActorSystem() as system:
        ref = await system.spawn(Counter)
        assert await ref.ask(Count("abc")) == 3
        assert await ref.ask("hello") == "untyped hello"
        assert await ref.ask(None) == "untyped None"


async def test_a_subclass_of_a_message_type_finds_the_receiver_of_its_base():
    async with ActorSystem() as system:
        ref = await system.spawn(Counter)
        assert await ref.ask(CountTwice("abc")) == 3


async def test_a_receiver_of_the_exact_type_comes_before_that_of_a_base():
    class Better(Counter):
        @receive(CountTwice)
        def twice(self, message: CountTwice) -> int:
            return 2 * len(message.word)

    async with ActorSystem() as system:
        ref = await system.spawn(Better)
        assert await ref.ask(CountTwice("abc")) == 6
        assert await ref.ask(Count("abc")) == 3


async def test_overriding_the_method_overrides_the_receiver_without_a_decorator():
    class Zero(Counter):
        def count(self, message):
            return 0

    async with ActorSystem() as system:
        assert await (await system.spawn(Zero)).ask(Count("abc")) == 0
        assert await (await system.spawn(Counter)).ask(Count("abc")) == 3


async def test_a_subclass_may_name_another_method_for_a_type():
    class Other(Counter):
        @receive(Count)
        async def other(self, message: Count) -> int:
            return -1

    async with ActorSystem() as system:
        assert await (await system.spawn(Other)).ask(Count("abc")) == -1


async def test_one_method_may_receive_several_types():
    class Both(TrioActor):
        @receive(Count)
        @receive(Unknown)
        def both(self, message: Count | Unknown) -> int:
            return 7

    async with ActorSystem() as system:
        ref = await system.spawn(Both)
        assert await ref.ask(Count("a")) == await ref.ask(Unknown()) == 7


async def test_asking_a_typed_message_that_nobody_receives_is_an_error_for_the_asker_alone():
    class Plain(TrioActor):
        pass

    async with ActorSystem() as system:
        ref = await system.spawn(Plain)
        with pytest.raises(UnhandledMessageError, match="Plain has no receiver for Unknown"):
            await ref.ask(Unknown())
        ref.tell(Unknown())
        assert await ref.ask("untyped") is None
        assert ref.is_alive()


def test_receive_takes_nothing_but_message_types():
    with pytest.raises(TypeError, match="subclass of Message"):
        receive(int)  # type: ignore[type-var]
