"""Presence: how everybody can see whether the store that took a lease is still open, without heartbeats.

An open store holds an operating system lock on a small file of its own beside the store's file, named by a random token
that its leases carry. The lock ends with the process, however it ends (`kill -9`, power loss), and with nothing else:
process ids that come again, containers that cannot see each other's processes, zombies and suspended processes are all
judged rightly. So a lease is live exactly while the file of its token is there and locked.

This only spares people from waiting. What keeps two writers apart is the epoch, which each append is checked against:
if somebody removes the files by hand, or copies the store elsewhere, a lease is taken too early and its old writer is
fenced.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import suppress
from errno import EACCES, EAGAIN, EDEADLK
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

__all__ = ["Presence"]

_BUSY: Final = frozenset({EACCES, EAGAIN, EDEADLK})


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, shared: bool) -> None:  # noqa: ARG001 - Windows locks are always exclusive
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, *, shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _try_lock(descriptor: int, *, shared: bool) -> bool:
    try:
        _lock(descriptor, shared=shared)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        return False
    return True


class Presence:
    """The lock that says "this store is open", and the look at those of others."""

    def __init__(self, store_path: str, token: str, descriptor: int) -> None:
        self.token = token
        self._store_path = store_path
        self._descriptor: int | None = descriptor
        _present.add(self)

    @classmethod
    def announce(cls, store_path: str) -> Self:
        """Be present at the store file `store_path`. Raises `OSError` if its directory cannot be written to."""
        _sweep(store_path)
        while True:
            token = secrets.token_hex(8)
            path = _path(store_path, token)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # Another store that opens may sweep the file away before it is locked; then this is not a presence.
            if _try_lock(descriptor, shared=False) and Path(path).exists():
                return cls(store_path, token, descriptor)
            os.close(descriptor)

    def is_alive(self, token: str) -> bool:
        """Whether the store with this token is open, here or in another process."""
        return _is_locked(_path(self._store_path, token))

    def leave(self) -> None:
        """End this presence, and with it all leases of its store."""
        if self._descriptor is not None:
            with suppress(OSError):
                Path(_path(self._store_path, self.token)).unlink()
            self.forget()

    def forget(self) -> None:
        """Let go of the lock, but leave the file. In a forked child the lock goes on: the parent has it too."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_present: WeakSet[Presence] = WeakSet()


def _forget_all() -> None:
    for presence in list(_present):
        presence.forget()


if hasattr(os, "register_at_fork"):
    # A forked child would otherwise keep its parent present beyond the parent's death.
    os.register_at_fork(after_in_child=_forget_all)


def _path(store_path: str, token: str) -> str:
    return f"{store_path}-holder-{token}"


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # another user's: nothing can be known but that it is there
    try:
        return not _try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _sweep(store_path: str) -> None:
    """Remove the files that dead stores left behind."""
    prefix = Path(_path(store_path, ""))
    for path in prefix.parent.iterdir():
        if path.name.startswith(prefix.name):
            _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError):  # gone, or not ours to remove
        descriptor = os.open(path, os.O_RDWR)
        try:
            if _try_lock(descriptor, shared=True):
                path.unlink()  # while it is locked, so that nobody can have become present in between
        finally:
            os.close(descriptor)
