"""Actions of a plan and their outcomes.

Each action is a frozen value that describes one write. A plan lists actions in order; `controller/executor` executes
them and returns one `Outcome` each (D7). Every delete has a uid precondition (RM:I5). The next plan receives a write
that the API server rejected as a `PendingRetry`; a `EventSpec` is an event without a write.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from raytide.api.meta import Manifest, Resource


@dataclass(frozen=True, slots=True)
class Create:
    """Create `manifest`, whose name is chosen once and reused by retries (D15).

    `success_reason` is the event reason of success, `failure_reason` that of rejection, `group` the worker group (empty: none).
    """

    resource: Resource
    manifest: Manifest
    success_reason: str
    failure_reason: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        """The object's name."""
        name: str = self.manifest["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that name only if its uid is `uid`; `message` is the event's message."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    success_reason: str
    failure_reason: str = ""
    group: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch (RFC 7386) `body` onto the object, with `uid`, and `version` if set, as preconditions.

    A list in `body` replaces the whole list (`metadata.finalizers`): set `version` to the one it was computed from.
    """

    resource: Resource
    namespace: str
    name: str
    uid: str
    body: Mapping[str, Any]
    success_reason: str = ""
    failure_reason: str = ""
    group: str = ""
    version: str = ""
    message: str = ""
    """Message of the event of success."""


Action: TypeAlias = Create | Delete | Patch

MAX_WRITES: Final = 500
"""The most writes of one pass (D7), and so the most creates in a plan: building more only delays other objects."""


class Result(Enum):
    """How an action ended."""

    DONE = "done"
    """The write succeeded, or the object already was as wanted (AlreadyExists with our owner; NotFound on delete)."""
    REJECTED = "refused"
    """The API server rejected it: report it to the user, retry slowly. The value is a label of `raytide_writes_total`."""
    UNKNOWN = "unknown"
    """The write may have taken effect; the same request will be repeated."""
    UNAVAILABLE = "unavailable"
    """The write did not take effect and was not rejected: back off."""
    SKIPPED = "skipped"
    """Not tried in this pass (budget spent, or its group was rejected before)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one action; `reason` and `message` are the API server's when it rejected the write."""

    action: Action
    result: Result
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PendingRetry:
    """A write that the API server rejected in an earlier pass, to be retried after `retry_in_s` seconds.

    `group` is the group of the rejected action.
    """

    group: str
    reason: str
    """The event reason of the failure: the action's `failure_reason`."""
    message: str
    retry_in_s: float
    times: int = 1
    """Number of consecutive passes in which it was rejected."""

    @property
    def requeue_after_s(self) -> float:
        """Seconds until it may be retried."""
        return self.retry_in_s


@dataclass(frozen=True, slots=True)
class EventSpec:
    """An event for the user that does not report a write."""

    reason: str
    message: str
    group: str = ""
    event_type: Literal["Normal", "Warning"] = "Warning"
    action: str = "Validate"
    """The event's `action` field: a verb for what was done or attempted."""
