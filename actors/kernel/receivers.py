"""Which method of an actor handles which message: the `@receive` decorator and the table made of it, one per class.

A table maps the exact type of a message to a function `(actor, message)`. It starts with the class's receivers and
Pykka's own messages; a type met for the first time is looked up by its bases once and remembered.
"""

# ruff: noqa: ANN401  # messages and their answers may be anything

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

import trio
from pykka import messages as pykka_messages
from pykka._introspection import get_attr_directly

from quiesce.actors.kernel.revocable import Revocable
from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.actor import TrioActor

__all__ = ["Handler", "ReceiverTable", "receive"]

A = TypeVar("A")
M = TypeVar("M", bound=Message[Any])
M_co = TypeVar("M_co", bound=Message[Any], covariant=True)
R = TypeVar("R")

Handler: TypeAlias = "Callable[[Any, Any], Any]"

_MARK: Final = "_receives"
_HOOKS: Final = ("__init__", "on_start", "on_stop", "on_failure")


class _Receiver(Generic[M_co]):
    """What `@receive(M)` decorates with. The overloads say to the type checker which methods can answer an `M`."""

    def __init__(self, message_type: type[M_co]) -> None:
        self._message_type = message_type

    @overload
    def __call__(self, method: Callable[[A, M_co], None], /) -> Callable[[A, M_co], None]: ...
    @overload
    def __call__(
        self, method: Callable[[A, M_co], Coroutine[Any, Any, None]], /
    ) -> Callable[[A, M_co], Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(
        self: _Receiver[Message[R]], method: Callable[[A, M_co], Coroutine[Any, Any, R]], /
    ) -> Callable[[A, M_co], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self: _Receiver[Message[R]], method: Callable[[A, M_co], R], /) -> Callable[[A, M_co], R]: ...
    def __call__(self, method: Callable[[A, M_co], object], /) -> Callable[[A, M_co], object]:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), self._message_type))
        return method


def receive(message_type: type[M], /) -> _Receiver[M]:
    """Mark a method of a `TrioActor` as the receiver of a message type, and of its subclasses.

    The method is `def` (runs on the dispatcher: it must not block) or `async def` (runs in the actor's own task). It
    returns what the message's `Message[R]` says; or nothing, when it answers through `self.take_reply(message)`. A type
    checker accepts these and no others.

    May be stacked to receive several types. Overriding the method in a subclass, decorated or not, overrides the
    receiver; a subclass may also name another method for the type.

    Raises:
        TypeError: `message_type` is not a subclass of `Message`.

    """
    if not issubclass(message_type, Message):
        raise TypeError(f"@receive takes a subclass of Message, not {message_type!r}; the others go to on_receive")
    return _Receiver(message_type)


class ReceiverTable:
    """The receivers of one actor class. `known` is a plain dict by exact message type, which `handler_of` fills in."""

    __slots__ = ("_actor_class", "known")

    def __init__(self, actor_class: type[TrioActor]) -> None:
        self.known: dict[type, Handler] = {
            pykka_messages._ActorStop: _stop,  # noqa: SLF001  # what Pykka's refs and actors send
            pykka_messages.ProxyCall: _proxy_call,
            pykka_messages.ProxyGetAttr: _proxy_get,
            pykka_messages.ProxySetAttr: _proxy_set,
            Revocable: _open,
        }
        self._actor_class = actor_class
        for message_type, name in _marked_methods(actor_class).items():
            self.known[message_type] = _interruptible(getattr(actor_class, name))
        for name in _HOOKS:
            _interruptible(getattr(actor_class, name))

    def handler_of(self, message_type: type) -> Handler:
        """Return what handles messages of a type."""
        handler = self.known.get(message_type)
        if handler is None:
            base = next((base for base in message_type.__mro__ if base in self.known), None)
            handler = _interruptible(self._actor_class.on_receive) if base is None else self.known[base]
            self.known[message_type] = handler
        return handler


def _marked_methods(actor_class: type[TrioActor]) -> dict[type, str]:
    """Message type -> method name; the most derived class that names a method for a type has the say."""
    return {
        message_type: name
        for cls in reversed(actor_class.__mro__)
        for name, method in vars(cls).items()
        if isinstance(method, FunctionType)
        for message_type in getattr(method, _MARK, ())
    }


def _interruptible(handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let Ctrl-C interrupt the user's code, which the kernel's protected loops call."""
    return trio.lowlevel.disable_ki_protection(handler) if hasattr(handler, "__code__") else handler


def _stop(actor: TrioActor, _message: object) -> None:
    actor._cell.stop_in_turn()  # noqa: SLF001  # the cell is the actor's other half


def _open(actor: TrioActor, sent: Revocable) -> Any:
    """Handle what a timer or a monitor sent, unless it was taken back."""
    if sent.revoked:
        return None
    sent.taken()
    message = actor._cell.message = sent.message  # noqa: SLF001  # see _stop
    return actor._receivers.handler_of(type(message))(actor, message)  # noqa: SLF001  # as the cell does


@trio.lowlevel.disable_ki_protection
def _proxy_call(actor: TrioActor, message: pykka_messages.ProxyCall) -> Any:
    return get_attr_directly(actor, message.attr_path)(*message.args, **message.kwargs)


@trio.lowlevel.disable_ki_protection
def _proxy_get(actor: TrioActor, message: pykka_messages.ProxyGetAttr) -> Any:
    return get_attr_directly(actor, message.attr_path)


@trio.lowlevel.disable_ki_protection
def _proxy_set(actor: TrioActor, message: pykka_messages.ProxySetAttr) -> None:
    setattr(get_attr_directly(actor, message.attr_path[:-1]), message.attr_path[-1], message.value)
