"""`Batch`: the scheduling rules of one step's calls as a state machine. No await, no clock, no tool in it.

A shell asks `next_action` what to do now, does it, and reports what happened; a report may make new actions possible.

    WAITING -> STARTING -> LIVE -----> SETTLED -> FINALIZING -> APPENDING -> COMMITTED
                  |         |            ^            |             |
                  |         +-> LOST     |            +-> LOST      +-> HELD
                  +-----> ANSWERED ------+

    STARTING    its tool/call is sent and `prepare` is under way; it holds no place in the pool
    LIVE        its body may run: it holds a place in the pool
    ANSWERED    it is answered without a body (denied, bad arguments), and waits for its record alone
    SETTLED     its outcome is known, and waits for its turn at the commit cursor
    FINALIZING  the `finalize` hooks are looking at the outcome
    APPENDING   its result is on its way into the log
    HELD        its finalized result cannot be appended; a rejected batch carries it in `settled` (G3)
    LOST        it will never have a result; recovery labels it (G4)

The rules it owns:

1. Calls start in call order, and one is STARTING at a time: `prepare` is never asked out of order.
2. A parallel call starts while fewer than `max_parallel` are LIVE and no exclusive call is unfinished. An exclusive
   call starts when everything before it is COMMITTED.
3. Results are finalized and appended in call order, and a result that is due goes before the next start, however long
   `finalize` looks at it.
4. In mode ABORTING nothing starts; what never started is answered, in order, after what did.
5. In mode FAILING nothing starts; the first failure is kept; results are appended as far as the order allows: behind a
   LOST call, and after any failed append, they are HELD.
6. The batch is quiescent when no call is STARTING, ANSWERED, LIVE, FINALIZING or APPENDING, and nothing is left to do
   (G2).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field, frozen

if TYPE_CHECKING:
    from quiesce.protocol.events import CallClass

__all__ = ["Action", "Batch", "CallState", "Commit", "Mode", "Start"]


class CallState(Enum):
    """Where one call stands; see the module's picture."""

    WAITING = "waiting"
    STARTING = "starting"
    LIVE = "live"
    ANSWERED = "answered"
    SETTLED = "settled"
    FINALIZING = "finalizing"
    APPENDING = "appending"
    COMMITTED = "committed"
    HELD = "held"
    LOST = "lost"


class Mode(Enum):
    """What the batch is after: it only ever moves down this list."""

    RUNNING = "running"
    ABORTING = "aborting"
    FAILING = "failing"


@frozen
class Start:
    """Classify call `index` now, and `try_start` it with that class: it may have become another one meanwhile."""

    index: int


@frozen
class Commit:
    """Say `committing`, finalize the outcome of call `index`, and report `finalized` or `lost`."""

    index: int


Action: TypeAlias = Start | Commit

_S: Final = CallState
_MOVES: Final[dict[CallState, frozenset[CallState]]] = {
    _S.WAITING: frozenset({_S.STARTING, _S.SETTLED, _S.LOST}),
    _S.STARTING: frozenset({_S.LIVE, _S.ANSWERED, _S.SETTLED, _S.LOST}),
    _S.LIVE: frozenset({_S.SETTLED, _S.LOST}),
    _S.ANSWERED: frozenset({_S.SETTLED, _S.LOST}),
    _S.SETTLED: frozenset({_S.FINALIZING}),
    _S.FINALIZING: frozenset({_S.APPENDING, _S.HELD, _S.LOST}),
    _S.APPENDING: frozenset({_S.COMMITTED, _S.HELD}),
}
_BUSY: Final = frozenset({_S.STARTING, _S.LIVE, _S.ANSWERED, _S.FINALIZING, _S.APPENDING})
_UNFINISHED: Final = frozenset({_S.STARTING, _S.LIVE, _S.ANSWERED, _S.SETTLED, _S.FINALIZING})


