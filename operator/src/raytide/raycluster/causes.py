"""What the texts of a diagnosis name about a RayCluster.

Takes the cluster, its observed pods and one diagnosis, and returns it with the pod to look at and its scheduling gates. The
conditions (and so the events) and `raytide why` use these functions, so that they name the same holder and the same fix. Pure
and deterministic: the same objects give the same diagnosis, whatever their order. Called by conditions.py,
conditions_scaling.py and explain/raycluster.py (SC:S21).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from raytide.api.pod_failure import failing_pod
from raytide.api.raycluster import RayCluster
from raytide.diagnosis.model import Diagnosis, Workload
from raytide.raycluster.observed import Observed

MAX_FIXES: Final = 10
"""Holders and fixes in one condition; a spec or a record may have thousands of causes."""


def workload_of(cluster: RayCluster) -> Workload:
    """The cluster as diagnoses name it."""
    return Workload("RayCluster", *cluster.key)


def of_group(found: Diagnosis, group: str, observed: Observed) -> Diagnosis:
    """A diagnosis about the group, or with an empty name about the whole cluster, with the pod to look at."""
    if not group:
        return found
    pod = failing_pod(observed.group(group), found.reason)
    found = replace(found, group=group)
    return found if pod is None else found.having(pod=pod.name, gates=", ".join(pod.scheduling_gates))


def of_limit(cluster: RayCluster, observed: Observed, group: str, why: Diagnosis) -> Diagnosis:
    """The autoscaler's reason why the group, or with an empty name the whole cluster, is not larger."""
    return of_group(why, group, observed) if group else why.having(pod=head_name(cluster, observed))


def head_name(cluster: RayCluster, observed: Observed) -> str:
    """The head pod; that of the status where pods cannot be read, and empty if there is none."""
    if observed.head is not None:
        return observed.head.name
    head = cluster.status.get("head")
    return str(head.get("podName") or "") if isinstance(head, Mapping) else ""
