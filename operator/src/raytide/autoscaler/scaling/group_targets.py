"""Target of one worker group: replica count, names to delete and replicas to drain.

Takes one group, its instances and the scheduler's decision. Returns the absolute number of replicas, the names for
`workersToDelete` and the replicas to drain first. It is computed anew each tick from current state: remaining nodes
plus requested ones still needed plus new ones (D12). A multi-host replica is removed as a whole or not at all (B-8,
RM:I6); a busy node is not named before its deadline (RM:I22). Called by group_decisions.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from raytide.api.autoscaler_decision import MAX_NAMES_PER_GROUP
from raytide.api.pod import PodView
from raytide.autoscaler.model import COUNTABLE, UNSEEN, Instance, Status, TerminationCause
from raytide.autoscaler.replicas import hosts_by_replica
from raytide.autoscaler.spec_group import SpecGroup

DRAINING_STATUSES: Final = frozenset({Status.RAY_STOP_REQUESTED, Status.RAY_STOPPING})
"""A drain was requested and the Ray node still exists."""


class Disposition(StrEnum):
    """What happens to a host or to a whole replica."""

    KEPT = "kept"
    TO_DRAIN = "to drain"
    """To be drained; named for deletion once its nodes accepted."""
    DRAINING = "draining"
    """Draining and still busy: it no longer counts and is not named yet."""
    TO_DELETE = "to delete"
    """No work in it is left to wait for: it may be named for deletion."""
    GONE = "gone"
    """It terminates, or has ended, without this autoscaler."""


class ReplicaState(msgspec.Struct, frozen=True, gc=False):
    """One replica with all its hosts and their disposition; a tick creates thousands (PF:P9B)."""

    name: str
    """Name of the replica, or of the pod in a single-host group."""
    hosts: tuple[Instance, ...]
    disposition: Disposition
    cause: TerminationCause | None = None
    """Why the scheduler terminates it; None if it failed or another actor drains it."""

    @property
    def draining(self) -> tuple[Instance, ...]:
        """The hosts whose nodes still need a drain request."""
        return tuple(host for host in self.hosts if _is_at_work(host))


@dataclass(frozen=True, slots=True)
class GroupInputs:
    """Inputs for a group's target."""

    group: SpecGroup
    instances: tuple[Instance, ...]
    pods: Mapping[str, PodView]
    """By name."""
    names_to_delete: tuple[str, ...] = ()
    """The names in force: spec and record together."""
    launches: int = 0
    """Additional hosts the scheduler launches."""
    to_terminate: Mapping[str, TerminationCause] = field(default_factory=dict)
    """By instance id, the scheduler's terminations."""
    kept: int = 0
    """Hosts that were requested, have no pod yet, and are not withdrawn."""
    ended: Collection[str] = ()
    """Pods that can be terminated without a drain."""
    overdue: Collection[str] = ()
    """Ray node ids whose grace period is over."""


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """Target of one group."""

    replicas: int
    names: tuple[str, ...]
    """For `workersToDelete` now: names in force whose pods still exist, and pods that need no drain."""
    replica_states: tuple[ReplicaState, ...]

    def with_disposition(self, disposition: Disposition) -> tuple[ReplicaState, ...]:
        """The replicas with this disposition."""
        return tuple(replica for replica in self.replica_states if replica.disposition is disposition)


def group_target(inputs: GroupInputs) -> GroupTarget:
    """Compute the target of one group."""
    hosts = (i for i in inputs.instances if i.pod and i.status not in UNSEEN)
    replica_states = tuple(_replica_state(name, tuple(mine), inputs) for name, mine in hosts_by_replica(hosts).items())
    replica_states = _within_names(inputs, replica_states)
    return GroupTarget(_replicas(inputs, replica_states), _names(inputs, replica_states), replica_states)


