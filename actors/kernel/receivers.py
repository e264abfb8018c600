"""Which method of an actor handles which message: the `@receive` decorator and the table made of it, one per class.

A table maps the exact type of a message to a function `(actor, message)`. It starts with the class's receivers and
Pykka's own messages; a type met for the first time is looked up by its bases once and remembered.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, overload

import trio
from pykka import messages as pykka_messages
from pykka._introspection import get_attr_directly

from quiesce.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from quiesce.actors.kernel.actor import TrioActor

__all__ = ["ReceiverTable", "receive"]

A = TypeVar("A")
M_co = TypeVar("M_co", bound=Message[Any], covariant=True)
M = TypeVar("M", bound=Message[Any])
R = TypeVar("R")

_MARK: Final = "_receives"


class _Answers(Protocol, Generic[M_co]):
    """Decorates the method that answers an `M`: it returns the reply, or is an `async def` that does."""

    @overload
    def __call__(
        self: _Answers[Message[R]], method: Callable[[A, M_co], Coroutine[Any, Any, R]], /
    ) -> Callable[[A, M_co], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self: _Answers[Message[R]], method: Callable[[A, M_co], R], /) -> Callable[[A, M_co], R]: ...


class _Defers(Protocol, Generic[M_co]):
    """Decorates the method that takes the reply to an `M` and returns nothing."""

    @overload
    def __call__(
        self, method: Callable[[A, M_co], Coroutine[Any, Any, None]], /
    ) -> Callable[[A, M_co], Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, method: Callable[[A, M_co], None], /) -> Callable[[A, M_co], None]: ...


@overload
def receive(message_type: type[M], /) -> _Answers[M]: ...
@overload
def receive(message_type: type[M], /, *, deferred: Literal[True]) -> _Defers[M]: ...
def receive(message_type: type[M], /, *, deferred: bool = False) -> Any:
    """Mark a method of a `TrioActor` as the receiver of a message type, and of its subclasses.

    The method is `def` (runs on the dispatcher: it must not block) or `async def` (runs in the actor's own task), and
    returns what the message's `Message[R]` says. With `deferred=True` it returns nothing and answers through
    `self.take_reply(message)`. May be stacked to receive several types. Overriding the method, decorated or not, in a
    subclass overrides the receiver; a subclass may also name another method for the type.

    Raises:
        TypeError: `message_type` is not a subclass of `Message`.
    """
    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise TypeError(f"@receive({message_type!r}): a subclass of Message is wanted; anything else goes to on_receive")
    del deferred  # says to the type checker which signature the method has

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), message_type))
        return method

    return mark


class ReceiverTable(dict[type, "Callable[[Any, Any], Any]"]):
    """The receivers of one actor class, by exact message type; looking up a new type fills it in."""

    __slots__ = ("_actor_class",)

    def __init__(self, actor_class: type[TrioActor]) -> None:
        super().__init__(
            {
                pykka_messages._ActorStop: _stop,  # noqa: SLF001  # what Pykka's refs and actors send
                pykka_messages.ProxyCall: _proxy_call,
                pykka_messages.ProxyGetAttr: _proxy_get,
                pykka_messages.ProxySetAttr: _proxy_set,
            }
        )
        self._actor_class = actor_class
        for message_type, name in _marked_methods(actor_class).items():
            self[message_type] = _interruptible(getattr(actor_class, name))

    def __missing__(self, message_type: type) -> Callable[[Any, Any], Any]:
        base = next((base for base in message_type.__mro__ if base in self), None)
        handler = _interruptible(self._actor_class.on_receive) if base is None else self[base]
        self[message_type] = handler
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


def _proxy_call(actor: TrioActor, message: pykka_messages.ProxyCall) -> Any:
    return get_attr_directly(actor, message.attr_path)(*message.args, **message.kwargs)


def _proxy_get(actor: TrioActor, message: pykka_messages.ProxyGetAttr) -> Any:
    return get_attr_directly(actor, message.attr_path)


def _proxy_set(actor: TrioActor, message: pykka_messages.ProxySetAttr) -> None:
    setattr(get_attr_directly(actor, message.attr_path[:-1]), message.attr_path[-1], message.value)
