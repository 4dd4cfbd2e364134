"""Plan of a multi-host worker group: hosts to create and pods to delete.

Takes one worker group and its pods, observed or in flight. It keeps every replica complete, being completed, or deleted
as a whole. A host that was never created, because its create was rejected or interrupted, is created: the replica has
not been usable, so nothing is lost. When a host ends or is deleted, its whole replica is deleted, because the processes
on the other hosts cannot continue and a slice of accelerators must be allocated again (as in KubeRay); so is a replica
made for another number of hosts, and one that cannot be completed. It never touches pods of another group or owner and
never exceeds wanted × hosts, terminating pods included. Called by plan.py; RC:MH-1..9, RC:SD-1..2, RM:I1, RM:I5, RM:I6,
SC:S4.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from raytide.api.actions import MAX_WRITES
from raytide.api.pod import PodView
from raytide.raycluster import messages
from raytide.raycluster.endings import how_it_ended
from raytide.raycluster.observed import PendingRetry
from raytide.raycluster.plan_worker_group import (
    NEWEST,
    GroupChanges,
    GroupInputs,
    Victim,
    free_indices,
    loss_of,
    unknown_names_among,
)

ATTEMPTS: Final = 2
"""Rejections in a row after which an incomplete replica is released; the second attempt allows for transient causes."""


@dataclass(frozen=True, slots=True)
class NewHost:
    """A pod to create: its replica and its host index."""

    replica_name: str
    replica_index: int
    host_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan(GroupChanges):
    """Changes of a multi-host group: hosts to create, replica by replica, and pods to delete."""

    new_hosts: tuple[NewHost, ...] = ()
    has_given_up: bool = False
    """Whether some victims belong to a replica whose other hosts the API server rejects."""
    needs_none: bool = False
    """Whether every wanted replica exists or is being created, so that no capacity for another one is needed."""
    is_continued: bool = False
    """Whether deleting these victims must be followed by deleting the ended hosts that are the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class _Replica:
    """The live hosts of one replica, one per index; `delete_reason` is the reason to delete it, empty to keep it."""

    name: str
    index: int
    hosts: tuple[PodView, ...]
    delete_reason: str = ""

    @property
    def seniority(self) -> tuple[str, int]:
        """Creation time of its first host; smaller is older, and a host still in flight is the newest."""
        return (min(host.creation_timestamp or NEWEST for host in self.hosts), self.index)

    def is_whole(self, size: int) -> bool:
        """Whether all its hosts are known to exist; a create without a response does not count."""
        return len(self.hosts) == size and all(host.uid for host in self.hosts)


@dataclass(frozen=True, slots=True)
class _Target:
    """Target of the group: `wanted` replicas of `size` hosts, without the replicas of pods in `named`."""

    wanted: int
    size: int
    names_to_delete: frozenset[str]
    exit_grace: Collection[str]

    def is_alive(self, pod: PodView) -> bool:
        """Whether it counts as a host; a host that exited 0 counts for a short time longer (D19)."""
        is_resting = pod.name in self.exit_grace and pod.name not in self.names_to_delete
        return not pod.is_terminating and (not pod.is_finished or is_resting)


def plan_replicas(
    inputs: GroupInputs, draw_name: Callable[[], str], *, rejection: PendingRetry | None = None
) -> ReplicaPlan:
    """Plan one multi-host group.

    `draw_name` returns unused replica names; `rejection` is the group's last one by the API server.
    """
    group, pods = inputs.group, inputs.pods
    replicas_wanted = 0 if group.suspend else inputs.desired.replicas
    target = _Target(replicas_wanted, group.num_of_hosts, inputs.desired.names, inputs.exit_grace)
    replicas = tuple(_replicas(pods, target))
    to_delete = [replica for replica in replicas if replica.delete_reason]
    sound = [replica for replica in replicas if not replica.delete_reason]
    surplus = _surplus(sound, target, may_choose_victims=inputs.may_choose_victims)
    beyond = set(map(id, surplus))
    kept = [replica for replica in sound if id(replica) not in beyond]

    leaving = _count_leaving(pods, kept, inputs.unready_nodes)
    has_to_give_up = rejection is not None and rejection.times >= ATTEMPTS and not leaving
    given_up = _given_up(kept, target.size) if has_to_give_up else []
    ending = {replica.name for replica in to_delete} - {""}
    places = max(0, target.wanted - len(kept))
    waiting = _waiting_replicas(pods, inputs, target, places)
    victims = (
        *_ended_or_duplicate(pods, replicas, ending, {host.name for hosts in waiting for host in hosts}),
        *(Victim(host, replica.delete_reason) for replica in to_delete for host in replica.hosts),
        *_victims_of(surplus, messages.surplus_replicas(group.group_name, len(sound), target.wanted)),
        *_victims_of(given_up, messages.OTHER_HOSTS_REJECTED),
    )
    free = target.wanted * target.size - sum(len(replica.hosts) for replica in kept) - leaving
    # A replica whose host ended before it was ready keeps the places of all its hosts until the next one is created.
    free -= sum(max(0, target.size - len(hosts)) for hosts in waiting)
    missing = _completions(kept, target.size, free)
    if rejection is None:
        missing = chain(missing, _new_replicas(kept, target, free, inputs, draw_name))
    elif rejection.retry_in_s > 0 or leaving or given_up:
        # Until the released pods are gone and off the quota, missing hosts of other replicas would be rejected too.
        missing = iter(())
    new_hosts = tuple(islice(missing, inputs.most))
    return ReplicaPlan(
        new_hosts=new_hosts,
        has_more=len(new_hosts) == inputs.most and next(missing, None) is not None,
        victims=victims,
        withheld=tuple(islice(_without_response(kept), max(-free, 0))),
        unknown_names=unknown_names_among(target.names_to_delete - {pod.name for pod in pods}, inputs.existing_names),
        has_given_up=bool(given_up),
        needs_none=len(kept) >= target.wanted and not given_up,
        is_continued=any(pod.is_finished and pod.replica_name in ending for pod in pods),
    )


