"""The handle a user holds: its face, what it refuses, reading a log as it grows, and the end of an agent."""

from __future__ import annotations

import pytest
import trio
from pykka import ActorDeadError
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import InvalidInput, MemoryStore, RetryPolicy, ScriptedModel, call, say, tool
from quiesce.protocol.errors import SessionExists, SessionNotFound, StoreFull
from quiesce.protocol.events import OpaqueBlock, ReasoningBlock, TextBlock, ToolCallBlock, UserMessage

EXAMPLE = """\
import trio
from quiesce.actors import Runtime, ScriptedModel, call, say, tool

@tool(parallel=True)
async def read_file(path: str) -> str:
    "Read a text file."
    return await trio.Path(path).read_text()

async def main():
    model = ScriptedModel([say("Reading.", call(read_file, path="a.txt"), call(read_file, path="b.txt")), say("Done.")])
    async with Runtime.open("agents.db") as runtime:            # or Runtime.open(MemoryStore())
        agent = await runtime.agent("reviewer", model=model, tools=[read_file])   # creates, or resumes and repairs
        turn = await agent.send("Compare the two files.")       # the turn's end; TurnFailed carries the turn and,
        print(turn.reason, turn.text)                           # as its cause, the original failure

trio.run(main)
"""


def test_the_first_example_works_as_it_is_written_and_can_be_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    for _ in range(2):
        exec(compile(EXAMPLE, "example.py", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == "completed Done.\n"


# --- input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        [],
        [TextBlock(" ")],
        "a\0b",
        "\ud800",
        5,
        None,
        b"bytes",
        ["text"],
        {"type": "text"},
        [TextBlock(5)],
        [TextBlock("fine"), ToolCallBlock("c1", "work", "{}")],
        [ReasoningBlock("hm")],
        [OpaqueBlock({})],
        [OpaqueBlock({"type": 5})],
        [OpaqueBlock({"type": "text", "text": "in disguise"})],
        [OpaqueBlock({"type": "tool-call", "id": "c1", "name": "work", "arguments": "{}"})],
        [OpaqueBlock({"type": "image", "size": float("nan")})],
    ],
    ids=repr,
)
@pytest.mark.parametrize("way", ["send", "follow_up", "steer", "inject"])
async def test_input_that_cannot_be_sent_is_refused_before_anything_is_stored(agents, way, content):
    async with agents.at_work([say("hello")]) as desk:
        with pytest.raises(InvalidInput):
            await getattr(desk.agent, way)(content)
        assert await desk.log() == []
        assert await desk.agent.wait() is None
        assert (await desk.agent.send("hi")).text == "hello"


async def test_content_blocks_reach_the_model_as_they_are(agents):
    image = OpaqueBlock({"type": "image", "url": "a.png"})
    async with agents.at_work([say("a cat")]) as desk:
        await desk.agent.send([image])
        assert desk.model.requests[0].messages[0].content == (image,)


async def test_a_receipt_names_the_message_and_can_be_waited_for_more_than_once(agents):
    async with agents.at_work([say("hello")]) as desk:
        receipt = await desk.agent.follow_up("hi")
        assert await receipt.turn == await receipt.turn
        messages = [event.body for event in await desk.log() if isinstance(event.body, UserMessage)]
        assert [message.id for message in messages] == [receipt.message_id]


async def test_cancelling_the_wait_in_send_does_not_cancel_the_turn(agents):
    model = agents.StallingModel([say("hello")])
    async with agents.at_work([], model=model) as desk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.send, "hi")
            await model.stalled.wait()
            nursery.cancel_scope.cancel()
        model.go_on.set()
        turn = await desk.agent.wait()
        assert (str(turn.reason), turn.text) == ("completed", "hello")


async def test_wait_gives_the_last_turn_once_none_is_running_or_due(agents):
    async with agents.at_work([say("1"), say("2"), say("3")]) as desk:
        for text in ("one", "two", "three"):
            await desk.agent.follow_up(text)
        assert (await desk.agent.wait()).text == "3"


# --- reading -----------------------------------------------------------------------------------------------------


