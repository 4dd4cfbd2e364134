"""Times in API objects and in queries, as RFC 3339 text. Used by kubelet/ and streaming/."""

from datetime import UTC, datetime


def read_time(text: object) -> datetime | None:
    """Parse an RFC 3339 time; None when it is missing or unreadable."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except ValueError:
        return None
