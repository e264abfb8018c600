"""One attempt at a model request, and the policy that says whether there is another.

An attempt never raises what the model raised: it reports how far the answer came and what stopped it, so that what was
delivered is kept (behaviour: turns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio
from attrs import field, frozen

from quiesce.actors.options import check_count, check_seconds
from quiesce.protocol.errors import ModelError
from quiesce.protocol.model import ReplyAssembler

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from quiesce.actors.cancellation import Cancellation
    from quiesce.protocol.model import Delta, ModelRequest

__all__ = ["Attempt", "Model", "RetryPolicy", "attempt"]


class Model(Protocol):
    """Whoever answers model requests.

    `respond` sends the answer piece by piece to `emit`, a `Finished` last, and returns. It raises `ModelError` when the
    provider fails. Cancelled, it gives up the request at once and lets `Cancelled` pass.
    """

    name: str
    provider: str

    async def respond(self, request: ModelRequest, emit: Callable[[Delta], None]) -> None:
        """Answer `request`."""
        ...


@frozen
class Attempt:
    """How far one attempt came. `failure` is None for a complete answer and for one that the user cancelled."""

    answer: ReplyAssembler
    failure: Exception | None = None
    cancelled: bool = False


@frozen
class RetryPolicy:
    """Retries transient errors of attempts that delivered nothing, with jittered exponential back-off.

    Delays are in seconds. The provider's own `retry_after` is honoured when it is longer, and ends the attempts when it
    is longer than `max_retry_after`. Raises `InvalidInput` for what is out of range.
    """

    max_attempts: int = field(default=3, validator=lambda _, field, value: check_count(field.name, value))
    base_delay: float = field(default=0.5, validator=lambda _, field, value: check_seconds(field.name, value))
    max_delay: float = field(default=30.0, validator=lambda _, field, value: check_seconds(field.name, value))
    max_retry_after: float = field(default=300.0, validator=lambda _, field, value: check_seconds(field.name, value))

    def delay(self, failed: Attempt, attempts: int, random: Random) -> float | None:
        """How long to wait before the next attempt, after `attempts` of them; None to give up."""
        error = failed.failure
        if not isinstance(error, ModelError) or not error.transient or failed.answer.delivered:
            return None
        if attempts >= self.max_attempts or (error.retry_after or 0) > self.max_retry_after:
            return None
        backoff: float = min(self.max_delay, self.base_delay * 2 ** (attempts - 1))
        return max(backoff * random.uniform(0.5, 1.0), error.retry_after or 0)


async def attempt(
    model: Model, request: ModelRequest, cancellation: Cancellation, heard: Callable[[Delta], None]
) -> Attempt:
    """Ask `model` once; each delta that is sound is passed on to `heard`.

    A cancel by the user ends it early; cancellation from outside passes.
    """
    answer = ReplyAssembler()
    failure: Exception | None = None

    def take(delta: Delta) -> None:
        answer.add(delta)
        heard(delta)

    try:
        with trio.CancelScope() as scope, cancellation.by(scope.cancel):
            await model.respond(request, take)
    except Exception as error:  # noqa: BLE001 - a model is foreign code; what it raised is reported by the turn
        failure = error
    if cancellation.requested:
        return Attempt(answer, cancelled=True)
    if failure is None and answer.finished is None:
        failure = ModelError("the model's answer ended before it was complete", code="CUT_STREAM", transient=True)
    return Attempt(answer, failure)
