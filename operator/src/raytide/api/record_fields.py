"""Lenient reading of fields of the records in annotations.

Takes a value of decoded JSON and returns it with its type, or None when it has another one: a record may come from an
earlier version or have been edited. Used by `autoscaler_decision.py` and `sharing_record.py`.
"""

from datetime import datetime
from typing import Any

from raytide.api.conditions import parse_timestamp
from raytide.api.quantity import MAX_INT32


def count_or_none(value: Any) -> int | None:
    """A number of a decision or sharing record: an integer from 0 to `MAX_INT32`, else None; booleans are not counts."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT32
    return value if is_count else None


def timestamp_or_none(value: Any) -> datetime | None:
    """A timestamp that `parse_timestamp` accepts, else None."""
    return parse_timestamp(value) if isinstance(value, str) else None