# --- observed replicas -----------------------------------------------------------------------------------------------


def _replicas(pods: Iterable[PodView], target: _Target) -> Iterator[_Replica]:
    """Every replica with a live host; pods without a replica name are grouped into replicas where possible."""
    members: dict[str, list[PodView]] = {}
    for pod in pods:
        members.setdefault(pod.replica_name, []).append(pod)
    yield from _unnamed_replicas([pod for pod in members.pop("", ()) if target.is_alive(pod)], target)
    for name, hosts in members.items():
        live = _one_per_index(filter(target.is_alive, hosts))
        if live:
            index = next((host.replica_index for host in hosts if host.replica_index is not None), 0)
            yield _Replica(name, index, live, _delete_reason(hosts, live, target))


def _unnamed_replicas(plain: Sequence[PodView], target: _Target) -> Iterator[_Replica]:
    """Live pods without host labels, oldest first, grouped into replicas of `target.size` pods each.

    They predate the gate RayMultiHostIndexing, and nothing records which of them belong together; KubeRay ignores them
    and creates all replicas a second time (RC:MH-1). A worker with a replica index was the only host of its replica,
    before `numOfHosts` grew.
    """
    unindexed = [pod for pod in plain if pod.replica_index is None]
    unindexed.sort(key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name))
    for start in range(0, len(unindexed), target.size):
        hosts = tuple(unindexed[start : start + target.size])
        lack = "" if len(hosts) == target.size else messages.no_replica_name(target.size)
        yield _Replica("", -1, hosts, _requested_delete(hosts, target) or lack)
    for pod in plain:
        if pod.replica_index is not None:
            fault = messages.was_only_host(target.size)
            yield _Replica("", pod.replica_index, (pod,), _requested_delete([pod], target) or fault)


def _delete_reason(hosts: Iterable[PodView], live: Sequence[PodView], target: _Target) -> str:
    """Why the whole replica has to be deleted; empty when it is complete or can be completed."""
    if reason := _requested_delete(filter(target.is_alive, hosts), target):
        return reason
    indices = {host.host_index for host in live}
    lost = next((host for host in hosts if host.host_index not in indices), None)
    if lost is not None:
        return messages.host_lost(lost.name, is_terminating=lost.is_terminating)
    made_for = {host.num_of_hosts for host in live} - {None}
    if made_for - {target.size} or not all(index is not None and index < target.size for index in indices):
        return messages.other_number_of_hosts(target.size)
    if len(live) < target.size and not all(host.num_of_hosts for host in live):
        return messages.HOSTS_NOT_RECORDED
    return ""


def _requested_delete(live: Iterable[PodView], target: _Target) -> str:
    """Reason to delete the whole replica when one of its hosts is named (RC:MH-4); else empty."""
    chosen = next((host.name for host in live if host.name in target.names_to_delete), None)
    return messages.host_named(chosen) if chosen else ""


def _one_per_index(live: Iterable[PodView]) -> tuple[PodView, ...]:
    """Of hosts with the same index the one whose loss costs more, or else the oldest."""
    chosen: dict[int | None, PodView] = {}
    for host in sorted(live, key=lambda host: (-loss_of(host), host.creation_timestamp or NEWEST, host.name)):
        chosen.setdefault(host.host_index, host)
    return tuple(chosen.values())


# --- deletes ---------------------------------------------------------------------------------------------------------


