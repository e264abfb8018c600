"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["importing"]


def importing(package: str, names: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`, where a module is imported when one of its names is asked for.

    `names` is module -> names. Type checkers need the same imports under `TYPE_CHECKING`. Any other name raises
    `AttributeError`.
    """
    modules = {name: module for module, found in names.items() for name in found}
    home = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:  # noqa: ANN401, N807 - whatever it is called; what Python calls it
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home[name] = getattr(import_module(modules[name]), name)  # where Python finds it without asking again
        return home[name]

    def __dir__() -> list[str]:  # noqa: N807 - what Python calls it
        return sorted({*home, *modules})

    return __getattr__, __dir__
