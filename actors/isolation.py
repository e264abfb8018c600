"""Bodies in worker processes: both ends of the pipe. A worker is killed when its call is cancelled or times out.

What crosses is pickled on this side of the pipe and on that one, so that whatever cannot cross is an error of the tool
with words of its own. The function crosses as module and name, since what stands there is the `Tool`.

While a body runs, the worker's standard input and output are the null device: they are the pipe to the host, and a
program that the body starts must not speak on it. Only the worker is killed, not the programs that it started.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from quiesce.protocol.errors import QuiesceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["WorkerError", "run_in_process", "work"]

_STANDARD: Final = (0, 1)
"""The file descriptors of standard input and output."""


class WorkerError(QuiesceError):
    """A body in a thread or process gave no result: it called `sys.exit()`, its process died, or nothing can cross."""


# --- in the host -------------------------------------------------------------------------------------------------


async def run_in_process(function: Callable[..., Any], values: dict[str, Any]) -> object:
    """Run a module-level function in a worker process: what it returns, or raises what it raises.

    Raises `WorkerError` if arguments or result cannot be pickled, or the worker died. When cancelled, the worker is
    killed and its end waited for. How many run at once is for the caller to limit.
    """
    import anyio  # noqa: PLC0415 - only who isolates tools pays for it
    import anyio.to_process  # noqa: PLC0415 - as above

    # A worker calls the host's main module `__mp_main__`, as multiprocessing does; so do pickles of what stands in it.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    try:
        sent = pickle.dumps(values)
    except Exception as error:
        raise WorkerError(f"the arguments cannot be sent to a worker process: {_said(error)}") from error
    names = function.__module__, function.__qualname__
    limiter = anyio.CapacityLimiter(1)
    try:
        answer = await anyio.to_process.run_sync(work, *names, sent, cancellable=True, limiter=limiter)
    except anyio.BrokenWorkerProcess as error:
        raise WorkerError("the worker process died before the tool returned; the call may have had effects") from error
    return _received(answer)


def _received(answer: bytes) -> object:
    try:
        returned, raised = pickle.loads(answer)  # noqa: S301 - written by `work`, in a process of ours
    except Exception as error:
        raise WorkerError(f"the tool's result cannot be read back from its worker process: {_said(error)}") from error
    if raised is not None:
        raise raised
    return returned


# --- in the worker -----------------------------------------------------------------------------------------------


def work(module: str, name: str, sent: bytes) -> bytes:
    """Run one body; the pickled pair of what it returned and what it raised. Raises nothing: a worker answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the host, which then ends its workers
    try:
        with _standard_streams_away():
            returned = _find(module, name)(**pickle.loads(sent))  # noqa: S301 - written by the host
    except BaseException as error:  # noqa: BLE001 - SystemExit included: its end would be taken for the worker's
        return _pickled_error(error)
    try:
        return pickle.dumps((returned, None))
    except Exception as error:  # noqa: BLE001 - pickle raises what the object's own methods raise
        words = f"the tool's result cannot be sent from its worker process: {_said(error)}"
        return pickle.dumps((None, WorkerError(words)))


def _find(module: str, name: str) -> Callable[..., Any]:
    """The function behind what stands in the module under that name: the tool that was made of it, as a rule."""
    try:
        found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:
        raise WorkerError(f"the worker process cannot find {module}.{name}: {_said(error)}") from error
    function: Callable[..., Any] = getattr(found, "function", found)
    return function


def _pickled_error(error: BaseException) -> bytes:
    """What the body raised, as an exception that the host can read; in words if its own type cannot cross."""
    crossing = error if isinstance(error, Exception) else WorkerError(_said(error))
    try:
        answer = pickle.dumps((None, crossing))
        pickle.loads(answer)  # noqa: S301 - many exceptions pickle, and then cannot be made again
    except Exception:  # noqa: BLE001 - as above
        return pickle.dumps((None, WorkerError(_said(error))))
    return answer


@contextlib.contextmanager
def _standard_streams_away() -> Iterator[None]:
    kept = [os.dup(stream) for stream in _STANDARD]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for stream in _STANDARD:
            os.dup2(null, stream)
        yield
    finally:
        for stream, copy in zip(_STANDARD, kept, strict=True):
            os.dup2(copy, stream, inheritable=False)
            os.close(copy)
        os.close(null)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
