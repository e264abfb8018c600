"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["importing"]


def importing(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of `package` that imports a module when one of its `names` (module -> names) is asked for.

    Type checkers need the same imports under `TYPE_CHECKING`. The function raises `AttributeError` for any other name.
    """
    modules = {name: module for module, found in names.items() for name in found}

    def __getattr__(name: str) -> Any:  # noqa: ANN401, N807 - whatever it is called; what Python calls it
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return __getattr__
