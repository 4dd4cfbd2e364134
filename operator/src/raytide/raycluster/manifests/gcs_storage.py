"""Volume of a GCS that keeps its state in RocksDB: the claim, and what the head pod needs to use it.

Rules RC §2.10 and RC:FT-5. The PersistentVolumeClaim is created once, named by the cluster or by the user, and never changed but
for its owner: with one it is deleted with the cluster, without one (`deletionPolicy: Retain`) a later cluster of the same name
finds the state again. Only a claim with the cluster's label is taken over so; KubeRay takes any, and so deletes data of others.
Pure; called by pods.py, owned_objects.py and plan.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from raytide.api import constants
from raytide.api.actions import Patch
from raytide.api.meta import PERSISTENT_VOLUME_CLAIMS, RAYCLUSTERS, Manifest, controller_reference
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.environment import add_missing_env, build_literal
from raytide.raycluster.manifests.lookup import Lookup, labelled_with
from raytide.raycluster.manifests.pod_builder import PodBuilder, listed
from raytide.raycluster.spec_queries import has_rocksdb_fault_tolerance

VOLUME: Final = "gcs-storage"
PATH: Final = "/data/gcs"
DEFAULT_SIZE: Final = "1Gi"
DEFAULT_ACCESS_MODES: Final = ("ReadWriteOnce",)
RETAIN: Final = "Retain"


def add_head_storage(builder: PodBuilder, cluster: RayCluster) -> PodBuilder:
    """Let the GCS keep its state in RocksDB on the claim's volume (RC:FT-5); validation has excluded the user's own (RC:V-28..30)."""
    sub_path = _storage(cluster).get("subPath")
    mount = {"name": VOLUME, "mountPath": PATH, **({"subPath": sub_path} if sub_path else {})}
    variables = build_literal("RAY_gcs_storage", "rocksdb"), build_literal("RAY_gcs_storage_path", PATH)
    ray = add_missing_env(builder.ray, variables)
    volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim_name(cluster)}}
    return replace(
        builder,
        ray={**ray, "volumeMounts": [*listed(ray, "volumeMounts"), mount]},
        volumes=(*builder.volumes, volume),
    )


def claim_name(cluster: RayCluster) -> str:
    """The claim that the head mounts: the user's, else the operator's."""
    return users_claim(cluster) or f"{cluster.metadata.name}-gcs-pvc"


def users_claim(cluster: RayCluster) -> str:
    """The claim that the user has made, which is never touched (RC:PVC-1); empty if the operator makes it."""
    return _storage(cluster).get("claimName") or ""


def claim_lookups(cluster: RayCluster) -> tuple[Lookup, ...]:
    """The claim of a cluster with RocksDB; none for other clusters."""
    if not has_rocksdb_fault_tolerance(cluster):
        return ()
    if name := users_claim(cluster):
        return (Lookup(PERSISTENT_VOLUME_CLAIMS, name, has_to_be_ours=False),)
    may_use = labelled_with(cluster.metadata.name)
    return (Lookup(PERSISTENT_VOLUME_CLAIMS, claim_name(cluster), may_use=may_use, is_kept=True),)


def build_claim(cluster: RayCluster) -> Manifest:
    """The claim that the operator makes (RC:PVC-2)."""
    storage, metadata = _storage(cluster), cluster.metadata
    chosen = storage.get("storageClassName")
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": {
            "name": claim_name(cluster),
            "namespace": metadata.namespace,
            "labels": {constants.CLUSTER_LABEL: metadata.name},
            **({} if _is_retained(cluster) else {"ownerReferences": [_owner(cluster)]}),
        },
        "spec": {
            "accessModes": _access_modes(storage),
            "resources": {"requests": {"storage": _size(storage)}},
            **({} if chosen is None else {"storageClassName": chosen}),
        },
    }


def owner_patch(cluster: RayCluster, live: Manifest) -> Patch | None:
    """Set or remove the cluster as the claim's owner, as `deletionPolicy` says now (RC:PVC-3); None if it is so."""
    metadata = live["metadata"]
    owners = metadata.get("ownerReferences") or []
    others = [owner for owner in owners if owner.get("uid") != cluster.metadata.uid]
    if _is_retained(cluster) is (len(others) == len(owners)):
        return None
    return Patch(
        PERSISTENT_VOLUME_CLAIMS,
        cluster.metadata.namespace,
        metadata["name"],
        metadata.get("uid", ""),
        {"metadata": {"ownerReferences": others if _is_retained(cluster) else [*others, _owner(cluster)]}},
        failure_reason=constants.FAILED_TO_CREATE_PVC,
        version=metadata.get("resourceVersion", ""),
    )


def differences(cluster: RayCluster, live: Manifest) -> Iterator[str]:
    """Where an existing claim differs from the spec, which never changes it (RC:PVC-4)."""
    storage, spec = _storage(cluster), live.get("spec") or {}
    size, wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage"), _size(storage)
    if not _is_equal(size, wanted):
        yield f"size is {size}, not {wanted}"
    chosen = storage.get("storageClassName")
    if chosen is not None and chosen != spec.get("storageClassName"):
        yield f"storageClassName is {spec.get('storageClassName') or 'not set'}, not {chosen or 'empty'}"
    modes, wanted_modes = list(spec.get("accessModes") or ()), _access_modes(storage)
    if Counter(modes) != Counter(wanted_modes):
        yield f"accessModes are {', '.join(modes)}, not {', '.join(wanted_modes)}"


def _storage(cluster: RayCluster) -> Mapping[str, Any]:
    options = cluster.spec.gcs_fault_tolerance_options or {}
    storage: Mapping[str, Any] = options.get("storage") or {}
    return storage


def _is_retained(cluster: RayCluster) -> bool:
    return _storage(cluster).get("deletionPolicy") == RETAIN


def _owner(cluster: RayCluster) -> Manifest:
    return controller_reference(RAYCLUSTERS, cluster.metadata.name, cluster.metadata.uid)


def _size(storage: Mapping[str, Any]) -> str:
    return str(storage.get("size") or DEFAULT_SIZE)


def _access_modes(storage: Mapping[str, Any]) -> list[str]:
    return list(storage.get("accessModes") or DEFAULT_ACCESS_MODES)


def _is_equal(one: Any, other: str) -> bool:
    try:
        return Quantity.parse(one if one is not None else "0") == Quantity.parse(other)
    except QuantityError:
        return False
