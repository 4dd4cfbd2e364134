"""Drains of a scale-down, and the pods to name for deletion after them.

Takes the replicas to remove and returns one drain per live node: idle termination, which the raylet rejects if the node
has become busy, or preemption with a deadline if the group is too large and no node is idle. From the results it
derives the replicas to name for deletion: every host accepted, or did not answer and its pod is not Ready (contract,
"Order of a scale-down"). Rejections are remembered with a backoff, so that a node that keeps rejecting does not make
the group flap. Called by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, groupby
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.model import DrainReason, Instance, TerminationCause
from raytide.autoscaler.replicas import hosts_by_replica, replica_of
from raytide.autoscaler.scaling.group_decisions import Outcomes
from raytide.autoscaler.scaling.group_targets import Disposition, GroupTarget, ReplicaState
from raytide.autoscaler.state.cluster_state import ClusterState
from raytide.autoscaler.state.snapshot import Answers, Drain, DrainRejection, ReconcilerState, Snapshot

FIRST_RETRY_S: Final = 15.0
LONGEST_RETRY_S: Final = 600.0
MAX_DRAINS: Final = 200
"""Drains sent in one tick for all groups, unless a single replica has more hosts; the rest follow in later ticks."""


@dataclass(frozen=True, slots=True)
class DrainTerms:
    """Inputs for drains other than the replicas."""

    pods: Mapping[str, PodView]
    now: datetime
    monotonic_s: float
    grace_s: float
    rejections: Mapping[str, DrainRejection]

    def is_in_backoff(self, node_id: str) -> bool:
        """Whether this node is in backoff after a rejected drain."""
        rejection = self.rejections.get(node_id)
        return rejection is not None and self.monotonic_s < rejection.until_s

    def host_index(self, host: Instance) -> int:
        """Index of the host in its replica; 0 if its pod does not carry one."""
        pod = self.pods.get(host.pod)
        return (pod.host_index or 0) if pod is not None else 0


def plan_drains(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, outcomes: Outcomes, *, is_written: bool
) -> tuple[Drain, ...]:
    """Drains only for groups whose count is lowered already or in this patch.

    An operator that works towards a higher count would replace the pods of drained nodes (B-28).
    """
    if cluster.current.is_paused:
        return ()
    terms = DrainTerms(
        pods={pod.name: pod for pod in snapshot.pods},
        now=snapshot.now,
        monotonic_s=snapshot.monotonic_s,
        grace_s=snapshot.settings.preemption_grace_s,
        rejections=state.rejections,
    )
    drains = (
        drain
        for outcome in outcomes.groups
        if outcome.group_target is not None and (is_written or outcome.current.replicas <= outcome.desired.replicas)
        for drain in drains_of(outcome.group.name, outcome.group_target, terms)
    )
    in_spec = frozenset(each.group.name for each in cluster.current.targets)
    return within_limit(
        chain(drains, drains_of_removed(cluster.found.instances, in_spec, state.draining_since_s, terms))
    )


def within_limit(drains: Iterable[Drain]) -> tuple[Drain, ...]:
    """The drains of this tick: whole replicas up to `MAX_DRAINS`, and at least one."""
    found: list[Drain] = []
    for _, hosts in groupby(drains, key=lambda drain: (drain.group, drain.replica)):
        replica = tuple(hosts)
        if found and len(found) + len(replica) > MAX_DRAINS:
            break
        found += replica
    return tuple(found)


def drains_of(group: str, target: GroupTarget, terms: DrainTerms) -> Iterator[Drain]:
    """The drains of one group: whole replicas only, the first host of each before the others."""
    for replica in target.with_disposition(Disposition.TO_DRAIN):
        if not any(terms.is_in_backoff(host.node_id) for host in replica.draining):
            for host in sorted(replica.draining, key=terms.host_index):
                yield _drain(group, replica, host, terms)


def by_replica(drains: Iterable[Drain]) -> tuple[tuple[Drain, ...], ...]:
    """Drains grouped by replica, in order."""
    found: dict[tuple[str, str], list[Drain]] = {}
    for drain in drains:
        found.setdefault((drain.group, drain.replica), []).append(drain)
    return tuple(tuple(hosts) for hosts in found.values())


def drains_of_removed(
    found: Iterable[Instance], groups: Collection[str], draining_since_s: Mapping[str, float], terms: DrainTerms
) -> Iterator[Drain]:
    """Drains for nodes of groups removed from the spec: they cannot be named and end after the drain (B-1).

    The first host of a replica comes before the others, as in `drains_of`.
    """
    leaving = (
        host
        for host in found
        if (host.pod and host.node_id and not host.is_head and host.node_type and host.node_type not in groups)
        and host.node_id not in draining_since_s
        and not terms.is_in_backoff(host.node_id)
    )
    for name, hosts in hosts_by_replica(leaving).items():
        for host in sorted(hosts, key=terms.host_index):
            yield _drain(host.node_type, ReplicaState(name, (host,), Disposition.TO_DRAIN), host, terms)


def _drain(group: str, replica: ReplicaState, host: Instance, terms: DrainTerms) -> Drain:
    pod = terms.pods.get(host.pod)
    is_idle = replica.cause is TerminationCause.IDLE or (
        replica.cause is None and all(each.idle_ms for each in replica.draining)
    )
    deadline = terms.now + timedelta(seconds=terms.grace_s)
    return Drain(
        node_id=host.node_id,
        pod=host.pod,
        group=group,
        replica=replica.name,
        reason=DrainReason.IDLE_TERMINATION if is_idle else DrainReason.PREEMPTION,
        message=(
            f"idle for {host.idle_ms / 1000:.0f} seconds"
            if is_idle
            else f"group {group} is scaled down; running work has {terms.grace_s:.0f} seconds to finish"
        ),
        deadline_ms=0 if is_idle else int(deadline.timestamp() * 1000),
        is_pod_ready=pod is not None and pod.is_running_and_ready,
    )


# --- after the drain results -----------------------------------------------------------------------------------------


def names_to_delete_after(
    drains: Iterable[Drain], answers: Answers, hosts: Iterable[Instance]
) -> dict[str, tuple[str, ...]]:
    """Names of all pods in replicas that may be named for deletion now, by group.

    A preempted node may be busy: it is named in a later tick, when it is dead or past its deadline (RM:I22).
    """
    drains = tuple(drains)
    held = {(drain.group, drain.replica) for drain in drains if not _may_be_named(drain, answers)}
    agreed = {(drain.group, drain.replica) for drain in drains} - held
    names: dict[str, list[str]] = {}
    for host in hosts:
        if host.pod and (host.node_type, replica_of(host)) in agreed:
            names.setdefault(host.node_type, []).append(host.pod)
    return {group: tuple(pods) for group, pods in names.items()}


def _may_be_named(drain: Drain, answers: Answers) -> bool:
    answer = answers.get(drain.node_id)
    if answer is None:
        return not drain.is_pod_ready
    return answer.is_accepted and drain.reason is DrainReason.IDLE_TERMINATION


def draining_since(draining_since_s: Mapping[str, float], answers: Answers, now_s: float) -> dict[str, float]:
    """Since when each node has accepted its drain."""
    agreed = {node_id: now_s for node_id, answer in answers.items() if answer is not None and answer.is_accepted}
    return {**agreed, **draining_since_s}


def rejections_after(
    rejections: Mapping[str, DrainRejection], drains: Iterable[Drain], answers: Answers, now_s: float
) -> dict[str, DrainRejection]:
    """Backoff after rejected drains: it doubles with each rejection in a row; no answer counts as a rejection.

    Hosts that were not asked, because another host of their replica rejected, are left out.
    """
    found = dict(rejections)
    for drain in drains:
        if drain.node_id not in answers:
            continue
        answer = answers[drain.node_id]
        if answer is not None and answer.is_accepted:
            found.pop(drain.node_id, None)
        else:
            count = found[drain.node_id].count + 1 if drain.node_id in found else 1
            delay_s = min(FIRST_RETRY_S * 2 ** min(count - 1, 10), LONGEST_RETRY_S)
            found[drain.node_id] = DrainRejection(count, now_s + delay_s)
    return found
