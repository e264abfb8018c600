"""The names of a system: which actor holds which. A name is held from before `__init__` until the address is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quiesce.actors.kernel.errors import NameTakenError

if TYPE_CHECKING:
    from quiesce.actors.kernel.cell import ActorCell
    from quiesce.actors.kernel.ref import ActorRef

__all__ = ["Names"]


class Names:
    """Changed on the loop's thread, read on any."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[str, ActorRef[Any]] = {}

    def claim(self, name: str, cell: ActorCell) -> None:
        """Give a name to an actor that is about to be made.

        Raises:
            NameTakenError: another actor holds it.

        """
        holder = self._holders.get(name)
        if holder is not None:
            raise NameTakenError(f"the name {name!r} is held by {holder}; it is free when that actor is dead")
        cell.name = name
        self._holders[name] = cell.ref

    def free(self, name: str) -> None:
        """Take the name of an actor that is dead."""
        del self._holders[name]

    def get(self, name: str) -> ActorRef[Any] | None:
        """Return who holds a name."""
        return self._holders.get(name)