async def test_events_gives_the_log_from_its_start_and_then_what_is_committed(agents):
    async with agents.at_work([say("1"), say("2")]) as desk:
        await desk.agent.send("one")
        seen = []

        async def read():
            async for event in desk.agent.events():
                seen.append(event)  # noqa: PERF401 - it is looked at before the end

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            assert seen == await desk.log()
            await desk.agent.send("two")
            await wait_all_tasks_blocked()
            assert seen == await desk.log()
            await desk.agent.close()
        assert [event.seq for event in seen] == list(range(len(seen)))


async def test_events_can_begin_anywhere_also_beyond_the_end(agents):
    async with agents.at_work([say("1"), say("2")]) as desk:
        await desk.agent.send("one")
        end = len(await desk.log())
        seen = {start: [] for start in (3, end, end + 2)}

        async def read(start):
            seen[start].extend([event.seq async for event in desk.agent.events(start)])

        async with trio.open_nursery() as nursery:
            for start in seen:
                nursery.start_soon(read, start)
            await wait_all_tasks_blocked()
            await desk.agent.send("two")
            await desk.agent.close()
        total = len(await desk.log())
        assert seen == {start: list(range(start, total)) for start in seen}


async def test_events_ends_when_the_agent_is_closed(agents):
    async with agents.at_work([]) as desk, trio.open_nursery() as nursery:
        ended = []

        async def read():
            ended.extend([event async for event in desk.agent.events()])
            ended.append("ended")

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await desk.agent.close()
        await wait_all_tasks_blocked()
        assert ended == ["ended"]


async def test_two_readers_of_events_see_the_same_and_one_that_leaves_disturbs_nobody(agents):
    async with agents.at_work([say(str(at)) for at in range(5)]) as desk:
        seen, left = [], []

        async def read():
            seen.extend([event.seq async for event in desk.agent.events()])

        async def leave():
            events = desk.agent.events()
            left.append((await anext(events)).seq)
            await events.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(leave)
            await wait_all_tasks_blocked()
            for at in range(5):
                await desk.agent.send(str(at))
            assert len(desk.agent._session._cell.actor._observers) == 2  # the driver and the reader that stayed
            await desk.agent.close()
        assert left == [0]
        assert seen == list(range(len(await desk.log())))


async def test_a_reader_that_does_not_take_its_events_holds_up_nobody(agents):
    async with agents.at_work([say(str(at)) for at in range(5)]) as desk:
        events = desk.agent.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.send, "0")
            await anext(events)
        for at in range(1, 5):
            await desk.agent.send(str(at))
        await desk.agent.close()
        assert [event.seq async for event in events] == list(range(1, len(await desk.log())))


@pytest.mark.parametrize("from_seq", [-1, 1.5, "0", True, None])
async def test_events_from_where_none_can_be_are_refused(agents, from_seq):
    async with agents.at_work([]) as desk:
        with pytest.raises(InvalidInput, match="from_seq"):
            await anext(desk.agent.events(from_seq))


async def test_statistics_count_batches(agents):
    @tool
    async def work() -> str:
        """Works."""
        return "done"

    async with agents.at_work([say("", call(work)), say("", call(work)), say("ok")], tools=[work]) as desk:
        await desk.agent.send("go")
        assert (await desk.agent.statistics()).batches == 2


# --- fork --------------------------------------------------------------------------------------------------------


@tool(parallel=True)
async def share(of: str) -> str:
    """Works beside others."""
    return f"did {of}"


async def test_g9_a_fork_at_every_event_is_sound_and_goes_on_while_its_parent_runs(agents):
    """G1, G6, G9: parallel calls, a failed step and a turn that is still open are cut everywhere."""
    gate, running, ran = trio.Event(), trio.Event(), []

    @tool(parallel=True)
    async def wait(of: str) -> str:
        """Waits, when it is asked to stay."""
        ran.append(of)
        if of.startswith("stay"):
            running.set()
            await gate.wait()
        return f"did {of}"

    def calls(*names):
        return say("on it", *(call(wait, call_id=name, of=name) for name in names))

    script = [calls("a", "b", "c"), say("done"), calls("d"), calls("e", "stay-f", "stay-g"), say("at last")]
    async with agents.at_work(script, tools=[wait]) as desk:
        await desk.agent.send("one")
        two = await desk.agent.follow_up("two")
        await running.wait()
        await wait_all_tasks_blocked()
        parent, so_far = await desk.log(), list(ran)
        for at in range(len(parent)):
            child = await desk.agent.fork(f"child-{at}", at=at)
            log = await desk.store.read(child)
            assert (child, list(log[: at + 1])) == (f"child-{at}", parent[: at + 1])
            assert agents.word(log[at + 1]) == "seed"
            model = ScriptedModel([say("hello"), say("hello"), say("hello")])
            agent = await desk.runtime.agent(child, model=model, tools=[wait])
            assert (await agent.send("go on")).text == "hello"
            await agents.check_all(desk.store, model)
        assert await desk.log() == parent
        assert ran == so_far
        gate.set()
        assert (await two.turn).text == "at last"


