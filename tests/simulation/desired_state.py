"""Desired worker pods of a RayCluster, computed independently of the product.

Input: a RayCluster as stored. Output: the number of workers per group and the pods to delete, by the spec or by the decision
record of the autoscaler while it applies (the contract between operator and sidecar). Shares only names with the product, so
that a bug in the product is not repeated here. Used by the invariant checks and the comparison with the desired state.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DECISION_ANNOTATION = "raytide.io/autoscaler-decision"
AUTOSCALER_ANNOTATION = "raytide.io/autoscaler"
MAX_INT32 = 2147483647


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Desired state of one cluster during an interval."""

    generation: int
    counts: Mapping[str, int]
    """Group -> worker pods."""
    hosts: Mapping[str, int]
    """Group -> pods of one replica."""
    to_delete: frozenset[str]
    may_choose_victims: bool
    """Whether the operator may choose which surplus workers to delete (RM:I4)."""


def desired_state(cluster: Mapping[str, Any]) -> DesiredState:
    """The desired state of a RayCluster."""
    is_autoscaled = bool(cluster["spec"].get("enableInTreeAutoscaling"))
    return DesiredState(
        generation=cluster["metadata"]["generation"],
        counts=desired_workers(cluster),
        hosts=hosts_by_group(cluster),
        to_delete=workers_to_delete(cluster),
        may_choose_victims=not is_autoscaled,
    )


def desired_workers(cluster: Mapping[str, Any]) -> dict[str, int]:
    """Group -> number of worker pods (RC:WG-2, D19)."""
    if is_suspended(cluster):
        return {group["groupName"]: 0 for group in groups_of(cluster)}
    decided, counts = decisions(cluster), {}
    for group in groups_of(cluster):
        low, high = group.get("minReplicas") or 0, group.get("maxReplicas", MAX_INT32)
        replicas = group.get("replicas") or 0
        if (decision := decided.get(group["groupName"])) is not None:
            is_foreign = replicas > decision["replicas"] and replicas != decision.get("foreign")
            replicas = replicas if is_foreign else decision["replicas"]
        size = 0 if group.get("suspend") is True else max(low, min(replicas, high))
        counts[group["groupName"]] = size * group.get("numOfHosts", 1)
    return counts


def is_suspended(cluster: Mapping[str, Any]) -> bool:
    """Whether it should have no pods."""
    return cluster["spec"].get("suspend") is True


def is_stored_as_suspended(cluster: Mapping[str, Any]) -> bool:
    """Whether its status reports a suspension that has not ended (RC §5.4)."""
    kinds = ("RayClusterSuspending", "RayClusterSuspended")
    return any(c["type"] in kinds and c["status"] == "True" for c in _conditions(cluster))


def hosts_by_group(cluster: Mapping[str, Any]) -> dict[str, int]:
    """Group -> pods of one replica."""
    return {group["groupName"]: group.get("numOfHosts", 1) for group in groups_of(cluster)}


def workers_to_delete(cluster: Mapping[str, Any]) -> frozenset[str]:
    """Every name in any `workersToDelete`, and in the record."""
    in_spec = (name for g in groups_of(cluster) for name in (g.get("scaleStrategy") or {}).get("workersToDelete") or [])
    in_record = (name for decision in decisions(cluster).values() for name in decision.get("delete") or ())
    return frozenset({*in_spec, *in_record})


def decisions(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Group -> its decision in the record; empty while the record does not apply."""
    annotations = cluster["metadata"].get("annotations") or {}
    if not cluster["spec"].get("enableInTreeAutoscaling") or annotations.get(AUTOSCALER_ANNOTATION) == "paused":
        return {}
    if any(c["type"] == "AutoscalerDown" and c["status"] == "True" for c in _conditions(cluster)):
        return {}
    record = json.loads(annotations.get(DECISION_ANNOTATION) or "{}")
    groups: Mapping[str, Any] = record.get("groups") or {}
    return groups if record.get("cluster") == cluster["metadata"]["uid"] else {}


def groups_of(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its worker groups."""
    return cluster["spec"].get("workerGroupSpecs") or []


def _conditions(cluster: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return iter((cluster.get("status") or {}).get("conditions") or ())
