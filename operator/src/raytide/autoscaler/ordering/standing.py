"""What was ordered before this tick, and by whom?

Takes the RayCluster and what this process remembers, gives per group the number that rules at this moment, the names that
were ordered away, and whether another writer raised the number. Under our operator the record rules and a foreign higher
number is adopted once (D19); under another operator the spec does. It reads and never decides. Called by tick.py and
pacing.py (contract, "The decision record").
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raytide.api import names
from raytide.api.pod import PodView
from raytide.api.scaling import DecisionRecord, GroupDecision, Why, parse_record
from raytide.autoscaler.inputs.spec_groups import SpecGroup, spec_groups
from raytide.autoscaler.ordering.orders import Memory, Snapshot


@dataclass(frozen=True, slots=True)
class Standing:
    """The order that stands."""

    groups: tuple[SpecGroup, ...]
    """In the order of the spec."""
    head: str
    """uid of the head pod beside us; empty when it is not to be seen."""
    is_recorded: bool
    record: DecisionRecord | None = None
    """Of this cluster; that of an earlier head counts, because the decision was ours."""
    is_record_foreign: bool = False
    """There is a record, and it was made for another cluster (a copied manifest) or beside another head."""
    unrecorded: Mapping[str, GroupDecision] = field(default_factory=dict)
    """What this process decided last, where nothing is recorded."""

    @property
    def why(self) -> tuple[Why, ...]:
        """The reasons that concern no group, as recorded."""
        return () if self.record is None else self.record.why

    def decision(self, group: SpecGroup) -> GroupDecision:
        """What stands for that group, as if it had been recorded."""
        recorded = None if self.record is None else self.record.groups.get(group.name)
        if recorded is not None:
            return recorded
        names_there = group.workers_to_delete or ()
        if not self.is_recorded:
            known = self.unrecorded.get(group.name, GroupDecision(group.standing_replicas))
            return replace(known, delete=names_there)
        # What stood in the spec before our first word is another writer's wish, and followed already: a manifest that
        # is applied again and again with the same number must not bring those workers back (SC:S6).
        replicas = group.standing_replicas
        return GroupDecision(replicas, names_there, foreign=group.replicas if replicas > group.min_replicas else None)

    def raised(self, group: SpecGroup) -> int | None:
        """The higher number of another writer that is adopted now."""
        recorded = None if self.record is None else self.record.groups.get(group.name)
        return None if recorded is None else recorded.foreign_raise(group.replicas)

    def foreign(self, group: SpecGroup) -> int | None:
        """The number that was adopted last, now included."""
        raised = self.raised(group)
        return self.decision(group).foreign if raised is None else raised

    def replicas(self, group: SpecGroup) -> int:
        """What the operator works towards."""
        if not self.is_recorded:
            return group.standing_replicas
        raised = self.raised(group)
        return group.clamp(self.decision(group).replicas if raised is None else raised)

    def is_prescaled(self, group: SpecGroup) -> bool:
        """Whether the number that rules is another writer's wish, which is not withdrawn for want of demand."""
        return self.foreign(group) is not None and self.foreign(group) == (
            self.decision(group).replicas if self.raised(group) is None else self.raised(group)
        )

    def named(self, group: SpecGroup) -> tuple[str, ...]:
        """The names ordered away, of spec and record together."""
        return tuple(dict.fromkeys([*(group.workers_to_delete or ()), *self.decision(group).delete]))


def standing_of(snapshot: Snapshot, memory: Memory) -> Standing:
    """Read it."""
    metadata = snapshot.cluster["metadata"]
    head = _head_uid(snapshot)
    is_recorded = snapshot.settings.is_recorded
    found = parse_record(_annotations(metadata).get(names.AUTOSCALER_DECISION_ANNOTATION)) if is_recorded else None
    is_ours = found is not None and found.cluster == metadata["uid"]
    return Standing(
        groups=spec_groups(snapshot.cluster),
        head=head,
        is_recorded=is_recorded,
        record=found if is_ours else None,
        is_record_foreign=found is not None and not (is_ours and found.head == head),
        unrecorded=memory.unrecorded,
    )


def with_own_pods(snapshot: Snapshot) -> Snapshot:
    """Without what is left of another cluster that had this name before: the operator never counts such pods (RM:I4)."""
    uid = snapshot.cluster["metadata"]["uid"]
    return replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.owner_uid in ("", uid)))


def is_head_leaving(snapshot: Snapshot) -> bool:
    """Whether the head pod that we are part of is going or gone, so that another sidecar speaks for this cluster.

    Ours sees its own end before it is told to end: a record it wrote now would be for no head, or for one it knows
    nothing of. A head that is no pod has no uid to write a record for, and no successor either.
    """
    settings = snapshot.settings
    return bool(settings.head_pod or settings.is_recorded) and not _own_heads(snapshot)


def is_paused(cluster: Mapping[str, Any]) -> bool:
    """Whether a user told us to keep our hands off."""
    return _annotations(cluster["metadata"]).get(names.AUTOSCALER_ANNOTATION) == names.PAUSED


def _annotations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get("annotations")
    return found if isinstance(found, Mapping) else {}


def _head_uid(snapshot: Snapshot) -> str:
    newest = max(_own_heads(snapshot), key=lambda pod: (pod.creation_timestamp, pod.name), default=None)
    return "" if newest is None else newest.uid


def _own_heads(snapshot: Snapshot) -> list[PodView]:
    """The head pod that we are part of, while it is to stay; any head pod where nobody told us which it is."""
    own = snapshot.settings.head_pod
    return [pod for pod in snapshot.pods if pod.is_head and not pod.is_terminating and own in ("", pod.name)]
