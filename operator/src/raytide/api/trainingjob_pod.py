"""View of a pod of a TrainingJob.

Decodes a pod's JSON (bytes from a list or watch, or an object) into a small frozen `JobPod`: owner, role, index, status
and, once it has ended, the cause. What it has in common with Ray's pods is in pod.py, also that it tolerates every missing
field. Created by the informer and by expectations; read by all decisions about jobs (D3; TJ §2.2, §8).
"""

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.limits import MAX_MARK
from raytide.api.meta import Key
from raytide.api.object_metadata import Metadata
from raytide.api.pod import (
    FINISHED_PHASES,
    NO_CONDITION,
    ContainerView,
    ManagedPod,
    PodCondition,
    PodStatusDocument,
    condition_view,
    container_views,
    gate_names,
    parse_index,
)

FAILED: Final = "Failed"
SUCCEEDED: Final = "Succeeded"
DISRUPTION_TARGET: Final = "DisruptionTarget"
DISRUPTION_REASONS: Final = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeAffinity",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""`status.reason` of pods that the cluster ended: evicted, preempted, lost with a node or rejected by the kubelet."""
OUT_OF_PREFIX: Final = "OutOf"
"""`status.reason` of a pod that the kubelet rejected for lack of a resource: `OutOfcpu`, `OutOfnvidia.com/gpu`."""


class JobPod(ManagedPod, frozen=True, gc=False, kw_only=True):
    """One pod of a TrainingJob, reduced to the fields that the controllers read."""

    job: str = ""
    role: str = ""
    index: int | None = None
    """None for a master, and where the label is missing or not an index."""
    disruption: PodCondition = NO_CONDITION
    """`DisruptionTarget`: the pod is being evicted, preempted or garbage-collected."""
    started_at: str = ""
    """Earliest start time of its containers, on its node's clock; empty when none has started."""
    membership_revision: str = ""
    """Revision of the membership files of which its kubelet was last told; empty: none."""

    @property
    def job_key(self) -> Key:
        """The TrainingJob that the pod's label names; its owner may be another object."""
        return Key(self.namespace, self.job)

    @property
    def identity(self) -> Mapping[str, object]:
        """Labels and owner by which the controller finds the pod again, by name."""
        return {
            constants.JOB_LABEL: self.job,
            constants.ROLE_LABEL: self.role,
            constants.INDEX_LABEL: self.index,
            "ownerReferences": self.owner_uid,
        }

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.phase in FINISHED_PHASES

    @property
    def has_succeeded(self) -> bool:
        """Whether all its containers ended with exit code 0."""
        return self.phase == SUCCEEDED

    @property
    def has_failed(self) -> bool:
        """Whether it ended in phase Failed, for whatever cause."""
        return self.phase == FAILED

    @property
    def is_disrupted(self) -> bool:
        """Whether the cluster, and not its program, ended it: evicted, preempted, node lost or full."""
        return self.disruption.is_true or self.reason in DISRUPTION_REASONS or self.reason.startswith(OUT_OF_PREFIX)

    @property
    def failed_container(self) -> ContainerView | None:
        """The first container with a non-zero exit code, init containers first."""
        return next((c for c in (*self.init_containers, *self.containers) if c.exit_code), None)

    @property
    def exit_code(self) -> int | None:
        """The exit code with which it failed; None where no container reported one."""
        return self.failed_container.exit_code if self.failed_container else None

    @property
    def finished_at(self) -> str:
        """When its last container ended, on its node's clock."""
        return max((c.finished_at for c in (*self.init_containers, *self.containers)), default="")


# --- the JSON as the API sends it: only what is read, everything may be missing or null -----------------------------


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    """Without containers: those of a tenant's template may have any shape until the API server has accepted the pod."""

    node_name: str | None = None
    scheduling_gates: Any = None


class JobPodDocument(msgspec.Struct, gc=False):
    """A pod's JSON as a decoder type: `msgspec.json.decode(line, type=JobPodDocument)`, then `view_of`."""

    metadata: Metadata
    spec: _Spec | None = None
    status: PodStatusDocument | None = None


_decoder = msgspec.json.Decoder(JobPodDocument)
_INDEX_DIGITS: Final = 9


def decode_job_pod(document: bytes | msgspec.Raw) -> JobPod:
    """The view of one pod's JSON; raises msgspec.MsgspecError when it is not a pod."""
    return view_of(_decoder.decode(document))


def job_pod_from_manifest(manifest: Mapping[str, Any]) -> JobPod:
    """The view of a pod given as an object: one about to be created, or a response of the API server."""
    return view_of(msgspec.convert(manifest, JobPodDocument))


def view_of(pod: JobPodDocument) -> JobPod:
    """Reduce a decoded pod to its view; strings that repeat from pod to pod are interned."""
    meta, spec, status = pod.metadata, pod.spec or _Spec(), pod.status or PodStatusDocument()
    labels = meta.labels or {}
    conditions = {condition.type: condition for condition in status.conditions or ()}
    return JobPod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=intern(meta.controller_uid),
        job=intern(labels.get(constants.JOB_LABEL, "")),
        role=intern(labels.get(constants.ROLE_LABEL, "")),
        index=parse_index(labels.get(constants.INDEX_LABEL, ""), most_digits=_INDEX_DIGITS),
        phase=intern(status.phase or ""),
        reason=intern(status.reason or ""),
        ready=condition_view(conditions.get("Ready")),
        scheduled=condition_view(conditions.get("PodScheduled")),
        disruption=condition_view(conditions.get(DISRUPTION_TARGET)),
        creation_timestamp=meta.creation_timestamp or "",
        deletion_timestamp=meta.deletion_timestamp or "",
        node_name=intern(spec.node_name or ""),
        pod_ip=status.pod_ip or "",
        started_at=_started_at(status),
        containers=container_views(status.container_statuses),
        init_containers=container_views(status.init_container_statuses),
        membership_revision=intern((meta.annotations or {}).get(constants.MEMBERSHIP_ANNOTATION, "")[:MAX_MARK]),
        scheduling_gates=gate_names(spec.scheduling_gates),
    )


def _started_at(status: PodStatusDocument) -> str:
    moments = (each.state.latest[1].started_at for each in status.container_statuses or () if each.state)
    return min((moment for moment in moments if moment), default="")
