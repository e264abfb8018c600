from __future__ import annotations

import math
from typing import Any

import pytest
from attrs import evolve

from quiesce.actors.arguments import InvalidArguments
from quiesce.actors.hooks import HookChain, Hooks, ToolInvocation
from quiesce.actors.tools import tool
from quiesce.protocol.errors import InvalidInput, ToolDenied
from quiesce.protocol.events import TextBlock, text_of
from quiesce.protocol.outcome import ToolOutcome, failure, success


@tool
async def read_file(path: str, lines: int = 10) -> str:
    return path


@tool
async def other() -> None: ...


def invocation(**arguments: Any) -> ToolInvocation:
    return ToolInvocation("s", 1, 2, 0, "c1", "read_file", arguments or {"path": "a"}, read_file)


class Recorder(Hooks):
    """Does what each test gives it as functions, and notes when it was asked."""

    def __init__(self, name: str, events: list[str], **methods: Any) -> None:
        self.name, self.events, self.methods = name, events, methods

    async def prepare(self, call):
        self.events.append(f"{self.name} prepare {call.arguments['path']}")
        return self.methods["prepare"](call) if "prepare" in self.methods else None

    async def around(self, call, run):
        self.events.append(f"{self.name} enters")
        try:
            return f"{self.name}({await run()})"
        finally:
            self.events.append(f"{self.name} leaves")

    async def finalize(self, call, outcome):
        self.events.append(f"{self.name} finalize {text_of(outcome.content)}")
        return self.methods["finalize"](outcome) if "finalize" in self.methods else None


def denies(call):
    raise ToolDenied("not on Sundays")


def breaks(_):
    raise LookupError("policy server is down")


# --- invocations


def test_an_invocation_reads_its_values_from_its_arguments():
    assert invocation(path="a").values == {"path": "a", "lines": 10}


def test_an_invocation_of_arguments_that_do_not_fit_is_refused():
    with pytest.raises(InvalidArguments, match="path"):
        invocation(line=1)


def test_an_invocation_cannot_be_changed():
    with pytest.raises(AttributeError):
        invocation().name = "other"  # type: ignore[misc]


# --- which steps are needed


def test_a_chain_without_hooks_needs_no_step():
    chain = HookChain()
    assert (chain.has_prepare, chain.has_around, chain.has_finalize) == (False, False, False)


def test_a_chain_knows_which_steps_its_hooks_override():
    class Guard(Hooks):
        async def prepare(self, call): ...

    class Cleaner(Hooks):
        async def finalize(self, call, outcome): ...

    class Idle(Hooks): ...

    chain = HookChain([Guard(), Idle()])
    assert (chain.has_prepare, chain.has_around, chain.has_finalize) == (True, False, False)
    chain = HookChain([Idle(), Cleaner()])
    assert (chain.has_prepare, chain.has_around, chain.has_finalize) == (False, False, True)


def test_a_method_that_is_set_on_the_object_counts_as_overridden():
    async def around(call, run): ...

    hook = Hooks()
    hook.around = around  # type: ignore[method-assign]
    assert HookChain([hook]).has_around


async def test_a_chain_without_hooks_changes_nothing():
    call, outcome = invocation(), success("x")
    assert await HookChain().prepare(call) is call
    assert await HookChain().finalize(call, outcome) is outcome


@pytest.mark.parametrize("thing", [print, Hooks, None, "hook"])
def test_what_is_not_a_hooks_object_is_refused(thing):
    with pytest.raises(InvalidInput, match=r"hooks\[1\]"):
        HookChain([Hooks(), thing])


@pytest.mark.parametrize("method", ["prepare", "around", "finalize"])
def test_a_hook_method_that_is_not_async_is_refused(method):
    kind = type("Forgetful", (Hooks,), {method: lambda *_: None})
    with pytest.raises(InvalidInput, match=rf"hooks\[0\]: Forgetful.{method} must be an async def"):
        HookChain([kind()])


# --- prepare


async def test_prepare_runs_in_list_order_and_each_hook_sees_what_the_one_before_rewrote():
    events: list[str] = []
    rewrite = Recorder("a", events, prepare=lambda call: evolve(call, arguments={"path": "b"}))
    found = await HookChain([rewrite, Recorder("b", events)]).prepare(invocation(path="a"))
    assert events == ["a prepare a", "b prepare b"]
    assert found == invocation(path="b")


async def test_rewritten_arguments_are_read_again():
    rewrite = Recorder("a", [], prepare=lambda call: evolve(call, arguments={"path": "b", "lines": 3}))
    found = await HookChain([rewrite]).prepare(invocation(path="a"))
    assert isinstance(found, ToolInvocation)
    assert found.values == {"path": "b", "lines": 3}


async def test_arguments_that_were_changed_in_place_are_read_again():
    change = Recorder("a", [], prepare=lambda call: call.arguments.update(path="b"))
    found = await HookChain([change]).prepare(invocation(path="a"))
    assert isinstance(found, ToolInvocation)
    assert found.values["path"] == "b"


async def test_a_hook_that_changes_nothing_does_not_matter_to_unusual_arguments():
    found = await HookChain([Recorder("a", [])]).prepare(invocation(path="a\0b"))
    assert found == invocation(path="a\0b")


async def test_rewritten_arguments_may_be_invalid_until_the_last_hook_has_seen_them():
    events: list[str] = []
    first = Recorder("a", events, prepare=lambda call: evolve(call, arguments={"path": 3}))
    second = Recorder("b", events, prepare=lambda call: evolve(call, arguments={"path": str(call.arguments["path"])}))
    assert await HookChain([first, second]).prepare(invocation(path="a")) == invocation(path="3")


