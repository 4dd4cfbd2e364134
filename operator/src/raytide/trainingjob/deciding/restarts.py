"""Which pods have ended, whose fault was it, and when may another be made in their place?

Takes the job and its observed pods, gives a `Tally`: the counts that the status holds plus what ended since. A pod is
counted by its uid, once: the uid stays in the status as long as the pod is there, and nobody deletes a pod before its uid
stands there, so that a crash in between loses nothing and counts nothing twice. A pod that was told to go before it ended
never counts (TJ §6 row 8), and one that the cluster took (evicted, preempted, node lost) counts against no limit, nor do
its peers that end with it; limits count incidents, not pods (incidents.py). Called by plan and status, which therefore
agree; rules TJ §5.2, §6, §7.12.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from raytide.api import training_names as names
from raytide.api.conditions import moment_of
from raytide.api.index_ranges import indices_in
from raytide.api.job_pod import JobPod
from raytide.api.sharing import SharingRecord
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.incidents import NO_INCIDENTS, Incidents, incidents_in
from raytide.trainingjob.observed import Observed

FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 360.0
"""Between a failure and the next try, as Kubernetes' Job has it."""
LONG_RUN_S: Final = 600.0
"""Who ran that long before it failed, or fails so long after the last one, is not in a loop: the waits begin anew."""
FAREWELL_S: Final = 30.0
"""Parameter servers and masters may end well a little before the trainers are seen to; later it is a failure."""
PERMANENT_CODES: Final = range(1, 128)
"""Exit codes that another try would give again, with `restartPolicy: ExitCode`; 128 and above are signals."""


class Fault(Enum):
    """Whose fault the end of a pod was."""

    TRANSIENT = "transient"
    """Its own, and another try may help."""
    PERMANENT = "permanent"
    """Its own, and the restart policy allows no other try."""
    CLUSTER = "cluster"
    """Nobody's here: evicted, preempted, node lost."""
    PEER = "peer"
    """It followed a peer that the cluster took, or a resize; it is replaced, and counts against no limit."""


UNCOUNTED: Final = frozenset({Fault.CLUSTER, Fault.PEER})
"""What counts against no limit and makes no pause longer."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod that ended and is counted in this pass."""

    pod: JobPod
    fault: Fault

    def __str__(self) -> str:
        return why_it_ended(self.pod)


@dataclass(frozen=True, slots=True)
class Tally:
    """What ended so far."""

    failed_by_role: Mapping[str, int]
    """Pods that failed and were not taken by the cluster, ever."""
    completed: frozenset[int]
    """Trainers that ended well."""
    dead: frozenset[int]
    """Trainers that failed for good and are not replaced."""
    counted: frozenset[str]
    """uids of pods that have ended, are still there, and stand in the status already."""
    fresh: tuple[Ending, ...] = ()
    """What was not counted before."""
    incidents: Incidents = NO_INCIDENTS
    """What limits go by: pods that end together failed once."""
    in_a_row: int = 0
    last_at: datetime | None = None
    look_again_in: float | None = None
    """Seconds until a pod that ended well counts as a failure."""

    @property
    def next_try_at(self) -> datetime | None:
        """Before which moment nothing is made in anybody's place; None when nothing failed lately."""
        if self.last_at is None or self.in_a_row <= 0:
            return None
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.in_a_row - 1, 30))
        return self.last_at + timedelta(seconds=wait_s)

    def wait_s(self, now: datetime) -> float:
        """Seconds until another try; 0 when it may be made."""
        return max(0.0, (self.next_try_at - now).total_seconds()) if self.next_try_at else 0.0


def tally(job: TrainingJob, observed: Observed, record: SharingRecord | None = None) -> Tally:
    """What the status counted, and what ended since; `record` tells of resizes."""
    old = _counted_before(job)
    ended = [pod for pod in observed.pods if pod.is_finished and pod.uid]
    # Whoever was told to go may obey with exit code 0: that is neither a success nor a failure.
    uncounted = [pod for pod in ended if pod.uid not in old.counted and not pod.is_terminating]
    completed = old.completed | {
        pod.index for pod in uncounted if pod.role == names.TRAINER and pod.has_succeeded and pod.index is not None
    }
    left_early = [pod for pod in uncounted if pod.has_succeeded and pod.role != names.TRAINER and not completed]
    waits = {pod.uid: _farewell_s(pod, observed.seen_at) for pod in left_early}
    due = [pod for pod in uncounted if pod.has_failed or waits.get(pod.uid, 1.0) <= 0]
    incidents = old.incidents.with_disruption(observed, due)
    incidents = incidents.with_resizes(record, _retried(job, due, incidents, observed.seen_at), observed.seen_at)
    fresh = tuple(Ending(pod, _fault(job, pod, incidents, record, observed.seen_at)) for pod in due)
    own = [ending.pod for ending in fresh if ending.fault not in UNCOUNTED]
    counted = incidents.with_failures(own, observed.seen_at)
    return Tally(
        failed_by_role=Counter(old.failed_by_role)
        + Counter(ending.pod.role for ending in fresh if ending.fault is not Fault.CLUSTER),
        completed=completed,
        dead=old.dead | _given_up(fresh),
        counted=frozenset(pod.uid for pod in ended if pod.uid in old.counted),
        fresh=fresh,
        incidents=counted,
        in_a_row=_in_a_row(old, fresh, observed.seen_at, is_new=counted.total > incidents.total),
        last_at=observed.seen_at.replace(microsecond=0) if fresh else old.last_at,
        look_again_in=min((wait_s for wait_s in waits.values() if wait_s > 0), default=None),
    )


