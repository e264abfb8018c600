"""What a supervisor decides, as values: the spec of a child, the rules of a supervisor, and `decide()`.

The theory, after Erlang/OTP:

1. A child ended, or could not be started again: `Reason`. Its restart type and the reason give its `Fate`, by table.
2. Only the fate RESTART makes an incident. It counts once, however many children it restarts; more incidents within
   the period than the intensity allows, and the supervisor gives up.
3. The strategy says which children an incident takes along, by table. They are stopped in reverse start order, and
   started again in start order; temporary ones are stopped and forgotten.
4. A child that stays down by itself may shut its supervisor down, if it is significant, by table.

No clock, no randomness and no actor in here: time is a number, chance is a number, children are a mapping.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

from attrs import evolve, field, frozen

from quiesce.actors.kernel.supervision_errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attrs import Attribute

    Check = Callable[[Any, "Attribute[Any]", Any], None]

__all__ = [
    "AT_ONCE",
    "FATES",
    "INFINITE",
    "AutoShutdown",
    "Backoff",
    "ChildSpec",
    "Decision",
    "Fate",
    "Intensity",
    "Kind",
    "Member",
    "Reason",
    "Restart",
    "Rules",
    "Strategy",
    "Verdict",
    "decide",
]

Restart = Literal["permanent", "transient", "temporary"]
Kind = Literal["worker", "supervisor"]
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown = Literal["never", "any_significant", "all_significant"]

INFINITE: Final = math.inf
"""A shutdown time: wait as long as it takes. What supervisors have, so that their own children get their time."""
AT_ONCE: Final = 0.0
"""A shutdown time: cancel at once, and the exit hook with it. Erlang's `brutal_kill`, as far as Trio can kill."""


# -- checks, each of which names the field ---------------------------------------------------------------------------


def _refuse(attribute: Attribute[Any], value: object, wanted: str) -> None:
    raise SpecError(attribute.name, f"{attribute.name} must be {wanted}, not {value!r}")


def _is_one_of(choices: object) -> Check:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if value not in get_args(choices):
            _refuse(attribute, value, "one of " + ", ".join(map(repr, get_args(choices))))

    return check


def _is_number(wanted: str, accepts: Callable[[float], bool]) -> Check:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not accepts(value):
            _refuse(attribute, value, wanted)

    return check


