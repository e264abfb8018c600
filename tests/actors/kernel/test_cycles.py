"""Handlers that would wait for each other for ever are told so."""

from __future__ import annotations

import pykka
import pytest
import trio
import trio.testing

from quiesce.actors.kernel import ActorSystem, AskCycleError, SelfWaitError, TrioActor


class Passing(TrioActor):
    """Asks the first actor of a route with the rest of it; the end of the route answers with its name."""

    def __init__(self, name, first=None):
        super().__init__()
        self.name = name
        self.first = first

    async def on_receive(self, route):
        if self.first is not None:
            await self.first()
        if not route:
            return self.name
        return await route[0].ask(route[1:])

    async def wait_for_the_end_of(self, ref):
        return await ref.wait_stopped()

    async def stop_other(self, ref):
        return await ref.stop()


async def test_an_actor_that_asks_itself_is_told_so():
    async with ActorSystem() as system:
        ref = await system.spawn(Passing, "a")
        with pytest.raises(SelfWaitError, match="Passing"):
            await ref.ask([ref])
        assert await ref.ask([]) == "a"


@pytest.mark.parametrize("length", [2, 3, 10])
async def test_a_ring_of_asks_is_told_to_the_last_who_would_wait(length):
    async with ActorSystem() as system:
        refs = [await system.spawn(Passing, str(number)) for number in range(length)]
        with pytest.raises(AskCycleError, match="waits for") as caught:
            await refs[0].ask([*refs[1:], refs[0]])
        assert str(caught.value).count("waits for") == length
        assert str(caught.value).count(refs[-1].actor_urn) == 2
        for ref in refs:
            assert ref.is_alive()
            assert await ref.ask([]) == str(refs.index(ref))


class Endless(TrioActor):
    """Asks the other one whatever it is asked."""

    inbox_limit = 5
    inbox_policy = "wait"

    def __init__(self):
        super().__init__()
        self.other = self.actor_ref

    async def on_receive(self, message):
        return await self.other.ask(message, block=False)


@pytest.mark.parametrize("length", [1, 2, 3])
async def test_the_ask_that_closes_a_ring_is_not_handled_after_it_was_refused(length):
    async with ActorSystem() as system:
        refs = [await system.spawn(Endless) for _ in range(length)]
        for ref, other in zip(refs, [*refs[1:], refs[0]], strict=True):
            ref._cell.actor.other = other
        with pytest.raises(SelfWaitError):
            await refs[0].ask("round and round", block=False)
        await trio.testing.wait_all_tasks_blocked()
        assert [ref.statistics().handled for ref in refs] == [1] * length
        assert [ref.statistics().inbox_length for ref in refs] == [0] * length


async def test_a_refused_ask_that_somebody_else_waits_for_is_handled():
    answers = []

    class Sharing(TrioActor):
        async def on_receive(self, message):
            if message == "inner":
                return message
            shared = self.actor_ref.ask("inner", block=False)
            shared.on_done(lambda reply: answers.append(reply.get()))
            return await shared

    async with ActorSystem() as system:
        ref = await system.spawn(Sharing)
        with pytest.raises(SelfWaitError):
            await ref.ask("outer", block=False)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["inner"]


async def test_two_that_ask_each_other_at_the_same_time_both_end():
    async def meet():
        await both_running.wait()

    both_running = trio.Event()
    ends = []

    async def ask(one, other):
        try:
            ends.append(await one.ask([other]))
        except AskCycleError:
            ends.append("cycle")

    async with ActorSystem() as system, trio.open_nursery() as nursery:
        a, b = [await system.spawn(Passing, name, meet) for name in "ab"]
        nursery.start_soon(ask, a, b)
        nursery.start_soon(ask, b, a)
        await trio.testing.wait_all_tasks_blocked()
        both_running.set()
    assert sorted(ends) == ["b", "cycle"] or sorted(ends) == ["a", "cycle"]


async def test_asks_that_join_at_one_actor_are_no_ring():
    async with ActorSystem() as system:
        a, b, c = [await system.spawn(Passing, name) for name in "abc"]
        replies = [a.ask([b, c]), b.ask([c]), c.ask([]), a.ask([c])]
        assert [await reply for reply in replies] == ["c", "c", "c", "c"]


