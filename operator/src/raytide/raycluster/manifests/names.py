"""Names of new pods and replicas.

Builds a name of at most 63 characters from the cluster, the group and a `Namer`. Up to 50 characters of
`<cluster>-<group>` the prefix is KubeRay's; a longer one is cut and ends in a hash of the whole, so that two groups
with long names never share a prefix (D15, RC §3.2). The module is deterministic: the random part comes from the
`Namer`. Called by raycluster/plan.py once per pod to create: a retry reuses the name, and no other pod gets it.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, TypeAlias

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster, WorkerGroupSpec

Namer: TypeAlias = Callable[[str], str]
"""Appends five characters of the replica alphabet to a prefix such as `demo-cpu-worker-`."""

_PREFIX_LENGTH: Final = 50
_REPLICA_PREFIX_LENGTH: Final = 57
"""A label's value has at most 63 characters, of which six are the hyphen and the random part."""
_HASH_LENGTH: Final = 8
_DRAWS: Final = 100
"""Most attempts per name; only a `Namer` that repeats itself needs as many."""


def unused(namer: Namer, taken: Callable[[], Iterable[str]]) -> Namer:
    """A `Namer` that avoids the names in `taken` and repeats none (D15).

    Collisions of five random characters are likely: they occur in 3 of 100 groups of 1,000 pods. `taken` is called when
    the first name is requested.
    """
    known: set[str] = set()

    def draw(prefix: str) -> str:
        if not known:
            known.update(taken())
        name = namer(prefix)
        for _ in range(_DRAWS):
            if name not in known:
                break
            name = namer(prefix)
        known.add(name)
        return name

    return draw


def head_pod_name(cluster: RayCluster, config: PodConfig, namer: Namer) -> str:
    """The head's name: fixed in deterministic mode, else the template's own, else `<cluster>-head-<random>` (RC:POD-1)."""
    stem = f"{cluster.metadata.name[:_PREFIX_LENGTH]}-{constants.HEAD}".lower()
    if config.is_head_pod_name_deterministic:
        return stem
    template_metadata = cluster.spec.head_group_spec.template.get("metadata") or {}
    return template_metadata.get("name") or namer(f"{stem}-")


def worker_pod_name(cluster: RayCluster, group: WorkerGroupSpec, namer: Namer) -> str:
    """A worker's name, `<cluster>-<group>-worker-<random>`; the template's own name is ignored (RC:POD-16)."""
    return namer(worker_pod_prefix(cluster.metadata.name, group.group_name))


def replica_name(group_name: str, namer: Namer) -> str:
    """A multi-host replica's name, `<group>-<random>`; always short enough for a label value (RC §3.2)."""
    stem = group_name
    if len(stem) > _REPLICA_PREFIX_LENGTH:
        stem = f"{stem[: _REPLICA_PREFIX_LENGTH - _HASH_LENGTH - 1]}-{_fingerprint(group_name)}"
    return namer(f"{stem}-")


def worker_pod_prefix(cluster_name: str, group_name: str) -> str:
    """A worker's name without the random part: at most 58 characters, and different for every group of a cluster."""
    stem = f"{cluster_name}-{group_name}".lower()
    if len(stem) > _PREFIX_LENGTH:
        fingerprint = _fingerprint(f"{cluster_name}/{group_name}")
        stem = f"{stem[: _PREFIX_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{fingerprint}"
    return f"{stem}-{constants.WORKER}-"


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