def _is_bool(_: object, attribute: Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        _refuse(attribute, value, "True or False")


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # it, or something in it
        return False
    return True


def _is_id(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is None or not _is_hashable(value):
        _refuse(attribute, value, "hashable and not None")


def _is_name(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        _refuse(attribute, value, "None or a str that is not empty")


def _is_start(_: object, attribute: Attribute[Any], value: object) -> None:
    if not callable(value):
        _refuse(attribute, value, "an actor class, or a function without parameters (`partial(Cls, 1)`) that makes one")


def _is_count(_: object, attribute: Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(attribute, value, "a whole number, 0 or more")


def _is_a(kind: type, wanted: str) -> Check:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            _refuse(attribute, value, wanted)

    return check


_is_time = _is_number("seconds above zero", lambda value: 0 < value < math.inf)


# -- specs and rules --------------------------------------------------------------------------------------------------


@frozen
class ChildSpec:
    """What a supervisor knows of a child: how to start it, when to start it again, how to stop it.

    Raises:
        SpecError: a field is wrong; it says which.

    """

    id: Hashable = field(validator=_is_id)
    """The child's name within its supervisor."""
    start: Callable[[], Any] = field(validator=_is_start)
    """Makes a new actor each time: an actor class, or a function without parameters, as `partial(Counter, 1)`.

    The actor's `__init__` or `on_start` may raise `Decline`: then the child stays known, but does not run.
    """
    restart: Restart = field(default="permanent", validator=_is_one_of(Restart))
    """`permanent`: always; `transient`: only after a crash; `temporary`: never, and it is forgotten when it ends."""
    kind: Kind = field(default="worker", validator=_is_one_of(Kind))
    """Whether the child is itself a supervisor."""
    shutdown: float = field(validator=_is_number("seconds, 0 or more", lambda value: value >= 0))
    """Seconds the child may take to stop before it is cancelled; also `AT_ONCE` (0) and `INFINITE`.

    By default 5 seconds, for a supervisor infinite.
    """
    significant: bool = field(default=False, validator=_is_bool)
    """Whether the end of this child can shut its supervisor down; see `auto_shutdown`. Never of a permanent child."""
    name: str | None = field(default=None, kw_only=True, validator=_is_name)
    """The actor's name in its system, for `system.lookup(name)`; held for as long as its address lives.

    If another actor holds it, the start fails with `NameTakenError`.
    """

    @shutdown.default
    def _usual_shutdown(self) -> float:
        return INFINITE if self.kind == "supervisor" else 5.0

    def __attrs_post_init__(self) -> None:
        if self.significant and self.restart == "permanent":
            raise SpecError("significant", "significant cannot be said of a permanent child, which never stays down")

    def without_start(self) -> ChildSpec:
        """Return the spec of a child that is never started again: what its start holds on to is let go."""
        return evolve(self, start=_never_again)


def _never_again() -> None:
    raise AssertionError("a temporary child is not started again")


@frozen
class Intensity:
    """How many restarts a supervisor makes before it gives up: at most `restarts` within any `period` seconds."""

    restarts: int = field(default=3, validator=_is_count)
    period: float = field(default=5.0, validator=_is_time)

    def add(self, history: tuple[float, ...], now: float) -> tuple[float, ...]:
        """Return the times of the restarts that count at `now`, this one included; `history` is in their order."""
        return (*history[self._oldest(history, now) :], now)

    def counting(self, history: tuple[float, ...], now: float) -> int:
        """Return how many of these restarts count at `now`."""
        return len(history) - self._oldest(history, now)

    def _oldest(self, history: tuple[float, ...], now: float) -> int:
        """Where those begin that count: found without a look at each, as thousands of children may fail at once."""
        return bisect_left(history, True, key=lambda time: now - time <= self.period)

    def exceeded(self, history: tuple[float, ...]) -> bool:
        """Whether these are more than allowed."""
        return len(history) > self.restarts


@frozen
class Backoff:
    """How long to wait before a restart: longer after each one that did not last."""

    initial: float = field(default=0.1, validator=_is_time)
    """Seconds before the first restart."""
    factor: float = field(default=2.0, validator=_is_number("a number, 1 or more", lambda value: 1 <= value < math.inf))
    """By which the wait grows from one restart to the next."""
    cap: float = field(default=30.0, validator=_is_time)
    """Seconds that a wait takes at most."""
    jitter: float = field(default=0.1, validator=_is_number("between 0 and 1", lambda value: 0 <= value <= 1))
    """The part of each wait that is left to chance, so that what failed together does not return together."""
    reset_after: float = field(default=10.0, validator=_is_time)
    """Seconds for which a child has to stay up to make its next failure the first one again."""

    def next_wait(self, last: float | None, uptime: float) -> float:
        """Return the wait, before chance, of a child that last waited `last` and then was up for `uptime` seconds."""
        if last is None or uptime >= self.reset_after:
            return min(self.initial, self.cap)
        return min(last * self.factor, self.cap)

    def shortened(self, wait: float, chance: float) -> float:
        """Apply chance, a number from 0 to 1, to a wait. It only makes it shorter, so that the cap holds."""
        return wait * (1 - self.jitter * chance)


@frozen
class Rules:
    """What a supervisor goes by."""

    strategy: Strategy = field(default="one_for_one", validator=_is_one_of(Strategy))
    intensity: Intensity = field(factory=Intensity, validator=_is_a(Intensity, "an Intensity"))
    backoff: Backoff | None = field(default=None, validator=_is_a(Backoff | None, "a Backoff or None"))  # type: ignore[arg-type]  # a union, to isinstance()
    auto_shutdown: AutoShutdown = field(default="never", validator=_is_one_of(AutoShutdown))

    def check(self, spec: object) -> None:
        """Refuse what is no spec, or none for a supervisor with these rules.

        Raises:
            SpecError: see there.

        """
        if not isinstance(spec, ChildSpec):
            raise SpecError("spec", f"a child is described by a ChildSpec, not by {spec!r}")
        if spec.significant and self.auto_shutdown == "never":
            raise SpecError("significant", f"significant child {spec.id!r} needs a supervisor with auto_shutdown")


# -- the decision -----------------------------------------------------------------------------------------------------


class Reason(enum.Enum):
    """What a supervisor learns about a child."""

    FINISHED = "finished"
    """It ended by itself, without a failure."""
    FAILED = "failed"
    """It crashed."""
    NOT_STARTED = "not started"
    """An attempt to start it again failed."""
    DECLINED = "declined"
    """Its start declined."""
    SYSTEM_ENDING = "system ending"
    """It ended because everything does."""


class Fate(enum.Enum):
    """What becomes of a child."""

    RESTART = "restart"
    KEEP = "keep"
    """It stays down, known to the supervisor."""
    FORGET = "forget"


_KEPT_UNLESS: Final = {Reason.DECLINED: Fate.KEEP, Reason.SYSTEM_ENDING: Fate.KEEP}
_RESTARTED: Final = {Reason.FAILED: Fate.RESTART, Reason.NOT_STARTED: Fate.RESTART}

FATES: Final[Mapping[Restart, Mapping[Reason, Fate]]] = {
    "permanent": {Reason.FINISHED: Fate.RESTART, **_RESTARTED, **_KEPT_UNLESS},
    "transient": {Reason.FINISHED: Fate.KEEP, **_RESTARTED, **_KEPT_UNLESS},
    "temporary": dict.fromkeys(Reason, Fate.FORGET),
}
"""What becomes of a child, by its restart type and what happened to it."""


class Member(Protocol):
    """A child, as the decision sees it."""

    @property
    def spec(self) -> ChildSpec:
        """Its spec."""

    @property
    def active(self) -> bool:
        """Whether it runs, or is about to be started again."""


class Verdict(enum.Enum):
    """What a supervisor does about it."""

    GO_ON = "go on"
    """The child stays down; nothing else happens."""
    RESTART = "restart"
    SHUT_DOWN = "shut down"
    """The supervisor ends, as nothing is left for it to do."""
    GIVE_UP = "give up"
    """The supervisor fails."""


@frozen
class Decision:
    """The answer of `decide()`. The keys in it are those of the mapping of children."""

    verdict: Verdict
    fate: Fate
    """What becomes of the child in question."""
    history: tuple[float, ...]
    """The restarts that count from now on."""
    stop: tuple[Hashable, ...] = ()
    """The other children to be stopped, in this order."""
    forget: tuple[Hashable, ...] = ()
    """Those among them that do not come back."""
    start: tuple[Hashable, ...] = ()
    """The children to be started, in this order."""


def _all(keys: tuple[Hashable, ...], _: Hashable) -> tuple[Hashable, ...]:
    return keys


def _from_there_on(keys: tuple[Hashable, ...], key: Hashable) -> tuple[Hashable, ...]:
    return keys[keys.index(key) :]


_GROUPS: Final[Mapping[Strategy, Callable[[tuple[Hashable, ...], Hashable], tuple[Hashable, ...]]]] = {
    "one_for_all": _all,
    "rest_for_one": _from_there_on,
}  # one_for_one is not here: the only one that needs no list of all children, and a supervisor may have many


def _shuts_down(rules: Rules, children: Mapping[Hashable, Member], key: Hashable) -> bool:
    if rules.auto_shutdown == "never" or not children[key].spec.significant:
        return False
    others = (member for other, member in children.items() if other != key)
    return rules.auto_shutdown == "any_significant" or not any(
        member.spec.significant and member.active for member in others
    )


def decide(
    rules: Rules,
    children: Mapping[Hashable, Member],
    key: Hashable,
    reason: Reason,
    history: tuple[float, ...],
    now: float,
) -> Decision:
    """Decide what follows from what happened to one child.

    Args:
        rules: those of the supervisor.
        children: all of them, in start order.
        key: the child's.
        reason: what happened to it.
        history: the restarts so far, as the last decision had it.
        now: seconds, on the same clock as the history.

    """
    fate = FATES[children[key].spec.restart][reason]
    if fate is not Fate.RESTART:
        ends = reason in {Reason.FINISHED, Reason.FAILED} and _shuts_down(rules, children, key)
        return Decision(Verdict.SHUT_DOWN if ends else Verdict.GO_ON, fate, history)
    history = rules.intensity.add(history, now)
    if rules.intensity.exceeded(history):
        return Decision(Verdict.GIVE_UP, fate, history)
    if rules.strategy == "one_for_one":
        return Decision(Verdict.RESTART, fate, history, start=(key,))
    group = _GROUPS[rules.strategy](tuple(children), key)
    leaving = {other for other in group if children[other].spec.restart == "temporary"}
    return Decision(
        Verdict.RESTART,
        fate,
        history,
        stop=tuple(other for other in reversed(group) if other != key),
        forget=tuple(other for other in group if other in leaving),
        start=tuple(other for other in group if other not in leaving),
    )
