"""Pykka's proxies over a `TrioActor`."""

from __future__ import annotations

import pykka
import pytest
import trio

from quiesce.actors.kernel import ActorDeadError, ActorSystem, BlockingCallError, TrioActor


class Box:
    pykka_traversable = True

    def __init__(self):
        self.content = "empty"

    def fill(self, content):
        self.content = content
        return self


class Shelf(TrioActor):
    def __init__(self):
        super().__init__()
        self.width = 10
        self.box = Box()

    def widen(self, by, *, times=1):
        self.width += by * times
        return self.width

    async def widen_later(self, by):
        await trio.lowlevel.checkpoint()
        self.width += by
        return self.width

    def fail(self):
        raise ValueError("no")


async def test_attributes_and_calls_of_def_and_async_methods_give_replies():
    async with ActorSystem() as system:
        proxy = (await system.spawn(Shelf)).proxy()
        assert await proxy.width == 10
        assert await proxy.widen(5, times=2) == 20
        assert await proxy.widen_later(1) == 21
        assert await proxy.box.content == "empty"
        await proxy.box.fill("book")
        assert await proxy.box.content == "book"
        with pytest.raises(ValueError, match="no"):
            await proxy.fail()
        with pytest.raises(AttributeError):
            proxy.depth  # noqa: B018


async def test_deferred_proxy_calls_are_tells():
    async with ActorSystem() as system:
        ref = await system.spawn(Shelf)
        proxy = ref.proxy()
        proxy.widen.defer(1)
        assert await proxy.width == 11
        proxy.fail.defer()
        assert isinstance((await ref.wait_stopped()).error, ValueError)
        with pytest.raises(ActorDeadError):
            ref.proxy()


async def test_setting_an_attribute_on_the_loops_thread_raises_and_an_ask_does_it():
    async with ActorSystem() as system:
        ref = await system.spawn(Shelf)
        proxy = ref.proxy()
        with pytest.raises(BlockingCallError):
            proxy.width = 3
        with pytest.raises(BlockingCallError):
            proxy.box.content = "lost"
        assert await proxy.width == 10
        await ref.ask(pykka.messages.ProxySetAttr(("box", "content"), "found"))
        assert await proxy.box.content == "found"


def test_from_a_thread_a_proxy_works_as_in_pykka():
    with ActorSystem.on_thread() as system:
        proxy = system.spawn(Shelf).get().proxy()
        proxy.width = 3
        proxy.box.content = "book"
        assert proxy.width.get() == 3
        assert proxy.box.content.get() == "book"
        assert pykka.get_all([proxy.widen(1), proxy.widen_later(1)]) == [4, 5]
        assert isinstance(proxy, pykka.ActorProxy)
        assert proxy.actor_ref.stop() is True


async def test_an_actor_may_defer_work_to_itself_through_a_proxy():
    class Counting(TrioActor):
        def __init__(self):
            super().__init__()
            self.left = 10
            self._later = self.actor_ref.proxy()

        def count(self):
            self.left -= 1
            if self.left:
                self._later.count.defer()

    async with ActorSystem() as system:
        proxy = (await system.spawn(Counting)).proxy()
        await proxy.count()
        while await proxy.left:
            pass
