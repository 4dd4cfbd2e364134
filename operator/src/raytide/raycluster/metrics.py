"""Metrics of RayClusters: their provisioning duration, their workers, and how long workers were missing.

Takes a status that was just written and sets KubeRay's metric when RayClusterProvisioned has become True (RC:ST-4), records
the time to capacity when WorkersMissing has ended, and takes the samples of each pass (RC §6.2). The series of a cluster
are removed with it (RC:TR-5), those of its workers also at the end of a leadership term. Called by the reconciler.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raytide.api import constants
from raytide.api.conditions import find_condition, is_condition_true, parse_timestamp
from raytide.api.meta import Key
from raytide.api.raycluster import RayCluster
from raytide.metrics import (
    PROVISIONED_SECONDS,
    RAYCLUSTER_MISSING_WORKERS,
    RAYCLUSTER_SCALING_LIMITED,
    RAYCLUSTER_TIME_TO_CAPACITY,
    RAYCLUSTER_WORKERS,
)
from raytide.raycluster.worker_samples import NO_SAMPLES, WorkerSamples

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


def observe_capacity(cluster: RayCluster, written: Mapping[str, Any], now: datetime) -> None:
    """Record how long workers were missing, if this status patch ended the condition WorkersMissing.

    Not while the cluster is suspended: it has all of no workers then.
    """
    before, after = cluster.status.get("conditions") or (), written.get("conditions") or ()
    missing = find_condition(before, constants.WORKERS_MISSING)
    if missing is None or missing.get("status") != "True" or is_condition_true(after, constants.WORKERS_MISSING):
        return
    since = parse_timestamp(str(missing.get("lastTransitionTime")))
    if since is not None and not cluster.spec.suspend:
        RAYCLUSTER_TIME_TO_CAPACITY.observe(max(0.0, (now - since).total_seconds()))


def forget_provisioned(key: Key) -> None:
    """Remove the series of a deleted cluster."""
    labels = _series.pop(key, None)
    if labels is not None:
        PROVISIONED_SECONDS.remove(*labels)


class WorkerMeasures:
    """The series about workers of the RayClusters that one controller reconciles."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def update(self, key: Key, samples: WorkerSamples) -> None:
        """Replace the cluster's series."""
        self._keys.add(key)
        RAYCLUSTER_WORKERS.replace(key, samples.workers)
        RAYCLUSTER_MISSING_WORKERS.replace(key, samples.missing)
        RAYCLUSTER_SCALING_LIMITED.replace(key, samples.limited)

    def forget(self, key: Key) -> None:
        """Remove the series of a cluster that is deleted or not reconciled."""
        if key in self._keys:
            self.update(key, NO_SAMPLES)
            self._keys.remove(key)

    def clear(self) -> None:
        """Remove all series at the end of a leadership term."""
        for key in tuple(self._keys):
            self.forget(key)
