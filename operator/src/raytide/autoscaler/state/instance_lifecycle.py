"""Instance lifecycle: stages, time limits and the statuses of Ray's instance manager.

Takes the observed `Stage` of an instance and its duration, and returns its status (AS §3.1, §3.4). Limits are Ray's own
plus a few shorter ones based on pod state (B-16). The only memory is `Timers`, a frozen value of monotonic times at
which something was first seen; with an empty one every status is the same and only the limits start over (D12). Pure;
used by instances.py and group_availability.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from raytide.autoscaler.model import Status


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Limits in seconds; a limit is exceeded only after it, not at it."""

    request_s: float = 600.0
    """A requested instance without a pod."""
    request_retries: int = 3
    """Retries of such a request before it counts as failed."""
    allocate_s: float = 3600.0
    """A pod without a Ray node, for any reason."""
    stop_request_s: float = 300.0
    """A drain was requested, and the node is not draining: after this it counts as running again."""
    terminate_s: float = 300.0
    """Termination was requested, and the pod still exists."""
    stopped_s: float = 90.0
    """The Ray node is dead and its pod is not: the container may start another one."""
    vanished_s: float = 120.0
    """The GCS no longer lists the node of a live pod: after a GCS restart the raylet registers again."""
    warn_s: float = 90.0
    """After so long in a stopping or terminating stage a warning is due."""
    capacity_s: float = 8.0
    """An unschedulable or gated pod for which no node autoscaler adds a node (SC:S2)."""
    first_event_s: float = 15.0
    """How long to wait for the first event of a node autoscaler whose events can be read: it acts every ten seconds."""
    node_s: float = 900.0
    """A pod for which a node autoscaler adds a node: as long as Cluster Autoscaler itself waits for a machine."""
    schedule_s: float = 120.0
    """A pod without a scheduling attempt."""
    pull_s: float = 3600.0
    """A pod on a node, while images are pulled or volumes are mounted."""
    initialize_s: float = 3600.0
    """A pod with an unfinished init container; each one that finishes restarts the clock."""
    broken_s: float = 300.0
    """A pod whose image, configuration or process fails (SC:S13)."""
    register_s: float = 300.0
    """A pod whose Ray container runs, but whose Ray node does not register (SC:S13)."""
    silent_s: float = 120.0
    """Requested pods that are neither created nor rejected."""

    @classmethod
    def with_settings(cls, given: Mapping[str, int]) -> "TimeLimits":
        """The defaults, with the given limits by field name instead of theirs.

        Ray has one limit for everything before the Ray node registers: image pulls and init containers use it unless
        they are set.
        """
        rays = given.get("allocate_s", cls().allocate_s)
        return replace(cls(pull_s=rays, initialize_s=rays), **given)


DEFAULT_LIMITS: Final = TimeLimits()


class Stage(StrEnum):
    """Observed stage of an instance, without history except for the Ray node it once had."""

    UNPLACED = "UNPLACED"
    """A pod not yet bound to a Kubernetes node."""
    STARTING = "STARTING"
    """A pod on a node, without a Ray node yet."""
    VANISHED = "VANISHED"
    """A pod whose Ray node the GCS no longer lists."""
    RUNNING = "RUNNING"
    DRAIN_REQUESTED = "DRAIN_REQUESTED"
    """Its Ray node is running, and a drain was requested."""
    DRAINING = "DRAINING"
    DEAD = "DEAD"
    """Its pod exists, its Ray node is dead."""
    TERMINATING = "TERMINATING"
    """Its pod is terminating or finished, is named for deletion, or its group was removed or suspended."""


LONGEST_CRASH_BACKOFF_S: Final = 300.0
"""Longest wait of the kubelet before it restarts a container; one that ran longer has recovered."""
STAGES_BEFORE_RAY_NODE: Final = frozenset({Stage.UNPLACED, Stage.STARTING})


@dataclass(frozen=True, slots=True)
class Restarts:
    """Highest restart count among a pod's containers, and when it was seen to rise."""

    count: int
    last_s: float | None = None
    """None: it happened before the pod was first seen."""
    previous_s: float | None = None
    """The restart before that."""
    crashing_s: float | None = None
    """Since when containers crash again, without running longer than `LONGEST_CRASH_BACKOFF_S` in between."""
    crashed_s: float | None = None
    """When one was last seen to wait for its restart or to be restarted."""

    @property
    def crashing_for_s(self) -> float:
        """From `crashing_s` to the last crash seen; 0 if there was at most one."""
        return 0.0 if self.crashing_s is None or self.crashed_s is None else self.crashed_s - self.crashing_s

    def is_crash_loop(self, now_s: float, patience_s: float) -> bool:
        """Whether two restarts happened within `patience_s`; a single restart is no crash loop."""
        return self.previous_s is not None and now_s - self.previous_s <= patience_s


NO_RESTARTS: Final = Restarts(0)


def next_restarts(old: Restarts | None, count: int, now_s: float, *, is_crashed: bool = False) -> Restarts:
    """Update the restart count; `old` is None for a pod seen for the first time.

    `is_crashed`: a container waits to be restarted.
    """
    restarts = Restarts(count) if old is None else _with_restart_count(old, count, now_s)
    if not is_crashed and (old is None or count <= old.count):
        return restarts
    if restarts.crashed_s is None or now_s - restarts.crashed_s > LONGEST_CRASH_BACKOFF_S:
        return replace(restarts, crashing_s=None, crashed_s=now_s)
    return replace(restarts, crashing_s=now_s if restarts.crashing_s is None else restarts.crashing_s, crashed_s=now_s)


