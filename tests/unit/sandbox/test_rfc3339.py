"""Times of API objects as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from raytide_sandbox.rfc3339 import format_time, parse_time

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05"])
def test_a_time_is_parsed_as_utc(text):
    assert parse_time(text) == MOMENT


@pytest.mark.parametrize("text", [None, "", "yesterday", 5, "0001-01-01T00:00:00+02:00"])
def test_an_invalid_time_is_none(text):
    assert parse_time(text) is None


def test_a_time_is_written_in_utc():
    assert format_time(MOMENT.astimezone(timezone(timedelta(hours=2)))) == "2026-01-02T03:04:05Z"
