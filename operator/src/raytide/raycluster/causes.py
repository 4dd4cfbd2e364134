"""What the texts of a diagnosis name about a RayCluster.

Takes the cluster, its observed pods and one diagnosis, and returns it with the pod to look at and its scheduling gates. The
conditions (and so the events) and `raytide why` use these functions, so that they name the same holder and the same fix. Pure
and deterministic: the same objects give the same diagnosis, whatever their order. Called by conditions.py,
conditions_scaling.py and explain/raycluster.py (SC:S21).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from raytide.api.conditions import cut
from raytide.api.pod_failure import Cause, failing_pod
from raytide.api.raycluster import RayCluster
from raytide.diagnosis.model import Diagnosis, Workload
from raytide.raycluster.observed import Observed
from raytide.raycluster.spec_queries import pod_spec

MAX_SELECTOR: Final = 200
MAX_FIXES: Final = 10
"""Holders and fixes in one condition; a spec or a record may have thousands of causes."""


def workload_of(cluster: RayCluster) -> Workload:
    """The cluster as diagnoses name it."""
    return Workload("RayCluster", *cluster.key)


def of_group(found: Diagnosis, cluster: RayCluster, group: str, observed: Observed) -> Diagnosis:
    """A diagnosis about the group, or with an empty name about the whole cluster, with the pod to look at."""
    if not group:
        return found
    pod = failing_pod(observed.group(group), found.reason)
    found = replace(found, group=group)
    if found.reason == Cause.UNSCHEDULABLE.value:
        found = found.having(selector=_selector(cluster, group))
    return found if pod is None else found.having(pod=pod.name, gates=", ".join(pod.scheduling_gates))


def of_limit(cluster: RayCluster, observed: Observed, group: str, why: Diagnosis) -> Diagnosis:
    """The autoscaler's reason why the group, or with an empty name the whole cluster, is not larger."""
    return of_group(why, cluster, group, observed) if group else why.having(pod=head_name(cluster, observed))


def _selector(cluster: RayCluster, group: str) -> str:
    """`nodeSelector` of the group's template, as `kubectl get nodes -l` takes it."""
    template = next((each.template for each in cluster.spec.worker_group_specs if each.group_name == group), {})
    selector = pod_spec(template).get("nodeSelector")
    pairs = selector.items() if isinstance(selector, Mapping) else ()
    return cut(",".join(f"{name}={value}" for name, value in sorted(pairs)), MAX_SELECTOR)


def head_name(cluster: RayCluster, observed: Observed) -> str:
    """The head pod; that of the status where pods cannot be read, and empty if there is none."""
    if observed.head is not None:
        return observed.head.name
    head = cluster.status.get("head")
    return str(head.get("podName") or "") if isinstance(head, Mapping) else ""
