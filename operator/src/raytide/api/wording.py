"""How are words kept short enough for where they are written?

One rule for records and statuses whose readers are people: what is too long ends in an ellipsis. Used by the records of
autoscaler and sharing and by conditions of TrainingJobs; conditions and events at their own limits count bytes.
"""


def cut(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"[:most]
