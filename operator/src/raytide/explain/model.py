"""Explanation of one workload: why it is not larger, as values.

`Objects` is what was read from the API server with the rights of the caller, `Explanation` what follows from it: five stages
from demand to nodes, the blockers in order of importance, the worker groups or roles, and the pods that are not ready. Every
list is bounded; the rest is counted. Made by explain.py, printed by `raytide why` and `raytide top` (SC:S21).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.meta import Manifest
from raytide.api.pod import PodView
from raytide.api.pod_requirements import Amounts, PodConstraints
from raytide.api.sharing_record import ResizeNote
from raytide.api.trainingjob_pod import JobPod
from raytide.diagnosis.model import Stage

RAYCLUSTER: Final = "RayCluster"
TRAININGJOB: Final = "TrainingJob"
NODE: Final = "Node"
MAX_BLOCKERS: Final = 20
MAX_GROUPS: Final = 20
MAX_PODS: Final = 10
MAX_EVENTS: Final = 5
MAX_MESSAGE: Final = 1000
"""Characters of each text; conditions may have 32,768 bytes."""

AnyPod: TypeAlias = PodView | JobPod


STAGES: Final = tuple(Stage)


class Verdict(StrEnum):
    """The answer in one word."""

    NOTHING_MISSING = "NothingMissing"
    WAITS = "Waits"
    CAN_NEVER_RUN = "CanNeverRun"

    @property
    def exit_code(self) -> int:
        """Exit code of `raytide why`."""
        return {Verdict.NOTHING_MISSING: 0, Verdict.WAITS: 3, Verdict.CAN_NEVER_RUN: 4}[self]


class Phase(StrEnum):
    """What a workload is that neither runs nor waits for anything."""

    ACTIVE = ""
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Size:
    """Workers of a RayCluster, or trainers of a TrainingJob."""

    wanted: int = 0
    """That should exist now."""
    ready: int = 0
    """Ready workers, or trainers that run."""
    needed: int = 0
    """What is wanted, or more: the minimum of a job that waits for it, what a suspended workload wants once it is resumed, and the
    trainers with which a job has succeeded."""
    maximum: int | None = None
    """What it may grow to; None: without a limit, or not by itself."""
    phase: Phase = Phase.ACTIVE
    since: str = ""
    """Since when the phase lasts, RFC 3339; empty for an active workload, or if it is not known."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was read of a node; a node that does not exist is not ready."""

    is_ready: bool = True
    exists: bool = True


@dataclass(frozen=True, slots=True)
class Warned:
    """A Warning event of the workload or of one of its pods."""

    reason: str
    message: str
    about: str = ""
    """Name of the pod; empty for the workload."""
    at: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A kind that the caller may not read, or that could not be read."""

    what: str
    error: str


class PodLike(Protocol):
    """What one pod needs."""

    @property
    def requests(self) -> Amounts:
        """By resource, one of `pods` included."""

    @property
    def constraints(self) -> PodConstraints:
        """Where it may run."""


@dataclass(frozen=True, slots=True)
class Need:
    """So many equal pods have no node."""

    pod: PodLike
    count: int
    group: str = ""
    """Worker group or role; empty: not known."""


class ClusterPods(Protocol):
    """All nodes, and all pods that have not ended, as far as the caller may list them."""

    @property
    def nodes(self) -> Sequence[CapacityNode]:
        """In any order."""

    @property
    def pods(self) -> Sequence[CapacityPod]:
        """In any order."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything that an explanation is made of."""

    kind: str
    obj: Manifest
    pods: tuple[AnyPod, ...] | None = None
    """Pods with the workload's label; None: they cannot be read."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """Nodes of pods that are not ready, as far as they could be read."""
    events: tuple[Warned, ...] = ()
    """Warnings, the latest first."""
    unreadable: tuple[Unreadable, ...] = ()
    cluster: ClusterPods | None = None
    """Read only where capacity is short; None: it was not, or cannot be read."""


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage: what should be there, what is there, and what that means."""

    stage: Stage
    text: str
    wanted: int | None = None
    """None where there is no number."""
    found: int | None = None
    """None where there is no number, or it could not be read."""
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """What one workload requests of a resource on the nodes in question."""

    kind: str
    """RayCluster or TrainingJob; Pod for any other."""
    namespace: str
    name: str
    amount: int
    note: str = ""
    """Whether and when fair sharing takes it for the workload; empty: it does not size the holder, or is not known."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource of which there is too little on the nodes where the pods may run; amounts as api/capacity.py counts them."""

    resource: str
    each: int
    """That one pod requests."""
    needed: int
    """That all pods without a node request."""
    free: int
    most_free: int
    """On one node."""
    largest: int
    """Allocatable on one node."""
    total: int
    """Allocatable on all."""
    holders: tuple[Holding, ...] = ()
    """Who requests the rest, largest first, at most MAX_HOLDERS of holders.py."""
    more_holders: int = 0

    @property
    def is_impossible(self) -> bool:
        """Whether no node could hold one such pod, if it were empty."""
        return self.largest < self.each

    @property
    def missing(self) -> int:
        """How much is missing in sum; nothing if it is free, but not on one node."""
        return max(0, self.needed - self.free)


