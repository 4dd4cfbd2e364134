"""Pods that the RayCluster controller would create for a RayCluster that does not exist yet.

Takes the manifest as it would be created, and returns the pods in the order of their creation, planned by the controller's own
planner with the default settings: with what the operator adds, such as the autoscaler's container, and without pods that it would
not create. A multi-host replica is one set of pods, because the controller keeps it complete or deletes it. Fields with a default in
the CRD get it. Assumed: names are free, service accounts exist. Pure; called by from_files.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from msgspec.structs import replace as with_fields

from raytide.api import constants
from raytide.api.actions import Create
from raytide.api.capacity import CapacityPod, capacity_pod_from_object
from raytide.api.config import DEFAULT_FEATURE_GATES, ClusterConfig, PodConfig
from raytide.api.meta import PODS, Key, Manifest
from raytide.api.pod import pod_from_manifest
from raytide.api.quantity import MAX_INT32
from raytide.api.raycluster import RayCluster
from raytide.raycluster.desired_replicas import ScalingState, wanted_pods
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.resource_totals import max_workers, min_workers
from raytide.raycluster.spec_queries import is_managed_by_us
from raytide.raycluster.suspension import Suspension, suspension_of
from raytide.raycluster.validation import violations

MAX_PODS: Final = 3_000
"""Pods of all RayClusters of a submission that are planned: as many as a TrainingJob may have."""
HEAD: Final = ""
"""The group of the head; worker groups have names."""
MAX_PLANS: Final = 10
"""Plans of one RayCluster; each has at most `MAX_WRITES` creates."""
CONFIG: Final = ClusterConfig(
    pods=PodConfig(creates_auth_secrets=True),
    feature_gates=DEFAULT_FEATURE_GATES | {constants.EMBEDDED_STORAGE_GATE},
    cleans_up_redis=False,
)
"""What an operator may be allowed, since its settings are not known here: no pod is missing in a prediction for want of a switch."""
"""Nothing waits for a finalizer here."""
SUSPENDED: Final = "Suspended"
GROUP_SUSPENDED: Final = "GroupSuspended"
_GROUP_DEFAULTS: Final = {"replicas": 0, "minReplicas": 0, "maxReplicas": MAX_INT32, "numOfHosts": 1}
"""Defaults of the CRD, which the API server sets before the operator reads the object."""


class RejectedError(ValueError):
    """The operator would create no pods for that RayCluster; the message names the field."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are created together: one pod, or all hosts of a replica."""

    group: str
    pods: tuple[CapacityPod, ...]
    priority_class: str = ""
    has_deadline: bool = False
    """Whether `activeDeadlineSeconds` ends the pods, by which some quotas count them."""


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A worker group, and how many pods its spec asks for."""

    name: str
    wanted: int
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class NewRayCluster:
    """A RayCluster to submit."""

    key: Key
    uid: str
    groups: tuple[NewGroup, ...]
    minimum: int
    maximum: int
    """Workers of all groups."""
    is_autoscaled: bool = False
    pods: tuple[PodSet, ...] = ()
    """The head first; those of all RayClusters of a submission are at most `MAX_PODS`."""
    reason: str = ""
    message: str = ""
    """Why no pods are created although the spec is valid; empty if they are."""

    @property
    def wanted(self) -> int:
        """Workers that its spec asks for."""
        return sum(group.wanted for group in self.groups)


def new_raycluster(manifest: Manifest, max_pods: int = MAX_PODS) -> NewRayCluster:
    """The RayCluster with at most so many of its pods; raises RejectedError, ValidationError, MsgspecError or QuantityError."""
    cluster = RayCluster.parse(_with_defaults(manifest))
    managed_by = cluster.spec.managed_by
    if not is_managed_by_us(managed_by):
        raise RejectedError(
            f"spec.managedBy names another controller ({managed_by}), so Raytide creates no pods for it"
        )
    if broken := violations(cluster, CONFIG):
        raise RejectedError("; ".join(map(str, broken)))
    # A decision record in the YAML is of another object: the new one has its own uid (FD:ST3-1).
    scaling, specs = ScalingState(cluster.is_autoscaled), cluster.spec.worker_group_specs
    found = NewRayCluster(
        cluster.key,
        cluster.metadata.uid,
        tuple(
            NewGroup(group.group_name, wanted_pods(group, scaling.desired_replicas_of(group)), bool(group.suspend))
            for group in specs
        ),
        min_workers(specs),
        max_workers(specs),
        is_autoscaled=cluster.is_autoscaled,
    )
    if suspension_of(cluster) is not Suspension.NONE:
        no_workers = tuple(replace(group, wanted=0) for group in found.groups)
        why = "spec.suspend is true, so no pod is created until it is false"
        return replace(found, groups=no_workers, reason=SUSPENDED, message=why)
    return replace(found, pods=tuple(_pod_sets(cluster, max_pods)))


def _with_defaults(manifest: Manifest) -> Manifest:
    spec = manifest.get("spec")
    groups = spec.get("workerGroupSpecs") if isinstance(spec, dict) else None
    if not isinstance(groups, list):
        return manifest
    return {**manifest, "spec": {**spec, "workerGroupSpecs": [_group_with_defaults(group) for group in groups]}}  # type: ignore[dict-item]


def _group_with_defaults(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    return {**_GROUP_DEFAULTS, **{name: value for name, value in group.items() if value is not None}}


def _pod_sets(cluster: RayCluster, max_pods: int) -> Iterator[PodSet]:
    """The pods of all plans until nothing is missing, the hosts of a replica as one set."""
    sets: dict[str, PodSet] = {}
    for manifest in _manifests(cluster, max_pods):
        labels, spec = manifest["metadata"]["labels"], manifest["spec"]
        pod = with_fields(capacity_pod_from_object(manifest), created_at=cluster.metadata.creation_timestamp)
        priority_class, has_deadline = spec.get("priorityClassName") or "", bool(spec.get("activeDeadlineSeconds"))
        if not isinstance(priority_class, str):
            raise RejectedError(f"priorityClassName of group {labels[constants.GROUP_LABEL]} is not a string")
        is_head = labels[constants.NODE_TYPE_LABEL] == constants.HEAD
        one = PodSet(HEAD if is_head else labels[constants.GROUP_LABEL], (pod,), priority_class, has_deadline)
        replica = labels.get(constants.REPLICA_NAME_LABEL) or pod.name
        known = sets.get(replica)
        sets[replica] = one if known is None else replace(known, pods=(*known.pods, pod))
    yield from sets.values()


def _manifests(cluster: RayCluster, max_pods: int) -> Iterator[Manifest]:
    numbers, observed = count(), Observed()
    for _ in range(MAX_PLANS if max_pods > 0 else 0):
        actions = plan(cluster, observed, CONFIG, lambda prefix: f"{prefix}{next(numbers):05d}").actions
        created = [each.manifest for each in actions if isinstance(each, Create) and each.resource is PODS]
        yield from created[: max_pods - len(observed.pods)]
        pods = tuple(with_fields(pod_from_manifest(each), uid=each["metadata"]["name"]) for each in created)
        observed = replace(observed, pods=(*observed.pods, *pods))
        if not created or len(observed.pods) >= max_pods:
            return
