"""Running one tool body to its end, and saying how it ended.

    READY -----> RUNNING -----> ENDED        the body returned or raised
      |           |   |
      |           |   +-> OVERDUE --> ENDED  its time-out came first: timed out, whatever the body still does
      |           +-> CANCELLED ----> ENDED  cancelled; what it returned or raised all the same is kept
      +-> REFUSED ------------------> ENDED  cancelled before it could start: the body has not run

The first cause wins: a time-out does not touch a body that was cancelled, nor a cancel one that timed out. Trio has no
kill, so each arrow to ENDED is an end of the body itself: one that shields itself, or blocks in a thread, is waited
for, and a warning names it every ten seconds.

A call holds its thread or process from before its time-out starts until it has ended, so that waiting for one is not
counted. Threads are not limited unless the host says so: each agent runs at most `max_parallel` bodies, and a limit
that agents share could make a tool wait for a thread that an agent inside it needs. (Trio's own limit, 40 for the whole
run, would do so silently.) Processes default to the number of processors.
"""

from __future__ import annotations

import math
import os
from enum import Enum
from functools import partial
from logging import WARNING
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import trio
from attrs import Factory, frozen

from quiesce.actors.isolation import WorkerError, run_in_process
from quiesce.actors.log import Log
from quiesce.actors.results import error_text, raised_outcome, to_outcome
from quiesce.actors.watchdog import watchdog
from quiesce.protocol.outcome import ToolOutcome, failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quiesce.actors.hooks import HookChain, ToolInvocation
    from quiesce.actors.tools import AnyTool

__all__ = ["Body", "BodyEnd", "Ending", "Slots", "outcome_of", "run_body"]

_WARN_EVERY: Final = 10.0
"""Seconds between two warnings about a body that was cancelled and has not ended."""

Ending: TypeAlias = Literal["returned", "raised", "timed-out", "cancelled", "not-started"]


@frozen
class BodyEnd:
    """How a body ended: `returned` with `value`, `raised` with `error`, or one of the ends without a result.

    `cancel_requested` says that the body had been cancelled when it returned or raised: it may have done so because of
    it. What a body returned or raised after its time-out is here too, but it is no result.
    """

    how: Ending
    value: object = None
    error: Exception | None = None
    cancel_requested: bool = False


@frozen
class Slots:
    """How many bodies may have a thread or a process at once; None is any number. For all agents of a Trio run."""

    threads: trio.CapacityLimiter | None = None
    processes: trio.CapacityLimiter | None = Factory(lambda: trio.CapacityLimiter(os.cpu_count() or 1))

    def of(self, tool: AnyTool) -> trio.CapacityLimiter | None:
        """What limits the bodies of `tool`; those that run in their own task need nothing."""
        return {"task": None, "thread": self.threads, "process": self.processes}[tool.runs]


_shared_slots: trio.lowlevel.RunVar[Slots] = trio.lowlevel.RunVar("quiesce tool slots")


def _default_slots() -> Slots:
    try:
        return _shared_slots.get()
    except LookupError:
        _shared_slots.set(slots := Slots())
        return slots


class _State(Enum):
    """Where a body stands; see the module."""

    READY = "ready"
    RUNNING = "running"
    CANCELLED = "cancelled"
    OVERDUE = "overdue"
    REFUSED = "refused"
    ENDED = "ended"


_ENDINGS: Final[dict[_State, Ending]] = {
    _State.CANCELLED: "cancelled",
    _State.OVERDUE: "timed-out",
    _State.REFUSED: "not-started",
}
"""How a body ended that gave nothing, from the state that it was in."""

_MAY_RUN: Final = frozenset({_State.READY, _State.REFUSED})


async def run_body(call: ToolInvocation, *, chain: HookChain, slots: Slots | None = None) -> BodyEnd:
    """Run the body of `call` once, with the `around` hooks of `chain`: `Body.run` for callers that need no `cancel`."""
    return await Body(call, chain=chain, slots=slots).run()