@define
class Batch:
    """The calls of one step, from the first start to quiescence."""

    size: int
    max_parallel: int = 10
    mode: Mode = Mode.RUNNING
    failure: BaseException | None = None
    abort_cause: str | None = None
    _states: list[CallState] = field(init=False)
    _busy: int = 0
    _live: int = 0
    _starting: int | None = None
    _exclusive: int | None = None
    _next_start: int = 0
    _next_commit: int = 0
    _committed: int = 0
    _gap: bool = False
    _stalled: bool = False

    def __attrs_post_init__(self) -> None:
        self._states = [_S.WAITING] * self.size

    # --- what to do --------------------------------------------------------------------------------------------

    def next_action(self) -> Action | None:
        """What the shell shall do now, or None until something has been reported. A due commit goes first (rule 3)."""
        if self._due_for_commit():
            return Commit(self._next_commit)
        if self._may_consider_start():
            return Start(self._next_start)
        return None

    def try_start(self, index: int, call_class: CallClass) -> bool:
        """Start call `index` if its class allows that now (rule 2); if not, it is considered again after a report."""
        alone = call_class == "exclusive"
        if alone and self._committed < index:
            self._stalled = True
            return False
        self._move(index, _S.STARTING)
        self._starting = index
        self._next_start = index + 1
        if alone:
            self._exclusive = index
        return True

    @property
    def quiescent(self) -> bool:
        """Whether nothing of this batch can run or write any more (rule 6)."""
        return not self._busy and self.next_action() is None and self._next_start == self.size

    def state(self, index: int) -> CallState:
        """Where call `index` stands."""
        return self._states[index]

    def unstarted(self) -> range:
        """The calls that were never started, in call order."""
        return range(self._next_start, self.size)

    # --- what happened -----------------------------------------------------------------------------------------

    def prepared(self, index: int) -> bool:
        """`prepare` let call `index` pass. Whether its body may run: not once the batch aborts or fails."""
        if self.mode is not Mode.RUNNING:
            return False
        self._move(index, _S.LIVE)
        return True

    def answered(self, index: int) -> None:
        """Call `index` will be answered without a body. The next one need not wait for that."""
        self._move(index, _S.ANSWERED)

    def settled(self, index: int) -> None:
        """The outcome of call `index` is known: its body returned or raised, or its answer has its record."""
        if index >= self._next_start:
            self._next_start = index + 1
        self._move(index, _S.SETTLED)

    def lost(self, index: int) -> None:
        """Call `index` will have no result: its body did not run or was cancelled, or `finalize` raised."""
        self._move(index, _S.LOST)

    def committing(self, index: int) -> None:
        """The shell has begun to finalize call `index`."""
        self._move(index, _S.FINALIZING)

    def finalized(self, index: int) -> bool:
        """The outcome of call `index` passed `finalize`. Whether it may be appended; if not, it is HELD (rule 5)."""
        self._move(index, _S.HELD if self._gap else _S.APPENDING)
        return not self._gap

    def appended(self, index: int) -> None:
        """The result of call `index` is durable."""
        self._move(index, _S.COMMITTED)

    def append_failed(self, index: int, error: BaseException) -> None:
        """The log refused the result of call `index`: it and what follows are HELD, and the batch fails."""
        self._gap = True
        self._move(index, _S.HELD)
        self.fail(error)

    def record_failed(self, index: int, error: BaseException) -> None:
        """The log refused the tool/call of call `index`: its body will not run, nothing more is appended."""
        self._gap = True
        self._move(index, _S.LOST)
        self.fail(error)

    def abort(self, cause: str) -> bool:
        """The user cancels. False if that came too late to change anything; the first cause wins."""
        if self.mode is not Mode.RUNNING:
            return False
        self.mode = Mode.ABORTING
        self.abort_cause = cause
        return True

    def fail(self, failure: BaseException) -> bool:
        """The scheduler failed. Calls that never started are LOST. False if an earlier failure is kept (G5)."""
        if self.mode is Mode.FAILING:
            return False
        self.mode = Mode.FAILING
        self.failure = failure
        for index in self.unstarted():
            self._move(index, _S.LOST)
        self._next_start = self.size
        return True

    # --- inside ------------------------------------------------------------------------------------------------

    def _due_for_commit(self) -> bool:
        """Move the commit cursor over what needs no commit; whether a SETTLED call is under it."""
        while self._next_commit < self.size:
            state = self._states[self._next_commit]
            if state is _S.SETTLED:
                return True
            if state in _BEFORE_COMMIT:
                return False
            if state is _S.LOST:
                self._gap = True
            self._next_commit += 1
        return False

    def _may_consider_start(self) -> bool:
        if self.mode is not Mode.RUNNING or self._stalled or self._starting is not None:
            return False
        if self._next_start == self.size:
            return False
        if self._exclusive is not None and self._states[self._exclusive] in _UNFINISHED:
            return False
        if self._states[self._next_commit] is _S.FINALIZING:
            return False
        return self._live < self.max_parallel

    def _move(self, index: int, to: CallState) -> None:
        was = self._states[index]
        if to not in _MOVES.get(was, frozenset()):
            raise AssertionError(f"call {index} cannot go from {was.value} to {to.value}")
        self._stalled = False
        self._states[index] = to
        self._busy += (to in _BUSY) - (was in _BUSY)
        self._live += (to is _S.LIVE) - (was is _S.LIVE)
        self._committed += to is _S.COMMITTED
        if was is _S.STARTING:
            self._starting = None


_BEFORE_COMMIT: Final = frozenset({_S.WAITING, _S.STARTING, _S.LIVE, _S.ANSWERED, _S.FINALIZING})
