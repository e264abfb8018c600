"""The shape of the project: who may import whom, what is public, and that what is public says what it does."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import quiesce.actors
import quiesce.actors.models
import quiesce.protocol

PACKAGES = (quiesce.protocol, quiesce.actors)
MODULES = sorted(
    {package.__name__ for package in PACKAGES}
    | {
        name
        for package in PACKAGES
        for _, name, _ in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        if not name.endswith("__main__")
    }
)


def _imports(module: str) -> set[str]:
    """Every module that `module` names in an import, wherever the import stands."""
    source = Path(importlib.import_module(module).__file__).read_text()
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def _within(names: set[str], package: str) -> set[str]:
    return {name for name in names if name == package or name.startswith(package + ".")}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("quiesce.protocol")])
def test_the_protocol_does_no_io_and_knows_no_actors(module):
    names = _imports(module)
    for forbidden in ("quiesce.actors", "trio", "pykka", "structlog", "logging", "time", "socket", "threading", "os"):
        assert not _within(names, forbidden)


def test_the_log_that_all_share_knows_none_of_them():
    assert not _within(_imports("quiesce.actors.log"), "quiesce")


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("quiesce.actors.kernel")])
def test_the_kernel_knows_nothing_of_agents(module):
    names = _within(_imports(module), "quiesce")
    assert names <= _within(names, "quiesce.actors.kernel") | {"quiesce.actors.log", "quiesce.protocol.message"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_owns_and_what_is_public(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    assert hasattr(loaded, "__all__")
    assert sorted(set(loaded.__all__)) == sorted(loaded.__all__)
    for name in loaded.__all__:
        assert hasattr(loaded, name), name


@pytest.mark.parametrize("module", MODULES)
def test_public_classes_functions_and_methods_have_docstrings(module):
    loaded = importlib.import_module(module)
    bare = []
    for name in loaded.__all__:
        item = getattr(loaded, name)
        if getattr(item, "__module__", None) != module or not (inspect.isclass(item) or inspect.isfunction(item)):
            continue
        bare += [] if item.__doc__ else [name]
        if inspect.isclass(item):
            bare += [f"{name}.{method}" for method in _bare_methods(item)]
    assert not bare


def _bare_methods(cls: type) -> list[str]:
    """Public methods and properties that a class defines itself and that say nothing, here or where they come from."""
    found = []
    for name, member in vars(cls).items():
        is_callable = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if is_callable and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
            found.append(name)
    return found


def test_importing_the_runtime_does_not_pay_for_what_is_not_used():
    heavy = "{'pydantic', 'anyio', 'click', 'structlog', 'zstandard'}"
    script = f"import sys; from quiesce.actors import *; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_part_of_the_runtime_does_not_pay_for_the_rest():
    rest = "{'quiesce.actors.agent', 'quiesce.actors.mcp', 'quiesce.actors.models', 'quiesce.actors.stores'}"
    script = f"import sys, quiesce.actors.kernel; print(sorted({rest} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("package", [quiesce.actors, quiesce.actors.models])
def test_what_is_imported_later_is_the_same_as_what_type_checkers_see(package):
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {(alias.name, node.module) for node in block.body for alias in node.names}
    (table,) = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    assert seen == {(name, module) for module, names in ast.literal_eval(table).items() for name in names}


@pytest.mark.parametrize("package", ["quiesce.actors", "quiesce.actors.models"])
def test_dir_shows_also_what_nobody_has_asked_for_yet(package):
    script = f"import {package} as package; print(sorted(set(package.__all__) - set(dir(package))))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_name_that_a_package_does_not_have_is_an_error_like_any_other():
    with pytest.raises(AttributeError, match=r"module 'quiesce\.actors' has no attribute 'Runtme'"):
        quiesce.actors.Runtme  # noqa: B018 - asking is the point
    with pytest.raises(ImportError):
        from quiesce.actors import Runtme  # noqa: F401, PLC0415 - as above
