"""Pods of RayClusters in the store, with counters of created, ended and deleted pods.

Counts by owner and group, decoding each change once, so that a check at every write stays cheap. It keeps totals per cluster
and group and no history: a run with a fault is compared by them. Used by the invariant checks, the scenarios and the
comparison with the desired state.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from raytide_sandbox.apiserver.store import Change, Store

ENDED = ("Failed", "Succeeded")


class _Owner(msgspec.Struct, gc=False):
    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    owner_references: list[_Owner] = msgspec.field(default_factory=list)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: list[_Condition] = msgspec.field(default_factory=list)


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


decode_pod = msgspec.json.Decoder(_Pod).decode


@dataclass(frozen=True, slots=True)
class TrackedPod:
    """One pod of a RayCluster."""

    uid: str
    name: str
    owner_uid: str
    cluster: str
    group: str
    index: str
    """Its replica index within the group."""
    replica: str
    """The name of its multi-host replica; empty for single hosts."""
    host: str
    """Which host of the replica it is."""
    num_of_hosts: str
    """The number of hosts of the replica, as annotated by the product."""
    is_alive: bool
    """Neither ended nor terminating."""
    is_ready: bool


class PodTracker:
    """The pods that are owned by a RayCluster and have its label."""

    def __init__(self, store: Store) -> None:
        self.created: Counter[tuple[str, str]] = Counter()
        """(cluster name, group) -> number of pods ever created."""
        self.created_by_owner: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> number of pods ever created."""
        self.deleted: Counter[tuple[str, str]] = Counter()
        """(cluster name, group) -> number of pods removed from the store."""
        self.ended_by_owner: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> number of pods that are no longer live, including terminating ones and those that other writers moved away."""
        self.moved_in: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> number of pods that entered the group because another writer changed their labels."""
        self._by_uid: dict[str, TrackedPod] = {}
        self._live: dict[str, dict[str, dict[str, TrackedPod]]] = defaultdict(lambda: defaultdict(dict))
        self._members: dict[str, dict[str, TrackedPod]] = defaultdict(dict)
        store.subscribe(self._on_pod, "pods")

    def live_counts(self, owner_uid: str) -> dict[str, int]:
        """Group -> live pods; groups without any are absent."""
        return {group: len(pods) for group, pods in self._live[owner_uid].items() if pods}

    def live_pods(self, owner_uid: str, group: str) -> list[TrackedPod]:
        """The live pods of a group, oldest first."""
        return list(self._live[owner_uid][group].values())

    def all_pods(self, owner_uid: str) -> list[TrackedPod]:
        """All pods of the owner that are in the store, oldest first."""
        return list(self._members[owner_uid].values())

    def tracked_pods(self) -> Iterator[TrackedPod]:
        """All pods of all owners."""
        return iter(self._by_uid.values())

    def ready_counts(self, owner_uid: str) -> Counter[str]:
        """Group -> live pods that are Ready."""
        groups = self._live[owner_uid].items()
        return Counter({group: sum(pod.is_ready for pod in pods.values()) for group, pods in groups})

    def _on_pod(self, change: Change) -> None:
        known, pod = self._by_uid.get(change.entry.uid), self._tracked_pod(change)
        if known is not None and (pod is None or _owner_and_group(pod) != _owner_and_group(known)):
            self._on_moved_out(known)
            if pod is not None and change.type != "DELETED":
                self.moved_in[pod.owner_uid, pod.group] += 1
            known = None
        if pod is None or (known is None and change.type == "DELETED"):
            return
        if known is None:
            self.created[pod.cluster, pod.group] += 1
            self.created_by_owner[pod.owner_uid, pod.group] += 1
        if (known is None or known.is_alive) and not pod.is_alive:
            self.ended_by_owner[pod.owner_uid, pod.group] += 1
        self._record(pod)
        if change.type == "DELETED":
            self._remove(pod)

    def _on_moved_out(self, known: TrackedPod) -> None:
        """Another writer moved it out of its cluster or group by changing its owner or a label."""
        if known.is_alive:
            self.ended_by_owner[known.owner_uid, known.group] += 1
            del self._live[known.owner_uid][known.group][known.uid]
        self._remove(known)

    def _remove(self, pod: TrackedPod) -> None:
        self.deleted[pod.cluster, pod.group] += 1
        del self._by_uid[pod.uid]
        del self._members[pod.owner_uid][pod.uid]

    def _record(self, pod: TrackedPod) -> None:
        self._by_uid[pod.uid] = self._members[pod.owner_uid][pod.uid] = pod
        live_counts = self._live[pod.owner_uid][pod.group]
        if pod.is_alive:
            live_counts[pod.uid] = pod
        else:
            live_counts.pop(pod.uid, None)

    @staticmethod
    def _tracked_pod(change: Change) -> TrackedPod | None:
        entry = change.entry
        pod = decode_pod(entry.raw)
        owner = next((each for each in pod.metadata.owner_references if each.kind == "RayCluster"), None)
        if owner is None or entry.labels.get("ray.io/cluster") != owner.name or "ray.io/node-type" not in entry.labels:
            return None
        is_alive = not entry.is_terminating and pod.status.phase not in ENDED and change.type != "DELETED"
        is_ready = is_alive and any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        is_head = entry.labels["ray.io/node-type"] == "head"  # even if its other labels change
        group = "headgroup" if is_head else entry.labels.get("ray.io/group", "")
        return TrackedPod(
            uid=entry.uid,
            name=change.key.name,
            owner_uid=owner.uid,
            cluster=owner.name,
            group=group,
            index=entry.labels.get("ray.io/worker-group-replica-index", ""),
            replica=entry.labels.get("ray.io/worker-group-replica-name", ""),
            host=entry.labels.get("ray.io/replica-host-index", ""),
            num_of_hosts=pod.metadata.annotations.get("raytide.io/num-of-hosts", ""),
            is_alive=is_alive,
            is_ready=is_ready,
        )


def _owner_and_group(pod: TrackedPod) -> tuple[str, str]:
    """The key of the counters by owner."""
    return pod.owner_uid, pod.group


def as_counts(counter: Counter[tuple[str, str]]) -> dict[str, Any]:
    """The counter as a dict for output and comparison."""
    return {f"{cluster}/{group}": count for (cluster, group), count in sorted(counter.items()) if count}
