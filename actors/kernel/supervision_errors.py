"""What can go wrong with children, each named for what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from quiesce.actors.kernel.ref import ActorRef

__all__ = [
    "ChildError",
    "ChildNotFoundError",
    "ChildPresentError",
    "ChildRestartingError",
    "ChildRunningError",
    "ChildStartError",
    "Decline",
    "SpecError",
    "SupervisorGaveUpError",
]


class SpecError(ValueError):
    """A field of a child spec, or of a supervisor's rules, is wrong. `field` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Decline(Exception):  # noqa: N818  # no error: an answer
    """Raised by an actor's `__init__` or `on_start` to say: there is nothing to do for me, and that is all right.

    A supervisor then keeps the child as one that does not run (Erlang's `ignore`), and goes on.
    """


class ChildError(Exception):
    """The base of what a supervisor answers about one child. `child_id` says which."""

    def __init__(self, child_id: Hashable, message: str) -> None:
        super().__init__(message)
        self.child_id = child_id


class ChildStartError(ChildError):
    """A child could not be started. The cause (`__cause__`) is what its `__init__` or `on_start` raised."""

    def __init__(self, child_id: Hashable) -> None:
        super().__init__(child_id, f"child {child_id!r} could not be started")


class ChildNotFoundError(ChildError, LookupError):
    """The supervisor has no such child."""

    def __init__(self, child_id: Hashable) -> None:
        super().__init__(child_id, f"there is no child {child_id!r}")


class ChildRunningError(ChildError):
    """The child runs, and `ref` is its ref. Terminate it first."""

    def __init__(self, child_id: Hashable, ref: ActorRef[Any]) -> None:
        super().__init__(child_id, f"child {child_id!r} is running")
        self.ref = ref


class ChildRestartingError(ChildError):
    """The child is about to be started again. Terminate it first, to keep it down."""

    def __init__(self, child_id: Hashable) -> None:
        super().__init__(child_id, f"child {child_id!r} is being restarted")


class ChildPresentError(ChildError):
    """A child of this id is known and does not run: restart it, or delete it first."""

    def __init__(self, child_id: Hashable) -> None:
        super().__init__(child_id, f"there is a child {child_id!r} already, which does not run")


class SupervisorGaveUpError(Exception):
    """A child had to be restarted more often than its supervisor's intensity allows. The cause is its last failure."""

    def __init__(self, child_id: Hashable, restarts: int, period: float) -> None:
        super().__init__(f"gave up on child {child_id!r}: more than {restarts} restarts within {period} s")
        self.child_id = child_id
