"""Which pods ended for one and the same reason, and does that reason count against the job?

Distributed training loses its members together: one trainer ends, and within the time-outs of the collective library the
others exit with an error, because a peer is gone. All of that is one incident. An incident counts against the job's limits
once, and not at all when it began with something that the job did not do: a pod that the cluster took, a node that is
away, or a resize that was ordered. A pod belongs to an incident if it was there when the incident began; what was made
later and ends is an incident of its own, so that a crash loop still comes to its end. Resizes explain a bounded number of
incidents in an hour: a job that is resized again and again must not crash for ever. Pure; called by restarts.py (FD:SH-B1,
FD:SH-B2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from raytide.api import training_names as names
from raytide.api.conditions import moment_of
from raytide.api.job_pod import JobPod
from raytide.api.sharing import SharingRecord
from raytide.trainingjob.observed import Observed

INCIDENT_S: Final = 900.0
"""So long after an incident began its peers may still end of it: NCCL gives up after 10 minutes by default."""
MOST_BY_RESIZE: Final = 3
BY_RESIZE_S: Final = 3600.0
"""So many incidents are put down to resizes within so many seconds."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """What the status remembers of incidents."""

    by_role: Mapping[str, int] = field(default_factory=dict)
    """Incidents that count, ever, by the role in which each began."""
    began_at: datetime | None = None
    """When the last one that counts began."""
    disrupted_at: datetime | None = None
    """When the cluster last took one of the job's pods, or its node was away."""
    by_resize: tuple[datetime, ...] = ()
    """When the last ones that were put down to a resize began, oldest first."""
    is_lasting: bool = field(default=False, compare=False)
    """Whether that can be seen now; not kept in the status."""

    @property
    def total(self) -> int:
        """Of all roles."""
        return sum(self.by_role.values())

    def with_disruption(self, observed: Observed, ended: Sequence[JobPod]) -> "Incidents":
        """The same, with a disruption that can be seen now noted as of now; `ended` are the pods that failed since.

        One that lasts (a node that stays away) is noted once, and anew when pods of that time end: pods that are made
        later, and end again and again, must not live on it for ever.
        """
        taken = [pod for pod in observed.pods if _is_being_taken(pod, observed)]
        if not taken:
            return self
        noted = self.disrupted_at
        is_known = noted is not None and all(_was_there(pod, noted) for pod in taken)
        if is_known and noted is not None and not any(_was_there(pod, noted) for pod in ended):
            return replace(self, is_lasting=True)
        return replace(self, disrupted_at=observed.seen_at.replace(microsecond=0), is_lasting=True)

    def follows_disruption(self, pod: JobPod, now: datetime) -> bool:
        """Whether the pod ended because the cluster had taken a peer of it, or takes it still and has no other yet."""
        is_recent = self.disrupted_at is not None and (now - self.disrupted_at).total_seconds() <= INCIDENT_S
        return (is_recent and self.is_lasting) or _belongs(pod, self.disrupted_at, now)

    def with_resizes(self, record: SharingRecord | None, ended: Sequence[JobPod], now: datetime) -> "Incidents":
        """The same, with the incident noted that a resize began; `ended` are pods that failed since, by themselves.

        Each resize explains one, and not more than `MOST_BY_RESIZE` within `BY_RESIZE_S`.
        """
        resizes = [at for pod in ended if (at := _resize_before(pod, record, now)) is not None]
        if not resizes or self._is_explained(max(resizes)):
            return self
        recent = tuple(at for at in self.by_resize if (now - at).total_seconds() < BY_RESIZE_S)[-MOST_BY_RESIZE:]
        if len(recent) >= MOST_BY_RESIZE:
            return self
        return replace(self, by_resize=(*recent, now.replace(microsecond=0)))

    def follows_resize(self, pod: JobPod, record: SharingRecord | None, now: datetime) -> bool:
        """Whether the pod ended because the job had just been resized: some libraries do not survive another membership."""
        resized_at = _resize_before(pod, record, now)
        return resized_at is not None and self._is_explained(resized_at)

    def _is_explained(self, resized_at: datetime) -> bool:
        return any(began >= resized_at for began in self.by_resize)

    def with_failures(self, pods: Sequence[JobPod], now: datetime) -> "Incidents":
        """The same, with these pods counted that failed by themselves: at most one incident more.

        Only trainers end of what happened to others a while ago; a master or a parameter server talks to them alone.
        """
        newcomers = [pod for pod in pods if pod.role != names.TRAINER or not _belongs(pod, self.began_at, now)]
        if not newcomers:
            return self
        role = min((pod.role for pod in newcomers), key=_place)
        by_role = {**self.by_role, role: self.by_role.get(role, 0) + 1}
        return replace(self, by_role=by_role, began_at=now.replace(microsecond=0))


NO_INCIDENTS: Final = Incidents()


def incidents_in(failures: Mapping[str, Any]) -> Incidents:
    """What `status.failures` holds; nonsense there is nothing."""
    written = failures.get("incidents")
    counts = written if isinstance(written, Mapping) else {}
    return Incidents(
        by_role={role: count for role in names.ROLES if isinstance(count := counts.get(role), int) and count > 0},
        began_at=moment_of(str(failures.get("incidentTime"))),
        disrupted_at=moment_of(str(failures.get("disruptionTime"))),
        by_resize=_moments(failures.get("resizeIncidentTimes")),
    )


def _moments(written: object) -> tuple[datetime, ...]:
    found = written[-MOST_BY_RESIZE:] if isinstance(written, list) else ()
    return tuple(sorted(moment for each in found if (moment := moment_of(str(each))) is not None))


def _resize_before(pod: JobPod, record: SharingRecord | None, now: datetime) -> datetime | None:
    """The last resize that the pod lived to see, if that is not too long ago."""
    resizes = record.resizes if record is not None else ()
    return max((note.at for note in resizes if note.before > 0 and _belongs(pod, note.at, now)), default=None)


def _is_being_taken(pod: JobPod, observed: Observed) -> bool:
    if pod.is_finished:
        return pod.is_disrupted and _ended_lately(pod, observed.seen_at)
    return pod.node_name in observed.unready_nodes or (pod.is_terminating and pod.is_disrupted)


def _ended_lately(pod: JobPod, now: datetime) -> bool:
    ended = moment_of(pod.finished_at)
    return ended is None or (now - ended).total_seconds() < INCIDENT_S


def _belongs(pod: JobPod, since: datetime | None, now: datetime) -> bool:
    return since is not None and (now - since).total_seconds() <= INCIDENT_S and _was_there(pod, since)


def _was_there(pod: JobPod, moment: datetime) -> bool:
    created = moment_of(pod.creation_timestamp)
    return created is None or created <= moment


def _place(role: str) -> int:
    """Who depends on whom: trainers end when a master or a parameter server does."""
    return names.ROLES.index(role) if role in names.ROLES else len(names.ROLES)
