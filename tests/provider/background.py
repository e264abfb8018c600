"""A fake provider in a thread with its own Trio, for tests that are on asyncio, on threads, or run processes."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

import trio
from attrs import define, field

from .server import FakeProvider

__all__ = ["ThreadedProvider", "in_thread"]


@define
class ThreadedProvider:
    """A provider that runs in another thread: its face, with what has to happen in that thread handed over."""

    provider: FakeProvider
    _token: trio.lowlevel.TrioToken | None = None
    _stop: trio.Event = field(factory=trio.Event)

    def __getattr__(self, name):
        return getattr(self.provider, name)

    def open(self, gate):
        """As `FakeProvider.open`."""
        self._token.run_sync_soon(self.provider.open, gate)

    def let(self, gate, passes=1):
        """As `FakeProvider.let`."""
        self._token.run_sync_soon(self.provider.let, gate, passes)

    def call(self, asynchronous, *args):
        """Wait here for one of the provider's asynchronous methods: `call(provider.disconnected, 2)`."""
        return trio.from_thread.run(asynchronous, *args, trio_token=self._token)

    def run(self, ready):
        """The thread's whole life; `ready` is told when it serves, or why it does not."""
        try:
            trio.run(self._main, ready)
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def stop(self):
        """Have the thread end."""
        self._token.run_sync_soon(self._stop.set)

    async def _main(self, ready):
        self._token = trio.lowlevel.current_trio_token()
        async with self.provider:
            ready.set_result(None)
            await self._stop.wait()


@contextmanager
def in_thread(script, **options):
    """Serve in a thread while the block runs. Options are those of `FakeProvider`."""
    threaded, ready = ThreadedProvider(FakeProvider(script, **options)), Future()
    thread = Thread(target=threaded.run, args=(ready,), name="fake-provider", daemon=True)
    thread.start()
    ready.result()
    try:
        yield threaded
    finally:
        threaded.stop()
        thread.join()
