"""Targets in force before this tick: replicas and names to delete per worker group.

Takes the RayCluster and the reconciler's state. Returns per group the replica count in force, the names in
`workersToDelete` and whether another writer raised the count. With Raytide's operator the decision record is in force
and a higher count from another writer is adopted once (D19); with another operator the spec is. It only reads. Called
by autoscaler/reconcile.py (contract, "The decision record").
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, Why, parse_record
from raytide.api.pod import PodView
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.autoscaler.state.worker_groups import spec_groups


@dataclass(frozen=True, slots=True)
class CurrentTargets:
    """The targets in force."""

    groups: tuple[SpecGroup, ...]
    """In spec order."""
    head: str
    """UID of the head pod this sidecar belongs to; empty if it is not visible."""
    is_recorded: bool
    record: DecisionRecord | None = None
    """The record, if it was made for this cluster; one made beside an earlier head counts too."""
    is_record_foreign: bool = False
    """A record exists, but it was made for another cluster (a copied manifest) or beside another head."""
    unrecorded: Mapping[str, GroupDecision] = field(default_factory=dict)
    """The last decisions of this process by group, for an operator that reads no decision records."""

    @property
    def why(self) -> tuple[Why, ...]:
        """The recorded reasons that concern no single group."""
        return () if self.record is None else self.record.why

    def decision(self, group: SpecGroup) -> GroupDecision:
        """The decision in force for the group, in the form of a recorded one."""
        recorded = None if self.record is None else self.record.groups.get(group.name)
        if recorded is not None:
            return recorded
        names_there = group.workers_to_delete or ()
        if not self.is_recorded:
            known = self.unrecorded.get(group.name, GroupDecision(group.spec_replicas))
            return replace(known, delete=names_there)
        # Replicas that stood in the spec before the first record came from another writer and are already in force: a
        # manifest applied again with the same number must not bring those workers back (SC:S6).
        replicas = group.spec_replicas
        return GroupDecision(replicas, names_there, foreign=group.replicas if replicas > group.min_replicas else None)

    def raised(self, group: SpecGroup) -> int | None:
        """The higher replica count of another writer that is adopted in this tick, if any."""
        recorded = None if self.record is None else self.record.groups.get(group.name)
        return None if recorded is None else recorded.foreign_raise(group.replicas)

    def foreign(self, group: SpecGroup) -> int | None:
        """The replica count of another writer that was adopted last, including in this tick."""
        raised = self.raised(group)
        return self.decision(group).foreign if raised is None else raised

    def replicas(self, group: SpecGroup) -> int:
        """The replica count the operator works towards."""
        if not self.is_recorded:
            return group.spec_replicas
        raised = self.raised(group)
        return group.clamp(self.decision(group).replicas if raised is None else raised)

    def is_prescaled(self, group: SpecGroup) -> bool:
        """Whether the count in force comes from another writer; it is not lowered for lack of demand."""
        return self.foreign(group) is not None and self.foreign(group) == (
            self.decision(group).replicas if self.raised(group) is None else self.raised(group)
        )

    def named(self, group: SpecGroup) -> tuple[str, ...]:
        """Pods named for deletion in the spec or the record."""
        return tuple(dict.fromkeys([*(group.workers_to_delete or ()), *self.decision(group).delete]))


def read_current_targets(snapshot: Snapshot, state: ReconcilerState) -> CurrentTargets:
    """Read the targets in force from the snapshot."""
    metadata = snapshot.cluster["metadata"]
    head = _head_uid(snapshot)
    is_recorded = snapshot.settings.is_recorded
    found = parse_record(_annotations(metadata).get(constants.AUTOSCALER_DECISION_ANNOTATION)) if is_recorded else None
    is_ours = found is not None and found.cluster == metadata["uid"]
    return CurrentTargets(
        groups=spec_groups(snapshot.cluster),
        head=head,
        is_recorded=is_recorded,
        record=found if is_ours else None,
        is_record_foreign=found is not None and not (is_ours and found.head == head),
        unrecorded=state.unrecorded,
    )


def with_own_pods(snapshot: Snapshot) -> Snapshot:
    """Drop pods left over from an earlier cluster of the same name; the operator does not count them (RM:I4)."""
    uid = snapshot.cluster["metadata"]["uid"]
    return replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.owner_uid in ("", uid)))


def is_head_leaving(snapshot: Snapshot) -> bool:
    """Whether this sidecar's head pod is terminating or gone, so that another sidecar is in charge of the cluster.

    The sidecar can see its pod terminating before it receives SIGTERM: a record written now would name no head, or a
    head that did not write it. A head that is not a pod has no uid for a record and no successor.
    """
    settings = snapshot.settings
    return bool(settings.head_pod or settings.is_recorded) and not _own_heads(snapshot)


def is_paused(cluster: Mapping[str, Any]) -> bool:
    """Whether a user paused the autoscaler by annotation."""
    return _annotations(cluster["metadata"]).get(constants.AUTOSCALER_ANNOTATION) == constants.PAUSED


def _annotations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get("annotations")
    return found if isinstance(found, Mapping) else {}


def _head_uid(snapshot: Snapshot) -> str:
    newest = max(_own_heads(snapshot), key=lambda pod: (pod.creation_timestamp, pod.name), default=None)
    return "" if newest is None else newest.uid


def _own_heads(snapshot: Snapshot) -> list[PodView]:
    """The sidecar's own head pod unless it is terminating; any such head pod if `settings.head_pod` is empty."""
    own = snapshot.settings.head_pod
    return [pod for pod in snapshot.pods if pod.is_head and not pod.is_terminating and own in ("", pod.name)]
