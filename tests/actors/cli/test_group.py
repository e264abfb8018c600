"""The group: its list of commands, its helps, and how it is started."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys

import click
import pytest

from quiesce.actors.cli import COMMANDS, main

HEAVY = {"anthropic", "attrs", "mcp", "openai", "pydantic", "rich", "structlog", "trio", "zstandard"}
"""Packages that take a while to be imported."""


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
        f"print(sorted({{m for m in sys.modules if m.startswith(own)}} | ({HEAVY} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['quiesce.actors.cli.faults', 'quiesce.actors.cli.words']"


@pytest.mark.parametrize(
    ("command", "paid"),
    [
        ("--version", ""),
        ("check log.jsonl", "attrs zstandard"),
        ("check t.json", "attrs zstandard"),
        ("show log.jsonl", "attrs rich zstandard"),
        ("show agents.db reviewer", "attrs rich trio zstandard"),
        ("export agents.db reviewer", "attrs rich trio zstandard"),
    ],
)
def test_a_command_costs_only_what_it_needs_itself(db, write, tmp_path, command, paid):
    write("turn step user ask end-step end-turn")
    (tmp_path / "t.json").write_text('[{"role": "user", "content": "hi"}]')
    assert imported(command.split(), tmp_path) == set(paid.split())


@pytest.mark.parametrize(("dialect", "sdk"), [("chat", "openai"), ("responses", "openai"), ("anthropic", "anthropic")])
def test_a_turn_costs_the_sdk_of_its_provider_and_no_other(serve, fake_provider, tmp_path, dialect, sdk):
    _, options = serve([[fake_provider.Text("Hello.")]], dialect)
    found = imported(["run", *map(str, options), "Hi"], tmp_path)
    assert found & {"anthropic", "mcp", "openai", "structlog"} == {sdk}


def imported(arguments, folder):
    """The heavy packages that a command imports."""
    script = (
        "import sys\nfrom quiesce.actors.cli import main\nmain(sys.argv[1:], standalone_mode=False)\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--nope"], ["check", "--nope"], ["nope"]])
def test_what_there_is_none_of_is_told_in_one_line(fails, arguments):
    assert f"{arguments[-1]}'; see `quiesce" in fails(*arguments)


@pytest.mark.parametrize(
    ("command", "option"), [("check", "--profile"), ("run", "--model"), ("fork", "--at"), ("recover", "--out")]
)
def test_an_option_without_its_value_is_told_in_one_line(fails, command, option):
    told = fails(command, option)
    assert option in told
    assert told.endswith(f"see `quiesce {command} --help`")


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (["fork", "a.db", "s", "--at", "x"], 0),
        (["fork", "a.db", "s", "--at", "-1"], 0),
        (["run", "--model", "openai:m", "Hi", "--max-steps", "1.5"], 1),
        (["chat", "--model", "openai:m", "--max-steps", "0"], 1),
    ],
)
def test_of_a_number_that_is_none_it_is_told_which_are_allowed(fails, arguments, least):
    told = fails(*arguments)
    assert any(words in told for words in (f"whole number of at least {least};", f"the range x>={least};"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", ""],
        ["show", ""],
        ["recover", "", "-o", "x"],
        ["recover", "t.json", "-o", ""],
        ["import", ""],
        ["import", "t.json", "--db", ""],
        ["sessions", ""],
        ["export", "", "s"],
        ["fork", "", "s"],
        ["run", "--model", "openai:m", "--db", "", "Hi"],
        ["chat", "--model", "openai:m", "--db", ""],
        ["demo", "--db", ""],
        ["demo", "--dir", ""],
    ],
    ids=" ".join,
)
def test_an_empty_name_of_a_file_is_not_taken_for_the_folder(fails, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text('[{"role": "user", "content": "hi"}]')
    assert ": the name is empty; see `quiesce" in fails(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
