"""`Message[R]`: the base of every typed message. It owns the one link between a request and the type of its reply."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Message"]

R_co = TypeVar("R_co", covariant=True)


class Message(Generic[R_co]):
    """A message whose reply is an `R_co`; `await ref.ask(message)` is typed with it.

    Subclass it with a frozen attrs class: `@frozen class Count(Message[int]): word: str`. A message that is only ever
    told has the reply type `None`.
    """

    __slots__ = ()
