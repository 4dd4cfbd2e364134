"""Which replicas of a multi-host group should exist?

Takes one worker group and its pods, seen or in flight, and returns the hosts to create and the pods to delete, so that
every replica is whole, being completed, or leaving as a whole. A host that was never made, because a create was refused or
cut short, is made: nobody could use the replica yet, so nobody notices. A host that ends or is being deleted takes its
replica with it, because the programs on the others cannot go on without it and a slice of accelerators has to be
allocated anew (as in KubeRay); so does a replica made for another number of hosts. A replica nobody can complete is given
up. Never a pod of another group or owner, never more than wanted × hosts, dying ones included. Called by plan.py; rules
RC:MH-1..9, RC:SD-1..2, RM:I1, RM:I5, RM:I6, SC:S4.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from raytide.api.actions import MOST_WRITES
from raytide.api.pod import PodView
from raytide.api.raycluster import WorkerGroupSpec
from raytide.raycluster.endings import how_it_ended
from raytide.raycluster.groups import (
    NAMED,
    NEWEST,
    Victim,
    free_indices,
    loss_of,
    strangers_among,
)
from raytide.raycluster.observed import Refusal
from raytide.raycluster.scaling import GroupOrder

ATTEMPTS: Final = 2
"""So many refusals in a row, and an incomplete replica is given up: the second try is for what was about to change."""


@dataclass(frozen=True, slots=True)
class NewHost:
    """A pod to create: which host of which replica."""

    replica_name: str
    replica_index: int
    host_index: int


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What a multi-host group needs: hosts to create, replica by replica, and an end for each of `victims`."""

    new_hosts: tuple[NewHost, ...] = ()
    has_more: bool = False
    """Whether more hosts are missing than the plan's budget allows."""
    victims: tuple[Victim, ...] = ()
    strangers: tuple[str, ...] = ()
    """Names in `workersToDelete` that are not workers of this group; nobody touches them."""
    has_given_up: bool = False
    """Some of the victims belong to a replica whose other hosts the API refuses."""
    needs_none: bool = False
    """Every replica that is wanted is there or begun: whether there is room for another one matters to nobody."""
    is_continued: bool = False
    """Once these victims are told to go, others follow: the ended hosts that are the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class _Replica:
    """The live hosts of one replica, no two with the same index; `verdict` says why it has to go, empty if it stays."""

    name: str
    index: int
    hosts: tuple[PodView, ...]
    verdict: str = ""

    @property
    def seniority(self) -> tuple[str, int]:
        """When its first host was made; smaller is older, and one still in flight is the newest of all."""
        return (min(host.creation_timestamp or NEWEST for host in self.hosts), self.index)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the group is to be: so many replicas of so many hosts, without those that are named."""

    wanted: int
    size: int
    named: frozenset[str]
    resting: Collection[str]

    def is_alive(self, pod: PodView) -> bool:
        """Whether it counts as a host; one that exited 0 does for a moment longer (D19)."""
        is_resting = pod.name in self.resting and pod.name not in self.named
        return not pod.is_terminating and (not pod.is_finished or is_resting)


def plan_replicas(
    group: WorkerGroupSpec,
    pods: Sequence[PodView],
    order: GroupOrder,
    draw_name: Callable[[], str],
    *,
    may_choose_victims: bool = True,
    foreign_names: Collection[str] = (),
    unready_nodes: Collection[str] = (),
    resting_names: Collection[str] = (),
    refusal: Refusal | None = None,
    most: int = MOST_WRITES,
) -> ReplicaPlan:
    """Decide about one group of more than one host from its own pods.

    `may_choose_victims` is False under autoscaling, where no whole replica goes without a name (RC:MH-7). `refusal` is
    what the API refused this group lately; `draw_name` gives names that no replica has; the rest is as in `plan_group`.
    """
    wish = _Wish(0 if group.suspend else order.replicas, group.num_of_hosts, order.names, resting_names)
    replicas = tuple(_replicas(pods, wish))
    sound = [replica for replica in replicas if not replica.verdict]
    surplus = _surplus(sound, wish, may_choose_victims=may_choose_victims)
    beyond = set(map(id, surplus))
    kept = [replica for replica in sound if id(replica) not in beyond]

    leaving = _count_leaving(pods, kept, unready_nodes)
    has_to_give_up = refusal is not None and refusal.times >= ATTEMPTS and not leaving
    given_up = _given_up(kept, wish.size) if has_to_give_up else []
    going = {replica.name for replica in replicas if replica.verdict} - {""}
    victims = (
        *_ended_or_doubled(pods, replicas, going),
        *(Victim(host, replica.verdict) for replica in replicas if replica.verdict for host in replica.hosts),
        *_victims_of(surplus, f"group {group.group_name} has {len(sound)} of {wish.wanted} replicas"),
        *_victims_of(given_up, "the API refuses the other hosts of its replica"),
    )
    room = wish.wanted * wish.size - sum(len(replica.hosts) for replica in kept) - leaving
    new = _completions(kept, wish.size, room)
    if refusal is None:
        new = chain(new, _new_replicas(kept, wish, room, pods, draw_name))
    elif refusal.retry_in_s > 0 or leaving or given_up:
        # Until what was given up has gone and is off the quota, not even the rest of the others can be had.
        new = iter(())
    new_hosts = tuple(islice(new, most))
    return ReplicaPlan(
        new_hosts=new_hosts,
        has_more=len(new_hosts) == most and next(new, None) is not None,
        victims=victims,
        strangers=strangers_among(order.names - {pod.name for pod in pods}, foreign_names),
        has_given_up=bool(given_up),
        needs_none=len(kept) >= wish.wanted and not given_up,
        is_continued=any(pod.is_finished and pod.replica_name in going for pod in pods),
    )


