"""Values of records that are kept, and values that are read as missing."""

from datetime import UTC, datetime

import pytest

from raytide.api.quantity import MAX_INT32
from raytide.api.record_fields import count_or_none, timestamp_or_none


@pytest.mark.parametrize("value", [0, 7, MAX_INT32])
def test_counts_are_returned(value):
    assert count_or_none(value) == value


@pytest.mark.parametrize("value", [-1, MAX_INT32 + 1, True, 1.0, "1", None, [1]])
def test_other_values_are_no_counts(value):
    assert count_or_none(value) is None


def test_timestamps_are_parsed():
    assert timestamp_or_none("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("value", ["", "yesterday", "0001-01-01T00:00:00Z", 5, None])
def test_other_values_are_no_timestamps(value):
    assert timestamp_or_none(value) is None
