"""Targets in force before this tick: replicas and names to delete per worker group.

Takes the RayCluster and the reconciler's state. Returns per group the decision and the replica count in force, the names
in `workersToDelete` and whether another writer raised the count; later steps only read these fields. With Raytide's operator the decision record is in force
and a higher count from another writer is adopted once (D19); with another operator the spec is. It only reads. Called
by autoscaler/sidecar/reconcile.py (contract, "The decision record").
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, parse_record
from raytide.api.pod import PodView
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.autoscaler.state.worker_groups import spec_groups
from raytide.diagnosis.model import Diagnosis


@dataclass(frozen=True, slots=True)
class CurrentTarget:
    """The target in force for one group."""

    group: SpecGroup
    decision: GroupDecision
    """The decision in force, in the form of a recorded one."""
    replicas: int
    """The replica count the operator works towards."""
    names_to_delete: tuple[str, ...] = ()
    """Of pods, in the spec and the record."""
    raised: int | None = None
    """The higher replica count of another writer that is adopted in this tick, if any."""
    adopted_replicas: int | None = None
    """The replica count of another writer that was adopted last, including in this tick."""
    is_prescaled: bool = False
    """Whether the count in force comes from another writer; it is not lowered for lack of demand."""


@dataclass(frozen=True, slots=True)
class CurrentTargets:
    """The targets in force."""

    targets: tuple[CurrentTarget, ...]
    """In spec order."""
    head: str
    """UID of the head pod this sidecar belongs to; empty if it is not visible."""
    is_recorded: bool
    record: DecisionRecord | None = None
    """The record, if it was made for this cluster; one made beside an earlier head counts too."""
    is_record_foreign: bool = False
    """A record exists, but it was made for another cluster (a copied manifest) or beside another head."""
    why: tuple[Diagnosis, ...] = ()
    """The recorded reasons that concern no single group."""
    is_paused: bool = False
    """Whether a user paused the autoscaler by annotation."""


def read_current_targets(snapshot: Snapshot, state: ReconcilerState) -> CurrentTargets:
    """Read the targets in force from the snapshot."""
    metadata = snapshot.cluster["metadata"]
    annotations = _annotations(metadata)
    head = _head_uid(snapshot)
    is_recorded = snapshot.settings.is_recorded
    found = parse_record(annotations.get(constants.AUTOSCALER_DECISION_ANNOTATION)) if is_recorded else None
    is_ours = found is not None and found.cluster == metadata["uid"]
    record = found if is_ours else None
    groups = spec_groups(snapshot.cluster)
    return CurrentTargets(
        targets=tuple(recorded_target(group, record) for group in groups)
        if is_recorded
        else tuple(_unrecorded_target(group, state.unrecorded.get(group.name)) for group in groups),
        head=head,
        is_recorded=is_recorded,
        record=record,
        is_record_foreign=found is not None and not (is_ours and found.head == head),
        why=() if record is None else record.why,
        is_paused=annotations.get(constants.AUTOSCALER_ANNOTATION) == constants.PAUSED,
    )


def recorded_target(group: SpecGroup, record: DecisionRecord | None) -> CurrentTarget:
    """The target of a group under an operator that reads the record."""
    recorded = None if record is None else record.groups.get(group.name)
    # Replicas that stood in the spec before the first record came from another writer and are already in force: a
    # manifest applied again with the same number must not bring those workers back (SC:S6).
    is_set = group.spec_replicas > group.min_replicas
    decision = recorded or GroupDecision(
        group.spec_replicas, group.workers_to_delete or (), adopted_replicas=group.replicas if is_set else None
    )
    raised = None if recorded is None else recorded.replicas_to_adopt(group.replicas)
    replicas = decision.replicas if raised is None else raised
    adopted_replicas = decision.adopted_replicas if raised is None else raised
    return CurrentTarget(
        group=group,
        decision=decision,
        replicas=group.clamp(replicas),
        names_to_delete=tuple(dict.fromkeys([*(group.workers_to_delete or ()), *decision.delete])),
        raised=raised,
        adopted_replicas=adopted_replicas,
        is_prescaled=adopted_replicas is not None and adopted_replicas == replicas,
    )


def _unrecorded_target(group: SpecGroup, last: GroupDecision | None) -> CurrentTarget:
    """The target of a group under another operator: the spec; `last` is this process's last decision."""
    in_spec = group.workers_to_delete or ()
    decision = replace(last or GroupDecision(group.spec_replicas), delete=in_spec)
    return CurrentTarget(
        group=group,
        decision=decision,
        replicas=group.spec_replicas,
        names_to_delete=tuple(dict.fromkeys(in_spec)),
        adopted_replicas=decision.adopted_replicas,
        is_prescaled=decision.adopted_replicas is not None and decision.adopted_replicas == decision.replicas,
    )


def with_own_pods(snapshot: Snapshot) -> Snapshot:
    """Drop pods left over from an earlier cluster of the same name; the operator does not count them (RM:I4)."""
    uid = snapshot.cluster["metadata"]["uid"]
    return replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.owner_uid in ("", uid)))


def is_head_terminating(snapshot: Snapshot) -> bool:
    """Whether this sidecar's head pod is terminating or gone, so that another sidecar is in charge of the cluster.

    The sidecar can see its pod terminating before it receives SIGTERM: a record written now would name no head, or a
    head that did not write it. A head that is not a pod has no uid for a record and no successor.
    """
    settings = snapshot.settings
    return bool(settings.head_pod or settings.is_recorded) and not _own_heads(snapshot)


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
