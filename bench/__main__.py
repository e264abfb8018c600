"""`python -m bench NAME [options]`: run one benchmark; without a name, list what there is."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path


def _benchmarks() -> dict[str, str]:
    """Name -> what its module says of itself first."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.name.startswith("_"):
            found[path.stem] = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
    return found


def main(arguments: list[str]) -> int:
    """Run the benchmark named first, with the arguments that follow. The exit code: 2 if there is no such thing."""
    benchmarks = _benchmarks()
    name = arguments[0] if arguments else ""
    if name in benchmarks:
        importlib.import_module(f"bench.{name}").main(arguments[1:], prog_name=f"python -m bench {name}")
        return 0
    print("Benchmarks, each with --help: python -m bench NAME\n")
    for known, words in benchmarks.items():
        print(f"  {known:<10} {words}")
    return 0 if not name or name in {"-h", "--help"} else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
