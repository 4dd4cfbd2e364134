"""Views of pods, nodes, ResourceQuotas, PriorityClasses and Namespaces for capacity accounting.

Decodes JSON (bytes of a list or watch, or objects) into small frozen views: a pod's node, owner, job, effective
requests as kube-scheduler counts them, and node constraints. Amounts are integers rounded up as Kubernetes does: `cpu`
in millicores, everything else in its own unit. Every field may be missing; an amount that is not a quantity raises
QuantityError. Used by fairshare/ and `raytide plan` (D3; TJ §3 rows 5 and 18).
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from raytide.api import constants, trainingjob_constants
from raytide.api.limits import (
    MAX_CLASSES,
    MAX_CONSTRAINTS,
    MAX_LABEL_BYTES,
    MAX_QUOTA_RESOURCES,
    MAX_RESOURCES,
)
from raytide.api.meta import Key
from raytide.api.object_metadata import Metadata
from raytide.api.pod_requirements import (
    ANYWHERE,
    CPU,
    NOTHING,
    TOO_LARGE,
    Amounts,
    PodConstraints,
    PodShape,
    PodSpec,
    Written,
    amount_of,
    amounts_of,
    shape_of,
)
from raytide.api.tenants import TENANT_LABEL

UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that occupy capacity."""


class NodeTaint(NamedTuple):
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class CapacityPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod of any workload, reduced to what affects capacity; its requests contain one of `pods`."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    """uid of the controlling owner; empty when the pod has none."""
    node: str = ""
    job: str = ""
    """The TrainingJob that the pod's label names; empty for pods of other workloads."""
    cluster: str = ""
    """The RayCluster that the pod's label names; empty for pods of other workloads."""
    role: str = ""
    """Role in its TrainingJob, or type of its Ray node: head or worker."""
    index: int | None = None
    requests: Amounts
    limits: Amounts
    constraints: PodConstraints = ANYWHERE
    priority: int = 0
    is_terminating: bool = False
    is_finished: bool = False
    is_running: bool = False
    is_ready: bool = False
    is_scheduling_gated: bool = False
    is_unschedulable: bool = False
    """Whether kube-scheduler found no node for the pod and is not preempting others for it."""
    created_at: str = ""

    @property
    def job_key(self) -> Key:
        """Namespace and name of its TrainingJob."""
        return Key(self.namespace, self.job)

    @property
    def shape(self) -> PodShape:
        """Its requests, limits and constraints."""
        return PodShape(self.requests, self.limits, self.constraints)

    @property
    def is_too_large(self) -> bool:
        """Whether it has more constraints or resources than are kept: it matches no node, and claims no capacity."""
        return self.constraints is TOO_LARGE

    @property
    def scheduling_state(self) -> tuple[object, ...]:
        """The fields that can change and affect capacity; most status updates of a pod change none of them."""
        state = (self.uid, self.node, self.is_terminating, self.is_finished, self.is_running, self.is_scheduling_gated)
        return (*state, self.is_unschedulable, self.requests, self.limits)


class CapacityNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node, reduced to what affects capacity; a node without a Ready condition counts as ready.

    A node with more labels, taints or resources than are kept (api/limits.py) counts as cordoned: what it would admit is unknown.
    """

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = NOTHING  # type: ignore[assignment]
    taints: tuple[NodeTaint, ...] = ()
    is_ready: bool = True
    is_cordoned: bool = False
    is_too_large: bool = False


class CapacityQuota(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One ResourceQuota: hard limits and usage, by the quota's own resource names."""

    namespace: str
    name: str
    hard: Amounts
    used: Amounts
    scopes: tuple[str, ...] = ()
    priority_class_rules: tuple[tuple[str, frozenset[str]], ...] = ()
    """PriorityClass requirements of its scope: operator (In, NotIn, Exists, DoesNotExist) and names; all must hold."""

    def admits_class(self, name: str) -> bool:
        """Whether its scope covers pods of that PriorityClass; an empty name means no class."""
        return all(_meets(name, operator, names) for operator, names in self.priority_class_rules)


def _meets(name: str, operator: str, names: frozenset[str]) -> bool:
    match operator:
        case "In":
            return name in names
        case "NotIn":
            return name not in names
        case "DoesNotExist":
            return not name
    return bool(name)


NEVER: Final = "Never"
"""The `preemptionPolicy` of pods for which kube-scheduler ends no other pod."""


class Priority(NamedTuple):
    """The priority of pods, and whether other pods may end for them."""

    value: int = 0
    may_preempt: bool = True


class PriorityClass(msgspec.Struct, frozen=True, gc=False):
    """One PriorityClass."""

    name: str
    priority: Priority = Priority()
    is_default: bool = False
    """Whether it applies to pods without a priorityClassName."""