# --- what there is ---------------------------------------------------------------------------------------------------


def _replicas(pods: Iterable[PodView], wish: _Wish) -> Iterator[_Replica]:
    """Every replica with a live host; those made under no replica's name are taken for replicas where they can be."""
    members: dict[str, list[PodView]] = {}
    for pod in pods:
        members.setdefault(pod.replica_name, []).append(pod)
    yield from _unnamed_replicas([pod for pod in members.pop("", ()) if wish.is_alive(pod)], wish)
    for name, hosts in members.items():
        live = _one_per_index(filter(wish.is_alive, hosts))
        if live:
            index = next((host.replica_index for host in hosts if host.replica_index is not None), 0)
            yield _Replica(name, index, live, _verdict(hosts, live, wish))


def _unnamed_replicas(plain: Sequence[PodView], wish: _Wish) -> Iterator[_Replica]:
    """Live pods without the labels of hosts, in the order of their birth: so many at a time are taken for one replica.

    They are from before the gate RayMultiHostIndexing, when nobody knew which of them belong together; KubeRay never
    looks at them again and makes all replicas a second time (RC:MH-1). A worker with an index of its own was the only
    host of its replica, before `numOfHosts` grew.
    """
    unindexed = [pod for pod in plain if pod.replica_index is None]
    unindexed.sort(key=lambda pod: (pod.creation_timestamp or NEWEST, pod.name))
    for start in range(0, len(unindexed), wish.size):
        hosts = tuple(unindexed[start : start + wish.size])
        lack = "" if len(hosts) == wish.size else f"it has no replica's name, and no {wish.size} such hosts make one"
        yield _Replica("", -1, hosts, _order_to_go(hosts, wish) or lack)
    for pod in plain:
        if pod.replica_index is not None:
            fault = f"it was made as the only host of its replica, the group wants {wish.size}"
            yield _Replica("", pod.replica_index, (pod,), _order_to_go([pod], wish) or fault)


def _verdict(hosts: Iterable[PodView], live: Sequence[PodView], wish: _Wish) -> str:
    """Why the whole replica has to go; empty when it is whole or can be completed."""
    if order := _order_to_go(filter(wish.is_alive, hosts), wish):
        return order
    indices = {host.host_index for host in live}
    lost = next((host for host in hosts if host.host_index not in indices), None)
    if lost is not None:
        return f"{lost.name} of its replica {'is being deleted' if lost.is_terminating else 'has ended'}"
    made_for = {host.num_of_hosts for host in live} - {None}
    if made_for - {wish.size} or not all(index is not None and index < wish.size for index in indices):
        return f"its replica was made for another number of hosts, the group wants {wish.size}"
    if len(live) < wish.size and not all(host.num_of_hosts for host in live):
        return "its replica lacks hosts, and nothing says for how many it was made"
    return ""


def _order_to_go(live: Iterable[PodView], wish: _Wish) -> str:
    """One name ends the whole replica (RC:MH-4)."""
    chosen = next((host.name for host in live if host.name in wish.named), None)
    return f"{chosen} of its replica is {NAMED}" if chosen else ""