async def test_a_fork_labels_what_the_parent_may_have_run_with_care(agents):
    async with agents.at_work([say("", call(share, call_id="c1", of="it")), say("done")], tools=[share]) as desk:
        await desk.agent.send("go")
        record = next(event.seq for event in await desk.log() if event.type == "tool/call")
        texts = []
        for at in (record - 1, record):
            log = await desk.store.read(await desk.agent.fork(at=at))
            result = next(event.body for event in log if event.type == "tool/result")
            texts.append((result.error.code, "original" in result.message.content[0].text))
        assert texts == [("TOOL_NOT_STARTED", True), ("TOOL_OUTCOME_UNKNOWN", True)]


async def test_a_fork_is_named_when_no_name_is_given_and_remembers_its_parent(agents):
    async with agents.at_work([say("hello")]) as desk:
        await desk.agent.send("hi")
        child = await desk.agent.fork(at=2)
        assert child.startswith("s-")
        header = (await desk.store.info(child)).header
        assert (header["parent"], header["parentSeq"]) == ("s", 2)


@pytest.mark.parametrize("at", [-1, 1000, 1.5, "2", True])
async def test_a_fork_at_an_event_that_does_not_exist_is_refused_and_makes_no_session(agents, at):
    async with agents.at_work([say("hello")]) as desk:
        await desk.agent.send("hi")
        with pytest.raises(InvalidInput, match="at: "):
            await desk.agent.fork("child", at=at)
        assert [info.id for info in await desk.store.list()] == ["s"]


@pytest.mark.parametrize("new_id", ["", "a\0", 5, "x" * 201])
async def test_a_fork_by_a_name_that_cannot_be_is_refused(agents, new_id):
    async with agents.at_work([say("hello")]) as desk:
        await desk.agent.send("hi")
        with pytest.raises(InvalidInput):
            await desk.agent.fork(new_id)
        assert [info.id for info in await desk.store.list()] == ["s"]


async def test_a_fork_of_an_empty_log_or_onto_a_session_that_exists_is_refused(agents):
    async with agents.at_work([say("hello")]) as desk:
        with pytest.raises(InvalidInput, match="no event to fork at"):
            await desk.agent.fork()
        await desk.agent.send("hi")
        with pytest.raises(SessionExists):
            await desk.agent.fork("s")
        with pytest.raises(SessionNotFound):
            await desk.runtime.fork("nobody")


async def test_a_fork_that_the_store_refuses_leaves_no_session_behind(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello")], store=store) as desk:
        await desk.agent.send("hi")
        store.refuse = lambda _: StoreFull("no room")
        with pytest.raises(StoreFull):
            await desk.agent.fork("child")
        assert [info.id for info in await store.list()] == ["s"]
        store.refuse = lambda _: None
        assert await desk.agent.fork("child") == "child"


async def test_a_fork_that_is_cancelled_is_there_whole_or_not_at_all(agents):
    store = agents.SteppedStore()
    async with agents.at_work([say("hello")], store=store) as desk:
        await desk.agent.send("hi")
        store.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.fork, "child")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            store.let_go()
        assert (await store.info("child")).last_seq == len(await desk.log())
        assert (await store.info("child")).holder is None


# --- the end -----------------------------------------------------------------------------------------------------


def stops(agent):
    """The actors of `agent`, in the order in which they will have stopped."""
    order = []
    for name in ("session", "driver", "scheduler"):
        getattr(agent, f"_{name}").wait_stopped().on_done(lambda _, name=name: order.append(name))
    return order


