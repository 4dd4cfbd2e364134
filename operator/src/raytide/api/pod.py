"""View of a pod of a RayCluster, and what it has in common with that of a TrainingJob.

Decodes a pod's JSON (bytes from a list or watch, or an object) into a small frozen `PodView`: owner, labels and status.
It keeps nothing else of the object, so that ten thousand pods need little memory, and tolerates every missing field,
because a new pod has neither node nor status. Created by the informer and by expectations; read by all decisions about
pods (D3; RC §1.5, §4.6). trainingjob_pod.py uses `ManagedPod` and the parts of `PodDocument`.
"""

from collections.abc import Mapping
from itertools import chain
from sys import intern
from typing import Any, Self

import msgspec

from raytide.api import constants
from raytide.api.conditions import parse_timestamp
from raytide.api.limits import MAX_CONTAINERS, MAX_MARK
from raytide.api.meta import Key
from raytide.api.object_metadata import Metadata

RUNNING = "Running"
PENDING = "Pending"
FINISHED_PHASES = frozenset({"Failed", "Succeeded"})
MAX_GATES = 8
"""Scheduling gates that a view keeps."""
MAX_STATUS_MESSAGE = 1_024
"""Characters of a pod's `status.message` that a view keeps."""
READY_AFTER_S = 10.0
"""A pod that lost its readiness sooner than this after its start counts as never ready."""


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """One pod condition; an empty status means that the pod lacks it."""

    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def is_true(self) -> bool:
        """Whether the condition is True."""
        return self.status == "True"


NO_CONDITION = PodCondition()


class ContainerView(msgspec.Struct, frozen=True, gc=False):
    """State of one container: `state` is `waiting`, `running`, `terminated` or empty (not reported yet)."""

    name: str
    state: str = ""
    reason: str = ""
    message: str = ""
    restart_count: int = 0
    exit_code: int | None = None
    """Exit code of a container that is `terminated`."""
    finished_at: str = ""
    """When it ended, on its node's clock."""
    is_sidecar: bool = False
    """Whether it is a native sidecar: an init container with `restartPolicy: Always`, which runs as long as the pod."""
    has_started: bool = False
    """Whether a native sidecar has started, so that the next container may; restarts do not change that."""


class ManagedPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod of a RayCluster or of a TrainingJob: the fields that both controllers read."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    """uid of the controlling owner; empty when the pod has none."""
    phase: str = ""
    reason: str = ""
    """`status.reason`: why it failed where no container reports it, such as `Evicted`."""
    ready: PodCondition = NO_CONDITION
    scheduled: PodCondition = NO_CONDITION
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    node_name: str = ""
    pod_ip: str = ""
    containers: tuple[ContainerView, ...] = ()
    init_containers: tuple[ContainerView, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    """Names of its scheduling gates, at most `MAX_GATES`; they keep the scheduler from considering it."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion was requested."""
        return bool(self.deletion_timestamp)

    @property
    def is_running(self) -> bool:
        """Whether its phase is Running."""
        return self.phase == RUNNING

    @property
    def is_running_and_ready(self) -> bool:
        """Running with PodReady True (RC §1.5 readyWorkerReplicas)."""
        return self.is_running and self.ready.is_true

    @property
    def failed_start(self) -> str:
        """How it ended, if it ended without having been ready; empty for other pods, and where restarts have rules of their own."""
        return ""

    @property
    def failed_start_container(self) -> str:
        """The container by which it ended then; empty if there is none."""
        return ""

    def marked_terminating(self, at: str) -> Self:
        """The same pod marked as terminating; it still counts (D6)."""
        return self if self.deletion_timestamp else msgspec.structs.replace(self, deletion_timestamp=at)


