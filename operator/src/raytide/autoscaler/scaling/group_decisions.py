"""Decision per worker group: replicas, names to delete, adopted count, backoff and reasons.

Takes the targets in force and the scheduler's decision for the whole cluster, and returns one decision per group plus
the replicas to remove. A requested replica without a pod is not withdrawn before `HOLD_S` of missing demand, because
demand fluctuates (AS:G-6), unless its group cannot deliver. An unreadable or suspended group is left unchanged; while
the demand is unknown all groups are. Called by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from raytide.api.autoscaler_decision import GroupDecision
from raytide.api.pod import PodView
from raytide.autoscaler.model import COUNTABLE, HEAD_TYPE, STARTING, UNSEEN, Instance, Status, TerminationCause
from raytide.autoscaler.replicas import complete_replicas
from raytide.autoscaler.scaling.group_targets import Disposition, GroupInputs, GroupTarget, group_target
from raytide.autoscaler.scaling.limit_reasons import LimitInputs, head_down, reasons
from raytide.autoscaler.scheduling.fallback import SchedulingRound
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.cluster_state import ClusterState
from raytide.autoscaler.state.current_targets import CurrentTarget
from raytide.autoscaler.state.group_availability import Limits
from raytide.autoscaler.state.instance_lifecycle import Stage
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.diagnosis.model import Diagnosis

HOLD_S: Final = 10.0
"""How long requested replicas without a pod may lack demand before they are withdrawn."""
SILENCE_S: Final = 10.0
"""How long the head may be down before this is reported."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group's decision and what led to it."""

    group: SpecGroup
    current: CurrentTarget
    """The target in force before this decision."""
    desired: GroupDecision
    group_target: GroupTarget | None = None
    """The replicas with what happens to each; None: the group is left as it is."""
    launches: int = 0
    kept: int = 0
    """Hosts requested earlier, without a pod yet, and still needed."""
    withdrawn: int = 0
    """Hosts requested earlier, without a pod yet, and withdrawn now."""

    @property
    def before(self) -> GroupDecision:
        """The decision in force before, within minimum and maximum."""
        decision = self.current.decision
        return replace(decision, replicas=self.group.clamp(decision.replicas))

    @property
    def is_resized(self) -> bool:
        """Whether the replica count or the names to delete differ from those before."""
        before, after = self.before, self.desired
        return before.replicas != after.replicas or set(before.delete) != set(after.delete)

    @property
    def draining_host_count(self) -> int:
        """Number of hosts with a drain in progress."""
        if self.group_target is None:
            return 0
        return sum(len(replica.hosts) for replica in self.group_target.with_disposition(Disposition.DRAINING))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All decisions and the timers they are based on."""

    groups: tuple[GroupResult, ...]
    cluster_why: tuple[Diagnosis, ...] = ()
    """Reasons that concern no single group of the spec."""
    unneeded_since_s: Mapping[str, float] = field(default_factory=dict)
    pending_since_s: Mapping[str, float] = field(default_factory=dict)
    draining_since_s: Mapping[str, float] = field(default_factory=dict)

    def decisions(self) -> dict[str, GroupDecision]:
        """Decisions by group."""
        return {outcome.group.name: outcome.desired for outcome in self.groups}


def group_outcomes(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, scheduled: SchedulingRound | None
) -> Outcomes:
    """Decide about every group."""
    pods = {pod.name: pod for pod in snapshot.pods}
    if scheduled is None or cluster.limits is None:
        return _hold(snapshot, state, cluster, pods)
    return _GroupRound(snapshot, state, cluster, scheduled, cluster.limits, pods).outcomes()


def _hold(snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, pods: Mapping[str, PodView]) -> Outcomes:
    """Keep every group at its current target, within minimum and maximum."""
    current = cluster.current
    silent_s = snapshot.monotonic_s - (snapshot.monotonic_s if state.silent_s is None else state.silent_s)
    is_long = silent_s >= SILENCE_S
    groups = tuple(_unchanged_result(target, pods, () if is_long else None) for target in current.targets)
    why = (head_down(cluster.why_not),) if is_long else current.why
    return Outcomes(groups, why, state.unneeded_since_s, state.pending_since_s, state.draining_since_s)


def _unchanged_result(
    current: CurrentTarget, pods: Mapping[str, PodView], why: tuple[Diagnosis, ...] | None = None
) -> GroupResult:
    """Keep the replicas that the spec has, without names of pods that no longer exist.

    The spec of a suspended group may have any number, so its decision keeps the last one.
    """
    before = current.decision
    decision = replace(
        before,
        replicas=before.replicas if current.group.is_suspended else current.replicas,
        delete=tuple(name for name in current.names_to_delete if name in pods),
        adopted_replicas=current.adopted_replicas,
        why=before.why if why is None else why,
    )
    return GroupResult(current.group, current, decision)


@dataclass(frozen=True, slots=True)
class _GroupRound:
    """One decision about all groups."""

    snapshot: Snapshot
    state: ReconcilerState
    cluster: ClusterState
    scheduled: SchedulingRound
    limits: Limits
    pods: Mapping[str, PodView]

    def outcomes(self) -> Outcomes:
        """Compute the targets of all groups, then the reasons, which depend on all targets."""
        by_group = self.cluster.by_group
        pending_since_s = self._pending_since()
        exits = _Terminations(
            to_terminate={end.instance_id: end.cause for end in self.scheduled.reply.terminations},
            ended=self._ended(pending_since_s, by_group),
            draining_since_s=self._draining_since(by_group),
        )
        unneeded_since_s: dict[str, float] = {}
        groups: list[GroupResult] = []
        for current in self.cluster.current.targets:
            mine = by_group.get(current.group.name, ())
            since_s = self._unneeded_since(current, mine)
            if since_s is not None:
                unneeded_since_s[current.group.name] = since_s
            groups.append(self._outcome(current, mine, exits, since_s))
        why = self._reasons(groups)
        return Outcomes(
            groups=tuple(
                replace(outcome, desired=replace(outcome.desired, why=why.get(outcome.group.name, ())))
                for outcome in groups
            ),
            cluster_why=why.get(HEAD_TYPE, ()),
            unneeded_since_s=unneeded_since_s,
            pending_since_s=pending_since_s,
            draining_since_s=exits.draining_since_s,
        )

    def _outcome(
        self, current: CurrentTarget, mine: Sequence[Instance], exits: "_Terminations", unneeded_since_s: float | None
    ) -> GroupResult:
        group = current.group
        if group.is_suspended or group.name in self.cluster.types.skipped:
            return _unchanged_result(current, self.pods)
        launches = self.scheduled.launches.get(group.name, 0)
        unseen = [instance for instance in mine if instance.status in UNSEEN]
        kept = self._kept(unseen, unneeded_since_s)
        target = group_target(
            GroupInputs(
                group=group,
                instances=tuple(mine),
                pods=self.pods,
                names_to_delete=current.names_to_delete,
                launches=launches,
                to_terminate=exits.to_terminate,
                kept=kept,
                ended=exits.ended,
                overdue=self._overdue(exits.draining_since_s),
            )
        )
        decision = GroupDecision(
            replicas=target.replicas,
            delete=target.names,
            adopted_replicas=current.adopted_replicas,
            backoff=self.limits.backoffs.get(group.name),
        )
        return GroupResult(group, current, decision, target, launches, kept, len(unseen) - kept)

    # --- requested hosts without a pod -------------------------------------------------------------------------------

    def _kept(self, unseen: Iterable[Instance], unneeded_since_s: float | None) -> int:
        """Number of hosts still needed: all of them until some have lacked demand for `HOLD_S`."""
        wanted = [i for i in unseen if i.instance_id not in self.scheduled.withdrawn]
        if unneeded_since_s is None or self.snapshot.monotonic_s - unneeded_since_s < HOLD_S:
            return len(wanted)
        return sum(self._is_needed(instance) for instance in wanted)

    def _unneeded_since(self, current: CurrentTarget, mine: Iterable[Instance]) -> float | None:
        """Since when some hosts have lacked demand; None if none do or another writer's count is in force."""
        if current.is_prescaled:
            return None
        if all(
            self._is_needed(i) for i in mine if i.status in UNSEEN and i.instance_id not in self.scheduled.withdrawn
        ):
            return None
        return self.state.unneeded_since_s.get(current.group.name, self.snapshot.monotonic_s)

    def _is_needed(self, instance: Instance) -> bool:
        return instance.instance_id in self.scheduled.reply.needed or instance.instance_id in self.scheduled.kept

    # --- instances to remove -----------------------------------------------------------------------------------------

    def _ended(
        self, pending_since_s: Mapping[str, float], by_group: Mapping[str, Sequence[Instance]]
    ) -> frozenset[str]:
        """Pods that can be terminated without a drain."""
        found = self.cluster.found
        idle = self._idle_pending(pending_since_s, by_group)
        return found.failed_pods | self._dead_after_drain() | self.scheduled.withdrawn | idle

    def _dead_after_drain(self) -> frozenset[str]:
        """Pods whose Ray node received a drain request and is now dead: they must still be named for deletion."""
        asked = self.state.draining_since_s.keys() | self.state.rejections.keys()
        stages = self.cluster.found.timers.stages
        return frozenset(name for name, entry in stages.items() if entry.stage is Stage.DEAD and entry.node_id in asked)

    def _pending_since(self) -> dict[str, float]:
        """Since when each pod without a Ray node has lacked demand, if such pods are to be terminated (AS:S-33)."""
        if self.snapshot.settings.pending_idle_timeout_s is None:
            return {}
        return {
            i.instance_id: self.state.pending_since_s.get(i.instance_id, self.snapshot.monotonic_s)
            for i in self.cluster.found.instances
            if i.status in STARTING and not i.is_head and i.pod and not self._is_needed(i)
        }

    def _idle_pending(
        self, pending_since_s: Mapping[str, float], by_group: Mapping[str, Sequence[Instance]]
    ) -> frozenset[str]:
        """Pods past that timeout: oldest first, whole replicas, and none that the minimum requires."""
        limit_s = self.snapshot.settings.pending_idle_timeout_s
        if limit_s is None:
            return frozenset()
        due = {name for name, since_s in pending_since_s.items() if self.snapshot.monotonic_s - since_s > limit_s}
        found: set[str] = set()
        for kind in self.cluster.types.types:
            mine = [i for i in by_group.get(kind.name, ()) if i.status in COUNTABLE]
            whole = complete_replicas(mine, due)
            may_go = [i.instance_id for i in mine if i.instance_id in whole]
            excess = max(0, len(mine) - kind.min_nodes) // kind.num_of_hosts * kind.num_of_hosts
            found.update(sorted(may_go, key=lambda name: pending_since_s[name])[:excess])
        return frozenset(found)

    def _draining_since(self, by_group: Mapping[str, Sequence[Instance]]) -> dict[str, float]:
        """Since when each node has been leaving, as long as its pod exists.

        In a group above its maximum, a busy draining node gets its grace period from the moment it is first seen
        draining, whatever started the drain: after a restart that is unknown, and the maximum always applies.
        """
        stages = self.cluster.found.timers.stages
        there = {entry.node_id for name, entry in stages.items() if name in self.pods}
        draining_since_s = {
            node_id: since for node_id, since in self.state.draining_since_s.items() if node_id in there
        }
        for group in (target.group for target in self.cluster.current.targets):
            mine = [i for i in by_group.get(group.name, ()) if i.pod]
            if len(mine) > group.clamp(group.max_replicas) * group.num_of_hosts:
                for instance in mine:
                    if instance.status is Status.RAY_STOPPING:
                        draining_since_s.setdefault(instance.node_id, self.snapshot.monotonic_s)
        return draining_since_s

    def _overdue(self, draining_since_s: Mapping[str, float]) -> frozenset[str]:
        grace_s = self.snapshot.settings.preemption_grace_s
        return frozenset(
            node_id for node_id, since_s in draining_since_s.items() if self.snapshot.monotonic_s - since_s >= grace_s
        )

    # --- reasons -----------------------------------------------------------------------------------------------------

    def _reasons(self, groups: Iterable[GroupResult]) -> dict[str, tuple[Diagnosis, ...]]:
        groups = tuple(groups)
        return reasons(
            LimitInputs(
                types=self.cluster.types.types,
                reply=self.scheduled.reply,
                nodes={o.group.name: o.desired.replicas * o.group.num_of_hosts for o in groups},
                limits={name: blocked.diagnosis for name, blocked in self.limits.blocked.items()},
                problems=self.cluster.problems,
                leaving={outcome.group.name: outcome.draining_host_count for outcome in groups},
                held_back=self.scheduled.held_back,
            )
        )


@dataclass(frozen=True, slots=True)
class _Terminations:
    """Instances to remove, in all groups."""

    to_terminate: Mapping[str, TerminationCause]
    ended: frozenset[str]
    draining_since_s: Mapping[str, float]