class NamespaceTenant(msgspec.Struct, frozen=True, gc=False):
    """One namespace, and the tenant that its label names; empty without the label."""

    name: str
    tenant: str = ""


def tenants_of(namespaces: Iterable[NamespaceTenant]) -> dict[str, str]:
    """Namespace -> tenant, of those with the label."""
    return {each.name: each.tenant for each in namespaces if each.tenant}


def priorities_of(classes: Iterable[PriorityClass]) -> dict[str, Priority]:
    """PriorityClass -> priority; the empty name maps to the default class."""
    found: dict[str, Priority] = {}
    for each in classes:
        found[each.name] = each.priority
        if each.is_default:
            found[""] = each.priority
    return found


def priority_in(priorities: Mapping[str, Priority], name: str) -> Priority:
    """The priority of pods with that PriorityClass; of no class, or one that is not known, the default's."""
    return priorities.get(name) or priorities.get("") or Priority()


# --- the JSON as the API sends it: only what is read, everything may be missing or null ------------------------------


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None


class _PodStatus(msgspec.Struct, gc=False, rename="camel"):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: PodSpec | None = None
    status: _PodStatus | None = None


class _Taint(msgspec.Struct, gc=False):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class _NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(msgspec.Struct, gc=False):
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: list[_Condition] | None = None


class _Node(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _ScopeRequirement(msgspec.Struct, gc=False, rename="camel"):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class _ScopeSelector(msgspec.Struct, gc=False, rename="camel"):
    match_expressions: list[_ScopeRequirement] | None = None


class _QuotaSpec(msgspec.Struct, gc=False, rename="camel"):
    hard: dict[str, str | int | float] | None = None
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class _QuotaStatus(msgspec.Struct, gc=False):
    hard: dict[str, str | int | float] | None = None
    used: dict[str, str | int | float] | None = None


class _Quota(msgspec.Struct, gc=False):
    metadata: Metadata
    spec: _QuotaSpec | None = None
    status: _QuotaStatus | None = None


class _PriorityClass(msgspec.Struct, gc=False, rename="camel"):
    metadata: Metadata
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class _Namespace(msgspec.Struct, gc=False):
    metadata: Metadata


_pods = msgspec.json.Decoder(_Pod)
_nodes = msgspec.json.Decoder(_Node)
_quotas = msgspec.json.Decoder(_Quota)
_classes = msgspec.json.Decoder(_PriorityClass)
_namespaces = msgspec.json.Decoder(_Namespace)


def decode_capacity_pod(document: bytes | msgspec.Raw) -> CapacityPod:
    """The view of one pod's JSON; raises msgspec.MsgspecError, or QuantityError."""
    return _pod_view(_pods.decode(document))


def capacity_pod_from_object(pod: Mapping[str, Any]) -> CapacityPod:
    """The view of a pod given as an object; raises the same errors."""
    return _pod_view(msgspec.convert(pod, _Pod))


def decode_capacity_node(document: bytes | msgspec.Raw) -> CapacityNode:
    """The view of one node's JSON; raises msgspec.MsgspecError, or QuantityError."""
    return _node_view(_nodes.decode(document))


def capacity_node_from_object(node: Mapping[str, Any]) -> CapacityNode:
    """The view of a node given as an object; raises the same errors."""
    return _node_view(msgspec.convert(node, _Node))


def decode_capacity_quota(document: bytes | msgspec.Raw) -> CapacityQuota:
    """The view of one ResourceQuota's JSON; raises msgspec.MsgspecError, or QuantityError."""
    return _quota_view(_quotas.decode(document))


def capacity_quota_from_object(quota: Mapping[str, Any]) -> CapacityQuota:
    """The view of a ResourceQuota given as an object; raises the same errors."""
    return _quota_view(msgspec.convert(quota, _Quota))


def decode_priority_class(document: bytes | msgspec.Raw) -> PriorityClass:
    """The view of one PriorityClass's JSON; raises msgspec.MsgspecError."""
    return _class_view(_classes.decode(document))


def priority_class_from_object(priority_class: Mapping[str, Any]) -> PriorityClass:
    """The view of a PriorityClass given as an object; raises the same errors."""
    return _class_view(msgspec.convert(priority_class, _PriorityClass))


def decode_namespace(document: bytes | msgspec.Raw) -> NamespaceTenant:
    """The view of one Namespace's JSON; raises msgspec.MsgspecError."""
    return _namespace_view(_namespaces.decode(document))


def namespace_from_object(namespace: Mapping[str, Any]) -> NamespaceTenant:
    """The view of a Namespace given as an object; raises the same errors."""
    return _namespace_view(msgspec.convert(namespace, _Namespace))


# --- views -----------------------------------------------------------------------------------------------------------


def _pod_view(pod: _Pod) -> CapacityPod:
    meta, spec, status = pod.metadata, pod.spec or PodSpec(), pod.status or _PodStatus()
    labels, shape, phase = meta.labels or {}, shape_of(spec), status.phase or ""
    return CapacityPod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=intern(meta.controller_uid),
        node=intern(spec.node_name or ""),
        job=intern(labels.get(trainingjob_constants.JOB_LABEL, "")),
        cluster=intern(labels.get(constants.CLUSTER_LABEL, "")),
        role=intern(labels.get(trainingjob_constants.ROLE_LABEL) or labels.get(constants.NODE_TYPE_LABEL, "")),
        index=_index(labels.get(trainingjob_constants.INDEX_LABEL, "")),
        requests=shape.requests,
        limits=shape.limits,
        constraints=shape.constraints,
        priority=spec.priority or 0,
        is_terminating=bool(meta.deletion_timestamp),
        is_finished=phase in ("Succeeded", "Failed"),
        is_running=phase == "Running",
        is_ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        is_scheduling_gated=bool(spec.scheduling_gates) and not spec.node_name,
        is_unschedulable=_is_unschedulable(status) and not spec.node_name,
        created_at=meta.creation_timestamp or "",
    )