class PodView(ManagedPod, frozen=True, gc=False, kw_only=True):
    """One pod of a RayCluster, reduced to the fields that the controllers read."""

    cluster: str = ""
    group: str = ""
    node_type: str = ""
    replica_index: int | None = None
    replica_name: str = ""
    """The replica of a multi-host group that it belongs to; empty for single-host workers (RC §3.3)."""
    host_index: int | None = None
    """Its index among the hosts of that replica, from 0."""
    num_of_hosts: int | None = None
    """Number of hosts of its replica; None for single-host workers and for pods created by KubeRay."""
    ended_at: str = ""
    """When a finished pod ended, as far as its status shows; empty for others."""
    message: str = ""
    """`status.message`: why it failed where no container reports it, at most `MAX_STATUS_MESSAGE` characters."""
    has_been_ready: bool = False
    """Whether it is Ready, or was until `READY_AFTER_S` or more after its start."""
    failed_starts: str = ""
    """Annotation `raytide.io/failed-starts`, as start_backoff.py reads it."""
    restart_policy: str = ""
    ray_container: str = ""
    """Name of the container that was created as Ray's, wherever admission put it (RC: Terms)."""
    head_labels: tuple[tuple[str, str], ...] = ()
    """Of a head pod: its labels by which the head service selects (RC:HS-3)."""
    recreate_hash: str = ""
    kuberay_version: str = ""

    @property
    def cluster_key(self) -> Key:
        """The RayCluster that the pod's label names; its owner may be another object."""
        return Key(self.namespace, self.cluster)

    @property
    def identity(self) -> Mapping[str, object]:
        """Labels and owner by which the controller finds the pod again, by name."""
        return {
            constants.CLUSTER_LABEL: self.cluster,
            constants.NODE_TYPE_LABEL: self.node_type,
            constants.GROUP_LABEL: self.group,
            constants.REPLICA_INDEX_LABEL: self.replica_index,
            constants.REPLICA_NAME_LABEL: self.replica_name,
            constants.HOST_INDEX_LABEL: self.host_index,
            "ownerReferences": self.owner_uid,
        }

    @property
    def is_head(self) -> bool:
        """Whether its node type label is `head`."""
        return self.node_type == constants.HEAD

    @property
    def is_worker(self) -> bool:
        """Whether its node type label is `worker`."""
        return self.node_type == constants.WORKER

    @property
    def is_running_and_not_unready(self) -> bool:
        """Running, with PodReady True or missing (RC §1.5 "all pods running")."""
        return self.is_running and self.ready.status in ("", "True")

    @property
    def is_finished(self) -> bool:
        """Whether it must be replaced: it ended, or its Ray container did and never restarts (RC:SD-1, RC:SD-2)."""
        if self.phase in FINISHED_PHASES:
            return True
        return self.is_running and self.restart_policy == "Never" and self._is_ray_container_terminated()

    def _is_ray_container_terminated(self) -> bool:
        return any(c.name == self.ray_container and c.state == "terminated" for c in self.containers)

    @property
    def ended_container(self) -> ContainerView | None:
        """The ended container to name: failed ones before others, and among them Ray's first."""
        ended = [each for each in (*self.containers, *self.init_containers) if each.state == "terminated"]
        failed = [each for each in ended if each.exit_code]
        candidates = failed or [each for each in ended if each.name == self.ray_container]
        return min(candidates, key=lambda each: each.name != self.ray_container, default=None)

    @property
    def failed_start(self) -> str:
        """How it ended, if it ended without having been ready: the container's end, or the kubelet's reason and message."""
        if not self.is_finished or self.has_been_ready:
            return ""
        container = self.ended_container
        if container is None:
            return ": ".join(filter(None, (self.reason, self.message))) or f"its phase is {self.phase}"
        reason = f" ({container.reason})" if container.reason else ""
        message = f": {container.message}" if container.message else ""
        return f"container {container.name}: ended with exit code {container.exit_code}{reason}{message}"

    @property
    def failed_start_container(self) -> str:
        """The container by which it ended then; empty if there is none."""
        return self.ended_container.name if self.failed_start and self.ended_container else ""

    @property
    def ended_well_at(self) -> str:
        """When its Ray container ended with exit code 0; empty otherwise."""
        return next((c.finished_at for c in self.containers if c.name == self.ray_container and c.exit_code == 0), "")

    def is_container_running(self, name: str) -> bool:
        """Whether that container is running now; one that waits for a restart is not."""
        if self.phase in FINISHED_PHASES:
            return False
        return any(c.name == name and c.state == "running" for c in (*self.containers, *self.init_containers))


# --- the JSON as the API sends it: only what is read, everything may be missing or null -----------------------------


class _Variable(msgspec.Struct, gc=False):
    name: Any = None


class _Container(msgspec.Struct, gc=False):
    name: str = ""
    env: list[_Variable] | None = None

    @property
    def has_ray_command(self) -> bool:
        return any(variable.name == constants.RAY_START_VARIABLE for variable in self.env or ())


