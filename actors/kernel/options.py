"""Spawning with options: what `system.options(name=..., inbox_limit=...)` gives, whose `spawn` is as the system's."""

# ruff: noqa: SLF001  # the system's own

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args

from attrs import field, frozen
from attrs.validators import in_, optional

from quiesce.actors.kernel.bounded import InboxPolicy
from quiesce.actors.kernel.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from quiesce.actors.kernel.actor import TrioActor
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.ref import ActorRef
    from quiesce.actors.kernel.system import ActorSystem

    A = TypeVar("A", bound=TrioActor)

__all__ = ["SpawnOptions"]

P = ParamSpec("P")


def _check_name(_options: object, _field: object, name: Any) -> None:  # noqa: ANN401  # it is the check of its type
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the name of an actor is a str, not {name!r}")
    if name == "":
        raise ValueError("the name of an actor must not be empty")


def _check_limit(_options: object, _field: object, limit: Any) -> None:  # noqa: ANN401  # as above
    if limit is not None and type(limit) is not int:
        raise TypeError(f"inbox_limit must be an int above zero or None, not {limit!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"inbox_limit must be above zero, not {limit!r}")


@frozen(kw_only=True)
class SpawnOptions:
    """How actors are to be spawned. Options that are left out are as the actor's class says."""

    _system: ActorSystem = field(repr=False)
    name: str | None = field(default=None, validator=_check_name)
    """Held by one actor of the system at a time, for `system.lookup(name)`; it stands in texts and logs."""
    inbox_limit: int | None = field(default=None, validator=_check_limit)
    """Messages that may wait in the inbox. See `TrioActor.inbox_limit`."""
    inbox_policy: InboxPolicy | None = field(default=None, validator=optional(in_(get_args(InboxPolicy))))
    """What a full inbox does. See `TrioActor.inbox_policy`."""

    def spawn(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Reply[ActorRef[A]]:
        """Make an actor and start it, as `system.spawn` does.

        Raises (as the reply):
            NameTakenError: another actor of the system holds the name.
        """
        reply: Reply[ActorRef[A]] = Reply(self._system)
        self._system._spawn(reply, self, factory, args, kwargs)
        return reply

    def apply(self, cell: ActorCell) -> None:
        """Set up the cell of an actor that is about to be made.

        Raises:
            NameTakenError: another actor holds the name.

        """
        cell.bounds = (self.inbox_limit, self.inbox_policy)
        cell.bound_inbox()
        if self.name is not None:  # from here on other threads can send to it
            self._system.names.claim(self.name, cell)
