"""`Log`: what reaches the host's structlog, or its standard `logging`, and that neither can harm whoever logs."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest
import structlog

from quiesce.actors.log import Log

LOG = Log("quiesce.test")


@pytest.fixture
def standard(caplog):
    """A host with the standard `logging` only."""
    structlog.reset_defaults()
    caplog.set_level(logging.DEBUG, "quiesce.test")
    return caplog


@pytest.fixture
def configure():
    """Configure structlog with these processors, for one test."""
    yield lambda *processors: structlog.configure(processors=processors)
    structlog.reset_defaults()


def test_a_plain_line_says_what_the_fields_say(standard):
    LOG.write(logging.INFO, "moved", who="a b", where=None, steps=3)
    assert [record.getMessage() for record in standard.records] == ["moved who='a b' steps=3"]
    assert (standard.records[0].who, standard.records[0].where, standard.records[0].steps) == ("a b", None, 3)


def test_records_of_one_event_have_one_template(standard):
    LOG.write(logging.INFO, "moved", who="ann")
    LOG.write(logging.INFO, "moved", who="100%s")
    assert {record.msg for record in standard.records} == {"moved who=%r"}
    assert standard.records[1].getMessage() == "moved who='100%s'"


@pytest.mark.parametrize("name", ["name", "message", "msg", "args", "asctime", "taskName", "levelname"])
def test_a_field_with_a_name_of_the_standard_log_is_said_all_the_same(standard, name):
    LOG.write(logging.INFO, "moved", **{name: "ann"})
    assert [record.getMessage() for record in standard.records] == [f"moved {name}='ann'"]


def test_a_field_that_the_host_puts_into_its_records_is_the_hosts(standard, monkeypatch):
    made = logging.getLogRecordFactory()

    def factory(*args, **kwargs):
        record = made(*args, **kwargs)
        record.actor = "host"
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", factory)
    LOG.write(logging.INFO, "moved", actor="ann", steps=3)
    (record,) = standard.records
    assert (record.actor, record.steps, record.getMessage()) == ("host", 3, "moved actor='ann' steps=3")


def test_a_record_says_where_it_comes_from(standard):
    LOG.write(logging.INFO, "moved")
    assert (standard.records[0].funcName, standard.records[0].filename) == (
        "test_a_record_says_where_it_comes_from",
        "test_log.py",
    )


def test_an_exception_keeps_its_traceback(standard):
    error = ValueError("boom")
    LOG.write(logging.ERROR, "failed", exc_info=error)
    assert standard.records[0].exc_info[1] is error
    assert standard.records[0].getMessage() == "failed"


def test_a_configured_structlog_gets_the_fields_and_the_standard_log_nothing(standard, configure):
    got = []

    def keep(_logger, method, fields):
        got.append((method, fields))
        raise structlog.DropEvent

    configure(keep)
    LOG.write(logging.WARNING, "moved", who="ann")
    assert got == [("warning", {"event": "moved", "who": "ann"})]
    assert standard.records == []


def test_a_processor_that_raises_harms_nobody(configure):
    def breaks(*_):
        raise LookupError

    configure(breaks)
    LOG.write(logging.ERROR, "moved")


def test_what_cannot_be_shown_harms_nobody(standard):
    class Broken:
        def __repr__(self):
            raise LookupError

    LOG.write(logging.INFO, "moved", who=Broken())
    LOG.write(logging.INFO, "moved", who="ann")
    assert len(standard.records) == 2


@pytest.mark.parametrize("module", [ModuleType("structlog"), None], ids=["half imported", "made unimportable"])
def test_a_structlog_that_is_not_there_yet_is_not_configured(monkeypatch, standard, module):
    monkeypatch.setitem(sys.modules, "structlog", module)
    LOG.write(logging.INFO, "moved")
    assert len(standard.records) == 1