def _with_restart_count(old: Restarts, count: int, now_s: float) -> Restarts:
    """The restarts of a pod's containers with a new total; of two or more at once, the last two happened now."""
    if count == old.count:
        return old
    if count < old.count:  # the container with the most restarts has completed
        return replace(old, count=count)
    return replace(old, count=count, last_s=now_s, previous_s=now_s if count > old.count + 1 else old.last_s)


@dataclass(frozen=True, slots=True)
class StageEntry:
    """Stage of one instance and since when."""

    stage: Stage
    since_s: float
    node_id: str = ""
    """The Ray node it has or had."""
    registered_s: float | None = None
    """When its Ray node was seen to register; None if it was there from the start."""
    step: str = ""
    """Start-up step while there is no Ray node: a new step is progress and restarts the clock (pod_startup.py)."""
    restarts: Restarts = NO_RESTARTS
    """Container restarts while there is no Ray node."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """One requested pod that does not exist yet."""

    since_s: float
    tries: int = 1


@dataclass(frozen=True, slots=True)
class EarlyExits:
    """Pods of a group that ended before their Ray node registered, since a node of the group last registered."""

    count: int
    last_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Timers:
    """Everything remembered from tick to tick; losing it only delays actions."""

    stages: Mapping[str, StageEntry] = field(default_factory=dict)
    """By instance id."""
    open_requests: Mapping[str, tuple[OpenRequest, ...]] = field(default_factory=dict)
    """By group, oldest first: new pods satisfy the oldest requests (AS §3.3 a)."""
    stalled_s: Mapping[str, float] = field(default_factory=dict)
    """By group that waits for pods: when the last one appeared, or when the wait began."""
    last_new_pod_s: Mapping[str, float] = field(default_factory=dict)
    """By group, when a new pod last appeared."""
    early_exits: Mapping[str, EarlyExits] = field(default_factory=dict)
    """By group: detects crash loops where failed pods are replaced instead of restarted."""


def next_stage(
    old: StageEntry | None,
    stage: Stage,
    node_id: str,
    now_s: float,
    step: str = "",
    *,
    restarts: Restarts = NO_RESTARTS,
) -> StageEntry:
    """The same entry while nothing changed, else a new one that begins now.

    If the GCS no longer lists the Ray node, the stage is DEAD if it was dead or draining, else VANISHED. Another Ray
    node in the same pod is a restarted raylet and begins a new entry.
    """
    if stage in STAGES_BEFORE_RAY_NODE and old is not None and old.node_id:
        is_dying = old.stage in (Stage.DEAD, Stage.DRAINING)
        stage, node_id, step = (Stage.DEAD if is_dying else Stage.VANISHED), old.node_id, ""
    if old is not None and (old.stage, old.node_id, old.step) == (stage, node_id, step):
        return old if old.restarts == restarts else replace(old, restarts=restarts)
    registered_s = None if old is None else old.registered_s
    if stage is Stage.RUNNING and old is not None and old.node_id != node_id:
        registered_s = now_s
    return StageEntry(stage, now_s, node_id, registered_s, step, restarts)


def paused(entry: StageEntry, now_s: float) -> StageEntry:
    """Restart the clock while the head is down, for stages that only a running head can end."""
    is_waiting = entry.stage in (Stage.STARTING, Stage.VANISHED, Stage.DEAD)
    return replace(entry, since_s=now_s) if is_waiting else entry


def status_of(entry: StageEntry, now_s: float, limits: TimeLimits) -> Status:
    """Status of an instance with a pod (AS §3.3 f, §3.4 i, j)."""
    age_s = now_s - entry.since_s
    match entry.stage:
        case Stage.UNPLACED | Stage.STARTING:
            return Status.ALLOCATION_TIMEOUT if age_s > limits.allocate_s else Status.ALLOCATED
        case Stage.VANISHED:
            return Status.RAY_STOPPED if age_s > limits.vanished_s else Status.ALLOCATED
        case Stage.RUNNING:
            return Status.RAY_RUNNING
        case Stage.DRAIN_REQUESTED:
            return Status.RAY_RUNNING if age_s > limits.stop_request_s else Status.RAY_STOP_REQUESTED
        case Stage.DRAINING:
            return Status.RAY_STOPPING
        case Stage.DEAD:
            return Status.RAY_STOPPED
        case Stage.TERMINATING:
            return Status.TERMINATION_FAILED if age_s > limits.terminate_s else Status.TERMINATING


def has_failed(entry: StageEntry, now_s: float, limits: TimeLimits) -> bool:
    """Whether its pod has no further use and must be terminated (AS §3.4 l)."""
    status = status_of(entry, now_s, limits)
    if entry.stage is Stage.DEAD:
        return now_s - entry.since_s > limits.stopped_s
    return status in (Status.ALLOCATION_TIMEOUT, Status.RAY_STOPPED)


def next_open_requests(old: tuple[OpenRequest, ...], count: int, now_s: float) -> tuple[OpenRequest, ...]:
    """The open requests; if there are fewer than before, the oldest ones were satisfied."""
    kept = old[max(0, len(old) - count) :]
    return kept + (OpenRequest(now_s),) * (count - len(kept))


def retry_request(request: OpenRequest, now_s: float, limits: TimeLimits) -> tuple[Status, OpenRequest]:
    """Status of a request, and the request after a possible retry (AS §3.4 j)."""
    if now_s - request.since_s <= limits.request_s:
        return Status.REQUESTED, request
    if request.tries > limits.request_retries:
        return Status.ALLOCATION_FAILED, request
    return Status.QUEUED, OpenRequest(now_s, request.tries + 1)
