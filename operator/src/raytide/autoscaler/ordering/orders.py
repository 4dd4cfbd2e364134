"""What does one tick of the autoscaler read, remember and order?

Frozen values and nothing else: the snapshot a tick decides from, the little that is carried from tick to tick, and the
orders that come out. Memory holds timers only: with an empty one every decision is the same, some just come later (D12).
Made by loop.py (Snapshot) and tick.py (all the rest); carried out by loop.py, which may await but not choose (D5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from raytide.api.meta import Manifest
from raytide.api.pod import PodView
from raytide.api.scaling import DecisionRecord, GroupDecision, Why
from raytide.autoscaler.inputs.lifecycle import DEFAULT_LIMITS, TimeLimits, Timers
from raytide.autoscaler.inputs.node_autoscaler import UNKNOWN, NodeAutoscaler
from raytide.autoscaler.inputs.steady import UNKNOWN as UNKNOWN_PODS
from raytide.autoscaler.inputs.steady import Known
from raytide.autoscaler.model import Decision, Drained, DrainReason, GcsState, Instance, NodeType, Report

Operation: TypeAlias = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""

EMPTY: Final[Mapping[Any, Any]] = {}


# --- what goes in ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickSettings:
    """What does not change while the process lives."""

    is_recorded: bool = True
    """Whether the operator reads decision records: it is ours (RAYTIDE_OPERATOR_VERSION is set)."""
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
    """How long a busy node may go on working after its group was told to shrink below it (SC:S14)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a tick decides from, read at one moment."""

    cluster: Manifest
    """The RayCluster as the API returned it."""
    pods: tuple[PodView, ...]
    """Every pod with the cluster's label, dying ones too."""
    gcs: GcsState | None
    """None: the GCS did not answer, so nobody knows what is needed."""
    now: datetime
    """In UTC, for what others read."""
    monotonic_s: float
    """For our own timers."""
    settings: TickSettings = TickSettings()
    node_autoscaler: NodeAutoscaler = UNKNOWN
    """What it says about pods that no node can take."""
    reported_version: int = 0
    """Of the report the GCS keeps (GetClusterStatus at the start), so that ours is never below it (B-5)."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A drain that was refused: not asked again before `until_s`, which doubles with every refusal in a row."""

    count: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Timers, in monotonic seconds, and the last words spoken; a restart may lose all of it at any instant."""

    wrote_s: float | None = None
    """Last attempt to patch, whatever became of it."""
    unrecorded: Mapping[str, GroupDecision] = field(default_factory=dict)
    """By group, what stands in for the record under an operator that reads none: the number that the spec was last seen
    to have from us, back-off and reasons."""
    joined_s: Mapping[str, float] = field(default_factory=dict)
    """By Ray node id, when it was first seen."""
    unneeded_s: Mapping[str, float] = field(default_factory=dict)
    """By group, since when replicas that were asked for and have no pod yet are needed by nobody."""
    pending_s: Mapping[str, float] = field(default_factory=dict)
    """By instance id, since when a pod without a Ray node is needed by nobody; empty where that is no reason to end."""
    leaving_s: Mapping[str, float] = field(default_factory=dict)
    """By Ray node id, since when it has agreed to leave, or is being moved out of a group that is too large."""
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """By Ray node id, drains that were refused or not answered."""
    timers: Timers = field(default_factory=Timers)
    """Of instances.py and limits.py, theirs to read."""
    known: Known = field(default=UNKNOWN_PODS, compare=False, repr=False)
    """No timers, and nothing that changes a decision: what need not be worked out again while it has not changed."""
    silent_s: float | None = None
    """Since when nobody knows what is needed: the GCS is silent, or the head is down."""
    report_version: int = 0
    words: frozenset[str] = frozenset()
    """Log lines that stand: only a new one is said."""


# --- what comes out --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the GCS to drain one Ray node; all of a tick may be asked at once (B-21)."""

    node_id: str
    pod: str
    group: str
    unit: str
    """The replica, or the pod itself: named as a whole once every host of it agreed."""
    reason: DrainReason
    message: str
    deadline_ms: int = 0
    """Since the epoch; 0 means none."""
    is_pod_ready: bool = True
    """If not, its name may be written even though the GCS did not answer (contract, "without the GCS")."""


Answers: TypeAlias = Mapping[str, Drained | None]
"""What became of the drains, by Ray node id; None: the GCS did not answer in time. Nodes that were not asked are not there."""


class Level(StrEnum):
    """How loud a log line is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line for monitor.log: a sentence and structured values."""

    level: Level
    message: str
    values: tuple[tuple[str, str | int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One entry of event_AUTOSCALER.log, which Ray forwards to drivers (AS §5.4)."""

    severity: Level
    message: str


@dataclass(frozen=True, slots=True)
class TickPlan:
    """Everything one tick orders. In this order: the patch; if it was written, the drains and then their names.

    A patch that was refused (409, 422) or lost ends the tick's writing: no drains. The report goes out in any case.
    """

    patch: tuple[Operation, ...] = ()
    """JSON patch for the RayCluster; empty: write nothing."""
    drains: tuple[Drain, ...] = ()
    """Only after the patch, if there is one, was written."""
    report: Report | None = None
    memory: Memory = Memory()
    log: tuple[LogLine, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    look_again_s: float | None = None
    """Something becomes due then; None: the usual interval will do."""
    orders: Mapping[str, GroupDecision] = field(default_factory=dict)
    """What was decided by group, whether it had to be written or not."""
    why: tuple[Why, ...] = ()
    """Reasons that concern no group: no fitting group, the head is down."""
    decision: Decision | None = None
    """None: nothing was decided, and `why_not` says why."""
    instances: tuple[Instance, ...] = ()
    types: tuple[NodeType, ...] = ()
    why_not: str = ""
    record: DecisionRecord | None = None
    """The record that the patch writes, or the one that stands."""


@dataclass(frozen=True, slots=True)
class NamesPlan:
    """The second patch of a tick, after the drains answered."""

    patch: tuple[Operation, ...] = ()
    memory: Memory = Memory()
    log: tuple[LogLine, ...] = ()
