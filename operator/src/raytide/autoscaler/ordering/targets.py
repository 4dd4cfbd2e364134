"""How many replicas should a group have, and who leaves?

Takes one worker group, its instances and what the scheduler wants of it, gives the absolute number of replicas, the names
that belong into `workersToDelete`, and the replicas that have to be drained first. Computed from what exists, every time
anew: what is there and stays, plus what was asked for and is still wanted, plus what is new (D12). A replica of several
hosts leaves as a whole or not at all (B-8, RM:I6); a busy node is never named (RM:I22). Called by tick.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from raytide.api.pod import PodView
from raytide.api.scaling import MAX_NAMES_PER_GROUP
from raytide.autoscaler.inputs.spec_groups import SpecGroup
from raytide.autoscaler.model import COUNTABLE, UNSEEN, Cause, Instance, Status

LEAVING: Final = frozenset({Status.RAY_STOP_REQUESTED, Status.RAY_STOPPING})
"""The Ray node was asked to leave and is still there."""


class Fate(StrEnum):
    """What becomes of a host, or of a whole replica."""

    STAYS = "stays"
    LEAVES = "leaves"
    """To be drained; named once its nodes agreed."""
    DRAINS = "drains"
    """Asked to leave and still at work: it no longer counts and is not named yet."""
    NAMED = "named"
    """Nothing in it works any more: it may be deleted by name."""
    GONE = "gone"
    """It ends, or has ended, without us."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One replica: all its hosts, and what becomes of them."""

    name: str
    """Of the replica, or of the pod where a replica is one host."""
    hosts: tuple[Instance, ...]
    fate: Fate
    cause: Cause | None = None
    """Why the scheduler ends it; None when it is broken or somebody else drains it."""

    @property
    def draining(self) -> tuple[Instance, ...]:
        """The hosts whose nodes have yet to be asked."""
        return tuple(host for host in self.hosts if _is_at_work(host))


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """All that a group's target depends on."""

    group: SpecGroup
    instances: tuple[Instance, ...]
    pods: Mapping[str, PodView]
    """By name."""
    named: tuple[str, ...] = ()
    """The names that stand in the order: spec and record together."""
    launches: int = 0
    """Hosts the scheduler wants besides."""
    doomed: Mapping[str, Cause] = field(default_factory=dict)
    """By instance id, what the scheduler ends."""
    kept: int = 0
    """Hosts that were asked for, have no pod yet, and are not withdrawn."""
    ended: Collection[str] = ()
    """Pods of no use any more, or that nobody needs to wait for: no drain is needed."""
    overdue: Collection[str] = ()
    """Ray node ids that had their time to finish their work."""


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """What the group should be."""

    replicas: int
    names: tuple[str, ...]
    """For `workersToDelete` now: ordered before and still there, and those that need no drain."""
    units: tuple[Unit, ...]

    def fated(self, fate: Fate) -> tuple[Unit, ...]:
        """The replicas with this fate."""
        return tuple(unit for unit in self.units if unit.fate is fate)


def group_target(question: GroupQuestion) -> GroupTarget:
    """Decide about one group."""
    units = _within_names(question, tuple(_unit(name, hosts, question) for name, hosts in _units(question.instances)))
    return GroupTarget(_replicas(question, units), _names(question, units), units)


def _replicas(question: GroupQuestion, units: Iterable[Unit]) -> int:
    per_replica = question.group.num_of_hosts
    staying = sum(len(unit.hosts) for unit in units if unit.fate is Fate.STAYS)
    coming = question.launches + question.kept
    # A pod that still works off its drain holds a place in the operator's count, so what is to come needs one more each;
    # without anything to come it must not, or it would be replaced the moment it ends.
    holding = sum(len(unit.hosts) for unit in units if unit.fate is Fate.DRAINS) if coming else 0
    return question.group.clamp(-(-(staying + coming + holding) // per_replica))


def _names(question: GroupQuestion, units: Iterable[Unit]) -> tuple[str, ...]:
    due = [host.pod for unit in units if unit.fate is Fate.NAMED for host in unit.hosts]
    standing = [name for name in question.named if name in question.pods]
    alive = (name for name in due if (pod := question.pods.get(name)) is not None and not pod.is_terminating)
    return tuple(dict.fromkeys([*standing, *alive]))[:MAX_NAMES_PER_GROUP]


def _within_names(question: GroupQuestion, units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """No more leave at once than the record can name; the others stay until next time.

    A replica that is larger than that leaves alone: one named host takes the whole of it along.
    """
    if not any(unit.fate is Fate.LEAVES for unit in units):
        return units
    left = MAX_NAMES_PER_GROUP - len(_names(question, units))
    kept = []
    for unit in units:
        is_too_many = unit.fate is Fate.LEAVES and len(unit.hosts) > left and left < MAX_NAMES_PER_GROUP
        if unit.fate is Fate.LEAVES and not is_too_many:
            left -= len(unit.hosts)
        kept.append(Unit(unit.name, unit.hosts, Fate.STAYS) if is_too_many else unit)
    return tuple(kept)


# --- one replica -----------------------------------------------------------------------------------------------------


def _units(instances: Iterable[Instance]) -> Iterable[tuple[str, tuple[Instance, ...]]]:
    hosts_by_unit: dict[str, list[Instance]] = {}
    for instance in instances:
        if instance.pod and instance.status not in UNSEEN:
            hosts_by_unit.setdefault(instance.replica or instance.pod, []).append(instance)
    return ((name, tuple(hosts)) for name, hosts in hosts_by_unit.items())


def _unit(name: str, hosts: tuple[Instance, ...], question: GroupQuestion) -> Unit:
    if len(hosts) == 1 and (fate := _host_fate(hosts[0], question)) is Fate.STAYS:
        return Unit(name, hosts, fate)
    fates = [_host_fate(host, question) for host in hosts]
    cause = next((question.doomed[host.instance_id] for host in hosts if host.instance_id in question.doomed), None)
    fate = _unit_fate(fates, hosts)
    return Unit(name, hosts, fate, cause if fate is not Fate.STAYS else None)


def _host_fate(host: Instance, question: GroupQuestion) -> Fate:
    pod = question.pods.get(host.pod)
    if pod is None or pod.is_terminating or pod.is_finished:
        return Fate.GONE
    if host.pod in question.named or host.pod in question.ended:
        return Fate.NAMED
    if host.status is Status.RAY_RUNNING and host.instance_id not in question.doomed:
        return Fate.STAYS  # of thousands nearly all: the hash of a status costs more than all that is asked before
    if host.status in LEAVING:
        return Fate.NAMED if host.node_id in question.overdue else Fate.DRAINS
    if host.status not in COUNTABLE:  # dead, perhaps about to start anew: no capacity, and not to be named yet
        return Fate.DRAINS
    if host.instance_id in question.doomed:
        return Fate.LEAVES if host.node_id else Fate.NAMED
    return Fate.STAYS


def _unit_fate(fates: Sequence[Fate], hosts: Sequence[Instance]) -> Fate:
    """What the hosts' fates mean for all of them: one that does not stay takes the others along."""
    found = set(fates)
    if len(found) == 1:
        return fates[0]
    if Fate.GONE in found:  # the operator ends what is left of a replica that lost a host
        return Fate.GONE
    if any(fate in (Fate.STAYS, Fate.LEAVES) and _is_at_work(host) for fate, host in zip(fates, hosts, strict=True)):
        return Fate.LEAVES
    return Fate.DRAINS if Fate.DRAINS in found else Fate.NAMED


def _is_at_work(host: Instance) -> bool:
    return bool(host.node_id) and host.status in COUNTABLE - LEAVING
