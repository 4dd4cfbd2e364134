"""Outcome of submitted RayClusters: which of their pods get a node, and what the others lack.

Takes the RayClusters and the objects after the passes that follow, and returns per group how many pods are wanted, have a node, are
Pending or are rejected by a ResourceQuota, with the reason in the words of `raytide why`; as sentences, and as JSON in the form that
docs/plan.md documents. Decides nothing. Called by simulate.py, render.py and `raytide ui`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raytide.api.capacity import CapacityPod
from raytide.diagnosis.render import counted
from raytide.explain.model import RAYCLUSTER
from raytide.fairshare.algorithm.format_quantity import spell
from raytide.fairshare.pod_requirements import shape_from
from raytide.simulator.closest_node import why_unschedulable
from raytide.simulator.passes import Passes
from raytide.simulator.quota_usage import QuotaUsage
from raytide.simulator.raycluster_pods import GROUP_SUSPENDED, HEAD, MAX_PODS, NewGroup, NewRayCluster, PodSet

GATED: Final = "SchedulingGated"
UNSCHEDULABLE: Final = "Unschedulable"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
NOT_PLANNED: Final = "NotPlanned"
"""More pods than a prediction has."""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The pods of one group, or the head, once nothing changes."""

    name: str
    wanted: int
    scheduled: int = 0
    """Pods with a node."""
    pending: int = 0
    """Pods without one."""
    rejected: int = 0
    """Pods that a ResourceQuota rejects."""
    reason: str = ""
    message: str = ""
    """Why some have no node, or are not created; empty if all have one."""


@dataclass(frozen=True, slots=True)
class RayClusterOutcome:
    """The pods of one RayCluster, once nothing changes."""

    cluster: NewRayCluster
    head: GroupOutcome
    groups: tuple[GroupOutcome, ...]

    @property
    def name(self) -> str:
        """Kind, namespace and name for sentences."""
        return f"{RAYCLUSTER} {self.cluster.key.namespace}/{self.cluster.key.name}"

    @property
    def scheduled(self) -> int:
        """Workers with a node."""
        return sum(group.scheduled for group in self.groups)

    @property
    def reason(self) -> str:
        """The first reason why it has not all pods; empty if it has them."""
        return self.cluster.reason or next((each.reason for each in (self.head, *self.groups) if each.reason), "")

    @property
    def message(self) -> str:
        """The message of the reason."""
        return self.cluster.message or next((each.message for each in (self.head, *self.groups) if each.reason), "")

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            "kind": RAYCLUSTER,
            "namespace": self.cluster.key.namespace,
            "name": self.cluster.key.name,
            "wanted": self.cluster.wanted,
            "scheduled": self.scheduled,
            "reason": self.reason,
            "message": self.message,
            "head": _group_as_json(self.head),
            "groups": [{"name": each.name, **_group_as_json(each)} for each in self.groups],
        }

    def sentences(self) -> Iterator[str]:
        """What it gets, and why some pods get no node."""
        if self.cluster.reason:
            yield f"{self.name} gets no pods: {self.cluster.message}"
            return
        head = "its head" if self.head.scheduled else "no head"
        workers = f" and {self.scheduled} of {counted(self.cluster.wanted, 'worker')}" if self.cluster.wanted else ""
        yield f"{self.name} gets {head}{workers}"
        for each in (self.head, *self.groups):
            if each.message:
                yield f"{self.name}: {_obstacle(each)}"
        if self.cluster.is_autoscaled:
            yield f"{self.name}: its autoscaler may add workers, up to {self.cluster.maximum}, when Ray's demand needs them"


def outcomes_of(clusters: Iterable[NewRayCluster], after: Passes) -> tuple[RayClusterOutcome, ...]:
    """The outcome of each RayCluster after these passes."""
    found = tuple(clusters)
    uids = {each.uid for each in found}
    pods = {(pod.owner_uid, pod.name): pod for pod in after.objects.pods if pod.owner_uid in uids}
    return tuple(_outcome(each, pods, after) for each in found)


def _outcome(cluster: NewRayCluster, pods: Mapping[tuple[str, str], CapacityPod], after: Passes) -> RayClusterOutcome:
    by_group: dict[str, list[PodSet]] = {}
    for one in cluster.pods:
        by_group.setdefault(one.group, []).append(one)

    def outcome(group: NewGroup) -> GroupOutcome:
        created, rejected = [], []
        for one in by_group.get(group.name, ()):
            there = [pod for each in one.pods if (pod := pods.get((cluster.uid, each.name))) is not None]
            created += there
            rejected += [] if there else [one]
        return _group(group, created, rejected, after)

    has_head = not cluster.reason
    head = outcome(NewGroup(HEAD, int(has_head)))
    return RayClusterOutcome(cluster, head, tuple(map(outcome, cluster.groups)))


def _group(group: NewGroup, created: list[CapacityPod], rejected: list[PodSet], after: Passes) -> GroupOutcome:
    pending = [pod for pod in created if not pod.node]
    reason, message = _why(group, pending, rejected, after, len(created))
    return GroupOutcome(
        group.name,
        group.wanted,
        len(created) - len(pending),
        len(pending),
        sum(len(each.pods) for each in rejected),
        reason,
        message,
    )


def _why(
    group: NewGroup, pending: list[CapacityPod], rejected: list[PodSet], after: Passes, created: int
) -> tuple[str, str]:
    """Why some pods of the group have no node: the pending ones first, as their capacity is needed before that of others."""
    if pending:
        first = pending[0]
        if first.is_scheduling_gated:
            return GATED, "scheduling gates block them until another controller removes these"
        return UNSCHEDULABLE, why_unschedulable(after.last, shape_from(first.shape))
    if rejected:
        return QUOTA_EXCEEDED, _quota_message(rejected[0], after)
    if group.is_suspended:
        return GROUP_SUSPENDED, "suspend of the group is true"
    if created < group.wanted:
        return NOT_PLANNED, f"a prediction has at most {MAX_PODS} pods of RayClusters"
    return "", ""


def _quota_message(pods: PodSet, after: Passes) -> str:
    short = QuotaUsage(after.objects.quotas).shortage(pods)
    if short is None:
        return "a ResourceQuota rejected them"
    needs = "one pod needs" if len(pods.pods) == 1 else f"the {len(pods.pods)} hosts of a replica need"
    allowed = f"allows {spell(short.resource, short.left)} more of {short.resource}"
    return f"ResourceQuota {short.quota.namespace}/{short.quota.name} {allowed}; {needs} {spell(short.resource, short.wanted)}"


def _obstacle(group: GroupOutcome) -> str:
    """The pods of the group without a node, and why; the head is one pod."""
    of_group = "" if group.name == HEAD else f" of group {group.name}"
    if group.pending:
        pods = f"{counted(group.pending, 'pod')}{of_group}" if of_group else "the head"
        return f"{pods} {'stays' if group.pending == 1 else 'stay'} Pending: {group.message}"
    if group.rejected:
        pods = f"{counted(group.rejected, 'pod')}{of_group}" if of_group else "the head"
        return f"{pods} {'is' if group.rejected == 1 else 'are'} not created: {group.message}"
    return f"{'the head' if group.name == HEAD else f'group {group.name}'}: {group.message}"


def _group_as_json(group: GroupOutcome) -> dict[str, Any]:
    return {
        "wanted": group.wanted,
        "scheduled": group.scheduled,
        "pending": group.pending,
        "rejected": group.rejected,
        "reason": group.reason,
        "message": group.message,
    }
