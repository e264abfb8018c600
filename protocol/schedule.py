"""`Batch`: the scheduling rules of one step's calls as a state machine. No await, no clock, no tool in it.

A shell asks `next_action` what to do now, does it, and reports what happened; a report may make new actions possible.

    WAITING -> STARTING -> LIVE -----> SETTLED -> FINALIZING -> APPENDING -> COMMITTED
                  |         |            ^            |             |
                  |         +-> LOST     |            +-> LOST      +-> HELD
                  +-----> ANSWERED ------+

and the way of a call that waits for a person:

    STARTING -> ASKING -> ASKED -> DECIDING -> ALLOWED -> LIVE
                                      +----> SETTLED

    STARTING    its tool/call is sent and `prepare` is under way; it holds no place in the pool
    LIVE        its body may run: it holds a place in the pool
    ASKING      `prepare` wants a person to decide about it, and the question is on its way into the log
    ASKED       it waits for that person; it holds no place in the pool
    DECIDING    the decision is on its way into the log
    ALLOWED     the person has approved it: its body may run as soon as there is a place in the pool
    ANSWERED    it is answered without a body (denied, bad arguments), and waits for its record alone
    SETTLED     its outcome is known, and waits for its turn at the commit cursor
    FINALIZING  the `finalize` hooks are looking at the outcome
    APPENDING   its result is on its way into the log
    HELD        its finalized result cannot be appended; a rejected batch carries it in `settled` (G3)
    LOST        it will never have a result; recovery labels it (G4)

The rules it owns:

1. Calls start in call order, and one is STARTING at a time: `prepare` is never asked out of order.
2. A parallel call starts while fewer than `max_parallel` are LIVE and no exclusive call is unfinished. An exclusive
   call starts when everything before it is COMMITTED. A call that waits for a person holds no place, so parallel calls
   behind it go on; nothing starts behind an exclusive one. Once ALLOWED it goes before whatever starts next.
3. Results are finalized and appended in call order, and a result that is due goes before the next start, however long
   `finalize` looks at it.
4. In mode ABORTING nothing starts; what never started is answered, in order, after what did. So is, at once, a call
   that waits for a person or for a place.
5. In mode FAILING nothing starts; the first failure is kept; calls that wait for a person or for a place are LOST;
   results are appended as far as the order allows: behind a LOST call, and after any failed append, they are HELD.
6. The batch is quiescent when every call is SETTLED and gone through the commit, or LOST, and nothing is left to do:
   no body runs, nothing is on its way into the log, and nobody is asked (G2).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quiesce.protocol.events import CallClass

__all__ = ["Action", "Batch", "CallState", "Commit", "Mode", "Run", "Start"]


class CallState(Enum):
    """Where one call stands; see the module's picture."""

    WAITING = "waiting"
    STARTING = "starting"
    ASKING = "asking"
    ASKED = "asked"
    DECIDING = "deciding"
    ALLOWED = "allowed"
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


@frozen
class Run:
    """There is a place in the pool for call `index`, which a person has approved: say `prepared`, or `settled`."""

    index: int


Action: TypeAlias = Start | Commit | Run

