"""Log lines of a pass have its controller and key."""

import json
import logging

import pytest

from raytide.runtime.logs import PASS, JsonFormatter, KeyValueFormatter, LineFormatter, install


def build_record(**more) -> logging.LogRecord:
    return logging.LogRecord("raytide.x", logging.INFO, "x.py", 1, "made %d pods", (3,), more.get("exc_info"))


def test_a_line_outside_of_passes():
    assert KeyValueFormatter().format(build_record()).endswith(" level=INFO logger=raytide.x made 3 pods")


def test_a_line_within_a_pass_carries_it_and_keeps_its_traceback_below():
    token = PASS.set("namespace=ns name=c pass=7")
    try:
        error = ValueError("oops")
        lines = KeyValueFormatter().format(build_record(exc_info=(ValueError, error, None))).splitlines()
    finally:
        PASS.reset(token)
    assert lines[0].endswith("made 3 pods namespace=ns name=c pass=7")
    assert lines[-1].strip() == "ValueError: oops"


@pytest.mark.rule("FD:SEC3-6")
@pytest.mark.parametrize("formatter", [KeyValueFormatter(), LineFormatter("%(asctime)s\t%(message)s")])
def test_the_text_of_an_exception_begins_no_line_of_its_own(formatter):
    error = ValueError("bad\n2026-01-01 00:00:00,000 level=INFO forged\u2028\x1b[2J" + "\n" * 100_000)
    text = formatter.format(build_record(exc_info=(ValueError, error, None)))
    first, *others = text.splitlines()
    assert "made 3 pods" in first
    assert all(line.startswith("  ") for line in others)
    assert all(line.isprintable() for line in others)
    assert any("ValueError: bad" in line for line in others)
    assert len(others) < 500


def test_install_sends_everything_to_standard_error(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        install(logging.INFO)
        logging.getLogger("raytide.test").info("hello")
        assert "level=INFO logger=raytide.test hello" in capsys.readouterr().err
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@pytest.mark.rule("FD:SEC-F12")
def test_what_a_user_wrote_begins_no_line_of_its_own():
    record = build_record()
    record.msg, record.args = "job %s is bad", ("a\nlevel=INFO logger=forged\r\x1b[2J\u2028end",)
    line = KeyValueFormatter().format(record)
    assert line.splitlines() == [line]
    assert r"a\nlevel=INFO logger=forged\r\x1b[2J\u2028end" in line


@pytest.mark.rule("FD:SEC-F12")
def test_a_million_characters_are_cut():
    record = build_record()
    record.msg, record.args = "%s", ("x" * 1_000_000,)
    assert len(KeyValueFormatter().format(record)) < 20_000


@pytest.mark.rule("FD:UX-9")
def test_a_json_line_has_the_pass_and_the_traceback_as_fields():
    token = PASS.set("controller=raycluster namespace=ns name=c pass=7")
    try:
        error = ValueError("oops")
        line = JsonFormatter().format(build_record(exc_info=(ValueError, error, None)))
    finally:
        PASS.reset(token)
    fields = json.loads(line)
    assert "\n" not in line
    assert fields.pop("ts").endswith("+00:00")
    assert fields == {
        "level": "info",
        "logger": "raytide.x",
        "msg": "made 3 pods",
        "controller": "raycluster",
        "namespace": "ns",
        "name": "c",
        "pass": "7",
        "stacktrace": "ValueError: oops",
    }


@pytest.mark.rule("FD:UX-9", "FD:SEC-F12")
def test_text_from_users_forges_no_json_line_and_is_cut():
    record = build_record()
    record.msg, record.args = "%s", ('"}\n{"level": "error"}\x1b[2J\u2028' + "x" * 1_000_000,)
    line = JsonFormatter().format(record)
    assert line.splitlines() == [line]
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 20_000
    assert "ts" in json.loads(line)
