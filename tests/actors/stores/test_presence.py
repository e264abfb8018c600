"""Presence: who is there is seen by everybody, and nobody who is gone is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quiesce.actors.stores.presence import Presence


@pytest.fixture
def store_path(tmp_path):
    return str(tmp_path / "store.db")


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


@pytest.fixture
def here(store_path):
    presence = Presence.announce(store_path)
    yield presence
    presence.leave()


def test_a_presence_sees_itself_and_others(store_path, here):
    other = Presence.announce(store_path)
    assert other.token != here.token
    assert here.is_alive(here.token)
    assert here.is_alive(other.token)
    assert other.is_alive(here.token)
    other.leave()


def test_who_has_left_is_gone_and_leaves_no_file(store_path, here, tmp_path):
    other = Presence.announce(store_path)
    other.leave()
    assert not here.is_alive(other.token)
    assert names(tmp_path) == [f"store.db-holder-{here.token}"]


def test_leaving_twice_does_nothing(store_path):
    presence = Presence.announce(store_path)
    presence.leave()
    presence.leave()


def test_a_token_that_was_never_there_is_not_alive(here):
    assert not here.is_alive("nobody")


def test_a_file_without_its_lock_is_not_alive(here, tmp_path):
    (tmp_path / "store.db-holder-dead").touch()
    assert not here.is_alive("dead")


def test_looking_does_not_end_a_presence(store_path, here):
    other = Presence.announce(store_path)
    for _ in range(3):
        assert other.is_alive(here.token)
    assert here.is_alive(here.token)
    other.leave()


def test_announcing_sweeps_the_files_of_the_dead_and_no_others(store_path, here, tmp_path):
    (tmp_path / "store.db-holder-dead").touch()
    (tmp_path / "store.db-wal").touch()
    (tmp_path / "other.db-holder-dead").touch()
    presence = Presence.announce(store_path)
    assert names(tmp_path) == sorted(
        [f"store.db-holder-{here.token}", f"store.db-holder-{presence.token}", "store.db-wal", "other.db-holder-dead"]
    )
    presence.leave()


def test_a_file_swept_away_before_it_is_locked_is_not_taken_for_a_presence(store_path, tmp_path, monkeypatch):
    open_file = os.open
    swept = []

    def open_and_be_swept(path, *arguments):
        descriptor = open_file(path, *arguments)
        if not swept:
            swept.append(path)
            Path(path).unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_be_swept)
    presence = Presence.announce(store_path)
    assert presence.is_alive(presence.token)
    assert not swept[0].endswith(presence.token)
    presence.leave()


def test_without_a_directory_nobody_can_be_present(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        Presence.announce(str(tmp_path / "nowhere" / "store.db"))
