"""Metric of RayClusters: their provisioning duration.

Takes a status that was just written and sets KubeRay's metric when RayClusterProvisioned has become True (RC:ST-4); the
series is removed with the cluster (RC:TR-5). Called by the reconciler.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raytide.api import constants
from raytide.api.conditions import is_condition_true, parse_timestamp
from raytide.api.meta import Key
from raytide.api.raycluster import RayCluster
from raytide.metrics import PROVISIONED_SECONDS

_series: dict[Key, tuple[str, str, str]] = {}


def observe_provisioned(cluster: RayCluster, written: Mapping[str, Any], now: datetime) -> None:
    """Set the metric if this status patch changed RayClusterProvisioned to True."""
    before, after = cluster.status.get("conditions") or (), written.get("conditions") or ()
    created_at = parse_timestamp(cluster.metadata.creation_timestamp)
    has_become = is_condition_true(after, constants.PROVISIONED) and not is_condition_true(
        before, constants.PROVISIONED
    )
    if has_become and created_at is not None:
        forget_provisioned(cluster.key)
        labels = _series[cluster.key] = (cluster.metadata.name, cluster.metadata.namespace, cluster.metadata.uid)
        PROVISIONED_SECONDS.labels(*labels).set((now - created_at).total_seconds())


def forget_provisioned(key: Key) -> None:
    """Remove the series of a deleted cluster."""
    labels = _series.pop(key, None)
    if labels is not None:
        PROVISIONED_SECONDS.remove(*labels)