def _one_per_index(live: Iterable[PodView]) -> tuple[PodView, ...]:
    """Of two hosts with the same index the one whose loss costs more, or the older."""
    chosen: dict[int | None, PodView] = {}
    for host in sorted(live, key=lambda host: (-loss_of(host), host.creation_timestamp or NEWEST, host.name)):
        chosen.setdefault(host.host_index, host)
    return tuple(chosen.values())


# --- what goes -------------------------------------------------------------------------------------------------------


def _surplus(sound: Sequence[_Replica], wish: _Wish, *, may_choose_victims: bool) -> list[_Replica]:
    """The replicas too many whose loss costs least; incomplete ones first, for nobody can use them.

    What a replica's loss costs is what the loss of its cheapest host does: one host that is stuck holds up the others.
    """
    newest_first = sorted(sound, key=lambda replica: replica.seniority, reverse=True)
    ranked = sorted(newest_first, key=lambda each: (len(each.hosts) == wish.size, min(map(loss_of, each.hosts))))
    beyond = ranked[: max(len(sound) - wish.wanted, 0)]
    return [replica for replica in beyond if may_choose_victims or len(replica.hosts) < wish.size]


def _given_up(kept: Iterable[_Replica], size: int) -> list[_Replica]:
    """Those of the incomplete replicas with whose hosts the others could be completed: the smallest, the newest first."""
    incomplete = sorted(
        (replica for replica in kept if len(replica.hosts) < size),
        key=lambda replica: (-len(replica.hosts), replica.seniority),
    )
    found: list[_Replica] = []
    lacking = sum(size - len(each.hosts) for each in incomplete)
    while lacking > 0:
        found.append(incomplete.pop())
        lacking -= size  # its own lack counts no more, and its hosts make room
    return found


def _ended_or_doubled(
    pods: Iterable[PodView], replicas: Iterable[_Replica], going: Collection[str]
) -> Iterator[Victim]:
    """Pods that go whatever becomes of their replica.

    A host that has ended stays until all others of its replica are told to go: it is the only thing that says why they
    have to, and another operator may have to finish what this one begins.
    """
    hosts = _identities(replicas)
    for pod in pods:
        is_evidence = pod.is_finished and pod.replica_name in going
        if not pod.is_terminating and not is_evidence and (pod.uid, pod.name) not in hosts:
            is_double = f"host {pod.host_index} of replica {pod.replica_name} is there twice"
            yield Victim(pod, how_it_ended(pod) if pod.is_finished else is_double)


def _victims_of(replicas: Iterable[_Replica], why: str) -> Iterator[Victim]:
    return (Victim(host, why) for replica in replicas for host in replica.hosts)


def _count_leaving(pods: Iterable[PodView], kept: Iterable[_Replica], unready_nodes: Collection[str]) -> int:
    """Pods that still take a place; not where their node is away, for nobody can finish their end there (SC:S12)."""
    staying = _identities(kept)
    return sum((pod.uid, pod.name) not in staying and pod.node_name not in unready_nodes for pod in pods)


def _identities(replicas: Iterable[_Replica]) -> frozenset[tuple[str, str]]:
    return frozenset((host.uid, host.name) for replica in replicas for host in replica.hosts)


# --- what comes ------------------------------------------------------------------------------------------------------


def _completions(kept: Iterable[_Replica], size: int, room: int) -> Iterator[NewHost]:
    """The hosts that replicas lack, those that lack least first; all hosts that a replica lacks, or none."""
    for replica in sorted(kept, key=lambda replica: (-len(replica.hosts), replica.seniority)):
        lacking = size - len(replica.hosts)
        if lacking > room:
            return
        room -= lacking
        present = {host.host_index for host in replica.hosts}
        if lacking:
            yield from (NewHost(replica.name, replica.index, host) for host in range(size) if host not in present)


def _new_replicas(
    kept: Sequence[_Replica], wish: _Wish, room: int, pods: Sequence[PodView], draw_name: Callable[[], str]
) -> Iterator[NewHost]:
    """All hosts of the replicas that are missing, as far as there is room for all of them besides the completed ones.

    Never more than one plan may ask for: `replicas: 2000000000` must not fill our memory.
    """
    room -= sum(wish.size - len(replica.hosts) for replica in kept)
    count = max(0, min(wish.wanted - len(kept), room // wish.size, MOST_WRITES + 1))
    for index in islice(free_indices(pods), count):
        name = draw_name()
        yield from (NewHost(name, index, host) for host in range(wish.size))
