"""What is a new pod called?

Takes the cluster, the group and a `Namer`, gives a name of at most 63 characters. Up to 50 characters of
`<cluster>-<group>` the prefix is KubeRay's; longer ones are cut and end in a hash of the whole, so that two groups with
long names never share a prefix (D15, RC §3.2). It rolls no dice: the random part comes from the `Namer`, which the shell
owns. Called by plan.py, once per intention: a retry uses the same name, and nobody else gets it.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, TypeAlias

from raytide.api import names
from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster, WorkerGroupSpec

Namer: TypeAlias = Callable[[str], str]
"""Completes a prefix such as `demo-cpu-worker-` by five characters of the replica alphabet."""

_PREFIX_LENGTH: Final = 50
_REPLICA_PREFIX_LENGTH: Final = 57
"""A label's value has at most 63 characters, of which six are the random end."""
_HASH_LENGTH: Final = 8
_DRAWS: Final = 100
"""Only a source that always says the same needs as many."""


def unused(namer: Namer, taken: Callable[[], Iterable[str]]) -> Namer:
    """The same source without the names in `taken`, and none twice (D15).

    Five random characters meet sooner than one thinks: in 3 of 100 groups of 1,000 pods. `taken` is asked for the first name.
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
    stem = f"{cluster.metadata.name[:_PREFIX_LENGTH]}-{names.HEAD}".lower()
    if config.is_head_pod_name_deterministic:
        return stem
    template_metadata = cluster.spec.head_group_spec.template.get("metadata") or {}
    return template_metadata.get("name") or namer(f"{stem}-")


def worker_pod_name(cluster: RayCluster, group: WorkerGroupSpec, namer: Namer) -> str:
    """A worker's name, `<cluster>-<group>-worker-<random>`; the template's own name is ignored (RC:POD-16)."""
    return namer(worker_pod_prefix(cluster.metadata.name, group.group_name))


def replica_name(group_name: str, namer: Namer) -> str:
    """A multi-host replica's name, `<group>-<random>`; fits into a label however long the group's is (RC §3.2)."""
    stem = group_name
    if len(stem) > _REPLICA_PREFIX_LENGTH:
        stem = f"{stem[: _REPLICA_PREFIX_LENGTH - _HASH_LENGTH - 1]}-{_fingerprint(group_name)}"
    return namer(f"{stem}-")


def worker_pod_prefix(cluster_name: str, group_name: str) -> str:
    """All of a worker's name but the random part: at most 58 characters, and different for every group of a cluster."""
    stem = f"{cluster_name}-{group_name}".lower()
    if len(stem) > _PREFIX_LENGTH:
        fingerprint = _fingerprint(f"{cluster_name}/{group_name}")
        stem = f"{stem[: _PREFIX_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{fingerprint}"
    return f"{stem}-{names.WORKER}-"


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