class Body:
    """One run of one body. `run` it once, from any task; `cancel` it from the same loop, at any time."""

    __slots__ = ("_chain", "_scope", "_slots", "_state", "call")

    def __init__(self, call: ToolInvocation, *, chain: HookChain, slots: Slots | None = None) -> None:
        self.call = call
        self._chain = chain
        self._slots = slots
        self._state = _State.READY
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        """Cancel the body; `run` then says how it ended. Does nothing to one that was cancelled, timed out or ended."""
        if self._state is _State.READY:
            self._stop(_State.REFUSED)
        elif self._state is _State.RUNNING:
            self._stop(_State.CANCELLED)
            watchdog().watch(self, trio.current_time() + _WARN_EVERY)

    async def run(self) -> BodyEnd:
        """Run the body to its end: one that is cancelled or times out is waited for.

        Cancellation from outside passes through, once the body has ended; so does any other BaseException that is not
        an Exception (KeyboardInterrupt, and SystemExit from an async body; from a thread or process it is an error).
        Not a checkpoint if the body is none.
        """
        if self._state not in _MAY_RUN:
            raise RuntimeError("a body runs once")
        try:
            with self._scope:
                return self._end("returned", value=await self._run())
            return BodyEnd(_ENDINGS[self._state])
        except Exception as error:  # noqa: BLE001 - what a tool raises is its result, not a failure of who runs it
            return self._end("raised", error=error)
        except BaseExceptionGroup as group:
            raise _without_errors(group) from None
        finally:
            self._state = _State.ENDED
            if self.call.tool.timeout is not None or self._scope.cancel_called:
                watchdog().forget(self)

    def look(self) -> float:
        """Called by the watchdog: the time-out has come, or it is time to warn."""
        if self._state is _State.RUNNING:
            self._stop(_State.OVERDUE)
        else:
            _warn(self.call, self._state)
        return trio.current_time() + _WARN_EVERY

    async def _run(self) -> object:
        limiter = (self._slots or _default_slots()).of(self.call.tool)
        if limiter is None:
            return await self._run_now()
        await limiter.acquire_on_behalf_of(self)
        try:
            return await self._run_now()
        finally:
            limiter.release_on_behalf_of(self)

    async def _run_now(self) -> object:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._state = _State.RUNNING
        tool = self.call.tool
        if tool.timeout is not None:
            watchdog().watch(self, trio.current_time() + tool.timeout)
        return await self._chain.run(self.call, partial(_RUNS[tool.runs], tool, self.call.values))

    def _stop(self, state: _State) -> None:
        self._state = state
        self._scope.cancel()

    def _end(self, how: Ending, *, value: object = None, error: Exception | None = None) -> BodyEnd:
        if self._state is _State.OVERDUE:
            return BodyEnd("timed-out", value, error)
        return BodyEnd(how, value, error, cancel_requested=self._state is _State.CANCELLED)


# --- bodies ------------------------------------------------------------------------------------------------------


def _in_task(tool: AnyTool, values: dict[str, Any]) -> Awaitable[object]:
    running: Awaitable[object] = tool.function(**values)
    return running


def _in_thread(tool: AnyTool, values: dict[str, Any]) -> Awaitable[object]:
    unlimited = trio.CapacityLimiter(math.inf)  # the call holds its slot already
    return trio.to_thread.run_sync(_contained, tool.function, values, thread_name=tool.name, limiter=unlimited)


def _in_process(tool: AnyTool, values: dict[str, Any]) -> Awaitable[object]:
    return run_in_process(tool.function, values)


_RUNS: Final[dict[str, Callable[[AnyTool, dict[str, Any]], Awaitable[object]]]] = {
    "task": _in_task,
    "thread": _in_thread,
    "process": _in_process,
}


def _contained(function: Callable[..., object], values: dict[str, Any]) -> object:
    """Run in a thread. What would end a thread or a task of another loop (`sys.exit()`) ends neither ours nor the host.

    Ctrl-C and Trio's own cancellation are for them.
    """
    try:
        return function(**values)
    except (Exception, KeyboardInterrupt, trio.Cancelled):
        raise
    except BaseException as error:
        raise WorkerError(f"{type(error).__name__}: {error}") from error


def _without_errors(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A group with cancellation from outside in it: only that goes on, since nobody is left to take the errors.

    One with a KeyboardInterrupt or its like goes on whole.
    """
    cancelled, rest = group.split(trio.Cancelled)
    return group if cancelled is None or not (rest is None or isinstance(rest, Exception)) else cancelled


# --- words -------------------------------------------------------------------------------------------------------


def outcome_of(end: BodyEnd, tool: AnyTool) -> ToolOutcome:
    """The outcome of a call whose body ended so, if who cancelled it was the user.

    A body that was cancelled and then raised is answered `ABORTED`, with what it raised in the text.
    """
    if end.how == "returned":
        return to_outcome(end.value)
    if end.how == "timed-out":
        return failure("TOOL_TIMEOUT", _TIMED_OUT.format(tool.timeout or 0))
    if end.how == "not-started":
        return failure("ABORTED_BEFORE_DISPATCH", _NOT_STARTED)
    if end.error is None:
        return failure("ABORTED", _ABORTED)
    if end.cancel_requested:
        return failure("ABORTED", f"{_ABORTED} While it was being stopped, it raised {error_text(end.error)}")
    return raised_outcome(end.error)


_TIMED_OUT: Final = (
    "The tool did not finish within {:g} s and was stopped. It may have had effects: check for them before repeating "
    "the call."
)
_NOT_STARTED: Final = "The call was cancelled before the tool was started, so it had no effect."
_ABORTED: Final = "The call was cancelled while the tool was running. It may have had effects."

_log: Final = Log("quiesce.tools")


def _warn(call: ToolInvocation, state: _State) -> None:
    """Say that a body does not end."""
    facts = {"session": call.session_id, "tool": call.name, "call": call.call_id, "cause": state.value}
    _log.write(WARNING, _STILL_RUNNING, **facts)


_STILL_RUNNING: Final = "tool body was stopped and has not ended"
