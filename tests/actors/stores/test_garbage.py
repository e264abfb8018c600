"""The collector is off while a long log is decoded, and never longer."""

from __future__ import annotations

import gc

import pytest

from quiesce.actors.stores.garbage import uncollected


def test_the_collector_is_off_inside_and_on_again_afterwards():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_again_after_an_error():
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_first_block_of_several_decides():
    first, second = uncollected(), uncollected()
    with first:
        with second:
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_later_block_does_not_prolong_the_first():
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