def _replicas(inputs: GroupInputs, replica_states: Iterable[ReplicaState]) -> int:
    per_replica = inputs.group.num_of_hosts
    staying = sum(len(replica.hosts) for replica in replica_states if replica.disposition is Disposition.KEPT)
    coming = inputs.launches + inputs.kept
    # A draining pod still counts in the operator's replica count, so each launch needs one more replica; without
    # launches it must not be counted, or it would be replaced as soon as it ends.
    holding = (
        sum(len(replica.hosts) for replica in replica_states if replica.disposition is Disposition.DRAINING)
        if coming
        else 0
    )
    return inputs.group.clamp(-(-(staying + coming + holding) // per_replica))


def _names(inputs: GroupInputs, replica_states: Iterable[ReplicaState]) -> tuple[str, ...]:
    due = [
        host.pod for replica in replica_states if replica.disposition is Disposition.TO_DELETE for host in replica.hosts
    ]
    current = [name for name in inputs.names_to_delete if name in inputs.pods]
    alive = (name for name in due if (pod := inputs.pods.get(name)) is not None and not pod.is_terminating)
    return tuple(dict.fromkeys([*current, *alive]))[:MAX_NAMES_PER_GROUP]


def _within_names(inputs: GroupInputs, replica_states: tuple[ReplicaState, ...]) -> tuple[ReplicaState, ...]:
    """Limit removals to the number of names the record can hold; the rest stay until the next tick.

    A replica larger than that is removed alone: one named host removes the whole replica.
    """
    if not any(replica.disposition is Disposition.TO_DRAIN for replica in replica_states):
        return replica_states
    left = MAX_NAMES_PER_GROUP - len(_names(inputs, replica_states))
    kept = []
    for replica in replica_states:
        is_too_many = (
            replica.disposition is Disposition.TO_DRAIN and len(replica.hosts) > left and left < MAX_NAMES_PER_GROUP
        )
        if replica.disposition is Disposition.TO_DRAIN and not is_too_many:
            left -= len(replica.hosts)
        kept.append(ReplicaState(replica.name, replica.hosts, Disposition.KEPT) if is_too_many else replica)
    return tuple(kept)


# --- one replica -----------------------------------------------------------------------------------------------------


def _replica_state(name: str, hosts: tuple[Instance, ...], inputs: GroupInputs) -> ReplicaState:
    if len(hosts) == 1 and (disposition := _host_disposition(hosts[0], inputs)) is Disposition.KEPT:
        return ReplicaState(name, hosts, disposition)
    dispositions = [_host_disposition(host, inputs) for host in hosts]
    cause = next(
        (inputs.to_terminate[host.instance_id] for host in hosts if host.instance_id in inputs.to_terminate), None
    )
    disposition = _replica_disposition(dispositions, hosts)
    return ReplicaState(name, hosts, disposition, cause if disposition is not Disposition.KEPT else None)


def _host_disposition(host: Instance, inputs: GroupInputs) -> Disposition:
    pod = inputs.pods.get(host.pod)
    if pod is None or pod.is_terminating or pod.is_finished:
        return Disposition.GONE
    if host.pod in inputs.names_to_delete or host.pod in inputs.ended:
        return Disposition.TO_DELETE
    if host.status is Status.RAY_RUNNING and host.instance_id not in inputs.to_terminate:
        return Disposition.KEPT  # nearly all of thousands: hashing a status costs more than the checks above
    if host.status in DRAINING_STATUSES:
        return Disposition.TO_DELETE if host.node_id in inputs.overdue else Disposition.DRAINING
    if host.status not in COUNTABLE:  # dead, perhaps about to restart: no capacity, and not to be named yet
        return Disposition.DRAINING
    if host.instance_id in inputs.to_terminate:
        return Disposition.TO_DRAIN if host.node_id else Disposition.TO_DELETE
    return Disposition.KEPT


def _replica_disposition(dispositions: Sequence[Disposition], hosts: Sequence[Instance]) -> Disposition:
    """The disposition of a replica from its hosts' dispositions: one host that does not stay removes the others too."""
    found = set(dispositions)
    if len(found) == 1:
        return dispositions[0]
    if Disposition.GONE in found:  # the operator terminates the rest of a replica that lost a host
        return Disposition.GONE
    if any(
        disposition in (Disposition.KEPT, Disposition.TO_DRAIN) and _is_at_work(host)
        for disposition, host in zip(dispositions, hosts, strict=True)
    ):
        return Disposition.TO_DRAIN
    return Disposition.DRAINING if Disposition.DRAINING in found else Disposition.TO_DELETE


def _is_at_work(host: Instance) -> bool:
    return bool(host.node_id) and host.status in COUNTABLE - DRAINING_STATUSES
