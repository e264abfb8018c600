"""Cases from public bug reports that are logs: `tests/cases/*.events.jsonl`, and damaged files `*.raw.jsonl`.

The neutral events of a case are mapped onto ours, inside turn 1, step 1, so that the neutral event number n is our
event n + 1; but a question makes two, since quiesce records a call before it has a person asked about it. What a model
asked for and a tool gave back enters as in a running agent: made storable.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quiesce.actors import AlreadyDecided, Runtime, ScriptedModel, say, tool
from quiesce.actors.results import to_outcome
from quiesce.actors.stores import MemoryStore, SqliteStore
from quiesce.protocol.codec import check_draft, dumps, loads
from quiesce.protocol.errors import RuleBroken, UnreadableLog
from quiesce.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantMessage,
    ForeignBody,
    ModelMessage,
    ToolCall,
    ToolMessage,
    draft,
    text_of,
)
from quiesce.protocol.history import history_of, sendable, sendable_problems
from quiesce.protocol.logfile import extend_log, read_log
from quiesce.protocol.model import BlockDone, ReplyAssembler
from quiesce.protocol.outcome import failure, result_body
from quiesce.protocol.pending import Standing
from quiesce.protocol.recovery import closing_events, forked
from quiesce.protocol.rules import check

CASES = Path(__file__).with_name("cases")


@pytest.fixture
def case(logs):
    """Our log of a case, up to a fork if there is one."""

    def of(name):
        (path,) = CASES.glob(f"{name}*.events.jsonl")
        items = [json.loads(line) for line in path.read_text().split("\n") if line]
        asked = {block.id: block for item in items for block in _blocks(item.get("calls", ()), logs)}
        bodies = [body for item in items if item["type"] != "fork" for body in _bodies(item, asked, logs)]
        return (*logs.read("turn step"), *logs.numbered(map(draft, bodies), first=2))

    return of


def _bodies(item, asked, logs):
    call = asked.get(item.get("id"))
    at = list(asked).index(call.id) if call else None
    match item["type"]:
        case "approval_requested":
            question = ApprovalRequested(1, 1, at, call.id, call.name, json.loads(call.arguments), "Refund?")
            return [ToolCall(1, 1, call.id, call.name, call.arguments), question]
        case "approval_decided":
            return [ApprovalDecided(1, 1, at, call.id, approved=item["approved"])]
        case _:
            return [_body(item, asked, logs)]


def _body(item, asked, logs):
    match item["type"]:
        case "user":
            return logs.user(item["text"])
        case "assistant":
            return AssistantMessage(1, 1, ModelMessage("assistant", _blocks(item["calls"], logs), {}, "answer"))
        case "tool_started":
            call = asked[item["id"]]
            return ToolCall(1, 1, call.id, call.name, call.arguments)
        case "tool_settled":
            outcome = to_outcome(item["content"]) if item["ok"] else failure("TOOL_ERROR", item["error"])
            return result_body(outcome, turn=1, step=1, call_id=item["id"], message_id=f"result-{item['id']}")
        case other:
            return ForeignBody(other, item)


def _blocks(calls, logs):
    reply = ReplyAssembler()
    for call in calls:
        reply.add(BlockDone(logs.block(call["id"], call["name"], call["args_raw"])))
    return reply.complete()


async def store_log(store, events):
    """Make the session `s` of these events; nobody holds it afterwards."""
    ended = trio.Event()
    writer = await store.open("s")
    writer.append(events, lambda error: ended.set() if error is None else pytest.fail(str(error)))
    await ended.wait()
    await writer.release()


def killed(logs, events):
    """The closers that a resume appends after the process died here."""
    return closing_events(logs.state_of(events), "interrupted")


def results(events):
    """The text of each result that is sent, by label, in the order in which they are sent."""
    messages = sendable(history_of(events).entries())
    assert sendable_problems(messages) == []
    return {message.tool_call_id: text_of(message.content) for message in messages if isinstance(message, ToolMessage)}


def roles(events):
    return [message.role for message in sendable(history_of(events).entries())]


# --- calls that were left open -----------------------------------------------------------------------------------


def test_b06_an_interrupted_step_keeps_what_returned_and_labels_the_rest_by_its_record(case, logs):
    events = case("B06")
    closing = killed(logs, events)
    assert logs.show(closing) == "unknown:k2 unstarted:k3 end-step end-turn:interrupted"
    assert closing[0].source_event_seqs == (6,)
    assert list(results((*events, *closing))) == ["k1", "k2", "k3"]
    assert results((*events, *closing))["k1"] == "one"
    assert not list(check((*events, *closing)))


def test_b12_a_tool_that_raises_costs_its_siblings_nothing(case, logs):
    events = case("B12")
    assert not list(check(events))
    assert results(events) == {"r1": "PermissionError: /secret", "r2": "hi"}
    assert logs.show(killed(logs, events)) == "end-step end-turn:interrupted"


@pytest.mark.parametrize("word", ["end-step@1.1", "end-turn@1", "step@1.2", "ask@1.1", "user"])
def test_b14_nothing_that_leads_to_a_model_request_is_accepted_while_calls_are_open(case, logs, word):
    state = logs.state_of(case("B14"))
    assert [(call.call_id, call.standing) for call in state.pending] == [
        ("h2", Standing.APPROVED),
        ("h3", Standing.ASKED),
    ]
    with pytest.raises(RuleBroken):
        state.admit([logs.draft_of(word)], 0)


def test_b14_a_log_with_one_of_two_questions_decided_keeps_the_rules(case):
    assert list(check(case("B14"))) == []


def test_b14_closed_for_good_what_ran_keeps_its_result_and_only_what_may_have_run_is_unknown(case, logs):
    events = case("B14")
    closing = killed(logs, events)
    assert logs.show(closing) == "unknown:h2 unstarted:h3 end-step end-turn:interrupted"
    assert results((*events, *closing))["h1"] == "found"
    assert not list(check((*events, *closing)))


@pytest.mark.parametrize("approved", [True, False])
async def test_b14_resumed_the_model_waits_until_h3_is_decided_and_neither_h1_nor_h2_runs_again(case, logs, approved):
    ran = []

    @tool
    async def lookup() -> str:
        ran.append("lookup")

    @tool(parallel=True)
    async def refund(n: int) -> str:
        ran.append(n)
        return f"refunded {n}"

    events, model = case("B14"), ScriptedModel([say("Both are settled.")])
    async with MemoryStore() as store, Runtime.open(store) as runtime:
        await store_log(store, events)
        agent = await runtime.agent("s", model=model, tools=[lookup, refund])
        await wait_all_tasks_blocked()
        assert (model.requests, ran) == ([], [])
        assert logs.show((await store.read("s"))[len(events) :]) == "unknown:h2"
        (h3,) = await agent.questions()
        assert (h3.key, h3.call_id, h3.arguments) == ((1, 1, 2), "h3", {"n": 2})
        with pytest.raises(AlreadyDecided):
            await agent.deny((1, 1, 1), "no")
        await (agent.approve(h3) if approved else agent.deny(h3, "not twice"))
        assert (await agent.wait()).text == "Both are settled."
        assert ran == ([2] if approved else [])
        answers = results(await store.read("s"))
        assert list(answers) == ["h1", "h2", "h3"]
        assert answers["h1"] == "found"
        assert "outcome is unknown" in answers["h2"]
        assert answers["h3"] == ("refunded 2" if approved else "The call was denied: not twice")
        assert [problem for request in model.requests for problem in sendable_problems(request.messages)] == []


def test_b66_a_fork_in_a_batch_labels_cautiously_and_leaves_the_parent_alone(case, logs):
    parent = case("B66")
    child = forked(parent)
    assert logs.show(child[len(parent) :]) == "seed unknown:k2 unstarted:k3 end-step end-turn:forked"
    texts = results(child)
    assert texts["k1"] == "1"
    assert all("forked off" in texts[label] for label in ("k2", "k3"))
    assert not list(check(child))
    assert [call.call_id for call in logs.state_of(parent).pending] == ["k2", "k3"]


def test_b78_killed_in_a_batch_nothing_is_started_again_and_the_last_call_is_unknown(case, logs):
    events = case("B78")
    closing = killed(logs, events)
    assert logs.show(closing) == "unknown:m3 end-step end-turn:interrupted"
    whole = (*events, *closing)
    assert [event.body.call_id for event in whole if isinstance(event.body, ToolCall)] == ["m1", "m2", "m3"]
    assert results(whole) | {"m3": ""} == {"m1": "1", "m2": "2", "m3": ""}
    assert killed(logs, whole) == ()


# --- results out of place ----------------------------------------------------------------------------------------


def test_b18_input_between_a_call_and_its_result_is_reported_and_sent_behind_it(case):
    events = case("B18")
    assert [(item.seq, item.rule) for item in check(events)] == [(5, "not-between")]
    assert roles(events) == ["user", "assistant", "tool", "user"]
    assert results(events) == {"c1": "done"}
    assert text_of(sendable(history_of(events).entries())[-1].content) == "also do X"


def test_b22_swapped_results_are_reported_and_sent_in_call_order(case):
    events = case("B22")
    assert {(item.seq, item.rule) for item in check(events)} == {(6, "call-order")}
    assert list(results(events).values()) == ["A", "B"]


# --- text that cannot be stored ----------------------------------------------------------------------------------


def test_b54_lone_surrogates_become_replacement_characters(case):
    events = case("B54")
    assert results(events) == {"c1": "abc \ufffd def"}
    assert events[3].body.message.calls[0].arguments == '{"q":"\ufffd"}'


def test_b56_nul_becomes_its_symbol(case):
    assert results(case("B56")) == {"c1": "a\u2400lvl=info\u2400b"}


@pytest.mark.parametrize("name", ["B54", "B56"])
def test_what_was_made_storable_comes_back_from_the_codec_as_it_is(case, name):
    for event in case(name):
        check_draft(event)
        assert loads(dumps(event).encode()) == event


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("name", ["B54", "B56"])
async def test_what_was_made_storable_comes_back_from_each_store_as_it_is(case, name, kind, tmp_path):
    events = case(name)
    async with MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "store.db") as store:
        await store_log(store, events)
        assert await store.read("s") == list(events)


# --- damaged files -----------------------------------------------------------------------------------------------


def raw(name):
    return (CASES / f"{name}.raw.jsonl").read_bytes()


def test_a_log_torn_in_a_result_is_closed_as_if_the_result_had_not_been_written(logs):
    data = raw("torn-in-result")
    log = read_log(data)
    assert (log.torn.line, log.torn.size) == (10, 61)
    assert logs.show(log.events) == "turn step user ask:t1,t2,t3 call:t1 call:t2 result:t1 splice"
    closing = killed(logs, log.events)
    assert logs.show(closing) == "unknown:t2 unstarted:t3 end-step end-turn:interrupted"
    repaired = read_log(extend_log(data, log, closing))
    assert repaired.torn is None
    assert not list(check(repaired.events))
    assert list(results(repaired.events)) == ["t1", "t2", "t3"]


def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_guessed():
    with pytest.raises(UnreadableLog, match=r"^line 6: "):
        read_log(raw("damaged-in-the-middle"))


def test_a_foreign_log_closed_with_calls_unanswered_is_reported_and_sent_but_never_rewritten(logs):
    log = read_log(raw("closed-unanswered"))
    assert [(item.seq, item.rule) for item in check(log.events)] == [(6, "all-answered")]
    assert killed(logs, log.events) == ()
    texts = results(log.events)
    assert list(texts) == ["u1", "u2", ""]
    assert texts["u1"] == "one"
    assert "outcome is unknown" in texts["u2"]
    assert "outcome is unknown" in texts[""]
    assert roles(log.events) == ["user", "assistant", "tool", "tool", "tool", "user", "assistant"]


def test_line_separators_inside_a_text_do_not_end_a_record():
    log = read_log(raw("line-separators"))
    assert log.torn is None
    assert results(log.events) == {"s1": "a\u2028b\u2029c\x85d\x0be"}
