"""Truncation of messages.

Messages that are too long end in an ellipsis. Used for the records of autoscaler and fair sharing and for messages of
controllers. Lengths are characters; the limits of conditions and events are in bytes and checked elsewhere.
"""


def cut(text: str, most: int) -> str:
    """The text cut to at most `most` characters."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"[:most]
