"""`python -m quiesce.actors.cli` is the `quiesce` command."""

from __future__ import annotations

from quiesce.actors.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main(prog_name="quiesce")