_S: Final = CallState
_MOVES: Final[dict[CallState, frozenset[CallState]]] = {
    _S.WAITING: frozenset({_S.STARTING, _S.SETTLED, _S.LOST}),
    _S.STARTING: frozenset({_S.LIVE, _S.ASKING, _S.ANSWERED, _S.SETTLED, _S.LOST}),
    _S.ASKING: frozenset({_S.ASKED, _S.SETTLED, _S.LOST}),
    _S.ASKED: frozenset({_S.DECIDING, _S.SETTLED, _S.LOST}),
    _S.DECIDING: frozenset({_S.ASKED, _S.ALLOWED, _S.SETTLED, _S.LOST}),
    _S.ALLOWED: frozenset({_S.LIVE, _S.SETTLED, _S.LOST}),
    _S.LIVE: frozenset({_S.SETTLED, _S.LOST}),
    _S.ANSWERED: frozenset({_S.SETTLED, _S.LOST}),
    _S.SETTLED: frozenset({_S.FINALIZING}),
    _S.FINALIZING: frozenset({_S.APPENDING, _S.HELD, _S.LOST}),
    _S.APPENDING: frozenset({_S.COMMITTED, _S.HELD}),
}
_WITH_A_PERSON: Final = frozenset({_S.ASKING, _S.ASKED, _S.DECIDING, _S.ALLOWED})
_BUSY: Final = frozenset({_S.STARTING, _S.LIVE, _S.ANSWERED, _S.FINALIZING, _S.APPENDING}) | _WITH_A_PERSON
_UNFINISHED: Final = frozenset({_S.STARTING, _S.LIVE, _S.ANSWERED, _S.SETTLED, _S.FINALIZING}) | _WITH_A_PERSON
_IDLE: Final = frozenset({_S.ASKED, _S.ALLOWED})
"""Begun, and nothing of it runs or is on its way: it can be answered or lost at any moment."""
_TAKEN_UP: Final = frozenset({_S.WAITING, _S.ASKED, _S.SETTLED, _S.COMMITTED})


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
    _allowed: set[int] = field(init=False, factory=set)
    _next_start: int = 0
    _next_commit: int = 0
    _committed: int = 0
    _gap: bool = False
    _stalled: bool = False

    def __attrs_post_init__(self) -> None:
        self._states = [_S.WAITING] * self.size

    @classmethod
    def resumed(cls, states: Sequence[CallState], max_parallel: int = 10, *, exclusive: int | None = None) -> Batch:
        """A batch that began in another process. Its calls are COMMITTED, SETTLED, ASKED, or WAITING behind all others.

        `exclusive` is the ASKED call, if there is one, that nothing may start behind.
        """
        batch = cls(len(states), max_parallel)
        assert _TAKEN_UP.issuperset(states), states
        batch._states = list(states)
        batch._busy = sum(state in _BUSY for state in states)
        batch._committed = states.count(_S.COMMITTED)
        batch._next_start = next((at for at, state in enumerate(states) if state is _S.WAITING), len(states))
        assert all(state is _S.WAITING for state in states[batch._next_start :]), states
        batch._exclusive = exclusive
        return batch

    # --- what to do --------------------------------------------------------------------------------------------

    def next_action(self) -> Action | None:
        """What the shell shall do now, or None until something has been reported. A due commit goes first (rule 3)."""
        if self._due_for_commit():
            return Commit(self._next_commit)
        if self._allowed and self._may_run():
            return Run(min(self._allowed))
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

    def waiting(self) -> tuple[int, ...]:
        """The calls that wait for a person, or for a place after one approved them, in call order."""
        return tuple(index for index, state in enumerate(self._states) if state in _IDLE)

    # --- what happened -----------------------------------------------------------------------------------------

    def prepared(self, index: int) -> bool:
        """`prepare`, or a person, let call `index` pass. Whether its body may run: not if the batch aborts or fails."""
        return self._move_while_running(index, _S.LIVE)

    def answered(self, index: int) -> None:
        """Call `index` will be answered without a body. The next one need not wait for that."""
        self._move(index, _S.ANSWERED)

    def asking(self, index: int) -> None:
        """`prepare` has a question about call `index`, which is on its way into the log. The next one need not wait."""
        self._move(index, _S.ASKING)

    def asked(self, index: int) -> bool:
        """The question about call `index` is durable, or the decision about it was refused by the log.

        Whether it waits for a person now: not once the batch aborts or fails.
        """
        return self._move_while_running(index, _S.ASKED)

    def deciding(self, index: int) -> None:
        """A person has decided about call `index`, and the log is being told: nobody else can decide about it."""
        self._move(index, _S.DECIDING)

    def allowed(self, index: int) -> bool:
        """It is durable that call `index` was approved; one that was denied is `settled`. Whether it waits for a `Run`.

        Not once the batch aborts or fails.
        """
        return self._move_while_running(index, _S.ALLOWED)

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
        """The scheduler failed. Calls that never started, or wait for a person or a place, are LOST.

        False if an earlier failure is kept (G5).
        """
        if self.mode is Mode.FAILING:
            return False
        self.mode = Mode.FAILING
        self.failure = failure
        for index in (*self.waiting(), *self.unstarted()):
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

    def _may_run(self) -> bool:
        """Whether there is a place; a call that is being prepared will want one as well."""
        return self._live + (self._starting is not None) < self.max_parallel

    def _move_while_running(self, index: int, to: CallState) -> bool:
        if self.mode is not Mode.RUNNING:
            return False
        self._move(index, to)
        return True

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
        if to is _S.ALLOWED:
            self._allowed.add(index)
        else:
            self._allowed.discard(index)


_BEFORE_COMMIT: Final = frozenset({_S.WAITING, _S.STARTING, _S.LIVE, _S.ANSWERED, _S.FINALIZING}) | _WITH_A_PERSON
