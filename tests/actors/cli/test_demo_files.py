"""What the demo finds in a folder, whatever the folder is like."""

from __future__ import annotations

import os

import pytest

from quiesce.actors.cli import demo_files
from quiesce.actors.cli.demo_files import find_exhibits

MEGABYTE = 1 << 20


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture
def find(tmp_path, folder):
    (tmp_path / "workshop").mkdir()
    return lambda: find_exhibits(folder, tmp_path / "workshop")


def names(exhibits):
    """What was found, by name; None for what had to be made."""
    return tuple(None if path.is_absolute() else str(path) for path in (exhibits.text, exhibits.large))


def sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)


def test_in_an_empty_folder_both_files_are_made_elsewhere(folder, find):
    exhibits = find()
    assert names(exhibits) == (None, None)
    assert exhibits.text.read_text().startswith("A sample")
    assert exhibits.large.stat().st_size == 32 * MEGABYTE
    assert not list(folder.iterdir())


def test_the_best_text_and_the_largest_file_are_taken(folder, find):
    for name in ("z.md", "a.py", "a.bin"):
        (folder / name).write_text("text")
    sparse(folder / "large", 3 * MEGABYTE)
    sparse(folder / "larger", 4 * MEGABYTE)
    assert names(find()) == ("z.md", "larger")


def test_files_in_deeper_folders_are_found(folder, find):
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "note.txt").write_text("text")
    assert names(find())[0] == os.path.join("a", "b", "note.txt")  # noqa: PTH118 - as it is named on this system


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"a\0b", b"\xff\xfe\xfa" * 10], ids=["empty", "blank", "nul", "binary"]
)
def test_what_is_no_text_is_not_read(folder, find, content):
    (folder / "x.md").write_bytes(content)
    assert names(find())[0] is None


def test_a_text_may_be_cut_inside_a_character(folder, find):
    (folder / "x.md").write_text("a" * 4_095 + "äöü")
    assert names(find())[0] == "x.md"


def test_a_file_that_is_too_large_to_hash_in_a_moment_is_left(folder, find):
    sparse(folder / "huge", 1 << 40)
    assert names(find())[1] is None


def test_files_that_cannot_be_read_are_left(folder, find, monkeypatch):
    (folder / "a.md").write_text("secret")
    sparse(folder / "large", 3 * MEGABYTE)
    monkeypatch.setattr(demo_files, "_begin_of", lambda _: None)
    assert names(find()) == (None, None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
def test_what_is_no_regular_file_is_never_opened(folder, find):
    os.mkfifo(folder / "pipe.md")
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    assert names(find()) == (None, None)


def test_names_that_cannot_be_printed_are_left(folder, find):
    (folder / "a\x1b.md").write_text("text")
    assert names(find())[0] is None


def test_the_look_at_a_vast_folder_ends(folder, find, monkeypatch):
    monkeypatch.setattr(demo_files, "_MAX_ENTRIES", 3)
    for number in range(10):
        (folder / f"{number}.md").write_text("text")
    assert names(find())[0] is not None


def test_a_folder_that_cannot_be_listed_is_the_callers_to_tell(tmp_path):
    with pytest.raises(OSError, match="gone"):
        find_exhibits(tmp_path / "gone", tmp_path)