async def test_waiting_for_the_end_of_an_actor_that_waits_for_this_one_is_a_ring_too():
    async with ActorSystem() as system:
        a, b = [await system.spawn(Passing, name) for name in "ab"]
        waiting = a.proxy().wait_for_the_end_of(b)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AskCycleError):
            await b.ask(pykka.messages.ProxyCall(("stop_other",), (a,), {}))
        assert not waiting.done()
        await b.stop()
        await waiting


async def test_a_ring_across_two_systems_of_one_loop_is_found():
    async with ActorSystem() as one, ActorSystem() as two:
        a, b = await one.spawn(Passing, "a"), await two.spawn(Passing, "b")
        with pytest.raises(AskCycleError):
            await a.ask([b, a])


async def test_an_answer_that_is_taken_over_breaks_the_ring():
    class Later(Passing):
        def on_receive(self, route):
            reply = self._cell.take_reply(route)
            self.start_soon(self._pass_on, route, reply)

        async def _pass_on(self, route, reply):
            reply.set(await route[0].ask(route[1:]) if route else self.name)

    async with ActorSystem() as system:
        a, b = await system.spawn(Later, "a"), await system.spawn(Passing, "b")
        assert await a.ask([b, a]) == "a"


async def test_a_blocking_wait_in_a_handler_raises_instead_of_hanging():
    class Blocking(TrioActor):
        def on_receive(self, message):
            return self.actor_ref.ask("next", block=False).get() if message == "first" else message

    async with ActorSystem() as system:
        ref = await system.spawn(Blocking)
        with pytest.raises(RuntimeError, match="await the reply"):
            await ref.ask("first")
        assert await ref.ask("next") == "next"


class Ending(TrioActor):
    """Awaits what it was given in its async hooks, and writes down what was wrong with that."""

    def __init__(self, refused, on_start=None, on_stop=None):
        super().__init__()
        self.refused = refused
        self.awaited = {"on_start": on_start, "on_stop": on_stop}

    async def on_start(self):
        await self._wait_in("on_start")

    async def on_stop(self):
        await self._wait_in("on_stop")

    async def _wait_in(self, hook):
        if self.awaited[hook] is not None:
            try:
                await self.awaited[hook](self)
            except SelfWaitError as error:
                self.refused.append(type(error))


@pytest.mark.parametrize("wait", ["aclose", "stop", "wait_stopped"])
@pytest.mark.parametrize("between", [0, 1])
async def test_an_exit_hook_that_asks_who_waits_for_the_end_of_its_actor_is_told_so(wait, between):
    async def end_it():
        if wait == "wait_stopped":
            ref.stop(block=False)
            await ref.wait_stopped()
        elif wait == "stop":
            await ref.stop(block=False)
        else:
            await ref.aclose()

    async def ask_round(_ending):
        await route[0].ask(route[1:], block=False)

    refused = []
    with trio.fail_after(20):
        async with ActorSystem() as system:
            waiting = await system.spawn(Passing, "waiting", end_it)
            route = [await system.spawn(Passing, str(number)) for number in range(between)] + [waiting]
            ref = await system.spawn(Ending, refused, on_stop=ask_round)
            assert await waiting.ask([], block=False) == "waiting"
            assert not ref.is_alive()
    assert refused == [AskCycleError]


async def test_an_exit_hook_that_waits_for_the_end_of_its_own_actor_is_told_so():
    refused = []
    with trio.fail_after(20):
        async with ActorSystem() as system:
            ref = await system.spawn(Ending, refused, on_stop=lambda self: self.actor_ref.wait_stopped())
            await ref.aclose()
    assert refused == [SelfWaitError]


@pytest.mark.parametrize("named", [False, True])
async def test_an_on_start_that_asks_who_waits_for_the_spawn_of_its_actor_is_told_so(named):
    async def spawn_it():
        if refused:  # the message of the ask that was given up
            return
        spawn = system.options(name="spawned").spawn if named else system.spawn
        await spawn(Ending, refused, on_start=lambda _: spawner.ask([], block=False))

    refused = []
    with trio.fail_after(20):
        async with ActorSystem() as system:
            spawner = await system.spawn(Passing, "spawner", spawn_it)
            assert await spawner.ask([], block=False) == "spawner"
    assert refused == [AskCycleError]


async def test_hooks_that_ask_who_does_not_wait_for_them_are_answered():
    async def ask(_ending):
        answers.append(await other.ask([], block=False))

    answers = []
    async with ActorSystem() as system:
        other = await system.spawn(Passing, "other")
        await (await system.spawn(Ending, [], on_start=ask, on_stop=ask)).aclose()
    assert answers == ["other", "other"]
