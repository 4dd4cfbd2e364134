"""Metrics of TrainingJobs.

Takes statuses as they are computed and written, and sets the series of TJ §8: pods by role and state, fulfilment,
waiting time, resizes. A job has a fixed number of series, which are removed with it; unknown reasons count as `Other`,
so that an annotation cannot create series. Called by the reconciler, cleared when a leadership term ends.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from raytide.api import sharing_record
from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import find_condition, parse_timestamp
from raytide.api.meta import Key
from raytide.metrics import JOB_FULFILLMENT, JOB_INSTANCES, JOB_RESIZES, JOB_WAITING_SECONDS, RESIZES_BY_JOB
from raytide.runtime.clock import Clock

UP: Final = "up"
DOWN: Final = "down"
STATES: Final = ("desired", "pending", "running", "ready", "succeeded", "failed")
"""States as spelled in the status."""
REASONS: Final = frozenset(
    {
        sharing_record.ADMITTED,
        sharing_record.AWAITING_NODES,
        sharing_record.REACHING_MINIMUM,
        sharing_record.GROWING,
        sharing_record.ABOVE_MAXIMUM,
        sharing_record.SIZE_NOT_ALLOWED,
        sharing_record.RECLAIMED,
        sharing_record.REBALANCED,
        sharing_record.INSUFFICIENT_CAPACITY,
        sharing_record.YIELDED_TO_PODS,
        sharing_record.UNSCHEDULABLE,
        sharing_record.CREATION_FORBIDDEN,
        sharing_record.REQUESTED,
    }
)
OTHER: Final = "Other"


class Measures:
    """The series of all jobs in this process.

    - `update` sets a job's gauges from its status; `record_written_status` counts the resizes that are new in a status, once even
      across restarts, because the status stores them.
    - `forget` removes a job's series, `clear` those of all jobs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting_since: dict[Key, datetime | None] = {}

    def update(self, key: Key, status: Mapping[str, Any]) -> None:
        """Set the job's gauges from its status."""
        for role in constants.ROLES:
            counts = status.get(role) or {}
            for state in STATES:
                JOB_INSTANCES.labels(*key, role, state).set(counts.get(state) or 0)
        JOB_FULFILLMENT.labels(*key).set((status.get(constants.TRAINER) or {}).get("fulfillment") or 0)
        if key not in self._waiting_since:
            for direction in (UP, DOWN):
                RESIZES_BY_JOB.labels(*key, direction)  # a counter that begins with 1 shows no increase
            JOB_WAITING_SECONDS.labels(*key).set_function(lambda: self._waiting_s(key))
        condition = find_condition(status.get("conditions") or (), constants.WAITING)
        is_waiting = condition is not None and condition.get("status") == "True"
        since = parse_timestamp(str(condition.get("lastTransitionTime"))) if condition and is_waiting else None
        self._waiting_since[key] = since

    def record_written_status(self, key: Key, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count the resizes that the new status has and the old one did not."""
        known = {_identity(resize) for resize in _history(before)}
        for resize in _history(after):
            if _identity(resize) not in known:
                direction = UP if (resize.get("to") or 0) > (resize.get("from") or 0) else DOWN
                reason = resize.get("reason")
                JOB_RESIZES.labels(direction, reason if reason in REASONS else OTHER).inc()
                RESIZES_BY_JOB.labels(*key, direction).inc()

    def forget(self, key: Key) -> None:
        """Remove the series of a deleted job."""
        if key not in self._waiting_since:
            return
        del self._waiting_since[key]
        for role in constants.ROLES:
            for state in STATES:
                JOB_INSTANCES.remove(*key, role, state)
        for direction in (UP, DOWN):
            RESIZES_BY_JOB.remove(*key, direction)
        JOB_FULFILLMENT.remove(*key)
        JOB_WAITING_SECONDS.remove(*key)

    def clear(self) -> None:
        """Remove all series at the end of a leadership term."""
        for key in tuple(self._waiting_since):
            self.forget(key)

    def _waiting_s(self, key: Key) -> float:
        since = self._waiting_since.get(key)
        return max(0.0, (self._clock.now() - since).total_seconds()) if since is not None else 0.0


def _history(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple((status.get("scaling") or {}).get("history") or ())


def _identity(resize: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(resize.get(field) for field in ("time", "from", "to", "reason"))
