"""What may a plan ask for?

Frozen values that name one write each; nothing here does anything. A plan lists them in order, `kube/apply` carries
them out and answers with one `Outcome` each (D7). Every delete carries the uid it means (RM:I5). What the API refused comes
back to the next plan as a `Refusal`; what a plan has to say without writing anything is a `Remark`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from raytide.api.meta import Manifest, Resource


@dataclass(frozen=True, slots=True)
class Create:
    """Create `manifest`, whose name was chosen once and stays (D15).

    `because` is the event reason of success, `otherwise` that of refusal, `group` the worker group (empty: none).
    """

    resource: Resource
    manifest: Manifest
    because: str
    otherwise: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        """The object's name."""
        name: str = self.manifest["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that name only if its uid is `uid`; `why` is the sentence for the event."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    because: str
    otherwise: str = ""
    group: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch (RFC 7386) `body` onto the object, guarded by `uid`, and by `version` where one is given.

    A list in `body` replaces the whole list (`metadata.finalizers`): give the resourceVersion from which it was computed.
    """

    resource: Resource
    namespace: str
    name: str
    uid: str
    body: Mapping[str, Any]
    because: str = ""
    otherwise: str = ""
    group: str = ""
    version: str = ""
    why: str = ""
    """The sentence for the event of success."""


Action: TypeAlias = Create | Delete | Patch

MOST_WRITES: Final = 500
"""What one pass sends at most (D7), and therefore the most creates that a plan lists: what is built beyond it is built in
vain, and every other object waits for it."""


class Result(Enum):
    """How an action ended."""

    DONE = "done"
    """The API said yes, or the world already was as asked (AlreadyExists and ours; NotFound on delete)."""
    REFUSED = "refused"
    """The API said no: tell the user, retry slowly."""
    UNKNOWN = "unknown"
    """It may have happened; the same request will be repeated."""
    UNAVAILABLE = "unavailable"
    """It did not happen, and nobody is to blame: back off."""
    SKIPPED = "skipped"
    """Not tried in this pass (budget spent, or its group was refused before)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action: `message` and `reason` are the API's own words when it was refused."""

    action: Action
    result: Result
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something the API refused in an earlier pass, to be tried again in `retry_in_s` seconds, not before.

    `group` is what the refused action had as its group.
    """

    group: str
    reason: str
    """The event reason of the failure: the action's `otherwise`."""
    message: str
    retry_in_s: float
    times: int = 1
    """How many passes in a row it was refused."""

    @property
    def look_again_in(self) -> float:
        """Seconds until it matters less."""
        return self.retry_in_s


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to tell the user as an event although nothing was written."""

    reason: str
    note: str
    group: str = ""
    event_type: Literal["Normal", "Warning"] = "Warning"
    action: str = "Validate"
    """What was done, or tried, in the event's own field: a verb."""
