"""`Hooks`: what a host does around each tool call, and `HookChain`: the hooks of one agent, in order.

    prepare    before the body, one call at a time, in call order: let it pass, rewrite its arguments, deny it, or
               have a person asked about it
    around     about the body: what runs before it, after it, or instead of it; several calls may be in it at once
    finalize   after the body, in call order: look at the outcome, replace it, or block the turn

`prepare` and `finalize` run in list order, each seeing what the one before left; `around` nests, the first hook
outermost. What `around` raises is the body's error. What `prepare` or `finalize` raises is a failure of the scheduler
(`ToolDenied` from `prepare` excepted): a host's policy that does not work must not let calls pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from attrs import Factory, evolve, field, frozen

from quiesce.actors.arguments import InvalidArguments
from quiesce.actors.results import to_outcome
from quiesce.protocol.errors import InvalidInput, ToolDenied
from quiesce.protocol.outcome import ToolOutcome, denial, failure
from quiesce.protocol.storable import clean_text, make_storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quiesce.actors.tools import AnyTool
    from quiesce.protocol.events import JsonObject

__all__ = ["Ask", "Asked", "HookChain", "Hooks", "RunBody", "ToolInvocation"]

RunBody: TypeAlias = Callable[[], Awaitable[object]]
"""Runs the body (and the hooks further in) once, and gives what it returned or raises what it raised."""


@frozen
class ToolInvocation:
    """One call on its way: which one it is, and with what it runs.

    `index` is its place among the calls of its message; `call_id` the provider's label, which may be empty or repeated.
    `arguments` is the raw JSON object; `values` what the function takes, read from it when not given.
    """

    session_id: str
    turn: int
    step: int
    index: int
    call_id: str
    name: str
    arguments: JsonObject
    tool: AnyTool
    values: dict[str, Any] = field(
        default=Factory(lambda self: self.tool.validate(self.arguments).values, takes_self=True),
        kw_only=True,
        repr=False,
        eq=False,
    )


@frozen
class Ask:
    """What a `prepare` hook returns to have a person decide about a call, with `Agent.approve` or `Agent.deny`.

    `text` is the question; `detail`, a JSON object, is for a program. What cannot be stored in them is replaced
    visibly. The hooks that follow look at the call all the same: they may deny it, rewrite the arguments that the
    person is shown, or ask as well: it is one question then, with all the texts. After an approval no hook is asked
    again before the body.

    Raises `InvalidInput` for a text that is none.
    """

    text: str
    detail: JsonObject | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidInput(f"Ask.text: must be a text, not {type(self.text).__name__}")
        if self.detail is not None and not isinstance(self.detail, dict):
            raise InvalidInput(f"Ask.detail: must be a JSON object, not {type(self.detail).__name__}")


@frozen
class Asked:
    """A call that waits for a person, with the arguments that the person is shown and the body would get."""

    call: ToolInvocation
    ask: Ask


class Hooks:
    """Override what is needed; what is not overridden costs nothing. One object serves all calls of its agent."""

    async def prepare(self, call: ToolInvocation) -> ToolInvocation | Ask | None:  # noqa: ARG002 - for those who override it
        """Look at `call` before it runs.

        Return None to let it pass, `evolve(call, arguments=...)` to rewrite its arguments, which the tool then reads
        again, or `Ask(text)` to have it wait for a person. Raise `ToolDenied(reason)` to answer it `TOOL_DENIED`;
        anything else that is raised fails the scheduler.
        """
        return None

    async def around(self, call: ToolInvocation, run: RunBody) -> object:  # noqa: ARG002 - for those who override it
        """Run the body by `await run()`, and return what is to count as its result. Must be re-entrant.

        It runs inside the call's time-out and is cancelled with the body; it may run the body again, or not at all.
        """
        return await run()

    async def finalize(self, call: ToolInvocation, outcome: ToolOutcome) -> ToolOutcome | None:  # noqa: ARG002 - as above
        """Look at the outcome before it is recorded.

        Return None to leave it, or another one: `evolve(outcome, content=...)`, `evolve(outcome, blocks_turn="why")`.
        Anything that is raised fails the scheduler, and the outcome is not recorded.
        """
        return None


_METHODS: Final = ("prepare", "around", "finalize")
_IDENTITY: Final = ("session_id", "turn", "step", "index", "call_id", "name", "tool")


class HookChain:
    """The hooks of one agent. Knows which methods nobody overrides, so that these steps can be skipped without a task.

    Raises `InvalidInput` for what is not a `Hooks` object, and for a hook method that is not async.
    """

    def __init__(self, hooks: Iterable[Hooks] = ()) -> None:
        hooks = tuple(hooks)
        self._prepare, self._around, self._finalize = (_overriding(hooks, method) for method in _METHODS)

    @property
    def has_prepare(self) -> bool:
        """Whether any hook wants to see calls before they run."""
        return bool(self._prepare)

    @property
    def has_around(self) -> bool:
        """Whether any hook wraps bodies."""
        return bool(self._around)

    @property
    def has_finalize(self) -> bool:
        """Whether any hook wants to see outcomes."""
        return bool(self._finalize)

    async def prepare(self, call: ToolInvocation) -> ToolInvocation | Asked | ToolOutcome:
        """The call to run, with what a person is to be asked first if a hook wants that.

        Or the outcome that answers it instead: it was denied, or its new arguments do not fit.

        Raises what a hook raised, and `TypeError` or `ValueError` for a hook that returned something else than a call
        or changed more of it than its arguments: a failure of the scheduler.
        """
        asks = list[Ask]()
        for hook in self._prepare:
            try:
                found = await hook.prepare(call)
            except ToolDenied as denied:
                return _denied(denied)
            if isinstance(found, Ask):
                asks.append(found)
            else:
                call = _rewritten(hook, call, found)
        if asks:
            return _asked(call, asks)
        return _read_again(call) if self._prepare else call

    def run(self, call: ToolInvocation, body: RunBody) -> Awaitable[object]:
        """What `body` gives, through every `around`."""
        run = body
        for hook in reversed(self._around):
            run = partial(hook.around, call, run)
        return run()

    async def finalize(self, call: ToolInvocation, outcome: ToolOutcome) -> ToolOutcome:
        """The outcome to record. Raises what a hook raised, and `TypeError` for a hook that returned anything else."""
        for hook in self._finalize:
            found: object = await hook.finalize(call, outcome)
            if isinstance(found, ToolOutcome):
                outcome = to_outcome(found)
            elif found is not None:
                raise _wrong_type(hook, "finalize", "a ToolOutcome", found)
        return outcome


def _overriding(hooks: tuple[Hooks, ...], method: str) -> tuple[Hooks, ...]:
    """The hooks that do something of their own in `method`."""
    found = []
    for position, hook in enumerate(hooks):
        if not isinstance(hook, Hooks):
            raise InvalidInput(f"hooks[{position}]: {hook!r} is not a Hooks object")
        bound = getattr(hook, method)
        if getattr(bound, "__func__", None) is getattr(Hooks, method):
            continue
        if not inspect.iscoroutinefunction(bound):
            raise InvalidInput(f"hooks[{position}]: {type(hook).__name__}.{method} must be an async def")
        found.append(hook)
    return tuple(found)


def _denied(denied: ToolDenied) -> ToolOutcome:
    return denial(clean_text(str(denied.reason)).strip())


def _rewritten(hook: Hooks, call: ToolInvocation, found: object) -> ToolInvocation:
    """The call as `hook` left it. It is recorded by now, so only its arguments may differ."""
    if found is None:
        return call
    if not isinstance(found, ToolInvocation):
        raise _wrong_type(hook, "prepare", "a ToolInvocation, an Ask", found)
    for name in _IDENTITY:
        if getattr(found, name) != getattr(call, name):
            raise ValueError(f"{type(hook).__name__}.prepare changed {name}; only the arguments may change")
    return found


def _read_again(call: ToolInvocation) -> ToolInvocation | ToolOutcome:
    """The call with values that fit its arguments, which a hook may have rewritten, in place even."""
    try:
        parsed = call.tool.validate(call.arguments)
    except InvalidArguments as error:
        return failure("INVALID_ARGS", str(error))
    return evolve(call, arguments=parsed.raw, values=parsed.values)


def _asked(call: ToolInvocation, asks: Sequence[Ask]) -> Asked | ToolOutcome:
    """The call with one question about it. What a person is shown is stored, so it is made storable: that runs."""
    read = _read_again(call)
    if isinstance(read, ToolInvocation):
        read = _read_again(evolve(read, arguments=cast("JsonObject", make_storable(read.arguments))))
    if isinstance(read, ToolOutcome):
        return read
    details = [ask.detail for ask in asks if ask.detail is not None]
    merged = {key: value for detail in details for key, value in detail.items()}
    text = clean_text("\n".join(ask.text for ask in asks))
    return Asked(read, Ask(text, detail=cast("JsonObject", make_storable(merged)) if details else None))


def _wrong_type(hook: Hooks, method: str, wanted: str, found: object) -> TypeError:
    return TypeError(f"{type(hook).__name__}.{method} must return {wanted} or None, not {type(found).__name__}")