class _InitContainer(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    restart_policy: str | None = None


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str | None = None
    restart_policy: str | None = None
    scheduling_gates: Any = None
    containers: list[_Container] | None = None
    init_containers: list[_InitContainer] | None = None


class ConditionDocument(msgspec.Struct, gc=False):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = msgspec.field(default=None, name="lastTransitionTime")


class StateDetail(msgspec.Struct, gc=False, rename="camel"):
    """Details of a container state."""

    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class StateDocument(msgspec.Struct, gc=False):
    """The state of a container; at most one of the three is set."""

    waiting: StateDetail | None = None
    running: StateDetail | None = None
    terminated: StateDetail | None = None

    @property
    def latest(self) -> tuple[str, StateDetail]:
        """Name and details of the state; `terminated` takes precedence over `waiting` and `running`."""
        for name, found in (("terminated", self.terminated), ("waiting", self.waiting), ("running", self.running)):
            if found is not None:
                return name, found
        return "", StateDetail()


class ContainerStatusDocument(msgspec.Struct, gc=False, rename="camel"):
    """Status of one container."""

    name: str = ""
    state: StateDocument | None = None
    restart_count: int = 0
    started: bool | None = None
    """Whether it runs and its startup probe, if any, has succeeded."""


class PodStatusDocument(msgspec.Struct, gc=False):
    """`status` of a pod."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = msgspec.field(default=None, name="startTime")
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[ConditionDocument] | None = None
    container_statuses: list[ContainerStatusDocument] | None = msgspec.field(default=None, name="containerStatuses")
    init_container_statuses: list[ContainerStatusDocument] | None = msgspec.field(
        default=None, name="initContainerStatuses"
    )


class PodDocument(msgspec.Struct, gc=False):
    """A pod's JSON as a decoder type: `msgspec.json.decode(line, type=PodDocument)`, then `view_of`."""

    metadata: Metadata
    spec: _Spec | None = None
    status: PodStatusDocument | None = None


_decoder = msgspec.json.Decoder(PodDocument)


def decode_pod(document: bytes | msgspec.Raw) -> PodView:
    """The view of one pod's JSON; raises msgspec.MsgspecError when it is not a pod."""
    return view_of(_decoder.decode(document))


def pod_from_manifest(manifest: Mapping[str, Any]) -> PodView:
    """The view of a pod given as an object: one about to be created, or a response of the API server."""
    return view_of(msgspec.convert(manifest, PodDocument))


def view_of(pod: PodDocument) -> PodView:
    """Reduce a decoded pod to its view; strings that repeat from pod to pod are interned."""
    meta, spec, status = pod.metadata, pod.spec or _Spec(), pod.status or PodStatusDocument()
    labels, annotations = meta.labels or {}, meta.annotations or {}
    conditions = {c.type: c for c in status.conditions or ()}
    return PodView(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=intern(meta.controller_uid),
        cluster=intern(labels.get(constants.CLUSTER_LABEL, "")),
        group=intern(labels.get(constants.GROUP_LABEL, "")),
        node_type=intern(labels.get(constants.NODE_TYPE_LABEL, "")),
        replica_index=parse_index(labels.get(constants.REPLICA_INDEX_LABEL, "")),
        replica_name=intern(labels.get(constants.REPLICA_NAME_LABEL, "")),
        host_index=parse_index(labels.get(constants.HOST_INDEX_LABEL, "")),
        num_of_hosts=parse_index(annotations.get(constants.NUM_OF_HOSTS_ANNOTATION, "")),
        phase=intern(status.phase or ""),
        reason=intern(status.reason or ""),
        message=(status.message or "")[:MAX_STATUS_MESSAGE],
        has_been_ready=_has_been_ready(conditions.get("Ready"), status.start_time),
        failed_starts=annotations.get(constants.FAILED_STARTS_ANNOTATION, "")[:MAX_MARK],
        ready=condition_view(conditions.get("Ready")),
        scheduled=condition_view(conditions.get("PodScheduled")),
        creation_timestamp=meta.creation_timestamp or "",
        deletion_timestamp=meta.deletion_timestamp or "",
        ended_at=_ended_at(status) if status.phase in FINISHED_PHASES else "",
        node_name=intern(spec.node_name or ""),
        pod_ip=status.pod_ip or "",
        restart_policy=intern(spec.restart_policy or ""),
        ray_container=intern(_ray_container(spec.containers or [], labels.get(constants.NODE_TYPE_LABEL, ""))),
        containers=container_views(status.container_statuses),
        init_containers=container_views(status.init_container_statuses, _sidecars(spec)),
        scheduling_gates=gate_names(spec.scheduling_gates),
        head_labels=_head_labels(labels),
        recreate_hash=annotations.get(constants.RECREATE_HASH_ANNOTATION, "")[:MAX_MARK],
        kuberay_version=intern(annotations.get(constants.KUBERAY_VERSION_ANNOTATION, "")[:MAX_MARK]),
    )


def _head_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if labels.get(constants.NODE_TYPE_LABEL) != constants.HEAD:
        return ()
    return tuple((label, intern(labels[label])) for label in sorted(constants.HEAD_SELECTOR_KEYS & labels.keys()))


def _ray_container(containers: list[_Container], node_type: str) -> str:
    """The name of the Ray container: webhooks may have put others before it (FD:RC3-2).

    Raytide and KubeRay give no other container the command of `ray start`; of pods without it the usual name decides, then
    the position.
    """
    started = (each.name for each in containers if each.has_ray_command)
    usual = (each.name for each in containers if each.name == f"ray-{node_type}")
    return next(chain(started, usual, (each.name for each in containers)), "")


def parse_index(text: str, *, most_digits: int = 63) -> int | None:
    """The index in a label or annotation; None if it is not one."""
    # Annotations may be long, and int() rejects numbers of thousands of digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None


def gate_names(gates: Any) -> tuple[str, ...]:
    """Names in `schedulingGates`, which may have any shape until the API server has accepted the pod."""
    if not isinstance(gates, list):
        return ()
    names = [gate.get("name") for gate in gates[:MAX_GATES] if isinstance(gate, dict)]
    return tuple(intern(name) for name in names if isinstance(name, str))


def _ended_at(status: PodStatusDocument) -> str:
    """The latest of its containers' ends, its disruption, and the time since which it is not ready.

    The status of a pod that was evicted, or whose node was lost, may not contain the containers' ends.
    """
    statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    ends = [each.state.terminated.finished_at for each in statuses if each.state and each.state.terminated]
    conditions = {condition.type: condition for condition in status.conditions or ()}
    for kind, word in (("DisruptionTarget", "True"), ("Ready", "False")):
        if (found := conditions.get(kind)) is not None and found.status == word:
            ends.append(found.last_transition_time)
    return max((end for end in ends if end), default="")


def _has_been_ready(ready: ConditionDocument | None, start_time: str | None) -> bool:
    """Whether the pod is Ready or was.

    The kubelet sets Ready to False when it starts a pod, and then changes its time only when the pod loses its readiness.
    """
    if ready is None or ready.status == "True":
        return ready is not None
    lost_at, started_at = parse_timestamp(ready.last_transition_time or ""), parse_timestamp(start_time or "")
    return lost_at is not None and started_at is not None and (lost_at - started_at).total_seconds() >= READY_AFTER_S


def condition_view(found: ConditionDocument | None) -> PodCondition:
    """The view of a condition; `NO_CONDITION` when the pod lacks it."""
    if found is None:
        return NO_CONDITION
    return PodCondition(intern(found.status), intern(found.reason or ""), (found.message or "")[:MAX_STATUS_MESSAGE])


def container_views(
    statuses: list[ContainerStatusDocument] | None, sidecars: frozenset[str] = frozenset()
) -> tuple[ContainerView, ...]:
    """The views of the containers in the status, at most MAX_CONTAINERS; `sidecars`: names of those that are native sidecars."""
    return tuple(_container(status, is_sidecar=status.name in sidecars) for status in (statuses or ())[:MAX_CONTAINERS])


def _sidecars(spec: _Spec) -> frozenset[str]:
    return frozenset(each.name for each in spec.init_containers or () if each.restart_policy == "Always")


def _container(status: ContainerStatusDocument, *, is_sidecar: bool) -> ContainerView:
    word, detail = (status.state or StateDocument()).latest
    return ContainerView(
        intern(status.name),
        word,
        intern(detail.reason or ""),
        (detail.message or "")[:MAX_STATUS_MESSAGE],
        status.restart_count,
        detail.exit_code,
        detail.finished_at or "",
        is_sidecar,
        is_sidecar and (status.started is True or status.restart_count > 0),
    )