def _is_unschedulable(status: _PodStatus) -> bool:
    """Unschedulable without a nominated node: a nominated pod only waits for its victims to terminate."""
    return not status.nominated_node_name and any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in status.conditions or ()
    )


def _node_view(node: _Node) -> CapacityNode:
    spec, status = node.spec or _NodeSpec(), node.status or _NodeStatus()
    written = status.capacity if status.allocatable is None else status.allocatable
    labels, taints = node.metadata.labels or {}, spec.taints or []
    is_too_large = (
        len(written or ()) > MAX_RESOURCES
        or len(taints) > MAX_CONSTRAINTS
        or sum(len(key) + len(value) for key, value in labels.items()) > MAX_LABEL_BYTES
    )
    if is_too_large:
        labels, taints = {}, []
    return CapacityNode(
        name=intern(node.metadata.name),
        allocatable=amounts_of(written),
        labels={intern(key): intern(value) for key, value in labels.items()},
        taints=tuple(NodeTaint(taint.key, taint.value or "", taint.effect or "") for taint in taints),
        is_ready=all(each.status == "True" for each in status.conditions or () if each.type == "Ready"),
        is_cordoned=bool(spec.unschedulable) or is_too_large,
        is_too_large=is_too_large,
    )


def _quota_view(quota: _Quota) -> CapacityQuota:
    spec, status = quota.spec or _QuotaSpec(), quota.status or _QuotaStatus()
    selected = (spec.scope_selector or _ScopeSelector()).match_expressions or ()
    rules = [
        (each.operator, frozenset(islice(each.values or (), MAX_CLASSES)))
        for each in islice(selected, MAX_CONSTRAINTS)
        if each.scope_name == _PRIORITY_CLASS_SCOPE
    ]
    rules += [("Exists", frozenset())] if _PRIORITY_CLASS_SCOPE in (spec.scopes or ()) else []
    hard = _quota_amounts(status.hard if status.hard is not None else spec.hard)
    return CapacityQuota(
        namespace=quota.metadata.namespace,
        name=quota.metadata.name,
        hard=hard,
        used=_quota_amounts({name: text for name, text in (status.used or {}).items() if name in hard}),
        scopes=tuple(
            islice(dict.fromkeys((*(spec.scopes or ()), *(each.scope_name for each in selected))), MAX_CONSTRAINTS)
        ),
        priority_class_rules=tuple(rules),
    )


_PRIORITY_CLASS_SCOPE: Final = "PriorityClass"


def _class_view(given: _PriorityClass) -> PriorityClass:
    priority = Priority(given.value, given.preemption_policy != NEVER)
    return PriorityClass(given.metadata.name, priority, bool(given.global_default))


def _namespace_view(given: _Namespace) -> NamespaceTenant:
    return NamespaceTenant(given.metadata.name, (given.metadata.labels or {}).get(TENANT_LABEL, ""))


def _quota_amounts(written: Written) -> Amounts:
    """Of at most MAX_QUOTA_RESOURCES: those that pods of TrainingJobs usually request come first."""
    names = written or {}
    if len(names) > MAX_QUOTA_RESOURCES:
        names = {name: names[name] for name in islice(sorted(names, key=_by_use), MAX_QUOTA_RESOURCES)}
    return {
        name: amount_of(str(text), in_millis=name.removeprefix("requests.").removeprefix("limits.") == CPU)
        for name, text in names.items()
    }


def _by_use(name: str) -> tuple[bool, str]:
    """Extended resources have a domain, and come last."""
    return "/" in name, name


def _index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
