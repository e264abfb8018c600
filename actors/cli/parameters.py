"""What several commands take: the types of their values, and the options for a store and a session."""

from __future__ import annotations

from typing import Any, Final

import click

__all__ = ["AtLeast", "FileName", "checked_id", "db_option"]


class FileName(click.Path):
    """The name of a file. An empty one, which a variable that is not set leaves behind, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """The name; of the type that was asked for."""
        if value in {"", b""}:
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class AtLeast(click.IntRange):
    """A whole number that is not below `least`, as what is none is told."""

    def __init__(self, least: int) -> None:
        super().__init__(min=least)
        self.name = f"whole number of at least {least}"


def checked_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that takes the id of a session. Raises `click.BadParameter` for what is none."""
    if value is not None and not (value.strip() and value.isprintable()):
        raise click.BadParameter(f"{value!a} is no id: it must have printable characters, and at least one")
    return value


db_option: Final = click.option(
    "--db",
    metavar="FILE",
    type=FileName(dir_okay=False),
    envvar="QUIESCE_DB",
    default="quiesce.db",
    show_default=True,
    show_envvar=True,
    help="The store; made if it is not there.",
)
"""The option that names the store of a session."""
