"""`Sources`: where wall time and ids come from. Injected, so that a seed replays a run exactly."""

from __future__ import annotations

import random
import string
import time
from typing import TYPE_CHECKING

from attrs import Factory, define

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Sources"]

_ALPHABET = string.ascii_letters + string.digits


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


@define
class Sources:
    """`now` gives milliseconds since the epoch; `mint` a fresh id that every provider accepts as a call id."""

    now: Callable[[], int] = _wall_clock
    random: random.Random = Factory(random.SystemRandom)

    def mint(self) -> str:
        """Nine alphanumerics: the shape that fits every provider's rule for call ids."""
        return "".join(self.random.choices(_ALPHABET, k=9))
