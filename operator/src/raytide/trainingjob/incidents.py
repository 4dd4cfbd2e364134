"""Incidents: pod failures of a job that have one cause, and whether they count against its limits.

Trainers of a distributed job fail together: one ends, and within the time-outs of the collective library the others
exit with an error, because a peer is gone. That is one incident. It counts against the job's limits once, and not at
all when it began with a cause outside the job: a disrupted pod, an unready node, or a resize. A pod belongs to an
incident if it existed when the incident began; a pod created later that ends is another incident, so that a crash loop
reaches its limit. Resizes excuse a bounded number of incidents per hour, so that a job that is resized repeatedly
cannot crash without end. Pure; called by restart_policy.py (FD:SH-B1, FD:SH-B2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import parse_timestamp
from raytide.api.sharing_record import SharingRecord
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob.observed import Observed

INCIDENT_S: Final = 900.0
"""How long after an incident began its peers may still end because of it; NCCL's default time-out is 10 minutes."""
MAX_BY_RESIZE: Final = 3
BY_RESIZE_S: Final = 3600.0
"""At most `MAX_BY_RESIZE` incidents are attributed to resizes within `BY_RESIZE_S` seconds."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents stored in the status."""

    by_role: Mapping[str, int] = field(default_factory=dict)
    """Total number of incidents that count, by the role in which each began."""
    began_at: datetime | None = None
    """When the last incident that counts began."""
    disrupted_at: datetime | None = None
    """When one of the job's pods was last disrupted, or its node was unready."""
    by_resize: tuple[datetime, ...] = ()
    """When the last incidents that were attributed to a resize began, oldest first."""
    is_lasting: bool = field(default=False, compare=False)
    """Whether a disruption is observed now; not stored in the status."""

    @property
    def total(self) -> int:
        """The number of incidents of all roles."""
        return sum(self.by_role.values())

    def with_disruption(self, observed: Observed, ended: Sequence[JobPod]) -> "Incidents":
        """These incidents with a disruption that is observed now recorded; `ended` are the pods that failed since.

        A lasting one (an unready node) is recorded once, and again when pods that existed at that time end: pods
        created later that fail repeatedly must not be excused by it without end.
        """
        taken = [pod for pod in observed.pods if _is_being_taken(pod, observed)]
        if not taken:
            return self
        known_since = self.disrupted_at
        is_known = known_since is not None and all(_was_there(pod, known_since) for pod in taken)
        if is_known and known_since is not None and not any(_was_there(pod, known_since) for pod in ended):
            return replace(self, is_lasting=True)
        return replace(self, disrupted_at=observed.seen_at.replace(microsecond=0), is_lasting=True)

    def follows_disruption(self, pod: JobPod, now: datetime) -> bool:
        """Whether the pod ended because a peer was disrupted, or while the disruption lasts."""
        is_recent = self.disrupted_at is not None and (now - self.disrupted_at).total_seconds() <= INCIDENT_S
        return (is_recent and self.is_lasting) or _belongs(pod, self.disrupted_at, now)

    def with_resizes(self, record: SharingRecord | None, ended: Sequence[JobPod], now: datetime) -> "Incidents":
        """These incidents plus the one that a resize caused, if any; `ended` are pods that failed since, by themselves.

        Each resize excuses one incident, and at most `MAX_BY_RESIZE` are excused within `BY_RESIZE_S` seconds.
        """
        resizes = [at for pod in ended if (at := _resize_before(pod, record, now)) is not None]
        if not resizes or self._is_explained(max(resizes)):
            return self
        recent = tuple(at for at in self.by_resize if (now - at).total_seconds() < BY_RESIZE_S)[-MAX_BY_RESIZE:]
        if len(recent) >= MAX_BY_RESIZE:
            return self
        return replace(self, by_resize=(*recent, now.replace(microsecond=0)))

    def follows_resize(self, pod: JobPod, record: SharingRecord | None, now: datetime) -> bool:
        """Whether the pod ended because of a recent resize: some libraries do not survive a change of membership."""
        resized_at = _resize_before(pod, record, now)
        return resized_at is not None and self._is_explained(resized_at)

    def _is_explained(self, resized_at: datetime) -> bool:
        return any(began >= resized_at for began in self.by_resize)

    def with_failures(self, pods: Sequence[JobPod], now: datetime) -> "Incidents":
        """These incidents with `pods`, which failed by themselves, counted: at most one incident more.

        Only trainers can end because of an earlier failure of others; a master or a parameter server is always new.
        """
        new_failures = [pod for pod in pods if pod.role != constants.TRAINER or not _belongs(pod, self.began_at, now)]
        if not new_failures:
            return self
        role = min((pod.role for pod in new_failures), key=_place)
        by_role = {**self.by_role, role: self.by_role.get(role, 0) + 1}
        return replace(self, by_role=by_role, began_at=now.replace(microsecond=0))


NO_INCIDENTS: Final = Incidents()


def incidents_in(failures: Mapping[str, Any]) -> Incidents:
    """The incidents in `status.failures`; invalid values are ignored."""
    written = failures.get("incidents")
    counts = written if isinstance(written, Mapping) else {}
    return Incidents(
        by_role={role: count for role in constants.ROLES if isinstance(count := counts.get(role), int) and count > 0},
        began_at=parse_timestamp(str(failures.get("incidentTime"))),
        disrupted_at=parse_timestamp(str(failures.get("disruptionTime"))),
        by_resize=_moments(failures.get("resizeIncidentTimes")),
    )


def _moments(written: object) -> tuple[datetime, ...]:
    found = written[-MAX_BY_RESIZE:] if isinstance(written, list) else ()
    return tuple(sorted(moment for each in found if (moment := parse_timestamp(str(each))) is not None))


def _resize_before(pod: JobPod, record: SharingRecord | None, now: datetime) -> datetime | None:
    """The last resize during the pod's lifetime, if it is recent."""
    resizes = record.resizes if record is not None else ()
    return max((note.at for note in resizes if note.before > 0 and _belongs(pod, note.at, now)), default=None)


def _is_being_taken(pod: JobPod, observed: Observed) -> bool:
    if pod.is_finished:
        return pod.is_disrupted and _ended_lately(pod, observed.seen_at)
    return pod.node_name in observed.unready_nodes or (pod.is_terminating and pod.is_disrupted)


def _ended_lately(pod: JobPod, now: datetime) -> bool:
    ended = parse_timestamp(pod.finished_at)
    return ended is None or (now - ended).total_seconds() < INCIDENT_S


def _belongs(pod: JobPod, since: datetime | None, now: datetime) -> bool:
    return since is not None and (now - since).total_seconds() <= INCIDENT_S and _was_there(pod, since)


def _was_there(pod: JobPod, moment: datetime) -> bool:
    created = parse_timestamp(pod.creation_timestamp)
    return created is None or created <= moment


def _place(role: str) -> int:
    """Order of dependency: trainers end when a master or a parameter server does."""
    return constants.ROLES.index(role) if role in constants.ROLES else len(constants.ROLES)