def _surplus(sound: Sequence[_Replica], target: _Target, *, may_choose_victims: bool) -> list[_Replica]:
    """The surplus replicas, cheapest loss first; incomplete ones come first, because they are not usable.

    The cost of a replica is that of its cheapest host: one stuck host blocks the others.
    """
    newest_first = sorted(sound, key=lambda replica: replica.seniority, reverse=True)
    ranked = sorted(newest_first, key=lambda each: (each.is_whole(target.size), min(map(loss_of, each.hosts))))
    beyond = ranked[: max(len(sound) - target.wanted, 0)]
    return [replica for replica in beyond if may_choose_victims or not replica.is_whole(target.size)]


def _given_up(kept: Iterable[_Replica], size: int) -> list[_Replica]:
    """The fewest incomplete replicas whose release lets the others be completed: the smallest, the newest first."""
    incomplete = sorted(
        (replica for replica in kept if len(replica.hosts) < size),
        key=lambda replica: (-len(replica.hosts), replica.seniority),
    )
    found: list[_Replica] = []
    lacking = sum(size - len(each.hosts) for each in incomplete)
    while lacking > 0:
        found.append(incomplete.pop())
        lacking -= size  # its missing hosts are no longer needed, and its hosts free capacity
    return found


def _ended_or_duplicate(
    pods: Iterable[PodView], replicas: Iterable[_Replica], ending: Collection[str], waiting: Collection[str]
) -> Iterator[Victim]:
    """Pods that are deleted regardless of their replica: ended hosts and duplicates of an index.

    An ended host is kept until all others of its replica are being deleted: it is the only stored reason for their
    deletion, which another operator instance may have to complete.
    """
    hosts = _identities(replicas)
    for pod in pods:
        is_kept_as_reason = pod.is_finished and (pod.replica_name in ending or pod.name in waiting)
        if not pod.is_terminating and not is_kept_as_reason and (pod.uid, pod.name) not in hosts:
            duplicate = messages.duplicate_host(pod.host_index, pod.replica_name)
            yield Victim(pod, how_it_ended(pod) if pod.is_finished else duplicate)


def _waiting_replicas(
    pods: Iterable[PodView], inputs: GroupInputs, target: _Target, places: int
) -> list[list[PodView]]:
    """The pods of replicas of which a host ended before it was ready and keeps the replica's place (FD:RC3-3).

    At most `places`, and none of which a host is named for deletion.
    """
    hosts_by_name: dict[str, list[PodView]] = {}
    for pod in pods:
        hosts_by_name.setdefault(pod.replica_name or pod.name, []).append(pod)
    found = [
        hosts
        for hosts in hosts_by_name.values()
        if any(host.name in inputs.start_waits and not host.is_terminating for host in hosts)
        and not any(host.name in target.names_to_delete for host in hosts)
    ]
    return found[:places]


def _without_response(kept: Iterable[_Replica]) -> Iterator[PodView]:
    """Hosts whose creates have no response yet."""
    return (host for replica in kept for host in replica.hosts if not host.uid)


def _victims_of(replicas: Iterable[_Replica], why: str) -> Iterator[Victim]:
    return (Victim(host, why) for replica in replicas for host in replica.hosts)


def _count_leaving(pods: Iterable[PodView], kept: Iterable[_Replica], unready_nodes: Collection[str]) -> int:
    """Pods that still take a place; not those on unready nodes, which may never confirm their end (SC:S12)."""
    staying = _identities(kept)
    return sum((pod.uid, pod.name) not in staying and pod.node_name not in unready_nodes for pod in pods)


def _identities(replicas: Iterable[_Replica]) -> frozenset[tuple[str, str]]:
    return frozenset((host.uid, host.name) for replica in replicas for host in replica.hosts)


# --- creates ---------------------------------------------------------------------------------------------------------


def _completions(kept: Iterable[_Replica], size: int, free: int) -> Iterator[NewHost]:
    """The missing hosts of replicas, fewest missing first; a replica gets all its missing hosts or none."""
    for replica in sorted(kept, key=lambda replica: (-len(replica.hosts), replica.seniority)):
        lacking = size - len(replica.hosts)
        if lacking > free:
            return
        free -= lacking
        present = {host.host_index for host in replica.hosts}
        if lacking:
            yield from (NewHost(replica.name, replica.index, host) for host in range(size) if host not in present)


def _new_replicas(
    kept: Sequence[_Replica], target: _Target, free: int, inputs: GroupInputs, draw_name: Callable[[], str]
) -> Iterator[NewHost]:
    """All hosts of the missing replicas, on the `free` places that the completions leave.

    Bounded by the budget of one plan, so that `replicas: 2000000000` does not exhaust memory.
    """
    free -= sum(target.size - len(replica.hosts) for replica in kept)
    count = max(0, min(target.wanted - len(kept), free // target.size, MAX_WRITES + 1))
    for index in islice(free_indices(inputs), count):
        name = draw_name()
        yield from (NewHost(name, index, host) for host in range(target.size))
