"""Facts about why a RayCluster has fewer workers than it wants.

Takes the cluster, its observed pods and one cause, and returns the facts that the texts of remedies.py name: the pod to look
at, its scheduling gates, the writers of `replicas`. The conditions (and so the events) and `raytide why` use these functions,
so that they name the same holder and the same cure. Pure and deterministic: the same objects give the same text, whatever
their order. Called by conditions.py, conditions_scaling.py and explain/raycluster.py (SC:S21).
"""

import re
from collections.abc import Mapping
from typing import Final

from raytide.api.autoscaler_decision import Why
from raytide.api.pod_failure import PodFailure, failing_pod
from raytide.api.raycluster import RayCluster
from raytide.api.remedies import Facts
from raytide.raycluster.observed import Observed

MAX_REMEDIES: Final = 10
"""Holders and cures in one condition; a spec or a record may have thousands of causes."""
_WRITER: Final = re.compile(r"\(written by ([^()]{1,256})\)")


def facts_of(cluster: RayCluster, message: str, group: str = "", *, pod: str = "", detail: str = "") -> Facts:
    """The facts of a cause with that message."""
    key = cluster.key
    return Facts("RayCluster", key.namespace, key.name, group, message, pod, detail)


def facts_of_failure(cluster: RayCluster, observed: Observed, group: str, failure: PodFailure) -> Facts:
    """Why workers of the group cannot be created or do not run."""
    return _facts_of_group(cluster, observed, group, failure.cause.value, failure.detail)


def facts_of_limit(cluster: RayCluster, observed: Observed, group: str, why: Why) -> Facts:
    """The autoscaler's reason why the group, or with an empty name the whole cluster, is not larger."""
    if group:
        return _facts_of_group(cluster, observed, group, why.reason, why.message)
    return facts_of(cluster, why.message, pod=head_name(cluster, observed))


def facts_of_contention(cluster: RayCluster, message: str) -> Facts:
    """Another client writes `replicas`, as the message of ReplicasContended says."""
    writers = dict.fromkeys(_WRITER.findall(message))
    return facts_of(cluster, message, detail=", ".join(writers) or "another client")


def head_name(cluster: RayCluster, observed: Observed) -> str:
    """The head pod; that of the status where pods cannot be read, and empty if there is none."""
    if observed.head is not None:
        return observed.head.name
    head = cluster.status.get("head")
    return str(head.get("podName") or "") if isinstance(head, Mapping) else ""


def _facts_of_group(cluster: RayCluster, observed: Observed, group: str, reason: str, message: str) -> Facts:
    pod = failing_pod(observed.group(group), reason)
    if pod is None:
        return facts_of(cluster, message, group)
    return facts_of(cluster, message, group, pod=pod.name, detail=", ".join(pod.scheduling_gates))
