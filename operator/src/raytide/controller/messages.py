"""Log lines and error messages of the reconcile loop, the executor and the writers.

One constant or function per text. Constants are log lines: templates with the arguments that their docstring lists.
Functions return the message of an error or of an outcome, which the log, events and conditions show. Called by the
modules of this package; decides nothing.
"""

from collections.abc import Sequence
from typing import Final

# --- reconcile loop ----------------------------------------------------------------------------------------------------

RECONCILING: Final = "informers synced, starting to reconcile %d %ss with %d pods"
"""Number of objects, their kind, number of pods."""
INTERRUPTED: Final = "reconcile interrupted, requeued after %.1f s: %s"
"""A call was not answered: delay and error."""
REQUEST_REJECTED: Final = "request rejected by the API server (%s), requeued after %.0f s: %s"
"""A read or a status write: reason, delay and error."""
UNEXPECTED: Final = "unexpected exception, this is a bug; requeued after %.0f s"
"""Logged with the traceback: delay."""


def older_than_informer(kind: str, key: object) -> str:
    """A live read from an API server that lags behind the watch."""
    return f"the API server returned an older state of {kind} {key} than the informer holds"


def status_not_written(kind: str, key: object, error: object) -> str:
    """The status patch conflicted; the next pass reads the object again."""
    return f"status of {kind} {key} not written, the object changed or is gone: {error}"


# --- writes of a pass --------------------------------------------------------------------------------------------------

SENDING: Final = "sending %d writes (%d repeated)"
"""Number of all writes, and of repeats among them."""
WRITE_REJECTED: Final = "API server rejected %s of %s %s: %s"
"""Verb, kind, key and error."""
STILL_UNKNOWN: Final = "outcome of creating %s %s is still unknown: %s"
"""Kind, name and the lookup's error."""
NOT_OBSERVED: Final = (
    "NotSatisfied%sExpectations: %s of %s in group %r of %s not observed for %g s; "
    "the request is repeated and a relist is requested"
)
"""In KubeRay's wording, because users search for it (FD:RC-B14): Head or Group, verb, name, group, owner, seconds."""


def not_created(kind: str, name: str, error: object) -> str:
    """A conflict that is no rejection, such as concurrent creates under one ResourceQuota."""
    return f"{kind} {name} was not created, the create is retried: {error}"


def not_deleted(kind: str, name: str, error: object) -> str:
    """A conflict of the delete, whose object still exists."""
    return f"{kind} {name} was not deleted, the delete is retried: {error}"


def not_patched(kind: str, name: str, error: object) -> str:
    """A conflict of the patch: a later pass reads the object again."""
    return f"{kind} {name} was not patched, it changed since it was read: {error}"


def name_terminating(kind: str, name: str) -> str:
    """The name belongs to an object that is being deleted."""
    return f"{kind} {name} already exists and is terminating"


def identity_removed(kind: str, name: str, lost: Sequence[str]) -> str:
    """Admission removed the labels or the owner by which the object would be found again; `lost` names them."""
    return (
        f"admission removed or changed {', '.join(lost)} of {kind} {name}, which was deleted again; "
        "exempt it from the mutating webhook or policy"
    )
