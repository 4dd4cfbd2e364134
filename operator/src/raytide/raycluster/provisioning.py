"""How long did a RayCluster take to come up?

Takes a status that was just written and sets KubeRay's metric when RayClusterProvisioned has become True (RC:ST-4); the
series goes with the cluster (RC:TR-5). Called by the controller.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raytide.api import names
from raytide.api.conditions import is_condition_true, moment_of
from raytide.api.meta import Key
from raytide.api.raycluster import RayCluster
from raytide.metrics import PROVISIONED_SECONDS

_series: dict[Key, tuple[str, str, str]] = {}


def note_provisioned(cluster: RayCluster, written: Mapping[str, Any], now: datetime) -> None:
    """Set the metric if this write was the one that said provisioned for the first time."""
    before, after = cluster.status.get("conditions") or (), written.get("conditions") or ()
    created_at = moment_of(cluster.metadata.creation_timestamp)
    has_become = is_condition_true(after, names.PROVISIONED) and not is_condition_true(before, names.PROVISIONED)
    if has_become and created_at is not None:
        forget_provisioned(cluster.key)
        labels = _series[cluster.key] = (cluster.metadata.name, cluster.metadata.namespace, cluster.metadata.uid)
        PROVISIONED_SECONDS.labels(*labels).set((now - created_at).total_seconds())


def forget_provisioned(key: Key) -> None:
    """The cluster is gone."""
    labels = _series.pop(key, None)
    if labels is not None:
        PROVISIONED_SECONDS.remove(*labels)
