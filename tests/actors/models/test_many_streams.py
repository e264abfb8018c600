"""Two hundred agents stream from one provider, through one model of each dialect: no delta is lost or crossed, and a
cancel of half of them touches nobody else.
"""

from __future__ import annotations

from functools import partial

import trio

from quiesce.actors import MemoryStore, ModelDelta, Runtime
from quiesce.protocol.events import AssistantMessage, text_of
from quiesce.protocol.model import TextDelta

AGENTS = 200
PIECES = 10


def words_for(name):
    """What the provider says to an agent: pieces that nobody else is told."""
    return "".join(f"{name}.{number:04d}." for number in range(PIECES))


async def watch(agent, heard, halfway):
    """Collect the text that is streamed to an agent; `halfway` is told when the first piece has come."""
    async with agent.watch() as happenings:
        await agent.follow_up(f"I am {agent.session_id}")
        async for what in happenings:
            if isinstance(what, ModelDelta):
                if isinstance(what.delta, TextDelta):
                    heard[agent.session_id].append(what.delta.text)
                    halfway(agent.session_id)
            elif what.type == "turn/end":
                return


async def test_two_hundred_agents_stream_at_once_and_half_of_them_are_cancelled(fake_provider, at_provider):
    fp = fake_provider
    names = [f"agent{number:03d}" for number in range(AGENTS)]
    cancelled, others = names[::2], names[1::2]
    heard = {name: [] for name in names}
    begun, all_begun = set(), trio.Event()

    def halfway(name):
        begun.add(name)
        if len(begun) == AGENTS:
            all_begun.set()

    def reply(request):
        name = request.last_text.removeprefix("I am ")
        words = words_for(name)
        first = len(words) // PIECES
        return [fp.Text(words[:first]), fp.Text(words[first:], pieces=PIECES - 1, gate=f"go {name in cancelled}")]

    async with (
        fp.FakeProvider(reply) as provider,
        at_provider(provider, "chat") as chat,
        at_provider(provider, "responses") as responses,
        at_provider(provider, "anthropic") as anthropic,
        Runtime.open(MemoryStore()) as runtime,
        trio.open_nursery() as nursery,
    ):
        models = (chat, responses, anthropic)
        agents = {name: await runtime.agent(name, model=models[at % 3]) for at, name in enumerate(names)}
        for agent in agents.values():
            nursery.start_soon(watch, agent, heard, halfway)
        await all_begun.wait()
        assert provider.open_connections == AGENTS
        async with trio.open_nursery() as cancelling:
            for name in cancelled:
                cancelling.start_soon(partial(agents[name].cancel, "enough"))
        await provider.disconnected(len(cancelled))
        assert provider.open_connections == len(others)
        provider.open("go False")
        turns = {name: await agent.wait() for name, agent in agents.items()}
        for name in others:
            assert turns[name].reason.kind == "completed"
            assert "".join(heard[name]) == turns[name].text == words_for(name)
        for name in cancelled:
            assert turns[name].reason.kind == "aborted"
            assert "".join(heard[name]) == turns[name].text == words_for(name)[: len(words_for(name)) // PIECES]
        for name in names:
            log = await runtime.store.read(name)
            (message,) = [event.body for event in log if isinstance(event.body, AssistantMessage)]
            assert text_of(message.message.content) == turns[name].text
            assert bool(message.interrupted) is (name in cancelled)
        assert len(provider.requests) == AGENTS
        assert provider.refused == []
        for model in models:
            await model.aclose()
        await provider.closed()
        assert provider.disconnects == len(cancelled)
