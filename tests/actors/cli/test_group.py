"""The group: its list of commands, its helps, and how it is started."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import click
import pytest

from quiesce.actors.cli import COMMANDS, main


def test_the_installed_command_is_the_group():
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="quiesce")
    assert entry.load() is main


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "quiesce.actors.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"quiesce {importlib.metadata.version('quiesce')}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_a_command_what_the_command_says_of_itself(name):
    command = main.get_command(click.Context(main), name)
    assert command.help.splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_teaches_with_examples_and_says_what_the_exit_codes_mean(run, name):
    done = run(name, "--help")
    assert done.exit_code == 0
    assert f"Examples:\n    quiesce {name}" in done.stdout
    assert "Exit codes: 0 " in done.stdout


def test_the_help_lists_every_command_in_order(run):
    listed = run("--help").stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == list(COMMANDS)


def test_the_help_begins_with_what_makes_sessions(run):
    told = run("--help").stdout
    for command in ("run", "chat", "import"):
        assert f"`{command}`" in told.partition("Examples:")[0]
        assert f"quiesce {command} " in told.partition("Examples:")[2]


@pytest.mark.parametrize("name", ["run", "chat"])
def test_whoever_talks_to_servers_is_told_the_names_of_their_tools(run, name):
    assert "git__git_log" in run(name, "--help").stdout


def test_without_arguments_it_helps(run):
    assert "Examples:" in run().output


def test_an_unknown_command_is_a_mistake(run):
    done = run("shw")
    assert done.exit_code == 2
    assert "No such command 'shw'" in done.stderr


def test_the_list_of_commands_costs_none_of_them():
    script = (
        "import sys\nfrom quiesce.actors.cli import main\nmain(['--help'], standalone_mode=False)\n"
        "own = 'quiesce.actors.cli.'\n"
        "print(sorted({m for m in sys.modules if m.startswith(own)} | ({'pydantic', 'zstandard'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['quiesce.actors.cli.faults', 'quiesce.actors.cli.words']"
