"""Who lives in the world, and who was born and who died?

Counts pods as they are in the store, not in anybody's cache: by owner and group, with one decoding per change, so that a
judge may ask at every write and a run of a hundred pods stays cheap. It keeps no history but sums: how many were made
and how many are gone, per cluster and group, which is what a run with a fault is compared by. Read by the judge, the
scenarios and the end-state oracle.
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
class Citizen:
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
    made_for: str
    """For how many hosts the replica was made, as the product says."""
    is_alive: bool
    """Neither ended nor ending."""
    is_ready: bool


class Census:
    """Everybody who is owned by a RayCluster and carries its label."""

    def __init__(self, store: Store) -> None:
        self.born: Counter[tuple[str, str]] = Counter()
        """(cluster name, group) -> how many pods were ever made."""
        self.made: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> how many pods were ever made."""
        self.gone: Counter[tuple[str, str]] = Counter()
        """(cluster name, group) -> how many pods are gone for good."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> how many pods live no more, terminating ones and those that others took away included."""
        self.brought: Counter[tuple[str, str]] = Counter()
        """(owner uid, group) -> how many pods came into the group because others changed their labels."""
        self._by_uid: dict[str, Citizen] = {}
        self._alive: dict[str, dict[str, dict[str, Citizen]]] = defaultdict(lambda: defaultdict(dict))
        self._members: dict[str, dict[str, Citizen]] = defaultdict(dict)
        store.subscribe(self._on_pod, "pods")

    def alive(self, owner_uid: str) -> dict[str, int]:
        """Group -> live pods; groups without any are absent."""
        return {group: len(pods) for group, pods in self._alive[owner_uid].items() if pods}

    def live_in(self, owner_uid: str, group: str) -> list[Citizen]:
        """The live pods of a group, oldest first."""
        return list(self._alive[owner_uid][group].values())

    def members(self, owner_uid: str) -> list[Citizen]:
        """Everybody that is still in the store, oldest first."""
        return list(self._members[owner_uid].values())

    def everybody(self) -> Iterator[Citizen]:
        """All of them."""
        return iter(self._by_uid.values())

    def ready(self, owner_uid: str) -> Counter[str]:
        """Group -> live pods that are Ready."""
        groups = self._alive[owner_uid].items()
        return Counter({group: sum(pod.is_ready for pod in pods.values()) for group, pods in groups})

    def _on_pod(self, change: Change) -> None:
        known, citizen = self._by_uid.get(change.entry.uid), self._seen(change)
        if known is not None and (citizen is None or _place(citizen) != _place(known)):
            self._release(known)
            if citizen is not None and change.type != "DELETED":
                self.brought[citizen.owner_uid, citizen.group] += 1
            known = None
        if citizen is None or (known is None and change.type == "DELETED"):
            return
        if known is None:
            self.born[citizen.cluster, citizen.group] += 1
            self.made[citizen.owner_uid, citizen.group] += 1
        if (known is None or known.is_alive) and not citizen.is_alive:
            self.ended[citizen.owner_uid, citizen.group] += 1
        self._note(citizen)
        if change.type == "DELETED":
            self._forget(citizen)

    def _release(self, known: Citizen) -> None:
        """Others took it away from its cluster or group: by its owner or by a label."""
        if known.is_alive:
            self.ended[known.owner_uid, known.group] += 1
            del self._alive[known.owner_uid][known.group][known.uid]
        self._forget(known)

    def _forget(self, citizen: Citizen) -> None:
        self.gone[citizen.cluster, citizen.group] += 1
        del self._by_uid[citizen.uid]
        del self._members[citizen.owner_uid][citizen.uid]

    def _note(self, citizen: Citizen) -> None:
        self._by_uid[citizen.uid] = self._members[citizen.owner_uid][citizen.uid] = citizen
        alive = self._alive[citizen.owner_uid][citizen.group]
        if citizen.is_alive:
            alive[citizen.uid] = citizen
        else:
            alive.pop(citizen.uid, None)

    @staticmethod
    def _seen(change: Change) -> Citizen | None:
        entry = change.entry
        pod = decode_pod(entry.raw)
        owner = next((each for each in pod.metadata.owner_references if each.kind == "RayCluster"), None)
        if owner is None or entry.labels.get("ray.io/cluster") != owner.name or "ray.io/node-type" not in entry.labels:
            return None
        is_alive = not entry.is_terminating and pod.status.phase not in ENDED and change.type != "DELETED"
        is_ready = is_alive and any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        is_head = entry.labels["ray.io/node-type"] == "head"  # whatever becomes of its other labels
        group = "headgroup" if is_head else entry.labels.get("ray.io/group", "")
        return Citizen(
            uid=entry.uid,
            name=change.key.name,
            owner_uid=owner.uid,
            cluster=owner.name,
            group=group,
            index=entry.labels.get("ray.io/worker-group-replica-index", ""),
            replica=entry.labels.get("ray.io/worker-group-replica-name", ""),
            host=entry.labels.get("ray.io/replica-host-index", ""),
            made_for=pod.metadata.annotations.get("raytide.io/num-of-hosts", ""),
            is_alive=is_alive,
            is_ready=is_ready,
        )


def _place(citizen: Citizen) -> tuple[str, str]:
    """Where it belongs."""
    return citizen.owner_uid, citizen.group


def as_counts(counter: Counter[tuple[str, str]]) -> dict[str, Any]:
    """For printing and comparing."""
    return {f"{cluster}/{group}": count for (cluster, group), count in sorted(counter.items()) if count}
