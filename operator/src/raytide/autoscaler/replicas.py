"""Replicas: the hosts that are created, drained and terminated together.

A replica is one pod, or all hosts of one replica of a multi-host group (B-8, RM:I6). Takes instances and returns them by
replica, a choice of hosts widened or narrowed to whole replicas, or the replicas that missing hosts belong to. A host
of a multi-host group whose pod names no replica is a replica of its own here; only the count against the limits fills
replicas with such hosts (autoscaler/scheduling/terminations.py). Pure; used by state, scheduling and scaling.
"""

from collections.abc import Collection, Iterable, Mapping

from raytide.autoscaler.model import Instance, NodeType


def replica_of(host: Instance) -> str:
    """Name of the host's replica, or of the host itself if it is a replica of its own."""
    return host.replica or host.instance_id


def hosts_by_replica(hosts: Iterable[Instance]) -> dict[str, list[Instance]]:
    """Hosts by replica, in order."""
    found: dict[str, list[Instance]] = {}
    for host in hosts:
        found.setdefault(replica_of(host), []).append(host)
    return found


def touched_replicas(hosts: Iterable[Instance], ids: Collection[str]) -> frozenset[str]:
    """Ids of all hosts of the replicas that have at least one of these ids."""
    hosts = tuple(hosts)
    touched = {replica_of(host) for host in hosts if host.instance_id in ids}
    return frozenset(host.instance_id for host in hosts if replica_of(host) in touched)


def complete_replicas(hosts: Iterable[Instance], ids: Collection[str]) -> frozenset[str]:
    """Ids of the hosts of the replicas all of whose hosts have one of these ids."""
    hosts = tuple(hosts)
    incomplete = {replica_of(host) for host in hosts if host.instance_id not in ids}
    return frozenset(host.instance_id for host in hosts if replica_of(host) not in incomplete)


def replicas_to_fill(node_type: NodeType, size_by_replica: Mapping[str, int], missing: int) -> list[str]:
    """The replica of each missing host of a multi-host group, incomplete replicas first; empty names in other groups."""
    hosts = node_type.num_of_hosts
    if hosts == 1:
        return [""] * missing
    gaps = [name for name, size in size_by_replica.items() for _ in range(hosts - size)]
    new = [f"{node_type.name}-requested-replica-{index // hosts}" for index in range(max(0, missing - len(gaps)))]
    return [*gaps[:missing], *new]
