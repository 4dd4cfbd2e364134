"""Which Ray nodes are asked to leave, and whose names follow?

Takes the replicas that leave, gives one drain per living node: idle termination, which the raylet refuses when it turned
busy, or preemption with a deadline where the group is too large and nobody is idle. After the answers it gives the
replicas that may be named: every host agreed, or does not answer and its pod is not Ready (contract, "Order of a
scale-down"). Refusals are remembered, so that a node that refuses for ever does not make the group flap. Called by tick.py.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.model import Cause, DrainReason, Instance
from raytide.autoscaler.ordering.orders import Answers, Drain, Refusal
from raytide.autoscaler.ordering.targets import Fate, GroupTarget, Unit

FIRST_REST_S: Final = 15.0
LONGEST_REST_S: Final = 600.0
MOST_DRAINS: Final = 200
"""Asked for in one tick, unless a single replica has more hosts; the others follow in the next."""


@dataclass(frozen=True, slots=True)
class DrainTerms:
    """What drains depend on besides the replicas."""

    pods: Mapping[str, PodView]
    now: datetime
    monotonic_s: float
    grace_s: float
    refusals: Mapping[str, Refusal]

    def is_resting(self, node_id: str) -> bool:
        """Whether this node refused lately."""
        refusal = self.refusals.get(node_id)
        return refusal is not None and self.monotonic_s < refusal.until_s

    def host_index(self, host: Instance) -> int:
        """Which of its replica's hosts it is; 0 where its pod does not say."""
        pod = self.pods.get(host.pod)
        return (pod.host_index or 0) if pod is not None else 0


def drains_of(group: str, target: GroupTarget, terms: DrainTerms) -> tuple[Drain, ...]:
    """The drains of one group, whole replicas only, the first host of each before the others."""
    found: list[Drain] = []
    for unit in target.fated(Fate.LEAVES):
        if any(terms.is_resting(host.node_id) for host in unit.draining):
            continue
        if found and len(found) + len(unit.draining) > MOST_DRAINS:
            break
        found += [_drain(group, unit, host, terms) for host in sorted(unit.draining, key=terms.host_index)]
    return tuple(found)


def by_replica(drains: Iterable[Drain]) -> tuple[tuple[Drain, ...], ...]:
    """The same, each replica's together, in order."""
    found: dict[tuple[str, str], list[Drain]] = {}
    for drain in drains:
        found.setdefault((drain.group, drain.unit), []).append(drain)
    return tuple(tuple(hosts) for hosts in found.values())


def drains_of_removed(
    found: Iterable[Instance], groups: Collection[str], leaving_s: Mapping[str, float], terms: DrainTerms
) -> tuple[Drain, ...]:
    """Nodes whose group has left the spec: nobody can name them any more, so they are asked to end by themselves (B-1)."""
    drains: list[Drain] = []
    for host in found:
        is_removed = host.pod and host.node_id and not host.is_head and host.node_type and host.node_type not in groups
        if is_removed and host.node_id not in leaving_s and not terms.is_resting(host.node_id):
            unit = Unit(host.replica or host.pod, (host,), Fate.LEAVES)
            drains.append(_drain(host.node_type, unit, host, terms))
    return tuple(drains[:MOST_DRAINS])


def _drain(group: str, unit: Unit, host: Instance, terms: DrainTerms) -> Drain:
    pod = terms.pods.get(host.pod)
    is_idle = unit.cause is Cause.IDLE or (unit.cause is None and all(each.idle_ms for each in unit.draining))
    deadline = terms.now + timedelta(seconds=terms.grace_s)
    return Drain(
        node_id=host.node_id,
        pod=host.pod,
        group=group,
        unit=unit.name,
        reason=DrainReason.IDLE_TERMINATION if is_idle else DrainReason.PREEMPTION,
        message=(
            f"idle for {host.idle_ms / 1000:.0f} seconds"
            if is_idle
            else f"group {group} shrinks; work may go on for {terms.grace_s:.0f} seconds"
        ),
        deadline_ms=0 if is_idle else int(deadline.timestamp() * 1000),
        is_pod_ready=pod is not None and pod.is_running_and_ready,
    )


# --- after the answers -----------------------------------------------------------------------------------------------


def named_after(drains: Iterable[Drain], answers: Answers, hosts: Iterable[Instance]) -> dict[str, tuple[str, ...]]:
    """By group, the names of all pods in the replicas that may be named now.

    A node under preemption may be busy: it is named when it is dead, or its time is up, in a later tick (RM:I22).
    """
    drains = tuple(drains)
    held = {(drain.group, drain.unit) for drain in drains if not _may_be_named(drain, answers)}
    agreed = {(drain.group, drain.unit) for drain in drains} - held
    names: dict[str, list[str]] = {}
    for host in hosts:
        if host.pod and (host.node_type, host.replica or host.pod) in agreed:
            names.setdefault(host.node_type, []).append(host.pod)
    return {group: tuple(pods) for group, pods in names.items()}


def _may_be_named(drain: Drain, answers: Answers) -> bool:
    answer = answers.get(drain.node_id)
    if answer is None:
        return not drain.is_pod_ready
    return answer.is_accepted and drain.reason is DrainReason.IDLE_TERMINATION


def leaving_since(leaving_s: Mapping[str, float], answers: Answers, now_s: float) -> dict[str, float]:
    """Since when each node has agreed to leave."""
    agreed = {node_id: now_s for node_id, answer in answers.items() if answer is not None and answer.is_accepted}
    return {**agreed, **leaving_s}


def refusals_after(
    refusals: Mapping[str, Refusal], drains: Iterable[Drain], answers: Answers, now_s: float
) -> dict[str, Refusal]:
    """Who is left alone for how long: each refusal in a row doubles the rest, silence counts as refusal.

    Hosts that were not asked, because another of their replica refused, are left out.
    """
    found = dict(refusals)
    for drain in drains:
        if drain.node_id not in answers:
            continue
        answer = answers[drain.node_id]
        if answer is not None and answer.is_accepted:
            found.pop(drain.node_id, None)
        else:
            count = found[drain.node_id].count + 1 if drain.node_id in found else 1
            rest_s = min(FIRST_REST_S * 2 ** min(count - 1, 10), LONGEST_REST_S)
            found[drain.node_id] = Refusal(count, now_s + rest_s)
    return found