@pytest.mark.parametrize("arguments", [{"path": 3}, {}, {"path": math.nan}, {"path": object()}, None])
async def test_rewritten_arguments_that_do_not_fit_are_answered_invalid(arguments):
    rewrite = Recorder("a", [], prepare=lambda call: evolve(call, arguments=arguments))
    found = await HookChain([rewrite]).prepare(invocation(path="a"))
    assert isinstance(found, ToolOutcome)
    assert found.error is not None
    assert found.error.code == "INVALID_ARGS"


async def test_a_denied_call_is_answered_with_the_reason_and_later_hooks_are_not_asked():
    events: list[str] = []
    chain = HookChain([Recorder("a", events, prepare=denies), Recorder("b", events)])
    found = await chain.prepare(invocation(path="a"))
    assert found == failure("TOOL_DENIED", "The call was denied: not on Sundays", reason="not on Sundays")
    assert events == ["a prepare a"]


@pytest.mark.parametrize("reason", ["", "  "])
async def test_a_denial_always_has_a_text(reason):
    def deny(_):
        raise ToolDenied(reason)

    found = await HookChain([Recorder("a", [], prepare=deny)]).prepare(invocation())
    assert found == failure("TOOL_DENIED", "The call was denied: no reason was given.")


async def test_what_else_prepare_raises_comes_out():
    with pytest.raises(LookupError, match="policy server"):
        await HookChain([Recorder("a", [], prepare=breaks)]).prepare(invocation())


async def test_a_hooks_own_invalid_arguments_are_its_failure_not_the_models():
    def confused(_):
        raise InvalidArguments("of something else")

    with pytest.raises(InvalidArguments, match="of something else"):
        await HookChain([Recorder("a", [], prepare=confused)]).prepare(invocation())


@pytest.mark.parametrize("found", [True, {"path": "b"}, "yes"])
async def test_prepare_that_returns_something_else_is_a_type_error(found):
    with pytest.raises(TypeError, match=r"Recorder.prepare must return a ToolInvocation, an Ask or None"):
        await HookChain([Recorder("a", [], prepare=lambda _: found)]).prepare(invocation())


@pytest.mark.parametrize(
    "change", [{"name": "x"}, {"tool": other}, {"call_id": ""}, {"index": 1}, {"step": 1}, {"session_id": "t"}]
)
async def test_prepare_can_change_nothing_but_the_arguments(change):
    hook = Recorder("a", [], prepare=lambda call: evolve(call, **change))
    with pytest.raises(ValueError, match=f"changed {next(iter(change))}"):
        await HookChain([hook]).prepare(invocation())


# --- around


async def test_around_nests_and_the_first_hook_is_outermost():
    events: list[str] = []

    async def body():
        events.append("body")
        return "x"

    assert await HookChain([Recorder("a", events), Recorder("b", events)]).run(invocation(), body) == "a(b(x))"
    assert events == ["a enters", "b enters", "body", "b leaves", "a leaves"]


async def test_what_the_body_raises_passes_through_around():
    events: list[str] = []

    async def body():
        raise LookupError

    with pytest.raises(LookupError):
        await HookChain([Recorder("a", events)]).run(invocation(), body)
    assert events == ["a enters", "a leaves"]


async def test_around_may_run_the_body_again_or_not_at_all():
    class Twice(Hooks):
        async def around(self, call, run):
            await run()
            return await run()

    class Never(Hooks):
        async def around(self, call, run):
            return "cached"

    events: list[str] = []

    async def body():
        events.append("body")
        return len(events)

    assert await HookChain([Twice()]).run(invocation(), body) == 2
    assert await HookChain([Never()]).run(invocation(), body) == "cached"
    assert events == ["body", "body"]


# --- finalize


async def test_finalize_runs_in_list_order_and_each_hook_sees_what_the_one_before_left():
    events: list[str] = []
    redact = Recorder("a", events, finalize=lambda outcome: evolve(outcome, content=(TextBlock("[gone]"),)))
    found = await HookChain([redact, Recorder("b", events)]).finalize(invocation(), success("secret"))
    assert found == success("[gone]")
    assert events == ["a finalize secret", "b finalize [gone]"]


async def test_finalize_can_block_the_turn():
    block = Recorder("a", [], finalize=lambda outcome: evolve(outcome, blocks_turn="found a secret"))
    found = await HookChain([block]).finalize(invocation(), success("x"))
    assert found.blocks_turn == "found a secret"


async def test_what_finalize_returns_is_made_storable():
    spoil = Recorder(
        "a", [], finalize=lambda outcome: evolve(outcome, content=(TextBlock("\0"),), meta={"x": math.nan})
    )
    found = await HookChain([spoil]).finalize(invocation(), success("x"))
    assert found == evolve(success("\u2400"), meta={"x": "NaN"})


async def test_what_finalize_raises_comes_out():
    with pytest.raises(LookupError, match="policy server"):
        await HookChain([Recorder("a", [], finalize=breaks)]).finalize(invocation(), success("x"))


@pytest.mark.parametrize("found", [True, "text", (TextBlock("x"),)])
async def test_finalize_that_returns_something_else_is_a_type_error(found):
    with pytest.raises(TypeError, match=r"Recorder.finalize must return a ToolOutcome or None"):
        await HookChain([Recorder("a", [], finalize=lambda _: found)]).finalize(invocation(), success("x"))
