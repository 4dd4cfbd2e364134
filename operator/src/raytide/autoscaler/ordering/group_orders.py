"""What is ordered for each worker group?

Takes the order that stands and what the whole cluster needs, gives one order per group: replicas, names, adopted number,
back-off and reasons, together with the replicas that leave. What was asked for and has no pod yet is not withdrawn within
a few seconds, because demand flickers (AS:G-6), unless its group cannot deliver; a group that cannot be read or is
suspended is left as it is; while nobody knows what is needed everything is. Called by tick.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from raytide.api.pod import PodView
from raytide.api.scaling import GroupDecision, Why
from raytide.autoscaler.inputs.fallback import Choice
from raytide.autoscaler.inputs.limits import Limits
from raytide.autoscaler.inputs.spec_groups import SpecGroup
from raytide.autoscaler.model import COUNTABLE, HEAD_TYPE, STARTING, UNSEEN, Cause, Instance, Status
from raytide.autoscaler.ordering.deciding import Deciding, dead_after_drain
from raytide.autoscaler.ordering.orders import Memory, Snapshot
from raytide.autoscaler.ordering.standing import Standing
from raytide.autoscaler.ordering.targets import Fate, GroupQuestion, GroupTarget, group_target
from raytide.autoscaler.telling.reasons import Situation, head_down, reasons

HOLD_S: Final = 10.0
"""How long replicas that were asked for and have no pod yet may be needed by nobody before they are withdrawn."""
SILENCE_S: Final = 10.0
"""How long the head may be away before it is worth a word."""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """One group's order and how it came about."""

    group: SpecGroup
    before: GroupDecision
    order: GroupDecision
    target: GroupTarget | None = None
    """None: the group is left as it is."""
    launches: int = 0
    kept: int = 0
    """Hosts asked for before, without a pod yet, still wanted."""
    withdrawn: int = 0
    """Those that are no longer."""
    raised: int | None = None
    """Another writer's number that is adopted now."""

    @property
    def draining(self) -> int:
        """Hosts that work off their drain."""
        return 0 if self.target is None else sum(len(unit.hosts) for unit in self.target.fated(Fate.DRAINS))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All orders, and the timers that went into them."""

    groups: tuple[GroupOutcome, ...]
    cluster_why: tuple[Why, ...] = ()
    """Reasons that concern no group of the spec."""
    unneeded_s: Mapping[str, float] = field(default_factory=dict)
    pending_s: Mapping[str, float] = field(default_factory=dict)
    leaving_s: Mapping[str, float] = field(default_factory=dict)

    def orders(self) -> dict[str, GroupDecision]:
        """By group."""
        return {outcome.group.name: outcome.order for outcome in self.groups}


def group_outcomes(snapshot: Snapshot, memory: Memory, standing: Standing, deciding: Deciding) -> Outcomes:
    """The order of every group."""
    pods = {pod.name: pod for pod in snapshot.pods}
    if deciding.choice is None or deciding.limits is None:
        return _hold(snapshot, memory, standing, deciding, pods)
    return _Round(snapshot, memory, standing, deciding, deciding.choice, deciding.limits, pods).outcomes()


def _hold(
    snapshot: Snapshot, memory: Memory, standing: Standing, deciding: Deciding, pods: Mapping[str, PodView]
) -> Outcomes:
    """Everything stays as it was ordered, within minimum and maximum."""
    silent_s = snapshot.monotonic_s - (snapshot.monotonic_s if memory.silent_s is None else memory.silent_s)
    is_long = silent_s >= SILENCE_S
    groups = tuple(_left(group, standing, pods, () if is_long else None) for group in standing.groups)
    why = (head_down(deciding.why_not),) if is_long else standing.why
    return Outcomes(groups, why, memory.unneeded_s, memory.pending_s, memory.leaving_s)


def _left(
    group: SpecGroup, standing: Standing, pods: Mapping[str, PodView], why: tuple[Why, ...] | None = None
) -> GroupOutcome:
    """The group as it stands: only names of pods that are gone are taken away."""
    before = standing.decision(group)
    order = replace(
        before,
        replicas=before.replicas if group.is_suspended else standing.replicas(group),
        delete=tuple(name for name in standing.named(group) if name in pods),
        foreign=standing.foreign(group),
        why=before.why if why is None else why,
    )
    return GroupOutcome(group, before, order, raised=standing.raised(group))


@dataclass(frozen=True, slots=True)
class _Round:
    """One decision about all groups."""

    snapshot: Snapshot
    memory: Memory
    standing: Standing
    deciding: Deciding
    choice: Choice
    limits: Limits
    pods: Mapping[str, PodView]

    def outcomes(self) -> Outcomes:
        """Targets first, then the reasons, which look at all of them."""
        by_group = self.deciding.found.by_group()
        pending_s = self._pending_since()
        exits = _Exits(
            doomed={end.instance_id: end.cause for end in self.choice.decision.terminations},
            ended=self._ended(pending_s, by_group),
            leaving_s=self._leaving_s(by_group),
        )
        unneeded_s: dict[str, float] = {}
        groups: list[GroupOutcome] = []
        for group in self.standing.groups:
            mine = by_group.get(group.name, [])
            since_s = self._unneeded_since(group, mine)
            if since_s is not None:
                unneeded_s[group.name] = since_s
            groups.append(self._outcome(group, mine, exits, since_s))
        why = self._reasons(groups)
        return Outcomes(
            groups=tuple(
                replace(outcome, order=replace(outcome.order, why=why.get(outcome.group.name, ())))
                for outcome in groups
            ),
            cluster_why=why.get(HEAD_TYPE, ()),
            unneeded_s=unneeded_s,
            pending_s=pending_s,
            leaving_s=exits.leaving_s,
        )

    def _outcome(
        self, group: SpecGroup, mine: Sequence[Instance], exits: "_Exits", unneeded_since_s: float | None
    ) -> GroupOutcome:
        if group.is_suspended or group.name in self.deciding.types.skipped:
            return _left(group, self.standing, self.pods)
        launches = self.deciding.launches.now.get(group.name, 0) if self.deciding.launches else 0
        unseen = [instance for instance in mine if instance.status in UNSEEN]
        kept = self._kept(unseen, unneeded_since_s)
        target = group_target(
            GroupQuestion(
                group=group,
                instances=tuple(mine),
                pods=self.pods,
                named=self.standing.named(group),
                launches=launches,
                doomed=exits.doomed,
                kept=kept,
                ended=exits.ended,
                overdue=self._overdue(exits.leaving_s),
            )
        )
        order = GroupDecision(
            replicas=target.replicas,
            delete=target.names,
            foreign=self.standing.foreign(group),
            backoff=self.limits.backoffs.get(group.name),
        )
        before, raised = self.standing.decision(group), self.standing.raised(group)
        return GroupOutcome(group, before, order, target, launches, kept, len(unseen) - kept, raised)

    # --- what was asked for and has no pod yet -----------------------------------------------------------------------

    def _kept(self, unseen: Iterable[Instance], unneeded_since_s: float | None) -> int:
        """How many hosts are still wanted: all, until nobody has needed some of them for a while."""
        wanted = [i for i in unseen if i.instance_id not in self.choice.withdrawn]
        if unneeded_since_s is None or self.snapshot.monotonic_s - unneeded_since_s < HOLD_S:
            return len(wanted)
        return sum(self._is_needed(instance) for instance in wanted)

    def _unneeded_since(self, group: SpecGroup, mine: Iterable[Instance]) -> float | None:
        """Since when some of them are needed by nobody; None while all are, or while they are another writer's wish."""
        if self.standing.is_prescaled(group):
            return None
        if all(self._is_needed(i) for i in mine if i.status in UNSEEN and i.instance_id not in self.choice.withdrawn):
            return None
        return self.memory.unneeded_s.get(group.name, self.snapshot.monotonic_s)

    def _is_needed(self, instance: Instance) -> bool:
        return instance.instance_id in self.choice.decision.needed or instance.instance_id in self.choice.kept

    # --- what leaves -------------------------------------------------------------------------------------------------

    def _ended(self, pending_s: Mapping[str, float], by_group: Mapping[str, Sequence[Instance]]) -> frozenset[str]:
        """Pods that need no drain any more."""
        found = self.deciding.found
        idle = self._idle_pending(pending_s, by_group)
        return found.to_end | dead_after_drain(found, self.memory) | self.choice.withdrawn | idle

    def _pending_since(self) -> dict[str, float]:
        """Since when each pod without a Ray node is needed by nobody, where such pods are to end (AS:S-33)."""
        if self.snapshot.settings.pending_idle_timeout_s is None:
            return {}
        return {
            i.instance_id: self.memory.pending_s.get(i.instance_id, self.snapshot.monotonic_s)
            for i in self.deciding.found.instances
            if i.status in STARTING and not i.is_head and i.pod and not self._is_needed(i)
        }

    def _idle_pending(
        self, pending_s: Mapping[str, float], by_group: Mapping[str, Sequence[Instance]]
    ) -> frozenset[str]:
        """Those whose time is up, the oldest first, whole replicas, and none that the minimum asks for."""
        limit_s = self.snapshot.settings.pending_idle_timeout_s
        if limit_s is None:
            return frozenset()
        due = {name for name, since_s in pending_s.items() if self.snapshot.monotonic_s - since_s > limit_s}
        found: set[str] = set()
        for kind in self.deciding.types.types:
            mine = [i for i in by_group.get(kind.name, ()) if i.status in COUNTABLE]
            held = {i.replica for i in mine if i.replica and i.instance_id not in due}
            may_go = [i.instance_id for i in mine if i.instance_id in due and i.replica not in held]
            room = max(0, len(mine) - kind.min_nodes) // kind.num_of_hosts * kind.num_of_hosts
            found.update(sorted(may_go, key=lambda name: pending_s[name])[:room])
        return frozenset(found)

    def _leaving_s(self, by_group: Mapping[str, Sequence[Instance]]) -> dict[str, float]:
        """Since when each node is on its way out, as long as its pod lives.

        A busy node that drains in a group above its maximum has its time from the moment we see it, whoever asked it:
        after a restart nobody knows, and the maximum always wins.
        """
        stays = self.deciding.found.timers.stays
        there = {stay.node_id for name, stay in stays.items() if name in self.pods}
        leaving_s = {node_id: since for node_id, since in self.memory.leaving_s.items() if node_id in there}
        for group in self.standing.groups:
            mine = [i for i in by_group.get(group.name, ()) if i.pod]
            if len(mine) > group.clamp(group.max_replicas) * group.num_of_hosts:
                for instance in mine:
                    if instance.status is Status.RAY_STOPPING:
                        leaving_s.setdefault(instance.node_id, self.snapshot.monotonic_s)
        return leaving_s

    def _overdue(self, leaving_s: Mapping[str, float]) -> frozenset[str]:
        grace_s = self.snapshot.settings.preemption_grace_s
        return frozenset(
            node_id for node_id, since_s in leaving_s.items() if self.snapshot.monotonic_s - since_s >= grace_s
        )

    # --- why ---------------------------------------------------------------------------------------------------------

    def _reasons(self, groups: Iterable[GroupOutcome]) -> dict[str, tuple[Why, ...]]:
        groups = tuple(groups)
        speed = self.deciding.launches
        return reasons(
            Situation(
                types=self.deciding.types.types,
                decision=self.choice.decision,
                nodes={o.group.name: o.order.replicas * o.group.num_of_hosts for o in groups},
                limits={
                    name: Why(blocked.reason, blocked.count, blocked.detail)
                    for name, blocked in self.limits.blocked.items()
                },
                problems=self.deciding.types.problems_by_group(),
                leaving={outcome.group.name: outcome.draining for outcome in groups},
                held_back=speed.held_back if speed else {},
            )
        )


@dataclass(frozen=True, slots=True)
class _Exits:
    """Who leaves, in any group."""

    doomed: Mapping[str, Cause]
    ended: frozenset[str]
    leaving_s: Mapping[str, float]
