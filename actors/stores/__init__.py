"""Stores: where the logs of sessions are kept. `base` has the contract; sqlite is the default, memory keeps nothing."""

from __future__ import annotations

from quiesce.actors.stores.base import OnDone, SessionInfo, Store, Writer
from quiesce.actors.stores.memory import MemoryStore
from quiesce.actors.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "OnDone", "SessionInfo", "SqliteStore", "Store", "Writer"]
