"""Snapshot, state and plan of one autoscaler tick.

Frozen values only: the snapshot a tick decides from, the state carried to the next tick, and the plan it returns.
The state holds timers: with an empty one every decision is the same, some only come later (D12). Built by
autoscaler/sidecar/loop.py (Snapshot) and autoscaler/sidecar/reconcile.py (the rest); autoscaler/sidecar/loop.py executes the plan and makes no
decisions (D5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision
from raytide.api.meta import Manifest
from raytide.api.pod import PodView
from raytide.autoscaler.model import (
    Amounts,
    Drained,
    DrainReason,
    GcsState,
    Instance,
    NodeType,
    Report,
    SchedulingReply,
)
from raytide.autoscaler.state.instance_cache import UNKNOWN as EMPTY_CACHE
from raytide.autoscaler.state.instance_cache import InstanceCache
from raytide.autoscaler.state.instance_lifecycle import DEFAULT_LIMITS, TimeLimits, Timers
from raytide.autoscaler.state.node_autoscaler_events import UNKNOWN, NodeAutoscaler
from raytide.diagnosis.model import Diagnosis

Operation: TypeAlias = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""

EMPTY: Final[Mapping[Any, Any]] = {}


# --- input -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """Settings that do not change while the process runs."""

    is_recorded: bool = True
    """Whether the operator reads decision records: it is Raytide's (RAYTIDE_OPERATOR_VERSION is set)."""
    head_pod: str = ""
    """RAY_HEAD_POD_NAME; empty: the head is found by its label."""
    pending_idle_timeout_s: float | None = None
    """RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S; None: off (AS:S-33)."""
    time_limits: TimeLimits = DEFAULT_LIMITS
    """RAY_AUTOSCALER_RECONCILE_*_TIMEOUT_S (AS §3.4 j)."""
    recovery_s: float = 600.0
    """RAY_AUTOSCALER_AVAILABILITY_RECOVERY_S (AS:S-23)."""
    has_gpu_conservation: bool = True
    """AUTOSCALER_CONSERVE_GPU_NODES."""
    preemption_grace_s: float = 300.0
    """How long a busy node may keep running after its group was scaled down below it (SC:S14)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a tick decides from, read at one moment."""

    cluster: Manifest
    """The RayCluster as the API server returned it."""
    pods: tuple[PodView, ...]
    """Every pod with the cluster's label, including terminating ones."""
    gcs: GcsState | None
    """None: the GCS did not answer, so the demand is unknown."""
    now: datetime
    """In UTC, for timestamps in reports and the record."""
    monotonic_s: float
    """For timers of this process."""
    settings: ReconcilerSettings = ReconcilerSettings()
    node_autoscaler: NodeAutoscaler = UNKNOWN
    """What it reported about unschedulable pods."""
    reported_version: int = 0
    """Version of the report the GCS holds (GetClusterStatus at start-up); new reports are not below it (B-5)."""


@dataclass(frozen=True, slots=True)
class DrainRejection:
    """A rejected drain: not retried before `until_s`; the delay doubles with every rejection in a row."""

    count: int
    until_s: float


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """Work that waits although the sum of a node's partly used devices has room for it."""

    free: Amounts
    """Of those devices, as the GCS reports it."""
    since_s: float
    """Since when it has been the same."""
    least: Amounts
    """By resource, the least amount that waits."""


@dataclass(frozen=True, slots=True)
class ReconcilerState:
    """Timers in monotonic seconds, and the last log lines; a restart may lose all of it at any time."""

    written_at_s: float | None = None
    """Last attempt to patch, successful or not."""
    unrecorded: Mapping[str, GroupDecision] = field(default_factory=dict)
    """By group, the substitute for the record under an operator that reads none: the replicas last seen in the spec
    from this autoscaler, backoff and reasons."""
    registered_s: Mapping[str, float] = field(default_factory=dict)
    """By Ray node id, when it was first seen."""
    unneeded_since_s: Mapping[str, float] = field(default_factory=dict)
    """By group, since when requested replicas without a pod have had no demand."""
    pending_since_s: Mapping[str, float] = field(default_factory=dict)
    """By instance id, since when a pod without a Ray node has had no demand; empty if such pods are not terminated."""
    draining_since_s: Mapping[str, float] = field(default_factory=dict)
    """By Ray node id, since when it has accepted its drain or has been leaving a group that is too large."""
    rejections: Mapping[str, DrainRejection] = field(default_factory=dict)
    """By Ray node id, drains that were rejected or not answered."""
    device_waits: Mapping[str, DeviceWait] = field(default_factory=dict)
    """By Ray node id."""
    timers: Timers = field(default_factory=Timers)
    """For instances.py and group_availability.py."""
    known: InstanceCache = field(default=EMPTY_CACHE, compare=False, repr=False)
    """Cache of unchanged instances: no timers, and no effect on decisions."""
    silent_s: float | None = None
    """Since when the demand is unknown: the GCS does not answer, or the head is down."""
    report_version: int = 0
    reported_keys: frozenset[str] = frozenset()
    """Keys of the messages in effect: only new ones are written."""


# --- output ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drain:
    """Request to the GCS to drain one Ray node; all drains of a tick may be sent at once (B-21)."""

    node_id: str
    pod: str
    group: str
    replica: str
    """The replica, or the pod itself: named for deletion as a whole once every host of it accepted."""
    reason: DrainReason
    message: str
    deadline_ms: int = 0
    """Since the epoch; 0 means none."""
    is_pod_ready: bool = True
    """If False, the pod may be named for deletion even if the GCS did not answer (contract, "without the GCS")."""


Answers: TypeAlias = Mapping[str, Drained | None]
"""Drain results by Ray node id, for requested nodes only; None: the GCS did not answer in time."""


class Level(StrEnum):
    """Log level."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line for monitor.log: a message and structured values."""

    level: Level
    message: str
    values: tuple[tuple[str, str | int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One entry of event_AUTOSCALER.log, which Ray forwards to drivers (AS §5.4)."""

    severity: Level
    message: str


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Output of one tick, in order: the patch; if it was written, the drains and then the names to delete.

    A patch that was rejected (409, 422) or lost ends the tick's writes: no drains. The report is sent in any case.
    """

    patch: tuple[Operation, ...] = ()
    """JSON patch for the RayCluster; empty: nothing to write."""
    drains: tuple[Drain, ...] = ()
    """Sent only after the patch, if there is one, was written."""
    report: Report | None = None
    state: ReconcilerState = ReconcilerState()
    log: tuple[LogLine, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    requeue_after_s: float | None = None
    """Seconds until the next timer expires; None: the usual interval."""
    decisions: Mapping[str, GroupDecision] = field(default_factory=dict)
    """Decisions by group, whether they had to be written or not."""
    why: tuple[Diagnosis, ...] = ()
    """Reasons that concern no single group: no feasible group, the head is down."""
    reply: SchedulingReply | None = None
    """None: nothing was decided; `why_not` has the reason."""
    instances: tuple[Instance, ...] = ()
    types: tuple[NodeType, ...] = ()
    why_not: str = ""
    record: DecisionRecord | None = None
    """The record the patch writes, or the one in force."""