class Field(StrEnum):
    """What of a workload's spec a change is made to."""

    REPLICAS = "replicas"
    """Of a worker group."""
    MAX_REPLICAS = "maxReplicas"
    """Of a worker group that Ray's autoscaler sizes."""
    MAX_INSTANCE = "max-instance"
    """Of the trainers, and `min-instance` if that is larger."""
    MIN_INSTANCE = "min-instance"
    """Of the trainers of the job that is explained."""
    SUSPEND = "suspend"
    NODES = "nodes"
    """Not of a workload: how many nodes there are like the one that `kind` and `name` of the change name."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Workers of a RayCluster, or trainers of a TrainingJob, that have a node without and with a change."""

    kind: str
    namespace: str
    name: str
    without: int
    having: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one workload, or more nodes, after which the workload that is explained has the pods that it lacks: the simulator says so."""

    kind: str
    namespace: str
    name: str
    field: Field
    before: int
    """The size of the group, the trainers, or for a suspension the pods."""
    after: int = 0
    group: str = ""
    """The worker group, if there are several."""
    group_index: int = 0
    """Of the worker group in the spec."""
    minimum: int = 0
    """min-instance of the job."""
    lowers_minimum: bool = False
    """Whether min-instance has to be lowered, too."""
    effects: tuple[Effect, ...] = ()
    """The workload that is explained comes first, then the one that is changed, then others that have another size by it."""

    @property
    def ends_no_pods(self) -> bool:
        """Whether nobody else gives anything up for it."""
        return self.field in (Field.MIN_INSTANCE, Field.NODES)


@dataclass(frozen=True, slots=True)
class ClosedNodes:
    """Why no node admits the pods: what keeps them from the nodes that match their selector and affinity; all empty: none matches.

    Of the matching nodes those with capacity for a pod, if there are any, and of these the ones that the least keeps closed.
    """

    selector: str = ""
    """The pods' nodeSelector, as `kubectl get nodes -l` takes it."""
    cordoned: tuple[str, ...] = ()
    """Names of nodes."""
    not_ready: tuple[str, ...] = ()
    tainted: tuple[tuple[str, str], ...] = ()
    """Node and taint, as `kubectl taint` writes it."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """One cause for which something is missing."""

    stage: Stage
    reason: str
    """Reason of the condition, of the autoscaler's or of the sharing pass's record, or one that only the catalogue has."""
    message: str
    group: str = ""
    """Worker group or role; empty: the whole workload."""
    count: int = 0
    """How many requests, workers or pods it concerns; 0: not known."""
    since: str = ""
    """RFC 3339; empty: not known."""
    holder: str = ""
    """What holds it up: a field, an object, another controller."""
    fix: str = ""
    is_permanent: bool = False
    """Whether waiting cannot help: it lasts until a spec, the demand or a node type changes."""
    stops_all: bool = False
    """Whether nothing of the workload runs or changes because of it."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Those of its diagnosis."""
    shortages: tuple[Shortage, ...] = ()
    """What of the nodes' capacity is short, and who holds it; empty where it is not about capacity, or could not be read."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One worker group of a RayCluster, or one role of a TrainingJob; all numbers count pods."""

    name: str
    minimum: int
    maximum: int | None
    """None: no limit."""
    wanted: int
    pods: int | None = None
    """None: they cannot be read."""
    ready: int | None = None
    """Without pods that of the status; None if it does not say."""
    reason: str = ""
    """Reason of its first blocker."""


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod that is not ready."""

    name: str
    group: str
    phase: str
    node: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer for one workload."""

    kind: str
    namespace: str
    name: str
    at: datetime
    verdict: Verdict
    summary: str
    """What is there, and the first blockers."""
    there: str = ""
    """How many of the wanted pods are ready: how the summary begins."""
    uid: str = ""
    size: Size = field(default_factory=Size)
    stages: tuple[StageLine, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    """The most important first."""
    groups: tuple[GroupLine, ...] = ()
    pods: tuple[PodLine, ...] = ()
    events: tuple[Warned, ...] = ()
    notes: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    changes: tuple[Change, ...] = ()
    """Each of them lets it have the pods that it lacks; the smallest first."""
    resizes: tuple[ResizeNote, ...] = ()
    """The last resizes of a TrainingJob, oldest first."""
    more_blockers: int = 0
    more_groups: int = 0
    more_pods: int = 0

    @property
    def wanted(self) -> int:
        """Wanted workers or trainers."""
        return self.size.wanted

    @property
    def ready(self) -> int:
        """Ready workers, or trainers that run."""
        return self.size.ready

    @property
    def first(self) -> Blocker | None:
        """The blocker to remove first."""
        return self.blockers[0] if self.blockers else None