async def test_driver_scheduler_and_session_stop_in_this_order(agents):
    async with agents.at_work([say("hello")]) as desk:
        order = stops(desk.agent)
        await desk.agent.send("hi")
        await desk.agent.close()
        assert order == ["driver", "scheduler", "session"]


async def test_an_agent_that_is_closed_in_a_turn_ends_it_as_aborted_and_keeps_its_queue(agents):
    store, running = MemoryStore(), trio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        running.set()
        await trio.sleep_forever()

    async with agents.at_work([say("", call(wait, call_id="c1"))], store=store, tools=[wait]) as desk:
        order = stops(desk.agent)
        receipt = await desk.agent.follow_up("go")
        await running.wait()
        await desk.agent.follow_up("later")
        await desk.agent.close()
        assert order == ["driver", "scheduler", "session"]
        assert (await receipt.turn).reason.cause == "closed"
        assert (await desk.timeline())[-3:] == ["result c1 ABORTED", "end step 1.1", "end turn 1 aborted"]
    async with agents.at_work([say("1"), say("2")], store=store) as desk:
        await desk.agent.send("now")
        assert await desk.timeline("user") == ["user go", "user later", "user now"]


async def test_closing_twice_or_from_two_tasks_does_nothing_more(agents):
    async with agents.at_work([]) as desk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.agent.close)
            nursery.start_soon(desk.agent.close)
        await desk.agent.close()
        assert repr(desk.agent) == "<Agent 's' closed>"


async def test_a_closed_agent_frees_its_lease_and_its_session_can_be_opened_again(agents):
    async with agents.at_work([say("1")]) as desk:
        await desk.agent.send("one")
        await desk.agent.close()
        again = await desk.runtime.agent("s", model=ScriptedModel([say("2")]))
        assert (await again.send("two")).number == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda agent: agent.send("hi"),
        lambda agent: agent.inject("hi"),
        lambda agent: agent.cancel(),
        lambda agent: agent.wait(),
        lambda agent: agent.history(),
        lambda agent: agent.statistics(),
        lambda agent: anext(agent.events()),
    ],
    ids=["send", "inject", "cancel", "wait", "history", "statistics", "events"],
)
async def test_a_closed_agent_says_so(agents, use):
    async with agents.at_work([]) as desk:
        await desk.agent.close()
        with pytest.raises(ActorDeadError):
            await use(desk.agent)


async def test_a_cancelled_close_still_stops_the_actors_and_the_turn_is_repaired_on_resume(agents):
    store, running, ended = MemoryStore(), trio.Event(), []

    @tool
    async def stubborn() -> str:
        """Takes its time when it is cancelled."""
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            ended.append("body")

    async with agents.at_work([say("", call(stubborn, call_id="c1"))], store=store, tools=[stubborn]) as desk:
        await desk.agent.follow_up("go")
        await running.wait()
        with trio.CancelScope() as scope:
            scope.cancel()
            await desk.agent.close()
        assert ended == ["body"]
        assert not desk.agent.is_alive()
    async with agents.at_work([say("hello")], store=store) as desk:
        assert (await desk.timeline())[-1] in ("end turn 1 interrupted", "end turn 1 aborted")
        assert (await desk.agent.send("again")).text == "hello"


async def test_an_agent_whose_actor_crashed_goes_on_behind_the_same_handle(agents):
    async with agents.at_work([say("late").after(1000), say("hello")]) as desk:
        receipt = await desk.agent.follow_up("go")
        await wait_all_tasks_blocked()
        desk.agent._driver._cell.crash(ValueError("a crash"))
        with pytest.raises(ActorDeadError):
            await receipt.turn
        assert desk.agent.is_alive()
        assert (await desk.agent.send("again")).text == "hello"
        assert "end turn 1 interrupted" in await desk.timeline()


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"base_delay": -1},
        {"base_delay": float("nan")},
        {"max_delay": "1"},
        {"max_retry_after": None},
    ],
    ids=str,
)
def test_a_retry_policy_that_cannot_be_is_refused(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        RetryPolicy(**options)
