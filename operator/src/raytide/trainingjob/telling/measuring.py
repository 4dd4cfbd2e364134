"""What do metrics tell about TrainingJobs?

Takes statuses as they are computed and written, and sets the series of TJ §8: pods by role and state, fulfilment, waiting
time, resizes. A job has a fixed number of series, and they go with it; reasons that nobody of ours has written count as
`Other`, so that no annotation can make series. Called by the controller, cleared when a term of leadership ends.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from raytide.api import sharing
from raytide.api import training_names as names
from raytide.api.conditions import find_condition, moment_of
from raytide.api.meta import Key
from raytide.elastic import model
from raytide.metrics import JOB_FULFILLMENT, JOB_INSTANCES, JOB_RESIZES, JOB_WAITING_SECONDS
from raytide.runtime.clock import Clock

STATES: Final = ("desired", "pending", "running", "ready", "succeeded", "failed")
"""As the status spells them."""
REASONS: Final = frozenset(
    {
        model.ADMITTED,
        model.REACHING_MINIMUM,
        model.GROWING,
        model.ABOVE_MAXIMUM,
        model.SIZE_NOT_ALLOWED,
        model.RECLAIMED,
        model.REBALANCED,
        model.NO_ROOM,
        model.YIELDED,
        model.UNSCHEDULABLE,
        model.CREATION_FORBIDDEN,
        sharing.REQUESTED,
    }
)
OTHER: Final = "Other"


class Measures:
    """The series of all jobs of one process.

    - `note` sets a job's gauges to what its status says; `note_written` counts the resizes that a status names for the
      first time, once however often the operator restarts, because the status remembers.
    - `forget` removes a job's series, `clear` those of all jobs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting_since: dict[Key, datetime | None] = {}

    def note(self, key: Key, status: Mapping[str, Any]) -> None:
        """What the status says now."""
        for role in names.ROLES:
            counts = status.get(role) or {}
            for state in STATES:
                JOB_INSTANCES.labels(*key, role, state).set(counts.get(state) or 0)
        JOB_FULFILLMENT.labels(*key).set((status.get(names.TRAINER) or {}).get("fulfillment") or 0)
        if key not in self._waiting_since:
            JOB_WAITING_SECONDS.labels(*key).set_function(lambda: self._waiting_s(key))
        condition = find_condition(status.get("conditions") or (), names.WAITING)
        is_waiting = condition is not None and condition.get("status") == "True"
        since = moment_of(str(condition.get("lastTransitionTime"))) if condition and is_waiting else None
        self._waiting_since[key] = since

    def note_written(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count what the new status says of resizes and the old one did not."""
        told = {_identity(resize) for resize in _history(before)}
        for resize in _history(after):
            if _identity(resize) not in told:
                direction = "up" if (resize.get("to") or 0) > (resize.get("from") or 0) else "down"
                reason = resize.get("reason")
                JOB_RESIZES.labels(direction, reason if reason in REASONS else OTHER).inc()

    def forget(self, key: Key) -> None:
        """The job is gone."""
        if key not in self._waiting_since:
            return
        del self._waiting_since[key]
        for role in names.ROLES:
            for state in STATES:
                JOB_INSTANCES.remove(*key, role, state)
        JOB_FULFILLMENT.remove(*key)
        JOB_WAITING_SECONDS.remove(*key)

    def clear(self) -> None:
        """Somebody else leads."""
        for key in tuple(self._waiting_since):
            self.forget(key)

    def _waiting_s(self, key: Key) -> float:
        since = self._waiting_since.get(key)
        return max(0.0, (self._clock.now() - since).total_seconds()) if since is not None else 0.0


def _history(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple((status.get("scaling") or {}).get("history") or ())


def _identity(resize: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(resize.get(field) for field in ("time", "from", "to", "reason"))