def fault_of(job: TrainingJob, pod: JobPod) -> Fault:
    """Whose fault it was, by the restart policy (TJ §5.2: 1-127 permanent, 128-255 not)."""
    if pod.is_disrupted:
        return Fault.CLUSTER
    policy = job.spec.restart_policy
    if policy == "OnFailure" or pod.has_succeeded:
        return Fault.TRANSIENT
    if policy == "ExitCode":
        return Fault.PERMANENT if pod.exit_code in PERMANENT_CODES else Fault.TRANSIENT
    return Fault.PERMANENT


def _fault(job: TrainingJob, pod: JobPod, incidents: Incidents, record: SharingRecord | None, now: datetime) -> Fault:
    """The same, with what happened to its peers in mind.

    A restart policy that forbids another try gives way to a disruption, as it does for the pod that was taken, but not to a
    resize: elastic training is made to survive those.
    """
    fault = fault_of(job, pod)
    if fault is Fault.CLUSTER:
        return fault
    if incidents.follows_disruption(pod, now) or (
        fault is Fault.TRANSIENT and incidents.follows_resize(pod, record, now)
    ):
        return Fault.PEER
    return fault


def why_it_ended(pod: JobPod) -> str:
    """One sentence for people: which pod, where, how."""
    where = f" on node {pod.node_name}" if pod.node_name else ""
    if pod.is_disrupted:
        word = pod.disruption.reason or pod.reason
        return f"{pod.name}{where} was taken by the cluster ({word})"
    if pod.has_succeeded:
        return f"{pod.name}{where} ended although the trainers need it"
    if pod.culprit is None:
        return f"{pod.name}{where} failed" + (f" ({pod.reason})" if pod.reason else "")
    reason = pod.culprit.reason
    said = f" ({reason})" if reason and reason != "Error" else ""
    return f"{pod.name}{where} failed with exit code {pod.exit_code}{said}"


# --- parts -----------------------------------------------------------------------------------------------------------


def _counted_before(job: TrainingJob) -> Tally:
    """What the status holds; anybody may have written nonsense there."""
    failures, trainer = _part(job.status, "failures"), _part(job.status, names.TRAINER)
    counted = failures.get("counted")
    return Tally(
        failed_by_role={role: _whole(_part(job.status, role).get("failed")) for role in names.ROLES},
        completed=indices_in(trainer.get("completedIndexes")),
        dead=indices_in(trainer.get("failedIndexes")),
        counted=frozenset(counted) if isinstance(counted, list) else frozenset(),
        incidents=incidents_in(failures),
        in_a_row=_whole(failures.get("inARow")),
        last_at=moment_of(str(failures.get("lastTime"))),
    )


def _retried(job: TrainingJob, due: list[JobPod], incidents: Incidents, now: datetime) -> list[JobPod]:
    """Those that failed by themselves and may try again."""
    return [pod for pod in due if fault_of(job, pod) is Fault.TRANSIENT and not incidents.follows_disruption(pod, now)]


def _given_up(fresh: tuple[Ending, ...]) -> set[int]:
    return {
        ending.pod.index
        for ending in fresh
        if ending.pod.role == names.TRAINER and ending.fault is Fault.PERMANENT and ending.pod.index is not None
    }


def _in_a_row(old: Tally, fresh: tuple[Ending, ...], now: datetime, *, is_new: bool) -> int:
    """Pods that end together fail once (`is_new`: an incident began); what the cluster takes makes waits no longer."""
    if not fresh:
        return old.in_a_row
    own = [ending.pod for ending in fresh if ending.fault not in UNCOUNTED]
    is_long_ago = old.last_at is not None and (now - old.last_at).total_seconds() >= LONG_RUN_S
    before = 0 if is_long_ago or (is_new and any(_ran_s(pod) >= LONG_RUN_S for pod in own)) else old.in_a_row
    return before + 1 if is_new else max(1, before)


def _ran_s(pod: JobPod) -> float:
    began, ended = moment_of(pod.started_at), moment_of(pod.finished_at)
    return (ended - began).total_seconds() if began and ended else 0.0


def _farewell_s(pod: JobPod, now: datetime) -> float:
    ended = moment_of(pod.finished_at)
    return FAREWELL_S - (now - ended).total_seconds() if ended else 0.0


def _part(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = status.get(name)
    return part if isinstance(part, dict) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
